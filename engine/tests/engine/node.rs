//! Requests that need several shards, and what a worker does between their turns.

use crate::accounts::Book;
use crate::fake_log::FakeLog;
use crate::fake_quorum::FakeQuorum;
use crate::recorder::{FollowUp, Recorder};
use std::sync::Arc;
use waymaker_engine::multi_key::{self, MultiKeyClaim, Participant};
use waymaker_engine::{
    Effects, LaneAddress, LaneIx, Limits, LogState, QuorumState, ReservedEnd, ReservedMultiKey, Shard,
    ShardConfig, Time, WhenDurable,
};
use waymaker_log::{Image, Item, SessionTag};

/// Turns after which a shard must have no work left.
const TURNS_MAX: u32 = 1 << 20;

/// The shards of a server in which one thing happens at a time.
pub(crate) struct Node {
    pub(crate) shards: Vec<Shard>,
    pub(crate) log: FakeLog,
    pub(crate) quorum: FakeQuorum,
    /// The accounts of its lanes.
    pub(crate) book: Book,
}

/// Where what is restored belongs.
pub(crate) struct Places<'a> {
    /// The shard of a key of a namespace; that of a tree is asked for with no key.
    pub(crate) shard_of: &'a dyn Fn(u16, &[u8]) -> u16,
    /// The lane of a session, if that is restored too.
    pub(crate) lane_of: &'a dyn Fn(&SessionTag) -> Option<LaneAddress>,
}

impl Node {
    pub(crate) fn new(shard_count: u16, limits: Limits, start: Time, seed: u64) -> Self {
        let shard = |number: u16| {
            // No two shards of any two servers may give the same secret.
            let mut secret_seed = [0; 32];
            secret_seed[..8].copy_from_slice(&seed.to_le_bytes());
            secret_seed[8..10].copy_from_slice(&number.to_le_bytes());
            Shard::new(&ShardConfig { number, limits, hash_seeds: [seed, 2, 3, 4], secret_seed, start })
        };
        Self {
            shards: (0..shard_count).map(shard).collect(),
            log: FakeLog::new(start),
            quorum: FakeQuorum::default(),
            book: Book::empty(),
        }
    }

    /// What the log has become is told to all shards.
    pub(crate) fn set_log_state(&mut self, state: LogState) {
        self.log.state = state;
        for (number, shard) in self.shards.iter_mut().enumerate() {
            shard.set_log_state(state, self.log.durable_number(number as u16));
        }
    }

    /// What the cluster that counts has become is told to all shards.
    pub(crate) fn set_quorum_state(&mut self, state: QuorumState) {
        self.quorum.state = state;
        self.shards.iter_mut().for_each(|shard| shard.set_quorum_state(state));
    }

    /// The cluster answers all that it was asked: it has counted, or it has not.
    pub(crate) fn answer_questions(
        &mut self,
        is_counted: bool,
        now: Time,
        drained: Time,
        effects: &mut Recorder,
    ) {
        self.begin_turns(now, drained, effects);
        for question in self.quorum.answer(is_counted) {
            if is_counted && self.log.state != LogState::Absent {
                self.log.take(effects, now);
                self.log.note_counted(question, now);
                continue;
            }
            let end = if is_counted { ReservedEnd::Begins(now) } else { ReservedEnd::NotCounted };
            question.begin().for_each(|then| self.end_reservation(end, then, effects));
        }
        self.log.take(effects, now);
    }

    /// The first so many things that were said to the log are durable: what waited for that happens.
    pub(crate) fn sync(&mut self, count: usize, now: Time, drained: Time, effects: &mut Recorder) {
        let then = self.log.sync(count, now);
        self.set_log_state(self.log.state);
        self.begin_turns(now, drained, effects);
        for then in then {
            match then {
                WhenDurable::Answer(ticket, answer) => effects.answer(ticket, answer),
                WhenDurable::AnswerWaiter(ticket, answer) => effects.answer_waiter(ticket, answer),
                WhenDurable::Tell(lane, event) => effects.event(lane, event),
                begin => self.end_reservation(ReservedEnd::Begins(now), begin, effects),
            }
        }
        self.log.take(effects, now);
    }

    /// Ends a reservation. Ignores other effects.
    fn end_reservation(&mut self, end: ReservedEnd, then: WhenDurable, effects: &mut Recorder) {
        match then {
            WhenDurable::Begin(reserved) => {
                self.shards[usize::from(reserved.shard)].end_reservation(end, reserved, effects);
            }
            WhenDurable::BeginMultiKey(reserved) => self.end_multi_shard(end, reserved, effects),
            WhenDurable::Answer(..) | WhenDurable::AnswerWaiter(..) | WhenDurable::Tell(..) => {}
        }
    }

    /// The keys of a claim, which were reserved, go on.
    pub(crate) fn end_multi_shard(
        &mut self,
        end: ReservedEnd,
        together: Box<ReservedMultiKey>,
        effects: &mut Recorder,
    ) {
        let shards: Vec<u16> = together.members.iter().map(|member| member.shard).collect();
        multi_key::end_reservation(&mut self.participants(&shards, None), end, together, effects);
    }

    /// The log fails: what was not durable is unknown.
    pub(crate) fn fail_log(&mut self, now: Time, drained: Time, effects: &mut Recorder) {
        let then = self.log.fail();
        self.begin_turns(now, drained, effects);
        for then in then {
            self.end_reservation(ReservedEnd::Unknown, then, effects);
        }
    }

    /// Writes what only a clean stop carries over, and makes it durable.
    pub(crate) fn stop_cleanly(&mut self, now: Time, drained: Time, effects: &mut Recorder) {
        for shard in &mut self.shards {
            shard.record_ephemeral(effects);
        }
        self.log.take(effects, now);
        self.sync(usize::MAX, now, drained, effects);
        self.log.stop(now);
    }

    /// Brings what an earlier server left into these shards, which are new.
    ///
    /// # Panics
    /// If a hold has no place any more.
    pub(crate) fn restore(&mut self, image: &Image, places: &Places<'_>, effects: &mut Recorder) {
        for shard in &mut self.shards {
            shard.restore_floor(image.floor());
        }
        for counter in image.counters() {
            let shard = (places.shard_of)(counter.namespace, counter.key);
            self.shards[usize::from(shard)].restore_counter(&counter);
        }
        for (namespace, name, capacity, by_timestamp) in image.pools() {
            let shard = (places.shard_of)(namespace, name);
            self.shards[usize::from(shard)].restore_pool(namespace, name, capacity, by_timestamp);
        }
        for hold in image.holds() {
            let key = match &hold.item {
                Item::Key(key) | Item::Registration { key, .. } | Item::Permits { name: key, .. } => *key,
                Item::Paths(_) => &b""[..],
            };
            let shard = (places.shard_of)(hold.namespace, key);
            let lane = hold.session.as_ref().and_then(places.lane_of);
            let restored = self.shards[usize::from(shard)].restore_hold(&hold, lane, effects);
            restored.unwrap_or_else(|refusal| panic!("{hold:?} is not restored: {refusal:?}"));
        }
    }

    pub(crate) fn verify(&self) {
        self.shards.iter().for_each(Shard::verify);
        self.book.verify(&self.shards);
    }

    pub(crate) fn begin_turns(&mut self, now: Time, drained: Time, effects: &mut Recorder) {
        for shard in &mut self.shards {
            shard.begin_turn(now, drained, effects);
        }
    }

    /// Turns until nothing is left over. What they leave to be done with several turns stays to be done.
    ///
    /// # Panics
    /// If a shard still has work after very many turns.
    pub(crate) fn settle(&mut self, now: Time, drained: Time, effects: &mut Recorder) {
        for (number, shard) in self.shards.iter_mut().enumerate() {
            let is_settled = (0..TURNS_MAX).any(|_| {
                shard.begin_turn(now, drained, effects);
                shard.next_deadline() > drained
            });
            assert!(is_settled, "shard {number} still has work after {TURNS_MAX} turns");
        }
    }

    /// The numbers of these shards, each once, rising.
    pub(crate) fn distinct(numbers: impl IntoIterator<Item = u16>) -> Vec<u16> {
        let mut numbers: Vec<u16> = numbers.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The turns of these shards, for a lane that asks, or for nobody.
    pub(crate) fn participants(
        &mut self,
        numbers: &[u16],
        asking: Option<(LaneAddress, &Arc<[u8]>, u16)>,
    ) -> Vec<Participant<'_>> {
        let Self { shards, book, .. } = self;
        let wanted = shards.iter_mut().enumerate().filter(|(at, _)| numbers.contains(&(*at as u16)));
        wanted
            .map(|(_, shard)| {
                let lane = asking.map_or(LaneIx::NONE, |(address, owner, namespace)| {
                    let lane = shard.lane(address, owner, namespace);
                    book.note(shard, lane, address);
                    lane
                });
                Participant { shard, lane }
            })
            .collect()
    }

    /// The number of a lane in a shard, with its present accounts.
    pub(crate) fn lane(
        &mut self,
        shard: usize,
        address: LaneAddress,
        owner: &Arc<[u8]>,
        namespace: u16,
    ) -> LaneIx {
        let shard = &mut self.shards[shard];
        let lane = shard.lane(address, owner, namespace);
        self.book.note(shard, lane, address);
        lane
    }

    /// Does all that turns left to be done with several turns, and what that leaves. Says how much it was.
    pub(crate) fn follow_up(&mut self, now: Time, drained: Time, effects: &mut Recorder) -> u32 {
        let mut count = 0;
        while let Some(follow_up) = effects.follow_ups.pop_front() {
            self.follow_up_one(&follow_up, now, drained, effects);
            count += 1;
        }
        count
    }

    pub(crate) fn follow_up_one(
        &mut self,
        follow_up: &FollowUp,
        now: Time,
        drained: Time,
        effects: &mut Recorder,
    ) {
        let (FollowUp::Recheck(claim) | FollowUp::Withdraw(claim)) = follow_up;
        let claim: &MultiKeyClaim = claim;
        for shard in claim.shards() {
            self.shards[usize::from(*shard)].begin_turn(now, drained, effects);
        }
        match follow_up {
            FollowUp::Recheck(_) => {
                multi_key::recheck(&mut self.participants(claim.shards(), None), claim, effects);
            }
            FollowUp::Withdraw(_) => {
                for shard in claim.shards() {
                    self.shards[usize::from(*shard)].withdraw(claim, effects);
                }
            }
        }
    }
}
