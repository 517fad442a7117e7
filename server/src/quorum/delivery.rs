//! What becomes of a question that is over.

use super::counters::Settled;
use crate::log::port::LogBatch;
use crate::mail::Mail;
use crate::waiting::{Waiting, mails};
use waymaker_engine::log::Record;
use waymaker_engine::{QuorumMember, QuorumQuestion, ReservedEnd, Time};

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
        let Settled { mut question, fences } = settled;
        let Some(fences) = fences else {
            return Self::Workers(mails(begin(question), ReservedEnd::NotCounted));
        };
        give_fences(&mut question, &fences);
        if !has_log {
            return Self::Workers(mails(begin(question), ReservedEnd::Begins(now)));
        }
        let mut batch = LogBatch::default();
        let counted = |member: &QuorumMember| Record::Counted { id: member.id, fence: member.reserved.fence };
        question.members.iter().for_each(|member| batch.add(&counted(member)));
        batch.waiting.extend(begin(question));
        Self::Log(batch)
    }
}

/// Gives grants the fences that the cluster counted.
fn give_fences(question: &mut QuorumQuestion, fences: &[u64]) {
    question.members.iter_mut().zip(fences).for_each(|(member, fence)| member.reserved.fence = *fence);
    let grants = question.several.iter_mut().flatten();
    grants.zip(fences).for_each(|(key, fence)| key.grant.fence = *fence);
}

fn begin(question: QuorumQuestion) -> impl Iterator<Item = Waiting> {
    question.begin().map(|then| Waiting { stamp: Time::ZERO, shard: 0, then })
}
