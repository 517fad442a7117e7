//! The protocol for counting fences in the cluster. This module uses no I/O and no clock; the caller passes the results
//! and the time.

use super::positions::{Position, Positions};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use waymaker_engine::{CounterName, QuorumQuestion, Time};

/// Maximum number of counters that are remembered as suspects.
const SUSPECT_COUNT_MAX: usize = 1024;

/// Identifies one attempt to count, among all attempts of all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Number that differs for each start of a server.
    pub run: u64,
    /// Number of the attempt, which rises during the run.
    pub number: u64,
}

/// One step of one counter: write this fence, unless the counter was written after this revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Name of the counter.
    pub name: CounterName,
    /// Attempt stored beside the fence, so that a reader can recognize its own write.
    pub attempt: Attempt,
    /// Last known revision that wrote the counter; 0 if the counter does not exist.
    pub since: i64,
    /// Fence of the last grant that this step counts.
    pub fence: u64,
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
    pub fence: u64,
    /// Attempt that wrote the counter.
    pub attempt: Attempt,
}

/// A finished question.
#[derive(Debug, PartialEq, Eq)]
pub struct FinishedQuestion {
    /// The question as asked.
    pub question: QuorumQuestion,
    /// The fence of each grant of the question. `None` if they were not counted, as far as the server knows.
    pub fences: Option<Box<[u64]>>,
}

/// The counters with open questions.
///
/// Each counter has one *step* at a time: a transaction that writes the next fence if the counter has not changed since
/// the last read. All servers that count with a counter therefore agree on its order, and a step that is applied late
/// has no effect. Grants that arrive meanwhile go together into the next step of their counter. Steps of different
/// counters go together into one transaction.
///
/// A step whose response is lost is repeated unchanged. If the first try was applied, the second finds the written
/// value with its own attempt, which is the response. If not, the second try is applied, and the first cannot be
/// applied any more. The server never guesses and never counts twice.
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
    step: Option<(Step, Vec<(Place, u64)>)>,
    /// Grants without a step, with the minimum fence of each.
    waiting: Vec<(Place, u64)>,
}

/// One grant of a question.
#[derive(Clone, Copy, Debug)]
struct Place {
    question: u64,
    member: usize,
}

/// An unfinished question.
#[derive(Debug)]
struct OpenQuestion {
    question: QuorumQuestion,
    fences: Box<[u64]>,
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
        let fences: Box<[u64]> = question.members.iter().map(|member| member.reserved.fence).collect();
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

    /// Returns the next steps, at most `count_max`, all of different counters. A suspect gets a list of its own.
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
            // A minimum may be above the counter if the key had a lower scope before, so fences may skip numbers.
            for (_, least) in &mut counted {
                fence = (*least).max(fence + 1);
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
        // The position is kept even if nobody waits for the step any more: it saves the next step a round trip.
        let Some((_, counted)) = self.leave_flight(step) else { return };
        match reply {
            _ if written.is_some() => {
                for (place, fence) in counted {
                    self.count(place, fence);
                }
            }
            Reply::Nonsense => counted.iter().for_each(|(place, _)| self.give_up(place.question)),
            _ => {
                // Another server has counted. Retry from its fence, before the grants that arrived later.
                if let Some(line) = self.lines.get_mut(&step.name) {
                    line.waiting.splice(0..0, counted);
                }
            }
        }
        self.go_on(&step.name);
    }

    /// Repeats a step whose response was lost, or that was not sent.
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
        // Steps in flight lose their questions. If one is applied all the same, the next step of its counter finds the
        // new value.
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
    fn leave_flight(&mut self, step: &Step) -> Option<(Step, Vec<(Place, u64)>)> {
        let line = self.lines.get_mut(&step.name)?;
        line.step.take_if(|(own, _)| own.attempt == step.attempt)
    }

    /// Continues a counter whose step has returned: queues it again, or removes it if nothing is left.
    fn go_on(&mut self, name: &CounterName) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let questions = &self.questions;
        let is_open = |(place, _): &(Place, u64)| questions.contains_key(&place.question);
        line.waiting.retain(is_open);
        // All questions of the step are finished, so nobody needs its result.
        line.step.take_if(|(_, counted)| !counted.iter().any(is_open));
        if line.step.is_none() && line.waiting.is_empty() {
            self.lines.remove(name);
        } else {
            self.ready.push_back(name.clone());
        }
    }

    fn count(&mut self, place: Place, fence: u64) {
        let Some(open) = self.questions.get_mut(&place.question) else { return };
        open.fences[place.member] = fence;
        open.uncounted -= 1;
        if open.uncounted == 0
            && let Some(OpenQuestion { question, fences, .. }) = self.questions.remove(&place.question)
        {
            self.settled.push(FinishedQuestion { question, fences: Some(fences) });
        }
    }

    /// Fails a question. Lines of its other counters skip it later.
    fn give_up(&mut self, question: u64) {
        if let Some(OpenQuestion { question, .. }) = self.questions.remove(&question) {
            self.settled.push(FinishedQuestion { question, fences: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use waymaker_engine::{ClaimId, ClaimIx, LaneAddress, QuorumMember, Reserved};

    const RUN: u64 = 7;
    const STEP_COUNT_MAX: usize = 127;

    /// A cluster that applies steps to counters in memory.
    #[derive(Default)]
    struct Cluster {
        revision: i64,
        counters: BTreeMap<CounterName, StoredCounter>,
    }

    impl Cluster {
        fn apply(&mut self, step: &Step) -> Reply {
            let found = self.counters.get(&step.name).copied();
            if found.map_or(0, |found| found.revision) != step.since {
                return Reply::Found(found);
            }
            self.revision += 1;
            let found = StoredCounter { revision: self.revision, fence: step.fence, attempt: step.attempt };
            self.counters.insert(step.name.clone(), found);
            Reply::Written { revision: self.revision }
        }
    }

    fn name(key: &str) -> CounterName {
        CounterName { namespace: 0, key: key.as_bytes().into() }
    }

    fn question(grants: &[(&str, u64)]) -> QuorumQuestion {
        let lane = LaneAddress { worker: 0, slot: 0, generation: 0 };
        let member = |(key, fence): &(&str, u64)| QuorumMember {
            reserved: Reserved {
                shard: 0,
                lane,
                slot: ClaimIx::new(0),
                secret: 0,
                fence: *fence,
                is_counted: true,
                since: Time::NEVER,
            },
            id: ClaimId { place: 0, secret: 0 },
            counter: (!key.is_empty()).then(|| name(key)),
        };
        QuorumQuestion { at: Time::ZERO, members: grants.iter().map(member).collect(), multi_key: None }
    }

    fn ask(counters: &mut Counters, grants: &[(&str, u64)]) {
        counters.ask(question(grants), Time::from_millis(100));
    }

    fn serve(counters: &mut Counters, cluster: &mut Cluster) {
        loop {
            let steps = counters.next_steps(8);
            if steps.is_empty() {
                return;
            }
            for step in steps {
                let reply = cluster.apply(&step);
                counters.answered(&step, reply);
            }
        }
    }

    fn fences(counters: &mut Counters) -> Vec<Option<Vec<u64>>> {
        counters.take_settled().into_iter().map(|settled| settled.fences.map(Vec::from)).collect()
    }

    #[test]
    fn each_grant_increments_the_counter_by_one() {
        let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
        for fence in 1..4 {
            ask(&mut counters, &[("k", fence)]);
            serve(&mut counters, &mut cluster);
            assert_eq!(fences(&mut counters), [Some(vec![fence])]);
        }
        assert_eq!(cluster.revision, 3, "one write for each");
        // Another server continues from the stored fence, whatever it believes.
        let mut other = Counters::new(RUN + 1);
        ask(&mut other, &[("k", 1)]);
        serve(&mut other, &mut cluster);
        assert_eq!(fences(&mut other), [Some(vec![4])]);
        // The first server's position is now outdated.
        ask(&mut counters, &[("k", 4)]);
        serve(&mut counters, &mut cluster);
        assert_eq!(fences(&mut counters), [Some(vec![5])]);
        // The fence from before the key had scope quorum counts too.
        ask(&mut counters, &[("k", 20)]);
        serve(&mut counters, &mut cluster);
        assert_eq!(fences(&mut counters), [Some(vec![20])]);
    }

    #[test]
    fn grants_that_arrive_during_a_step_share_the_next_step() {
        let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
        ask(&mut counters, &[("k", 1)]);
        let first = counters.next_steps(8);
        ask(&mut counters, &[("k", 2)]);
        ask(&mut counters, &[("k", 3)]);
        assert!(counters.next_steps(8).is_empty(), "one step of a counter at a time");
        counters.answered(&first[0], cluster.apply(&first[0]));
        serve(&mut counters, &mut cluster);
        assert_eq!(fences(&mut counters), [Some(vec![1]), Some(vec![2]), Some(vec![3])]);
        assert_eq!(cluster.revision, 2);
    }

    #[test]
    fn a_grant_that_is_counted_again_keeps_its_place() {
        let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
        let mut other = Counters::new(RUN + 1);
        ask(&mut other, &[("k", 7)]);
        serve(&mut other, &mut cluster);
        ask(&mut counters, &[("k", 1)]);
        let first = counters.next_steps(8).remove(0);
        ask(&mut counters, &[("k", 2)]);
        counters.answered(&first, cluster.apply(&first));
        serve(&mut counters, &mut cluster);
        let counted = counters.take_settled().into_iter().map(|settled| {
            (settled.question.members[0].reserved.fence, settled.fences.expect("it was counted")[0])
        });
        let mut counted: Vec<(u64, u64)> = counted.collect();
        counted.sort_unstable();
        assert_eq!(counted, [(1, 8), (2, 9)], "the fences that were asked for, and those that were counted");
    }

    #[test]
    fn a_lost_answer_is_recovered_whether_or_not_its_step_was_applied() {
        for (applied_first, applied_late) in [(true, false), (false, false), (false, true)] {
            let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
            ask(&mut counters, &[("k", 1)]);
            let first = counters.next_steps(8).remove(0);
            if applied_first {
                cluster.apply(&first);
            }
            counters.lost(&first);
            let again = counters.next_steps(8).remove(0);
            assert_eq!(first, again);
            let reply = cluster.apply(&again);
            if applied_late {
                assert!(matches!(cluster.apply(&first), Reply::Found(_)), "applied twice");
            }
            counters.answered(&again, reply);
            assert_eq!(fences(&mut counters), [Some(vec![1])]);
            ask(&mut counters, &[("k", 2)]);
            serve(&mut counters, &mut cluster);
            assert_eq!(fences(&mut counters), [Some(vec![2])]);
        }
    }

    #[test]
    fn an_expired_grant_may_still_be_counted_but_never_twice() {
        let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
        ask(&mut counters, &[("k", 1)]);
        let late = counters.next_steps(8).remove(0);
        assert!(!counters.expire(Time::from_millis(99)));
        assert!(counters.expire(Time::from_millis(100)));
        assert_eq!(fences(&mut counters), [None]);
        assert!(counters.is_empty());
        // The late step is applied while its successor is in flight.
        ask(&mut counters, &[("k", 2)]);
        cluster.apply(&late);
        counters.lost(&late);
        serve(&mut counters, &mut cluster);
        assert_eq!(fences(&mut counters), [Some(vec![2])]);
        // The third question fails together with all others.
        ask(&mut counters, &[("k", 3), ("", 9), ("m", 1)]);
        let late = counters.next_steps(8);
        counters.give_up_all();
        assert_eq!(fences(&mut counters), [None]);
        ask(&mut counters, &[("k", 4)]);
        for step in &late {
            let reply = cluster.apply(step);
            counters.answered(step, reply);
        }
        serve(&mut counters, &mut cluster);
        assert_eq!(fences(&mut counters), [Some(vec![4])]);
    }

    #[test]
    fn grants_of_several_counters_are_answered_together() {
        let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
        ask(&mut counters, &[("j", 1), ("", 5), ("k", 1)]);
        let steps = counters.next_steps(1);
        counters.answered(&steps[0], cluster.apply(&steps[0]));
        assert!(fences(&mut counters).is_empty());
        serve(&mut counters, &mut cluster);
        assert_eq!(fences(&mut counters), [Some(vec![1, 5, 1])]);
    }

    #[test]
    fn a_removed_counter_continues_above_its_last_fence() {
        let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
        ask(&mut counters, &[("k", 8)]);
        serve(&mut counters, &mut cluster);
        cluster.counters.clear();
        ask(&mut counters, &[("k", 1)]);
        serve(&mut counters, &mut cluster);
        assert_eq!(fences(&mut counters), [Some(vec![8]), Some(vec![9])]);
    }

    /// A cluster that refuses every transaction with one particular counter.
    #[test]
    fn a_refused_counter_does_not_slow_other_counters() {
        let mut counters = Counters::new(RUN);
        let mut cluster = Cluster::default();
        let keys: Vec<String> = (0..100).map(|number| format!("key-{number:02}")).collect();
        let mut transactions = [0; 4];
        for count in &mut transactions {
            keys.iter().for_each(|key| ask(&mut counters, &[(key.as_str(), 1)]));
            loop {
                let steps = counters.next_steps(STEP_COUNT_MAX);
                if steps.is_empty() {
                    break;
                }
                *count += 1;
                if !steps.iter().any(|step| step.name == name("key-42")) {
                    for step in &steps {
                        let reply = cluster.apply(step);
                        counters.answered(step, reply);
                    }
                } else if let [alone] = &steps[..] {
                    counters.refused(alone);
                } else {
                    steps.iter().for_each(|step| counters.suspected(step));
                }
            }
            let settled = counters.take_settled();
            let refused = settled.iter().filter(|settled| settled.fences.is_none()).count();
            assert_eq!((settled.len(), refused), (100, 1));
        }
        // The first refusal is followed by 100 transactions of one step. Later the refused counter has its own
        // transaction, and two others carry the rest.
        assert_eq!(transactions, [101, 3, 3, 3]);
    }

    #[test]
    fn an_invalid_counter_value_is_not_overwritten() {
        let mut counters = Counters::new(RUN);
        ask(&mut counters, &[("k", 1)]);
        let step = counters.next_steps(8).remove(0);
        counters.answered(&step, Reply::Nonsense);
        assert_eq!(fences(&mut counters), [None]);
        assert!(counters.next_steps(8).is_empty());
    }
}
