//! Mailbox of a thread, and the decision whether a sender must wake the thread.

#![expect(unsafe_code, reason = "takes ownership of chains of batches from an atomic word")]

use crate::chain::{self, FIRST_ADDRESS, Node};
use crate::sync::{AtomicUsize, Ordering};
use crossbeam_utils::CachePadded;
use std::marker::PhantomData;

const AWAKE: usize = 0;
const ASLEEP: usize = 1;

/// Mailbox with one reader and any number of senders, in one atomic word. The word is AWAKE, ASLEEP, or the address of
/// the newest batch.
///
/// **Guarantees.** No batch is lost, each is taken once, and the batches of one sender are taken in order. A sender
/// must wake the reader exactly if its batch replaced ASLEEP. So a burst of batches costs one wake-up, and a busy
/// reader costs none. If [`Mailbox::sleep`] allows the reader to sleep, the mailbox is empty.
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
    /// Posts a batch. Returns whether the caller must wake the reader: the reader sleeps, and no earlier batch has
    /// ended its sleep.
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

    /// Returns all posted batches, oldest first, and marks the reader as awake. Only the reader may call this function.
    #[inline]
    pub fn take(&self) -> Vec<B> {
        if self.word.load(Ordering::Relaxed) == AWAKE {
            return Vec::new();
        }
        let head = self.word.swap(AWAKE, Ordering::Acquire);
        // SAFETY: `swap` took the chain of batches out of the word with Acquire, so no other thread has it. `head` is
        // passed to `take` only here.
        unsafe { chain::take(head) }
    }

    /// Marks the reader as asleep. Returns false if a batch was posted; the reader must then not sleep.
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
        // SAFETY: `take` requires that this thread alone owns the chain of batches. `swap` took the chain out of
        // `self.word` with Acquire, and `&mut self` proves that no other thread uses the mailbox. The chain is passed
        // to `take` only here.
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
        // The mailbox drops the batches that were not taken.
    }
}
