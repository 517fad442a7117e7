//! The acts that a client chooses.

use super::Client;
use super::lane::Lane;
use crate::operation::{Acquire, Listing, Operation};
use crate::world::World;
use std::collections::VecDeque;
use waymaker_protocol::{LockId, NamespaceKind};

impl Client {
    /// Performs one act of the client's choice.
    pub(super) fn choose(&mut self, world: &mut World) {
        if world.random.percent(world.settings.fault_percent) {
            return self.suffer(world);
        }
        let operator_percent = world.settings.mix.operator_percent;
        if operator_percent > 0 && world.random.percent(operator_percent) {
            return self.operate(world);
        }
        if world.settings.mix.drops && world.random.once_in(12) {
            return self.ask_and_drop(world);
        }
        if self.can_ask()
            && let Some(prey) = world.prey.pop_if(|prey| prey.kind == self.kind)
        {
            if let Operation::Extend { id, .. } = prey.operation {
                world.rivals.push((prey.process, id));
            }
            return self.ask(world, prey.operation);
        }
        let waiting = self.lanes.iter().map(Lane::waiting_count).sum::<usize>();
        match world.random.below(100) {
            0..=89 if self.choose_without_queue(world) => {}
            0..=44 if waiting < world.settings.mix.waiting_count_max => {
                let acquire = self.choose_acquire(world);
                self.ask(world, Operation::Acquire(acquire));
            }
            0..=64 => {
                let keep_percent = world.settings.mix.keep_percent;
                if keep_percent > 0 && world.random.percent(keep_percent) {
                    self.extend_some(world);
                } else if let Some(id) = self.pick_hold(world) {
                    self.release(world, id);
                }
            }
            65..=66 => self.abandon(world),
            67..=71 => self.extend_some(world),
            72..=79 => self.cancel(world),
            80..=82 => {
                if let Some(id) = self.pick_hold(world) {
                    self.ask(world, Operation::Status { id });
                }
            }
            83..=87 => self.look(world),
            88..=89 => self.list(world),
            90..=91 => self.ask(world, Operation::KeepAlive),
            92..=93 => {
                // Requests for an ended claim must find nothing.
                if let Some(id) = pick(&self.old_ids, world) {
                    let operation = match world.random.below(3) {
                        0 => Operation::Status { id },
                        1 => Operation::Extend { id, lease_ms: 500, own: false },
                        _ => Operation::Release { id, forged: false, own: false },
                    };
                    self.ask(world, operation);
                }
            }
            94..=95 => self.forge(world),
            96 => {
                if let Some(id) = self.pick_foreign(world) {
                    let lease_ms = world.settings.clone().choose_lease_ms(&mut world.random);
                    let steals = world.random.once_in(2);
                    // With `own`, the client acts as if it had the claim before another request took it up.
                    let own = world.random.once_in(2);
                    let operation = if steals {
                        Operation::Release { id, forged: false, own }
                    } else {
                        Operation::Extend { id, lease_ms, own }
                    };
                    self.ask(world, operation);
                }
            }
            97..=98 if self.lanes.len() < 2 => {
                let lane = self.new_lane(world);
                self.lanes.push(lane);
            }
            _ => {}
        }
    }

    pub(super) fn choose_acquire(&mut self, world: &mut World) -> Acquire {
        let (settings, unix_us) = (world.settings.clone(), world.unix_us());
        let has_session = self.session.is_some();
        let acquire = settings.choose_acquire(&mut world.random, self.kind, has_session, unix_us);
        if settings.mix.shares_owners { self.as_owner(world, acquire) } else { acquire }
    }

    /// Sets another lease for one of the client's holds.
    fn extend_some(&mut self, world: &mut World) {
        if let Some(id) = self.pick_hold(world) {
            let lease_ms = world.settings.clone().choose_lease_ms(&mut world.random);
            self.extend(world, id, lease_ms);
        }
    }

    /// Begins to list everything held in the namespace, or the pools of the namespace.
    fn list(&mut self, world: &mut World) {
        self.walk_count += 1;
        let is_whole = self.kind == NamespaceKind::Tree || world.random.once_in(2);
        let prefix = (!is_whole).then(|| self.some_key(world));
        let count_max = world.random.pick(&[0, 1, 2, 3]).unwrap_or(0);
        let listing = Listing { walk: self.walk_count, kind: self.kind, cursor: 0, count_max, prefix };
        let lists_pools = self.kind == NamespaceKind::Pool && self.walk_count.is_multiple_of(2);
        self.ask(world, if lists_pools { Operation::ListPools(listing) } else { Operation::List(listing) });
    }

    /// Picks one of the client's own holds.
    pub(super) fn pick_hold(&self, world: &mut World) -> Option<LockId> {
        let ids: Vec<LockId> = self.holds.keys().copied().collect();
        world.random.pick(&ids)
    }

    /// Picks a hold of another client to extend or release it.
    pub(super) fn pick_foreign(&mut self, world: &mut World) -> Option<LockId> {
        let id = pick(&self.foreign_ids, world)?;
        self.meddled.insert(id);
        Some(id)
    }

    fn cancel(&mut self, world: &mut World) {
        for lane in 0..self.lanes.len() {
            if !self.lanes[lane].takes_requests() {
                continue;
            }
            let waiting = self.lanes[lane].waiting();
            if let Some((acquire, key)) = world.random.pick(&waiting) {
                self.ask_on(world, lane, Operation::Cancel { acquire, key });
                return;
            }
        }
    }

    /// Sends a request with an id that names nothing: the secret or the generation is wrong.
    fn forge(&mut self, world: &mut World) {
        if let Some(mut id) = self.pick_hold(world) {
            // After a restart, an id with another generation could name a restored hold, so the secret is
            // changed.
            if world.settings.durability.is_some() || world.random.once_in(2) {
                id.secret ^= 1 << world.random.below(64);
            } else {
                id.place ^= 1 << (32 + world.random.below(16));
            }
            self.ask(world, Operation::Release { id, forged: true, own: false });
        }
    }
}

fn pick(ids: &VecDeque<LockId>, world: &mut World) -> Option<LockId> {
    let ids: Vec<LockId> = ids.iter().copied().collect();
    world.random.pick(&ids)
}
