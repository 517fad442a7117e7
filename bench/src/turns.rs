//! Many threads on one shard: whoever comes runs it, against one thread that owns it and is sent what to do.
//!
//! Each client thread keeps one batch under way and waits for it, as a connection does that has sent its requests. What
//! is measured is the passing of control and of batches, so serving a request is a small fixed piece of work.

use crate::keys::mixed;
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use waymaker_engine::{HandedOver, Turn, TurnCell};

/// The state that is passed round: large enough not to lie in one cache line.
struct Table {
    words: Vec<u64>,
    served: u64,
}

impl Table {
    fn new() -> Self {
        Self { words: vec![0; 1024], served: 0 }
    }

    /// Serves requests numbered from `first`. Two words are read and written for each.
    fn serve(&mut self, first: u64, count: u64) {
        for number in first..first + count {
            let mixed = mixed(number);
            let (a, b) = (mixed as usize & 1023, (mixed >> 10) as usize & 1023);
            self.words[a] = self.words[a].wrapping_add(1);
            self.words[b] ^= mixed;
        }
        self.served += count;
    }
}

/// A batch that was left to another thread, and where to say that it was served.
struct Batch<'a> {
    first: u64,
    count: u64,
    done: &'a AtomicU64,
}

/// Serves requests by turns: a client enters, or leaves its batch to whoever has the turn. Gives how many were served.
pub fn by_turns(thread_count: u64, batches_per_thread: u64, batch_len: u64) -> u64 {
    let cell: TurnCell<Table, Batch<'_>> = TurnCell::new(Table::new());
    let done: Vec<AtomicU64> = (0..thread_count).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for client in 0..thread_count {
            let (cell, done) = (&cell, &done[client as usize]);
            scope.spawn(move || {
                for number in 0..batches_per_thread {
                    let first = number * batch_len;
                    if let Some(mut turn) = cell.enter() {
                        turn.serve(first, batch_len);
                        leave(turn);
                        continue;
                    }
                    let before = done.load(Ordering::Relaxed);
                    match cell.hand_over(Batch { first, count: batch_len, done }) {
                        HandedOver::Left => wait_until(|| done.load(Ordering::Acquire) > before),
                        HandedOver::Entered(mut turn, batch) => {
                            turn.serve(batch.first, batch.count);
                            leave(turn);
                        }
                    }
                }
            });
        }
    });
    let Some(turn) = cell.enter() else { return 0 };
    let served = turn.served;
    leave(turn);
    served
}

fn leave<'a>(mut turn: Turn<'a, Table, Batch<'a>>) {
    while let Some((back, batches)) = turn.leave() {
        turn = back;
        for batch in batches {
            turn.serve(batch.first, batch.count);
            batch.done.fetch_add(1, Ordering::Release);
        }
    }
}

/// Serves requests by an owning thread that is fed through a channel and answers through one a client. Gives how many
/// were served.
pub fn by_owner(thread_count: u64, batches_per_thread: u64, batch_len: u64) -> u64 {
    let (to_owner, inbox): (Sender<(u64, u64, usize)>, Receiver<_>) = unbounded();
    let answers: Vec<(Sender<u64>, Receiver<u64>)> = (0..thread_count).map(|_| bounded(1)).collect();
    thread::scope(|scope| {
        let replies: Vec<Sender<u64>> = answers.iter().map(|(reply, _)| reply.clone()).collect();
        let owner = scope.spawn(move || {
            let mut table = Table::new();
            while let Some((first, count, client)) = next(&inbox) {
                table.serve(first, count);
                // The client has gone if nobody hears it; then nobody waits for it either.
                let _ = replies[client].send(count);
            }
            table.served
        });
        for (client, (_, reply)) in answers.iter().enumerate() {
            let to_owner = to_owner.clone();
            scope.spawn(move || {
                for number in 0..batches_per_thread {
                    if to_owner.send((number * batch_len, batch_len, client)).is_err()
                        || reply.recv().is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(to_owner);
        owner.join().unwrap_or(0)
    })
}

/// What comes next, without sleeping: waking would cost far more than what is compared here.
fn next<T>(receiver: &Receiver<T>) -> Option<T> {
    let mut received = Err(TryRecvError::Empty);
    wait_until(|| {
        received = receiver.try_recv();
        !matches!(received, Err(TryRecvError::Empty))
    });
    received.ok()
}

/// A worker would go on with other connections; here there are none, so it spins, and lets others run now and then.
fn wait_until(mut is_done: impl FnMut() -> bool) {
    let mut tries = 0_u32;
    while !is_done() {
        tries += 1;
        if tries.is_multiple_of(128) {
            thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_serve_every_request_once() {
        for batch_len in [1, 16] {
            assert_eq!(by_turns(2, 500, batch_len), 1000 * batch_len);
            assert_eq!(by_owner(2, 500, batch_len), 1000 * batch_len);
        }
    }
}
