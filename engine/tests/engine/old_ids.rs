//! A million grants of a few keys in one and the same record: the id of none of them acts on a later one.

use crate::random::Dice;
use crate::recorder::{Effect, Recorder};
use std::sync::Arc;
use waymaker_engine::{
    Acquire, AcquireTerms, Answer, Caller, ClaimId, ClaimStatus, LaneAddress, Limits, Refusal, Shard,
    ShardConfig, Ticket, Time,
};

const GRANT_COUNT: usize = 1_000_000;
/// The record that serves all claims serves these keys by turns.
const KEYS: [&[u8]; 3] = [b"key", b"other", b"a key that is longer than its record"];
const LEASE_MS: u32 = 20_000;

struct Reuse {
    shard: Shard,
    caller: Caller,
    effects: Recorder,
}

impl Reuse {
    fn new() -> Self {
        let start = Time::from_millis(1000);
        let config = ShardConfig {
            number: 0,
            limits: Limits::default(),
            hash_seeds: [1, 2, 3, 4],
            secret_seed: [5; 32],
            start,
        };
        let mut shard = Shard::new(&config);
        let owner: Arc<[u8]> = Arc::from([]);
        let lane = shard.lane(LaneAddress::default(), &owner, 0);
        let caller = Caller { lane, ticket: Ticket::default(), namespace: 0 };
        Self { shard, caller, effects: Recorder::default() }
    }

    /// The one thing that was said.
    fn answer(&mut self) -> Answer {
        match self.effects.said.pop() {
            Some(Effect::Answer(_, answer)) if self.effects.said.is_empty() => answer,
            other => panic!("{other:?} and {:?}", self.effects.said),
        }
    }

    /// Takes a key that is free. Says its id and its fence.
    fn acquire(&mut self, key: &[u8]) -> (ClaimId, u64) {
        let acquire = Acquire {
            key,
            hash: self.shard.hash(0, key),
            terms: AcquireTerms { lease_ms: LEASE_MS, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        self.shard.acquire(&self.caller, &acquire, &mut self.effects);
        let Answer::Granted(grant) = self.answer() else { panic!("it is free") };
        (grant.id, grant.fence.get())
    }

    fn release(&mut self, id: ClaimId) {
        self.shard.release(&self.caller, id, None, &mut self.effects);
        assert_eq!(self.answer(), Answer::Released { was_waiting: false });
    }

    fn status(&mut self, id: ClaimId) -> ClaimStatus {
        self.shard.status(&self.caller, id, None, &mut self.effects);
        let Answer::Status(status) = self.answer() else { panic!("it lives") };
        *status
    }

    /// Asks for all that can be asked with an id. Nothing may come of it.
    fn present(&mut self, id: ClaimId, key: Option<&[u8]>) {
        for what in 0..4 {
            let Self { shard, caller, effects } = self;
            match what {
                0 => shard.release(caller, id, key, effects),
                1 => shard.extend(caller, id, key, 2 * LEASE_MS, effects),
                2 => shard.status(caller, id, key, effects),
                _ => shard.force_release(caller, id, b"", effects),
            }
            assert_eq!(self.answer(), Answer::Refused(Refusal::NotFound), "request {what} with {id:?}");
        }
    }
}

#[test]
fn no_id_of_a_million_grants_acts_on_a_later_grant() {
    let (mut reuse, mut dice) = (Reuse::new(), Dice::new(1));
    let mut old: Vec<ClaimId> = Vec::with_capacity(GRANT_COUNT);
    for number in 0..GRANT_COUNT {
        let key = KEYS[number % KEYS.len()];
        let (id, fence) = reuse.acquire(key);
        assert_eq!(ClaimId::slot_of(id.place), 0, "one record serves all claims");
        assert_eq!(fence, (number / KEYS.len()) as u64 + 1);
        if let Some(last) = old.last().copied() {
            // The grant before this one, the one before that of the same key, and any older one.
            let same_key = old[old.len().saturating_sub(KEYS.len())];
            let older = old[dice.below(old.len() as u64) as usize];
            reuse.present(last, None);
            reuse.present(same_key, Some(key));
            reuse.present(older, None);
            let status = reuse.status(id);
            assert_eq!((status.held, status.fence.get(), status.remaining_ms), (true, fence, LEASE_MS));
            assert_eq!(status.key, key);
            assert_eq!(reuse.shard.claim_count(), 1);
        }
        reuse.release(id);
        reuse.present(id, Some(key));
        assert_eq!(reuse.shard.claim_count(), 0);
        old.push(id);
    }
    reuse.shard.verify();
    old.sort_unstable();
    old.dedup();
    assert_eq!(old.len(), GRANT_COUNT, "no id comes twice");
}
