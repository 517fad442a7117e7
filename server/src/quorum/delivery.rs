//! What becomes of a question that is over.

use super::counters::Settled;
use crate::log::port::LogBatch;
use crate::mail::Mail;
use crate::waiting::{Waiting, mails};
use waymaker_engine::log::Record;
use waymaker_engine::{QuorumMember, ReservedEnd, Time, WhenDurable};

/// Who has to hear of it next.
#[derive(Debug)]
pub enum Delivery {
    /// Workers.
    Workers(Vec<(u16, Mail)>),
    /// The log, where a grant has to be in it first.
    Log(LogBatch),
}

impl Delivery {
    /// Delivers a question that is over. With a log, a grant begins once the log says durably that the cluster counted it. Without
    /// that record a restart drops the grant.
    pub fn new(settled: Settled, has_log: bool, now: Time) -> Self {
        let Settled { question, fences } = settled;
        let mut members = question.members;
        let Some(fences) = fences else {
            return Self::Workers(mails(begin(members), ReservedEnd::NotCounted));
        };
        give_fences(&mut members, &fences);
        if !has_log {
            return Self::Workers(mails(begin(members), ReservedEnd::Begins(now)));
        }
        let mut batch = LogBatch::default();
        let counted = |member: &QuorumMember| Record::Counted { id: member.id, fence: member.reserved.fence };
        members.iter().for_each(|member| batch.add(&counted(member)));
        batch.waiting.extend(begin(members));
        Self::Log(batch)
    }
}

/// Gives grants the fences that the cluster counted.
fn give_fences(members: &mut [QuorumMember], fences: &[u64]) {
    members.iter_mut().zip(fences).for_each(|(member, fence)| member.reserved.fence = *fence);
    if let Some(grants) = &mut members[0].reserved.several {
        grants.iter_mut().zip(fences).for_each(|(key, fence)| key.grant.fence = *fence);
    }
}

fn begin(members: Box<[QuorumMember]>) -> impl Iterator<Item = Waiting> {
    members.into_iter().map(|member| Waiting {
        stamp: Time::ZERO,
        shard: member.reserved.shard,
        then: WhenDurable::Begin(member.reserved),
    })
}
