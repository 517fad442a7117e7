//! Chains of batches in an atomic word, newest batch first.

#![expect(
    unsafe_code,
    reason = "an owning list whose head is an atomic word cannot be written with safe pointers"
)]

use crate::sync::{AtomicUsize, Ordering};

/// Smallest word that counts as an address. Smaller words are states of the turn or mailbox that owns the word. Nodes
/// are aligned to at least four bytes, so no address is below 4.
pub(crate) const FIRST_ADDRESS: usize = 4;

/// Node of a chain of batches, newest first. The chain begins in an atomic word of a turn or mailbox. That turn or
/// mailbox owns the node from [`push`] until a thread swaps the chain out of the word. Then that thread owns the node,
/// and passes the chain to [`take`].
#[repr(align(8))]
pub(crate) struct Node<B> {
    /// Previous value of the atomic word in which the chain begins: the address of the next older node or, in the
    /// oldest node, a state of the turn or mailbox with that word.
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

/// Tries to put `node` in front of the chain in `word`, whose value must be `current`. If the word has changed, returns
/// its present value and the node.
pub(crate) fn push<B>(
    word: &AtomicUsize,
    current: usize,
    mut node: Box<Node<B>>,
) -> Result<(), (usize, Box<Node<B>>)> {
    node.older = current;
    let address = Box::into_raw(node);
    // Release: a thread that takes the chain with Acquire sees the batch and all earlier writes of its sender.
    match word.compare_exchange(current, address as usize, Ordering::Release, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(actual) => {
            // SAFETY: `address` came from `Box::into_raw` above. The exchange failed, so no other thread has seen the
            // address.
            Err((actual, unsafe { Box::from_raw(address) }))
        }
    }
}

/// Returns the batches of the chain that begins at `head`, oldest first.
///
/// # Safety
/// `head` must have been taken out of its word by an atomic swap with Acquire, and must be passed here only once. This
/// thread alone then owns the nodes. Each node must come from [`push`] with the same `B`.
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
        // SAFETY: the word was swapped out with Acquire, and is used once.
        let batches: Vec<Box<i32>> = unsafe { take(word.swap(0, Ordering::Acquire)) };
        assert_eq!(batches, [0, 1, 2].map(Box::new));
    }
}
