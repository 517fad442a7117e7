//! The engine and the model side by side: every step is done by both, and both must say the same.

use crate::accounts::Book;
use crate::model::{Ask, Asker, Heard, Lane, Model, Name, What, cancelled};
use crate::recorder::{Effect, Recorder};
use std::collections::BTreeMap;
use std::sync::Arc;
use waymaker_engine::{
    Acquire, AcquireOptions, AcquireTerms, Answer, Caller, ClaimId, Contention, Event, Fence, LaneAddress,
    LaneSlot, Limits, Refusal, RevokeReason, Shard, ShardConfig, Ticket, Time,
};

/// One step of a test.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Acquire {
        lane: usize,
        ask: Ask,
    },
    /// `own`: only if the lane has the claim.
    Release {
        lane: usize,
        claim: Name,
        key: Option<Vec<u8>>,
        own: bool,
    },
    Extend {
        lane: usize,
        claim: Name,
        key: Option<Vec<u8>>,
        lease_ms: u32,
        own: bool,
    },
    Cancel {
        lane: usize,
        number: u32,
    },
    Status {
        lane: usize,
        claim: Name,
        key: Option<Vec<u8>>,
    },
    Inspect {
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
    Stop,
    /// Time moves on; `stalled`: without anybody having read the sockets since.
    Advance {
        millis: u64,
        stalled: bool,
    },
}

/// A connection as the test has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) namespace: u16,
    pub(crate) owner: &'static str,
}

pub(crate) struct Twin {
    pub(crate) model: Model,
    shard: Shard,
    places: Vec<Place>,
    generations: Vec<u32>,
    detached: Vec<bool>,
    now: u64,
    drained: u64,
    number: u32,
    ids: BTreeMap<Name, ClaimId>,
    names: BTreeMap<ClaimId, Name>,
    /// Places in the order of arrival that were told, by claim.
    tickets: BTreeMap<Name, u64>,
    /// Keys may be forgotten: then fences may jump.
    forgets: bool,
    limits: Limits,
    steps: Recorder,
    book: Book,
}

const START: u64 = 100_000;

impl Twin {
    pub(crate) fn new(limits: Limits, places: &[Place], seed: u64) -> Self {
        let config = ShardConfig {
            number: 1,
            limits,
            hash_seeds: [seed, 2, 3, 4],
            secret_seed: [seed as u8; 32],
            start: Time::from_millis(START),
        };
        Self {
            model: Model::new(limits, START),
            shard: Shard::new(&config),
            places: places.to_vec(),
            generations: vec![0; places.len()],
            detached: vec![false; places.len()],
            now: START,
            drained: START,
            number: 0,
            ids: BTreeMap::new(),
            names: BTreeMap::new(),
            tickets: BTreeMap::new(),
            forgets: limits.idle_key_count_max < Limits::default().idle_key_count_max,
            limits,
            steps: Recorder::default(),
            book: Book::of_seed(seed),
        }
    }

    pub(crate) fn is_detached(&self, lane: usize) -> bool {
        self.detached[lane]
    }

    /// Whether the claim's id was ever told, so that somebody could act on it.
    pub(crate) fn is_known(&self, claim: Name) -> bool {
        self.ids.contains_key(&claim)
    }

    /// The number that the next request will have.
    pub(crate) fn next_number(&self) -> u32 {
        self.number
    }

    /// Forgets the names of claims that are over, so that a long run stays small.
    pub(crate) fn forget_names(&mut self) {
        assert_eq!(self.model.claim_count(), 0, "something still lives");
        self.ids.clear();
        self.names.clear();
        self.tickets.clear();
    }

    /// One step by both. What differs is the error.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), String> {
        self.begin_turn()?;
        match step {
            Step::Advance { millis, stalled } => {
                self.now += millis;
                if !stalled {
                    self.drained = self.now;
                }
                self.begin_turn()?;
            }
            Step::Detach { lane } => {
                self.model.detach(self.lane(*lane));
                self.shard.detach_lane(self.address(*lane), &mut self.steps);
                self.detached[*lane] = true;
            }
            Step::Attach { lane } => {
                self.model.attach(self.lane(*lane));
                self.shard.attach_lane(self.address(*lane), &mut self.steps);
                self.detached[*lane] = false;
            }
            Step::Close { lane, session_ended } => {
                self.model.close(self.lane(*lane), *session_ended);
                self.shard.close_lane(self.address(*lane), *session_ended, &mut self.steps);
                self.detached[*lane] = false;
            }
            Step::Stop => {
                self.model.stop();
                self.shard.stop();
            }
            _ => self.request(step),
        }
        self.compare()?;
        if let Step::Close { lane, .. } = step {
            self.generations[*lane] += 1;
        }
        Ok(())
    }

    fn request(&mut self, step: &Step) {
        let lane = match step {
            Step::Acquire { lane, .. }
            | Step::Release { lane, .. }
            | Step::Extend { lane, .. }
            | Step::Cancel { lane, .. }
            | Step::Status { lane, .. }
            | Step::Inspect { lane, .. } => *lane,
            _ => unreachable!("no request"),
        };
        let Place { namespace, owner } = self.places[lane];
        let asker =
            Asker { lane: self.lane(lane), namespace, owner: owner.as_bytes().to_vec(), number: self.number };
        let address = self.address(lane);
        let shared_owner: Arc<[u8]> = owner.as_bytes().into();
        self.book.change_sometimes(self.number);
        let lane = self.shard.lane(address, &shared_owner, 0);
        self.book.note(&mut self.shard, lane, address);
        let caller = Caller { lane, ticket: Ticket { lane: address, number: self.number }, namespace };
        self.number += 1;
        match step {
            Step::Acquire { ask, .. } => {
                self.model.acquire(&asker, ask);
                self.acquire(&caller, ask);
            }
            Step::Release { claim, key, own, .. } => {
                self.model.release(&asker, *claim, key.as_deref(), *own);
                let (id, key) = (self.ids[claim], key.as_deref());
                if *own {
                    self.shard.release_own(&caller, id, key, &mut self.steps);
                } else {
                    self.shard.release(&caller, id, key, &mut self.steps);
                }
            }
            Step::Extend { claim, key, lease_ms, own, .. } => {
                self.model.extend(&asker, *claim, key.as_deref(), *lease_ms, *own);
                let (id, key) = (self.ids[claim], key.as_deref());
                if *own {
                    self.shard.extend_own(&caller, id, key, *lease_ms, &mut self.steps);
                } else {
                    self.shard.extend(&caller, id, key, *lease_ms, &mut self.steps);
                }
            }
            Step::Cancel { number, .. } => {
                self.model.cancel(&asker, *number);
                self.shard.cancel(&caller, *number, &mut self.steps);
            }
            Step::Status { claim, key, .. } => {
                self.model.status(&asker, *claim, key.as_deref());
                self.shard.status(&caller, self.ids[claim], key.as_deref(), &mut self.steps);
            }
            Step::Inspect { key, .. } => {
                self.model.inspect(&asker, key);
                self.shard.inspect(&caller, key, &mut self.steps);
            }
            _ => unreachable!("no request"),
        }
    }

    fn acquire(&mut self, caller: &Caller, ask: &Ask) {
        let options = AcquireOptions {
            release_after_ms: ask.release_after_ms,
            priority: ask.priority,
            request_id: ask.request_id.as_deref(),
            owner: ask.owner.as_deref(),
            ..AcquireOptions::default()
        };
        let plain = ask.release_after_ms.is_none()
            && ask.priority == 0
            && ask.request_id.is_none()
            && ask.owner.is_none();
        let hash = self.shard.hash(caller.namespace, &ask.key);
        let acquire = Acquire {
            key: &ask.key,
            hash,
            shared: ask.shared,
            terms: AcquireTerms {
                lease_ms: ask.lease_ms,
                wait_ms: ask.wait_ms,
                session_lease: ask.session,
                notify_queued: ask.notify_queued,
                options: (!plain).then_some(&options),
            },
        };
        self.shard.acquire(caller, &acquire, &mut self.steps);
    }

    fn begin_turn(&mut self) -> Result<(), String> {
        self.model.advance(self.now, self.drained);
        loop {
            let (now, drained) = (Time::from_millis(self.now), Time::from_millis(self.drained));
            self.shard.begin_turn(now, drained, &mut self.steps);
            if self.shard.next_deadline() > drained {
                return self.compare();
            }
        }
    }

    fn lane(&self, place: usize) -> Lane {
        (place, self.generations[place])
    }

    fn address(&self, place: usize) -> LaneAddress {
        LaneAddress { worker: 7, slot: LaneSlot(place as u32), generation: self.generations[place] }
    }

    /// Both must have said the same, in whatever order: what belongs together is ordered by its fences.
    fn compare(&mut self) -> Result<(), String> {
        self.shard.verify();
        self.book.verify(std::slice::from_ref(&self.shard));
        let mut expected = self.model.take_heard();
        let effects = std::mem::take(&mut self.steps.said);
        if expected.is_empty() && effects.is_empty() {
            return Ok(());
        }
        let mut said: Vec<Heard> = Vec::new();
        for effect in effects {
            said.push(self.translate(effect, &mut expected)?);
        }
        expected.sort();
        said.sort();
        if expected == said && self.shard.claim_count() as usize == self.model.claim_count() {
            return Ok(());
        }
        Err(format!("expected {expected:#?}\nsaid {said:#?}"))
    }

    /// What the engine said, in the words of the model.
    fn translate(&mut self, effect: Effect, expected: &mut [Heard]) -> Result<Heard, String> {
        Ok(match effect {
            Effect::Event(address, Event::Queued { number, id, position, ticket }) => {
                let lane = (address.slot.index(), address.generation);
                let claim = self.name_in(id, expected, lane, number)?;
                // Claims are named in order of arrival.
                let before =
                    self.tickets.range(..claim).next_back().is_none_or(|(_, before)| *before < ticket);
                let after = self.tickets.range(claim + 1..).next().is_none_or(|(_, after)| ticket < *after);
                let same = self.tickets.insert(claim, ticket).is_none_or(|told| told == ticket);
                if !(before && after && same) {
                    return Err(format!("ticket {ticket} of claim {claim} is out of order"));
                }
                Heard::Queued { lane, number, claim, position }
            }
            Effect::Event(address, Event::Expired { id }) => {
                let lane = (address.slot.index(), address.generation);
                Heard::Expired { lane, claim: self.name(id)? }
            }
            Effect::Event(address, Event::LeaseMoved { id, remaining_ms }) => {
                let lane = (address.slot.index(), address.generation);
                Heard::LeaseMoved { lane, claim: self.name(id)?, remaining_ms }
            }
            Effect::Event(address, Event::Revoked { id, reason }) => {
                let lane = (address.slot.index(), address.generation);
                let elsewhere = reason == RevokeReason::ReleasedElsewhere;
                Heard::Revoked { lane, claim: self.name(id)?, elsewhere }
            }
            Effect::Event(address, Event::TakenUp { number, id }) => {
                let lane = (address.slot.index(), address.generation);
                Heard::TakenUp { lane, number, claim: self.name(id)? }
            }
            Effect::Event(_, Event::KeyHeld { .. } | Event::KeyFreed { .. }) => {
                return Err("nobody watches".to_owned());
            }
            Effect::Answer(ticket, answer) => {
                let lane = (ticket.lane.slot.index(), ticket.lane.generation);
                let what = self.what(answer, expected, lane, ticket.number)?;
                Heard::Answer { lane, number: ticket.number, what }
            }
        })
    }

    fn name(&self, id: ClaimId) -> Result<Name, String> {
        self.names.get(&id).copied().ok_or_else(|| format!("{id:?} was never told"))
    }

    /// The name of a claim, learned from the model if this is the first that is heard of its id.
    fn name_in(&mut self, id: ClaimId, expected: &[Heard], lane: Lane, number: u32) -> Result<Name, String> {
        if let Some(name) = self.names.get(&id) {
            return Ok(*name);
        }
        let name = expected.iter().find_map(|heard| match heard {
            Heard::Answer { lane: at, number: of, what: What::Granted { claim, .. } }
                if (*at, *of) == (lane, number) =>
            {
                Some(*claim)
            }
            Heard::Queued { lane: at, number: of, claim, .. } if (*at, *of) == (lane, number) => Some(*claim),
            _ => None,
        });
        let name = name.ok_or_else(|| format!("unexpected claim for request {number} of lane {lane:?}"))?;
        if let Some(other) = self.ids.insert(name, id) {
            return Err(format!("claim {name} has two ids, {other:?} and {id:?}"));
        }
        self.names.insert(id, name);
        Ok(name)
    }

    fn what(
        &mut self,
        answer: Answer,
        expected: &mut [Heard],
        lane: Lane,
        number: u32,
    ) -> Result<What, String> {
        let of_this = |heard: &&mut Heard| matches!(heard, Heard::Answer { lane: at, number: of, .. } if (*at, *of) == (lane, number));
        Ok(match answer {
            Answer::Granted(grant) => {
                let claim = self.name_in(grant.id, expected, lane, number)?;
                let may_jump = self.forgets && !grant.waited && !grant.repeated;
                if let Some(Heard::Answer { what: What::Granted { fence, .. }, .. }) =
                    expected.iter_mut().find(of_this)
                    && may_jump
                    && self.model.adopt_fence(claim, grant.fence.get())
                {
                    *fence = grant.fence.get();
                }
                What::Granted {
                    claim,
                    fence: grant.fence.get(),
                    remaining_ms: grant.remaining_ms,
                    clamped: grant.clamped,
                    waited: grant.waited,
                    repeated: grant.repeated,
                    session: grant.session_lease,
                }
            }
            Answer::Released { was_waiting } => What::Released { was_waiting },
            Answer::Extended { remaining_ms, clamped } => What::Extended { remaining_ms, clamped },
            Answer::Cancelled { was_waiting } => What::Cancelled { was_waiting },
            Answer::Status(status) => What::Status {
                held: status.held,
                shared: status.shared,
                fence: status.fence.get(),
                remaining_ms: status.remaining_ms,
                age_ms: status.age_ms,
                priority: status.priority,
                waited_ms: status.waited_ms,
                key: status.key,
            },
            Answer::Inspected(key) => {
                let mut holders = Vec::new();
                for lock in &key.holders {
                    holders.push((self.name(lock.id)?, lock.shared, lock.fence.get()));
                }
                let mut fence = key.fence;
                if let Some(Heard::Answer {
                    what: What::Inspected { fence: last, holder_count: 0, waiter_count: 0, .. },
                    ..
                }) = expected.iter_mut().find(of_this)
                    && self.forgets
                    && fence > Fence::new(*last)
                {
                    // The key was forgotten: what is told is the floor, which its fences never fall below.
                    fence = Fence::new(*last);
                }
                What::Inspected {
                    fence: fence.get(),
                    waiter_count: key.waiter_count,
                    holder_count: key.holder_count,
                    holders,
                }
            }
            Answer::Listed(_) => return Err("a list was not asked for".to_owned()),
            Answer::Refused(Refusal::Busy(contention)) => What::Busy(front(&contention)),
            Answer::Refused(Refusal::Timeout(contention)) => {
                let unsure = expected
                    .iter_mut()
                    .find(of_this)
                    .is_some_and(|heard| matches!(heard, Heard::Answer { what: What::Timeout(None), .. }));
                What::Timeout((!unsure).then(|| front(&contention)))
            }
            Answer::Refused(refusal) => What::Refused(self.refusal(&refusal)),
            other => return Err(format!("nobody asked for {other:?}")),
        })
    }

    fn refusal(&self, refusal: &Refusal) -> &'static str {
        match refusal {
            Refusal::Cancelled(reason) => cancelled(*reason),
            Refusal::NotFound | Refusal::NamespaceNotFound => "not_found",
            Refusal::NotHeld => "not_held",
            Refusal::BadInput { field: "lease_ms", .. } => "bad_input lease_ms",
            Refusal::BadInput { field: "request_id", .. } => "bad_input request_id",
            Refusal::BadInput { field: "id", .. } => "bad_input id",
            Refusal::Overloaded { limit: "claims per shard", value } => {
                assert_eq!(*value, u64::from(self.limits.claim_count_max));
                "overloaded claims per shard"
            }
            Refusal::Overloaded { limit: "waiters per key", .. } => "overloaded waiters per key",
            Refusal::Overloaded { limit: "claims per connection", .. } => "overloaded claims per connection",
            Refusal::Shutdown => "shutdown",
            _ => "something else",
        }
    }

    /// Ends everything, so that the next sequence starts afresh.
    pub(crate) fn clean_up(&mut self) -> Result<(), String> {
        for claim in self.model.names() {
            let Some((lane, _)) = self.model.lane_of(claim) else { continue };
            match (self.model.is_held(claim), self.model.number_of(claim)) {
                (Some(true), _) => self.step(&Step::Release { lane, claim, key: None, own: true })?,
                (Some(false), Some(number)) => self.step(&Step::Cancel { lane, number })?,
                _ => {}
            }
        }
        self.forget_names();
        Ok(())
    }
}

fn front(contention: &Contention) -> crate::model::Front {
    crate::model::Front {
        held: contention.held,
        shared: contention.shared,
        age_ms: contention.age_ms,
        remaining_ms: contention.remaining_ms,
        waiter_count: contention.waiter_count,
        owner: contention.owner.to_vec(),
    }
}
