//! Long random sequences, compared with the model step by step. `WAYMAKER_SEED=n` runs that one seed again;
//! `WAYMAKER_SEED_COUNT=n` sets how many are run.

use crate::model::{Ask, Name};
use crate::twin::{Place, Step, Twin};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use waymaker_engine::Limits;

const STEP_COUNT: usize = 600;
const KEYS: [&[u8]; 7] =
    [b"k", b"k\0", b"0123456789abcdef", b"0123456789abcdefg", b"m", b"0123456789abcdef-long", b"n"];

/// What one seed is like. Drawn first, so that some seeds are all about one thing.
#[derive(Debug)]
struct Character {
    limits: Limits,
    key_count: u64,
    /// How often each kind of step comes.
    weights: [u64; 12],
    shared_percent: u64,
    priority_percent: u64,
    request_id_percent: u64,
    session_percent: u64,
    release_after_percent: u64,
    /// Times are drawn from these few, so that much falls on one instant.
    grain_ms: u64,
}

pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A place among these, more often where the weight is larger.
    pub(crate) fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (place, weight) in weights.iter().enumerate() {
            if left < *weight {
                return place;
            }
            left -= weight;
        }
        0
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

fn character(dice: &mut Dice) -> Character {
    let unbounded = Limits::default();
    let limits = Limits {
        lease_min_ms: 2,
        lease_default_ms: 40,
        lease_max_ms: 200,
        priority_step_ms: 10,
        priority_boost_max_ms: 60,
        claim_count_max: if dice.percent(20) { 6 } else { unbounded.claim_count_max },
        idle_key_count_max: dice.pick(&[0, 1, 3, unbounded.idle_key_count_max, unbounded.idle_key_count_max]),
        waiter_count_per_key_max: if dice.percent(20) { 2 } else { unbounded.waiter_count_per_key_max },
        linked_claim_count_per_lane_max: if dice.percent(20) {
            3
        } else {
            unbounded.linked_claim_count_per_lane_max
        },
        ..unbounded
    };
    let mut weights = [30, 12, 6, 6, 3, 3, 3, 4, 1, 12, 3, 0];
    for weight in &mut weights {
        *weight *= dice.pick(&[0, 1, 1, 1, 3]);
    }
    weights[0] = weights[0].max(10);
    weights[9] = weights[9].max(2);
    let mut percent = || dice.pick(&[0, 5, 30, 90]);
    Character {
        limits,
        shared_percent: percent(),
        priority_percent: percent(),
        request_id_percent: percent(),
        session_percent: percent() / 3,
        release_after_percent: percent(),
        key_count: 1 + dice.below(KEYS.len() as u64),
        weights,
        grain_ms: dice.pick(&[1, 5, 10]),
    }
}

/// One run: steps that are likely to meet each other, from what is known of earlier ones.
struct Run {
    dice: Dice,
    character: Character,
    twin: Twin,
    places: Vec<Place>,
    /// Acquires so far, the newest last: number and lane.
    acquires: Vec<(Name, usize)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let character = character(&mut dice);
        let place = |namespace, owner| Place { namespace, owner };
        let places = vec![place(0, "a"), place(0, "a"), place(0, "b"), place(0, ""), place(1, "a")];
        let twin = Twin::new(character.limits, &places, seed);
        Self { dice, character, twin, places, acquires: Vec::new() }
    }

    fn millis(&mut self) -> u32 {
        let grain = self.character.grain_ms as u32;
        grain * self.dice.pick(&[1, 2, 2, 4, 8, 20])
    }

    fn key(&mut self) -> Vec<u8> {
        let index = self.dice.below(self.character.key_count).min(self.dice.below(self.character.key_count));
        KEYS[index as usize].to_vec()
    }

    /// A lane that is there.
    fn lane(&mut self) -> Option<usize> {
        let lane = self.dice.below(self.places.len() as u64) as usize;
        (!self.twin.is_detached(lane)).then_some(lane)
    }

    /// A claim whose id was told, most likely a new one.
    fn claim(&mut self) -> Option<Name> {
        let newest = self.acquires.len() as u64;
        let back = self.dice.below(newest + 1).min(self.dice.below(12) + 1);
        let (claim, _) = *self.acquires.get((newest - back) as usize)?;
        self.twin.is_known(claim).then_some(claim)
    }

    fn some_key(&mut self) -> Option<Vec<u8>> {
        if self.dice.percent(80) { None } else { Some(self.key()) }
    }

    fn ask(&mut self) -> Ask {
        let Character {
            shared_percent,
            priority_percent,
            request_id_percent,
            session_percent,
            release_after_percent,
            ..
        } = self.character;
        let session = self.dice.percent(session_percent);
        let (lease_ms, wait_ms) = (self.millis(), self.millis());
        Ask {
            key: self.key(),
            shared: self.dice.percent(shared_percent),
            lease_ms: if session && self.dice.percent(95) {
                0
            } else {
                self.dice.pick(&[lease_ms, lease_ms, lease_ms, lease_ms, 0, 1, 100_000])
            },
            wait_ms: self.dice.pick(&[0, wait_ms, wait_ms, wait_ms, u32::MAX]),
            session,
            notify_queued: self.dice.percent(70),
            release_after_ms: self
                .dice
                .percent(release_after_percent)
                .then(|| wait_ms * u32::from(self.dice.percent(80))),
            priority: if self.dice.percent(priority_percent) {
                self.dice.pick(&[1, 2, 5, 6, 7, u32::MAX])
            } else {
                0
            },
            request_id: self
                .dice
                .percent(request_id_percent)
                .then(|| self.dice.pick::<&[u8]>(&[b"r", b"s", b"t", b"another"]).to_vec()),
            owner: self.dice.percent(10).then(|| self.dice.pick::<&[u8]>(&[b"a", b"b", b""]).to_vec()),
        }
    }

    fn kind(&mut self) -> usize {
        self.dice.weighted(&self.character.weights)
    }

    /// The next step, if the one that was drawn makes sense now.
    fn draw(&mut self) -> Option<Step> {
        Some(match self.kind() {
            0 => Step::Acquire { lane: self.lane()?, ask: self.ask() },
            1 => {
                let own = self.dice.percent(30);
                Step::Release { lane: self.lane()?, claim: self.claim()?, key: self.some_key(), own }
            }
            2 => {
                let millis = self.millis();
                let lease_ms = self.dice.pick(&[millis, millis, millis, 0, 1, 100_000]);
                let own = self.dice.percent(30);
                let (lane, claim, key) = (self.lane()?, self.claim()?, self.some_key());
                Step::Extend { lane, claim, key, lease_ms, own }
            }
            3 => {
                let claim = self.claim()?;
                let number = self.twin.model.number_of(claim).unwrap_or(claim);
                let lane = self.twin.model.lane_of(claim).map(|(lane, _)| lane);
                let lane = lane.filter(|lane| !self.twin.is_detached(*lane)).or(self.lane())?;
                Step::Cancel { lane, number }
            }
            4 => Step::Status { lane: self.lane()?, claim: self.claim()?, key: self.some_key() },
            5 => Step::Inspect { lane: self.lane()?, key: self.key() },
            6 => Step::Detach { lane: self.lane()? },
            7 => {
                let lane = self.dice.below(self.places.len() as u64) as usize;
                self.twin.is_detached(lane).then_some(Step::Attach { lane })?
            }
            8 => {
                let lane = self.dice.below(self.places.len() as u64) as usize;
                Step::Close { lane, session_ended: self.dice.percent(80) }
            }
            9 => Step::Advance { millis: u64::from(self.millis()), stalled: false },
            10 => Step::Advance { millis: u64::from(self.millis()), stalled: true },
            _ => Step::Stop,
        })
    }

    fn run(&mut self) -> Result<(), String> {
        let mut steps: Vec<Step> = Vec::new();
        let stop_at =
            if self.dice.percent(10) { self.dice.below(STEP_COUNT as u64) as usize } else { STEP_COUNT };
        while steps.len() < STEP_COUNT {
            let Some(step) = (if steps.len() == stop_at { Some(Step::Stop) } else { self.draw() }) else {
                continue;
            };
            if let Step::Acquire { lane, .. } = &step {
                self.acquires.push((self.twin.next_number(), *lane));
            }
            steps.push(step);
            let outcome = self.twin.step(&steps[steps.len() - 1]);
            outcome.map_err(|difference| {
                let tail = &steps[steps.len().saturating_sub(12)..];
                format!("after step {}, the last ones:\n{tail:#?}\n{difference}", steps.len())
            })?;
        }
        Ok(())
    }
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.run()));
    let difference = match outcome {
        Ok(Ok(())) => return,
        Ok(Err(difference)) => difference,
        Err(_) => "a panic, see above".to_owned(),
    };
    panic!("{difference}\n{:#?}\nagain with WAYMAKER_SEED={seed}", run.character);
}

#[test]
fn long_random_sequences_agree_with_the_model() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    if let Some(seed) = number("WAYMAKER_SEED") {
        return run(seed);
    }
    for seed in 0..number("WAYMAKER_SEED_COUNT").unwrap_or(1500) {
        run(seed);
    }
}
