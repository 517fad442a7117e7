//! The known grants of a key, in the order of their fences.

use crate::clock::unix_us;
use crate::form::Form;
use crate::mix::SKEW_MAX_US;
use std::collections::BTreeMap;
use waymaker_engine::Scope;
use waymaker_protocol::LockId;

/// Number of earlier grants that a new grant is compared with.
const COMPARED_COUNT: usize = 64;

/// One grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantRecord {
    pub(crate) id: LockId,
    pub(crate) shared: bool,
    pub(crate) form: Form,
    /// Server clock at which the hold was reported; unknown if only a repeated response was received.
    pub(crate) stamp_ms: Option<u64>,
    /// Whether the grant was decided at `stamp_ms`, not earlier.
    pub(crate) is_prompt: bool,
    /// Requested scope; Ephemeral if unknown.
    pub(crate) scope: Scope,
    /// Time of the first request.
    pub(crate) asked_ms: u64,
    /// Number of the server start that made the grant.
    pub(crate) server: u32,
    /// Time of the request, if it was sent once and got its own claim.
    pub(crate) sent_ms: Option<u64>,
    /// Whether the acquire asked not to wait.
    pub(crate) is_try: bool,
    pub(crate) boost_ms: u64,
    /// How the claim waited, if the server reported that it waits.
    pub(crate) waited: Option<QueueInterval>,
}

/// How a claim waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueInterval {
    /// Position in the queue; unknown for every key of a multi-key claim but the first.
    pub(crate) ticket: Option<u64>,
    pub(crate) boost_ms: u64,
    /// The claim arrived between `sent_ms` and `queued_ms`.
    pub(crate) sent_ms: u64,
    pub(crate) queued_ms: u64,
}

impl GrantRecord {
    /// Returns when the grant was decided, if that is known.
    fn decided_ms(&self) -> Option<u64> {
        self.stamp_ms.filter(|_| self.is_prompt)
    }

    /// Returns the bounds of the grant's position in the order of timestamps. The server clamps timestamps
    /// that are far from its own clock. The auditor knows only when the request was sent and when it arrived at
    /// the server.
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

/// All known grants of a key.
#[derive(Debug, Default)]
pub(crate) struct KeyHistory {
    grants: BTreeMap<u64, GrantRecord>,
    /// Whether any acquire requested the key under scope local or quorum.
    pub(crate) is_local_asked: bool,
    /// Whether any acquire requested the key under scope quorum.
    pub(crate) is_counted_asked: bool,
    /// Whether some grants were dropped from the history.
    is_cut: bool,
    /// Up to this fence the server may have forgotten the scope of the key.
    scope_lost_to: u64,
}

impl KeyHistory {
    /// Returns the first and the last fence requested under scope local or quorum. From the first on, all
    /// fences survive a restart. If the server forgets counters of idle keys, only grants of these scopes are
    /// sure to survive.
    pub(crate) fn locals(&self) -> Option<(u64, u64)> {
        let known = self.grants.range(self.scope_lost_to + 1..);
        let mut locals = known.filter(|(_, grant)| grant.scope.is_durable()).map(|(fence, _)| *fence);
        let first = locals.next()?;
        Some((first, locals.next_back().unwrap_or(first)))
    }

    /// Returns whether the grant with this fence was requested under scope local or quorum.
    pub(crate) fn is_local(&self, fence: u64) -> bool {
        self.get(fence).is_some_and(|grant| grant.scope.is_durable())
    }

    /// Returns whether the server knows of a grant of the key under scope quorum.
    pub(crate) fn is_counted(&self) -> bool {
        let mut known = self.grants.range(self.scope_lost_to + 1..);
        known.any(|(_, grant)| grant.scope == Scope::Quorum)
    }

    /// Returns the ids of all surely durable grants; `first` is the first durable fence.
    pub(crate) fn durable_ids(&self, first: u64, is_forgetful: bool) -> impl Iterator<Item = LockId> {
        let grants = self.grants.range(first..);
        grants.filter(move |(_, grant)| grant.scope.is_durable() || !is_forgetful).map(|(_, grant)| grant.id)
    }

    /// Drops grants above this fence: the counter of the key may restart there.
    pub(crate) fn forget_behind(&mut self, fence: u64) {
        let count = self.grants.len();
        self.grants.retain(|other, _| *other <= fence);
        self.is_cut |= self.grants.len() < count;
    }

    /// Records that the server may have forgotten the scope of the key.
    pub(crate) fn forget_scope(&mut self) {
        self.scope_lost_to = self.newest_said();
    }

    pub(crate) fn newest_said(&self) -> u64 {
        self.grants.last_key_value().map_or(0, |(fence, _)| *fence)
    }

    /// Returns how many fences below the newest are unknown.
    pub(crate) fn missing_count(&self) -> u64 {
        if self.is_cut {
            return 0;
        }
        self.newest_said() - self.grants.len() as u64
    }

    pub(crate) fn get(&self, fence: u64) -> Option<&GrantRecord> {
        self.grants.get(&fence)
    }

    /// Returns the newest grants, newest first.
    pub(crate) fn newest(&self) -> Vec<(u64, GrantRecord)> {
        self.grants.iter().rev().take(COMPARED_COUNT).map(|(fence, grant)| (*fence, *grant)).collect()
    }

    /// Returns grants with other fences, newest first.
    pub(crate) fn others(&self, fence: u64) -> Vec<(u64, GrantRecord)> {
        let others = self.grants.iter().rev().filter(|(other, _)| **other != fence);
        others.take(COMPARED_COUNT).map(|(fence, grant)| (*fence, *grant)).collect()
    }

    /// Returns all grants with lower fences, newest first.
    pub(crate) fn earlier(&self, fence: u64) -> impl Iterator<Item = (u64, &GrantRecord)> {
        self.grants.range(..fence).rev().map(|(fence, grant)| (*fence, grant))
    }

    /// Adds a grant. Returns the name of the rule that it breaks, and how.
    pub(crate) fn add(&mut self, fence: u64, grant: GrantRecord) -> Result<(), (&'static str, String)> {
        if let Some(other) = self.grants.get(&fence) {
            return Err((
                "fence-unique",
                format!("{} and {} both have the fence {fence}; fences must be unique", other.id, grant.id),
            ));
        }
        // Of two grants that do not conflict, the later one may become durable first.
        let stamp = |other: &GrantRecord| {
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
            let text = format!(
                "{} has fence {fence} and was granted at {stamp_ms} ms; grants must have rising times in the order of fences",
                grant.id
            );
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

/// Returns whether the first of two claims to arrive must be granted first.
fn is_ordered(one: &GrantRecord, other: &GrantRecord) -> bool {
    has_same_counter(one, other) && Form::is_ordered((&one.form, one.shared), (&other.form, other.shared))
}

/// Returns whether the fences of two grants tell which was granted first. If both can be held together, one
/// may have a fence of the cluster, whose counter may be ahead.
fn has_same_counter(one: &GrantRecord, other: &GrantRecord) -> bool {
    (one.scope == Scope::Quorum) == (other.scope == Scope::Quorum)
        || Form::conflict((&one.form, one.shared), (&other.form, other.shared))
}

/// Rule `overtaking`: an acquire that was sent while another one was known to wait is not granted before it.
fn overtakes(
    newcomer: (u64, &GrantRecord),
    waiter: (u64, &GrantRecord),
) -> Result<(), (&'static str, String)> {
    let ((fence, newcomer), (waiter_fence, waiter)) = (newcomer, waiter);
    let (Some(sent_ms), Some(waited)) = (newcomer.sent_ms, waiter.waited) else { return Ok(()) };
    // An early timestamp lets a waiter overtake other waiters. An acquire without a wait overtakes no waiter.
    let is_try_by_time =
        newcomer.is_try && newcomer.form.timestamp_us().is_some() && has_same_counter(newcomer, waiter);
    if !is_ordered(newcomer, waiter) && !is_try_by_time {
        return Ok(());
    }
    let apart_ms = sent_ms.saturating_sub(waited.queued_ms);
    let lead_ms = newcomer.boost_ms.saturating_sub(waiter.boost_ms);
    if fence < waiter_fence && apart_ms > 0 && lead_ms <= apart_ms {
        let text = format!(
            "{} was requested {apart_ms} ms after {} began to wait, but was granted first",
            newcomer.id, waiter.id
        );
        return Err(("overtaking", text));
    }
    Ok(())
}

/// Rule `ticket-order`: the second claim is not granted first if the first one has the earlier timestamp and
/// was known to wait.
fn is_out_of_time(
    first: (u64, &GrantRecord),
    second: (u64, &GrantRecord),
) -> Result<(), (&'static str, String)> {
    let ((first_fence, first), (second_fence, second)) = (first, second);
    let (Some((_, first_us)), Some((second_us, _))) = (first.place_us(), second.place_us()) else {
        return Ok(());
    };
    let own_ms = second.sent_ms.and(second.decided_ms());
    let (Some(waited), Some(second_ms)) = (first.waited, own_ms) else { return Ok(()) };
    if first_us < second_us && second_fence < first_fence && second_ms > waited.queued_ms {
        let text = format!(
            "{} with timestamp {first_us} us waited at {} ms, but {} with the later timestamp {second_us} us was granted before it, at {second_ms} ms",
            first.id, waited.queued_ms, second.id
        );
        return Err(("ticket-order", text));
    }
    Ok(())
}

type ServedGrant = (u64, QueueInterval, Option<u64>);

/// Rules `ticket-order` and `priority-bound`: compares two waiters of a key; `first` arrived first.
fn compare(first: ServedGrant, second: ServedGrant) -> Result<(), (&'static str, String)> {
    let ((first_fence, first, first_stamp), (second_fence, second, _)) = (first, second);
    let lead_ms = second.boost_ms.saturating_sub(first.boost_ms);
    let describe = || {
        format!(
            "waiters with tickets {:?} and {:?}, moved forward by {} and {} ms, got the fences {first_fence} and {second_fence}",
            first.ticket, second.ticket, first.boost_ms, second.boost_ms
        )
    };
    if first.boost_ms == second.boost_ms {
        return if first_fence < second_fence { Ok(()) } else { Err(("ticket-order", describe())) };
    }
    // The second waiter arrived later by at least `least_ms` and at most `most_ms`.
    let least_ms = second.sent_ms.saturating_sub(first.queued_ms);
    let most_ms = second.queued_ms.saturating_sub(first.sent_ms);
    if second_fence < first_fence && lead_ms <= least_ms {
        return Err((
            "priority-bound",
            format!(
                "{}; they arrived at least {least_ms} ms apart, so the first must be granted first",
                describe()
            ),
        ));
    }
    let both_waited = first_stamp.is_some_and(|stamp_ms| stamp_ms > second.queued_ms);
    if first_fence < second_fence && lead_ms > most_ms && both_waited {
        return Err((
            "priority-bound",
            format!(
                "{}; they arrived at most {most_ms} ms apart, so the second must be granted first",
                describe()
            ),
        ));
    }
    Ok(())
}
