//! The protocol for counting fences in the cluster. This module uses no I/O and no clock; the caller passes the results
//! and the time.

use super::positions::{Position, Positions};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use waymaker_engine::{CounterName, Fence, QuorumQuestion, Time};

/// Maximum number of counters that are remembered as suspects, because they may have made etcd refuse a transaction.
/// Beyond it, one of them is forgotten.
const SUSPECT_COUNT_MAX: usize = 1024;

/// Identifies one attempt of a server to raise a fence counter in the cluster. The value differs from that of every
/// other attempt of every server; only a repetition of the same write keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Number that differs for each start of a server.
    pub run: u64,
    /// Number of the attempt, which rises during the run.
    pub number: u64,
}

/// One step of one counter: a conditional write in the cluster. It writes this fence only if the counter still has the
/// revision `since`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Name of the counter.
    pub name: CounterName,
    /// Attempt stored beside the fence, so that a reader can recognize its own write.
    pub attempt: Attempt,
    /// Revision of the cluster that last wrote the counter, as far as this server knows. The cluster writes the new
    /// fence only if the counter still has this revision. If it is 0, the cluster writes only if the counter does not
    /// exist.
    pub since: i64,
    /// Fence of the last grant that this step counts.
    pub fence: Fence,
}

/// The reply of the cluster to one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The step was applied in this revision.
    Written {
        /// Revision of the cluster.
        revision: i64,
    },
    /// This write was not applied because the counter has another revision, or does not exist (`None`). If the stored
    /// attempt is that of the step, an earlier try of the step was applied.
    Found(Option<StoredCounter>),
    /// The step (a conditional write of the counter's next fence) was not applied. The value that etcd stores under the
    /// name of the counter is not a valid counter.
    Nonsense,
}

/// A counter as stored in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredCounter {
    /// Revision that wrote the counter.
    pub revision: i64,
    /// Stored fence.
    pub fence: Fence,
    /// Attempt that wrote the counter.
    pub attempt: Attempt,
}

/// A finished question. The question asked the cluster to count the fences of some grants.
#[derive(Debug, PartialEq, Eq)]
pub struct FinishedQuestion {
    /// The question, unchanged.
    pub question: QuorumQuestion,
    /// Fence of each grant in `question.members`, in the same order. `None` if the server does not know that the
    /// cluster counted all these grants.
    pub fences: Option<Box<[Fence]>>,
}

/// The counters with open questions.
///
/// Each counter has one *step* at a time: a write of its next fence. The cluster applies the step only if the counter
/// has not changed since the last reply about it. All servers that count with a counter therefore agree on its order,
/// and a step that is applied late has no effect. Grants that arrive while a step is in flight go together into the
/// next step of their counter. Steps of different counters go together into one transaction.
///
/// A step whose response is lost is repeated unchanged. If the first try was applied, the second try finds that its own
/// attempt wrote the stored value. This counts as success. If not, the second try is applied, and the first try cannot
/// be applied any more. If another server has written the counter since, the grants of the step go into a new step with
/// higher fences. Fences may therefore skip numbers, but never repeat.
#[derive(Debug)]
pub struct Counters {
    run: u64,
    last_attempt: u64,
    positions: Positions,
    lines: BTreeMap<CounterName, Line>,
    /// Counters for which the next step (a write of the next fence to the cluster) can be sent now. Each has grants
    /// that wait for a fence, or a step to send again, and awaits no result of an earlier step.
    ready: VecDeque<CounterName>,
    /// Counters that may have caused etcd to refuse a whole transaction. Each gets its own transaction until etcd
    /// answers it.
    suspects: BTreeSet<CounterName>,
    questions: BTreeMap<u64, OpenQuestion>,
    last_question: u64,
    settled: Vec<FinishedQuestion>,
}

/// The open grants of one counter.
#[derive(Debug, Default)]
struct Line {
    /// Step that is in flight or must be repeated, with the grants that it counts and their fences.
    step: Option<(Step, Vec<(Place, Fence)>)>,
    /// Grants that wait for the counter's next step (a write of its next fence to the cluster), with the minimum fence
    /// of each.
    waiting: Vec<(Place, Fence)>,
}

/// The position of one grant: the number of its question (a group of grants whose fences the cluster must count), and
/// the index of the grant in the question's `members`.
#[derive(Clone, Copy, Debug)]
struct Place {
    question: u64,
    member: usize,
}

/// An unfinished question.
#[derive(Debug)]
struct OpenQuestion {
    question: QuorumQuestion,
    fences: Box<[Fence]>,
    uncounted: usize,
    deadline: Time,
}

impl Counters {
    /// Returns an empty set of counters. `run` must differ for each start of a server.
    pub fn new(run: u64) -> Self {
        Self {
            run,
            last_attempt: 0,
            positions: Positions::default(),
            lines: BTreeMap::new(),
            ready: VecDeque::new(),
            suspects: BTreeSet::new(),
            questions: BTreeMap::new(),
            last_question: 0,
            settled: Vec::new(),
        }
    }

    /// Returns whether no question is open.
    pub fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }

    /// Accepts a question: a group of grants that wait until the cluster has counted their fences. The question fails
    /// if this has not happened by `deadline`. The deadline must not be earlier than that of the previous question.
    pub fn ask(&mut self, question: QuorumQuestion, deadline: Time) {
        self.last_question += 1;
        let number = self.last_question;
        let fences: Box<[Fence]> = question.members.iter().map(|member| member.reserved.fence).collect();
        let mut uncounted = 0;
        for (place, member) in question.members.iter().enumerate() {
            let Some(name) = &member.counter else { continue };
            uncounted += 1;
            let line = self.lines.entry(name.clone()).or_default();
            if line.step.is_none() && line.waiting.is_empty() {
                self.ready.push_back(name.clone());
            }
            line.waiting.push((Place { question: number, member: place }, member.reserved.fence));
        }
        self.questions.insert(number, OpenQuestion { question, fences, uncounted, deadline });
    }

    /// Returns at most `count_max` steps for the next transaction, all of different counters. A step is a conditional
    /// write of a counter's next fence. A counter that may have made etcd refuse a transaction (a suspect) gets a
    /// transaction of its own.
    pub fn next_steps(&mut self, count_max: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut has_suspect = false;
        while steps.len() < count_max
            && !has_suspect
            && let Some(name) =
                self.ready.pop_front_if(|name| steps.is_empty() || !self.suspects.contains(name))
        {
            has_suspect = self.suspects.contains(&name);
            let Some(line) = self.lines.get_mut(&name) else { continue };
            if let Some((step, _)) = &line.step {
                // This step, a write of the counter, had no result, so send it again unchanged. The first try may have
                // been applied. A step with a new attempt number would not recognize that write as its own, and would
                // count the same grants again.
                steps.push(step.clone());
                continue;
            }
            let Position { revision, mut fence } = self.positions.get(&name);
            let mut counted = std::mem::take(&mut line.waiting);
            // The shard of the key counts fences too, and reserved the next one for the grant. This fence is the
            // minimum for the grant. The minimum may be above the cluster's counter, which does not count grants of the
            // key with a lower scope than quorum. So fences may skip numbers.
            for (_, least) in &mut counted {
                fence = (*least).max(fence.next());
                *least = fence;
            }
            self.last_attempt += 1;
            let attempt = Attempt { run: self.run, number: self.last_attempt };
            let step = Step { name, attempt, since: revision, fence };
            steps.push(step.clone());
            line.step = Some((step, counted));
        }
        steps
    }

    /// Accepts the reply of the cluster to a step.
    pub fn answered(&mut self, step: &Step, reply: Reply) {
        // Any reply to a step means that etcd accepted a transaction with this counter. So the counter is no longer
        // suspected of making etcd refuse transactions.
        self.suspects.remove(&step.name);
        let written = match reply {
            Reply::Written { revision } => Some(revision),
            Reply::Found(Some(found)) if found.attempt == step.attempt => Some(found.revision),
            _ => None,
        };
        if let Some(revision) = written {
            self.positions.set(&step.name, Position { revision, fence: step.fence });
        } else if let Reply::Found(found) = reply {
            // If the counter was deleted, continue from the last known fence, so that fences never fall.
            let fence = self.positions.get(&step.name).fence;
            let position =
                found.map_or(Position { revision: 0, fence }, |StoredCounter { revision, fence, .. }| {
                    Position { revision, fence }
                });
            self.positions.set(&step.name, position);
        }
        // The value of the counter, set above, stays known even if the grants of this step have failed meanwhile. The
        // known value saves the next step (the next write of the counter) a round trip.
        let Some((_, counted)) = self.leave_flight(step) else { return };
        match reply {
            _ if written.is_some() => {
                for (place, fence) in counted {
                    self.count(place, fence);
                }
            }
            Reply::Nonsense => counted.iter().for_each(|(place, _)| self.give_up(place.question)),
            _ => {
                // The counter did not have the revision that the step assumed. Another server has counted, somebody has
                // deleted the counter, or this server had forgotten it. Retry from the known fence, before the grants
                // that arrived later.
                if let Some(line) = self.lines.get_mut(&step.name) {
                    line.waiting.splice(0..0, counted);
                }
            }
        }
        self.go_on(&step.name);
    }

    /// Queues a step (a conditional write of one counter) to be sent again. Its transaction got no response, was not
    /// sent, or was refused as too large. Drops the step instead if all its grants have failed meanwhile.
    pub fn lost(&mut self, step: &Step) {
        if let Some(line) = self.lines.get_mut(&step.name)
            && line.step.as_ref().is_some_and(|(own, _)| own.attempt == step.attempt)
        {
            self.go_on(&step.name);
        }
    }

    /// Queues a step (a write of one counter) to be sent again in a transaction of its own. etcd refused the
    /// transaction that contained the step, and the counter may be the cause. Alone, it cannot make the writes of other
    /// counters fail.
    pub fn suspected(&mut self, step: &Step) {
        if self.suspects.len() >= SUSPECT_COUNT_MAX {
            self.suspects.pop_first();
        }
        self.suspects.insert(step.name.clone());
        self.lost(step);
    }

    /// Fails each question (a group of grants that wait for their fences) with a grant that this step counts. The step
    /// is a write of one counter, which the cluster will never apply.
    pub fn refused(&mut self, step: &Step) {
        if let Some((_, counted)) = self.leave_flight(step) {
            counted.iter().for_each(|(place, _)| self.give_up(place.question));
            self.go_on(&step.name);
        }
    }

    /// Fails the questions whose deadline has passed, so that their grants are refused. A question is a group of grants
    /// that wait until the cluster has counted their fences. Returns whether any question failed.
    pub fn expire(&mut self, now: Time) -> bool {
        let is_over = |open: &OpenQuestion| open.deadline <= now;
        let mut any = false;
        while let Some(first) = self.questions.first_entry()
            && is_over(first.get())
        {
            let number = *first.key();
            self.give_up(number);
            any = true;
        }
        any
    }

    /// Fails all open questions.
    pub fn give_up_all(&mut self) {
        while let Some((number, _)) = self.questions.first_key_value() {
            self.give_up(*number);
        }
        // All questions have failed, so no grant needs the steps in flight (writes of counters without a result yet).
        // If the cluster applies such a step all the same, the next step of its counter finds the new value.
        self.lines.clear();
        self.ready.clear();
    }

    /// Returns the deadline of the oldest open question.
    pub fn next_deadline(&self) -> Option<Time> {
        self.questions.first_key_value().map(|(_, open)| open.deadline)
    }

    /// Returns the questions that have finished since the last call, and removes them here. A question is a group of
    /// grants. A question finishes when the cluster has counted the fences of all its grants, or when it fails.
    pub fn take_settled(&mut self) -> Vec<FinishedQuestion> {
        std::mem::take(&mut self.settled)
    }

    /// Removes and returns the step (the write) of the counter `step.name` and the grants that it counts, if its
    /// attempt is still `step.attempt`. Otherwise returns `None`.
    fn leave_flight(&mut self, step: &Step) -> Option<(Step, Vec<(Place, Fence)>)> {
        let line = self.lines.get_mut(&step.name)?;
        line.step.take_if(|(own, _)| own.attempt == step.attempt)
    }

    /// Continues a counter whose step (a write of its next fence) has a result or was lost. Queues the counter for
    /// another step, or removes it from `lines` if none of its grants waits for a fence any more.
    fn go_on(&mut self, name: &CounterName) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let questions = &self.questions;
        let is_open = |(place, _): &(Place, Fence)| questions.contains_key(&place.question);
        line.waiting.retain(is_open);
        // The step is a write of this counter that must be sent again. If all grants that it counts have failed, drop
        // it: nothing needs its result.
        line.step.take_if(|(_, counted)| !counted.iter().any(is_open));
        if line.step.is_none() && line.waiting.is_empty() {
            self.lines.remove(name);
        } else {
            self.ready.push_back(name.clone());
        }
    }

    fn count(&mut self, place: Place, fence: Fence) {
        let Some(open) = self.questions.get_mut(&place.question) else { return };
        open.fences[place.member] = fence;
        open.uncounted -= 1;
        if open.uncounted == 0
            && let Some(OpenQuestion { question, fences, .. }) = self.questions.remove(&place.question)
        {
            self.settled.push(FinishedQuestion { question, fences: Some(fences) });
        }
    }

    /// Fails a question (a group of grants that wait for their fences). The grants stay in `lines`, the open grants of
    /// each counter. The next call of `go_on` for a counter removes its failed grants.
    fn give_up(&mut self, question: u64) {
        if let Some(OpenQuestion { question, .. }) = self.questions.remove(&question) {
            self.settled.push(FinishedQuestion { question, fences: None });
        }
    }
}

#[cfg(test)]
mod tests;
