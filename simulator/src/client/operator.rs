//! The acts of operators, and of clients that watch or inspect.

use super::Client;
use super::lane::Lane;
use crate::key::Key;
use crate::operation::Operation;
use crate::world::World;
use waymaker_protocol::NamespaceKind;
use waymaker_server::limits::EVERYWHERE_IN_FLIGHT_MAX;

/// Interval at which a leaving client repeats its reverting requests.
const AGAIN_US: u64 = 300_000;

impl Client {
    /// Performs one act of an operator, a watcher or an inspecting client.
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
                    && self.lanes.get(lane).is_some_and(Lane::takes_requests)
                {
                    self.watches.retain(|(_, other, _)| *other != watch);
                    self.ask_on(world, lane, Operation::Unwatch { watch, key });
                }
            }
            4 if world.settings.mix.freezes => {
                let all = self.kind != NamespaceKind::Flat || world.random.once_in(2);
                let thaw = world.random.once_in(2);
                let prefix = (!all).then_some(key);
                // The second request may find nothing left to change while the first change is not durable
                // yet.
                for _ in 0..world.random.between(1, 2) {
                    self.ask(world, Operation::Freeze { kind: self.kind, prefix, thaw });
                }
            }
            5 => {
                if let Some(id) = self.pick_foreign(world) {
                    self.ask(world, Operation::ForceRelease { id });
                }
            }
            6 => {
                if let Some(id) = self.pick_hold(world) {
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
                self.ask(world, Operation::Verify { key, fence });
            }
            9 => {
                let count_max = world.random.pick(&[0, 1, 2]).unwrap_or(0);
                // In some cases, sends more requests at once than a connection may have in flight.
                let count = if world.random.once_in(10) { 2 * EVERYWHERE_IN_FLIGHT_MAX } else { 1 };
                let Some(lane) = self.pick_lane(world) else { return };
                for _ in 0..count {
                    self.ask_on(world, lane, Operation::Namespaces { cursor: 0, count_max });
                }
            }
            10 => (0..self.lanes.len()).for_each(|lane| _ = self.list_holds(world, lane)),
            _ => self.look(world),
        }
    }

    fn watch(&mut self, world: &mut World, key: Key) {
        if matches!(self.kind, NamespaceKind::Tree | NamespaceKind::Pool) {
            return;
        }
        if let Some(lane) = self.pick_lane(world) {
            let number = self.ask_on(world, lane, Operation::Watch { key });
            super::remember(&mut self.watches, (lane, number, key));
        }
    }

    /// Lists all the holds of a lane, and returns whether a request was sent. No request is sent if the lane
    /// takes no requests or is being listed already.
    pub(super) fn list_holds(&mut self, world: &mut World, lane: usize) -> bool {
        let is_asking =
            self.lanes[lane].pending.values().any(|one| matches!(one.operation, Operation::Holds { .. }));
        let has_room = self.lanes[lane].takes_requests();
        let asks = has_room && !is_asking && !matches!(self.kind, NamespaceKind::Limit);
        if asks {
            self.ask_on(world, lane, Operation::Holds { cursor: 0 });
        }
        asks
    }

    /// Reverts changes that may affect all clients, before the client leaves. The requests are repeated,
    /// because earlier changes may still be in flight.
    pub(super) fn clean_up(&mut self, world: &mut World) {
        if world.now_us < self.cleans_at_us || !self.can_ask() {
            return;
        }
        self.cleans_at_us = world.now_us + AGAIN_US;
        if self.has_outlived_server {
            self.lanes.iter_mut().for_each(|lane| lane.reconciles = true);
        }
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
            for key in mix.named_keys().into_iter().filter(|key| crate::key::kind_of(*key) == kind) {
                self.ask(world, Operation::Unregister { key });
            }
        }
    }
}
