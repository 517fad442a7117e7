//! What becomes of a question that is over.

use super::counters::Settled;
use crate::log::port::{LogBatch, LogStatus};
use crate::mail::Mail;
use crate::waiting::{Waiting, mails};
use waymaker_engine::log::Record;
use waymaker_engine::{QuorumMember, ReservedEnd, Time, WhenDurable, planted};

/// Who has to hear of it next.
#[derive(Debug)]
pub enum Delivery {
    /// Workers.
    Workers(Vec<(u16, Mail)>),
    /// The log, where a grant has to be in it first.
    Log(LogBatch),
}

impl Delivery {
    /// Of a question that is over by now.
    pub fn new(settled: Settled, log: Option<&LogStatus>, now: Time) -> Self {
        let Settled { question, fences } = settled;
        let mut members = question.members;
        let Some(fences) = fences else {
            return Self::Workers(mails(begin(members), ReservedEnd::NotCounted));
        };
        let recounted = apply(&mut members, &fences);
        let is_durable =
            |log: &LogStatus| members.iter().all(|one| log.durable(one.reserved.shard) >= one.record);
        if log.is_none_or(|log| recounted.is_empty() && is_durable(log)) {
            return Self::Workers(mails(begin(members), ReservedEnd::Begins(now)));
        }
        let mut batch = LogBatch::default();
        recounted.iter().for_each(|record| batch.add(record));
        batch.waiting.extend(begin(members));
        Self::Log(batch)
    }
}

/// Gives grants the fences that the cluster counted. Says which are others than what was recorded.
fn apply(members: &mut [QuorumMember], fences: &[u64]) -> Vec<Record<'static>> {
    let mut recounted = Vec::new();
    for (member, fence) in members.iter_mut().zip(fences) {
        if member.reserved.fence != *fence {
            member.reserved.fence = *fence;
            if planted!(RecountedIsNotRecorded) {
                continue;
            }
            recounted.push(Record::Recounted { id: member.id, fence: *fence });
        }
    }
    if let Some(grants) = &mut members[0].reserved.several {
        grants.iter_mut().zip(fences).for_each(|(key, fence)| key.grant.fence = *fence);
    }
    recounted
}

fn begin(members: Box<[QuorumMember]>) -> impl Iterator<Item = Waiting> {
    members.into_iter().map(|member| Waiting {
        stamp: Time::ZERO,
        shard: member.reserved.shard,
        then: WhenDurable::Begin(member.reserved),
    })
}
