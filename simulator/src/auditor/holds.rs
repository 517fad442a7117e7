//! State of each known hold, in particular its floor: the earliest instant at which it may have ended.

use super::{Auditor, Loss};
use crate::form::Form;
use crate::key::Key;
use crate::operation::{Acquire, label_of, request_id};
use waymaker_protocol::{LockId, SessionId};

/// One known hold.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) key: Key,
    pub(crate) shared: bool,
    pub(crate) form: Form,
    pub(crate) fence: u64,
    pub(crate) client: usize,
    pub(crate) request_id: Option<u8>,
    pub(crate) label: Option<u32>,
    pub(crate) lane: usize,
    /// Whether the hold was requested without options, granted at once, and has not been through a restart.
    pub(crate) has_no_options: bool,
    /// Session on whose lease the hold depends.
    pub(crate) session: Option<SessionId>,
    pub(crate) release_after_ms: Option<u32>,
    /// Stamp of the newest lease of the hold itself. `lease_end_ms` is the end of that lease.
    pub(crate) lease_stamp_ms: u64,
    pub(crate) lease_end_ms: u64,
    /// Whether two leases have the same newest stamp, so that it is unknown which came last.
    pub(crate) lease_is_open: bool,
    /// Time since which the hold belongs to its lane.
    pub(crate) since_ms: u64,
    /// Time from which a release by any client may have ended the hold.
    pub(crate) may_end_ms: u64,
    /// Unanswered extends: the request, the earliest end that it would set, and the requested lease.
    pub(crate) may_move: Vec<(usize, u64, u32)>,
    /// Newest known lease. `longest_ms` is the longest lease ever requested.
    pub(crate) lease_ms: u32,
    pub(crate) longest_ms: u32,
    /// Latest end of the lease after a restart of the server, which may have postponed it.
    pub(crate) late_ms: u64,
    /// Acquire that got the hold. `said_ms` is the time of its response.
    pub(crate) request: usize,
    pub(crate) said_ms: u64,
    /// Bounds of the time that the claim waited, if known.
    pub(crate) waited_ms: Option<(u64, u64)>,
    /// Whether another client may have ended or shortened the hold.
    pub(crate) others_may_end: bool,
    /// Whether the first response about the hold was that to a repetition.
    pub(crate) was_repeated: bool,
    /// Whether another acquire with the same request id may have requested the hold first, perhaps with other
    /// options.
    pub(crate) is_inherited: bool,
    /// Whether the hold may belong to another lane by now.
    pub(crate) may_have_moved: bool,
    /// Time at which the server confirmed that the hold belongs to this lane, after it was on another one.
    pub(crate) settled_ms: u64,
    /// Time at which the server reported the end of the hold.
    pub(crate) over_ms: Option<u64>,
    pub(crate) released_by: Option<usize>,
    /// Number of requested releases.
    pub(crate) release_count: u32,
}

/// Requests about a claim that arrived before the auditor knew that it is held.
#[derive(Debug, Default)]
pub(crate) struct Tampering {
    /// Time from which a release by any client may have ended the claim.
    pub(crate) may_end_ms: u64,
    /// Unanswered extends, as in a hold.
    pub(crate) may_move: Vec<(usize, u64, u32)>,
    /// Reported leases: the stamp, and the remaining time then.
    pub(crate) leases: Vec<(u64, u32)>,
}

impl Hold {
    /// Returns whether the request id of this acquire names this hold, as the claim of `key`.
    pub(crate) fn is_named_by(&self, client: usize, key: Key, acquire: &Acquire) -> bool {
        self.key == key
            && self.form.is_same_request(&acquire.form)
            && self.client == client
            && self.request_id == acquire.request_id
    }

    /// Returns the owner, the request id and the metadata that the server must show for the hold.
    pub(crate) fn shown(&self) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let own = || (format!("client-{}", self.client).into_bytes(), Vec::new());
        let (owner, metadata) = self.label.map_or_else(own, label_of);
        let request_id = self.request_id.map(|number| request_id(number).to_vec()).unwrap_or_default();
        (owner, request_id, metadata)
    }

    /// Returns whether the release of a hold without a lease was answered, which means that the release is
    /// durable.
    pub(super) fn is_released_durably(&self) -> bool {
        self.released_by.is_some() && self.session.is_none() && self.longest_ms == u32::MAX
    }

    /// Returns whether the hold was known to have ended before `at_ms`.
    pub(crate) fn was_over_before(&self, at_ms: u64) -> bool {
        self.over_ms.is_some_and(|over_ms| over_ms < at_ms)
    }

    /// Records the remaining lease that the server reported at `stamp_ms`.
    pub(crate) fn note_lease(&mut self, stamp_ms: u64, remaining_ms: u32) {
        let end_ms = stamp_ms + u64::from(remaining_ms);
        if stamp_ms > self.lease_stamp_ms {
            (self.lease_stamp_ms, self.lease_end_ms) = (stamp_ms, end_ms);
            self.lease_is_open = false;
            self.lease_ms = remaining_ms;
            self.longest_ms = self.longest_ms.max(remaining_ms);
            self.late_ms = 0;
        } else if stamp_ms == self.lease_stamp_ms {
            self.lease_end_ms = self.lease_end_ms.min(end_ms);
            self.lease_ms = self.lease_ms.min(remaining_ms);
            self.lease_is_open = true;
        }
    }
}

impl Auditor {
    /// Returns the earliest time at which the loss of its lane ends a hold. The end of its session counts as
    /// such a loss.
    pub(super) fn lane_end_of(&self, hold: &Hold) -> u64 {
        let Some(release_after_ms) = hold.release_after_ms else { return u64::MAX };
        if hold.may_have_moved {
            return 0;
        }
        let release_after_ms = u64::from(release_after_ms);
        let session = self.lanes[hold.lane].session;
        let session_ms = session.map_or(u64::MAX, |session| self.session_lease_floor_ms(session));
        let ends = |loss: &Loss| {
            let end_ms = loss.at_ms + release_after_ms;
            let ends = loss.back_ms.is_none_or(|back_ms| back_ms >= hold.since_ms && back_ms >= end_ms);
            ends.then_some(end_ms)
        };
        let lost_ms = self.lanes[hold.lane].losses.iter().filter_map(ends).min();
        lost_ms.unwrap_or(u64::MAX).min(session_ms.saturating_add(release_after_ms))
    }

    /// Returns the earliest instant at which the server may have ended this hold.
    pub(super) fn floor_ms(&self, id: LockId) -> u64 {
        let Some(hold) = self.holds.get(&id) else { return 0 };
        self.lease_floor_ms(id).min(self.word_floor_ms(hold))
    }

    /// Returns whether the server cannot have ended this hold by `now_ms`.
    pub(super) fn surely_lives(&self, id: LockId, now_ms: u64) -> bool {
        self.floor_ms(id) > now_ms && self.holds.get(&id).is_some_and(|hold| hold.over_ms.is_none())
    }

    /// Returns the earliest instant at which a release, a GOODBYE or the loss of its lane may have ended the
    /// hold.
    pub(super) fn word_floor_ms(&self, hold: &Hold) -> u64 {
        hold.may_end_ms.min(self.outer_floor_ms(hold))
    }

    /// Like `word_floor_ms`, without releases.
    pub(super) fn outer_floor_ms(&self, hold: &Hold) -> u64 {
        let goodbye_ms = hold.session.map_or(u64::MAX, |session| self.goodbye_ms(session));
        self.lane_end_of(hold).min(goodbye_ms)
    }

    /// Returns the earliest instant at which the lease of the hold may have ended.
    pub(super) fn lease_floor_ms(&self, id: LockId) -> u64 {
        let Some(hold) = self.holds.get(&id) else { return 0 };
        let lease_ms = match hold.session {
            Some(_) if hold.may_have_moved => 0,
            Some(session) => self.session_lease_floor_ms(session),
            None => hold.lease_end_ms,
        };
        let moves_ms = hold.may_move.iter().map(|(_, end_ms, _)| *end_ms).min().unwrap_or(u64::MAX);
        lease_ms.min(moves_ms)
    }

    /// Records a request that may end a claim.
    pub(super) fn note_may_end(&mut self, id: LockId, now_ms: u64) {
        if let Some(request) = self.waiters.get(&id).copied() {
            self.requests[request].may_be_cancelled = true;
        }
        match self.holds.get_mut(&id) {
            Some(hold) => {
                hold.may_end_ms = hold.may_end_ms.min(now_ms);
                hold.release_count += 1;
                hold.others_may_end = true;
                self.reliances.doubt(id);
            }
            None => {
                self.note_tampering(id, now_ms);
            }
        }
    }

    pub(super) fn note_tampering(&mut self, id: LockId, now_ms: u64) -> &mut Tampering {
        self.tampered.entry(id).or_insert(Tampering { may_end_ms: now_ms, ..Tampering::default() })
    }

    /// Returns whether this claim surely belongs to another client. A request about an own claim then has no
    /// effect.
    pub(super) fn is_of_another_client(&self, request: usize, id: LockId) -> bool {
        let client = self.lanes[self.requests[request].lane].client;
        self.holds.get(&id).is_some_and(|hold| hold.client != client)
    }

    /// Records a request for another lease.
    pub(super) fn note_may_move(&mut self, request: usize, id: LockId, lease_ms: u32, now_ms: u64) {
        let process = self.lanes[self.requests[request].lane].process;
        let given_ms = self.settings.given_lease_ms(lease_ms);
        let end_ms = now_ms + u64::from(given_ms);
        match self.holds.get_mut(&id) {
            Some(hold) => {
                hold.may_move.push((request, end_ms, given_ms));
                hold.longest_ms = hold.longest_ms.max(given_ms);
                if self.lanes[hold.lane].process != process {
                    // The client of the hold learns of a shorter lease only later.
                    hold.others_may_end = true;
                    self.reliances.doubt(id);
                }
            }
            None => self.note_tampering(id, now_ms).may_move.push((request, end_ms, given_ms)),
        }
    }

    /// Limits how long clients rely on the holds of a lane that lost its connection. A repeated request id may
    /// have moved a hold from another lane of the client to this lane, so these holds are limited too.
    pub(super) fn limit_belief_in_lane(&mut self, lane: usize) {
        let client = self.lanes[lane].client;
        let may_be_here = |hold: &Hold| hold.lane == lane || hold.may_have_moved && hold.client == client;
        let ids: Vec<LockId> =
            self.holds.iter().filter(|(_, hold)| may_be_here(hold)).map(|(id, _)| *id).collect();
        for id in ids {
            let end_ms = self.outer_floor_ms(&self.holds[&id]);
            let until_us = end_ms.saturating_sub(self.settings.start_ms).saturating_mul(1000);
            self.reliances.limit(id, until_us);
        }
    }

    /// Records that the session has its lane again on this connection. Holds that have not ended by now
    /// continue as before.
    pub(super) fn note_lane_back(&mut self, connection: usize, now_ms: u64) {
        let lane = self.connections[connection].lane;
        for loss in self.lanes[lane].losses.iter_mut().filter(|loss| loss.connection < connection) {
            loss.back_ms.get_or_insert(now_ms);
        }
    }

    /// Records that a hold is known to have ended.
    pub(super) fn note_over(&mut self, id: LockId, now_ms: u64) {
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.over_ms.get_or_insert(now_ms);
            self.note_guarded_over(id, now_ms);
        }
    }

    /// Records that an extend has its response, or will never get one.
    pub(super) fn forget_move(&mut self, request: usize, id: LockId) {
        let hold = self.holds.get_mut(&id).map(|hold| &mut hold.may_move);
        let moves = hold.or_else(|| self.tampered.get_mut(&id).map(|tampering| &mut tampering.may_move));
        if let Some(moves) = moves {
            moves.retain(|(other, ..)| *other != request);
        }
    }

    /// Drops extends that an answered extend, sent at `sent_ms`, makes obsolete: extends of sessions whose end
    /// was reported before, because the server executes nothing more for them.
    pub(super) fn forget_moves_of_ended_sessions(&mut self, id: LockId, sent_ms: u64) {
        let Self { holds, lanes, requests, sessions, .. } = self;
        let Some(hold) = holds.get_mut(&id) else { return };
        hold.may_move.retain(|(request, ..)| {
            let session = lanes[requests[*request].lane].session;
            let over_ms = session.and_then(|id| sessions.get(&id)?.over_ms());
            over_ms.is_none_or(|over_ms| over_ms >= sent_ms)
        });
    }

    /// Records the remaining lease of a claim that the server reported at `stamp_ms`.
    pub(super) fn note_lease(&mut self, id: LockId, stamp_ms: u64, remaining_ms: u32) {
        self.note_word(id, stamp_ms, remaining_ms);
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.note_lease(stamp_ms, remaining_ms);
        } else if let Some(tampering) = self.tampered.get_mut(&id) {
            tampering.leases.push((stamp_ms, remaining_ms));
        }
    }

    /// Rule `early-grant`: compares a hold with every other hold of its key. If two holds conflict, the later
    /// grant must not come before the earlier hold may have ended.
    pub(super) fn judge_neighbours(&mut self, id: LockId) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (key, fence, shared, form) = (hold.key, hold.fence, hold.shared, hold.form);
        if let Form::Permits(_) = form {
            return self.judge_permits(key, fence);
        }
        let others = self.keys.get(&key).map(|history| history.others(fence)).unwrap_or_default();
        let own_stamp_ms = self.stamp_of(key, fence);
        for (other_fence, other) in others {
            if !Form::conflict((&form, shared), (&other.form, other.shared)) {
                continue;
            }
            let (first, second, second_stamp_ms) = if other_fence < fence {
                (other.id, id, own_stamp_ms)
            } else {
                (id, other.id, other.stamp_ms)
            };
            let Some(second_stamp_ms) = second_stamp_ms else { continue };
            // A crash may have brought back a hold that was over when the other one was granted.
            let is_back = self.holds.get(&first).is_some_and(|hold| {
                self.restarts.happened_since(second_stamp_ms)
                    && !self.restarts.happened_since(hold.lease_stamp_ms + 1)
            });
            let floor_ms = self.floor_ms(first);
            if second_stamp_ms < floor_ms && !is_back {
                let hold = format!("{:?}", self.holds.get(&first));
                self.accuse("early-grant", || {
                    format!(
                        "key {key}: {second} was granted at {second_stamp_ms} ms, but the conflicting hold {first} lasts to {floor_ms} ms: {hold}"
                    )
                });
            }
        }
    }

    /// Returns when a grant was decided, if that is known.
    pub(super) fn stamp_of(&self, key: Key, fence: u64) -> Option<u64> {
        self.keys.get(&key)?.get(fence)?.stamp_ms
    }
}
