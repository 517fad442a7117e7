//! Queue in which a connection with much to do waits while other connections run.

use std::collections::VecDeque;

/// Queue of connections that gave way: their turn is over, and they have more to do. In each round (one poll of every
/// ready task), one of them continues. So all of them together delay the other connections by at most one turn in each
/// round.
#[derive(Debug)]
pub struct LateQueue<T>(VecDeque<T>);

impl<T> Default for LateQueue<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> LateQueue<T> {
    /// Puts a connection in the queue.
    pub fn give_way(&mut self, connection: T) {
        self.0.push_back(connection);
    }

    /// Removes and returns the connection that continues in this round of tasks, if one waits. Returns `None` while
    /// leases are due: otherwise clients could acquire new leases faster than the worker expires old ones.
    pub fn continue_one(&mut self, are_leases_due: bool) -> Option<T> {
        if are_leases_due { None } else { self.0.pop_front() }
    }

    /// Whether no connection waits for its turn.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
