//! Settings for clients that act at the limits of the server: they renew at the last moment, are silent until
//! then, half-close connections, or do not read.

use crate::random::Random;

/// Frequencies of such acts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    /// Seed of the random source for these acts. The rest of the run uses a different source.
    pub(crate) seed: u64,
    /// Share of leases that are renewed at the last moment, in percent.
    pub(crate) brink_percent: u64,
    /// One of this number of acts makes a client silent until the last moment of its session.
    pub(crate) silent_every: u64,
    /// One of this number of acts half-closes a connection after a last request.
    pub(crate) last_words_every: u64,
    /// True if one client sends far more requests than it reads responses.
    pub(crate) has_glutton: bool,
    /// Minimum share of clients that use a front end, in percent.
    pub(crate) front_percent: u64,
}

impl Edge {
    /// Chooses the settings of a seed; `None` for a seed without such acts. They have their own random
    /// source, so that the other choices of the seed do not depend on them.
    pub(crate) fn new(seed: u64) -> Option<Self> {
        let random = &mut Random::new(seed ^ 0x6564_6765_0062_726b);
        random.percent(40).then(|| Self {
            seed: random.any(),
            brink_percent: random.pick(&[20, 60, 100]).unwrap_or(60),
            silent_every: random.pick(&[30, 100, 400]).unwrap_or(100),
            last_words_every: random.pick(&[50, 150]).unwrap_or(150),
            has_glutton: random.once_in(8),
            front_percent: random.pick(&[0, 0, 70]).unwrap_or(0),
        })
    }
}
