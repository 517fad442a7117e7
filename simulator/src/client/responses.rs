//! The reaction of a client to responses and events.

use super::belief::{Anchor, HoldView, LeaseWord, shortened_us};
use super::lane::{Lane, Pending, Stage};
use super::requests::hello_number;
use super::{Client, SessionView, remember};
use crate::network::ReadResult;
use crate::operation::{Listing, Operation, RegistrationListing, granted_one_by_one};
use crate::world::World;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{
    ErrorCode, Event, Granted, LockId, NamespaceKind, Response, SessionId, Welcome, next_frame,
};

impl Client {
    /// Reads everything that has arrived.
    pub(super) fn listen(&mut self, world: &mut World) {
        self.leave_unread(world);
        for lane in 0..self.lanes.len() {
            let mut ended = false;
            while let Some(Lane { connection: Some(connection), .. }) = self.lanes.get(lane) {
                if self.is_deaf(world, *connection) {
                    break;
                }
                let link = &mut world.network.connections[*connection];
                match link.to_client.read(usize::MAX) {
                    ReadResult::Bytes(bytes) => {
                        if std::mem::take(&mut link.to_client.wants_room) {
                            let event = crate::event::Event::ArriveAtServer(*connection);
                            world.after(1, event);
                        }
                        world.trace.bytes(&bytes);
                        self.lanes[lane].input.extend_from_slice(&bytes);
                    }
                    ReadResult::Nothing => {
                        ended = link.client_noticed;
                        break;
                    }
                    ReadResult::End => {
                        ended = true;
                        break;
                    }
                }
            }
            self.hear_all(world, lane);
            if ended && self.lanes.get(lane).is_some_and(|lane| lane.connection.is_some()) {
                self.lose(world, lane);
            }
        }
    }

    fn hear_all(&mut self, world: &mut World, lane: usize) {
        let Some(Lane { input, .. }) = self.lanes.get_mut(lane) else { return };
        let input = std::mem::take(input);
        let mut offset = 0;
        while let Ok(Some(frame)) = next_frame(&input[offset..], FRAME_LEN_MAX) {
            offset += frame.len();
            if let Ok(response) = Response::decode(frame) {
                self.hear(world, lane, frame.number(), &response);
            }
            if self.lanes.get(lane).is_none_or(|lane| lane.connection.is_none()) {
                return;
            }
        }
        self.lanes[lane].input = input[offset..].to_vec();
    }

    /// Ends a connection on the side of the client.
    pub(super) fn lose(&mut self, world: &mut World, lane: usize) {
        let Some(connection) = self.lanes[lane].connection.take() else { return };
        let index = self.index;
        world.trace.note(world.now_us, 24, connection as u64, || {
            format!("client {index}  has closed connection {connection}")
        });
        world.network.connections[connection].client_done = true;
        world.close(connection, true);
        let retry_at_us = world.now_us + world.random.spread(1, 50_000);
        self.lanes[lane].stage = Stage::Down { retry_at_us };
        self.lanes[lane].input.clear();
        self.lanes[lane].output.clear();
        if self.lanes[lane].number.is_none() {
            if self.kind == NamespaceKind::Tree {
                // A hold without a lease must be released, because it would stay as long as another
                // connection of the lane.
                let released = |operation: Operation| match operation {
                    Operation::Release { id, forged: false, .. } => Some(id),
                    _ => None,
                };
                let lost =
                    self.lanes[lane].pending.values().filter_map(|pending| released(pending.operation));
                self.regrets.extend(lost);
            }
            // The server may still read an extend that was sent, and shorten a lease at any time.
            let extended = |pending: &Pending| match pending.operation {
                Operation::Extend { id, .. } => Some(id),
                _ => None,
            };
            let ids: Vec<LockId> = self.lanes[lane].pending.values().filter_map(extended).collect();
            for id in ids {
                self.lost_extends.insert(id);
                world.auditor.doubts(id);
            }
            // Without a session the server remembers nothing, so the next connection is a new lane.
            self.lanes[lane] = self.new_lane(world);
            self.lanes[lane].stage = Stage::Down { retry_at_us };
        }
    }

    fn hear(&mut self, world: &mut World, lane: usize, number: u32, response: &Response<'_>) {
        let (index, now_us, auditor_lane) = (self.index, world.now_us, self.lanes[lane].auditor_lane);
        world.trace.note(now_us, 25, u64::from(number), || {
            format!("client {index}  receives {number} of lane {auditor_lane}: {response:?}")
        });
        if let Response::Event(event) = response {
            return self.hear_event(world, event);
        }
        if self.lanes[lane].connection.is_some_and(|connection| number == hello_number(connection))
            && let Stage::Greeting { sent_us } = self.lanes[lane].stage
        {
            return match response {
                Response::Welcome(welcome) => self.hear_welcome(world, lane, sent_us, welcome),
                Response::Error(error) if error.code == ErrorCode::SessionGone => {
                    if self.session.is_none() {
                        self.forget_session_of_mate(world);
                    }
                    self.lose_session(world);
                }
                // The session has as many connections as the server allows.
                Response::Error(error) if error.code == ErrorCode::Overloaded => self.mate = None,
                // The requests on earlier connections will never be answered.
                Response::Error(error) if error.code == ErrorCode::Shutdown => {
                    self.lanes[lane].pending.clear();
                }
                _ => {}
            };
        }
        if let Response::Error(error) = response
            && error.code == ErrorCode::Unknown
        {
            // The next start of the server knows the outcome. Until then the request counts as unanswered.
            return;
        }
        let Some(Pending { operation, sent_us }) = self.lanes[lane].pending.remove(&number) else {
            return self.regret_endless(response);
        };
        if let Some(recorder) = &mut world.recorder {
            recorder.note_heard(self.lanes[lane].auditor_lane, number, response, now_us);
        }
        match (operation, response) {
            (Operation::Acquire(_), Response::Granted(granted)) => {
                self.hear_grant(world, sent_us, granted);
            }
            (Operation::Acquire(_), Response::GrantedKeys(granted)) => {
                for one in granted_one_by_one(granted) {
                    self.hear_grant(world, sent_us, &one);
                }
            }
            (Operation::Extend { id, lease_ms, .. }, Response::Extended(extended)) => {
                let anchor = Anchor { sent_us, stamp_ms: extended.stamp_ms };
                self.note_anchor(anchor);
                let lease_ms = world.settings.given_lease_ms(lease_ms);
                let (stamp_ms, remaining_ms) = (extended.stamp_ms, extended.remaining_ms);
                let deadline_us = anchor.deadline_us(LeaseWord { stamp_ms, remaining_ms, lease_ms }, now_us);
                // A later renewal that is still in flight may have shortened the lease.
                let is_last = !self.has_pending_extend(id);
                if let Some(held) = self.holds.get_mut(&id) {
                    held.is_confirmed = true;
                    let is_newest = stamp_ms > held.lease_stamp_ms && is_last;
                    held.lease_stamp_ms = held.lease_stamp_ms.max(stamp_ms);
                    held.own_deadline_us =
                        if is_newest { deadline_us } else { held.own_deadline_us.min(deadline_us) };
                    self.tell_belief(world, id);
                }
                self.plan_brink(world, id);
            }
            (Operation::Extend { id, .. } | Operation::Status { id }, Response::Error(error))
                if error.code == ErrorCode::NotFound =>
            {
                self.forget(world, id);
            }
            (Operation::KeepAlive, Response::KeptAlive(kept)) => {
                self.note_anchor(Anchor { sent_us, stamp_ms: kept.stamp_ms });
                self.note_session(world, kept.stamp_ms, kept.remaining_ms);
            }
            (Operation::Inspect { .. }, Response::Inspected(inspected)) => {
                self.note_anchor(Anchor { sent_us, stamp_ms: inspected.stamp_ms });
                for holder in &inspected.holders {
                    self.note_foreign(holder.id);
                }
            }
            (Operation::Holds { .. }, Response::Listed(listed)) => {
                self.release_unknown(world, lane, listed.locks.iter().map(|lock| lock.id));
                if listed.next != 0 {
                    self.ask_on(world, lane, Operation::Holds { cursor: listed.next });
                }
            }
            (Operation::List(listing), Response::Listed(listed)) => {
                listed.locks.iter().for_each(|lock| self.note_foreign(lock.id));
                if listed.next != 0 {
                    self.ask(world, Operation::List(Listing { cursor: listed.next, ..listing }));
                }
            }
            (Operation::ListPools(listing), Response::PoolsListed(listed)) if listed.next != 0 => {
                self.ask(world, Operation::ListPools(Listing { cursor: listed.next, ..listing }));
            }
            (Operation::ListEntries(listing), Response::EntriesListed(listed)) if listed.next != 0 => {
                self.ask(
                    world,
                    Operation::ListEntries(RegistrationListing { cursor: listed.next, ..listing }),
                );
            }
            (Operation::Namespaces { count_max, .. }, Response::NamespacesListed(listed))
                if listed.next != 0 =>
            {
                self.ask(world, Operation::Namespaces { cursor: listed.next, count_max });
            }
            (Operation::Goodbye, Response::Farewell(_)) if self.wants_session => self.lose_session(world),
            (_, Response::Error(error)) if error.code == ErrorCode::SessionGone => self.lose_session(world),
            _ => {}
        }
    }

    fn has_pending_extend(&self, id: LockId) -> bool {
        let is_one = |pending: &Pending| matches!(pending.operation, Operation::Extend { id: other, .. } if other == id);
        self.lanes.iter().any(|lane| lane.pending.values().any(is_one))
    }

    /// Returns the earliest end that an unanswered renewal may give a hold.
    fn pending_end_us(&self, world: &World, id: LockId) -> u64 {
        let end_us = |pending: &Pending| match pending.operation {
            Operation::Extend { id: other, lease_ms, .. } if other == id => {
                Some(shortened_us(pending.sent_us, world.settings.given_lease_ms(lease_ms)))
            }
            _ => None,
        };
        self.lanes.iter().flat_map(|lane| lane.pending.values()).filter_map(end_us).min().unwrap_or(u64::MAX)
    }

    fn note_foreign(&mut self, id: LockId) {
        if !self.holds.contains_key(&id) && !self.foreign_ids.contains(&id) {
            remember(&mut self.foreign_ids, id);
        }
    }

    fn note_anchor(&mut self, anchor: Anchor) {
        if self.anchor.is_none_or(|known| known.sent_us <= anchor.sent_us) {
            self.anchor = Some(anchor);
        }
    }

    fn note_session(&mut self, world: &mut World, stamp_ms: u64, remaining_ms: u32) {
        let Some(anchor) = self.anchor else { return };
        let Some(session) = &mut self.session else { return };
        let word = LeaseWord { stamp_ms, remaining_ms, lease_ms: session.lease_ms };
        session.deadline_us = session.deadline_us.max(anchor.deadline_us(word, world.now_us));
        for id in self.holds_on_session() {
            self.tell_belief(world, id);
        }
    }

    fn hear_welcome(&mut self, world: &mut World, lane: usize, sent_us: u64, welcome: &Welcome) {
        if self.server_id.replace(welcome.server_id).is_some_and(|before| before != welcome.server_id) {
            self.has_outlived_server = true;
            self.forget_stamps(world, lane);
        }
        self.note_anchor(Anchor { sent_us, stamp_ms: welcome.stamp_ms });
        self.lanes[lane].stage = Stage::Open;
        if welcome.session_id != SessionId::default() {
            self.lanes[lane].number = Some(welcome.lane);
            let renew_at_us = world.now_us + u64::from(welcome.session_lease_ms) * 1000 / 3;
            self.session.get_or_insert(SessionView {
                id: welcome.session_id,
                lease_ms: welcome.session_lease_ms,
                deadline_us: 0,
                renew_at_us,
                is_leaving: false,
            });
            self.note_session(world, welcome.stamp_ms, welcome.session_lease_ms);
            world.sessions.insert(self.index, welcome.session_id);
        }
        let waiting_count = self.lanes[lane].waiting_count();
        let repetitions = self.lanes[lane].repetitions();
        // An acquire that is too old to be repeated may have been granted.
        self.lanes[lane].reconciles |= self.lanes[lane].waiting_count() < waiting_count;
        for (number, operation) in repetitions {
            self.send(world, lane, number, operation);
        }
    }

    /// Forgets the stamps of an earlier server, because another server has a clock of its own. Unanswered
    /// requests to the earlier server stay unanswered. Beliefs that follow from its responses remain valid.
    fn forget_stamps(&mut self, world: &mut World, lane: usize) {
        self.anchor = None;
        self.lanes.iter_mut().for_each(|lane| lane.reconciles = true);
        self.holds.values_mut().for_each(|held| held.lease_stamp_ms = 0);
        for other in (0..self.lanes.len()).filter(|other| *other != lane) {
            if let Some(connection) = self.lanes[other].connection {
                world.note_lost(connection);
                self.lose(world, other);
            }
        }
    }

    /// Lists the holds of lanes that may have holds without knowing them.
    pub(super) fn reconcile(&mut self, world: &mut World) {
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].reconciles
                && self.has_heard_of_its_holds(lane)
                && self.list_holds(world, lane)
            {
                self.lanes[lane].reconciles = false;
            }
        }
    }

    /// Returns whether every response that may report a hold of this lane has arrived.
    fn has_heard_of_its_holds(&self, lane: usize) -> bool {
        self.is_leaving || self.lanes[lane].waiting_count() == 0
    }

    /// Releases the holds of a lane that the client does not know.
    fn release_unknown(&mut self, world: &mut World, lane: usize, ids: impl Iterator<Item = LockId>) {
        let is_told = self.has_heard_of_its_holds(lane);
        let reconciles = is_told && (world.settings.durability.is_some() || world.settings.edge.is_some());
        for id in ids.filter(|_| reconciles) {
            if !self.holds.contains_key(&id) {
                self.ask(world, Operation::Release { id, forged: false, own: false });
            }
        }
    }

    fn hear_grant(&mut self, world: &mut World, sent_us: u64, granted: &Granted) {
        let id = granted.id;
        if !granted.waited {
            self.note_anchor(Anchor { sent_us, stamp_ms: granted.stamp_ms });
        }
        let Some(anchor) = self.anchor else { return };
        if granted.session_lease && self.session.is_none_or(|session| session.is_leaving) {
            return;
        }
        if granted.session_lease {
            self.note_session(world, granted.stamp_ms, granted.remaining_ms);
        }
        // The remaining lease at a grant is the whole lease, unless the hold was found again.
        let (stamp_ms, remaining_ms, lease_ms) =
            (granted.stamp_ms, granted.remaining_ms, granted.remaining_ms);
        let deadline_us = anchor.deadline_us(LeaseWord { stamp_ms, remaining_ms, lease_ms }, world.now_us);
        let own_deadline_us = deadline_us.max(world.now_us + 1);
        // A renewal that is still in flight may shorten the lease of a repeated grant.
        let own_deadline_us = own_deadline_us.min(self.pending_end_us(world, id));
        let renews = !granted.session_lease
            && (granted.repeated || world.random.percent(world.settings.renew_percent));
        let lease_ms = granted.remaining_ms.max(10);
        let renew_at_us = renews.then(|| {
            if granted.repeated { world.now_us } else { world.now_us + u64::from(lease_ms) * 1000 / 3 }
        });
        let is_session_lease = granted.session_lease;
        let is_confirmed = !granted.repeated && !self.meddled.contains(&id) && deadline_us > world.now_us;
        let held = HoldView {
            lease_ms,
            is_session_lease,
            is_confirmed,
            own_deadline_us,
            lease_stamp_ms: granted.stamp_ms,
            renew_at_us,
        };
        self.holds.insert(id, held);
        self.tell_belief(world, id);
        self.plan_brink(world, id);
        if self.is_leaving {
            self.release(world, id);
        }
    }

    /// Releases a hold without a lease whose grant crossed the reset of its stream. The hold would otherwise
    /// stay as long as the connection.
    fn regret_endless(&mut self, response: &Response<'_>) {
        if let Response::Granted(Granted { id, remaining_ms: u32::MAX, repeated: false, .. }) = response
            && self.is_front
        {
            self.regrets.push(*id);
        }
    }

    fn hear_event(&mut self, world: &mut World, event: &Event) {
        match *event {
            Event::Expired { id } | Event::Revoked { id, .. } => self.forget(world, id),
            Event::SessionExpired => self.lose_session(world),
            Event::LeaseMoved { id, remaining_ms, .. } => {
                let until_us = world.now_us + u64::from(remaining_ms) * 1000;
                if let Some(held) = self.holds.get_mut(&id) {
                    held.own_deadline_us = held.own_deadline_us.min(until_us);
                }
            }
            Event::Queued { .. }
            | Event::KeyHeld { .. }
            | Event::KeyFreed { .. }
            | Event::Overrun
            | Event::TakenUp { .. }
            | Event::Ping => {}
        }
    }

    /// Notes that the session has ended. The client begins a new session later, and keeps holds with their
    /// own leases.
    fn lose_session(&mut self, world: &mut World) {
        self.session = None;
        world.sessions.remove(&self.index);
        for id in self.holds_on_session() {
            self.forget(world, id);
        }
        for lane in 0..self.lanes.len() {
            self.lose(world, lane);
            self.lanes[lane] = self.new_lane(world);
        }
        if self.is_leaving {
            self.wants_session = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::trace::Trace;
    use crate::workload::Settings;

    const ID: LockId = LockId { place: 1, secret: 1 };

    /// Returns whether a client relies on a hold as soon as it learns of its grant.
    fn relies_on_grant(foreign_ids: &[LockId]) -> bool {
        let mut random = Random::new(0);
        let settings = Settings::new(0, None, &mut random);
        let mut world = World::new(settings, random, Trace::new(false, false));
        let mut client = Client::new(&mut world, 0);
        client.foreign_ids.extend(foreign_ids);
        client.pick_foreign(&mut world);
        let stamp_ms = world.server_ms();
        let granted = Granted { id: ID, fence: 1, remaining_ms: 3_000, stamp_ms, ..Granted::default() };
        client.hear_grant(&mut world, 0, &granted);
        client.holds[&ID].is_confirmed
    }

    /// Returns the holds that a client releases after a grant that no pending request explains.
    fn regrets_of_grant(remaining_ms: u32, repeated: bool) -> Vec<LockId> {
        let mut random = Random::new(0);
        let settings = Settings::new(0, None, &mut random);
        let mut world = World::new(settings, random, Trace::new(false, false));
        let mut client = Client::new(&mut world, 0);
        client.is_front = true;
        let granted = Granted { id: ID, fence: 1, remaining_ms, repeated, ..Granted::default() };
        client.hear(&mut world, 0, 1, &Response::Granted(granted));
        client.regrets
    }

    #[test]
    fn a_grant_without_a_lease_that_crossed_the_reset_of_its_stream_is_released() {
        assert_eq!(regrets_of_grant(u32::MAX, false), [ID]);
        assert!(regrets_of_grant(3_000, false).is_empty(), "the hold ends with its lease");
        assert!(regrets_of_grant(u32::MAX, true).is_empty(), "an earlier request knows the hold");
    }

    #[test]
    fn a_client_relies_on_a_grant_at_once() {
        assert!(relies_on_grant(&[]));
    }

    #[test]
    fn a_client_does_not_rely_on_a_hold_that_it_extended_as_foreign_before_the_grant() {
        // The client listed its own hold before the grant reached it, and gave it a lease of 18 ms.
        assert!(!relies_on_grant(&[ID]));
    }
}
