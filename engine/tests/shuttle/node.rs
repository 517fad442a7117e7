//! What workers share: shards, mailboxes, and what the tests keep beside them.

use crate::requests::{KEY_COUNT, Request, SHARD_COUNT};
use shuttle::thread::{self, Thread};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use waymaker_engine::multi_key::MultiKeyClaim;
use waymaker_engine::{
    Answer, ClaimId, LaneAddress, Limits, Mailbox, Pass, Shard, ShardConfig, Ticket, Time, TurnCell,
};

/// Most workers that a test has.
pub(crate) const WORKER_COUNT_MAX: usize = 4;

/// What workers share. Its atomics are those of `std`, so that looking at them is no step of a schedule.
pub(crate) struct Node {
    pub(crate) shards: Vec<TurnCell<TestShard, Batch>>,
    pub(crate) mailboxes: Vec<Mailbox<Mail>>,
    pub(crate) beds: Vec<Bed>,
    /// Workers whose clients are not done.
    pub(crate) busy_count: AtomicUsize,
    /// Planted defect: a worker that passes a turn on forgets the batches that are left.
    pub(crate) forgets_left: bool,
    now_ms: AtomicU64,
    /// For each key how its holders see it: how many share it, or -1.
    holders: Vec<AtomicI32>,
    /// The newest fence of an exclusive holder.
    fences: Vec<AtomicU64>,
}

/// Where a worker sleeps.
#[derive(Default)]
pub(crate) struct Bed {
    thread: OnceLock<Thread>,
    /// Somebody was told to wake it. A thread may also wake without a reason.
    woken: AtomicBool,
}

/// A shard with the test state beside it. All of it belongs to the worker that has its turn.
pub(crate) struct TestShard {
    pub(crate) number: u16,
    pub(crate) shard: Shard,
    /// Somebody has the turn.
    pub(crate) taken: bool,
    /// For each worker the number of its last batch.
    pub(crate) served: [u32; WORKER_COUNT_MAX],
    /// How much was said.
    pub(crate) said_count: u64,
    /// A worker will begin a turn, for something is left over.
    pub(crate) armed: bool,
    /// Workers to tell when the turn is given back.
    pub(crate) knocks: Vec<usize>,
    /// Batches that were taken and not served yet, because the turn was passed on.
    pub(crate) left: VecDeque<Batch>,
    /// Claims of which this shard, or one whose turn was in hand with it, said that they are clear, and who will look.
    pub(crate) rechecks: Vec<(ClaimId, usize)>,
}

/// What is left for whoever has the turn of a shard.
pub(crate) enum Batch {
    /// The requests of a worker for this shard, and the number of the batch.
    Requests {
        from: usize,
        number: u32,
        requests: Vec<Request>,
    },
    Withdraw(Arc<MultiKeyClaim>),
    /// Tell this worker that the turn was given back.
    Knock(usize),
    /// The connection of this lane was lost.
    Lost(LaneAddress),
    /// Something is left over or due.
    Begin,
}

/// What workers send each other.
pub(crate) enum Mail {
    Letters(Vec<Letter>),
    Turn {
        shard: u16,
        pass: Pass,
    },
    Knocked {
        shard: u16,
    },
    /// All clients of all workers are done.
    Finish,
}

pub(crate) struct Letter {
    pub(crate) shard: u16,
    /// What the shard said is numbered.
    pub(crate) number: u64,
    pub(crate) ticket: Ticket,
    pub(crate) answer: Answer,
}

impl Node {
    pub(crate) fn new(worker_count: usize, forgets_left: bool) -> Self {
        let limits = Limits {
            claim_count_max: 64,
            idle_key_count_max: 4,
            bucket_count_max: 1,
            kept_bucket_count: 1,
            work_per_turn: 4,
            ..Limits::default()
        };
        let shard = |number| {
            let start = Time::from_millis(1000);
            let config = ShardConfig {
                number,
                limits,
                hash_seeds: [1, 2, 3, 4],
                secret_seed: [number as u8; 32],
                start,
            };
            TurnCell::new(TestShard {
                number,
                shard: Shard::new(&config),
                taken: false,
                served: [0; WORKER_COUNT_MAX],
                said_count: 0,
                armed: false,
                knocks: Vec::new(),
                left: VecDeque::new(),
                rechecks: Vec::new(),
            })
        };
        Self {
            shards: (0..SHARD_COUNT).map(shard).collect(),
            mailboxes: (0..worker_count).map(|_| Mailbox::default()).collect(),
            beds: (0..worker_count).map(|_| Bed::default()).collect(),
            busy_count: AtomicUsize::new(worker_count),
            forgets_left,
            now_ms: AtomicU64::new(1000),
            holders: (0..KEY_COUNT).map(|_| AtomicI32::new(0)).collect(),
            fences: (0..KEY_COUNT).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time::from_millis(self.now_ms.load(Relaxed))
    }

    pub(crate) fn pass_time(&self, ms: u32) {
        self.now_ms.fetch_add(u64::from(ms), Relaxed);
    }

    /// A client hears that it holds a key: nobody else may believe that of itself.
    pub(crate) fn begin_hold(&self, key: usize, shared: bool, fence: u64) {
        let before = self.holders[key].load(Relaxed);
        assert!(before == 0 || shared && before > 0, "key {key} is granted while it is held: {before}");
        self.holders[key].store(if shared { before + 1 } else { -1 }, Relaxed);
        if !shared {
            assert!(self.fences[key].swap(fence, Relaxed) < fence, "fence {fence} of key {key} is not new");
        }
    }

    /// A client is about to release a key.
    pub(crate) fn end_hold(&self, key: usize, shared: bool) {
        if shared {
            self.holders[key].fetch_sub(1, Relaxed);
        } else {
            self.holders[key].store(0, Relaxed);
        }
    }

    /// Every client is done, and nothing is left behind.
    pub(crate) fn assert_idle(&self) {
        for cell in &self.shards {
            let Some(turn) = cell.enter() else { panic!("a turn was never given back") };
            turn.shard.verify();
            assert_eq!(turn.shard.claim_count(), 0, "claims");
            assert!(turn.rechecks.is_empty(), "rechecks");
            assert!(turn.left.is_empty(), "batches that were taken");
            assert!(turn.leave().is_none(), "a batch was left behind");
        }
        assert!(self.mailboxes.iter().all(|mailbox| mailbox.take().is_empty()), "mail was left behind");
    }
}

impl Bed {
    /// The worker of this thread sleeps here.
    pub(crate) fn move_in(&self) {
        assert!(self.thread.set(thread::current()).is_ok(), "one worker, one bed");
    }

    /// Sleeps until it is woken. Where nobody does that it is a deadlock, which shuttle reports.
    pub(crate) fn sleep(&self) {
        while !self.woken.swap(false, Relaxed) {
            thread::park();
        }
    }

    /// Wakes the worker, which sleeps or is about to.
    pub(crate) fn wake(&self) {
        assert!(!self.woken.swap(true, Relaxed), "a worker is woken twice from one sleep");
        self.thread.get().expect("who sleeps has moved in").unpark();
    }
}

impl TestShard {
    /// Nobody else has the turn, from here until it is given back.
    pub(crate) fn take(&mut self) {
        assert!(!std::mem::replace(&mut self.taken, true), "two have the turn");
    }
}
