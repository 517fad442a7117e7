//! Who has a shard to itself, and what others left for it meanwhile.

#![expect(
    unsafe_code,
    reason = "the cell gives exclusive access to its content; its atomic word ensures that"
)]

use crate::chain::{self, FIRST_ADDRESS, Node};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell};
use crossbeam_utils::CachePadded;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;

/// Nobody has the turn.
const FREE: usize = 0;
/// Somebody has it, and nothing was left for them.
const HELD: usize = 1;
// Anything else: somebody has it, and the word is the newest of the batches that others left.

/// A value that any thread may use, one at a time, and that nobody waits for. (Flat combining, Hendler, Incze, Shavit
/// and Tzafrir 2010, reduced to one word.)
///
/// One atomic word says who may enter and carries what the others left:
///
/// ```text
///             enter                        hand_over                     hand_over
///   FREE ---------------> HELD ----------------------> batch A <------------------- batch B <- word
///     ^                    |  ^                                                        |
///     +------ leave -------+  +--------------- leave: take all, serve, try again -------+
/// ```
///
/// **What it promises.** Between `enter` and `leave` the turn's owner alone sees the value. A batch that was handed over
/// is served exactly once, by whoever holds the turn then; none is left behind, because the only way from HELD to FREE is
/// an exchange that fails when a batch is there. Batches of one sender are served in the order in which they were
/// handed over.
///
/// **What it does not.** If the thread that holds a turn is not scheduled, this value (and no other) is delayed. A turn
/// that is dropped without `leave`, as a panic does, keeps its value locked for ever; the server aborts on panics.
pub struct TurnCell<S, B> {
    /// Alone on its cache lines, so that a neighbour's turn does not disturb this one.
    word: CachePadded<AtomicUsize>,
    value: UnsafeCell<S>,
    batches: PhantomData<B>,
    /// No other cell of the process ever has this number.
    number: u64,
}

/// Cells made so far in this process. Not one of loom's atomics, because it orders nothing.
static CELL_COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: the value is reached by one thread at a time (`Turn`), and moves between threads with it, so it must be Send;
// batches are handed from one thread to another. Neither is ever shared.
unsafe impl<S: Send, B: Send> Sync for TurnCell<S, B> {}
// SAFETY: as above.
unsafe impl<S: Send, B: Send> Send for TurnCell<S, B> {}

/// What became of a batch that was handed over.
pub enum HandedOver<'a, S, B> {
    /// Whoever has the turn will serve it.
    Left,
    /// The turn was free by now and is yours, and so is the batch.
    Entered(Turn<'a, S, B>, B),
}

impl<S, B> TurnCell<S, B> {
    /// A cell with a free turn.
    pub fn new(value: S) -> Self {
        Self {
            word: CachePadded::new(AtomicUsize::new(FREE)),
            value: UnsafeCell::new(value),
            batches: PhantomData,
            number: CELL_COUNT.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Takes the turn if it is free.
    #[inline]
    pub fn enter(&self) -> Option<Turn<'_, S, B>> {
        // Acquire: sees everything that the last turn did to the value.
        match self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Turn::of(self)),
            Err(_) => None,
        }
    }

    /// Leaves a batch for whoever has the turn, or takes the turn if nobody has it. Never waits.
    pub fn hand_over(&self, batch: B) -> HandedOver<'_, S, B> {
        let mut node = Node::new(batch);
        let mut current = self.word.load(Ordering::Relaxed);
        loop {
            if current == FREE {
                if let Some(turn) = self.enter() {
                    return HandedOver::Entered(turn, node.into_batch());
                }
                current = self.word.load(Ordering::Relaxed);
                continue;
            }
            match chain::push(&self.word, current, node) {
                Ok(()) => return HandedOver::Left,
                Err((actual, back)) => (current, node) = (actual, back),
            }
        }
    }
}

impl<S, B> TurnCell<S, B> {
    /// Takes up a turn that another thread passed on.
    ///
    /// # Panics
    /// If it is the turn of another cell.
    #[expect(clippy::needless_pass_by_value, reason = "a pass is good for one turn")]
    pub fn resume(&self, pass: Pass) -> Turn<'_, S, B> {
        // By number: another cell may have come to stand at the address of the one that the pass is for.
        assert_eq!(pass.cell_number, self.number, "the pass is for another cell");
        Turn::of(self)
    }
}

impl<S, B> Drop for TurnCell<S, B> {
    fn drop(&mut self) {
        let word = self.word.swap(FREE, Ordering::Acquire);
        // SAFETY: swapped out above; `&mut self` proves that no turn and no sender is left.
        drop(unsafe { chain::take::<B>(word) });
    }
}

/// A turn on its way to another thread.
///
/// It is good for one turn, so it can be used once:
///
/// ```
/// # use waymaker_engine::TurnCell;
/// let cell = TurnCell::<u32, ()>::new(0);
/// let pass = cell.enter().unwrap().pass_on();
/// let turn = cell.resume(pass);
/// # turn.leave();
/// ```
///
/// ```compile_fail,E0382
/// # use waymaker_engine::TurnCell;
/// let cell = TurnCell::<u32, ()>::new(0);
/// let pass = cell.enter().unwrap().pass_on();
/// let turn = cell.resume(pass);
/// let another = cell.resume(pass);
/// # turn.leave();
/// ```
#[derive(Debug)]
#[must_use = "a pass that is dropped keeps its shard locked"]
pub struct Pass {
    /// The number of the cell whose turn it is.
    cell_number: u64,
}

/// The right to use the value of a [`TurnCell`]. Give it back with [`Turn::leave`].
///
/// A turn gives shared access to the value, so threads may share the turn only if they may share the value:
///
/// ```
/// # use waymaker_engine::{Turn, TurnCell};
/// fn share<T: Sync>(_: &T) {}
/// let cell = TurnCell::<u32, ()>::new(0);
/// let turn = cell.enter().unwrap();
/// share(&turn);
/// # turn.leave();
/// ```
///
/// ```compile_fail,E0277
/// # use waymaker_engine::{Turn, TurnCell};
/// fn share<T: Sync>(_: &T) {}
/// let cell = TurnCell::<std::cell::Cell<u32>, ()>::new(0.into());
/// let turn = cell.enter().unwrap();
/// share(&turn);
/// # turn.leave();
/// ```
#[must_use = "a turn that is dropped keeps its shard locked"]
pub struct Turn<'a, S, B> {
    cell: &'a TurnCell<S, B>,
    /// A turn is exclusive access to the value, and may be sent and shared between threads as that may.
    value: PhantomData<&'a mut S>,
}

impl<'a, S, B> Turn<'a, S, B> {
    #[inline]
    fn of(cell: &'a TurnCell<S, B>) -> Self {
        Self { cell, value: PhantomData }
    }

    /// Gives the turn back, unless others left batches meanwhile: then they come back, oldest first, with the turn, and
    /// must be served before the next attempt.
    #[inline]
    pub fn leave(self) -> Option<(Self, Vec<B>)> {
        let word = &self.cell.word;
        // Release: the next turn sees everything this one did.
        if word.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return None;
        }
        let head = word.swap(HELD, Ordering::Acquire);
        debug_assert!(head >= FIRST_ADDRESS, "the turn was given back while it was held");
        // SAFETY: swapped out with Acquire by the holder of the turn, who alone takes chains, and used once.
        let batches = unsafe { chain::take(head) };
        Some((self, batches))
    }
}

impl<S, B> Turn<'_, S, B> {
    /// Keeps the turn held, for another thread to take up by [`TurnCell::resume`]. Handing the pass over must order what
    /// was done to the value before what will be done, as a mailbox does.
    pub fn pass_on(self) -> Pass {
        Pass { cell_number: self.cell.number }
    }
}

impl<S, B> Deref for Turn<'_, S, B> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        // SAFETY: this turn is the only one (the word went from FREE to HELD for it), and it is borrowed for as long as
        // the reference lives.
        self.cell.value.with_mut(|value| unsafe { &*value })
    }
}

impl<S, B> DerefMut for Turn<'_, S, B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: as in `deref`, and the turn is borrowed exclusively.
        self.cell.value.with_mut(|value| unsafe { &mut *value })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    type Cell = TurnCell<Vec<u32>, u32>;

    fn leave(mut turn: Turn<'_, Vec<u32>, u32>) {
        while let Some((again, batches)) = turn.leave() {
            turn = again;
            turn.extend(batches);
        }
    }

    fn serve(cell: &Cell, batch: u32) {
        if let HandedOver::Entered(mut turn, batch) = cell.hand_over(batch) {
            turn.push(batch);
            leave(turn);
        }
    }

    #[test]
    fn batches_of_several_threads_are_served_once_each() {
        let cell = Cell::new(Vec::new());
        let serve_some = |first: u32| (first..first + 10).for_each(|batch| serve(&cell, batch));
        thread::scope(|scope| {
            for first in [0, 10, 20] {
                scope.spawn(move || serve_some(first));
            }
        });
        let mut served = cell.enter().expect("the turn is free").clone();
        served.sort_unstable();
        assert_eq!(served, Vec::from_iter(0..30));
    }

    #[test]
    fn a_passed_turn_is_resumed_by_another_thread() {
        let cell = Cell::new(Vec::new());
        let mut turn = cell.enter().expect("the turn is free");
        turn.push(1);
        let pass = turn.pass_on();
        serve(&cell, 2);
        thread::scope(|scope| {
            scope.spawn(|| leave(cell.resume(pass)));
        });
        assert_eq!(*cell.enter().expect("the turn is free"), [1, 2]);
    }

    #[test]
    fn a_dropped_cell_drops_its_batches() {
        let cell = TurnCell::<(), Box<u32>>::new(());
        let _pass = cell.enter().expect("the turn is free").pass_on();
        assert!(matches!(cell.hand_over(Box::new(1)), HandedOver::Left));
    }

    /// Otherwise the new cell would have two turns at once.
    #[test]
    fn a_pass_is_invalid_for_a_later_cell_at_the_same_address() {
        let mut cell = Box::new(Cell::new(Vec::new()));
        let pass = cell.enter().expect("the turn is free").pass_on();
        *cell = Cell::new(Vec::new());
        let outcome = catch_unwind(AssertUnwindSafe(|| drop(cell.resume(pass))));
        assert!(outcome.is_err(), "the pass is for the cell that was there before");
    }
}
