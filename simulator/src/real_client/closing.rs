//! A process that closes its client while it has guards and callers. All of them must learn of the closing,
//! and no hold may remain.

use super::lane::RealLane;
use super::{Phase, RealClient};
use crate::world::World;
use std::task::{Context, Waker};

/// Tolerance for inaccurate clocks and for one step of the process.
const SLACK_US: u64 = 100_000;

impl RealClient {
    pub(super) fn close(&mut self, world: &mut World) {
        self.phase = Phase::Closing { since_us: world.now_us };
        self.closings = self.lanes.iter_mut().map(RealLane::close_client).collect();
        self.go_on_closing(world, world.now_us);
    }

    /// Returns whether the client was closed.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// Returns the time limit for closing. It is the time for which a caller waits for a response.
    pub(super) fn closing_ends_us(&self, since_us: u64) -> u64 {
        since_us + self.plan.patience.as_micros() as u64 + SLACK_US
    }

    pub(super) fn go_on_closing(&mut self, world: &mut World, since_us: u64) {
        let context = &mut Context::from_waker(Waker::noop());
        self.closings.retain_mut(|closing| closing.as_mut().poll(context).is_pending());
        let index = self.index;
        if !self.closings.is_empty() && self.closing_ends_us(since_us) <= world.now_us {
            return world.auditor.accuse("late-caller", || {
                format!("process {index} began to close at {since_us} us and has not finished")
            });
        }
        if !self.closings.is_empty() || !self.lanes.iter().all(|lane| lane.harness.is_finished()) {
            return;
        }
        for guard in self.guards.iter().filter(|guard| guard.lock.loss_reason().is_none()) {
            let id = guard.lock.id();
            world.auditor.accuse("loss-reason", || {
                format!("process {index} has closed its client and the guard of {id} did not report its loss")
            });
        }
        for lane in self.lanes.iter().filter(|lane| lane.has_closed_well()) {
            world.auditor.judge_left_by(lane.auditor_lane(), world.now_us);
        }
        self.phase = Phase::Leaving;
    }
}
