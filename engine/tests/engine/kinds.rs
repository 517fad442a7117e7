//! Sets, permits and several keys before the judge: every short sequence of three clients, and long random ones.
//!
//! `WAYMAKER_SEED=n` runs that one seed again, `WAYMAKER_SEED_COUNT=n` sets how many are run, `WAYMAKER_DEPTH=n` how long
//! all short sequences are.

use crate::colliding_sets;
use crate::judge::{Ask, Item, Judge, Kind};
use crate::judged::{IDLE_MAX, Judged, Step};
use crate::random::Dice;
use crate::short_sequences::{
    Act, CAPACITY_OF_A_FEW, CLIENT_COUNT, Enumeration, Menu, Subject, in_every_way, keys_menu, pool_menu,
    tree_menu,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

impl Subject for Judged {
    fn judge(&self) -> &Judge {
        &self.judge
    }

    fn act(&mut self, act: &Act, is_known: bool) {
        self.is_known = is_known;
        self.step(&match act.clone() {
            Act::Acquire { client, ask } => Step::Acquire { lane: client, ask },
            Act::Release { client, id } => Step::Release { lane: client, id },
            Act::Cancel { ticket } => Step::Cancel { ticket },
            Act::Advance { millis } => Step::Advance { millis },
        });
    }
}

/// Enumerates a few requests in every way for 6 steps, all of them for 5 where they wait without end, and for 4 in every
/// way.
fn run_all(kind: Kind, shard_count: u16, Menu { few, all }: Menu) {
    for (menu, steps) in [(in_every_way(&few), 6), (all.clone(), 5), (in_every_way(&all), 4)] {
        enumerate(kind, shard_count, menu, steps);
    }
}

/// Runs all sequences of `steps` steps, unless `WAYMAKER_DEPTH` says another number.
fn enumerate(kind: Kind, shard_count: u16, menu: Vec<Ask>, steps: u64) {
    let depth = env("WAYMAKER_DEPTH").unwrap_or(steps) as usize;
    let new = || Judged::new(kind, shard_count, CLIENT_COUNT, CAPACITY_OF_A_FEW, IDLE_MAX, 1);
    Enumeration::new(new, menu, depth).run();
}

#[test]
fn every_short_sequence_on_a_small_tree_follows_the_rule() {
    run_all(Kind::Tree, 1, tree_menu());
}

/// Every number of permits, in every way, for 6 steps.
#[test]
fn every_short_sequence_on_a_small_pool_follows_the_rule() {
    for by_time in [false, true] {
        enumerate(Kind::Pool { by_time }, 1, in_every_way(&pool_menu(by_time)), 6);
    }
}

#[test]
fn every_short_sequence_on_several_keys_follows_the_rule() {
    run_all(Kind::Keys, 2, keys_menu());
}

/// What one seed is like.
#[derive(Debug)]
struct Character {
    kind: Kind,
    shard_count: u16,
    name_count: u64,
    item_count_max: u64,
    weights: [u64; 9],
    shared_percent: u64,
    priority_percent: u64,
    session_percent: u64,
    release_after_percent: u64,
    several_percent: u64,
    request_id_percent: u64,
    grain_ms: u64,
    idle_max: u32,
    /// Follow-ups come late, and in any order.
    is_late: bool,
    /// Sets of keys have equal unkeyed hashes.
    has_collisions: bool,
}

const LANE_COUNT: usize = 4;
const CAPACITY: u64 = 8;
const STEP_COUNT: usize = 250;
const LIVE_MAX: usize = 9;

fn character(kind: Kind, dice: &mut Dice) -> Character {
    let mut weights = [30, 14, 6, 2, 3, 3, 3, 10, 3];
    for weight in &mut weights {
        *weight *= dice.pick(&[0, 1, 1, 1, 3]);
    }
    weights[0] = weights[0].max(20);
    weights[7] = weights[7].max(2);
    let mut percent = || dice.pick(&[0, 10, 40, 90]);
    let (shared_percent, priority_percent, session_percent, release_after_percent) =
        (percent(), percent(), percent() / 3, percent() / 2);
    let (several_percent, request_id_percent) = (percent(), percent());
    Character {
        kind,
        shard_count: dice.pick(&[1, 2, 3]),
        name_count: 2 + dice.below(5),
        item_count_max: 1 + dice.below(4),
        weights,
        shared_percent,
        priority_percent,
        session_percent,
        release_after_percent,
        several_percent,
        request_id_percent,
        grain_ms: dice.pick(&[1, 5, 10]),
        idle_max: dice.pick(&[IDLE_MAX, IDLE_MAX, 0, 1, 2]),
        is_late: kind == Kind::Keys && dice.percent(50),
        has_collisions: kind == Kind::Keys && dice.percent(20),
    }
}

struct Run {
    dice: Dice,
    character: Character,
    judged: Judged,
    detached: Vec<usize>,
}

impl Run {
    fn new(kind: Kind, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let character = character(kind, &mut dice);
        let shard_count = if kind == Kind::Keys { character.shard_count } else { 1 };
        let mut judged = Judged::new(kind, shard_count, LANE_COUNT, CAPACITY, character.idle_max, seed);
        judged.judge.is_prompt = !character.is_late;
        Self { dice, character, judged, detached: Vec::new() }
    }

    fn millis(&mut self) -> u32 {
        self.character.grain_ms as u32 * self.dice.pick(&[1, 2, 2, 4, 8, 20])
    }

    fn name(&mut self) -> Vec<u8> {
        match self.character.kind {
            Kind::Pool { .. } => b"p".to_vec(),
            Kind::Keys if self.character.has_collisions => {
                self.dice.pick(&[b"a".as_slice(), colliding_sets::KEYS[0], colliding_sets::KEYS[1]]).to_vec()
            }
            Kind::Keys => vec![b'k', b'0' + self.dice.below(self.character.name_count) as u8],
            Kind::Tree => {
                let depth = self.dice.below(4);
                (0..depth).map(|_| b'a' + self.dice.below(self.character.name_count.min(3)) as u8).collect()
            }
        }
    }

    fn ask(&mut self) -> Ask {
        let kind = self.character.kind;
        let is_multi_key = kind == Kind::Keys && self.dice.percent(self.character.several_percent);
        let item_count = match kind {
            Kind::Tree => 1 + self.dice.below(self.character.item_count_max),
            Kind::Keys if is_multi_key => 1 + self.dice.below(self.character.item_count_max),
            _ => 1,
        };
        let is_pool = matches!(kind, Kind::Pool { .. });
        let shared_percent = if is_pool { 0 } else { self.character.shared_percent };
        let mut items: Vec<Item> = (0..item_count)
            .map(|_| Item { name: self.name(), shared: self.dice.percent(shared_percent) })
            .collect();
        items.sort();
        if kind == Kind::Keys {
            items.dedup_by(|later, earlier| later.name == earlier.name);
        }
        let wait_ms = self.millis();
        Ask {
            items,
            is_multi_key,
            permits: if is_pool { 1 + self.dice.below(CAPACITY / 2) } else { 0 },
            timestamp_us: self.dice.below(20),
            lease_ms: self.millis(),
            wait_ms: self.dice.pick(&[0, wait_ms, wait_ms, u32::MAX]),
            priority: if kind == Kind::Keys && self.dice.percent(self.character.priority_percent) {
                self.dice.pick(&[1, 2, 5, 6, 7])
            } else {
                0
            },
            session: self.dice.percent(self.character.session_percent),
            release_after_ms: self
                .dice
                .percent(self.character.release_after_percent)
                .then(|| wait_ms * u32::from(self.dice.percent(80))),
            request_id: self
                .dice
                .percent(self.character.request_id_percent)
                .then(|| self.dice.below(3) as u8),
        }
    }

    fn weighted(&mut self) -> usize {
        let sum: u64 = self.character.weights.iter().sum();
        let mut left = self.dice.below(sum);
        let weights = self.character.weights;
        let found = weights.iter().position(|weight| {
            let found = left < *weight;
            left = left.saturating_sub(*weight);
            found
        });
        found.unwrap_or_default()
    }

    /// The next step, if the one that was drawn makes sense now.
    fn draw(&mut self) -> Option<Step> {
        let lane = self.dice.below(LANE_COUNT as u64) as usize;
        let is_there = !self.detached.contains(&lane);
        let (waiting, held) = self.judged.judge.live();
        let at = self.dice.below(64) as usize;
        if self.character.is_late && self.judged.follow_up_count() > 0 && self.dice.percent(30) {
            return Some(Step::FollowUp { place: at % self.judged.follow_up_count() });
        }
        Some(match self.weighted() {
            0 if is_there && waiting.len() + held.len() < LIVE_MAX => Step::Acquire { lane, ask: self.ask() },
            1 if is_there && !held.is_empty() => Step::Release { lane, id: held[at % held.len()].0 },
            2 if !waiting.is_empty() => {
                let ticket = waiting[at % waiting.len()];
                match self.judged.judge.ids.get(&ticket.number) {
                    Some(ids) if is_there && self.dice.percent(40) => Step::Release { lane, id: ids[0] },
                    _ => Step::Cancel { ticket },
                }
            }
            3 if matches!(self.character.kind, Kind::Pool { .. }) => {
                if self.dice.percent(30) {
                    return Some(Step::RemovePool);
                }
                Step::Resize { capacity: 1 + self.dice.below(2 * CAPACITY) }
            }
            3 if is_there && self.character.kind == Kind::Keys => Step::Watch { lane, key: self.name() },
            4 => {
                let prefixes: [&[u8]; 4] = [b"", b"k0", b"k1", b"p"];
                let prefix = self.dice.pick(&prefixes).to_vec();
                Step::Freeze { prefix, frozen: self.dice.percent(40) }
            }
            5 if is_there => {
                self.detached.push(lane);
                Step::Detach { lane }
            }
            6 => {
                let was_there = is_there;
                self.detached.retain(|other| *other != lane);
                if was_there || self.dice.percent(30) {
                    Step::Close { lane, session_ended: self.dice.percent(80) }
                } else {
                    Step::Attach { lane }
                }
            }
            7 => Step::Advance { millis: u64::from(self.millis()) },
            _ => return None,
        })
    }

    fn run(&mut self) -> Result<(), Vec<Step>> {
        let mut steps = Vec::new();
        while steps.len() < STEP_COUNT {
            if let Some(step) = self.draw() {
                steps.push(step);
                self.step(&steps)?;
            }
        }
        // In the end the worker gets to everything.
        while self.judged.follow_up_count() > 0 {
            steps.push(Step::FollowUp { place: 0 });
            self.step(&steps)?;
        }
        Ok(())
    }

    fn step(&mut self, steps: &[Step]) -> Result<(), Vec<Step>> {
        let step = &steps[steps.len() - 1];
        catch_unwind(AssertUnwindSafe(|| self.judged.step(step))).map_err(|_| steps.to_vec())
    }
}

fn run_seeds(kind: Kind, count: u64) {
    let seeds = match env("WAYMAKER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..env("WAYMAKER_SEED_COUNT").unwrap_or(count),
    };
    for seed in seeds {
        let mut run = Run::new(kind, seed);
        if let Err(steps) = run.run() {
            let tail = &steps[steps.len().saturating_sub(14)..];
            panic!(
                "after step {}, the last ones:\n{tail:?}\n{:#?}\nagain with WAYMAKER_SEED={seed}",
                steps.len(),
                run.character
            );
        }
    }
}

#[test]
fn long_random_sequences_on_trees_follow_the_rule() {
    run_seeds(Kind::Tree, 400);
}

#[test]
fn long_random_sequences_on_pools_follow_the_rule() {
    run_seeds(Kind::Pool { by_time: false }, 200);
    run_seeds(Kind::Pool { by_time: true }, 200);
}

#[test]
fn long_random_sequences_on_several_keys_follow_the_rule() {
    run_seeds(Kind::Keys, 800);
}
