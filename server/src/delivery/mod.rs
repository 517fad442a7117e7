//! Delivery of the results of the log and the cluster to the workers that wait for them.

mod fences;
mod host;

pub use fences::Delivery;
pub(crate) use host::Host;

use crate::deferred::DeferredEffect;
use crate::mail::{Content, Letter, Mail};
use crate::node::Node;
use waymaker_engine::{Answer, Refusal, Reserved, ReservedEnd, WhenDurable};
use waymaker_log::store::committer::Outcome;

/// Converts the outcome of a log write into the end of the reservation of claims that were granted on condition of this
/// write. Either their holds begin, or it is unknown whether the log stored their records.
pub fn end_of(outcome: Outcome) -> ReservedEnd {
    match outcome {
        Outcome::Durable(since) => ReservedEnd::Begins(since),
        Outcome::Unknown => ReservedEnd::Unknown,
    }
}

/// Returns the mail that delivers deferred effects to their workers. The effects are responses, events and grants that
/// waited until the log synced a record or the cluster counted a fence. Responses and events for one worker keep the
/// order of the effects; a grant may come before earlier responses. `end` is the outcome of this wait. A grant is
/// mailed together with `end`, which tells whether its hold begins. If `end` is not [`ReservedEnd::Begins`], each
/// response becomes an error that says that the outcome is unknown, and events are dropped.
pub fn mails(deferred: impl Iterator<Item = DeferredEffect>, end: ReservedEnd) -> Vec<(u16, Mail)> {
    let is_durable = matches!(end, ReservedEnd::Begins(_));
    let mut mails: Vec<(u16, Mail)> = Vec::new();
    for DeferredEffect { stamp, shard, then } in deferred {
        match then {
            WhenDurable::Answer(ticket, answer) => {
                let answer = if is_durable { answer } else { Answer::Refused(Refusal::Unknown) };
                let content = Content::Answer(ticket, answer);
                push_letter(&mut mails, ticket.lane.worker, Letter { stamp, shard, content });
            }
            WhenDurable::AnswerWaiter(ticket, answer) => {
                let answer = if is_durable { answer } else { Answer::Refused(Refusal::Unknown) };
                let content = Content::WaiterAnswer(ticket, answer);
                push_letter(&mut mails, ticket.lane.worker, Letter { stamp, shard, content });
            }
            WhenDurable::Tell(lane, event) => {
                if is_durable {
                    let content = Content::Event(lane, event);
                    push_letter(&mut mails, lane.worker, Letter { stamp, shard, content });
                }
            }
            WhenDurable::Begin(reserved) => push_reserved(&mut mails, reserved, end),
            WhenDurable::BeginMultiKey(multi_shard) => {
                mails.push((multi_shard.members[0].lane.worker, Mail::ReservedMultiKey(end, multi_shard)));
            }
        }
    }
    mails
}

/// Posts mail to workers. Calls `wake` for each of these workers that sleeps.
pub fn post(node: &Node, mails: Vec<(u16, Mail)>, mut wake: impl FnMut(u16)) {
    for (worker, mail) in mails {
        if let Some(mailbox) = node.mailboxes.get(usize::from(worker))
            && mailbox.post(mail)
        {
            wake(worker);
        }
    }
}

fn push_letter(mails: &mut Vec<(u16, Mail)>, worker: u16, letter: Letter) {
    match mails.iter_mut().rev().find(|(to, _)| *to == worker) {
        Some((_, Mail::Letters(letters))) => letters.push(letter),
        _ => mails.push((worker, Mail::Letters(vec![letter]))),
    }
}

fn push_reserved(mails: &mut Vec<(u16, Mail)>, one: Reserved, end: ReservedEnd) {
    let (worker, shard) = (one.lane.worker, one.shard);
    let same = mails.iter_mut().rev().find_map(|(to, mail)| match mail {
        Mail::Reserved { shard: other, reserved, .. } if *to == worker && *other == shard => Some(reserved),
        _ => None,
    });
    match same {
        Some(reserved) => reserved.push(one),
        None => mails.push((worker, Mail::Reserved { shard, end, reserved: vec![one] })),
    }
}
