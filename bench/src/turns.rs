//! Many threads on one shard: any thread may take the shard's turn, compared with a thread that owns the shard and
//! receives requests.
//!
//! Each client thread has one batch in flight and waits for it, like a connection that has sent its requests. The
//! benchmark measures the transfer of control and of batches, so serving a request is a small fixed piece of work.

use crate::keys::mixed;
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use waymaker_engine::{HandedOver, Turn, TurnCell};

/// State that the threads pass on; larger than one cache line.
struct Table {
    words: Vec<u64>,
    served: u64,
}

impl Table {
    fn new() -> Self {
        Self { words: vec![0; 1024], served: 0 }
    }

    /// Serves requests numbered from `first`. Reads and writes two words for each.
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

/// A batch left to another thread, and the place to report that it was served.
struct Batch<'a> {
    first: u64,
    count: u64,
    done: &'a AtomicU64,
}

/// Serves requests by turns: a client enters the shard, or leaves its batch to the thread that has the turn.
/// Returns the number of served requests.
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

/// Serves requests with an owning thread that receives them through one channel and replies through a channel per
/// client. Returns the number of served requests.
pub fn by_owner(thread_count: u64, batches_per_thread: u64, batch_len: u64) -> u64 {
    let (to_owner, inbox): (Sender<(u64, u64, usize)>, Receiver<_>) = unbounded();
    let answers: Vec<(Sender<u64>, Receiver<u64>)> = (0..thread_count).map(|_| bounded(1)).collect();
    thread::scope(|scope| {
        let replies: Vec<Sender<u64>> = answers.iter().map(|(reply, _)| reply.clone()).collect();
        let owner = scope.spawn(move || {
            let mut table = Table::new();
            while let Some((first, count, client)) = next(&inbox) {
                table.serve(first, count);
                // The client may have ended; then no thread waits for the reply.
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

/// Receives the next message without sleeping, because waking a thread costs far more than the compared
/// difference.
fn next<T>(receiver: &Receiver<T>) -> Option<T> {
    let mut received = Err(TryRecvError::Empty);
    wait_until(|| {
        received = receiver.try_recv();
        !matches!(received, Err(TryRecvError::Empty))
    });
    received.ok()
}

/// Spins and yields from time to time. A worker would serve other connections instead; here there are none.
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
    fn both_designs_serve_every_request_once() {
        for batch_len in [1, 16] {
            assert_eq!(by_turns(2, 500, batch_len), 1000 * batch_len);
            assert_eq!(by_owner(2, 500, batch_len), 1000 * batch_len);
        }
    }
}
