//! Exclusive access to a shard: a worker takes its turn, and other workers leave their batches for the worker that has
//! the turn.

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

/// Value of the atomic word of a [`TurnCell`] while no thread has the turn.
const FREE: usize = 0;
/// Value of the atomic word of a [`TurnCell`] while a thread has the turn, and no other thread has left a batch.
const HELD: usize = 1;
// Any other value of the atomic word of a [`TurnCell`] means that a thread has the turn. The value is the address of
// the newest batch that another thread left.

/// Value that any thread may use, one thread at a time, without waiting. (Flat combining, Hendler, Incze, Shavit and
/// Tzafrir 2010, reduced to one word.)
///
/// One atomic word decides which thread may enter, and carries the batches that other threads left:
///
/// ```text
///             enter                        hand_over                     hand_over
///   FREE ---------------> HELD ----------------------> batch A <------------------- batch B <- word
///     ^                    |  ^                                                        |
///     +------ leave -------+  +--------------- leave: take all, serve, try again -------+
/// ```
///
/// **Guarantees.** Between `enter` and `leave`, only the thread that has the turn sees the value. Each batch is served
/// exactly once, by the holder of the turn. No batch is forgotten: `leave` frees the turn by a compare-exchange of HELD
/// for FREE, which fails if another thread has left a batch. The batches of one sender are served in the order in which
/// they were handed over.
///
/// **Limits.** If the thread that holds a turn is not scheduled, this value (and no other) is delayed. A turn that is
/// dropped without `leave`, for example by a panic, keeps its value locked forever; the server aborts on panics.
pub struct TurnCell<S, B> {
    /// Atomic word of the turn. It has its cache lines for itself, so writes to the words of neighbouring cells do not
    /// slow it down.
    word: CachePadded<AtomicUsize>,
    value: UnsafeCell<S>,
    batches: PhantomData<B>,
    /// Number of the cell, unique in the process.
    number: u64,
}

/// Number of cells created by this process. The counter uses the standard library's atomic type instead of loom's,
/// because no other memory access depends on its order.
static CELL_COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: one thread at a time reaches the value (`Turn`), and the value moves between threads with the turn, so it
// must be Send. Batches move from one thread to another, so they must be Send too. The cell never lets two threads use
// the value or a batch at the same time, so neither needs to be Sync.
unsafe impl<S: Send, B: Send> Sync for TurnCell<S, B> {}
// SAFETY: as above.
unsafe impl<S: Send, B: Send> Send for TurnCell<S, B> {}

/// Result of handing over a batch.
pub enum HandedOver<'a, S, B> {
    /// The batch was left for the thread that holds the turn.
    Left,
    /// The turn was free. The caller now has the turn, and the batch back.
    Entered(Turn<'a, S, B>, B),
}

impl<S, B> TurnCell<S, B> {
    /// Returns a cell with a free turn.
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
        // Acquire: this turn must see all changes that the last turn made to the value.
        match self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Turn::of(self)),
            Err(_) => None,
        }
    }

    /// Leaves a batch for the thread that holds the turn, or takes the turn if it is free. Never waits.
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
    /// Resumes a turn that another thread passed on.
    ///
    /// # Panics
    /// Panics if the pass is for another cell.
    #[expect(clippy::needless_pass_by_value, reason = "a pass is good for one turn")]
    pub fn resume(&self, pass: Pass) -> Turn<'_, S, B> {
        // Cells are compared by number, not by address: after the cell of the pass was dropped, another cell may be at
        // its address.
        assert_eq!(pass.cell_number, self.number, "the pass is for another cell");
        Turn::of(self)
    }
}

impl<S, B> Drop for TurnCell<S, B> {
    fn drop(&mut self) {
        let word = self.word.swap(FREE, Ordering::Acquire);
        // SAFETY: the `swap` above took the chain of batches out of the cell's atomic word, so the chain is used only
        // once. `&mut self` proves that no turn exists and no thread hands over a batch.
        drop(unsafe { chain::take::<B>(word) });
    }
}

/// Turn on its way to another thread.
///
/// A pass stands for exactly one turn, so it can be used only once:
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
    /// Number of the cell that the turn belongs to.
    cell_number: u64,
}

/// Right to use the value of a [`TurnCell`]. [`Turn::leave`] ends it.
///
/// A reference to a turn gives shared access to the value, so threads may share the turn only if they may share the
/// value:
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
    /// Marks the turn as exclusive access to the value. So threads may send or share a turn only if they may send or
    /// share a `&mut S`.
    value: PhantomData<&'a mut S>,
}

impl<'a, S, B> Turn<'a, S, B> {
    #[inline]
    fn of(cell: &'a TurnCell<S, B>) -> Self {
        Self { cell, value: PhantomData }
    }

    /// Ends the turn, unless other threads left batches during it. In that case, returns the turn and the batches,
    /// oldest first. The caller must serve them before it calls `leave` again.
    #[inline]
    pub fn leave(self) -> Option<(Self, Vec<B>)> {
        let word = &self.cell.word;
        // Release: the next turn must see all writes of this turn.
        if word.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return None;
        }
        let head = word.swap(HELD, Ordering::Acquire);
        debug_assert!(head >= FIRST_ADDRESS, "the turn was given back while it was held");
        // SAFETY: `head` is the chain of batches that other threads left; the Acquire swap above took it out of the
        // word. Only the holder of the turn takes chains, and uses each once.
        let batches = unsafe { chain::take(head) };
        Some((self, batches))
    }
}

impl<S, B> Turn<'_, S, B> {
    /// Keeps the turn held for another thread, which resumes it with [`TurnCell::resume`]. The pass must reach that
    /// thread by a synchronized channel, for example a [`Mailbox`](crate::Mailbox), so that the thread sees all earlier
    /// changes of the value.
    pub fn pass_on(self) -> Pass {
        Pass { cell_number: self.cell.number }
    }
}

impl<S, B> Deref for Turn<'_, S, B> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        // SAFETY: only one turn of the cell exists at a time. Its creation changed the word from FREE to HELD, or
        // consumed the pass of a turn that did. The turn is borrowed as long as the reference lives.
        self.cell.value.with_mut(|value| unsafe { &*value })
    }
}

impl<S, B> DerefMut for Turn<'_, S, B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: only one turn of the cell exists at a time, and `&mut self` borrows it exclusively as long as the
        // reference lives.
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

    /// A `Pass` carries the turn of one `TurnCell` to another thread. In this test, a new cell replaces the cell of the
    /// pass, at the same address. `resume` must compare the numbers of the cells. Otherwise the pass would give a turn
    /// of the new cell, even while another thread has that turn.
    #[test]
    fn a_pass_is_invalid_for_a_later_cell_at_the_same_address() {
        let mut cell = Box::new(Cell::new(Vec::new()));
        let pass = cell.enter().expect("the turn is free").pass_on();
        *cell = Cell::new(Vec::new());
        let outcome = catch_unwind(AssertUnwindSafe(|| drop(cell.resume(pass))));
        assert!(outcome.is_err(), "the pass is for the cell that was there before");
    }
}
