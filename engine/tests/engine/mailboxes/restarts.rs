//! Crashes and clean stops of the server, and restored state of the next server.

use super::requests::KEYS;
use super::{LANE_COUNT, Mail, Run, SHARD_COUNT, WORKER_COUNT, Worker};
use crate::accounts::Book;
use crate::node::{Node, Places};
use crate::recorder::Recorder;
use std::collections::{BTreeSet, VecDeque};
use waymaker_engine::{LaneAddress, LaneSlot};
use waymaker_log::{Image, SessionTag};

impl Run {
    /// A crash or a clean stop, and a start that restores all sessions.
    pub(super) fn restart(&mut self) {
        if self.dice.percent(30) {
            self.stop_cleanly();
        } else {
            let count = self.node.log.pending_count() as u64;
            self.node.log.crash(self.dice.below(count + 1) as usize);
            self.node.quorum.crash();
        }
        self.now += self.dice.pick(&[0, 1, 10]);
        self.restart_count += 1;
        self.effects = Recorder::default();
        let node_seed = self.seed * 1000 + self.restart_count;
        let mut node = Node::new(SHARD_COUNT as u16, self.character.limits, self.time(), node_seed);
        node.book = Book::of_seed(self.seed);
        std::mem::swap(&mut node.log, &mut self.node.log);
        std::mem::swap(&mut node.quorum, &mut self.node.quorum);
        // The disk never had the items that are still pending.
        node.log.crash(0);
        if self.dice.percent(40) {
            node.log.compact();
        }
        self.node = node;
        self.mailboxes.iter_mut().for_each(VecDeque::clear);
        self.workers.fill_with(Worker::default);
        self.auditor.restarted();
        for lane in &mut self.lanes {
            lane.address.generation += 1;
            lane.is_open = false;
        }
        self.restore();
    }

    fn restore(&mut self) {
        let elapsed_ms = self.now - self.started_at;
        self.started_at = self.now;
        let image = self.node.log.restart(1, self.time(), elapsed_ms);
        self.set_ready();
        let (lanes, restart_count) = (&self.lanes, self.restart_count);
        let shard_of =
            |_: u16, key: &[u8]| KEYS.iter().find(|(known, _)| *known == key).map_or(2, |(_, shard)| *shard);
        let lane_of = |session: &SessionTag| {
            let lane = lanes.iter().find(|lane| lane.tag() == *session);
            Some(lane.map_or_else(|| abandoned(session, restart_count), |lane| lane.address))
        };
        let places = Places { shard_of: &shard_of, lane_of: &lane_of };
        self.node.restore(&image, &places, &mut self.effects);
        self.node.verify();
        self.end_turn(0);
        self.end_abandoned(&image);
    }

    /// Ends the restored sessions that no client has any more.
    fn end_abandoned(&mut self, image: &Image) {
        let is_known = |session: &SessionTag| self.lanes.iter().any(|lane| lane.tag() == *session);
        let sessions = image.holds().filter_map(|hold| hold.session).filter(|session| !is_known(session));
        let addresses: BTreeSet<_> =
            sessions.map(|session| abandoned(&session, self.restart_count)).collect();
        for address in addresses {
            let mails = (0..SHARD_COUNT as u16).map(|shard| (shard, Mail::Closed(address)));
            self.workers[usize::from(address.worker)].sending.extend(mails);
        }
    }

    fn stop_cleanly(&mut self) {
        self.quiesce();
        let now = self.time();
        self.node.stop_cleanly(now, now, &mut self.effects);
        self.check_log(true);
        self.node.log.stop(now);
    }
}

/// The lane of a restored session that no client has any more.
fn abandoned(session: &SessionTag, restart_count: u64) -> LaneAddress {
    let slot = u32::from(session.lane);
    let used = LANE_COUNT as u32 * (1 + session.secret as u32);
    LaneAddress {
        worker: slot as u16 % WORKER_COUNT as u16,
        slot: LaneSlot(used + slot),
        generation: restart_count as u32,
    }
}
