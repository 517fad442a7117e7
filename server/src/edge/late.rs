//! Lets other connections run before a connection with much to do continues.

use std::collections::VecDeque;

/// Queue of connections that gave way: their turn is over, and they have more to do. One of them continues in each
/// round of tasks. So all of them together delay the other connections by at most one turn in each round.
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

    /// Returns the connection that continues in this round of tasks. While leases are due, none continues, so that no
    /// client begins leases faster than they end.
    pub fn continue_one(&mut self, are_leases_due: bool) -> Option<T> {
        if are_leases_due { None } else { self.0.pop_front() }
    }

    /// Whether no connection waits for its turn.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
