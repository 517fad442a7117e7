//! How a server begins and ends as a whole: it starts on what its disk has, crashes, or stops in order.

use super::log::{FoundLog, SimulatedLog};
use super::quorum::SimulatedQuorum;
use super::{Errands, Server, Shared, Thread, config};
use crate::auditor::Ending;
use crate::disk::{SimulatedDisk, Survival};
use crate::durability::Durability;
use crate::world::{Event, World};
use std::sync::Arc;
use waymaker_engine::Time;
use waymaker_server::mail::Mail;
use waymaker_server::node::{Node, shard_count};
use waymaker_server::quorum::port::QuorumPort;

/// How often a server that ends looks whether all is done.
const LOOK_US: u64 = 1_000;
/// How long it waits for that.
const FINISH_US: u64 = 3_000_000;
/// How long a machine has been up at most when a server starts on it.
const BOOT_MAX_MS: u64 = 3_000;
/// How long a server restores what its log has.
const RESTORE_MS: u64 = 40;

/// Where a server is between its start and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Up,
    /// It was told to stop in order.
    Stopping,
    /// Its workers end. It is given up at that time.
    Finishing {
        until_us: u64,
    },
    Down,
}

impl Stage {
    pub(super) fn is_up(self) -> bool {
        self == Self::Up
    }

    pub(super) fn accepts(self) -> bool {
        matches!(self, Self::Up | Self::Stopping)
    }
}

impl Server {
    /// A server begins, on what the disk has if there is one.
    pub(super) fn start(&mut self, world: &mut World) {
        let disk = self.disk.take();
        self.quorum = world.settings.cluster().map(|_| SimulatedQuorum::new(world, self.start));
        let port = self.quorum.as_ref().map(SimulatedQuorum::port);
        let made = match (world.settings.log(), disk) {
            (Some(durability), Some(disk)) => self.restore(world, durability, disk, port),
            _ => Ok((Node::new(&config(world, self.start, (None, port))), None)),
        };
        let (node, log) = match made {
            Ok(made) => made,
            Err(error) => {
                return world.auditor.accuse("start", || format!("the server does not start: {error}"));
            }
        };
        let now = world.server_time();
        let node = Arc::new(node);
        self.log = log;
        self.threads = (0..world.settings.worker_count)
            .map(|index| Thread::new(&node, index, self.start, now))
            .collect();
        let names = world.settings.sharded_names();
        self.shards = names.iter().map(|key| usize::from(node.shard_of_key(key))).collect();
        self.shards.sort_unstable();
        self.shards.dedup();
        self.node = Shared(node);
        self.stage = Stage::Up;
        for index in 0..self.threads.len() {
            self.threads[index].begin(world);
            world.after(1_000 * (1 + index as u64), Event::Housekeep(index, self.start));
        }
        if let Some(log) = &mut self.log {
            log.poke(world);
        }
        self.plan_disaster(world);
    }

    fn restore(
        &self,
        world: &World,
        durability: Durability,
        disk: SimulatedDisk,
        quorum: Option<QuorumPort>,
    ) -> Result<(Node, Option<SimulatedLog>), Box<dyn std::error::Error>> {
        let shard_count = shard_count(world.settings.worker_count);
        let found = SimulatedLog::open(world, durability, disk, (self.start, self.boot), shard_count)?;
        let FoundLog { image, port, log } = found;
        let mut node = Node::new(&config(world, self.start, (Some(port), quorum)));
        // Workers read the clock later.
        let begun_ms = world.server_time().as_millis().saturating_sub(RESTORE_MS);
        node.restore(&image, Time::from_millis(begun_ms))?;
        Ok((node, Some(log)))
    }

    fn plan_disaster(&self, world: &mut World) {
        if let Some(gap_us) = world.settings.durability.and_then(|durability| durability.disaster_us) {
            let after_us = world.random.between(1, 2 * gap_us);
            world.after(after_us, Event::Disaster);
        }
    }

    /// The log does something. Where its disk failed nobody is told anything any more.
    pub(super) fn run_log(&mut self, world: &mut World) -> Errands {
        let mut errands = Errands::default();
        let Some(log) = &mut self.log else { return errands };
        match log.act(world, &self.node.0) {
            Ok(wakes) => errands.wakes = wakes,
            Err(error) => world.auditor.accuse("log", || format!("the log fails: {error}")),
        }
        errands
    }

    /// The thread that asks the cluster does something, or hears from it.
    pub(super) fn run_quorum(&mut self, world: &mut World, event: Event) -> Errands {
        let mut errands = Errands::default();
        if let Some(quorum) = &mut self.quorum {
            errands.wakes = match event {
                Event::Quorum(start) if start == self.start => quorum.act(world, &self.node.0),
                Event::Counted(start, transaction) if start == self.start => {
                    quorum.hear(world, &self.node.0, transaction)
                }
                _ => Vec::new(),
            };
        }
        errands
    }

    /// It is time for the server to end, or to start again.
    pub(super) fn suffer(&mut self, world: &mut World) {
        let Some(durability) = world.settings.durability else { return };
        match self.stage {
            // What goes on calmly goes on to the end.
            Stage::Up if world.calm => {}
            Stage::Up if world.random.percent(durability.clean_percent) => {
                self.stop(world);
                self.stage = Stage::Stopping;
                let linger_us = world.random.spread(1_000, 1_000_000);
                world.after(linger_us, Event::Disaster);
            }
            Stage::Up => self.crash(world, durability),
            // Somebody is in a hurry.
            Stage::Stopping if world.random.once_in(4) => self.crash(world, durability),
            Stage::Stopping => {
                self.end_stalls(world);
                for thread in &mut self.threads {
                    thread.post(world, &self.node.0, Mail::Finish);
                }
                self.stage = Stage::Finishing { until_us: world.now_us + FINISH_US };
                world.after(LOOK_US, Event::Disaster);
            }
            Stage::Finishing { until_us } => {
                let is_done = self.threads.iter().all(Thread::is_idle)
                    && self.log.as_ref().is_none_or(SimulatedLog::is_idle)
                    && self.claim_count().is_some();
                if is_done {
                    self.end(world, durability);
                } else if world.now_us < until_us {
                    world.after(LOOK_US, Event::Disaster);
                } else {
                    self.crash(world, durability);
                }
            }
            Stage::Down => self.start_again(world, durability),
        }
    }

    /// The process, or the whole machine, is gone from one moment to the next.
    fn crash(&mut self, world: &mut World, durability: Durability) {
        let loses_power = world.random.percent(durability.power_percent);
        world.trace.note(world.now_us, 12, u64::from(loses_power), || {
            let what = if loses_power { "machine loses its power" } else { "process is killed" };
            format!("server    crashes: the {what}")
        });
        let Some(log) = self.log.take() else {
            return self.go_down(world, durability, Ending::Loss);
        };
        let loses_disk =
            durability.cluster.is_some_and(|cluster| world.random.percent(cluster.disk_loss_percent));
        if loses_disk {
            world.trace.note(world.now_us, 16, 0, || "server    has an empty disk".to_owned());
            self.disk = Some(SimulatedDisk::default());
            return self.go_down(world, durability, Ending::Loss);
        }
        let state = log.into_disk().state();
        self.disk = Some(if loses_power {
            let survival = Survival {
                pieces: [0, u64::MAX, world.random.any()][world.random.below(3) as usize],
                torn_sectors: world.random.below(8) as usize,
                name_changes: world.random.below(state.unsynced_names() as u64 + 1) as usize,
            };
            SimulatedDisk::new(state.crash(survival))
        } else {
            SimulatedDisk::new(state)
        });
        self.go_down(world, durability, Ending::Crash);
    }

    /// The last words of a server that stops in order.
    fn end(&mut self, world: &mut World, durability: Durability) {
        world.trace.note(world.now_us, 13, 0, || "server    ends in order".to_owned());
        let Some(log) = self.log.take() else {
            return self.go_down(world, durability, Ending::Loss);
        };
        self.node.0.record_ephemeral();
        match log.close(world, &self.node.0) {
            Ok(disk) => self.disk = Some(disk),
            Err(error) => {
                return world.auditor.accuse("log", || format!("the log does not end: {error}"));
            }
        }
        self.go_down(world, durability, Ending::Clean);
    }

    fn go_down(&mut self, world: &mut World, durability: Durability, ending: Ending) {
        let now_ms = world.server_ms();
        world.auditor.note_end(now_ms, ending);
        self.quorum = None;
        self.threads.clear();
        self.stage = Stage::Down;
        for connection in 0..world.network.connections.len() {
            if !std::mem::replace(&mut world.network.connections[connection].server_done, true) {
                world.cut(connection);
                world.note_lost(connection);
                world.note_done(connection);
            }
        }
        let down_us = world.random.spread(1_000, durability.down_max_us);
        let (now_us, booted_ms) = (world.now_us, world.booted_ms());
        world.auditor.note_stall(now_us, down_us);
        world.trace.note(now_us, 14, booted_ms, || format!("server    is gone for {} ms", down_us / 1000));
        world.after(down_us, Event::Disaster);
    }

    fn start_again(&mut self, world: &mut World, durability: Durability) {
        self.start += 1;
        let is_rebooted = world.random.percent(durability.reboot_percent);
        if is_rebooted {
            self.boot += 1;
            let ago_ms = world.random.between(1, BOOT_MAX_MS);
            world.boot(ago_ms);
        }
        if durability.changes_workers && !world.settings.is_forgetful {
            world.settings.worker_count = world.random.between(1, 4) as usize;
        }
        let (start, worker_count) = (self.start, world.settings.worker_count);
        world.trace.note(world.now_us, 15, u64::from(start), || {
            format!("server    starts again, with {worker_count} workers; rebooted: {is_rebooted}")
        });
        let (now_ms, booted_ms) = (world.server_ms(), world.booted_ms());
        world.auditor.note_start(now_ms, booted_ms, is_rebooted);
        self.start(world);
    }
}
