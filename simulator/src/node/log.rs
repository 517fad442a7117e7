//! The log thread of a simulated server, and the thread beside it.

use super::contents;
use crate::disk::SimulatedDisk;
use crate::durability::Durability;
use crate::world::{Event, World};
use crossbeam_channel::Receiver;
use std::collections::VecDeque;
use std::sync::Arc;
use waymaker_engine::log::{Image, SEGMENT_LEN_MIN, Started};
use waymaker_engine::{ReservedEnd, Time};
use waymaker_server::limits::{LOG_COMPACT_SEGMENT_COUNT, LOG_IDLE_MS};
use waymaker_server::log::port::{LogBatch, LogOrder, LogPort, LogStatus};
use waymaker_server::log::writer::LogWriter;
use waymaker_server::log::{CompactionPlan, Log, OpenOptions, keeper};
use waymaker_server::node::Node;
use waymaker_server::waiting::{mails, post};

/// How long the log thread takes to wake.
const WAKE_MAX_US: u64 = 60;
/// Batches of one group, at most: sometimes more is left than makes one.
const GROUP_COUNT_MAX: usize = 200;

const OPTIONS: OpenOptions = OpenOptions { segment_len: SEGMENT_LEN_MIN, log_id: 0x1d, accept_damage: false };

type Failed = Box<dyn std::error::Error>;

/// The log of one start of the server.
///
/// What `log::thread` does, one step an event: it takes what there is and writes it, then the sync takes its time, and
/// at its end all of it is durable at once. In between everything may be lost.
#[derive(Debug)]
pub(crate) struct SimulatedLog {
    start: u32,
    durability: Durability,
    started: Started,
    disk: SimulatedDisk,
    writer: LogWriter,
    status: Arc<LogStatus>,
    orders: Receiver<LogOrder>,
    inbox: VecDeque<LogBatch>,
    /// What is written and not synced, and when that was begun.
    syncing: Option<(Vec<LogBatch>, u64)>,
    acts_at_us: Option<u64>,
    needs_segments: bool,
    /// A snapshot is written and does not count yet.
    folded: Option<CompactionPlan>,
}

/// A log that was read, before anybody writes to it.
pub(crate) struct FoundLog {
    pub(crate) image: Image,
    pub(crate) port: LogPort,
    pub(crate) log: SimulatedLog,
}

impl SimulatedLog {
    /// Opens the log on this disk for a server that starts now on this boot of the machine.
    pub(crate) fn open(
        world: &World,
        durability: Durability,
        disk: SimulatedDisk,
        (start, boot): (u32, u64),
        shard_count: usize,
    ) -> Result<FoundLog, Failed> {
        let (log, mut image, _) = Log::open::<Image>(Arc::new(disk.clone()), &OPTIONS)?;
        let started = Started {
            boot_id: u128::from(boot).to_le_bytes(),
            now_ms: world.server_time().as_millis(),
            unix_ms: (world.unix_us() / 1000) as i64,
        };
        image.rebase(&started);
        let (port, orders) = LogPort::new(shard_count);
        let status = Arc::clone(port.status());
        let writer = LogWriter::start(log, Arc::clone(&status), started, &[], &*world.clock)?;
        let log = Self {
            start,
            durability,
            started,
            disk,
            writer,
            status,
            orders,
            inbox: VecDeque::new(),
            syncing: None,
            acts_at_us: None,
            needs_segments: true,
            folded: None,
        };
        Ok(FoundLog { image, port, log })
    }

    /// Something may have been left for it.
    pub(crate) fn poke(&mut self, world: &mut World) {
        if self.syncing.is_none() && !self.orders.is_empty() {
            let delay_us = world.random.between(1, WAKE_MAX_US);
            if self.acts_at_us.is_none_or(|at_us| at_us > world.now_us + delay_us) {
                self.schedule(world, delay_us);
            }
        }
    }

    fn schedule(&mut self, world: &mut World, delay_us: u64) {
        self.acts_at_us = Some(world.now_us + delay_us);
        world.after(delay_us, Event::Log(self.start));
    }

    /// Nothing is left for it to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.syncing.is_none() && self.inbox.is_empty() && self.orders.is_empty()
    }

    /// Does what is due. Says which workers slept and have mail now.
    pub(crate) fn act(&mut self, world: &mut World, node: &Node) -> Result<Vec<usize>, Failed> {
        if self.acts_at_us != Some(world.now_us) {
            return Ok(Vec::new());
        }
        self.acts_at_us = None;
        let wakes = match self.syncing.take() {
            Some((batches, begun_us)) => self.end_sync(world, node, batches, begun_us)?,
            None => {
                self.begin_sync(world)?;
                Vec::new()
            }
        };
        self.keep(world)?;
        if self.syncing.is_none() && self.inbox.is_empty() && self.orders.is_empty() {
            self.schedule(world, LOG_IDLE_MS * 1000);
        } else if self.syncing.is_none() {
            self.schedule(world, 1);
        }
        Ok(wakes)
    }

    fn begin_sync(&mut self, world: &mut World) -> Result<(), Failed> {
        self.receive();
        if self.inbox.is_empty() {
            self.writer.confirm(&*world.clock)?;
            return Ok(());
        }
        let count = self.inbox.len().min(GROUP_COUNT_MAX);
        let batches: Vec<LogBatch> = self.inbox.drain(..count).collect();
        self.writer.take(&batches)?;
        self.status.set_busy_since(world.server_time());
        self.needs_segments |= self.writer.write()?;
        let sync_us = if world.calm { 20 } else { self.durability.choose_sync_us(&mut world.random) };
        world.trace.note(world.now_us, 10, batches.len() as u64, || {
            format!("log       writes {} batches, and syncs for {sync_us} us", batches.len())
        });
        self.syncing = Some((batches, world.now_us));
        self.schedule(world, sync_us);
        Ok(())
    }

    fn end_sync(
        &mut self,
        world: &mut World,
        node: &Node,
        batches: Vec<LogBatch>,
        begun_us: u64,
    ) -> Result<Vec<usize>, Failed> {
        let at = self.writer.sync(&*world.clock)?;
        self.status.set_busy_since(Time::NEVER);
        world.trace.note(world.now_us, 11, at.as_millis(), || "log       is durable".to_owned());
        let (begun_ms, now_ms) = (world.settings.server_ms(begun_us), world.server_ms());
        world.auditor.note_synced(now_ms);
        // What came after the group was full was left before it was written, too.
        let has_all = self.inbox.is_empty();
        if has_all {
            world.auditor.note_durable(begun_ms);
        }
        let waiting = batches.into_iter().flat_map(|batch| batch.waiting);
        let mut wakes = Vec::new();
        post(node, mails(waiting, ReservedEnd::Begins(at)), |worker| wakes.push(usize::from(worker)));
        Ok(wakes)
    }

    fn receive(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            if let LogOrder::Batch(batch) = order {
                self.inbox.push_back(batch);
            }
        }
    }

    /// What the thread beside it does, in its own time.
    fn keep(&mut self, world: &mut World) -> Result<(), Failed> {
        if let Some(plan) = self.folded {
            if world.random.once_in(4) {
                self.folded = None;
                let dead = self.writer.compacted(&plan)?;
                keeper::remove(&self.disk, &dead)?;
            }
        } else if let Some((count, plan)) = self.writer.compaction_plan()
            && count >= LOG_COMPACT_SEGMENT_COUNT
            && world.random.once_in(4)
        {
            keeper::compact::<Image>(&self.disk, &plan)?;
            self.folded = Some(plan);
        }
        if self.needs_segments && world.random.once_in(4) {
            keeper::prepare(&self.disk, SEGMENT_LEN_MIN)?;
            self.needs_segments = false;
        }
        Ok(())
    }

    /// Ends the log of this node in order.
    pub(crate) fn close(mut self, world: &World, node: &Node) -> Result<SimulatedDisk, Failed> {
        self.receive();
        let batches: Vec<LogBatch> = self.inbox.drain(..).collect();
        self.writer.take(&batches)?;
        self.writer.flush(&*world.clock)?;
        contents::difference(&self.disk, &OPTIONS, node, self.started)?;
        self.writer.close(&*world.clock, |put| node.write_contents(put))?;
        Ok(self.disk)
    }

    /// The disk, when the server is gone.
    pub(crate) fn into_disk(self) -> SimulatedDisk {
        self.disk
    }
}
