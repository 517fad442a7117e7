//! Connections that are lost and come back, and sessions that end.

use super::{LANE_COUNT, Mail, Run, SHARD_COUNT, WORKER_COUNT};
use crate::random::Dice;
use waymaker_engine::{LaneAddress, LaneSlot};
use waymaker_log::SessionTag;

/// A connection with a session of its own.
pub(super) struct Lane {
    pub(super) address: LaneAddress,
    pub(super) is_open: bool,
    /// Number of sessions that this slot had before.
    session: u64,
    /// The order in which the worker sends news of this lane to the shards.
    shards: [u16; SHARD_COUNT],
}

impl Lane {
    pub(super) fn new(slot: usize, dice: &mut Dice) -> Self {
        let worker = (slot % WORKER_COUNT) as u16;
        Self {
            address: LaneAddress { worker, slot: LaneSlot(slot as u32), generation: 1 },
            is_open: true,
            session: 0,
            shards: dice.pick(&[[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]),
        }
    }

    pub(super) fn tag(&self) -> SessionTag {
        let slot = self.address.slot.0;
        SessionTag {
            place: 1,
            secret: u64::from(slot) << 32 | self.session,
            lease_ms: 1000,
            lane: slot as u16,
        }
    }
}

impl Run {
    /// Loses a connection, brings it back, or ends its session.
    pub(super) fn change_lane(&mut self, lane: usize) {
        if !self.is_idle(lane % WORKER_COUNT) {
            return;
        }
        let is_end = self.dice.percent(15);
        let Lane { address, is_open, session, shards } = &mut self.lanes[lane];
        let old = *address;
        let mail: fn(LaneAddress) -> Mail = match *is_open {
            _ if is_end => Mail::Closed,
            true => Mail::Detached,
            false => Mail::Attached,
        };
        let mails = shards.map(|shard| (shard, mail(old)));
        if is_end {
            // Another client takes the slot.
            address.generation += 1;
            *session += 1;
            *is_open = true;
        } else {
            *is_open = !*is_open;
        }
        self.workers[usize::from(old.worker)].sending.extend(mails);
    }

    pub(super) fn tell_all(&mut self, mail: fn(LaneAddress) -> Mail) {
        for lane in 0..LANE_COUNT {
            let address = self.lanes[lane].address;
            self.mailboxes.iter_mut().for_each(|mailbox| mailbox.push_back(mail(address)));
        }
    }

    pub(super) fn addresses(&self) -> Vec<LaneAddress> {
        self.lanes.iter().map(|lane| lane.address).collect()
    }
}
