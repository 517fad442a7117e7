//! Derives the happenings of each lock from the recorded calls of a run.

use crate::lock_model::{Happening, LockModel};
use porcupine_rs::Operation;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use waymaker_protocol::{ErrorCode, LockId, SessionId};
use waymaker_simulator::history::{Answer, Call, Grant, History, Wish, Word};

/// A time after all responses.
const CLOSE_US: u64 = i64::MAX as u64 - 1;

/// Returns the happenings of each key for the checker. Some of them are possible but not certain.
pub(crate) fn operations_of(history: &History) -> BTreeMap<u16, Vec<Operation<LockModel>>> {
    let mut keys = Reader::new(history).read();
    for operations in keys.values_mut() {
        // Everything that was answered has happened by then. Anything else need not happen any more.
        operations.push(operation(None, CLOSE_US, Some(CLOSE_US), Happening::Close));
    }
    keys
}

/// A hold from a response to a client.
#[derive(Debug)]
struct Hold {
    key: u16,
    fence: u64,
    /// The call that was granted the hold. If only the response to a repetition arrived, an earlier call may
    /// have been granted it.
    call: usize,
    heard_us: u64,
    /// Statements of the server about the lease.
    words: Vec<Word>,
    /// Time from which a release or a shorter lease, for which there is no response, may have ended the hold.
    may_end_us: u64,
    is_released: bool,
}

/// Reads a history.
struct Reader<'a> {
    history: &'a History,
    holds: BTreeMap<LockId, Hold>,
    operations: BTreeMap<u16, Vec<Operation<LockModel>>>,
    /// Sessions, and the time until which each of them lived at least.
    sessions: BTreeMap<SessionId, u64>,
}

fn operation(
    call: Option<&Call>,
    call_us: u64,
    heard_us: Option<u64>,
    op: Happening,
) -> Operation<LockModel> {
    let return_time = heard_us.map_or(i64::MAX, |heard_us| heard_us as i64);
    let client_id = call.map(|call| call.client as u32);
    Operation { client_id, call_time: call_us as i64, return_time, op, metadata: None }
}

impl<'a> Reader<'a> {
    fn new(history: &'a History) -> Self {
        Self { history, holds: BTreeMap::new(), operations: BTreeMap::new(), sessions: BTreeMap::new() }
    }

    fn read(mut self) -> BTreeMap<u16, Vec<Operation<LockModel>>> {
        self.read_sessions();
        self.read_grants();
        for call in &self.history.calls {
            self.read_words(call);
        }
        self.read_refused_tries();
        if !self.history.is_forgetful {
            self.read_unheard_grants();
        }
        self.end_holds();
        self.operations
    }

    fn add(&mut self, key: u16, call: &Call, heard_us: Option<u64>, happening: Happening) {
        let one = operation(Some(call), call.sent_us[0], heard_us, happening);
        self.operations.entry(key).or_default().push(one);
    }

    /// Computes how long the sessions lived. A session lives for its lease after each request that the server
    /// received in it, unless a client ended it.
    fn read_sessions(&mut self) {
        let calls = || self.history.calls.iter().filter_map(|call| Some((call, call.session?)));
        for (call, (session, lease_us)) in calls() {
            let is_out = |answer: &Answer| {
                matches!(answer, Answer::Refused(ErrorCode::SessionGone | ErrorCode::Shutdown))
            };
            if call.heard.as_ref().is_some_and(|(_, answer)| !is_out(answer)) {
                let end_us = self.sessions.entry(session).or_default();
                *end_us = (*end_us).max(earliest_end_us(call.sent_us[0], lease_us));
            }
        }
        for (call, (session, _)) in calls().filter(|(call, _)| call.wish == Wish::Goodbye) {
            let end_us = self.sessions.entry(session).or_default();
            *end_us = (*end_us).min(call.sent_us[0]);
        }
    }

    fn read_grants(&mut self) {
        let history = self.history;
        // Read first grants before grants that a repeated request found.
        for wants_repeated in [false, true] {
            for (place, call) in history.calls.iter().enumerate() {
                let (Wish::Acquire { keys, .. }, Some((heard_us, Answer::Granted(grants)))) =
                    (&call.wish, &call.heard)
                else {
                    continue;
                };
                for ((key, shared), grant) in keys.iter().zip(grants) {
                    if grant.repeated == wants_repeated {
                        self.read_grant(place, (*key, *shared), grant, *heard_us);
                    }
                }
            }
        }
    }

    /// Adds the grants that no client heard of. If fences may jump, such grants leave no trace.
    fn read_unheard_grants(&mut self) {
        let history = self.history;
        let fences = self.unheard_fences();
        let mut counts: BTreeMap<(u16, bool), usize> = BTreeMap::new();
        let mut attempts: Vec<(u64, &Call, u16, bool)> = Vec::new();
        for call in &history.calls {
            let Wish::Acquire { keys, .. } = &call.wish else { continue };
            // Each attempt except the answered one may have had an effect that no client heard of.
            let unheard = call.sent_us.len() - usize::from(call.heard.is_some());
            for sent_us in &call.sent_us[..unheard] {
                attempts.extend(keys.iter().map(|(key, shared)| (*sent_us, call, *key, *shared)));
            }
        }
        attempts.sort_by_key(|(sent_us, ..)| *sent_us);
        for (sent_us, call, key, shared) in attempts {
            let Some(fences) = fences.get(&key).filter(|fences| !fences.is_empty()) else { continue };
            let count = counts.entry((key, shared)).or_default();
            let happening = Happening::UnheardGrant { shared, place: *count, fences: fences.clone() };
            *count += 1;
            self.operations.entry(key).or_default().push(operation(Some(call), sent_us, None, happening));
        }
    }

    /// Returns the fences of each key that no client heard of and that may be needed to explain the
    /// responses: all fences below the newest, and one for each refused try.
    fn unheard_fences(&self) -> BTreeMap<u16, Arc<BTreeSet<u64>>> {
        let mut keys = BTreeMap::new();
        for (key, operations) in &self.operations {
            let heard: BTreeSet<u64> =
                self.holds.values().filter(|hold| hold.key == *key).map(|hold| hold.fence).collect();
            let seen = operations.iter().map(|one| match &one.op {
                Happening::Inspection { fence, .. } | Happening::Grant { fence, .. } => *fence,
                _ => 0,
            });
            let newest = seen.max().unwrap_or(0);
            let refused = operations.iter().filter(|one| matches!(one.op, Happening::Busy { .. })).count();
            let fences = (1..=newest + refused as u64).filter(|fence| !heard.contains(fence));
            keys.insert(*key, Arc::new(fences.collect()));
        }
        keys
    }

    fn read_grant(&mut self, place: usize, (key, shared): (u16, bool), grant: &Grant, heard_us: u64) {
        let Grant { id, fence, repeated, lease } = *grant;
        let call = &self.history.calls[place];
        if repeated && let Some(hold) = self.holds.get_mut(&id) {
            hold.words.push(lease);
            let fence = hold.fence;
            return self.add(key, call, Some(heard_us), Happening::Seen { fence });
        }
        // The hold comes from the first call with this request id, or from a later one.
        let place = if repeated { self.first_of_same_name(place, key) } else { place };
        let may_jump = self.history.is_forgetful;
        let call = &self.history.calls[place];
        self.add(key, call, Some(heard_us), Happening::Grant { fence, shared, may_jump });
        let hold = Hold {
            key,
            fence,
            call: place,
            heard_us,
            words: vec![lease],
            may_end_us: u64::MAX,
            is_released: false,
        };
        self.holds.insert(id, hold);
    }

    /// Returns the calls of one client for one key with one request id.
    fn of_same_name(&self, place: usize, key: u16) -> impl Iterator<Item = usize> {
        let calls = &self.history.calls;
        let name = move |call: &Call| match &call.wish {
            Wish::Acquire { keys, request_id: Some(request_id), .. }
                if keys.iter().any(|(other, _)| *other == key) =>
            {
                Some((call.client, *request_id))
            }
            _ => None,
        };
        let own = name(&calls[place]);
        (0..calls.len()).filter(move |other| *other == place || own.is_some() && name(&calls[*other]) == own)
    }

    fn first_of_same_name(&self, place: usize, key: u16) -> usize {
        self.of_same_name(place, key).next().unwrap_or(place)
    }

    /// Adds the happenings of a call that names a known hold.
    fn read_words(&mut self, call: &Call) {
        let first_us = call.sent_us[0];
        let heard = call.heard.as_ref().map(|(heard_us, answer)| (*heard_us, answer));
        if let (Wish::Inspect(key), Some((heard_us, Answer::Inspected { fence, holders }))) =
            (&call.wish, heard)
        {
            // The response also shows grants that no client heard of.
            if !self.history.is_forgetful {
                let happening = Happening::Inspection { fence: *fence, holders: holders.clone() };
                self.add(*key, call, Some(heard_us), happening);
            }
            return;
        }
        let (Wish::Release(id) | Wish::Extend(id, _) | Wish::Status(id)) = call.wish else { return };
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let (key, fence) = (hold.key, hold.fence);
        // An attempt without a response may have had its effect.
        let is_unsure = match heard {
            None => true,
            Some((_, Answer::Refused(_))) => call.sent_us.len() > 1,
            Some(_) => false,
        };
        if is_unsure {
            match call.wish {
                Wish::Release(_) => hold.may_end_us = hold.may_end_us.min(first_us),
                Wish::Extend(_, lease_us) => {
                    hold.may_end_us = hold.may_end_us.min(earliest_end_us(first_us, lease_us));
                }
                _ => {}
            }
        }
        let Some((heard_us, answer)) = heard else { return };
        let happening = match answer {
            Answer::Released => {
                hold.is_released = true;
                Happening::Release { fence }
            }
            Answer::Extended(word) => {
                hold.words.push(*word);
                Happening::Seen { fence }
            }
            Answer::Held => Happening::Seen { fence },
            Answer::Refused(ErrorCode::NotFound) => Happening::Gone { fence },
            _ => return,
        };
        self.add(key, call, Some(heard_us), happening);
    }

    /// Adds the tries for a single key that were refused while no call can have waited for the key.
    fn read_refused_tries(&mut self) {
        let history = self.history;
        if history.is_forgetful || history.calls.iter().any(|call| call.wish == Wish::Freeze) {
            return;
        }
        for call in &history.calls {
            let Wish::Acquire { keys, waits: false, request_id: None, .. } = &call.wish else { continue };
            let Some((heard_us, Answer::Refused(ErrorCode::Busy))) = call.heard else { continue };
            let ([(key, shared)], [sent_us]) = (keys.as_slice(), call.sent_us.as_slice()) else { continue };
            if !history.calls.iter().any(|other| may_wait(other, *key, *sent_us, heard_us)) {
                self.add(*key, call, Some(heard_us), Happening::Busy { shared: *shared });
            }
        }
    }

    /// Adds for each hold the time from which it may have ended, unless its release was answered.
    fn end_holds(&mut self) {
        let ends: Vec<_> = self
            .holds
            .values()
            .filter(|hold| !hold.is_released)
            .map(|hold| (hold.key, self.end_us(hold), hold.heard_us, hold.fence))
            .collect();
        for (key, end_us, heard_us, fence) in ends {
            // The grant may have come later, up to the time at which the client heard it.
            let one = operation(None, end_us, Some(end_us.max(heard_us)), Happening::MayEnd { fence });
            self.operations.entry(key).or_default().push(one);
        }
    }

    /// Returns the earliest time at which a hold may have ended without an answered release.
    fn end_us(&self, hold: &Hold) -> u64 {
        let call = &self.history.calls[hold.call];
        let sent_us = call.sent_us[0];
        let Wish::Acquire { session_lease, ends_with_lane, request_id, .. } = call.wish else {
            return sent_us;
        };
        let hangs = |place: usize| {
            matches!(
                self.history.calls[place].wish,
                Wish::Acquire { session_lease, ends_with_lane, .. } if session_lease || ends_with_lane
            )
        };
        // A client that finds the hold again takes it to another lane, possibly of another session.
        if request_id.is_some() && self.of_same_name(hold.call, hold.key).any(hangs) {
            return sent_us;
        }
        let session_us = call.session.map(|(session, _)| self.sessions.get(&session).copied().unwrap_or(0));
        let newest_ms = hold.words.iter().map(|word| word.stamp_ms).max();
        let newest = hold.words.iter().filter(|word| Some(word.stamp_ms) == newest_ms);
        let own_us = newest.map(|word| word.end_us).min().unwrap_or(0);
        let lease_us = if session_lease { session_us.unwrap_or(0) } else { own_us };
        // A GOODBYE ends the lane too, before its connection ends.
        let goodbyes = self.history.calls.iter().filter(|call| call.wish == Wish::Goodbye);
        let goodbyes = goodbyes.map(|goodbye| (goodbye.sent_us[0], goodbye.client));
        let lost_us = self.history.losses.iter().copied().chain(goodbyes);
        let lost_us = lost_us.filter(|(at_us, client)| *client == call.client && *at_us >= sent_us);
        let lane_us = lost_us.map(|(at_us, _)| at_us).chain(session_us).min().filter(|_| ends_with_lane);
        lease_us.min(lane_us.unwrap_or(u64::MAX)).min(hold.may_end_us).max(sent_us)
    }
}

/// Returns the earliest end of a lease that was requested at `sent_us`. The server counts whole milliseconds.
fn earliest_end_us(sent_us: u64, lease_us: u64) -> u64 {
    sent_us / 1000 * 1000 + lease_us
}

/// Returns whether this call may have waited for a key at some time in this interval.
fn may_wait(call: &Call, key: u16, from_us: u64, until_us: u64) -> bool {
    let Wish::Acquire { keys, waits, request_id, .. } = &call.wish else { return false };
    // Some shards of a multi-key claim learn only later that the claim has ended.
    let is_over = keys.len() == 1
        && call.sent_us.len() == 1
        && call.heard.as_ref().is_some_and(|(heard_us, _)| *heard_us < from_us);
    (*waits || request_id.is_some())
        && keys.iter().any(|(other, _)| *other == key)
        && call.sent_us[0] <= until_us
        && !is_over
}

#[cfg(test)]
mod tests {
    use super::*;
    use porcupine_rs::check_operations;

    const ID: LockId = LockId { place: 1, secret: 1 };
    const OTHER: LockId = LockId { place: 2, secret: 2 };

    /// Returns a call that was sent once.
    fn call(sent_us: u64, wish: Wish, heard: Option<(u64, Answer)>) -> Call {
        Call { client: 0, session: None, wish, sent_us: vec![sent_us], heard }
    }

    fn acquire(waits: bool) -> Wish {
        let keys = vec![(0, false)];
        Wish::Acquire { keys, waits, session_lease: false, ends_with_lane: false, request_id: None }
    }

    fn granted(id: LockId, fence: u64, end_us: u64) -> Answer {
        Answer::Granted(vec![Grant { id, fence, repeated: false, lease: Word { stamp_ms: fence, end_us } }])
    }

    /// Returns whether another client may get the key with this fence at 100, after a client had it with a
    /// lease until 200 and made these calls.
    fn is_next(fence: u64, calls: &[Call]) -> bool {
        let mut all = vec![call(10, acquire(true), Some((20, granted(ID, 1, 200))))];
        all.extend_from_slice(calls);
        all.push(call(99, acquire(true), Some((100, granted(OTHER, fence, 900)))));
        is_possible(all)
    }

    fn is_possible(calls: Vec<Call>) -> bool {
        let history = History { calls, ..History::default() };
        operations_of(&history).values().all(|operations| check_operations(operations))
    }

    #[test]
    fn a_lease_excludes_other_clients_until_it_ends() {
        assert!(!is_next(2, &[]));
        let shortened = Answer::Extended(Word { stamp_ms: 2, end_us: 90 });
        assert!(is_next(2, &[call(30, Wish::Extend(ID, 60), Some((40, shortened)))]));
        let lengthened = Answer::Extended(Word { stamp_ms: 2, end_us: 300 });
        assert!(!is_next(2, &[call(30, Wish::Extend(ID, 300), Some((40, lengthened)))]));
    }

    #[test]
    fn a_call_without_a_response_may_have_had_its_effect() {
        assert!(is_next(2, &[call(30, Wish::Release(ID), None)]));
        assert!(is_next(2, &[call(30, Wish::Extend(ID, 60), None)]));
        assert!(
            is_next(2, &[call(30, Wish::Extend(ID, 99), None)]),
            "the millisecond of the request began at 0"
        );
        assert!(!is_next(2, &[call(30, Wish::Extend(ID, 101), None)]), "granted before that lease ended");
        let released = call(30, Wish::Release(ID), Some((40, Answer::Released)));
        assert!(is_next(2, std::slice::from_ref(&released)));
        assert!(!is_next(3, std::slice::from_ref(&released)));
        assert!(is_next(3, &[released, call(50, acquire(true), None)]));
    }

    #[test]
    fn a_hold_that_depends_on_a_connection_may_end_when_the_connection_is_lost() {
        let hangs = |losses| {
            let keys = vec![(0, false)];
            let wish = Wish::Acquire {
                keys,
                waits: true,
                session_lease: false,
                ends_with_lane: true,
                request_id: None,
            };
            let calls = vec![
                call(10, wish, Some((20, granted(ID, 1, 200)))),
                call(99, acquire(true), Some((100, granted(OTHER, 2, 900)))),
            ];
            let history = History { calls, losses, ..History::default() };
            operations_of(&history).values().all(|operations| check_operations(operations))
        };
        assert!(!hangs(vec![]));
        assert!(!hangs(vec![(50, 1)]), "another client lost its connection");
        assert!(hangs(vec![(50, 0)]));
    }

    #[test]
    fn a_try_is_refused_only_because_of_holders_or_waiters() {
        let busy = || call(50, acquire(false), Some((60, Answer::Refused(ErrorCode::Busy))));
        let timeout = Answer::Refused(ErrorCode::Timeout);
        assert!(!is_possible(vec![busy()]));
        assert!(is_possible(vec![call(40, acquire(true), Some((55, timeout.clone()))), busy()]));
        assert!(
            !is_possible(vec![call(30, acquire(true), Some((40, timeout))), busy()]),
            "the wait ended before the try"
        );
        assert!(is_possible(vec![call(40, acquire(true), None), busy()]));
    }
}
