//! Requests of clients.

use super::auditor::OpenRequest;
use super::{Lane, Run, SHARD_COUNT, WORKER_COUNT};
use crate::node::Node;
use std::sync::Arc;
use waymaker_engine::multi_key::{self, AcquireMultiKey, RequestedKey};
use waymaker_engine::{
    Acquire, AcquireOptions, AcquirePermits, AcquireTerms, Caller, ClaimId, LaneIx, PoolOrder, Scope, Ticket,
};

/// Keys and the shards in which they lie.
pub(super) const KEYS: [(&[u8], u16); 5] = [(b"a", 0), (b"b", 1), (b"c", 2), (b"d", 0), (b"e", 1)];
const POOL: &[u8] = b"pool";
const POOL_SHARD: u16 = 2;
/// The longest time for which a hold outlives its connection.
pub(super) const RELEASE_AFTER_MAX_MS: u32 = 5;

/// The terms of an acquire.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// Places among [`KEYS`], rising.
    keys: Vec<usize>,
    shared: bool,
    session_lease: bool,
    lease_ms: u32,
    wait_ms: u32,
    release_after_ms: Option<u32>,
    request_id: Option<&'static [u8]>,
    scope: Scope,
}

impl Ask {
    fn options(&self) -> AcquireOptions<'static> {
        let Self { scope, release_after_ms, request_id, .. } = *self;
        AcquireOptions { scope, release_after_ms, request_id, ..AcquireOptions::default() }
    }

    fn request(&self, key: Option<&'static [u8]>, home: u16) -> OpenRequest {
        let has_request_id = self.request_id.is_some();
        let is_fence_new = self.scope != Scope::Ephemeral && !self.shared && !has_request_id;
        OpenRequest { key, home, is_fence_new, has_request_id }
    }
}

/// All clients have one owner, so that a request id may move a claim from lane to lane.
fn owner() -> Arc<[u8]> {
    Arc::from(*b"owner")
}

impl Run {
    /// Makes a request, if the client is connected and its worker is free.
    pub(super) fn ask(&mut self, lane: usize) {
        if !self.lanes[lane].is_open || !self.is_idle(lane % WORKER_COUNT) {
            return;
        }
        self.number += 1;
        match self.dice.weighted(&[35, 25, 10, 4, 6, 20]) {
            0 => self.acquire_multi_key(lane),
            1 => self.acquire(lane),
            2 => self.acquire_permits(lane),
            3 => self.set_capacity(lane),
            4 => self.cancel(lane),
            _ => self.act_on_claim(lane),
        }
        self.end_turn(lane % WORKER_COUNT);
    }

    fn ticket(&self, lane: usize) -> Ticket {
        Ticket { lane: self.lanes[lane].address, number: self.number }
    }

    /// The lane in a shard that has served all its mail.
    fn caller(&mut self, lane: usize, shard: u16) -> Caller {
        self.take_turns(&[shard]);
        Caller { lane: self.open_lane(lane, shard), ticket: self.ticket(lane), namespace: 0 }
    }

    fn open_lane(&mut self, lane: usize, shard: u16) -> LaneIx {
        let (lane, shard): (&Lane, _) = (&self.lanes[lane], usize::from(shard));
        let number = self.node.lane(shard, lane.address, &owner(), 0);
        self.node.shards[shard].note_session(number, lane.tag());
        number
    }

    fn scope(&mut self, keys: &[usize]) -> Scope {
        let character = &self.character;
        let percent = match keys {
            [key] if *key < character.ephemeral_key_count => 0,
            [_] => character.single_durable_percent,
            _ => character.multi_key_durable_percent,
        };
        if !self.dice.percent(percent) {
            Scope::Ephemeral
        } else if self.character.has_quorum && self.dice.percent(40) {
            Scope::Quorum
        } else {
            Scope::Local
        }
    }

    fn draw(&mut self, key_count: u64) -> Ask {
        let mut keys: Vec<usize> =
            (0..key_count).map(|_| self.dice.below(KEYS.len() as u64) as usize).collect();
        keys.sort_unstable();
        keys.dedup();
        let scope = self.scope(&keys);
        let session_lease = self.dice.percent(30);
        Ask {
            keys,
            shared: self.dice.percent(35),
            session_lease,
            lease_ms: if session_lease { 0 } else { self.dice.pick(&[5, 20, 100, 1000]) },
            wait_ms: self.dice.pick(&[0, 5, 20, u32::MAX, u32::MAX]),
            release_after_ms: self.dice.pick(&[None, None, Some(0), Some(RELEASE_AFTER_MAX_MS)]),
            request_id: self.dice.pick::<Option<&[u8]>>(&[None, None, None, Some(b"r"), Some(b"s")]),
            scope,
        }
    }

    fn acquire_multi_key(&mut self, lane: usize) {
        let is_again = self.dice.percent(self.character.again_percent);
        let ask = self.last_named.clone().filter(|_| is_again).unwrap_or_else(|| self.draw(3));
        if ask.request_id.is_some() {
            self.last_named = Some(ask.clone());
        }
        let key = |place: &usize| {
            let (key, shard) = KEYS[*place];
            RequestedKey { key, shared: ask.shared, shard }
        };
        let keys: Vec<RequestedKey<'_>> = ask.keys.iter().map(key).collect();
        let shards = Node::distinct(keys.iter().map(|key| key.shard));
        self.take_turns(&shards);
        for shard in &shards {
            self.open_lane(lane, *shard);
        }
        let request = AcquireMultiKey {
            keys: &keys,
            terms: AcquireTerms {
                lease_ms: ask.lease_ms,
                wait_ms: ask.wait_ms,
                session_lease: ask.session_lease,
                notify_queued: true,
                options: Some(&ask.options()),
            },
        };
        let ticket = self.ticket(lane);
        self.auditor.note_request(ticket, ask.request(None, keys[0].shard));
        let mut participants = self.node.participants(&shards, Some((ticket.lane, &owner(), 0)));
        multi_key::acquire(&mut participants, ticket, 0, &request, &mut self.effects);
    }

    fn acquire(&mut self, lane: usize) {
        let ask = self.draw(1);
        let (key, shard) = KEYS[ask.keys[0]];
        let caller = self.caller(lane, shard);
        let options = ask.options();
        let shard_number = usize::from(shard);
        let acquire = Acquire {
            key,
            hash: self.node.shards[shard_number].hash(0, key),
            shared: ask.shared,
            terms: AcquireTerms {
                lease_ms: ask.lease_ms,
                wait_ms: ask.wait_ms,
                session_lease: ask.session_lease,
                notify_queued: true,
                options: (options != AcquireOptions::default()).then_some(&options),
            },
        };
        self.auditor.note_request(caller.ticket, ask.request(Some(key), shard));
        self.node.shards[shard_number].acquire(&caller, &acquire, &mut self.effects);
    }

    fn acquire_permits(&mut self, lane: usize) {
        let ask = self.draw(1);
        let caller = self.caller(lane, POOL_SHARD);
        let acquire = AcquirePermits {
            name: POOL,
            capacity: None,
            permits: 1 + self.dice.below(3),
            order: PoolOrder::Arrival,
            timestamp_us: 0,
            terms: AcquireTerms {
                lease_ms: ask.lease_ms,
                wait_ms: ask.wait_ms,
                session_lease: ask.session_lease,
                notify_queued: true,
                options: Some(&ask.options()),
            },
        };
        self.auditor.note_request(caller.ticket, ask.request(None, POOL_SHARD));
        self.node.shards[usize::from(POOL_SHARD)].acquire_permits(&caller, &acquire, &mut self.effects);
    }

    fn set_capacity(&mut self, lane: usize) {
        let caller = self.caller(lane, POOL_SHARD);
        let capacity = self.dice.below(4);
        self.auditor.note_request(caller.ticket, OpenRequest { home: POOL_SHARD, ..OpenRequest::default() });
        let shard = &mut self.node.shards[usize::from(POOL_SHARD)];
        shard.set_capacity(&caller, POOL, capacity, PoolOrder::Arrival, &mut self.effects);
    }

    fn cancel(&mut self, lane: usize) {
        let Some(cancelled) = self.auditor.open_number(self.lanes[lane].address) else { return };
        let shard = self.dice.below(SHARD_COUNT as u64) as u16;
        let caller = self.caller(lane, shard);
        self.auditor.note_request(caller.ticket, OpenRequest { home: shard, ..OpenRequest::default() });
        self.node.shards[usize::from(shard)].cancel(&caller, cancelled, &mut self.effects);
    }

    /// Releases or extends one of the claims that became known last.
    fn act_on_claim(&mut self, lane: usize) {
        let newest = self.known.len();
        if newest == 0 {
            return;
        }
        let id = self.known[newest - 1 - self.dice.below(newest.min(8) as u64) as usize];
        let shard = ClaimId::shard_of(id.place);
        let caller = self.caller(lane, shard);
        self.auditor.note_request(caller.ticket, OpenRequest { home: shard, ..OpenRequest::default() });
        let (shard, effects) = (&mut self.node.shards[usize::from(shard)], &mut self.effects);
        match self.dice.weighted(&[8, 8, 4]) {
            0 => shard.release(&caller, id, None, effects),
            1 => shard.extend(&caller, id, None, 50, effects),
            _ => shard.force_release(&caller, id, b"reason", effects),
        }
    }
}
