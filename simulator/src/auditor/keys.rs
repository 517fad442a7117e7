//! The grants of a key, in the order of their fences.

use crate::clock::unix_us;
use crate::form::Form;
use crate::mix::SKEW_MAX_US;
use std::collections::BTreeMap;
use waymaker_engine::Scope;
use waymaker_protocol::LockId;

/// Grants that a new one is compared with.
const COMPARED_COUNT: usize = 64;

/// One grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granting {
    pub(crate) id: LockId,
    pub(crate) shared: bool,
    pub(crate) form: Form,
    /// The server's clock when it was said to be held; not known where only a repetition was heard.
    pub(crate) stamp_ms: Option<u64>,
    /// It was decided then, too; otherwise some time before.
    pub(crate) is_prompt: bool,
    /// What it was asked for under, if that is known.
    pub(crate) scope: Scope,
    /// When it was first asked for.
    pub(crate) asked_ms: u64,
    /// Which start of the server granted it.
    pub(crate) server: u32,
    /// When it was asked for, if it was asked for once and got what it asked for.
    pub(crate) sent_ms: Option<u64>,
    /// It asked not to wait.
    pub(crate) is_try: bool,
    pub(crate) boost_ms: u64,
    /// Of a claim that said it waits.
    pub(crate) waited: Option<Waited>,
}

/// How a claim waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    /// Not known of the later ones of several keys.
    pub(crate) ticket: Option<u64>,
    pub(crate) boost_ms: u64,
    /// It arrived between these two.
    pub(crate) sent_ms: u64,
    pub(crate) queued_ms: u64,
}

impl Granting {
    /// When it was decided, if that is known.
    fn decided_ms(&self) -> Option<u64> {
        self.stamp_ms.filter(|_| self.is_prompt)
    }

    /// Its place in the order of timestamps: between these two. The server moves what is far away from its own time, of which
    /// is known only when it was asked and when it had the claim.
    fn place_us(&self) -> Option<(u64, u64)> {
        let timestamp_us = self.form.timestamp_us()?;
        let sent_ms = self.waited.map(|waited| waited.sent_ms).or(self.sent_ms)?;
        let had_ms = self.waited.map(|waited| waited.queued_ms).or(self.decided_ms())?;
        let (least_us, most_us) = (unix_us(sent_ms), unix_us(had_ms + 1));
        if timestamp_us == 0 {
            return Some((least_us, most_us));
        }
        let placed = |now_us: u64| timestamp_us.clamp(now_us - SKEW_MAX_US, now_us + SKEW_MAX_US);
        Some((placed(least_us), placed(most_us)))
    }
}

/// All grants of a key that were heard of.
#[derive(Debug, Default)]
pub(crate) struct KeyHistory {
    grants: BTreeMap<u64, Granting>,
    /// Somebody asked for it under scope Local or Quorum.
    pub(crate) is_local_asked: bool,
    /// Somebody asked for it under scope Quorum.
    pub(crate) is_counted_asked: bool,
    /// Some of its grants are not remembered.
    is_cut: bool,
    /// Up to this fence the server may have forgotten of which scope the key is.
    scope_lost_to: u64,
}

impl KeyHistory {
    /// The first and the last fence that were asked for under scope Local. From the first on all outlive the server; where
    /// counters of idle keys are forgotten, only what was asked for under scope Local is sure.
    pub(crate) fn locals(&self) -> Option<(u64, u64)> {
        let known = self.grants.range(self.scope_lost_to + 1..);
        let mut locals = known.filter(|(_, grant)| grant.scope.is_durable()).map(|(fence, _)| *fence);
        let first = locals.next()?;
        Some((first, locals.next_back().unwrap_or(first)))
    }

    /// Whether the grant with this fence was asked for under scope Local.
    pub(crate) fn is_local(&self, fence: u64) -> bool {
        self.get(fence).is_some_and(|grant| grant.scope.is_durable())
    }

    /// Whether the server knows of a grant of the key under scope Quorum.
    pub(crate) fn is_counted(&self) -> bool {
        let mut known = self.grants.range(self.scope_lost_to + 1..);
        known.any(|(_, grant)| grant.scope == Scope::Quorum)
    }

    /// What is surely durable, the first fence under scope Local being this.
    pub(crate) fn durable_ids(&self, first: u64, is_forgetful: bool) -> impl Iterator<Item = LockId> {
        let grants = self.grants.range(first..);
        grants.filter(move |(_, grant)| grant.scope.is_durable() || !is_forgetful).map(|(_, grant)| grant.id)
    }

    /// Its counter may go on anew behind this fence.
    pub(crate) fn forget_behind(&mut self, fence: u64) {
        let count = self.grants.len();
        self.grants.retain(|other, _| *other <= fence);
        self.is_cut |= self.grants.len() < count;
    }

    /// The server may have forgotten of which scope it is.
    pub(crate) fn forget_scope(&mut self) {
        self.scope_lost_to = self.newest_said();
    }

    /// The newest fence that was said.
    pub(crate) fn newest_said(&self) -> u64 {
        self.grants.last_key_value().map_or(0, |(fence, _)| *fence)
    }

    /// Fences below the newest that nobody was told.
    pub(crate) fn missing_count(&self) -> u64 {
        if self.is_cut {
            return 0;
        }
        self.newest_said() - self.grants.len() as u64
    }

    /// The grant with this fence.
    pub(crate) fn get(&self, fence: u64) -> Option<&Granting> {
        self.grants.get(&fence)
    }

    /// The newest grants, the last one first.
    pub(crate) fn newest(&self) -> Vec<(u64, Granting)> {
        self.grants.iter().rev().take(COMPARED_COUNT).map(|(fence, grant)| (*fence, *grant)).collect()
    }

    /// Grants with another fence, the newest first.
    pub(crate) fn others(&self, fence: u64) -> Vec<(u64, Granting)> {
        let others = self.grants.iter().rev().filter(|(other, _)| **other != fence);
        others.take(COMPARED_COUNT).map(|(fence, grant)| (*fence, *grant)).collect()
    }

    /// All grants with lower fences, the newest first.
    pub(crate) fn earlier(&self, fence: u64) -> impl Iterator<Item = (u64, &Granting)> {
        self.grants.range(..fence).rev().map(|(fence, grant)| (*fence, grant))
    }

    /// Takes down a grant. Says which rule it breaks.
    pub(crate) fn add(&mut self, fence: u64, grant: Granting) -> Result<(), (&'static str, String)> {
        if let Some(other) = self.grants.get(&fence) {
            return Err(("fence-unique", format!("{} and {} have the fence {fence}", other.id, grant.id)));
        }
        // Of two that do not conflict the second may be durable first.
        let stamp = |other: &Granting| {
            let is_ordered =
                grant.is_prompt || Form::conflict((&grant.form, grant.shared), (&other.form, other.shared));
            other.stamp_ms.filter(|_| is_ordered)
        };
        let before = self.grants.range(..fence).next_back().and_then(|(_, grant)| stamp(grant));
        let behind = self.grants.range(fence + 1..).next().and_then(|(_, grant)| stamp(grant));
        if let Some(stamp_ms) = grant.stamp_ms
            && (before.is_some_and(|before| before > stamp_ms)
                || behind.is_some_and(|behind| behind < stamp_ms))
        {
            let text = format!("fence {fence} of {} was given at {stamp_ms}, out of order", grant.id);
            return Err(("fence-order", text));
        }
        if let Some(waited) = grant.waited {
            for (other_fence, other) in self.others(fence) {
                if let Some(other_waited) = other.waited.filter(|other_waited| {
                    let both_tell = waited.ticket.is_some() && other_waited.ticket.is_some();
                    both_tell && grant.server == other.server && is_ordered(&grant, &other)
                }) {
                    let mine = (fence, waited, grant.decided_ms());
                    let theirs = (other_fence, other_waited, other.decided_ms());
                    let (first, second) =
                        if waited.ticket < other_waited.ticket { (mine, theirs) } else { (theirs, mine) };
                    compare(first, second)?;
                }
            }
        }
        for (other_fence, other) in self.others(fence) {
            overtakes((fence, &grant), (other_fence, &other))?;
            overtakes((other_fence, &other), (fence, &grant))?;
            is_out_of_time((fence, &grant), (other_fence, &other))?;
            is_out_of_time((other_fence, &other), (fence, &grant))?;
        }
        self.grants.insert(fence, grant);
        Ok(())
    }
}

/// Whether the first of two to come must be the first to be granted.
fn is_ordered(one: &Granting, other: &Granting) -> bool {
    has_same_counter(one, other) && Form::is_ordered((&one.form, one.shared), (&other.form, other.shared))
}

/// Whether the fences of two tell which was granted first. Of two that are held together one may have a fence of the cluster, which has
/// counted further.
fn has_same_counter(one: &Granting, other: &Granting) -> bool {
    (one.scope == Scope::Quorum) == (other.scope == Scope::Quorum)
        || Form::conflict((&one.form, one.shared), (&other.form, other.shared))
}

/// Whether a claim that was asked for when another was known to wait was granted before that one.
fn overtakes(newcomer: (u64, &Granting), waiter: (u64, &Granting)) -> Result<(), (&'static str, String)> {
    let ((fence, newcomer), (waiter_fence, waiter)) = (newcomer, waiter);
    let (Some(sent_ms), Some(waited)) = (newcomer.sent_ms, waiter.waited) else { return Ok(()) };
    // An early timestamp lets a waiter overtake other waiters. A try overtakes no waiter.
    let is_try_by_time =
        newcomer.is_try && newcomer.form.timestamp_us().is_some() && has_same_counter(newcomer, waiter);
    if !is_ordered(newcomer, waiter) && !is_try_by_time {
        return Ok(());
    }
    let apart_ms = sent_ms.saturating_sub(waited.queued_ms);
    let lead_ms = newcomer.boost_ms.saturating_sub(waiter.boost_ms);
    if fence < waiter_fence && apart_ms > 0 && lead_ms <= apart_ms {
        let text =
            format!("{} was asked for {apart_ms} ms after {} waited, and came first", newcomer.id, waiter.id);
        return Err(("overtaking", text));
    }
    Ok(())
}

/// Whether the second was granted although the first had the earlier timestamp and was known to wait.
fn is_out_of_time(first: (u64, &Granting), second: (u64, &Granting)) -> Result<(), (&'static str, String)> {
    let ((first_fence, first), (second_fence, second)) = (first, second);
    let (Some((_, first_us)), Some((second_us, _))) = (first.place_us(), second.place_us()) else {
        return Ok(());
    };
    let own_ms = second.sent_ms.and(second.decided_ms());
    let (Some(waited), Some(second_ms)) = (first.waited, own_ms) else { return Ok(()) };
    if first_us < second_us && second_fence < first_fence && second_ms > waited.queued_ms {
        let text = format!(
            "{} of {first_us} us waited at {} and came after {} of {second_us} us at {second_ms}",
            first.id, waited.queued_ms, second.id
        );
        return Err(("ticket-order", text));
    }
    Ok(())
}

type Served = (u64, Waited, Option<u64>);

/// Two waiters of a key, the one that arrived first in front.
fn compare(first: Served, second: Served) -> Result<(), (&'static str, String)> {
    let ((first_fence, first, first_stamp), (second_fence, second, _)) = (first, second);
    let lead_ms = second.boost_ms.saturating_sub(first.boost_ms);
    let describe = || {
        format!(
            "tickets {:?} and {:?} with boosts of {} and {} ms got the fences {first_fence} and {second_fence}",
            first.ticket, second.ticket, first.boost_ms, second.boost_ms
        )
    };
    if first.boost_ms == second.boost_ms {
        return if first_fence < second_fence { Ok(()) } else { Err(("ticket-order", describe())) };
    }
    // The second arrived so much later, at least and at most.
    let least_ms = second.sent_ms.saturating_sub(first.queued_ms);
    let most_ms = second.queued_ms.saturating_sub(first.sent_ms);
    if second_fence < first_fence && lead_ms <= least_ms {
        return Err(("priority-bound", format!("{}, {least_ms} ms apart", describe())));
    }
    let both_waited = first_stamp.is_some_and(|stamp_ms| stamp_ms > second.queued_ms);
    if first_fence < second_fence && lead_ms > most_ms && both_waited {
        return Err(("priority-bound", format!("{}, {most_ms} ms apart", describe())));
    }
    Ok(())
}
