//! All slices of one load of one contestant, and their result.

use anyhow::{Result, bail};

use super::entrants::Entrant;
use super::loads::Load;
use super::result::{Contest, ContestShape, Distribution, Measured, Measurement, Outcome};
use crate::compare::other_load::OtherLoad;
use crate::compare::ping_pong::CoreDistance;
use crate::compare::round::Spread;
use crate::compare::session::Session;
use crate::faults::{FaultKind, Faults};
use crate::latencies::Latencies;
use crate::load;
use crate::report::Numbers;

/// Time limit for taking all leases.
const LEASES_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(60);
/// Largest tried rate, as a share of the throughput of the closed loop.
const RATE_SHARE_MAX: f64 = 0.9;

/// Results so far.
#[derive(Debug, Default)]
pub struct Slices {
    numbers: Vec<Numbers>,
    latency: Latencies,
    hand_over: Option<Latencies>,
    renewal: Option<Latencies>,
    faults: Faults,
    /// Outcome that makes further slices unnecessary.
    settled: Option<Outcome>,
}

/// Core distances of all slices.
#[derive(Debug, Default)]
pub struct Distances {
    near_count: u32,
    far_count: u32,
    changed_count: u32,
}

impl Slices {
    /// Returns empty results; settled if the system does not offer the load or was too slow for its rate.
    pub fn begin(load: Load, entrant: &Entrant, contest: &Contest) -> Self {
        let not_offered = load.not_offered(entrant.contestant.identity.system).map(str::to_owned);
        let settled = not_offered.or_else(|| too_slow(load, entrant, contest)).map(Outcome::NotOffered);
        Self { settled, ..Self::default() }
    }

    /// Whether there is nothing left to measure.
    pub fn is_settled(&self) -> bool {
        self.settled.is_some()
    }

    /// Ends the measurement because of this error.
    pub fn fail(&mut self, error: &anyhow::Error) {
        self.settled = Some(Outcome::Failed(format!("{error:#}")));
    }

    /// Measures one slice. Repeats it once if the core distance changed or no response arrived.
    pub fn take_turn(
        &mut self,
        session: &Session<'_>,
        entrant: &Entrant,
        load: Load,
        round: u32,
        distances: &mut Distances,
    ) {
        if self.settled.is_some() {
            return;
        }
        let mut slice = measure(session, entrant, load, round);
        if slice.as_ref().is_ok_and(|slice| slice.distance.is_none() || slice.is_empty()) {
            slice = measure(session, entrant, load, round);
        }
        let is_stopped = session.stop.load(std::sync::atomic::Ordering::Relaxed);
        match slice {
            // An error after an interruption is not a result.
            Err(_) if is_stopped => {}
            Err(error) => self.fail(&error),
            Ok(slice) if slice.is_empty() => {
                let slice_ms = session.options.slice_length().as_millis();
                self.settled = Some(Outcome::Failed(format!("no response arrived within {slice_ms} ms")));
            }
            Ok(slice) => {
                distances.count(slice.distance);
                self.add(slice);
            }
        }
    }

    fn add(&mut self, slice: Slice) {
        self.latency.merge(&slice.latency);
        for (sum, of_slice) in [(&mut self.hand_over, &slice.hand_over), (&mut self.renewal, &slice.renewal)]
        {
            if let Some(latencies) = of_slice {
                sum.get_or_insert_default().merge(latencies);
            }
        }
        self.faults.merge(slice.faults);
        self.numbers.push(slice.numbers);
    }

    /// Returns the measurement; `None` if no slice was measured before an interruption.
    pub fn finish(self, load: Load, entrant: &Entrant) -> Option<Measurement> {
        let outcome = match self.settled {
            Some(settled) => settled,
            None => Outcome::Measured(Box::new(Self::sum(self)?)),
        };
        let Load { shape, connections, depth, rate } = load;
        Some(Measurement { shape, contestant: entrant.name.clone(), connections, depth, rate, outcome })
    }

    fn sum(self) -> Option<Measured> {
        let median = |number: &dyn Fn(&Numbers) -> Option<f64>| {
            Spread::of(self.numbers.iter().filter_map(number).collect()).map(|spread| spread.median)
        };
        let cpu_us = |numbers: &Numbers| {
            Some(numbers.cpu.server? * 1e6 / numbers.requests_per_second).filter(|us| us.is_finite())
        };
        Some(Measured {
            requests_per_s: median(&|numbers| Some(numbers.requests_per_second))?,
            rounds: self.numbers.iter().map(|numbers| numbers.requests_per_second).collect(),
            latency: Distribution::of(&self.latency),
            hand_over: self.hand_over.as_ref().map(Distribution::of),
            renewal: self.renewal.as_ref().map(Distribution::of),
            server_cpu_us_per_request: median(&cpu_us),
            faults: in_words(&self.faults),
        })
    }
}

/// One slice.
struct Slice {
    numbers: Numbers,
    latency: Latencies,
    hand_over: Option<Latencies>,
    renewal: Option<Latencies>,
    faults: Faults,
    /// Core distance; `None` if it changed.
    distance: Option<CoreDistance>,
}

impl Slice {
    /// Whether the slice has neither responses nor faults.
    fn is_empty(&self) -> bool {
        self.numbers.requests_per_second == 0.0 && self.faults.count() == 0
    }
}

/// Runs one slice. Fails if connections were lost or responses are missing, because the numbers then mean nothing.
fn measure(session: &Session<'_>, entrant: &Entrant, load: Load, round: u32) -> Result<Slice> {
    let seed = session.seed.wrapping_add(u64::from(round));
    let plan = load.plan(entrant, seed)?;
    let (mut latency, mut hand_over, mut beside) = (Latencies::default(), None, None);
    let slice = session.slice_of(&entrant.contestant, &plan, || {
        let renewals = match load.shape {
            ContestShape::Renewals => {
                Some(OtherLoad::start(Load::renewal_plan(entrant, seed)?, LEASES_TIME_MAX)?)
            }
            _ => None,
        };
        let outcome = load::run(&plan, entrant.contestant.process, &session.stop, &|_, _| {});
        beside = renewals.map(OtherLoad::end).transpose()?;
        let outcome = outcome?;
        latency = outcome.latency.clone();
        hand_over.clone_from(&outcome.hand_over);
        Ok(outcome)
    })?;
    let mut faults = slice.numbers.faults.clone();
    let renewal = beside.map(|beside| {
        faults.merge(beside.faults);
        beside.latency
    });
    if [FaultKind::ConnectionLost, FaultKind::Unanswered].iter().any(|kind| faults.count_of(*kind) > 0) {
        bail!("{}", in_words(&faults).join("; "));
    }
    Ok(Slice { latency, hand_over, renewal, faults, distance: slice.distance, numbers: slice.numbers })
}

fn in_words(faults: &Faults) -> Vec<String> {
    faults.describe().lines().map(|line| line.trim().to_owned()).collect()
}

/// Returns why a rate is not tried: the closed loop with the same connections was slower, or failed.
fn too_slow(load: Load, entrant: &Entrant, contest: &Contest) -> Option<String> {
    let rate = load.rate? as f64;
    let closed_loop = contest.measurements.iter().find(|one| {
        one.contestant == entrant.name
            && one.shape == load.shape
            && one.rate.is_none()
            && (one.connections, one.depth) == (load.connections, load.depth)
    })?;
    match &closed_loop.outcome {
        Outcome::Measured(measured) if measured.requests_per_s * RATE_SHARE_MAX < rate => Some(format!(
            "too slow: {} connections reach only {}",
            load.connections,
            crate::units::show_rate(measured.requests_per_s)
        )),
        _ => None,
    }
}

impl Distances {
    fn count(&mut self, distance: Option<CoreDistance>) {
        match distance {
            Some(CoreDistance::Near) => self.near_count += 1,
            Some(CoreDistance::Far) => self.far_count += 1,
            Some(CoreDistance::Unknown) => {}
            None => self.changed_count += 1,
        }
    }

    /// Describes the core distances, if they are known.
    pub fn describe(&self) -> Option<String> {
        let Self { near_count, far_count, changed_count } = self;
        (near_count + far_count + changed_count > 0).then(|| {
            format!(
                "The two cores were near each other in {near_count} slices, far from each other in {far_count}, \
                 and the distance \
                 changed during {changed_count}. Loopback is slower by a third if they are far."
            )
        })
    }
}
