//! What clients ask of shards, and what shards say.

use std::sync::Arc;
use waymaker_engine::multi_key::{self, AcquireMultiKey, MultiKeyClaim, Participant, RequestedKey};
use waymaker_engine::{
    Acquire, AcquireOptions, AcquireTerms, Answer, Caller, ClaimId, Effects, Event, LaneAddress, Shard,
    Ticket,
};

pub(crate) const SHARD_COUNT: u16 = 3;
pub(crate) const KEY_COUNT: usize = 4;
/// As long as no test lasts.
const LEASE_MS: u32 = 3_600_000;

/// A request for one shard.
pub(crate) struct Request {
    pub(crate) ticket: Ticket,
    pub(crate) owner: Arc<[u8]>,
    pub(crate) task: Task,
}

#[derive(Clone, Copy)]
pub(crate) enum Task {
    Acquire { key: usize, shared: bool, terms: Terms },
    Release(ClaimId),
    Cancel(u32),
}

/// A request for all of these keys.
pub(crate) struct RequestMultiKey {
    pub(crate) ticket: Ticket,
    pub(crate) owner: Arc<[u8]>,
    /// Rising, and whether they are shared.
    pub(crate) wanted: Vec<(usize, bool)>,
    pub(crate) terms: Terms,
}

#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) wait_ms: u32,
    /// The hold ends so long after the connection was lost.
    pub(crate) release_after_ms: Option<u32>,
}

/// What a turn says.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) answers: Vec<(Ticket, Answer)>,
    pub(crate) rechecks: Vec<Arc<MultiKeyClaim>>,
    pub(crate) withdraws: Vec<Arc<MultiKeyClaim>>,
}

impl Effects for Recorder {
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.answers.push((ticket, answer));
    }

    fn event(&mut self, lane: LaneAddress, event: Event) {
        panic!("{lane:?} asked for no {event:?}");
    }

    fn recheck(&mut self, claim: &Arc<MultiKeyClaim>) {
        self.rechecks.push(Arc::clone(claim));
    }

    fn withdraw(&mut self, claim: &Arc<MultiKeyClaim>) {
        self.withdraws.push(Arc::clone(claim));
    }
}

pub(crate) fn shard_of(key: usize) -> u16 {
    key as u16 % SHARD_COUNT
}

pub(crate) fn name(key: usize) -> [u8; 1] {
    [key as u8]
}

/// Serves a request within a turn.
pub(crate) fn apply(shard: &mut Shard, request: &Request, effects: &mut Recorder) {
    let Request { ticket, owner, task } = request;
    let lane = shard.lane(ticket.lane, owner, 0);
    let caller = Caller { lane, ticket: *ticket, namespace: 0 };
    match *task {
        Task::Acquire { key, shared, terms: Terms { wait_ms, release_after_ms } } => {
            let name = name(key);
            let options = AcquireOptions { release_after_ms, ..AcquireOptions::default() };
            let acquire = Acquire {
                key: &name,
                hash: shard.hash(0, &name),
                shared,
                terms: AcquireTerms {
                    lease_ms: LEASE_MS,
                    wait_ms,
                    options: release_after_ms.is_some().then_some(&options),
                    ..AcquireTerms::default()
                },
            };
            shard.acquire(&caller, &acquire, effects);
        }
        Task::Release(id) => shard.release(&caller, id, None, effects),
        Task::Cancel(number) => shard.cancel(&caller, number, effects),
    }
}

/// Serves a request for several keys. `participants` are all their shards, rising, in a turn each.
pub(crate) fn apply_multi_key(
    participants: &mut [Participant<'_>],
    request: &RequestMultiKey,
    effects: &mut Recorder,
) {
    let RequestMultiKey { ticket, owner, wanted, terms: Terms { wait_ms, release_after_ms } } = request;
    let names: Vec<_> = wanted.iter().map(|(key, _)| name(*key)).collect();
    let keys: Vec<_> = wanted
        .iter()
        .zip(&names)
        .map(|((key, shared), name)| RequestedKey { key: name, shared: *shared, shard: shard_of(*key) })
        .collect();
    let options = AcquireOptions { release_after_ms: *release_after_ms, ..AcquireOptions::default() };
    let acquire = AcquireMultiKey {
        keys: &keys,
        terms: AcquireTerms {
            lease_ms: LEASE_MS,
            wait_ms: *wait_ms,
            options: Some(&options),
            ..AcquireTerms::default()
        },
    };
    for participant in &mut *participants {
        participant.lane = participant.shard.lane(ticket.lane, owner, 0);
    }
    multi_key::acquire(participants, *ticket, 0, &acquire, effects);
}
