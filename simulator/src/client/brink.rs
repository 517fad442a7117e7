//! A client that renews at the last moment: its bytes arrive just before the lease ends, or a little too
//! late.

use super::{Client, remember};
use crate::event::Event;
use crate::operation::Operation;
use crate::world::World;
use waymaker_protocol::LockId;

/// Longest time between the renewal and the end of the lease.
const BEFORE_MAX_US: u64 = 3_000;
/// A lease is renewed if it ends within this time.
const NEAR_US: u64 = 4_000;
/// Leases longer than this are not renewed at the last moment, because a client that waits for their ends
/// does nothing else.
const LEASE_MAX_MS: u64 = 1_500;
/// Largest number of requests that a client sends at once to keep a worker busy.
const CHATTER_MAX: u64 = 60;

impl Client {
    /// Plans to renew a hold at the last moment, even if the client no longer relies on the hold by then.
    pub(super) fn plan_brink(&mut self, world: &mut World, id: LockId) {
        let Some(edge) = world.settings.edge.filter(|_| !world.calm) else { return };
        let Some(end_us) = world.auditor.lease_end_us(id) else { return };
        if end_us > world.now_us + 1_000 * LEASE_MAX_MS || !world.edge_random.percent(edge.brink_percent) {
            return;
        }
        remember(&mut self.brinks, id);
        self.plan_brink_at(world, end_us);
    }

    fn plan_brink_at(&self, world: &mut World, end_us: u64) {
        let before_us = world.edge_random.between(20, BEFORE_MAX_US);
        world.at(end_us.saturating_sub(before_us), Event::Brink(self.index));
    }

    /// In some cases, sends nothing until the last moment of the session.
    pub(super) fn fall_silent(&mut self, world: &mut World) {
        let Some(edge) = world.settings.edge.filter(|_| !world.calm) else { return };
        let Some(session) = self.session.filter(|_| world.edge_random.once_in(edge.silent_every)) else {
            return;
        };
        if let Some(end_us) = world.auditor.session_end_us(session.id)
            && end_us < world.now_us + 1_000 * LEASE_MAX_MS
        {
            self.paused_until_us = end_us;
            self.plan_brink_at(world, end_us);
        }
    }

    /// Renews the session and the holds that are about to end.
    pub(crate) fn renew_at_brink(&mut self, world: &mut World) {
        if self.is_leaving || self.has_left || world.calm {
            return;
        }
        let now_us = world.now_us;
        let is_near = |end_us: u64| end_us > now_us && end_us <= now_us + NEAR_US;
        let ids = self.brinks.iter().copied();
        let ids: Vec<LockId> =
            ids.filter(|id| world.auditor.lease_end_us(*id).is_some_and(is_near)).collect();
        world.network.is_hasty = true;
        if world.edge_random.once_in(8) {
            self.chatter(world);
        }
        for id in ids {
            let lease_ms = world.edge_random.spread(10, 200) as u32;
            self.extend(world, id, lease_ms);
        }
        if let Some(session) = self.session
            && let Some(end_us) = world.auditor.session_end_us(session.id)
            && self.paused_until_us > now_us
        {
            if is_near(end_us) {
                self.ask(world, Operation::KeepAlive);
            } else if end_us > now_us {
                // Bytes that were in flight have extended the session.
                self.paused_until_us = end_us;
                self.plan_brink_at(world, end_us);
            }
        }
        world.network.is_hasty = false;
    }

    /// Keeps the worker of a connection busy with requests.
    pub(crate) fn chatter(&mut self, world: &mut World) {
        let Some(lane) = self.pick_lane(world) else { return };
        for _ in 0..world.edge_random.between(2, CHATTER_MAX) {
            if self.lanes[lane].takes_requests() {
                self.ask_on(world, lane, Operation::KeepAlive);
            }
        }
    }
}
