//! Delivery of fences that the cluster counted.

use super::mails;
use crate::deferred::DeferredEffect;
use crate::log::LogBatch;
use crate::mail::Mail;
use crate::quorum::counters::FinishedQuestion;
use waymaker_engine::{Fence, QuorumMember, QuorumQuestion, ReservedEnd, Time};
use waymaker_log::Record;

/// The way by which a result of the cluster reaches the workers. The result is the fences that the cluster counted for
/// some grants, or its failure to count them.
#[derive(Debug)]
pub enum Delivery {
    /// Mail for workers.
    Workers(Vec<(u16, Mail)>),
    /// Records for the log, which say that the cluster counted the fences of the grants. The grants are mailed to
    /// workers once the log has synced these records.
    Log(LogBatch),
}

impl Delivery {
    /// Prepares the delivery of a finished question, which asked the cluster to count the fences of some grants. The
    /// cluster has counted them or has failed to. With a log, a grant begins after the log has synced the record of its
    /// fence, because a restart drops grants without this record.
    pub fn new(settled: FinishedQuestion, has_log: bool, now: Time) -> Self {
        let FinishedQuestion { mut question, fences } = settled;
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

/// Sets the fence of each grant in the question to the one at the same position in `fences`.
fn give_fences(question: &mut QuorumQuestion, fences: &[Fence]) {
    question.members.iter_mut().zip(fences).for_each(|(member, fence)| member.reserved.fence = *fence);
    let grants = question.multi_key.iter_mut().flatten();
    grants.zip(fences).for_each(|(key, fence)| key.grant.fence = *fence);
}

fn begin(question: QuorumQuestion) -> impl Iterator<Item = DeferredEffect> {
    question.begin().map(|then| DeferredEffect { stamp: Time::ZERO, shard: 0, then })
}
