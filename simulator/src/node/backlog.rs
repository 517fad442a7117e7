//! Compares unserved requests with the instant up to which a worker claims to have read everything.

use super::thread::{Inner, ServedConnection, Thread};
use crate::world::World;
use waymaker_engine::Time;
use waymaker_server::limits::{FRONT_SWEEP_TURNS_US, SWEEP_TURNS_US};

/// The unserved requests of one connection that a sweep may leave behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    /// Duration of the connection's turns since the sweep began.
    pub(super) spent_us: u64,
    /// True if the connection was taken over after the sweep began.
    pub(super) is_new: bool,
    /// Time at which the connection was taken over, in microseconds of the run; 0 if another worker had sent
    /// it.
    taken_over_us: u64,
    /// Bytes that arrived before this time, in microseconds of the run, may be unserved.
    until_us: u64,
}

impl Allowance {
    /// Returns the allowance of a connection that is taken over now.
    pub(super) fn of_newcomer(has_moved: bool, now_us: u64) -> Self {
        if has_moved {
            return Self::default();
        }
        Self { is_new: true, taken_over_us: now_us, ..Self::default() }
    }

    /// Returns whether a sweep does not cover the connection because it began before the takeover. The worker
    /// may report a sweep long after its end.
    fn is_behind(&self, drained_us: u64) -> bool {
        self.is_new || self.taken_over_us >= drained_us + 1000
    }

    /// Notes that a sweep begins.
    pub(super) fn begin_sweep(&mut self) {
        (self.spent_us, self.is_new) = (0, false);
    }
}

impl Thread {
    /// Notes that a sweep is complete. A sweep does not wait for connections that used too much time, or
    /// whose clients do not take their responses.
    pub(super) fn note_swept(&mut self, now_us: u64) {
        let Self { worker, connections, .. } = self;
        for served in connections.values_mut() {
            let ServedConnection { inner, allowance, .. } = served;
            let is_excused = match inner {
                Inner::Binary(inner) => {
                    allowance.spent_us >= SWEEP_TURNS_US || !worker.wants_read(inner.key())
                }
                Inner::Front(front) => allowance.spent_us >= FRONT_SWEEP_TURNS_US || front.is_closing(),
            };
            if is_excused {
                allowance.until_us = now_us;
            }
        }
    }

    /// Reports a violation if a worker claims to have read everything before `drained` while an older request
    /// is unserved.
    pub(crate) fn judge_drained(&mut self, world: &mut World, drained: Time) {
        let Self { worker, connections, .. } = self;
        let drained_us = drained.as_millis().saturating_add(world.booted_ms());
        let drained_us = drained_us.saturating_sub(world.settings.start_ms).saturating_mul(1000);
        for (connection, served) in connections {
            let link = &world.network.connections[*connection];
            let ServedConnection { inner, allowance, .. } = served;
            let (wants_read, read_us) = match inner {
                Inner::Binary(inner) => {
                    let has_input = worker.has_input(inner.key());
                    (worker.wants_read(inner.key()), has_input.then_some(link.read_since_us))
                }
                Inner::Front(front) => (!front.is_closing(), front.begun_since_us()),
            };
            let arrived_us = read_us.into_iter().chain(link.to_server.unread_since_us()).min();
            let is_late = |at_us: &u64| {
                *at_us < drained_us && *at_us >= allowance.until_us && !allowance.is_behind(drained_us)
            };
            if let Some(at_us) = arrived_us.filter(is_late)
                && wants_read
            {
                let (connection, allowance) = (*connection, *allowance);
                return world.auditor.accuse("drained", || {
                    format!(
                        "a worker claims to have read everything before {drained_us} us, but connection {connection} has bytes from {at_us} us: {allowance:?}"
                    )
                });
            }
        }
    }
}
