//! The acts of a client on its holds: it renews and releases them, and gives up holds whose local deadline
//! has passed.

use super::belief::HoldView;
use super::{Client, remember};
use crate::operation::Operation;
use crate::world::World;
use waymaker_protocol::LockId;

/// Time after the end of an abandoned hold at which its client checks that it has ended.
const ABANDONED_US: u64 = 100_000;

impl Client {
    /// Gives up holds whose local deadline has passed.
    pub(super) fn give_up_what_is_over(&mut self, world: &mut World) {
        let now_us = world.now_us;
        let session_deadline_us = self.session.map_or(0, |session| session.deadline_us);
        let over = |held: &HoldView| held.deadline_us(session_deadline_us) <= now_us;
        let ids: Vec<LockId> = self.holds.iter().filter(|(_, held)| over(held)).map(|(id, _)| *id).collect();
        for id in ids {
            if self.holds.get(&id).is_some_and(|held| held.is_session_lease) {
                self.regrets.push(id);
            }
            self.forget(world, id);
        }
        if self.can_ask() {
            for id in std::mem::take(&mut self.regrets) {
                self.ask(world, Operation::Release { id, forged: false, own: false });
            }
        }
    }

    pub(super) fn forget(&mut self, world: &mut World, id: LockId) {
        self.holds.remove(&id);
        world.auditor.doubts(id);
        remember(&mut self.old_ids, id);
    }

    /// Returns the holds that have the lease of the session.
    pub(super) fn holds_on_session(&self) -> Vec<LockId> {
        self.holds.iter().filter(|(_, held)| held.is_session_lease).map(|(id, _)| *id).collect()
    }

    /// Sends all renewals that are due.
    pub(super) fn renew(&mut self, world: &mut World) {
        let now_us = world.now_us;
        if let Some(session) = &mut self.session
            && session.renew_at_us <= now_us
        {
            session.renew_at_us = now_us + u64::from(session.lease_ms) * 1000 / 3;
            self.ask(world, Operation::KeepAlive);
        }
        let due = |held: &HoldView| held.renew_at_us.is_some_and(|at_us| at_us <= now_us);
        let ids: Vec<(LockId, u32)> =
            self.holds.iter().filter(|(_, held)| due(held)).map(|(id, held)| (*id, held.lease_ms)).collect();
        for (id, lease_ms) in ids {
            self.extend(world, id, lease_ms);
        }
    }

    pub(super) fn extend(&mut self, world: &mut World, id: LockId, lease_ms: u32) {
        let given_ms = world.settings.given_lease_ms(lease_ms);
        if let Some(held) = self.holds.get_mut(&id) {
            held.note_extend_sent(world.now_us, given_ms);
            self.tell_belief(world, id);
        }
        self.ask(world, Operation::Extend { id, lease_ms, own: false });
    }

    /// Gives a hold with a long lease a short one, and lets it expire.
    pub(super) fn abandon(&mut self, world: &mut World) {
        let long_us = world.now_us + 2 * ABANDONED_US;
        let lasts =
            |held: &HoldView| !held.is_session_lease && !held.is_endless() && held.own_deadline_us > long_us;
        let ids: Vec<LockId> = self.holds.iter().filter(|(_, held)| lasts(held)).map(|(id, _)| *id).collect();
        let Some(id) = world.random.pick(&ids) else { return };
        if let Some(held) = self.holds.get_mut(&id) {
            held.renew_at_us = None;
        }
        let lease_ms = world.random.spread(10, 200) as u32;
        self.extend(world, id, lease_ms);
        remember(&mut self.abandoned, (world.now_us + u64::from(lease_ms) * 1000 + ABANDONED_US, id));
    }

    /// Checks that abandoned holds have ended.
    pub(super) fn look_after_abandoned(&mut self, world: &mut World) {
        while self.can_ask()
            && let Some((_, id)) = self.abandoned.pop_front_if(|(at_us, _)| *at_us <= world.now_us)
        {
            self.ask(world, Operation::Status { id });
        }
    }

    /// Tells the auditor how long this client relies on a hold, or that it does not rely on it.
    pub(super) fn tell_belief(&mut self, world: &mut World, id: LockId) {
        let session_deadline_us = self.session.map_or(0, |session| session.deadline_us);
        match self.holds.get(&id) {
            Some(held) if held.is_confirmed && !self.lost_extends.contains(&id) => {
                world.auditor.believes(id, held.deadline_us(session_deadline_us), world.now_us);
            }
            _ => world.auditor.doubts(id),
        }
    }

    pub(super) fn release(&mut self, world: &mut World, id: LockId) {
        self.forget(world, id);
        if self.can_ask() {
            self.ask(world, Operation::Release { id, forged: false, own: false });
        } else {
            self.regrets.push(id);
        }
    }

    pub(super) fn give_back_everything(&mut self, world: &mut World) {
        let ids: Vec<LockId> = self.holds.keys().copied().collect();
        for id in ids {
            self.release(world, id);
        }
    }

    pub(super) fn next_renewal_us(&self) -> u64 {
        let holds = self.holds.values().filter_map(|held| held.renew_at_us).min();
        let session = self.session.map(|session| session.renew_at_us);
        holds.into_iter().chain(session).min().unwrap_or(u64::MAX)
    }
}
