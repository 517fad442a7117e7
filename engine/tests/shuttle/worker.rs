//! A worker as the server has it, without all but its visits to the shards.

use crate::client::{Client, Wish};
use crate::node::{Batch, Letter, Mail, Node, TestShard};
use crate::requests::{Recorder, Request, RequestMultiKey, SHARD_COUNT, Task, apply, apply_multi_key};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use waymaker_engine::multi_key::{self, MultiKeyClaim, Participant};
use waymaker_engine::{Answer, CancelReason, HandedOver, LaneAddress, LaneIx, Refusal, Ticket, Turn};

/// A worker that has served more batches than this for others passes the turn on, with the batches that are left.
const BATCHES_PER_TURN: usize = 1;

type ShardTurn<'a> = Turn<'a, TestShard, Batch>;

/// What a turn leaves to be done once it was given back.
enum FollowUp {
    Recheck(Arc<MultiKeyClaim>),
    Withdraw(Arc<MultiKeyClaim>),
}

/// Something to do with several turns in hand.
pub(crate) struct MultiShard {
    /// Each once, rising.
    pub(crate) shards: Vec<u16>,
    pub(crate) task: MultiShardTask,
}

pub(crate) enum MultiShardTask {
    Acquire(RequestMultiKey),
    Recheck(Arc<MultiKeyClaim>),
    /// Do nothing: the promise is looked at whenever turns are in hand.
    Look,
}

pub(crate) struct Worker<'n> {
    node: &'n Node,
    index: usize,
    clients: Vec<Client>,
    /// What other workers will get, by worker.
    letters: Vec<Vec<Letter>>,
    /// What came with letters that had to be read at once, and can wait.
    mails: VecDeque<Mail>,
    wakes: Vec<usize>,
    follow_ups: Vec<FollowUp>,
    multi_shard: VecDeque<MultiShard>,
    knocked: Vec<u16>,
    /// Shards in which something is left over or due.
    due: Vec<u16>,
    /// For each shard the number of the last batch for it, and of what was heard last.
    handed: [u32; SHARD_COUNT as usize],
    heard: [u64; SHARD_COUNT as usize],
    done: bool,
    finishing: bool,
}

impl<'n> Worker<'n> {
    pub(crate) fn new(node: &'n Node, index: usize, clients: Vec<Client>) -> Self {
        Self {
            node,
            index,
            clients,
            letters: node.mailboxes.iter().map(|_| Vec::new()).collect(),
            mails: VecDeque::new(),
            wakes: Vec::new(),
            follow_ups: Vec::new(),
            multi_shard: VecDeque::new(),
            knocked: Vec::new(),
            due: Vec::new(),
            handed: [0; SHARD_COUNT as usize],
            heard: [0; SHARD_COUNT as usize],
            done: false,
            finishing: false,
        }
    }

    /// Until all clients of all workers are done. What is on its way to this worker then is left to `settle`.
    pub(crate) fn run(&mut self) {
        let bed = &self.node.beds[self.index];
        bed.move_in();
        while !self.finishing {
            let any = self.settle() | self.ask();
            if !any && self.node.mailboxes[self.index].sleep() {
                bed.sleep();
            }
        }
    }

    /// Does what has come and what is left over. False if that was nothing.
    pub(crate) fn settle(&mut self) -> bool {
        let mut any = self.read_letters();
        while let Some(mail) = self.mails.pop_front() {
            any = true;
            match mail {
                Mail::Letters(letters) => letters.iter().for_each(|letter| self.hear(letter)),
                Mail::Turn { shard, pass } => {
                    let turn = self.node.shards[usize::from(shard)].resume(pass);
                    self.leave(turn, shard);
                }
                Mail::Knocked { shard } => self.retry_multi_shard(shard),
                Mail::Finish => self.finishing = true,
            }
        }
        for shard in std::mem::take(&mut self.due) {
            any = true;
            self.hand_over(shard, Batch::Begin);
        }
        self.finish_step();
        any
    }

    /// Nothing is left to be done.
    pub(crate) fn assert_idle(&self) {
        assert!(self.clients.iter().all(Client::is_done), "a client was not answered");
        assert!(self.letters.iter().all(Vec::is_empty) && self.mails.is_empty() && self.wakes.is_empty());
        assert!(self.follow_ups.is_empty() && self.multi_shard.is_empty(), "something needs several turns");
        assert!(self.knocked.is_empty(), "a knock was not answered");
        assert!(self.due.is_empty(), "something is left over");
    }

    /// Lets the clients do something. False if none of them has anything to do.
    fn ask(&mut self) -> bool {
        let mut wishes = Vec::new();
        let mut any = false;
        for client in &mut self.clients {
            any |= client.act(self.node, &mut wishes);
        }
        let mut requests = Vec::new();
        for wish in wishes {
            match wish {
                Wish::Serve(shard, request) => requests.push((shard, request)),
                Wish::Cancel(home, request) => {
                    if !self.cancel_multi_shard(&request) {
                        requests.push((home, request));
                    }
                }
                Wish::MultiShard(multi_shard) => self.do_multi_shard(multi_shard),
                Wish::Begin(shard) => self.hand_over(shard, Batch::Begin),
                Wish::Lose(lane) => self.lose(lane),
            }
        }
        self.serve_by_shard(requests);
        self.finish_step();
        if !self.done && self.multi_shard.is_empty() && self.clients.iter().all(Client::is_done) {
            self.done = true;
            any = true;
            if self.node.busy_count.fetch_sub(1, Relaxed) == 1 {
                for worker in 0..self.letters.len() {
                    self.mail(worker, Mail::Finish);
                }
                self.finish_step();
            }
        }
        any
    }

    /// Serves what it can, comes round once more, and leaves the rest to whoever has the turns.
    fn serve_by_shard(&mut self, mut requests: Vec<(u16, Request)>) {
        requests.sort_by_key(|(shard, _)| *shard);
        let mut later = Vec::new();
        while let Some((shard, _)) = requests.first() {
            let shard = *shard;
            let group: Vec<Request> =
                requests.extract_if(.., |(of, _)| *of == shard).map(|(_, request)| request).collect();
            self.handed[usize::from(shard)] += 1;
            let number = self.handed[usize::from(shard)];
            let batch = Batch::Requests { from: self.index, number, requests: group };
            match self.enter(shard) {
                Some(turn) => self.serve(turn, shard, batch),
                None => later.push((shard, batch)),
            }
        }
        for (shard, batch) in later {
            match self.enter(shard) {
                Some(turn) => self.serve(turn, shard, batch),
                None => self.hand_over(shard, batch),
            }
        }
    }

    fn enter(&self, shard: u16) -> Option<ShardTurn<'n>> {
        let node = self.node;
        let mut turn = node.shards[usize::from(shard)].enter()?;
        turn.take();
        Some(turn)
    }

    fn hand_over(&mut self, shard: u16, batch: Batch) {
        let node = self.node;
        if let HandedOver::Entered(mut turn, batch) = node.shards[usize::from(shard)].hand_over(batch) {
            turn.take();
            self.serve(turn, shard, batch);
        }
    }

    fn serve(&mut self, mut turn: ShardTurn<'_>, shard: u16, batch: Batch) {
        self.begin(&mut turn);
        self.serve_left(&mut turn, shard, batch);
        self.leave(turn, shard);
    }

    fn begin(&mut self, turn: &mut ShardTurn<'_>) {
        // What earlier turns of this shard said to our clients is heard before what this one will say.
        self.read_letters();
        let now = self.node.now();
        let mut said = Recorder::default();
        turn.shard.begin_turn(now, now, &mut said);
        self.say(std::slice::from_mut(turn), said);
    }

    fn leave(&mut self, mut turn: ShardTurn<'_>, shard: u16) {
        let mut served = 0;
        loop {
            turn.shard.verify();
            if turn.shard.next_deadline() <= self.node.now() && !turn.armed {
                turn.armed = true;
                self.due.push(shard);
            }
            // Posted while the turn is held: what it said arrives in the order in which it became true.
            self.post();
            if served > BATCHES_PER_TURN {
                if self.node.forgets_left {
                    turn.left.clear();
                }
                let next = (self.index + 1) % self.letters.len();
                return self.mail(next, Mail::Turn { shard, pass: turn.pass_on() });
            }
            if !turn.left.is_empty() {
                while served <= BATCHES_PER_TURN
                    && let Some(batch) = turn.left.pop_front()
                {
                    served += 1;
                    self.serve_left(&mut turn, shard, batch);
                }
                continue;
            }
            turn.taken = false;
            let knocks = std::mem::take(&mut turn.knocks);
            match turn.leave() {
                None => {
                    for worker in knocks {
                        self.mail(worker, Mail::Knocked { shard });
                    }
                    return;
                }
                Some((again, batches)) => {
                    turn = again;
                    turn.take();
                    turn.knocks = knocks;
                    turn.left.extend(batches);
                }
            }
        }
    }

    fn serve_left(&mut self, turn: &mut ShardTurn<'_>, shard: u16, batch: Batch) {
        let mut said = Recorder::default();
        match batch {
            Batch::Requests { from, number, requests } => {
                let before = std::mem::replace(&mut turn.served[from], number);
                assert_eq!(before + 1, number, "batches of worker {from} for shard {shard}");
                for request in &requests {
                    apply(&mut turn.shard, request, &mut said);
                }
            }
            Batch::Withdraw(claim) => turn.shard.withdraw(&claim, &mut said),
            Batch::Knock(worker) => turn.knocks.push(worker),
            Batch::Lost(lane) => turn.shard.close_lane(lane, true, &mut said),
            Batch::Begin => {
                turn.armed = false;
                self.begin(turn);
            }
        }
        self.say(std::slice::from_mut(turn), said);
    }

    /// Delivers what was said in these turns, or will post it before they are given back.
    fn say(&mut self, turns: &mut [ShardTurn<'_>], said: Recorder) {
        for (ticket, answer) in said.answers {
            turns[0].said_count += 1;
            let letter = Letter { shard: turns[0].number, number: turns[0].said_count, ticket, answer };
            let worker = usize::from(ticket.lane.worker);
            if worker == self.index { self.hear(&letter) } else { self.letters[worker].push(letter) }
        }
        for claim in said.rechecks {
            let of_claim = |turn: &&mut ShardTurn<'_>| claim.shards().contains(&turn.number);
            let turn = turns.iter_mut().find(of_claim).expect("it was said by a shard of the claim");
            turn.rechecks.push((claim.id(), self.index));
            self.follow_ups.push(FollowUp::Recheck(claim));
        }
        self.follow_ups.extend(said.withdraws.into_iter().map(FollowUp::Withdraw));
    }

    fn hear(&mut self, letter: &Letter) {
        let heard = &mut self.heard[usize::from(letter.shard)];
        assert!(*heard < letter.number, "what shard {} said comes in another order", letter.shard);
        *heard = letter.number;
        let Ticket { lane, number } = letter.ticket;
        self.clients[lane.slot.index()].hear(self.node, number, &letter.answer);
    }

    fn read_letters(&mut self) -> bool {
        let mails = self.node.mailboxes[self.index].take();
        let any = !mails.is_empty();
        for mail in mails {
            match mail {
                Mail::Letters(letters) => letters.iter().for_each(|letter| self.hear(letter)),
                other => self.mails.push_back(other),
            }
        }
        any
    }

    fn post(&mut self) {
        for worker in 0..self.letters.len() {
            if !self.letters[worker].is_empty() {
                let letters = std::mem::take(&mut self.letters[worker]);
                self.mail(worker, Mail::Letters(letters));
            }
        }
    }

    fn mail(&mut self, worker: usize, mail: Mail) {
        if self.node.mailboxes[worker].post(mail) {
            self.wakes.push(worker);
        }
    }

    fn finish_step(&mut self) {
        while let Some(follow_up) = self.follow_ups.pop() {
            match follow_up {
                FollowUp::Withdraw(claim) => {
                    for shard in claim.shards() {
                        self.hand_over(*shard, Batch::Withdraw(Arc::clone(&claim)));
                    }
                }
                FollowUp::Recheck(claim) => {
                    // One that has still to look will see what has changed.
                    if !self.will_recheck(&claim) {
                        let shards = claim.shards().to_vec();
                        self.do_multi_shard(MultiShard { shards, task: MultiShardTask::Recheck(claim) });
                    }
                }
            }
        }
        self.post();
        while let Some(worker) = self.wakes.pop() {
            self.node.beds[worker].wake();
        }
    }

    fn will_recheck(&self, claim: &MultiKeyClaim) -> bool {
        let is_same = |multi_shard: &MultiShard| matches!(&multi_shard.task, MultiShardTask::Recheck(other) if other.id() == claim.id());
        self.multi_shard.iter().any(is_same)
    }

    /// Gives up a request that still waits for its turns. False if it does not.
    fn cancel_multi_shard(&mut self, request: &Request) -> bool {
        let Task::Cancel(number) = request.task else { return false };
        let wanted = Ticket { number, ..request.ticket };
        let is_wanted = |multi_shard: &MultiShard| matches!(&multi_shard.task, MultiShardTask::Acquire(request) if request.ticket == wanted);
        let Some(place) = self.multi_shard.iter().position(is_wanted) else { return false };
        self.multi_shard.remove(place);
        let client = &mut self.clients[wanted.lane.slot.index()];
        client.hear(self.node, request.ticket.number, &Answer::Cancelled { was_waiting: true });
        client.hear(self.node, number, &Answer::Refused(Refusal::Cancelled(CancelReason::Asked)));
        true
    }

    /// The connection of a client is lost, before or after what it asked for began to wait.
    fn lose(&mut self, lane: LaneAddress) {
        let is_other = |multi_shard: &MultiShard| !matches!(&multi_shard.task, MultiShardTask::Acquire(request) if request.ticket.lane == lane);
        self.multi_shard.retain(is_other);
        for shard in 0..SHARD_COUNT {
            self.hand_over(shard, Batch::Lost(lane));
        }
    }

    fn retry_multi_shard(&mut self, shard: u16) {
        self.knocked.retain(|knocked| *knocked != shard);
        for _ in 0..self.multi_shard.len() {
            if let Some(multi_shard) = self.multi_shard.pop_front() {
                self.do_multi_shard(multi_shard);
            }
        }
    }

    /// Takes all turns in the order of their shards. If one is held the others are given back, and whoever has it will say
    /// when it is free.
    fn do_multi_shard(&mut self, multi_shard: MultiShard) {
        let mut turns = Vec::with_capacity(multi_shard.shards.len());
        for shard in &multi_shard.shards {
            if let Some(mut turn) = self.enter(*shard) {
                self.begin(&mut turn);
                turns.push(turn);
                continue;
            }
            self.leave_all(&multi_shard.shards, turns);
            let shard = *shard;
            self.multi_shard.push_back(multi_shard);
            return self.knock(shard);
        }
        self.assert_due_is_pending(&mut turns);
        let mut said = Recorder::default();
        match &multi_shard.task {
            MultiShardTask::Acquire(request) => {
                apply_multi_key(&mut participants(&mut turns), request, &mut said);
            }
            MultiShardTask::Recheck(claim) => {
                for turn in &mut turns {
                    turn.rechecks.retain(|recheck| *recheck != (claim.id(), self.index));
                }
                multi_key::recheck(&mut participants(&mut turns), claim, &mut said);
            }
            MultiShardTask::Look => {}
        }
        self.say(&mut turns, said);
        self.assert_due_is_pending(&mut turns);
        self.leave_all(&multi_shard.shards, turns);
    }

    fn leave_all(&mut self, shards: &[u16], turns: Vec<ShardTurn<'_>>) {
        for (shard, turn) in shards.iter().zip(turns) {
            self.leave(turn, *shard);
        }
    }

    fn knock(&mut self, shard: u16) {
        if !self.knocked.contains(&shard) {
            self.knocked.push(shard);
            self.hand_over(shard, Batch::Knock(self.index));
        }
    }

    /// The promise: a claim that could be granted is granted in the same step, or somebody is about to look at it. (For
    /// claims over one key `verify` says so.) As seen at one instant, with these turns in hand.
    fn assert_due_is_pending(&self, turns: &mut [ShardTurn<'_>]) {
        let waiting: Vec<_> = turns.iter().flat_map(|turn| turn.shard.waiting_multi_key_claims()).collect();
        for claim in waiting {
            let of_claim = |turn: &ShardTurn<'_>| claim.shards().contains(&turn.number);
            if turns.iter().filter(|turn| of_claim(turn)).count() < claim.shards().len() {
                continue;
            }
            let pending = turns.iter().flat_map(|turn| &turn.rechecks).any(|(id, _)| *id == claim.id());
            let participants: Vec<_> = turns
                .iter_mut()
                .filter(|turn| of_claim(turn))
                .map(|turn| Participant { shard: &mut turn.shard, lane: LaneIx::NONE })
                .collect();
            assert!(
                pending || !multi_key::is_grant_due(&participants, &claim),
                "{claim:?} could be granted, and nobody will look"
            );
        }
    }
}

fn participants<'a>(turns: &'a mut [ShardTurn<'_>]) -> Vec<Participant<'a>> {
    turns.iter_mut().map(|turn| Participant { shard: &mut turn.shard, lane: LaneIx::NONE }).collect()
}
