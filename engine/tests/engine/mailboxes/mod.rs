//! Random requests to shards with a mailbox each. News of lost connections, durable grants, withdrawn claims and counted fences
//! reaches each shard in any order that the mailboxes of a server allow. `WAYMAKER_SEED=n` runs one seed; `WAYMAKER_SEED_COUNT=n` sets
//! the number of seeds.

mod auditor;
mod character;
mod checks;
mod durability;
mod lanes;
mod mail;
mod requests;
mod restarts;

use crate::accounts::Book;
use crate::node::Node;
use crate::random::Dice;
use crate::recorder::Recorder;
use auditor::Auditor;
use character::Character;
use lanes::Lane;
use mail::{Mail, Worker};
use requests::Ask;
use std::collections::VecDeque;
use waymaker_engine::{ClaimId, Time};

const SHARD_COUNT: usize = 3;
const WORKER_COUNT: usize = 2;
const LANE_COUNT: usize = 4;
const STEP_COUNT: usize = 400;
const SEED_COUNT: u64 = 6000;

/// A server under test, with its clients.
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
    /// The number of the last request.
    number: u32,
    /// Claims whose ids a client knows, the newest last.
    known: Vec<ClaimId>,
    /// The last multi-key acquire with a request id.
    last_named: Option<Ask>,
    effects: Recorder,
    auditor: Auditor,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let character = Character::new(&mut dice);
        let lanes = (0..LANE_COUNT).map(|slot| Lane::new(slot, &mut dice)).collect();
        let mut node = Node::new(SHARD_COUNT as u16, character.limits, Time::from_millis(1), seed);
        node.book = Book::of_seed(seed);
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

    fn step(&mut self) {
        self.node.book.change_sometimes(self.number);
        let worker = self.dice.below(WORKER_COUNT as u64) as usize;
        let lane = self.dice.below(LANE_COUNT as u64) as usize;
        let Character { send_weight, lane_weight, restart_weight, .. } = self.character;
        match self.dice.weighted(&[send_weight, 30, 25, 40, lane_weight, 14, 5, 8, 2, restart_weight]) {
            0 => drop(self.send(worker) || self.follow_up(worker)),
            1 => self.serve_some(worker),
            2 => drop(self.is_idle(worker) && self.pass(worker)),
            3 => self.ask(lane),
            4 => self.change_lane(lane),
            5 => self.sync_some(),
            6 => self.count_or_refuse(),
            7 => self.advance(worker),
            8 => self.count_elsewhere(),
            _ => self.restart(),
        }
    }

    fn advance(&mut self, worker: usize) {
        self.now += self.dice.pick(&[0, 1, 3, 10]);
        let shard = self.dice.below(SHARD_COUNT as u64) as usize;
        self.serve(shard, usize::MAX);
        self.end_turn(worker);
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

#[test]
fn every_request_is_answered_once_and_no_claim_leaks_in_any_order_of_mail() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("WAYMAKER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WAYMAKER_SEED_COUNT").unwrap_or(SEED_COUNT),
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| Run::new(seed).run());
        assert!(
            outcome.is_ok(),
            "seed {seed} fails; run it again with: WAYMAKER_SEED={seed} ./test engine -- mailboxes"
        );
    }
}
