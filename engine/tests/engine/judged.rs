//! A few shards, a worker, and a judge of all they say.

use crate::accounts::Book;
use crate::judge::{Ask, Judge, Kind};
use crate::node::Node;
use crate::recorder::{Effect, Recorder};
use std::sync::Arc;
use waymaker_engine::multi_key::{self, AcquireMultiKey, RequestedKey};
use waymaker_engine::{
    Acquire, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Answer, Caller, ClaimId, FreezeList,
    LaneAddress, LaneSlot, Limits, PoolOrder, Refusal, Ticket, Time, TreeItem,
};

/// One step of a test.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Acquire {
        lane: usize,
        ask: Ask,
    },
    Release {
        lane: usize,
        id: ClaimId,
    },
    Cancel {
        ticket: Ticket,
    },
    Resize {
        capacity: u64,
    },
    /// An operator removes the pool, which works only without holders and waiters.
    RemovePool,
    Freeze {
        prefix: Vec<u8>,
        frozen: bool,
    },
    Watch {
        lane: usize,
        key: Vec<u8>,
    },
    Detach {
        lane: usize,
    },
    Attach {
        lane: usize,
    },
    Close {
        lane: usize,
        session_ended: bool,
    },
    Advance {
        millis: u64,
    },
    /// The worker gets to this one of what is left to be done with several turns.
    FollowUp {
        place: usize,
    },
}

pub(crate) struct Judged {
    pub(crate) judge: Judge,
    kind: Kind,
    node: Node,
    now: u64,
    pub(crate) number: u32,
    generations: Vec<u32>,
    freezes: FreezeList,
    /// The same steps were done before and nothing was wrong: the shards are not walked again.
    pub(crate) is_known: bool,
    effects: Recorder,
}

const START: u64 = 1000;
const POOL: &[u8] = b"p";
/// More free keys than any test makes.
pub(crate) const IDLE_MAX: u32 = 1 << 10;

impl Judged {
    /// Shards that remember so many free keys.
    pub(crate) fn new(
        kind: Kind,
        shard_count: u16,
        lane_count: usize,
        capacity: u64,
        idle_key_count_max: u32,
        seed: u64,
    ) -> Self {
        let limits = Limits {
            lease_min_ms: 1,
            // What is set aside is not touched, but it takes its time.
            claim_count_max: 1 << 10,
            idle_key_count_max,
            bucket_count_max: 1,
            priority_step_ms: 10,
            priority_boost_max_ms: 60,
            ..Limits::default()
        };
        Self {
            judge: Judge::new(kind, (10, 60), capacity, idle_key_count_max < IDLE_MAX, START),
            kind,
            node: Node {
                book: Book::of_seed(seed),
                ..Node::new(shard_count, limits, Time::from_millis(START), seed)
            },
            now: START,
            number: 0,
            generations: vec![0; lane_count],
            freezes: FreezeList::default(),
            is_known: false,
            effects: Recorder::default(),
        }
    }

    pub(crate) fn address(&self, lane: usize) -> LaneAddress {
        LaneAddress { worker: 0, slot: LaneSlot(lane as u32), generation: self.generations[lane] }
    }

    pub(crate) fn follow_up_count(&self) -> usize {
        self.effects.follow_ups.len()
    }

    fn time(&self) -> Time {
        Time::from_millis(self.now)
    }

    fn shard_of(&self, key: &[u8]) -> u16 {
        u16::from(key[key.len() - 1]) % self.node.shards.len() as u16
    }

    fn caller(&mut self, lane: usize, shard: u16) -> Caller {
        let address = self.address(lane);
        let owner: Arc<[u8]> = Arc::from(*b"o");
        let number = self.node.lane(usize::from(shard), address, &owner, 0);
        Caller { lane: number, ticket: Ticket { lane: address, number: self.number }, namespace: 0 }
    }

    /// Does a step. Whatever is wrong panics.
    pub(crate) fn step(&mut self, step: &Step) {
        self.number += 1;
        if let Step::Advance { millis } = step {
            // What ends at one instant is judged before the next one comes.
            let target = self.now + millis;
            while let Some(next) = self.judge.next_end().filter(|next| *next < target) {
                self.advance(next);
            }
            return self.advance(target);
        }
        self.node.book.change_sometimes(self.number);
        let (now, mut asked) = (self.time(), None);
        self.node.begin_turns(now, now, &mut self.effects);
        match step {
            Step::Acquire { lane, ask } => self.acquire(*lane, ask),
            Step::Release { lane, id } => {
                asked = Some(*id);
                let shard = ClaimId::shard_of(id.place);
                let caller = self.caller(*lane, shard);
                self.node.shards[usize::from(shard)].release(&caller, *id, None, &mut self.effects);
            }
            Step::Cancel { ticket } => {
                self.judge.cancel(*ticket);
                // Only the home knows it; the others say that nothing waits.
                let mut nothing = Recorder::default();
                for shard in 0..self.node.shards.len() as u16 {
                    let caller = self.caller(ticket.lane.slot.index(), shard);
                    let waiting = std::mem::take(&mut self.effects.waiting);
                    let mut effects = Recorder { waiting, ..Recorder::default() };
                    self.node.shards[usize::from(shard)].cancel(&caller, ticket.number, &mut effects);
                    self.effects.waiting = std::mem::take(&mut effects.waiting);
                    self.effects.follow_ups.append(&mut effects.follow_ups);
                    let is_home = effects.said.len() > 1;
                    if is_home { &mut self.effects } else { &mut nothing }.said.append(&mut effects.said);
                }
                if self.effects.said.is_empty() {
                    self.effects.said.extend(nothing.said.pop());
                }
            }
            Step::Resize { capacity } => {
                self.judge.capacity = *capacity;
                let caller = self.caller(0, 0);
                let order = self.pool_order();
                self.node.shards[0].set_capacity(&caller, POOL, *capacity, order, &mut self.effects);
            }
            Step::RemovePool => {
                let caller = self.caller(0, 0);
                let order = self.pool_order();
                self.node.shards[0].set_capacity(&caller, POOL, 0, order, &mut self.effects);
                let is_removed = match self.effects.said.pop() {
                    Some(Effect::Answer(_, Answer::CapacitySet { .. })) => true,
                    Some(Effect::Answer(_, Answer::Refused(Refusal::Busy(_)))) => false,
                    other => panic!("the removal of the pool was answered by {other:?}"),
                };
                assert_eq!(is_removed, self.judge.is_unused(), "whether the pool was removed");
            }
            Step::Freeze { prefix, frozen } => {
                self.judge.freeze(prefix, *frozen);
                let _ = self.freezes.change(0, prefix, *frozen);
                for shard in &mut self.node.shards {
                    shard.set_freezes(&self.freezes);
                }
                self.node.settle(now, now, &mut self.effects);
            }
            Step::Watch { lane, key } => {
                let shard = self.shard_of(key);
                let caller = self.caller(*lane, shard);
                let shard = &mut self.node.shards[usize::from(shard)];
                if self.number.is_multiple_of(2) {
                    shard.watch(&caller, key, &mut self.effects);
                } else {
                    shard.unwatch(&caller, self.number / 2, &mut self.effects);
                }
            }
            Step::Detach { lane } | Step::Close { lane, .. } => self.lose(*lane, step),
            Step::Attach { lane } => {
                let address = self.address(*lane);
                self.judge.attach(address);
                for shard in &mut self.node.shards {
                    shard.attach_lane(address, &mut self.effects);
                }
            }
            Step::FollowUp { place } => {
                if let Some(follow_up) = self.effects.follow_ups.remove(*place) {
                    self.node.follow_up_one(&follow_up, now, now, &mut self.effects);
                }
            }
            Step::Advance { .. } => unreachable!("done above"),
        }
        self.end_step(asked);
    }

    fn advance(&mut self, now: u64) {
        self.now = now;
        self.judge.advance(now);
        let now = self.time();
        self.node.settle(now, now, &mut self.effects);
        self.end_step(None);
    }

    fn lose(&mut self, lane: usize, step: &Step) {
        let address = self.address(lane);
        let session_ended = matches!(step, Step::Close { session_ended: true, .. });
        let for_ever = matches!(step, Step::Close { .. });
        self.judge.lose(address, for_ever, session_ended);
        for shard in &mut self.node.shards {
            if for_ever {
                shard.close_lane(address, session_ended, &mut self.effects);
            } else {
                shard.detach_lane(address, &mut self.effects);
            }
        }
        self.generations[lane] += u32::from(for_ever);
    }

    fn end_step(&mut self, asked: Option<ClaimId>) {
        if self.judge.is_prompt {
            let now = self.time();
            self.node.follow_up(now, now, &mut self.effects);
        }
        if !self.is_known {
            self.node.verify();
        }
        for effect in std::mem::take(&mut self.effects.said) {
            self.judge.hear(&effect, asked);
        }
        let claim_count = self.node.shards.iter().map(|shard| shard.claim_count() as usize).sum();
        self.judge.end_step(self.follow_up_count(), claim_count);
    }

    fn pool_order(&self) -> PoolOrder {
        if self.kind == (Kind::Pool { by_time: true }) { PoolOrder::Timestamp } else { PoolOrder::Arrival }
    }

    fn acquire(&mut self, lane: usize, ask: &Ask) {
        let ticket = Ticket { lane: self.address(lane), number: self.number };
        self.judge.ask(ticket, ask);
        let Ask { items, lease_ms, wait_ms, priority, session, release_after_ms, .. } = ask;
        let lease_ms = if *session { 0 } else { *lease_ms };
        let (wait_ms, session_lease, notify_queued) = (*wait_ms, *session, true);
        let request_id = ask.request_id.map(|id| [id]);
        let options = AcquireOptions {
            request_id: request_id.as_ref().map(<[u8; 1]>::as_slice),
            priority: *priority,
            release_after_ms: *release_after_ms,
            ..AcquireOptions::default()
        };
        match self.kind {
            Kind::Keys if ask.is_multi_key => {
                let keys: Vec<RequestedKey<'_>> = items
                    .iter()
                    .map(|item| RequestedKey {
                        key: &item.name,
                        shared: item.shared,
                        shard: self.shard_of(&item.name),
                    })
                    .collect();
                let shards = Node::distinct(keys.iter().map(|key| key.shard));
                let request = AcquireMultiKey {
                    keys: &keys,
                    terms: AcquireTerms {
                        lease_ms,
                        wait_ms,
                        session_lease,
                        notify_queued,
                        options: Some(&options),
                    },
                };
                let owner: Arc<[u8]> = Arc::from(*b"o");
                let mut participants = self.node.participants(&shards, Some((ticket.lane, &owner, 0)));
                multi_key::acquire(&mut participants, ticket, 0, &request, &mut self.effects);
            }
            Kind::Keys => {
                let key = &items[0].name;
                let shard = self.shard_of(key);
                let caller = self.caller(lane, shard);
                let shard = &mut self.node.shards[usize::from(shard)];
                let acquire = Acquire {
                    key,
                    hash: shard.hash(0, key),
                    shared: items[0].shared,
                    terms: AcquireTerms {
                        lease_ms,
                        wait_ms,
                        session_lease,
                        notify_queued,
                        options: (options != AcquireOptions::default()).then_some(&options),
                    },
                };
                shard.acquire(&caller, &acquire, &mut self.effects);
            }
            Kind::Tree => {
                let path = |name: &[u8]| name.iter().flat_map(|letter| [1, 0, *letter]).collect::<Vec<u8>>();
                let paths: Vec<Vec<u8>> = items.iter().map(|item| path(&item.name)).collect();
                let items: Vec<TreeItem<'_>> = items
                    .iter()
                    .zip(&paths)
                    .map(|(item, path)| TreeItem { path, write: !item.shared })
                    .collect();
                let acquire = AcquireSet {
                    items: &items,
                    terms: AcquireTerms {
                        lease_ms,
                        wait_ms,
                        session_lease,
                        notify_queued,
                        options: Some(&options),
                    },
                };
                let caller = self.caller(lane, 0);
                self.node.shards[0].acquire_set(&caller, &acquire, &mut self.effects);
            }
            Kind::Pool { .. } => {
                let acquire = AcquirePermits {
                    name: POOL,
                    capacity: Some(self.judge.capacity),
                    permits: ask.permits,
                    order: self.pool_order(),
                    timestamp_us: ask.timestamp_us,
                    terms: AcquireTerms {
                        lease_ms,
                        wait_ms,
                        session_lease,
                        notify_queued,
                        options: Some(&options),
                    },
                };
                let caller = self.caller(lane, 0);
                self.node.shards[0].acquire_permits(&caller, &acquire, &mut self.effects);
            }
        }
    }
}
