//! Batches that wait in an atomic word, newest first.

#![expect(
    unsafe_code,
    reason = "an owning list whose head is an atomic word cannot be written with safe pointers"
)]

use crate::sync::{AtomicUsize, Ordering};

/// Words below this are states, everything else is the address of a node: nodes are aligned to at least four bytes.
pub(crate) const FIRST_ADDRESS: usize = 4;

/// One batch in a chain. Whoever owns the word owns the nodes.
#[repr(align(8))]
pub(crate) struct Node<B> {
    /// The word that stood there before: an older node, or a state.
    older: usize,
    batch: B,
}

impl<B> Node<B> {
    pub(crate) fn new(batch: B) -> Box<Self> {
        Box::new(Self { older: 0, batch })
    }

    pub(crate) fn into_batch(self) -> B {
        self.batch
    }
}

/// Tries to put `node` in front of what `word` holds, which must be `current`. If the word has changed meanwhile the
/// node comes back together with what stands there now.
pub(crate) fn push<B>(
    word: &AtomicUsize,
    current: usize,
    mut node: Box<Node<B>>,
) -> Result<(), (usize, Box<Node<B>>)> {
    node.older = current;
    let address = Box::into_raw(node);
    // Release: whoever takes the chain with Acquire sees the batch and everything its sender did before.
    match word.compare_exchange(current, address as usize, Ordering::Release, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(actual) => {
            // SAFETY: `address` came from `Box::into_raw` above, and as the exchange failed nobody else has seen it.
            Err((actual, unsafe { Box::from_raw(address) }))
        }
    }
}

/// The batches behind `head`, oldest first.
///
/// # Safety
/// `head` must have been taken out of its word by an atomic swap with Acquire, and is passed here once. Then this
/// thread alone owns the nodes: each was put there by [`push`] with the same `B`.
pub(crate) unsafe fn take<B>(head: usize) -> Vec<B> {
    let mut batches = Vec::new();
    let mut word = head;
    while word >= FIRST_ADDRESS {
        // SAFETY: the caller owns the chain, and every node in it came from `Box::into_raw` in `push`.
        let node = unsafe { Box::from_raw(word as *mut Node<B>) };
        word = node.older;
        batches.push(node.batch);
    }
    batches.reverse();
    batches
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn batches_are_taken_in_push_order() {
        let word = AtomicUsize::new(0);
        let mut current = 0;
        for batch in 0..3 {
            assert!(push(&word, current, Node::new(Box::new(batch))).is_ok());
            current = word.load(Ordering::Relaxed);
        }
        let Err((actual, node)) = push(&word, 0, Node::new(Box::new(3))) else { panic!("the word changed") };
        assert_eq!((actual, *node.into_batch()), (current, 3));
        // SAFETY: swapped out with Acquire, and used once.
        let batches: Vec<Box<i32>> = unsafe { take(word.swap(0, Ordering::Acquire)) };
        assert_eq!(batches, [0, 1, 2].map(Box::new));
    }
}
