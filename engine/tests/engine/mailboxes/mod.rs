//! Shards with a mailbox each: lost connections, durable grants, withdrawn claims and answers of a cluster reach them in any order
//! that the mailboxes of a server allow. `WAYMAKER_SEED=n` runs one seed; `WAYMAKER_SEED_COUNT=n` sets the number of seeds.

mod asking;
mod auditor;
mod checks;

use crate::node::{Node, Places};
use crate::random::Dice;
use crate::recorder::{Effect, FollowUp, Recorder};
use asking::{Ask, KEYS};
use auditor::Auditor;
use std::collections::VecDeque;
use std::sync::Arc;
use waymaker_engine::log::SessionTag;
use waymaker_engine::several::{self, Several};
use waymaker_engine::{
    ClaimId, CounterName, LaneAddress, Limits, LogState, QuorumState, Reserved, ReservedEnd, Time,
    WhenDurable,
};

const SHARD_COUNT: usize = 3;
const WORKER_COUNT: usize = 2;
const LANE_COUNT: usize = 4;
const STEP_COUNT: usize = 400;

/// A message to a shard.
enum Mail {
    Detached(LaneAddress),
    Attached(LaneAddress),
    Closed(LaneAddress),
    Withdraw(Arc<Several>),
    End(ReservedEnd, Reserved),
}

/// A thread of the server. It sends one message after the other, and other workers run in between.
#[derive(Default)]
struct Worker {
    /// Messages of the action that this worker is carrying out.
    sending: VecDeque<(u16, Mail)>,
    /// Messages from the log and from the cluster, which this worker passes on.
    passing: VecDeque<(u16, Mail)>,
    follow_ups: Vec<FollowUp>,
}

/// A connection with a session of its own.
struct Lane {
    address: LaneAddress,
    is_open: bool,
    /// Number of sessions that this slot had before.
    session: u64,
    /// The order in which shards are told about this lane.
    shards: [u16; SHARD_COUNT],
}

impl Lane {
    fn tag(&self) -> SessionTag {
        let slot = self.address.slot;
        SessionTag {
            place: 1,
            secret: u64::from(slot) << 32 | self.session,
            lease_ms: 1000,
            lane: slot as u16,
        }
    }
}

/// Properties of one seed, drawn first.
#[derive(Debug)]
struct Character {
    limits: Limits,
    has_quorum: bool,
    /// Percentage of acquires whose fences are durable: of one key, and of several.
    single_durable_percent: u64,
    several_durable_percent: u64,
    /// The first so many keys are ephemeral, unless a multi-key claim raises them.
    ephemeral_key_count: usize,
    lane_weight: u64,
    restart_weight: u64,
}

impl Character {
    fn new(dice: &mut Dice) -> Self {
        let limits = Limits {
            lease_min_ms: 1,
            claim_count_max: 1 << 8,
            bucket_count_max: 1,
            // A turn with four steps leaves lanes unsettled that change again.
            work_per_turn: dice.pick(&[4, 256]),
            ..Limits::default()
        };
        Self {
            limits,
            has_quorum: dice.percent(50),
            single_durable_percent: dice.pick(&[20, 70]),
            several_durable_percent: dice.pick(&[0, 20, 70]),
            ephemeral_key_count: dice.pick(&[0, 0, 2]),
            lane_weight: dice.pick(&[3, 6, 15]),
            restart_weight: dice.pick(&[0, 1, 3]),
        }
    }
}

struct Run {
    dice: Dice,
    seed: u64,
    character: Character,
    node: Node,
    now: u64,
    started_at: u64,
    restart_count: u64,
    lanes: Vec<Lane>,
    /// By shard.
    mailboxes: Vec<VecDeque<Mail>>,
    workers: Vec<Worker>,
    number: u32,
    /// Claims whose ids were told, the newest last.
    known: Vec<ClaimId>,
    /// The last acquire of several keys with a request id.
    last_named: Option<Ask>,
    effects: Recorder,
    auditor: Auditor,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let character = Character::new(&mut dice);
        let lanes = (0..LANE_COUNT).map(|slot| {
            let worker = (slot % WORKER_COUNT) as u16;
            Lane {
                address: LaneAddress { worker, slot: slot as u32, generation: 1 },
                is_open: true,
                session: 0,
                shards: dice.pick(&[[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]),
            }
        });
        let lanes = lanes.collect();
        let node = Node::new(SHARD_COUNT as u16, character.limits, Time::from_millis(1), seed);
        let mut run = Self {
            dice,
            seed,
            character,
            node,
            now: 1,
            started_at: 1,
            restart_count: 0,
            lanes,
            mailboxes: (0..SHARD_COUNT).map(|_| VecDeque::new()).collect(),
            workers: (0..WORKER_COUNT).map(|_| Worker::default()).collect(),
            number: 0,
            known: Vec::new(),
            last_named: None,
            effects: Recorder::default(),
            auditor: Auditor::default(),
        };
        run.set_ready();
        run
    }

    fn time(&self) -> Time {
        Time::from_millis(self.now)
    }

    fn set_ready(&mut self) {
        self.node.set_log_state(LogState::Ready);
        if self.character.has_quorum {
            self.node.set_quorum_state(QuorumState::Ready);
        }
    }

    fn step(&mut self) {
        let worker = self.dice.below(WORKER_COUNT as u64) as usize;
        let lane = self.dice.below(LANE_COUNT as u64) as usize;
        let Character { lane_weight, restart_weight, .. } = self.character;
        match self.dice.weighted(&[40, 30, 25, 40, lane_weight, 14, 5, 8, 2, restart_weight]) {
            0 => drop(self.send(worker) || self.follow_up(worker)),
            1 => {
                let shard = self.dice.below(SHARD_COUNT as u64) as usize;
                let count = 1 + self.dice.below(3) as usize;
                self.serve(shard, count);
                self.end_turn(worker);
            }
            2 => drop(self.workers[worker].sending.is_empty() && self.pass(worker)),
            3 => {
                if self.may_act(lane) && self.lanes[lane].is_open {
                    self.ask(lane);
                }
            }
            4 => {
                if self.may_act(lane) {
                    self.change_lane(lane);
                }
            }
            5 => self.sync(false),
            6 => {
                let is_counted = self.dice.percent(70);
                self.count(is_counted);
            }
            7 => self.advance(worker),
            8 => {
                let (key, _) = self.dice.pick(&KEYS);
                self.node.quorum.count_elsewhere(CounterName { namespace: 0, key: key.into() });
            }
            _ => self.restart(),
        }
    }

    /// Whether the worker of this lane has finished what it did before.
    fn may_act(&self, lane: usize) -> bool {
        self.workers[usize::from(self.lanes[lane].address.worker)].sending.is_empty()
    }

    /// Sends one message of the action that a worker is carrying out, if there is one.
    fn send(&mut self, worker: usize) -> bool {
        let Some((shard, mail)) = self.workers[worker].sending.pop_front() else { return false };
        self.mailboxes[usize::from(shard)].push_back(mail);
        true
    }

    fn pass(&mut self, worker: usize) -> bool {
        let Some((shard, mail)) = self.workers[worker].passing.pop_front() else { return false };
        self.mailboxes[usize::from(shard)].push_back(mail);
        true
    }

    fn follow_up(&mut self, worker: usize) -> bool {
        let Some(follow_up) = self.workers[worker].follow_ups.pop() else { return false };
        match follow_up {
            FollowUp::Withdraw(several) => {
                let mails =
                    several.shards().iter().map(|shard| (*shard, Mail::Withdraw(Arc::clone(&several))));
                self.workers[worker].sending.extend(mails);
            }
            FollowUp::Recheck(several) => {
                self.take_turns(several.shards());
                let mut participants = self.node.participants(several.shards(), None);
                several::recheck(&mut participants, &several, &mut self.effects);
                self.end_turn(worker);
            }
        }
        true
    }

    /// Begins turns that serve all the mail of these shards first, as every turn over several shards does.
    fn take_turns(&mut self, shards: &[u16]) {
        for shard in shards {
            self.serve(usize::from(*shard), usize::MAX);
        }
    }

    /// A turn of one shard, which serves up to so many messages.
    fn serve(&mut self, shard: usize, count: usize) {
        let now = self.time();
        self.node.shards[shard].begin_turn(now, now, &mut self.effects);
        for _ in 0..count {
            let Some(mail) = self.mailboxes[shard].pop_front() else { break };
            self.deliver(shard, mail);
        }
    }

    fn deliver(&mut self, number: usize, mail: Mail) {
        if let Mail::Detached(lane) = mail {
            // Earlier messages of this turn may have granted.
            self.hear_all();
            self.auditor.lost(lane, number as u16);
        }
        let (shard, effects) = (&mut self.node.shards[number], &mut self.effects);
        match mail {
            Mail::Detached(lane) => shard.detach_lane(lane, effects),
            Mail::Attached(lane) => shard.attach_lane(lane, effects),
            Mail::Closed(lane) => shard.close_lane(lane, true, effects),
            Mail::Withdraw(several) => shard.withdraw(&several, effects),
            Mail::End(end, mut reserved) => shard.end_reservation(end, &mut reserved, effects),
        }
    }

    /// Takes over the effects of the turns that a worker had.
    fn end_turn(&mut self, worker: usize) {
        self.workers[worker].follow_ups.extend(self.effects.follow_ups.drain(..));
        let now = self.time();
        self.node.log.take(&mut self.effects, now);
        for question in std::mem::take(&mut self.effects.asked) {
            self.node.quorum.ask(question);
        }
        self.hear_all();
    }

    fn hear_all(&mut self) {
        for effect in std::mem::take(&mut self.effects.said) {
            self.hear(&effect);
        }
    }

    fn hear(&mut self, effect: &Effect) {
        self.auditor.hear(effect, &self.node.log);
        self.known.extend(auditor::told_ids(effect));
    }

    fn advance(&mut self, worker: usize) {
        self.now += self.dice.pick(&[0, 1, 3, 10]);
        let shard = self.dice.below(SHARD_COUNT as u64) as usize;
        self.serve(shard, usize::MAX);
        self.end_turn(worker);
    }

    /// Loses a connection, brings it back, or ends its session.
    fn change_lane(&mut self, lane: usize) {
        let is_end = self.dice.percent(15);
        let Lane { address, is_open, session, shards } = &mut self.lanes[lane];
        let old = *address;
        let mail: fn(LaneAddress) -> Mail = match *is_open {
            _ if is_end => Mail::Closed,
            true => Mail::Detached,
            false => Mail::Attached,
        };
        let mails = shards.map(|shard| (shard, mail(old)));
        if is_end {
            // Another client takes the slot.
            address.generation += 1;
            *session += 1;
            *is_open = true;
        } else {
            *is_open = !*is_open;
        }
        self.workers[usize::from(old.worker)].sending.extend(mails);
    }

    fn sync(&mut self, is_all: bool) {
        let pending = self.node.log.pending_count() as u64;
        let count = if is_all { pending } else { self.dice.below(pending + 1) };
        let now = self.time();
        let then = self.node.log.sync(count as usize, now);
        self.node.set_log_state(LogState::Ready);
        let mut lasts = Vec::new();
        for then in then {
            match then {
                WhenDurable::Answer(ticket, answer) | WhenDurable::AnswerWaiter(ticket, answer) => {
                    self.auditor.was_decided_before(ticket);
                    self.hear(&Effect::Answer(ticket, answer));
                }
                WhenDurable::Tell(lane, event) => self.hear(&Effect::Event(lane, event)),
                WhenDurable::Begin(reserved) => {
                    // The member that has the answer for all begins last.
                    let is_last = reserved.several.is_some();
                    if is_last { lasts.push(reserved) } else { self.end(ReservedEnd::Begins(now), reserved) }
                }
            }
        }
        for reserved in lasts {
            self.end(ReservedEnd::Begins(now), reserved);
        }
    }

    /// The cluster answers all questions.
    fn count(&mut self, is_counted: bool) {
        let now = self.time();
        for members in self.node.quorum.answer(is_counted) {
            if is_counted {
                self.node.log.note_counted(&members, now);
                continue;
            }
            for member in members.into_iter().rev() {
                self.end(ReservedEnd::NotCounted, member.reserved);
            }
        }
    }

    /// Tells the shard of a reserved grant, by way of the worker of its lane.
    fn end(&mut self, end: ReservedEnd, reserved: Reserved) {
        let worker = &mut self.workers[usize::from(reserved.lane.worker)];
        worker.passing.push_back((reserved.shard, Mail::End(end, reserved)));
    }

    /// A crash or a clean stop, and a start that restores all sessions.
    fn restart(&mut self) {
        if self.dice.percent(30) {
            self.stop_cleanly();
        } else {
            let count = self.node.log.pending_count() as u64;
            self.node.log.crash(self.dice.below(count + 1) as usize);
            self.node.quorum.crash();
        }
        self.now += self.dice.pick(&[0, 1, 10]);
        self.restart_count += 1;
        self.effects = Recorder::default();
        let node_seed = self.seed * 1000 + self.restart_count;
        let mut node = Node::new(SHARD_COUNT as u16, self.character.limits, self.time(), node_seed);
        std::mem::swap(&mut node.log, &mut self.node.log);
        std::mem::swap(&mut node.quorum, &mut self.node.quorum);
        // What no server wrote any more is forgotten.
        node.log.crash(0);
        if self.dice.percent(40) {
            node.log.compact();
        }
        self.node = node;
        self.mailboxes.iter_mut().for_each(VecDeque::clear);
        self.workers.fill_with(Worker::default);
        self.auditor.restarted();
        for lane in &mut self.lanes {
            lane.address.generation += 1;
            lane.is_open = false;
        }
        self.restore();
    }

    fn restore(&mut self) {
        let elapsed_ms = self.now - self.started_at;
        self.started_at = self.now;
        let image = self.node.log.restart(1, self.time(), elapsed_ms);
        self.set_ready();
        let shard_of =
            |_: u16, key: &[u8]| KEYS.iter().find(|(known, _)| *known == key).map_or(2, |(_, shard)| *shard);
        let lane_of = |session: &SessionTag| {
            self.lanes.iter().find(|lane| lane.tag() == *session).map(|lane| lane.address)
        };
        let places = Places { shard_of: &shard_of, lane_of: &lane_of };
        self.node.restore(&image, &places, &mut self.effects);
        self.node.verify();
        self.end_turn(0);
    }

    fn stop_cleanly(&mut self) {
        self.quiesce();
        let now = self.time();
        self.node.stop_cleanly(now, now, &mut self.effects);
        self.check_log(true);
        self.node.log.stop(now);
    }

    fn run(&mut self) {
        for step in 0..STEP_COUNT {
            self.step();
            if step % 100 == 99 && self.dice.percent(30) {
                self.check();
            }
        }
        self.finish();
    }
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    run.run();
}

#[test]
fn every_request_is_answered_once_and_no_claim_leaks_in_any_order_of_mail() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("WAYMAKER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WAYMAKER_SEED_COUNT").unwrap_or(300),
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "WAYMAKER_SEED={seed} fails");
    }
}
