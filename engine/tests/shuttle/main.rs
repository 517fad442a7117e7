//! Workers, shards and what goes between them in random schedules: more threads than loom can have, and real shards in the
//! cells.
//!
//! `./test shuttle` runs them.
//!
//! A failure prints its schedule for `shuttle::replay`. Where it prints a seed too, `SHUTTLE_RANDOM_SEED` set to that runs the
//! failing schedule first.

#![cfg(shuttle)]

mod client;
mod node;
mod requests;
mod worker;

use client::Client;
use node::{Node, WORKER_COUNT_MAX};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};
use std::panic::catch_unwind;
use worker::Worker;

/// Clients of each worker.
const CLIENT_COUNT: u32 = 2;
/// How often each of them asks.
const ASK_COUNT: u32 = 2;

/// Clients ask, wait, give up and release until all of them are done.
fn crowd(forgets_left: bool) {
    let worker_count = thread_rng().gen_range(3..=WORKER_COUNT_MAX);
    let shared_percent = [0, 50, 100][thread_rng().gen_range(0..3)];
    let node = Node::new(worker_count, forgets_left);
    let mut workers: Vec<Worker<'_>> = thread::scope(|scope| {
        let run = |index| {
            let client = |slot| Client::new(index as u16, slot, ASK_COUNT, shared_percent);
            let mut worker = Worker::new(&node, index, (0..CLIENT_COUNT).map(client).collect());
            scope.spawn(move || {
                worker.run();
                worker
            })
        };
        let threads: Vec<_> = (0..worker_count).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // What was on its way when the last client was done.
    while workers.iter_mut().fold(false, |any, worker| worker.settle() | any) {}
    workers.iter().for_each(Worker::assert_idle);
    node.assert_idle();
}

fn check(scheduler: impl Scheduler + 'static, forgets_left: bool) {
    let mut config = Config::new();
    // It warns that its atomics are sequentially consistent. Weaker ones are what loom is for.
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || crowd(forgets_left));
}

#[test]
fn every_request_is_answered_and_nothing_leaks_in_random_schedules() {
    check(RandomScheduler::new_from_seed(1, 100_000), false);
}

/// Schedules in which threads are held up for long, at a few points.
#[test]
fn every_request_is_answered_and_nothing_leaks_with_few_preemptions() {
    check(shuttle::scheduler::PctScheduler::new_from_seed(1, 3, 100_000), false);
}

#[test]
fn shuttle_finds_a_turn_passed_on_without_its_remaining_batches() {
    let found = catch_unwind(|| check(RandomScheduler::new_from_seed(1, 100_000), true));
    assert!(found.is_err(), "shuttle did not find the lost batches");
}
