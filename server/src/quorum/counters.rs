//! What the cluster is asked, and what its answers mean. No I/O and no clock: whoever has it hands on both.

use super::positions::{Position, Positions};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use waymaker_engine::{CounterName, QuorumQuestion, Time};

/// Counters that are remembered as suspects.
const SUSPECT_COUNT_MAX: usize = 1024;

/// Tells one attempt to count from all others of this server and of every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Another one for each start of a server.
    pub run: u64,
    /// Rises in it.
    pub number: u64,
}

/// One step of one counter: write this fence, unless the counter was written since this revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The counter.
    pub name: CounterName,
    /// Stands beside the fence in what is written, so that who reads it knows whose it is.
    pub attempt: Attempt,
    /// The revision of the cluster in which the counter was last written; 0: it is not there.
    pub since: i64,
    /// The fence of the last grant that is counted by it.
    pub fence: u64,
}

/// What the cluster says to one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was written, in this revision.
    Written {
        /// Of the cluster.
        revision: i64,
    },
    /// Nothing was written: this is there.
    Found(Option<Found>),
    /// Nothing was written: what is there is no counter.
    Nonsense,
}

/// A counter as the cluster has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The revision in which it was written.
    pub revision: i64,
    /// Its fence.
    pub fence: u64,
    /// Who wrote it.
    pub attempt: Attempt,
}

/// A question that is over.
#[derive(Debug, PartialEq, Eq)]
pub struct Settled {
    /// What was asked.
    pub question: QuorumQuestion,
    /// The fence of each of its grants. `None`: they were not counted, as far as anybody knows.
    pub fences: Option<Box<[u64]>>,
}

/// The counters that something is asked of.
///
/// Each counter is written by one *step* at a time: a transaction that writes the next fence if nobody else wrote since we
/// last looked. So all servers that ever count the same counter agree on its order, and a step that is applied late does
/// nothing. Grants of one counter that were asked for meanwhile go together into its next step; steps of different counters go
/// together into one transaction.
///
/// A step whose answer is lost is asked once more as it was. Was it applied the first time, the second finds what was written,
/// with its own attempt beside it, and that is the answer; was it not, it is now, and the first cannot be any more. Nothing is
/// guessed, and nothing is counted twice.
#[derive(Debug)]
pub struct Counters {
    run: u64,
    last_attempt: u64,
    positions: Positions,
    lines: BTreeMap<CounterName, Line>,
    /// Counters that have something to ask and no step in flight.
    ready: VecDeque<CounterName>,
    /// Counters that may have made etcd refuse a whole transaction. Each gets a transaction of its own until etcd answers it.
    suspects: BTreeSet<CounterName>,
    questions: BTreeMap<u64, Open>,
    last_question: u64,
    settled: Vec<Settled>,
}

/// What is asked of one counter.
#[derive(Debug, Default)]
struct Line {
    /// A step that is in flight, or is to be asked again.
    step: Option<(Step, Vec<(Place, u64)>)>,
    /// Grants that no step counts yet, with the least fence of each.
    waiting: Vec<(Place, u64)>,
}

/// One grant of a question.
#[derive(Clone, Copy, Debug)]
struct Place {
    question: u64,
    member: usize,
}

/// A question that is not over.
#[derive(Debug)]
struct Open {
    question: QuorumQuestion,
    fences: Box<[u64]>,
    uncounted: usize,
    deadline: Time,
}

impl Counters {
    /// Knows no counter. `run` is another one for each start of a server.
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

    /// Nothing is asked.
    pub fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }

    /// Takes a question that has to be answered by then. Deadlines only rise.
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
        self.questions.insert(number, Open { question, fences, uncounted, deadline });
    }

    /// The next steps, at most so many, all of different counters. A suspect is alone.
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
                // Once more, as it was.
                steps.push(step.clone());
                continue;
            }
            let Position { revision, mut fence } = self.positions.get(&name);
            let mut counted = std::mem::take(&mut line.waiting);
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

    /// The cluster has answered a step.
    pub fn answered(&mut self, step: &Step, reply: Reply) {
        self.suspects.remove(&step.name);
        let written = match reply {
            Reply::Written { revision } => Some(revision),
            Reply::Found(Some(found)) if found.attempt == step.attempt => Some(found.revision),
            _ => None,
        };
        if let Some(revision) = written {
            self.positions.set(&step.name, Position { revision, fence: step.fence });
        } else if let Reply::Found(found) = reply {
            // Where somebody removed it, it goes on from what we know.
            let fence = self.positions.get(&step.name).fence;
            let position =
                found.map_or(Position { revision: 0, fence }, |Found { revision, fence, .. }| Position {
                    revision,
                    fence,
                });
            self.positions.set(&step.name, position);
        }
        let Some((_, counted)) = self.leave_flight(step) else { return };
        match reply {
            _ if written.is_some() => {
                for (place, fence) in counted {
                    self.count(place, fence);
                }
            }
            Reply::Nonsense => counted.iter().for_each(|(place, _)| self.give_up(place.question)),
            _ => {
                // Somebody else has counted: once more from there, in front of those that came later.
                if let Some(line) = self.lines.get_mut(&step.name) {
                    line.waiting.splice(0..0, counted);
                }
            }
        }
        self.go_on(&step.name);
    }

    /// The answer to a step was lost, or it was not heard: it is asked once more.
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

    /// The cluster will never count this.
    pub fn refused(&mut self, step: &Step) {
        if let Some((_, counted)) = self.leave_flight(step) {
            counted.iter().for_each(|(place, _)| self.give_up(place.question));
            self.go_on(&step.name);
        }
    }

    /// Gives up what was to be answered by now. Says whether there was anything.
    pub fn expire(&mut self, now: Time) -> bool {
        let is_over = |open: &Open| open.deadline <= now;
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

    /// Gives up everything that was asked.
    pub fn give_up_all(&mut self) {
        while let Some((number, _)) = self.questions.first_key_value() {
            self.give_up(*number);
        }
        // What is in flight is answered to nobody; a step that is applied all the same is found by the next one.
        self.lines.clear();
        self.ready.clear();
    }

    /// By when the next question has to be answered.
    pub fn next_deadline(&self) -> Option<Time> {
        self.questions.first_key_value().map(|(_, open)| open.deadline)
    }

    /// Questions that are over since this was last asked.
    pub fn take_settled(&mut self) -> Vec<Settled> {
        std::mem::take(&mut self.settled)
    }

    /// The step of this attempt, and what it counts, if it is still waited for.
    fn leave_flight(&mut self, step: &Step) -> Option<(Step, Vec<(Place, u64)>)> {
        let line = self.lines.get_mut(&step.name)?;
        line.step.take_if(|(own, _)| own.attempt == step.attempt)
    }

    /// A counter whose step came back: it is asked again, or nothing is left to ask.
    fn go_on(&mut self, name: &CounterName) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let questions = &self.questions;
        let is_open = |(place, _): &(Place, u64)| questions.contains_key(&place.question);
        line.waiting.retain(is_open);
        // Nobody waits for it any more.
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
            && let Some(Open { question, fences, .. }) = self.questions.remove(&place.question)
        {
            self.settled.push(Settled { question, fences: Some(fences) });
        }
    }

    /// What it waits for elsewhere is skipped there.
    fn give_up(&mut self, question: u64) {
        if let Some(Open { question, .. }) = self.questions.remove(&question) {
            self.settled.push(Settled { question, fences: None });
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

    /// What a cluster does with steps.
    #[derive(Default)]
    struct Cluster {
        revision: i64,
        counters: BTreeMap<CounterName, Found>,
    }

    impl Cluster {
        fn apply(&mut self, step: &Step) -> Reply {
            let found = self.counters.get(&step.name).copied();
            if found.map_or(0, |found| found.revision) != step.since {
                return Reply::Found(found);
            }
            self.revision += 1;
            let found = Found { revision: self.revision, fence: step.fence, attempt: step.attempt };
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
        QuorumQuestion { at: Time::ZERO, members: grants.iter().map(member).collect(), several: None }
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
        // Another server goes on where this one was, whatever it believes.
        let mut other = Counters::new(RUN + 1);
        ask(&mut other, &[("k", 1)]);
        serve(&mut other, &mut cluster);
        assert_eq!(fences(&mut other), [Some(vec![4])]);
        // And what this one knows is old now.
        ask(&mut counters, &[("k", 4)]);
        serve(&mut counters, &mut cluster);
        assert_eq!(fences(&mut counters), [Some(vec![5])]);
        // What a key had before its scope rose counts too.
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
        // The one in front is applied while the next one is asked.
        ask(&mut counters, &[("k", 2)]);
        cluster.apply(&late);
        counters.lost(&late);
        serve(&mut counters, &mut cluster);
        assert_eq!(fences(&mut counters), [Some(vec![2])]);
        // Given up together with all others.
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

    /// etcd refuses every transaction that has this one counter.
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
        // The first refusal makes 100 transactions of one step. Later the bad counter has one, and the others share two.
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
