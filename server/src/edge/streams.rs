//! Shares the turn of a connection of a front end between its requests and the library that reads and writes for them.

use crate::limits::GRPC_TURNS_UNREAD_MAX;
use std::task::Poll;

/// The requests of a connection, and its library.
pub trait FrontWork {
    /// How a connection ends.
    type End;
    /// Runs the requests that were begun or woken, until none is left or the turn is over.
    fn run(&mut self) -> Ran;
    /// Lets the library read and write. Ready when the connection has ended.
    fn poll_library(&mut self) -> Poll<Self::End>;
    /// Whether there are requests that never ran.
    fn has_begun(&self) -> bool;
    /// Whether the requests that this turn read are served in the next round of tasks.
    fn let_others_read(&mut self) -> bool;
}

/// What ran of the requests of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// No request was begun or woken.
    Nothing,
    /// All requests that were begun or woken.
    All,
    /// Some of them: the turn is over.
    Part,
}

/// Decides who runs in the turns of one connection.
#[derive(Debug, Default)]
pub struct StreamTurns {
    /// Turns in a row that were over before all requests had run.
    part_count: u32,
}

impl StreamTurns {
    /// Runs the requests of a connection and its library, until both rest or the turn is over. Ready when the connection has ended.
    ///
    /// The library neither reads nor writes before all requests ran. So a client cannot begin more than it lets finish, and hears of all
    /// that happened at once in the order in which it happened. Requests that the library has begun may have to wait until other connections
    /// have read. Only after [`GRPC_TURNS_UNREAD_MAX`] turns that were too short for all requests, the library goes first.
    pub fn poll<W: FrontWork>(&mut self, work: &mut W) -> Poll<W::End> {
        if self.part_count == GRPC_TURNS_UNREAD_MAX {
            self.part_count = 0;
            if let Poll::Ready(end) = work.poll_library() {
                return Poll::Ready(end);
            }
        }
        loop {
            if work.run() == Ran::Part {
                self.part_count += 1;
                return Poll::Pending;
            }
            self.part_count = 0;
            if let Poll::Ready(end) = work.poll_library() {
                return Poll::Ready(end);
            }
            if work.has_begun() && work.let_others_read() {
                return Poll::Pending;
            }
            if work.run() == Ran::Nothing {
                return Poll::Pending;
            }
        }
    }
}
