//! What a client does because of the kind of its namespace, and what operators and watchers do.

use super::Client;
use super::lane::Stage;
use crate::operation::{Key, Operation};
use crate::world::World;
use waymaker_protocol::{LockId, NamespaceKind};

/// How long a client that leaves waits before it takes back again what keeps others waiting.
const AGAIN_US: u64 = 300_000;

impl Client {
    /// A key of its namespace.
    fn some_key(&self, world: &mut World) -> Key {
        let settings = world.settings.clone();
        match self.kind {
            NamespaceKind::Flat => settings.choose_key(&mut world.random),
            NamespaceKind::Tree => crate::mix::TREE,
            NamespaceKind::Pool => settings.mix.choose_pool(&mut world.random),
            NamespaceKind::Registry | NamespaceKind::Lazy | NamespaceKind::Limit => {
                settings.mix.choose_entry(self.kind, &mut world.random)
            }
        }
    }

    /// Asks who holds a key.
    pub(super) fn look(&mut self, world: &mut World) {
        let key = self.some_key(world);
        let operation = match self.kind {
            NamespaceKind::Pool => Operation::Describe { pool: key },
            _ => Operation::Inspect { key },
        };
        self.ask(world, operation);
    }

    /// One act in a namespace without queues. False in the others.
    pub(super) fn choose_without_queue(&mut self, world: &mut World) -> bool {
        let settings = world.settings.clone();
        match self.kind {
            NamespaceKind::Limit => {
                let taking = settings.mix.choose_taking(&mut world.random);
                self.ask(world, Operation::Take(taking));
            }
            NamespaceKind::Registry | NamespaceKind::Lazy => {
                let key = self.some_key(world);
                let operation = match world.random.below(10) {
                    0..=5 => {
                        self.value += 1;
                        let value = self.value;
                        Operation::Register(settings.mix.choose_registering(key, value, &mut world.random))
                    }
                    6..=7 => Operation::Unregister { key },
                    _ => Operation::LookUp { key },
                };
                self.ask(world, operation);
            }
            NamespaceKind::Flat | NamespaceKind::Tree | NamespaceKind::Pool => return false,
        }
        true
    }

    /// One act of an operator, or of somebody who only wants to know.
    pub(super) fn operate(&mut self, world: &mut World) {
        if self.kind == NamespaceKind::Limit {
            return;
        }
        let key = self.some_key(world);
        match world.random.below(12) {
            0..=2 => self.watch(world, key),
            3 => {
                let watches: Vec<(usize, u32, Key)> = self.watches.iter().copied().collect();
                if let Some((lane, watch, key)) = world.random.pick(&watches)
                    && self.lanes.get(lane).is_some_and(|lane| matches!(lane.stage, Stage::Open))
                {
                    self.watches.retain(|(_, other, _)| *other != watch);
                    self.ask_on(world, lane, Operation::Unwatch { watch, key });
                }
            }
            4 if world.settings.mix.freezes => {
                let all = self.kind != NamespaceKind::Flat || world.random.once_in(2);
                let thaw = world.random.once_in(2);
                let prefix = (!all).then_some(key);
                self.ask(world, Operation::Freeze { kind: self.kind, prefix, thaw });
            }
            5 => {
                if let Some(id) = super::pick(&self.foreign_ids, world) {
                    self.ask(world, Operation::ForceRelease { id });
                }
            }
            6 => {
                let ids: Vec<LockId> = self.holds.keys().copied().collect();
                if let Some(id) = world.random.pick(&ids) {
                    self.ask(world, Operation::ForceRelease { id });
                }
            }
            7..=8 if self.kind == NamespaceKind::Pool && world.settings.mix.resizes => {
                let mix = world.settings.mix.clone();
                let capacity = mix.choose_capacity(key, &mut world.random);
                self.ask(world, Operation::SetCapacity { pool: key, capacity });
            }
            7..=8 => {
                let fence = world.auditor.newest_fence(key).saturating_sub(world.random.below(2));
                if matches!(self.kind, NamespaceKind::Flat | NamespaceKind::Pool) {
                    self.ask(world, Operation::Verify { key, fence });
                }
            }
            9..=10 => self.list_holds(world),
            _ => self.look(world),
        }
    }

    fn watch(&mut self, world: &mut World, key: Key) {
        let open: Vec<usize> =
            (0..self.lanes.len()).filter(|lane| matches!(self.lanes[*lane].stage, Stage::Open)).collect();
        if matches!(self.kind, NamespaceKind::Tree | NamespaceKind::Pool) {
            return;
        }
        if let Some(lane) = world.random.pick(&open) {
            let number = self.ask_on(world, lane, Operation::Watch { key });
            super::remember_watch(&mut self.watches, (lane, number, key));
        }
    }

    /// Asks for all the holds of a lane, if it is not asking already.
    pub(super) fn list_holds(&mut self, world: &mut World) {
        for lane in 0..self.lanes.len() {
            let is_asking =
                self.lanes[lane].pending.values().any(|one| matches!(one.operation, Operation::Holds { .. }));
            let is_open = matches!(self.lanes[lane].stage, Stage::Open);
            if is_open && !is_asking && !matches!(self.kind, NamespaceKind::Limit) {
                self.ask_on(world, lane, Operation::Holds { cursor: 0 });
            }
        }
    }

    /// Takes back, before it leaves, what it may have done to everybody, again and again: some of it may still be on its way.
    pub(super) fn clean_up(&mut self, world: &mut World) {
        if world.now_us < self.cleans_at_us || !self.has_open_lane() {
            return;
        }
        self.cleans_at_us = world.now_us + AGAIN_US;
        let mix = world.settings.mix.clone();
        if mix.freezes && mix.operator_percent > 0 && self.kind != NamespaceKind::Limit {
            self.ask(world, Operation::Freeze { kind: self.kind, prefix: None, thaw: true });
            if self.kind == NamespaceKind::Flat {
                for key in 0..world.settings.keys.len() as Key {
                    self.ask(world, Operation::Freeze { kind: self.kind, prefix: Some(key), thaw: true });
                }
            }
        }
        if matches!(self.kind, NamespaceKind::Registry | NamespaceKind::Lazy) {
            let kind = self.kind;
            for key in mix.named_keys().into_iter().filter(|key| crate::mix::kind_of(*key) == kind) {
                self.ask(world, Operation::Unregister { key });
            }
        }
    }
}
