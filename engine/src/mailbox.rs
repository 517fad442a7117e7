//! What other threads send to one, and whether they must wake it.

#![expect(unsafe_code, reason = "takes ownership of chains of batches from an atomic word")]

use crate::chain::{self, FIRST_ADDRESS, Node};
use crate::sync::{AtomicUsize, Ordering};
use crossbeam_utils::CachePadded;
use std::marker::PhantomData;

const AWAKE: usize = 0;
const ASLEEP: usize = 1;

/// A mailbox with one reader and any number of senders, in one atomic word: awake, asleep, or the newest of the batches
/// that were posted.
///
/// **What it promises.** No batch is lost and each is taken once, those of one sender in order. A sender is told to wake
/// the reader exactly if it replaced ASLEEP, so a burst of batches costs one wake-up and a busy reader none. A reader
/// that [`Mailbox::sleep`] allowed to sleep has an empty mailbox.
#[derive(Debug)]
pub struct Mailbox<B> {
    word: CachePadded<AtomicUsize>,
    batches: PhantomData<B>,
}

// SAFETY: batches only move from one thread to another, so they must be Send; nothing is shared.
unsafe impl<B: Send> Sync for Mailbox<B> {}
// SAFETY: as above.
unsafe impl<B: Send> Send for Mailbox<B> {}

impl<B> Default for Mailbox<B> {
    fn default() -> Self {
        Self { word: CachePadded::new(AtomicUsize::new(AWAKE)), batches: PhantomData }
    }
}

impl<B> Mailbox<B> {
    /// Posts a batch. True: the reader sleeps, and the caller must wake it.
    pub fn post(&self, batch: B) -> bool {
        let mut node = Node::new(batch);
        let mut current = self.word.load(Ordering::Relaxed);
        loop {
            match chain::push(&self.word, current, node) {
                Ok(()) => return current == ASLEEP,
                Err((actual, back)) => (current, node) = (actual, back),
            }
        }
    }

    /// Everything that was posted, oldest first; the reader counts as awake from here on. Only the reader may call it.
    #[inline]
    pub fn take(&self) -> Vec<B> {
        if self.word.load(Ordering::Relaxed) == AWAKE {
            return Vec::new();
        }
        let head = self.word.swap(AWAKE, Ordering::Acquire);
        // SAFETY: swapped out with Acquire, and used once.
        unsafe { chain::take(head) }
    }

    /// The reader is about to sleep. False: something was posted, so it must not.
    pub fn sleep(&self) -> bool {
        match self.word.compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(actual) => {
                debug_assert!(actual == ASLEEP || actual >= FIRST_ADDRESS);
                actual == ASLEEP
            }
        }
    }
}

impl<B> Drop for Mailbox<B> {
    fn drop(&mut self) {
        let word = self.word.swap(AWAKE, Ordering::Acquire);
        // SAFETY: swapped out above; `&mut self` proves that no sender is left.
        drop(unsafe { chain::take::<B>(word) });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn batches_of_several_senders_are_taken_once_each() {
        let mailbox = Mailbox::default();
        let post = |first: u32| {
            for batch in first..first + 10 {
                mailbox.post(Box::new(batch));
            }
        };
        let mut taken = Vec::new();
        thread::scope(|scope| {
            for first in [0, 10, 20] {
                scope.spawn(move || post(first));
            }
            taken.extend(mailbox.take());
        });
        taken.extend(mailbox.take());
        let mut numbers: Vec<u32> = taken.into_iter().map(|batch| *batch).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, Vec::from_iter(0..30));
    }

    #[test]
    fn only_the_first_batch_for_a_sleeping_reader_wakes_it() {
        let mailbox = Mailbox::default();
        assert!(!mailbox.post(1) && !mailbox.sleep(), "a reader with mail must not sleep");
        assert_eq!(mailbox.take(), [1]);
        assert!(mailbox.sleep() && mailbox.post(2) && !mailbox.post(3));
        // What was not taken is dropped with the mailbox.
    }
}
