//! What the lanes ask for.

use super::auditor::{ClaimRequest, LEASE_MS_MAX, owner};
use super::{LANE_COUNT, POOL_CAPACITY, Run, shard_of};
use crate::node::Node;
use crate::recorder::Effect;
use std::sync::Arc;
use waymaker_engine::multi_key::{self, AcquireMultiKey, RequestedKey};
use waymaker_engine::{
    Acquire, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Answer, ClaimId, PoolOrder, Scope,
    Ticket, TreeItem,
};

pub(super) const KEYS: [&[u8]; 4] = [b"k", b"l", b"m", b"a key that does not fit"];
/// Paths of one-letter segments.
const PATHS: [&[u8]; 5] =
    [b"\x01\0a", b"\x01\0a\x01\0b", b"\x01\0a\x01\0b\x01\0c", b"\x01\0d", b"\x01\0d\x01\0e"];
const POOL: &[u8] = b"pool";

impl Run {
    fn ask(&mut self, namespace: u16, items: Vec<Vec<u8>>) -> ClaimRequest {
        let shared = namespace != 2 && self.dice.percent(self.character.shared_percent);
        let mut claim = ClaimRequest {
            lane: self.dice.below(LANE_COUNT as u64) as usize,
            namespace,
            items,
            shared,
            permits: 1 + self.dice.below(3),
            lease_ms: self.dice.pick(&[5, 10, 20, 40, 100, LEASE_MS_MAX]),
            is_local: self.dice.percent(self.character.local_percent),
            hangs_on_lane: self.dice.percent(self.character.release_after_percent),
            request_id: None,
        };
        if self.dice.percent(self.character.request_id_percent) {
            // Whoever asks again asks for the same.
            let (items, ClaimRequest { permits, is_local, .. }) = (claim.items.concat(), &claim);
            claim.request_id = Some(format!("{items:?} {permits} {shared} {is_local}").into_bytes());
            claim.hangs_on_lane = false;
        }
        claim
    }

    fn wait_ms(&mut self) -> u32 {
        self.dice.pick(&[0, 0, 10, 40, u32::MAX])
    }

    fn key(&mut self) -> Vec<u8> {
        KEYS[self.dice.below(self.character.key_count) as usize].to_vec()
    }

    pub(super) fn acquire(&mut self) {
        let key = self.key();
        let claim = self.ask(0, vec![key]);
        let wait_ms = self.wait_ms();
        let place = self.place(&claim);
        let caller = self.caller(claim.lane, place, 0);
        let options = options(&claim);
        let key = &claim.items[0];
        let acquire = Acquire {
            key,
            hash: self.node.shards[place].hash(0, key),
            shared: claim.shared,
            terms: AcquireTerms {
                lease_ms: claim.lease_ms,
                wait_ms,
                session_lease: false,
                notify_queued: true,
                options: (options != AcquireOptions::default()).then_some(&options),
            },
        };
        self.node.shards[place].acquire(&caller, &acquire, &mut self.effects);
        self.requests.insert(self.number, vec![claim]);
    }

    pub(super) fn acquire_multi_key(&mut self) {
        let (first, second) = (self.key(), self.key());
        let mut keys = vec![first, second];
        keys.sort();
        keys.dedup();
        let claim = self.ask(0, keys);
        let wait_ms = self.wait_ms();
        let shard_count = self.node.shards.len();
        let ClaimRequest { shared, lease_ms, .. } = claim;
        let key = |key| RequestedKey { key, shared, shard: shard_of(shard_count, 0, key) };
        let keys: Vec<RequestedKey<'_>> = claim.items.iter().map(|item| key(item)).collect();
        let request = AcquireMultiKey {
            keys: &keys,
            terms: AcquireTerms {
                lease_ms,
                wait_ms,
                session_lease: false,
                notify_queued: true,
                options: Some(&options(&claim)),
            },
        };
        let ticket = Ticket { lane: self.address(claim.lane), number: self.number };
        let shards = Node::distinct(keys.iter().map(|key| key.shard));
        let owner = Arc::from(owner(claim.lane));
        let mut participants = self.node.participants(&shards, Some((ticket.lane, &owner, 0)));
        multi_key::acquire(&mut participants, ticket, 0, &request, &mut self.effects);
        let each = claim.items.iter().map(|item| ClaimRequest { items: vec![item.clone()], ..claim.clone() });
        self.requests.insert(self.number, each.collect());
    }

    pub(super) fn acquire_set(&mut self) {
        let paths = [self.dice.pick(&PATHS), self.dice.pick(&PATHS)];
        let claim = self.ask(1, paths.map(<[u8]>::to_vec).into());
        let wait_ms = self.wait_ms();
        let place = self.place(&claim);
        let caller = self.caller(claim.lane, place, 1);
        let item = |path| TreeItem { path, write: !claim.shared };
        let items: Vec<TreeItem<'_>> = claim.items.iter().map(|path| item(path)).collect();
        let acquire = AcquireSet {
            items: &items,
            terms: AcquireTerms {
                lease_ms: claim.lease_ms,
                wait_ms,
                session_lease: false,
                notify_queued: true,
                options: Some(&options(&claim)),
            },
        };
        self.node.shards[place].acquire_set(&caller, &acquire, &mut self.effects);
        self.requests.insert(self.number, vec![claim]);
    }

    pub(super) fn acquire_permits(&mut self) {
        let claim = self.ask(2, vec![POOL.to_vec()]);
        let wait_ms = self.wait_ms();
        let place = self.place(&claim);
        let caller = self.caller(claim.lane, place, 2);
        let acquire = AcquirePermits {
            name: POOL,
            capacity: Some(POOL_CAPACITY),
            permits: claim.permits,
            order: PoolOrder::Arrival,
            timestamp_us: 0,
            terms: AcquireTerms {
                lease_ms: claim.lease_ms,
                wait_ms,
                session_lease: false,
                notify_queued: true,
                options: Some(&options(&claim)),
            },
        };
        self.node.shards[place].acquire_permits(&caller, &acquire, &mut self.effects);
        self.requests.insert(self.number, vec![claim]);
    }

    /// A claim that was heard of, most likely lately; it may be over.
    fn some_claim(&mut self) -> Option<(ClaimId, ClaimRequest)> {
        let newest = self.known.len() as u64;
        let back = self.dice.below(newest + 1).min(self.dice.below(12) + 1);
        self.known.get((newest - back) as usize).cloned()
    }

    pub(super) fn release(&mut self, by_operator: bool) {
        let Some((id, claim)) = self.some_claim() else { return };
        let place = self.place(&claim);
        let caller = self.caller(claim.lane, place, claim.namespace);
        let shard = &mut self.node.shards[place];
        let said = self.effects.said.len();
        if by_operator {
            shard.force_release(&caller, id, b"stuck", &mut self.effects);
        } else {
            shard.release(&caller, id, None, &mut self.effects);
        }
        let answer = self.effects.said[said..].iter().find_map(|effect| match effect {
            Effect::Answer(ticket, answer) if ticket.number == self.number => Some(answer.clone()),
            _ => None,
        });
        match answer {
            Some(Answer::Refused(_)) => self.auditor.not_found(id),
            Some(_) => self.auditor.ended(id),
            None => {
                // The answer waits for the log, perhaps behind the answer to a request that found the claim.
                self.auditor.ending(id);
                self.releasing.insert(self.number, id);
            }
        }
    }

    pub(super) fn extend(&mut self) {
        let Some((id, claim)) = self.some_claim() else { return };
        let lease_ms = self.dice.pick(&[5, 20, 100, 400]);
        let place = self.place(&claim);
        let caller = self.caller(claim.lane, place, claim.namespace);
        self.auditor.extending(id, self.number, lease_ms);
        self.node.shards[place].extend(&caller, id, None, lease_ms, &mut self.effects);
    }

    pub(super) fn cancel(&mut self) {
        let Some((number, claim)) = self.requests.iter().next_back() else { return };
        let (number, claim) = (*number, claim[0].clone());
        let place = self.place(&claim);
        let caller = self.caller(claim.lane, place, claim.namespace);
        self.node.shards[place].cancel(&caller, number, &mut self.effects);
    }
}

fn options(claim: &ClaimRequest) -> AcquireOptions<'_> {
    AcquireOptions {
        release_after_ms: claim.hangs_on_lane.then_some(7),
        scope: if claim.is_local { Scope::Local } else { Scope::Ephemeral },
        request_id: claim.request_id.as_deref(),
        ..AcquireOptions::default()
    }
}
