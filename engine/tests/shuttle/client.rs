//! Clients that ask for keys, wait or give up, and release what they got.

use crate::node::Node;
use crate::requests::{KEY_COUNT, Request, RequestMultiKey, SHARD_COUNT, Task, Terms, name, shard_of};
use crate::worker::{MultiShard, MultiShardTask};
use shuttle::rand::{Rng, thread_rng};
use std::sync::Arc;
use waymaker_engine::{Answer, CancelReason, ClaimId, Grant, LaneAddress, LaneSlot, Refusal, Ticket};

const WAIT_MS: u32 = 10;

/// What a client would have its worker do.
pub(crate) enum Wish {
    /// Serve this in that shard.
    Serve(u16, Request),
    /// Give up a claim that waits in this shard, its home, or still for its turns.
    Cancel(u16, Request),
    MultiShard(MultiShard),
    /// Begin a turn of this shard, for it is time.
    Begin(u16),
    /// The connection was lost.
    Lose(LaneAddress),
}

pub(crate) struct Client {
    address: LaneAddress,
    owner: Arc<[u8]>,
    asks_left: u32,
    /// Its connection is going to be lost, and then its holds end.
    is_leaving: bool,
    is_gone: bool,
    shared_percent: u32,
    /// The number of the last request.
    number: u32,
    unanswered: Vec<u32>,
    state: State,
}

enum State {
    Idle,
    Waits {
        number: u32,
        /// Rising, and whether it shares them.
        wanted: Vec<(usize, bool)>,
        patience: Patience,
        gave_up: bool,
    },
    Holds(Vec<(usize, bool, ClaimId)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Endless,
    /// It will cancel.
    Cancels,
    /// Its wait will end.
    Ends,
    /// It does not wait.
    Tries,
}

fn percent(likelihood: u32) -> bool {
    thread_rng().gen_range(0..100) < likelihood
}

impl Client {
    pub(crate) fn new(worker: u16, slot: u32, ask_count: u32, shared_percent: u32) -> Self {
        Self {
            address: LaneAddress { worker, slot: LaneSlot(slot), generation: 0 },
            owner: vec![worker as u8, slot as u8].into(),
            asks_left: ask_count,
            is_leaving: false,
            is_gone: false,
            shared_percent,
            number: 0,
            unanswered: Vec::new(),
            state: State::Idle,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.asks_left == 0 && self.unanswered.is_empty() && matches!(self.state, State::Idle)
    }

    /// Does the next thing, or dawdles. False if there is nothing to do before an answer comes.
    pub(crate) fn act(&mut self, node: &Node, wishes: &mut Vec<Wish>) -> bool {
        let can_act = match &self.state {
            State::Idle => self.asks_left > 0,
            State::Waits { patience, gave_up, .. } => {
                self.is_leaving || !gave_up && matches!(patience, Patience::Cancels | Patience::Ends)
            }
            State::Holds(_) => true,
        };
        if !can_act || percent(30) {
            return can_act;
        }
        match std::mem::replace(&mut self.state, State::Idle) {
            state if self.is_leaving => self.leave(node, state, wishes),
            State::Idle => self.ask(wishes),
            State::Waits { number, wanted, patience, .. } => {
                self.give_up(node, number, &wanted, patience, wishes);
                self.state = State::Waits { number, wanted, patience, gave_up: true };
            }
            State::Holds(holds) => {
                for (key, shared, id) in holds {
                    node.end_hold(key, shared);
                    let request = self.request(Task::Release(id));
                    wishes.push(Wish::Serve(shard_of(key), request));
                }
            }
        }
        true
    }

    /// For the next request.
    fn ticket(&mut self) -> Ticket {
        self.number += 1;
        self.unanswered.push(self.number);
        Ticket { lane: self.address, number: self.number }
    }

    fn request(&mut self, task: Task) -> Request {
        Request { ticket: self.ticket(), owner: Arc::clone(&self.owner), task }
    }

    fn ask(&mut self, wishes: &mut Vec<Wish>) {
        self.asks_left -= 1;
        if percent(10) {
            let shards = (0..SHARD_COUNT).collect();
            return wishes.push(Wish::MultiShard(MultiShard { shards, task: MultiShardTask::Look }));
        }
        let patience = match thread_rng().gen_range(0..10) {
            0 => Patience::Cancels,
            1 => Patience::Ends,
            2 => Patience::Tries,
            _ => Patience::Endless,
        };
        let wait_ms = match patience {
            Patience::Endless | Patience::Cancels => u32::MAX,
            Patience::Ends => WAIT_MS,
            Patience::Tries => 0,
        };
        self.is_leaving = percent(10);
        let terms = Terms { wait_ms, release_after_ms: self.is_leaving.then_some(0) };
        let count = thread_rng().gen_range(1..4);
        let mut wanted: Vec<(usize, bool)> = Vec::new();
        while wanted.len() < count {
            let key = thread_rng().gen_range(0..KEY_COUNT);
            if wanted.iter().all(|(other, _)| *other != key) {
                wanted.push((key, percent(self.shared_percent)));
            }
        }
        wanted.sort_unstable();
        let wish = if let [(key, shared)] = wanted[..] {
            Wish::Serve(shard_of(key), self.request(Task::Acquire { key, shared, terms }))
        } else {
            let mut shards: Vec<u16> = wanted.iter().map(|(key, _)| shard_of(*key)).collect();
            shards.sort_unstable();
            shards.dedup();
            let ticket = self.ticket();
            let owner = Arc::clone(&self.owner);
            let request = RequestMultiKey { ticket, owner, wanted: wanted.clone(), terms };
            Wish::MultiShard(MultiShard { shards, task: MultiShardTask::Acquire(request) })
        };
        self.state = State::Waits { number: self.number, wanted, patience, gave_up: false };
        wishes.push(wish);
    }

    fn give_up(
        &mut self,
        node: &Node,
        number: u32,
        wanted: &[(usize, bool)],
        patience: Patience,
        wishes: &mut Vec<Wish>,
    ) {
        let home = shard_of(wanted[0].0);
        if patience == Patience::Ends {
            node.pass_time(WAIT_MS);
            return wishes.push(Wish::Begin(home));
        }
        let request = self.request(Task::Cancel(number));
        wishes.push(Wish::Cancel(home, request));
    }

    fn leave(&mut self, node: &Node, state: State, wishes: &mut Vec<Wish>) {
        if let State::Holds(holds) = state {
            holds.iter().for_each(|(key, shared, _)| node.end_hold(*key, *shared));
        }
        (self.asks_left, self.is_gone) = (0, true);
        self.unanswered.clear();
        wishes.push(Wish::Lose(self.address));
    }

    pub(crate) fn hear(&mut self, node: &Node, number: u32, answer: &Answer) {
        if self.is_gone {
            return;
        }
        let place = self.unanswered.iter().position(|unanswered| *unanswered == number);
        self.unanswered.swap_remove(place.expect("each request has one answer"));
        if matches!(answer, Answer::Released { was_waiting: false } | Answer::Cancelled { .. }) {
            return;
        }
        let state = std::mem::replace(&mut self.state, State::Idle);
        let State::Waits { number: waiting, wanted, patience, gave_up } = state else {
            panic!("it waits for nothing: {answer:?}");
        };
        assert_eq!(waiting, number, "{answer:?}");
        match answer {
            Answer::Granted(grant) => self.hear_grants(node, &wanted, std::slice::from_ref(grant)),
            Answer::GrantedMultiKey(grants) => {
                let keys = grants.iter().map(|granted| (granted.key.to_vec(), granted.shared));
                let expected = wanted.iter().map(|(key, shared)| (name(*key).to_vec(), *shared));
                assert!(keys.eq(expected), "a part of it, or something else: {grants:?}");
                let grants: Vec<Grant> = grants.iter().map(|granted| granted.grant).collect();
                self.hear_grants(node, &wanted, &grants);
            }
            Answer::Refused(Refusal::Busy(_)) if patience == Patience::Tries => {}
            Answer::Refused(Refusal::Timeout(_)) if patience == Patience::Ends => {}
            Answer::Refused(Refusal::Cancelled(CancelReason::Asked))
                if patience == Patience::Cancels && gave_up => {}
            answer => panic!("{patience:?}: {answer:?}"),
        }
    }

    fn hear_grants(&mut self, node: &Node, wanted: &[(usize, bool)], grants: &[Grant]) {
        let mut holds = Vec::new();
        for ((key, shared), grant) in wanted.iter().zip(grants) {
            node.begin_hold(*key, *shared, grant.fence.get());
            holds.push((*key, *shared, grant.id));
        }
        self.state = State::Holds(holds);
    }
}
