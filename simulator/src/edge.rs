//! Settings of a seed for the edge of the server: renewals at the last moment, clients that are silent until then, clients that end one
//! direction of a connection, and clients that do not read.

use crate::random::Random;

/// Acts of clients that try the edge of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    /// Of the source of chance for all of this: the rest of the seed has another one.
    pub(crate) seed: u64,
    /// Leases that are renewed at their last moment, of a hundred.
    pub(crate) brink_percent: u64,
    /// Every how many acts a client is silent until the last moment of its session.
    pub(crate) silent_every: u64,
    /// Every how many acts a client says the last words on a connection.
    pub(crate) last_words_every: u64,
    /// A client asks for far more than it reads.
    pub(crate) has_glutton: bool,
    /// Minimum share of clients that speak to a front end, in percent.
    pub(crate) front_percent: u64,
}

impl Edge {
    /// What this seed chooses. It has a source of its own, so that a seed without any stays as it is.
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
