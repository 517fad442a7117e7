//! Settings of the processes with a real client.

use crate::mix::Mix;
use crate::random::Random;
use std::time::Duration;
use waymaker_protocol::NamespaceKind;

/// Kinds of namespaces whose holds have guards.
const KINDS: [NamespaceKind; 3] = [NamespaceKind::Flat, NamespaceKind::Tree, NamespaceKind::Pool];

/// The settings of the real clients of a run.
#[derive(Clone, Debug)]
pub(crate) struct ProcessSettings {
    pub(crate) process_count: usize,
    /// Number of processes of one owner, which use the same request ids.
    pub(crate) processes_per_owner: usize,
    /// Kinds of namespaces. Each process has a lane for each of them.
    pub(crate) kinds: Vec<NamespaceKind>,
    /// Time for which callers wait for a connection or a response.
    pub(crate) patience: Duration,
    pub(crate) session_lease_ms: u32,
    /// Mean time between two acts of a process.
    pub(crate) pace_us: u64,
    /// Shortest duration of the fault phase. The acts of the other clients are spread over it.
    pub(crate) lasts_us: u64,
    pub(crate) fault_percent: u64,
    pub(crate) request_id_percent: u64,
    /// Limit of requests in flight on each lane.
    pub(crate) in_flight_max: u32,
    /// Longest time for which a server is silent before its connection breaks.
    pub(crate) silence_max_us: u64,
    /// True if processes close their clients while they have guards and callers.
    pub(crate) closes_early: bool,
}

impl ProcessSettings {
    /// Chooses the settings of this seed. They have their own random source, so that seeds without real
    /// clients stay the same.
    pub(crate) fn new(seed: u64, mix: &Mix) -> Option<Self> {
        let random = &mut Random::new(seed ^ 0x7265_616c_0063_6c69);
        let is_chosen = random.percent(40);
        let kinds = mix.kinds();
        let kinds: Vec<_> = KINDS.into_iter().filter(|kind| kinds.contains(kind)).collect();
        (is_chosen && !kinds.is_empty()).then(|| Self {
            process_count: random.between(1, 3) as usize,
            processes_per_owner: random.between(1, 2) as usize,
            kinds,
            patience: Duration::from_millis(random.spread(300, 5_000)),
            session_lease_ms: random.spread(300, 5_000) as u32,
            pace_us: random.spread(8_000, 60_000),
            lasts_us: random.spread(10_000_000, 40_000_000),
            fault_percent: random.pick(&[0, 1, 3, 6]).unwrap_or(1),
            request_id_percent: random.pick(&[0, 20, 60]).unwrap_or(20),
            in_flight_max: random.pick(&[4, 16, 1024]).unwrap_or(1024),
            silence_max_us: random.pick(&[2_000_000, 20_000_000]).unwrap_or(2_000_000),
            closes_early: random.once_in(2),
        })
    }
}
