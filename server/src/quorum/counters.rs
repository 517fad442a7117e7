//! The protocol for counting fences in the cluster. This module uses no I/O and no clock; the caller passes the results
//! and the time.

use super::positions::{Position, Positions};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use waymaker_engine::{CounterName, Fence, QuorumQuestion, Time};

/// Maximum number of counters that are remembered as suspects, because they may have made etcd refuse a transaction.
/// Beyond it, one of them is forgotten.
const SUSPECT_COUNT_MAX: usize = 1024;

/// Identifies one attempt to count, among all attempts of all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Number that differs for each start of a server.
    pub run: u64,
    /// Number of the attempt, which rises during the run.
    pub number: u64,
}

/// One step of one counter: a conditional write in the cluster. It writes this fence, unless the counter was written
/// after this revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Name of the counter.
    pub name: CounterName,
    /// Attempt stored beside the fence, so that a reader can recognize its own write.
    pub attempt: Attempt,
    /// Last known revision that wrote the counter. If it is 0, the step is applied only if the counter does not exist.
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
    /// The step was not applied because the counter has another revision. `None` if the counter does not exist.
    Found(Option<StoredCounter>),
    /// The step was not applied, and the stored value is not a counter.
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
    /// Fence of each grant of the question; `None` if the server does not know that the cluster counted them.
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
    /// Counters with waiting grants or a step to repeat, and without a step in flight.
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
    /// Grants without a step, with the minimum fence of each.
    waiting: Vec<(Place, Fence)>,
}

/// One grant of a question: the number of the question, and the index of the grant in the question's `members`.
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

    /// Accepts a question that fails at `deadline`. Deadlines must not decrease.
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

    /// Returns the next steps, at most `count_max`, all of different counters. A counter that may have made etcd refuse
    /// a transaction (a suspect) gets a list of its own.
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
                // Repeat the step unchanged: a new attempt could count twice.
                steps.push(step.clone());
                continue;
            }
            let Position { revision, mut fence } = self.positions.get(&name);
            let mut counted = std::mem::take(&mut line.waiting);
            // The fence that the shard reserved is the minimum for the fence of the grant. It may be above the counter
            // if the key had a lower scope before, so fences may skip numbers.
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
        // Any answer clears the suspicion, because etcd accepted a transaction with this counter.
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
        // Keep the last known value of the counter even if no question waits for the step any more. It saves the next
        // step a round trip.
        let Some((_, counted)) = self.leave_flight(step) else { return };
        match reply {
            _ if written.is_some() => {
                for (place, fence) in counted {
                    self.count(place, fence);
                }
            }
            Reply::Nonsense => counted.iter().for_each(|(place, _)| self.give_up(place.question)),
            _ => {
                // The counter did not have the revision that the step assumed. Another server has counted, or this
                // server had forgotten the counter. Retry from the found fence, before the grants that arrived later.
                if let Some(line) = self.lines.get_mut(&step.name) {
                    line.waiting.splice(0..0, counted);
                }
            }
        }
        self.go_on(&step.name);
    }

    /// Queues a step again whose response was lost, or that was not sent. Drops it if all its questions have finished.
    pub fn lost(&mut self, step: &Step) {
        if let Some(line) = self.lines.get_mut(&step.name)
            && line.step.as_ref().is_some_and(|(own, _)| own.attempt == step.attempt)
        {
            self.go_on(&step.name);
        }
    }

    /// Retries a step in a transaction of its own, because etcd refused the transaction that it was part of.
    pub fn suspected(&mut self, step: &Step) {
        if self.suspects.len() >= SUSPECT_COUNT_MAX {
            self.suspects.pop_first();
        }
        self.suspects.insert(step.name.clone());
        self.lost(step);
    }

    /// Fails the questions of a step that the cluster will never apply.
    pub fn refused(&mut self, step: &Step) {
        if let Some((_, counted)) = self.leave_flight(step) {
            counted.iter().for_each(|(place, _)| self.give_up(place.question));
            self.go_on(&step.name);
        }
    }

    /// Fails the questions whose deadline has passed. Returns whether there were any.
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
        // Steps in flight have no open questions any more. If the cluster applies one all the same, the next step of
        // its counter finds the new value.
        self.lines.clear();
        self.ready.clear();
    }

    /// Returns the deadline of the oldest open question.
    pub fn next_deadline(&self) -> Option<Time> {
        self.questions.first_key_value().map(|(_, open)| open.deadline)
    }

    /// Returns the questions that have finished since the last call.
    pub fn take_settled(&mut self) -> Vec<FinishedQuestion> {
        std::mem::take(&mut self.settled)
    }

    /// Removes and returns the step of this attempt with its grants, if it is still in flight.
    fn leave_flight(&mut self, step: &Step) -> Option<(Step, Vec<(Place, Fence)>)> {
        let line = self.lines.get_mut(&step.name)?;
        line.step.take_if(|(own, _)| own.attempt == step.attempt)
    }

    /// Continues a counter whose step has returned: queues it again, or removes it if nothing is left.
    fn go_on(&mut self, name: &CounterName) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let questions = &self.questions;
        let is_open = |(place, _): &(Place, Fence)| questions.contains_key(&place.question);
        line.waiting.retain(is_open);
        // Drop a step if all its questions are finished: nothing needs its result.
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

    /// Fails a question. Its grants stay in `lines`, the open grants of each counter, until `go_on` removes them.
    fn give_up(&mut self, question: u64) {
        if let Some(OpenQuestion { question, .. }) = self.questions.remove(&question) {
            self.settled.push(FinishedQuestion { question, fences: None });
        }
    }
}

#[cfg(test)]
mod tests;
