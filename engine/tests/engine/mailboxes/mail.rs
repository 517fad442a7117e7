//! Messages between workers and shards, and the turns that serve them.

use super::auditor;
use super::{Run, SHARD_COUNT};
use crate::recorder::{Effect, FollowUp};
use std::collections::VecDeque;
use std::sync::Arc;
use waymaker_engine::multi_key::{self, MultiKeyClaim};
use waymaker_engine::{LaneAddress, Reserved, ReservedEnd, ReservedMultiKey};

/// A message to a shard.
pub(super) enum Mail {
    Detached(LaneAddress),
    Attached(LaneAddress),
    Closed(LaneAddress),
    Withdraw(Arc<MultiKeyClaim>),
    End(ReservedEnd, Reserved),
}

/// A message from the log or from the cluster.
pub(super) enum News {
    /// For a shard.
    Mail(u16, Mail),
    /// Needs the turns of several shards.
    MultiShard(ReservedEnd, Box<ReservedMultiKey>),
}

/// A thread of the server. It sends one message after the other, and other workers run in between.
#[derive(Default)]
pub(super) struct Worker {
    /// Messages of the action that this worker is carrying out.
    pub(super) sending: VecDeque<(u16, Mail)>,
    /// Messages from the log and from the cluster, which this worker passes on.
    pub(super) passing: VecDeque<News>,
    follow_ups: Vec<FollowUp>,
}

impl Run {
    /// Returns true if a worker has sent all messages of its last action.
    pub(super) fn is_idle(&self, worker: usize) -> bool {
        self.workers[worker].sending.is_empty()
    }

    /// Sends one message of the action that a worker is carrying out, if there is one.
    pub(super) fn send(&mut self, worker: usize) -> bool {
        let Some((shard, mail)) = self.workers[worker].sending.pop_front() else { return false };
        self.mailboxes[usize::from(shard)].push_back(mail);
        true
    }

    /// Passes on one message from the log or the cluster, if there is one.
    pub(super) fn pass(&mut self, worker: usize) -> bool {
        match self.workers[worker].passing.pop_front() {
            None => return false,
            Some(News::Mail(shard, mail)) => self.mailboxes[usize::from(shard)].push_back(mail),
            Some(News::MultiShard(end, together)) => {
                let shards: Vec<u16> = together.members.iter().map(|member| member.shard).collect();
                self.take_turns(&shards);
                self.node.end_multi_shard(end, together, &mut self.effects);
                self.end_turn(worker);
            }
        }
        true
    }

    /// Does one thing that needs several shards, if there is one.
    pub(super) fn follow_up(&mut self, worker: usize) -> bool {
        let Some(follow_up) = self.workers[worker].follow_ups.pop() else { return false };
        match follow_up {
            FollowUp::Withdraw(claim) => {
                let mails = claim.shards().iter().map(|shard| (*shard, Mail::Withdraw(Arc::clone(&claim))));
                self.workers[worker].sending.extend(mails);
            }
            FollowUp::Recheck(claim) => {
                self.take_turns(claim.shards());
                let mut participants = self.node.participants(claim.shards(), None);
                multi_key::recheck(&mut participants, &claim, &mut self.effects);
                self.end_turn(worker);
            }
        }
        true
    }

    /// Begins turns that serve all the mail of these shards first, as every turn over several shards does.
    pub(super) fn take_turns(&mut self, shards: &[u16]) {
        for shard in shards {
            self.serve(usize::from(*shard), usize::MAX);
        }
    }

    pub(super) fn serve_some(&mut self, worker: usize) {
        let shard = self.dice.below(SHARD_COUNT as u64) as usize;
        let count = 1 + self.dice.below(3) as usize;
        self.serve(shard, count);
        self.end_turn(worker);
    }

    /// Begins a turn of one shard and serves up to `count` messages.
    pub(super) fn serve(&mut self, shard: usize, count: usize) {
        let now = self.time();
        self.node.shards[shard].begin_turn(now, now, &mut self.effects);
        for _ in 0..count {
            let Some(mail) = self.mailboxes[shard].pop_front() else { break };
            self.deliver(shard, mail);
        }
    }

    fn deliver(&mut self, number: usize, mail: Mail) {
        if let Mail::Detached(lane) = mail {
            // Earlier messages of this turn may have granted.
            self.hear_all();
            self.auditor.lost(lane, number as u16);
        }
        let (shard, effects) = (&mut self.node.shards[number], &mut self.effects);
        match mail {
            Mail::Detached(lane) => shard.detach_lane(lane, effects),
            Mail::Attached(lane) => shard.attach_lane(lane, effects),
            Mail::Closed(lane) => shard.close_lane(lane, true, effects),
            Mail::Withdraw(claim) => shard.withdraw(&claim, effects),
            Mail::End(end, reserved) => shard.end_reservation(end, reserved, effects),
        }
    }

    /// Takes over the effects of the turns that a worker had.
    pub(super) fn end_turn(&mut self, worker: usize) {
        self.workers[worker].follow_ups.extend(self.effects.follow_ups.drain(..));
        let now = self.time();
        self.node.log.take(&mut self.effects, now);
        for question in std::mem::take(&mut self.effects.asked) {
            self.node.quorum.ask(question);
        }
        self.hear_all();
    }

    fn hear_all(&mut self) {
        for effect in std::mem::take(&mut self.effects.said) {
            self.hear(&effect);
        }
    }

    pub(super) fn hear(&mut self, effect: &Effect) {
        self.auditor.hear(effect, &self.node.log);
        self.known.extend(auditor::told_ids(effect));
    }
}
