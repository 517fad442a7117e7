//! Random requests to a server whose log is late, and which crashes and starts again, over and over. `WAYMAKER_SEED=n` runs
//! that one seed again; `WAYMAKER_SEED_COUNT=n` sets how many are run.

mod auditor;
mod requests;

use crate::accounts::Book;
use crate::node::{Node, Places};
use crate::random::Dice;
use crate::recorder::{Effect, Recorder};
use auditor::{Auditor, ClaimRequest, Start, owner};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use waymaker_engine::{
    Answer, Caller, ClaimId, Event, HeldLock, LaneAddress, LaneSlot, Limits, LogState, PageBounds, Ticket,
    Time,
};

const STEP_COUNT: usize = 300;
const LANE_COUNT: usize = 4;
const POOL_CAPACITY: u64 = 5;
/// What one seed is like.
#[derive(Debug)]
struct Character {
    limits: Limits,
    key_count: u64,
    local_percent: u64,
    shared_percent: u64,
    request_id_percent: u64,
    release_after_percent: u64,
    sync_weight: u64,
    restart_weight: u64,
}

impl Character {
    fn new(dice: &mut Dice) -> Self {
        let limits = Limits {
            lease_min_ms: 1,
            claim_count_max: 1 << 8,
            bucket_count_max: 1,
            idle_key_count_max: dice.pick(&[1, 1 << 8, 1 << 8]),
            work_per_turn: dice.pick(&[4, 256]),
            ..Limits::default()
        };
        Self {
            limits,
            key_count: 1 + dice.below(requests::KEYS.len() as u64),
            local_percent: dice.pick(&[20, 60, 100]),
            shared_percent: dice.pick(&[0, 30, 70]),
            request_id_percent: dice.pick(&[0, 30, 80]),
            release_after_percent: dice.pick(&[0, 0, 40]),
            sync_weight: dice.pick(&[5, 20, 60]),
            restart_weight: dice.pick(&[1, 3, 10]),
        }
    }
}

struct Run {
    seed: u64,
    dice: Dice,
    character: Character,
    node: Node,
    auditor: Auditor,
    now: u64,
    boot: u8,
    started_real: u64,
    restart_count: u64,
    number: u32,
    generations: [u32; LANE_COUNT],
    requests: BTreeMap<u32, Vec<ClaimRequest>>,
    /// Numbers of requests that were answered.
    answered: BTreeSet<u32>,
    /// Releases that are not answered yet.
    releasing: BTreeMap<u32, ClaimId>,
    /// Claims that were heard of.
    known: Vec<(ClaimId, ClaimRequest)>,
    effects: Recorder,
}

fn shard_of(shard_count: usize, namespace: u16, key: &[u8]) -> u16 {
    let number = if namespace == 0 { u16::from(key[0]) } else { namespace };
    number % shard_count as u16
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let character = Character::new(&mut dice);
        let shard_count = 1 + dice.below(4) as u16;
        let mut node = Node::new(shard_count, character.limits, Time::from_millis(1), 0);
        node.set_log_state(LogState::Ready);
        node.book = Book::of_seed(seed);
        Self {
            seed,
            dice,
            character,
            node,
            auditor: Auditor::new(POOL_CAPACITY),
            now: 1,
            boot: 1,
            started_real: 0,
            restart_count: 0,
            number: 0,
            generations: [0; LANE_COUNT],
            requests: BTreeMap::new(),
            answered: BTreeSet::new(),
            releasing: BTreeMap::new(),
            known: Vec::new(),
            effects: Recorder::default(),
        }
    }

    fn time(&self) -> Time {
        Time::from_millis(self.now)
    }

    fn address(&self, lane: usize) -> LaneAddress {
        LaneAddress { worker: 0, slot: LaneSlot(lane as u32), generation: self.generations[lane] }
    }

    fn place(&self, claim: &ClaimRequest) -> usize {
        usize::from(shard_of(self.node.shards.len(), claim.namespace, &claim.items[0]))
    }

    fn caller(&mut self, lane: usize, place: usize, namespace: u16) -> Caller {
        let address = self.address(lane);
        // A lane asks about one namespace.
        let address = LaneAddress { worker: namespace, ..address };
        let number = self.node.lane(place, address, &Arc::from(owner(lane)), namespace);
        Caller { lane: number, ticket: Ticket { lane: address, number: self.number }, namespace }
    }

    fn step(&mut self) {
        self.number += 1;
        self.node.book.change_sometimes(self.number);
        let now = self.time();
        self.node.begin_turns(now, now, &mut self.effects);
        let Character { sync_weight, restart_weight, .. } = self.character;
        let weights = [40, 10, 10, 10, 20, 12, 5, 2, 3, 30, 2, sync_weight, restart_weight];
        match self.dice.weighted(&weights) {
            0 => self.acquire(),
            1 => self.acquire_multi_key(),
            2 => self.acquire_set(),
            3 => self.acquire_permits(),
            4 => self.release(false),
            5 => self.extend(),
            6 => self.cancel(),
            7 => self.release(true),
            8 => {
                let lane = self.dice.below(LANE_COUNT as u64) as usize;
                if self.dice.percent(50) { self.lose(lane) } else { self.interrupt(lane) }
            }
            9 => self.advance(),
            10 => {
                let state = self.dice.pick(&[LogState::NoSpace, LogState::Slow, LogState::Ready]);
                self.node.set_log_state(state);
            }
            11 => {
                let count = self.node.log.pending_count() as u64;
                let count = if self.dice.percent(50) { count } else { self.dice.below(count + 1) };
                self.sync(count as usize);
            }
            _ => self.restart(),
        }
        self.end_step();
    }

    fn end_step(&mut self) {
        let now = self.time();
        loop {
            self.node.settle(now, now, &mut self.effects);
            if self.node.follow_up(now, now, &mut self.effects) == 0 {
                break;
            }
        }
        self.node.log.take(&mut self.effects, now);
        self.node.verify();
        for effect in std::mem::take(&mut self.effects.said) {
            self.hear(&effect);
        }
    }

    fn hear(&mut self, effect: &Effect) {
        if let Effect::Answer(ticket, answer) = effect {
            assert!(self.answered.insert(ticket.number), "{ticket:?} is answered again: {answer:?}");
        }
        match effect {
            Effect::Answer(ticket, Answer::Granted(grant)) => {
                let claim = self.requests[&ticket.number][0].clone();
                self.auditor.granted(&claim, grant);
                self.known.push((grant.id, claim));
            }
            Effect::Answer(ticket, Answer::GrantedMultiKey(grants)) => {
                for (claim, key) in self.requests[&ticket.number].clone().into_iter().zip(grants) {
                    assert_eq!(claim.items[0], *key.key);
                    self.auditor.granted(&claim, &key.grant);
                    self.known.push((key.grant.id, claim));
                }
            }
            Effect::Answer(ticket, Answer::Extended { .. }) => self.auditor.extended(ticket.number),
            Effect::Answer(ticket, Answer::Released { .. } | Answer::ForceReleased(_)) => {
                if let Some(id) = self.releasing.remove(&ticket.number) {
                    self.auditor.ended(id);
                }
            }
            Effect::Event(_, Event::Queued { number, id, .. }) => {
                self.known.push((*id, self.requests[number][0].clone()));
            }
            Effect::Event(_, Event::Expired { id }) => self.auditor.expired(*id),
            Effect::Event(_, Event::Revoked { id, .. }) => self.auditor.ending(*id),
            Effect::Answer(..) | Effect::Event(..) => {}
        }
    }

    fn lose(&mut self, lane: usize) {
        self.auditor.lost(lane);
        for namespace in 0..3 {
            let address = LaneAddress { worker: namespace, ..self.address(lane) };
            for shard in &mut self.node.shards {
                shard.close_lane(address, false, &mut self.effects);
            }
        }
        self.generations[lane] += 1;
    }

    /// The connection of a lane is lost, and comes back at once.
    fn interrupt(&mut self, lane: usize) {
        for namespace in 0..3 {
            let address = LaneAddress { worker: namespace, ..self.address(lane) };
            for shard in &mut self.node.shards {
                shard.detach_lane(address, &mut self.effects);
                shard.attach_lane(address, &mut self.effects);
            }
        }
    }

    fn advance(&mut self) {
        let millis = self.dice.pick(&[1, 2, 5, 10, 50]);
        self.now += millis;
        self.auditor.real += millis;
    }

    fn sync(&mut self, count: usize) {
        let now = self.time();
        // What is said from here on is the answer to what is durable now.
        self.end_step();
        self.node.sync(count, now, now, &mut self.effects);
        self.auditor.synced(self.node.log.sync_count(), self.node.log.pending_count() == 0);
    }

    fn restart(&mut self) {
        self.end_step();
        let now = self.time();
        let is_clean = self.dice.percent(15);
        let (mut groups, mut how) = (Vec::new(), Start::SameBoot);
        if is_clean {
            how = Start::AfterCleanStop;
            self.node.stop_cleanly(now, now, &mut self.effects);
            self.auditor.synced(self.node.log.sync_count(), true);
            for effect in std::mem::take(&mut self.effects.said) {
                self.hear(&effect);
            }
        } else {
            groups = self.node.log.unanswered_groups();
            let count = self.node.log.pending_count() as u64;
            if self.dice.percent(50) {
                self.node.log.forget_last_sync();
            }
            self.node.log.crash(self.dice.below(count + 1) as usize);
        }
        let after = self.dice.pick(&[0, 0, 3, 30]);
        self.auditor.real += after;
        self.now += after;
        let mut elapsed_ms = self.auditor.real - self.started_real;
        if !is_clean && self.dice.percent(40) {
            how = Start::OtherBoot;
            if self.dice.percent(70) {
                self.boot += 1;
                self.now = self.dice.below(50);
            } else {
                elapsed_ms += 300_000;
            }
        }
        self.start(elapsed_ms);
        let listed = self.listed();
        self.auditor.started(how, &listed, &groups);
    }

    fn start(&mut self, elapsed_ms: u64) {
        self.started_real = self.auditor.real;
        self.restart_count += 1;
        for generation in &mut self.generations {
            *generation += 1;
        }
        self.effects = Recorder::default();
        let (shard_count, now) = (1 + self.dice.below(4) as usize, self.time());
        let mut node = Node::new(shard_count as u16, self.character.limits, now, self.restart_count);
        node.book = Book::of_seed(self.seed);
        std::mem::swap(&mut node.log, &mut self.node.log);
        node.log.crash(0);
        if self.dice.percent(30) {
            node.log.compact();
        }
        let image = node.log.restart(self.boot, now, elapsed_ms);
        node.set_log_state(LogState::Ready);
        let places =
            Places { shard_of: &|namespace, key| shard_of(shard_count, namespace, key), lane_of: &|_| None };
        node.restore(&image, &places, &mut self.effects);
        node.verify();
        self.node = node;
    }

    /// All that is held.
    fn listed(&mut self) -> BTreeMap<ClaimId, HeldLock> {
        let mut listed = BTreeMap::new();
        let bounds = PageBounds { count_max: usize::MAX, bytes_max: usize::MAX };
        for (place, namespace) in (0..self.node.shards.len()).flat_map(|place| [0, 1, 2].map(|n| (place, n)))
        {
            let caller = self.caller(0, place, namespace);
            let mut page = Recorder::default();
            self.node.shards[place].list(&caller, b"", false, 0, &bounds, &mut page);
            let Some(Effect::Answer(_, Answer::Listed(page))) = page.said.pop() else { panic!("no page") };
            listed.extend(page.locks.into_iter().map(|lock| (lock.id, lock)));
        }
        listed
    }

    /// What nobody keeps ends.
    fn finish(&mut self) {
        let listed = self.listed();
        self.auditor.check_held(&listed);
        (0..LANE_COUNT).for_each(|lane| self.lose(lane));
        self.now += 1_000_000;
        self.auditor.real += 1_000_000;
        self.end_step();
        let count: u32 = self.node.shards.iter().map(waymaker_engine::Shard::claim_count).sum();
        assert_eq!(count, 0, "claims of nobody");
    }
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    for _ in 0..STEP_COUNT {
        run.step();
    }
    run.finish();
}

#[test]
fn acknowledged_state_survives_every_crash() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("WAYMAKER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WAYMAKER_SEED_COUNT").unwrap_or(2000),
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "WAYMAKER_SEED={seed} fails");
    }
}
