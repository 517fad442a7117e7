//! The log thread of a simulated server and the keeper thread beside it. Both run the server's own code in
//! virtual time.

use super::contents;
use crate::disk::SimulatedDisk;
use crate::durability::Durability;
use crate::event::Event;
use crate::world::World;
use crossbeam_channel::Receiver;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use waymaker_engine::{Fence, Time};
use waymaker_log::limits::{
    LOG_COMPACT_RETRY_MS, LOG_COMPACT_SEGMENT_COUNT, LOG_LOOK_MS, LOG_NO_ROOM_RETRY_MS,
};
use waymaker_log::store::OpenOptions;
use waymaker_log::store::committer::{Committer, CommitterConfig, DiskStep, Outcome, Step};
use waymaker_log::store::errand::{Errand, Report};
use waymaker_log::store::writer::LogWriter;
use waymaker_log::{FileName, Image, SEGMENT_LEN_MIN, Started};
use waymaker_server::clock::Clock;
use waymaker_server::deferred::DeferredEffect;
use waymaker_server::delivery::{end_of, mails, post};
use waymaker_server::log::{LogBatch, LogOrder, LogPort, LogThreadConfig};
use waymaker_server::node::Node;
use waymaker_server::recovery::{ReadLog, RestoredLog};

/// Longest delay until the log thread wakes.
const WAKE_MAX_US: u64 = 60;
/// Longest pause of the log thread between a sync and its mail to the workers.
const TELL_MAX_US: u64 = 20_000;
/// Usual longest duration of an errand.
const ERRAND_MAX_US: u64 = 20_000;

/// Options with which a log is opened.
pub(super) const OPTIONS: OpenOptions =
    OpenOptions { segment_len: SEGMENT_LEN_MIN, log_id: 0x1d, accept_damage: false };

type BoxedError = Box<dyn std::error::Error>;

/// The way in which the log of one start of the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogEnd {
    /// Everything is durable, and the log can be closed.
    Closable,
    /// The disk failed, or was full for too long.
    Failed,
}

/// The log of one start of the server. Like `store::thread`, it carries out the steps of the committer. Each
/// step takes some time, and a crash may come between any two of them.
#[derive(Debug)]
pub(crate) struct SimulatedLog {
    start: u32,
    durability: Durability,
    started: Started,
    disk: SimulatedDisk,
    writer: LogWriter,
    committer: Committer<DeferredEffect>,
    orders: Receiver<LogOrder>,
    port: LogPort,
    /// The step that is under way.
    running: Option<DiskStep>,
    /// Time at which that step began, in microseconds.
    began_us: u64,
    /// Time at which all holds that may have been lost have expired; `None` once that is recorded.
    losses_end_at: Option<Time>,
    acts_at_us: Option<u64>,
    /// Batches whose waiters get mail when the thread runs again.
    untold: Option<(Vec<LogBatch>, Outcome)>,
    keeper: Keeper,
    batches: Batches,
    /// True if the log ends once the keeper has finished its errands.
    is_closing: bool,
    end: Option<LogEnd>,
}

/// The keeper thread beside the log, which makes and compacts segments.
#[derive(Debug, Default)]
struct Keeper {
    errands: VecDeque<Errand>,
    /// The report of a finished errand. The log gets it when the time of the errand has passed.
    report: Option<Option<Report>>,
}

/// Times of the batches that are not durable yet. They do not come from the committer, which may be wrong.
#[derive(Debug, Default)]
struct Batches {
    /// For each batch, the time of the thread's last look before it found the batch, and the time at which it
    /// found the batch.
    left_us: VecDeque<(u64, u64)>,
    looked_at_us: u64,
}

impl SimulatedLog {
    /// Reads the log on this disk for a server that starts now, on the current boot of the machine.
    pub(crate) fn read(
        world: &World,
        disk: &SimulatedDisk,
        (boot, accept_damage): (u64, bool),
        shard_count: usize,
    ) -> Result<ReadLog, BoxedError> {
        let storage = Arc::new(disk.clone());
        let options = OpenOptions { accept_damage, ..OPTIONS };
        let boot_id = u128::from(boot).to_le_bytes();
        Ok(ReadLog::read(storage, &options, boot_id, &*world.clock, shard_count)?)
    }

    /// Creates the thread of a log that was restored for this start of the server.
    pub(crate) fn new(
        world: &World,
        durability: Durability,
        disk: SimulatedDisk,
        start: u32,
        restored: RestoredLog,
    ) -> Self {
        let RestoredLog { config, port } = restored;
        let LogThreadConfig { mut writer, orders, losses_ms, .. } = config;
        if let Some(records_max) = durability.records_max {
            writer.limit_records(records_max);
        }
        let started = writer.started();
        let config = CommitterConfig {
            group_len_max: durability.group_len_max,
            ..CommitterConfig::new(&writer, Arc::clone(port.status()), losses_ms)
        };
        Self {
            start,
            durability,
            started,
            disk,
            committer: Committer::new(config, world.server_time()),
            writer,
            orders,
            port,
            running: None,
            began_us: world.now_us,
            losses_end_at: losses_ms.map(|wait_ms| world.server_time().after_ms(wait_ms)),
            acts_at_us: None,
            untold: None,
            keeper: Keeper::default(),
            batches: Batches::default(),
            is_closing: false,
            end: None,
        }
    }

    /// Starts the thread. The seed may let an operation of its disk fail.
    pub(super) fn begin(&mut self, world: &mut World) {
        let Durability { failure_percent, failure_before, .. } = self.durability;
        if !world.calm && world.random.percent(failure_percent) {
            let operation = self.disk.operations() + world.random.spread(1, failure_before);
            self.disk.fail_at(operation, ErrorKind::Other);
        }
        // The start has read all earlier records.
        let now_ms = world.server_ms();
        world.auditor.note_nothing_durable_since(now_ms);
        self.schedule(world, world.now_us + 1);
    }

    /// Returns the disk of the running server.
    pub(super) fn disk(&self) -> &SimulatedDisk {
        &self.disk
    }

    /// Wakes the thread if something was left for it.
    pub(crate) fn poke(&mut self, world: &mut World) {
        let is_busy = self.running.is_some() || self.untold.is_some();
        if !is_busy && self.end.is_none() && !self.orders.is_empty() {
            let at_us = world.now_us + world.random.between(1, WAKE_MAX_US);
            if self.acts_at_us.is_none_or(|acts_at_us| acts_at_us > world.now_us + WAKE_MAX_US) {
                self.schedule(world, at_us);
            }
        }
    }

    fn schedule(&mut self, world: &mut World, at_us: u64) {
        self.acts_at_us = Some(at_us);
        world.at(at_us, Event::Log(self.start));
    }

    /// Returns whether the log has something that is not durable yet.
    pub(super) fn has_undurable(&self) -> bool {
        !self.batches.left_us.is_empty() || !self.orders.is_empty()
    }

    /// Reports a violation if the log and the node differ. Nothing is compared unless everything is durable.
    pub(super) fn judge_contents(&self, world: &mut World, node: &Node) {
        if self.has_undurable() || self.running.is_some() || self.end.is_some() {
            return;
        }
        if let Err(difference) =
            contents::difference(&self.disk, &OPTIONS, node, self.started, contents::Stage::Serves)
        {
            world.auditor.accuse("log", || format!("log and memory differ: {difference}"));
        }
    }

    /// Reports a violation if a server that has just started differs from the image of its log.
    pub(super) fn judge_start(&self, world: &mut World, node: &Node, logged: Image) {
        let left: Vec<LogOrder> = self.orders.try_iter().collect();
        let floor = logged.floor();
        let batches = left.iter().filter_map(|order| match order {
            LogOrder::Batch(batch) => Some(batch),
            _ => None,
        });
        let mut judged = contents::difference_at_start(logged, node, self.started, batches);
        if judged.is_ok() && self.losses_end_at.is_some() {
            judged = contents::begins_above(&self.disk, &OPTIONS, self.started, Fence::new(floor.get()));
        }
        left.into_iter().for_each(|order| self.port.tell(order));
        if let Err(difference) = judged {
            world.auditor.accuse("start", || format!("log and memory differ after a start: {difference}"));
        }
    }

    /// Returns the way in which the log ended; `None` while it runs.
    pub(super) fn end(&self) -> Option<LogEnd> {
        self.end
    }

    /// Returns whether the log refuses new durable grants because its disk was full.
    pub(super) fn lacks_room(&self) -> bool {
        self.port.status().has_no_space()
    }

    /// Tells the log thread that no more records follow.
    pub(super) fn stop(&mut self, world: &mut World) {
        self.port.tell(LogOrder::Stop);
        self.poke(world);
    }

    /// Does everything that is due. Returns the workers that slept and have mail now.
    pub(crate) fn act(&mut self, world: &mut World, node: &Node) -> Vec<usize> {
        let mut wakes = Vec::new();
        if self.acts_at_us != Some(world.now_us) || self.end.is_some() {
            return wakes;
        }
        self.acts_at_us = None;
        if let Some(step) = self.running.take() {
            self.run(world, step);
        }
        if let Some((batches, outcome)) = self.untold.take() {
            wakes.append(&mut self.deliver(world, node, batches, outcome));
        }
        loop {
            self.receive(world);
            match self.committer.next(world.server_time()) {
                Step::Wait(Time::NEVER) => {
                    self.judge_wait(world, Time::NEVER);
                    return wakes;
                }
                Step::Wait(until) => {
                    self.judge_wait(world, until);
                    // The clock shows whole milliseconds. It shows this one from the beginning of that
                    // millisecond on.
                    let wait_ms = until.ms_since(world.server_time()).max(1);
                    self.schedule(world, (world.now_us / 1000 + wait_ms) * 1000);
                    return wakes;
                }
                Step::Disk(step) => {
                    self.running = Some(step);
                    self.began_us = world.now_us;
                    let takes_us = self.choose_us(world, step);
                    world.auditor.note_sync_time(takes_us.div_ceil(1_000));
                    self.schedule(world, world.now_us + takes_us);
                    return wakes;
                }
                Step::Deliver(batches, outcome) if self.tells_late(world) => {
                    self.untold = Some((batches, outcome));
                    let after_us = world.random.spread(100, TELL_MAX_US);
                    self.schedule(world, world.now_us + after_us);
                    return wakes;
                }
                Step::Deliver(batches, outcome) => {
                    wakes.append(&mut self.deliver(world, node, batches, outcome));
                }
                Step::Send(errand) => self.keeper.send(world, self.start, errand, &self.disk),
                Step::Close => {
                    self.is_closing = true;
                    self.judge_told(world);
                    self.end_if_idle();
                    return wakes;
                }
                Step::Fail(error) => {
                    let text = error.to_string();
                    world.trace.note(world.now_us, 17, 0, || format!("log       fails: {text}"));
                    self.end = Some(LogEnd::Failed);
                    self.judge_told(world);
                    return wakes;
                }
            }
        }
    }

    /// Notes that the keeper has finished an errand.
    pub(crate) fn keep(&mut self, world: &mut World) {
        let Some(report) = self.keeper.report.take() else { return };
        world
            .trace
            .note(world.now_us, 18, 0, || format!("log       receives the result of an errand: {report:?}"));
        if let Some(report) = report {
            self.port.tell(LogOrder::Report(report));
        }
        self.keeper.go_on(world, self.start, &self.disk);
        if self.is_closing {
            self.end_if_idle();
        } else {
            self.poke(world);
        }
    }

    fn run(&mut self, world: &mut World, step: DiskStep) {
        world.trace.note(world.now_us, 11, 0, || format!("log       {step:?}"));
        if step == DiskStep::EndLosses {
            self.losses_end_at = None;
        }
        if step != DiskStep::Sync {
            return self.committer.run(step, &mut self.writer, || world.clock.now());
        }
        // The thread may have been preempted for a part of the time.
        let took_ms = (world.now_us - self.began_us) / 1_000;
        let paused_ms = if world.calm { 0 } else { world.random.below(took_ms + 1) };
        // The pause comes after the first look at the clock, so only this look shows an earlier time.
        let is_read = Cell::new(false);
        self.committer.run(step, &mut self.writer, || {
            let early_ms = if is_read.replace(true) { 0 } else { paused_ms };
            Time::from_millis(world.clock.now().as_millis().saturating_sub(early_ms))
        });
        let synced_ms = world.server_ms() - paused_ms;
        world.auditor.note_synced(synced_ms);
    }

    /// Reports a violation if the thread sleeps past something that is due.
    fn judge_wait(&self, world: &mut World, until: Time) {
        let now = world.server_time();
        let wait_ms = until.ms_since(now);
        let is_keeper_idle = self.keeper.report.is_none() && self.keeper.errands.is_empty();
        let has_old_segments =
            self.writer.foldable().is_some_and(|old| old.segment_count >= LOG_COMPACT_SEGMENT_COUNT);
        let what = if self.losses_end_at.is_some_and(|end| end < until) {
            "the end of the wait for lost holds"
        } else if is_keeper_idle && self.lacks_room() && wait_ms > LOG_LOOK_MS.max(LOG_NO_ROOM_RETRY_MS) {
            "the next check whether a full disk has room"
        } else if self.writer.waits_for_room() && !self.lacks_room() {
            // Either the workers do not know that durable grants have to wait, or no grant has to wait.
            "frames that wait for room"
        } else if is_keeper_idle && until == Time::NEVER && !self.lacks_room() && !self.has_segments_ahead() {
            "the preallocation of segments"
        } else if is_keeper_idle && has_old_segments && wait_ms > LOG_COMPACT_RETRY_MS {
            "the compaction of old segments"
        } else {
            return;
        };
        world.auditor.accuse("log", || format!("the log sleeps from {now:?} to {until:?}, past {what}"));
    }

    /// Returns whether the next segment exists, and the reserve segment for a full disk.
    fn has_segments_ahead(&self) -> bool {
        [FileName::Spare, FileName::Reserve].iter().all(|file| self.disk.has_file(&file.to_string()))
    }

    /// Returns whether the thread is preempted between a sync and its mail to the workers.
    fn tells_late(&self, world: &mut World) -> bool {
        self.durability.tells_late && !world.calm && world.random.once_in(4)
    }

    /// Chooses the duration of a step. A crash during the step may undo it.
    fn choose_us(&self, world: &mut World, step: DiskStep) -> u64 {
        match step {
            DiskStep::Sync if world.calm => 20,
            DiskStep::Sync => self.durability.choose_sync_us(&mut world.random),
            // These steps write the superblock and sync it twice.
            DiskStep::Adopt(_) | DiskStep::EndLosses if !world.calm => world.random.spread(1, 50_000),
            _ => world.random.between(0, 3),
        }
    }

    fn receive(&mut self, world: &World) {
        while let Ok(order) = self.orders.try_recv() {
            if let LogOrder::Batch(_) = order {
                self.batches.left_us.push_back((self.batches.looked_at_us, world.now_us));
            }
            self.committer.obey(order, || world.clock.now());
        }
        self.batches.looked_at_us = world.now_us;
    }

    fn deliver(
        &mut self,
        world: &mut World,
        node: &Node,
        batches: Vec<LogBatch>,
        outcome: Outcome,
    ) -> Vec<usize> {
        let count = batches.len();
        world.trace.note(world.now_us, 10, count as u64, || {
            format!("log       reports {count} batches to workers: {outcome:?}")
        });
        let now_ms = world.server_ms();
        let found_us = self.batches.left_us.drain(..count).map(|(_, found_us)| found_us).max();
        if let Outcome::Durable(_) = outcome {
            let looked_at_us = self.batches.looked_at_us;
            let durable_us = self.batches.left_us.front().map_or(looked_at_us, |(after_us, _)| *after_us);
            let durable_ms = world.settings.server_ms(durable_us);
            world.auditor.note_durable(durable_ms, world.now_us);
            let found_ms = found_us.map(|found_us| world.settings.server_ms(found_us));
            found_ms.into_iter().for_each(|found_ms| world.auditor.note_nothing_durable_since(found_ms));
        } else {
            world.auditor.note_log_failed(now_ms);
        }
        let waiting = batches.into_iter().flat_map(|batch| batch.waiting);
        let mut wakes = Vec::new();
        post(node, mails(waiting, end_of(outcome)), |worker| wakes.push(usize::from(worker)));
        wakes
    }

    /// Checks that no batch is left when the log ends.
    fn judge_told(&self, world: &mut World) {
        let count = self.batches.left_us.len();
        if count > 0 {
            world
                .auditor
                .accuse("log", || format!("the log has ended, and {count} batches were never reported"));
        }
    }

    /// Marks the log as closable if the keeper does not use the directory any more.
    fn end_if_idle(&mut self) {
        if self.keeper.report.is_none() {
            self.end.get_or_insert(LogEnd::Closable);
        }
    }

    /// Closes the log of this node cleanly. Returns the disk, and whether the disk did not fail.
    pub(super) fn close(self, world: &mut World, node: &Node) -> (SimulatedDisk, bool) {
        if let Err(difference) =
            contents::difference(&self.disk, &OPTIONS, node, self.started, contents::Stage::Stops)
        {
            world.auditor.accuse("log", || format!("log and memory differ at a stop: {difference}"));
        }
        let closed = self.writer.close(|| world.clock.now(), |put| node.write_contents(put));
        (self.disk, closed.is_ok())
    }

    /// Returns the disk of a server that has ended.
    pub(crate) fn into_disk(self) -> SimulatedDisk {
        self.disk
    }
}

impl Keeper {
    fn send(&mut self, world: &mut World, start: u32, errand: Errand, disk: &SimulatedDisk) {
        self.errands.push_back(errand);
        self.go_on(world, start, disk);
    }

    /// Runs the next errand, if no errand is under way.
    fn go_on(&mut self, world: &mut World, start: u32, disk: &SimulatedDisk) {
        if self.report.is_some() {
            return;
        }
        let Some(errand) = self.errands.pop_front() else { return };
        world.trace.note(world.now_us, 19, 0, || format!("keeper    runs {errand:?}"));
        self.report = Some(errand.run(disk, SEGMENT_LEN_MIN));
        let takes_us = if world.calm { 20 } else { world.random.spread(20, ERRAND_MAX_US) };
        world.after(takes_us, Event::Keeper(start));
    }
}
