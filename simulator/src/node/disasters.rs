//! The start and the end of a whole server: it starts from the contents of its disk, crashes, or stops
//! cleanly.

use super::accounts::{KeptAccounts, set_access};
use super::damage::damage;
use super::log::{LogEnd, OPTIONS, SimulatedLog};
use super::quorum::SimulatedQuorum;
use super::{Errands, Server, Shared, Thread, config, contents};
use crate::auditor::Ending;
use crate::disk::{SimulatedDisk, Survival};
use crate::durability::Durability;
use crate::event::Event;
use crate::world::World;
use std::sync::Arc;
use waymaker_engine::Time;
use waymaker_server::clock::Clock;
use waymaker_server::limits::LOG_LAST_WORDS_MS;
use waymaker_server::mail::Mail;
use waymaker_server::node::{Node, shard_count};
use waymaker_server::quorum::port::QuorumPort;

/// Interval at which a stopping server checks whether its workers are done.
const LOOK_US: u64 = 1_000;
/// Time limit for the workers of a stopping server to finish.
const FINISH_US: u64 = 3_000_000;
/// Time limit for the end of the log of a stopping server, even if its disk fails.
const CLOSE_US: u64 = 60_000_000;
/// A crash is put off at most this many times, each time by at most `CRASH_PUT_OFF_US`, until the log has
/// something that is not durable.
const CRASH_PUT_OFF_MAX: u32 = 40;
const CRASH_PUT_OFF_US: u64 = 2_000;
/// Longest uptime of the machine when a server starts on it.
const BOOT_MAX_MS: u64 = 3_000;
/// Time that a server takes to restore the contents of its log.
const RESTORE_MS: u64 = 40;

/// Stage of a server between its start and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Up,
    /// The server stops cleanly.
    Stopping,
    /// The workers end. The server crashes if they have not ended at this time.
    Finishing {
        until_us: u64,
    },
    /// The log is being closed.
    Closing,
    /// The log has failed. Workers report this to all waiting clients, and then the process ends.
    Failing,
    Down,
}

impl Stage {
    pub(super) fn is_up(self) -> bool {
        self == Self::Up
    }

    pub(super) fn accepts(self) -> bool {
        matches!(self, Self::Up | Self::Stopping | Self::Failing)
    }
}

impl Server {
    /// Starts a server, from the contents of its disk if it has a log.
    pub(super) fn start(&mut self, world: &mut World) {
        self.quorum = world.settings.cluster().map(|_| SimulatedQuorum::new(world, self.start));
        if self.is_damaged && self.is_disk_full {
            // The valid part of a damaged log is copied to another file, which needs room.
            self.set_disk_full(world, false);
        }
        let made = match self.make(world) {
            Err(error) if self.is_disk_full => {
                // A server with an empty directory needs room on the disk.
                world.trace.note(world.now_us, 20, 0, || format!("server    does not start: {error}"));
                self.set_disk_full(world, false);
                self.make(world)
            }
            made => made,
        };
        let (node, log) = match made {
            Ok((mut node, log)) => {
                set_access(world, &mut node);
                (node, log)
            }
            Err(error) => {
                return world.auditor.accuse("start", || format!("the server does not start: {error}"));
            }
        };
        let now = world.server_time();
        let node = Arc::new(node);
        self.accounts = KeptAccounts::of(world, &node);
        self.log = log;
        self.disk = None;
        self.is_damaged = false;
        self.threads = (0..world.settings.worker_count)
            .map(|index| Thread::new(&node, index, self.start, now))
            .collect();
        let names = world.settings.sharded_names();
        self.shards = names.iter().map(|key| usize::from(node.shard_of_key(key))).collect();
        self.shards.sort_unstable();
        self.shards.dedup();
        self.node = Shared(node);
        self.stage = Stage::Up;
        self.verify_start(world);
        for index in 0..self.threads.len() {
            self.threads[index].begin(world);
            world.after(1_000 * (1 + index as u64), Event::Housekeep(index, self.start));
        }
        if let Some(log) = &mut self.log {
            log.begin(world);
        }
        if let Some(quorum) = &mut self.quorum {
            quorum.begin(world);
        }
        self.plan_disaster(world);
    }

    /// Creates a server from the contents of its disk. If that fails, the disk is unchanged.
    fn make(&self, world: &mut World) -> Result<(Node, Option<SimulatedLog>), Box<dyn std::error::Error>> {
        let port = self.quorum.as_ref().map(SimulatedQuorum::port);
        match (world.settings.log(), self.disk.clone()) {
            (Some(durability), Some(disk)) => self.restore(world, durability, disk, port),
            _ => Ok((Node::new(&config(world, self.start, (None, port))), None)),
        }
    }

    fn restore(
        &self,
        world: &mut World,
        durability: Durability,
        disk: SimulatedDisk,
        quorum: Option<QuorumPort>,
    ) -> Result<(Node, Option<SimulatedLog>), Box<dyn std::error::Error>> {
        let shard_count = shard_count(world.settings.worker_count);
        let read = SimulatedLog::read(world, &disk, (self.boot, self.is_damaged), shard_count)?;
        let logged = contents::image_to_restore(&disk, &OPTIONS)?;
        let losses_ms = read.losses_ms();
        let mut node = Node::new(&config(world, self.start, (Some(read.port.clone()), quorum)));
        // Workers read the clock later than the restore does.
        let restored_at =
            |clock: &dyn Clock| Time::from_millis(clock.now().as_millis().saturating_sub(RESTORE_MS));
        let restored = read.restore(&mut node, restored_at)?;
        let now_ms = world.server_ms();
        world.auditor.note_losses(now_ms, losses_ms);
        let log = SimulatedLog::new(world, durability, disk, self.start, restored);
        log.judge_start(world, &node, logged);
        Ok((node, Some(log)))
    }

    fn plan_disaster(&mut self, world: &mut World) {
        if let Some(gap_us) = world.settings.durability.and_then(|durability| durability.disaster_us) {
            let after_us = world.random.between(1, 2 * gap_us);
            self.schedule_disaster(world, after_us);
        }
    }

    fn schedule_disaster(&mut self, world: &mut World, after_us: u64) {
        self.disaster += 1;
        world.after(after_us, Event::Disaster(self.disaster));
    }

    /// Runs the log thread.
    pub(super) fn run_log(&mut self, world: &mut World) -> Errands {
        let mut errands = Errands::default();
        if let Some(log) = &mut self.log {
            errands.wakes = log.act(world, &self.node.0);
        }
        self.note_log_end(world);
        errands
    }

    /// Notes that the keeper thread beside the log has finished an errand.
    pub(super) fn keep_log(&mut self, world: &mut World) {
        if let Some(log) = &mut self.log {
            log.keep(world);
        }
        self.note_log_end(world);
    }

    /// Ends the server if its log has ended.
    fn note_log_end(&mut self, world: &mut World) {
        let Some(durability) = world.settings.durability else { return };
        match self.log.as_ref().and_then(SimulatedLog::end) {
            Some(LogEnd::Closable) => self.end(world, durability),
            Some(LogEnd::Failed) if self.stage == Stage::Closing => self.crash(world, durability),
            Some(LogEnd::Failed) if self.stage != Stage::Failing => {
                self.stage = Stage::Failing;
                self.schedule_disaster(world, LOG_LAST_WORDS_MS * 1000);
            }
            _ => {}
        }
    }

    /// Plans the next time at which the disk is full.
    pub(super) fn plan_disk(&mut self, world: &mut World) {
        if let Some((gap_us, _)) = world.settings.log().and_then(|durability| durability.full_us) {
            let after_us = world.random.between(1, 2 * gap_us);
            self.schedule_disk(world, after_us);
        }
    }

    fn schedule_disk(&mut self, world: &mut World, after_us: u64) {
        self.disk_change += 1;
        world.after(after_us, Event::Disk(self.disk_change));
    }

    /// Fills the disk, or frees it again.
    pub(super) fn change_disk(&mut self, world: &mut World) {
        if self.is_disk_full {
            self.set_disk_full(world, false);
            self.plan_disk(world);
        } else {
            self.fill_disk(world);
        }
    }

    /// Fills the disk for a while, if this run has such faults.
    fn fill_disk(&mut self, world: &mut World) {
        let full_us = world.settings.log().and_then(|durability| durability.full_us);
        let Some((_, full_max_us)) = full_us.filter(|_| !world.calm) else { return };
        self.set_disk_full(world, true);
        let full_us = world.random.spread(1_000, full_max_us);
        self.schedule_disk(world, full_us);
    }

    fn set_disk_full(&mut self, world: &mut World, is_full: bool) {
        self.is_disk_full = is_full;
        world.trace.note(world.now_us, 21, u64::from(is_full), || format!("disk      is full: {is_full}"));
        let now_ms = world.server_ms();
        world.auditor.note_disk_full(now_ms, is_full);
        if let Some(disk) = self.disk.as_ref().or(self.log.as_ref().map(SimulatedLog::disk)) {
            disk.set_full(is_full);
        }
    }

    /// Ends all faults of the disk: it has room, and no operation fails.
    pub(crate) fn end_disk_faults(&mut self, world: &mut World) {
        if self.is_disk_full {
            self.set_disk_full(world, false);
        }
        if let Some(disk) = self.disk.as_ref().or(self.log.as_ref().map(SimulatedLog::disk)) {
            disk.fail_no_more();
        }
    }

    /// Runs the thread that asks the cluster, or delivers a result to it.
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

    /// Ends the server, advances its end, or starts it again.
    pub(super) fn suffer(&mut self, world: &mut World) {
        let Some(durability) = world.settings.durability else { return };
        if self.stage.is_up() {
            self.judge_log(world);
        }
        match self.stage {
            // In the calm phase the server is not disturbed.
            Stage::Up if world.calm => {}
            Stage::Up if world.random.percent(durability.clean_percent) => {
                self.stop(world);
                self.stage = Stage::Stopping;
                let linger_us = world.random.spread(1_000, 1_000_000);
                self.schedule_disaster(world, linger_us);
            }
            Stage::Up => self.crash_soon(world, durability),
            // An operator may kill a stopping server.
            Stage::Stopping if world.random.once_in(4) => self.crash(world, durability),
            Stage::Stopping => {
                self.end_stalls(world);
                for thread in &mut self.threads {
                    thread.post(world, &self.node.0, Mail::Finish);
                }
                self.stage = Stage::Finishing { until_us: world.now_us + FINISH_US };
                self.schedule_disaster(world, LOOK_US);
            }
            Stage::Finishing { until_us } => {
                let is_done = self.threads.iter().all(Thread::is_idle) && self.claim_count().is_some();
                if is_done {
                    self.close(world, durability);
                } else if world.now_us < until_us {
                    self.schedule_disaster(world, LOOK_US);
                } else {
                    self.crash(world, durability);
                }
            }
            Stage::Closing => {
                if self.closes_until_us <= world.now_us {
                    world
                        .auditor
                        .accuse("stopping", || "the log of a stopping server did not end in time".to_owned());
                }
                self.crash(world, durability);
            }
            Stage::Failing => self.crash(world, durability),
            Stage::Down => self.start_again(world, durability),
        }
    }

    /// Compares the log with the node that it must restore, unless a turn is in transit.
    fn judge_log(&self, world: &mut World) {
        if let Some(log) = self.log.as_ref().filter(|_| self.claim_count().is_some()) {
            log.judge_contents(world, &self.node.0);
        }
    }

    /// Crashes, in most cases only once the log has something that is not durable and that the crash can
    /// lose.
    fn crash_soon(&mut self, world: &mut World, durability: Durability) {
        let waits = match self.put_off {
            0 => world.random.percent(75),
            count => count < CRASH_PUT_OFF_MAX,
        };
        if waits && self.log.as_ref().is_some_and(|log| !log.has_undurable()) {
            self.put_off += 1;
            let after_us = world.random.between(1, CRASH_PUT_OFF_US);
            return self.schedule_disaster(world, after_us);
        }
        self.put_off = 0;
        self.crash(world, durability);
    }

    /// Ends the process or the whole machine at once.
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
        self.leave_disk(world, durability, &log.into_disk(), loses_power);
    }

    /// Keeps the disk as it is, or without some of the unsynced data if the machine lost its power.
    fn leave_disk(
        &mut self,
        world: &mut World,
        durability: Durability,
        disk: &SimulatedDisk,
        loses_power: bool,
    ) {
        let state = disk.state();
        self.disk = Some(if loses_power {
            let survival = Survival {
                pieces: [0, u64::MAX, world.random.any()][world.random.below(3) as usize],
                torn_sectors: world.random.pick(&[0, 1, 1, 1, 2, 2, 3, 7]).unwrap_or(0),
                name_changes: world.random.below(state.unsynced_names() as u64 + 1) as usize,
            };
            SimulatedDisk::new(state.crash(survival))
        } else {
            SimulatedDisk::new(state)
        });
        if let Some(disk) = &self.disk {
            disk.set_full(self.is_disk_full);
        }
        let is_interrupted = self.stage == Stage::Closing;
        self.verify_disk(world);
        self.damage_disk(world, durability);
        let ending = match is_interrupted {
            _ if self.is_damaged => Ending::Damage,
            true => Ending::Interrupted,
            false => Ending::Crash,
        };
        self.go_down(world, durability, ending);
    }

    /// Damages a file of the log, if the seed chooses to.
    fn damage_disk(&mut self, world: &mut World, durability: Durability) {
        let has_registrations = world.settings.mix.has_registrations();
        if world.calm || has_registrations || !world.random.percent(durability.damage_percent) {
            return;
        }
        let state = self.disk.as_ref().map(SimulatedDisk::state);
        if let Some(state) = state.and_then(|state| damage(&state, &mut world.random)) {
            world.trace.note(world.now_us, 23, 0, || "disk      is damaged".to_owned());
            let disk = SimulatedDisk::new(state);
            disk.set_full(self.is_disk_full);
            self.disk = Some(disk);
            self.is_damaged = true;
        }
    }

    /// Begins to close the log of a stopping server, because its workers have ended.
    fn close(&mut self, world: &mut World, durability: Durability) {
        world.trace.note(world.now_us, 22, 0, || "server    has ended its workers".to_owned());
        self.end_workers(world);
        if self.log.is_none() {
            return self.go_down(world, durability, Ending::Loss);
        }
        self.stage = Stage::Closing;
        if world.random.once_in(4) {
            self.fill_disk(world);
            if self.is_disk_full && world.random.once_in(2) {
                self.schedule_disk(world, 2 * CLOSE_US);
            }
        }
        let Some(log) = &mut self.log else { return };
        self.node.0.record_ephemeral();
        log.stop(world);
        self.closes_until_us = world.now_us + CLOSE_US;
        // An operator may lose patience and kill the server.
        let after_us = if world.random.once_in(6) { world.random.spread(10, 2_000_000) } else { CLOSE_US };
        self.schedule_disaster(world, after_us);
    }

    /// Closes the log of a stopping server.
    fn end(&mut self, world: &mut World, durability: Durability) {
        let Some(log) = self.log.take() else { return };
        let (disk, is_closed) = log.close(world, &self.node.0);
        world
            .trace
            .note(world.now_us, 13, u64::from(is_closed), || format!("server    stops cleanly: {is_closed}"));
        if is_closed {
            disk.fail_no_more();
            self.disk = Some(disk);
            self.go_down(world, durability, Ending::Clean);
        } else {
            self.leave_disk(world, durability, &disk, false);
        }
    }

    fn end_workers(&mut self, world: &mut World) {
        self.quorum = None;
        self.threads.clear();
        self.forget_waiting();
        for connection in 0..world.network.connections.len() {
            if !std::mem::replace(&mut world.network.connections[connection].server_done, true) {
                world.cut(connection);
                world.note_lost(connection);
                world.note_done(connection);
            }
        }
    }

    fn go_down(&mut self, world: &mut World, durability: Durability, ending: Ending) {
        let now_ms = world.server_ms();
        world.auditor.note_end(now_ms, ending);
        self.stage = Stage::Down;
        self.end_workers(world);
        let down_us = world.random.spread(1_000, durability.down_max_us);
        let (now_us, booted_ms) = (world.now_us, world.booted_ms());
        world.auditor.note_stall(now_us, down_us);
        world.trace.note(now_us, 14, booted_ms, || format!("server    is down for {} ms", down_us / 1000));
        self.schedule_disaster(world, down_us);
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
        if world.random.once_in(4) {
            self.fill_disk(world);
        } else if self.is_disk_full && world.random.once_in(2) {
            self.change_disk(world);
        }
        let (now_ms, booted_ms) = (world.server_ms(), world.booted_ms());
        world.auditor.note_start(now_ms, booted_ms, is_rebooted);
        self.start(world);
    }
}
