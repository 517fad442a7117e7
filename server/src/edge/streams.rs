//! Divides the turn of a front end's connection between its requests and the HTTP/2 library that reads and writes for
//! them.

use crate::limits::GRPC_TURNS_UNREAD_MAX;
use std::task::Poll;

/// The requests of a connection, and the HTTP/2 library that reads its socket and begins the requests.
pub trait FrontWork {
    /// Type of the end of a connection.
    type End;
    /// Runs the requests that were begun or woken, until none is left or the turn is over.
    fn run(&mut self) -> RunResult;
    /// Returns true if the HTTP/2 library was woken since it last ran: by the socket, a timer, or a request that has
    /// bytes to send.
    fn is_library_woken(&self) -> bool;
    /// Lets the library read and write. Ready when the connection has ended.
    fn poll_library(&mut self) -> Poll<Self::End>;
    /// Whether there are requests that the HTTP/2 library has read from the socket and that have not run yet.
    fn has_begun(&self) -> bool;
    /// Decides whether the turn ends now, before its new requests run. If so, they run in the next round of tasks,
    /// after other connections have read.
    fn let_others_read(&mut self) -> bool;
}

/// Extent to which the requests of a connection ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunResult {
    /// No request was begun or woken.
    Nothing,
    /// All requests that were begun or woken.
    All,
    /// Some of them: the turn is over.
    Part,
}

/// Decides whether the requests or the HTTP/2 library run in the turns of one connection.
#[derive(Debug, Default)]
pub struct StreamTurns {
    /// Number of consecutive turns that ended before all requests of the connection had run. Reset when the library
    /// runs first.
    part_count: u32,
}

impl StreamTurns {
    /// Runs the requests of a connection and its HTTP/2 library alternately, until one of them has no work or the turn
    /// is over. Ready when the connection has ended.
    ///
    /// The HTTP/2 library runs only if it was woken: by the socket, a timer, or a request that has bytes to send. It
    /// runs only after all requests that were begun or woken. So it reads no further requests while earlier ones have
    /// not run. It also writes the responses of requests that were woken together only after all of these responses are
    /// made. After the library has begun requests, the turn may end so that other connections read first. There is one
    /// exception: after [`GRPC_TURNS_UNREAD_MAX`] consecutive turns that were too short for all requests, the library
    /// runs first, woken or not.
    pub fn poll<W: FrontWork>(&mut self, work: &mut W) -> Poll<W::End> {
        if self.part_count == GRPC_TURNS_UNREAD_MAX {
            self.part_count = 0;
            if let Poll::Ready(end) = work.poll_library() {
                return Poll::Ready(end);
            }
        }
        let mut ran = work.run();
        loop {
            if ran == RunResult::Part {
                self.part_count += 1;
                return Poll::Pending;
            }
            self.part_count = 0;
            if !work.is_library_woken() {
                return Poll::Pending;
            }
            if let Poll::Ready(end) = work.poll_library() {
                return Poll::Ready(end);
            }
            if work.has_begun() && work.let_others_read() {
                return Poll::Pending;
            }
            ran = work.run();
            if ran == RunResult::Nothing {
                return Poll::Pending;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the calls.
    #[derive(Default)]
    struct Noted {
        /// Number of turns from now on that end before all requests have run, as if the time of each turn were used up.
        short_turns: u32,
        /// Whether each call of `poll_library` begins a new request, which waits until the worker's other connections
        /// have read.
        lets_others_read: bool,
        has_run: bool,
        /// Whether the library is never woken.
        library_rests: bool,
        ran: Vec<&'static str>,
    }

    impl FrontWork for Noted {
        type End = ();

        fn run(&mut self) -> RunResult {
            self.ran.push("requests");
            if self.short_turns > 0 {
                self.short_turns -= 1;
                return RunResult::Part;
            }
            if std::mem::replace(&mut self.has_run, true) { RunResult::Nothing } else { RunResult::All }
        }

        fn is_library_woken(&self) -> bool {
            !self.library_rests
        }

        fn poll_library(&mut self) -> Poll<()> {
            self.ran.push("library");
            Poll::Pending
        }

        fn has_begun(&self) -> bool {
            self.lets_others_read
        }

        fn let_others_read(&mut self) -> bool {
            self.lets_others_read
        }
    }

    /// Returns the calls of the next turn.
    fn turn(turns: &mut StreamTurns, work: &mut Noted) -> Vec<&'static str> {
        assert!(turns.poll(work).is_pending());
        std::mem::take(&mut work.ran)
    }

    #[test]
    fn the_library_runs_first_after_many_turns_too_short_for_all_requests() {
        let mut turns = StreamTurns::default();
        let mut work = Noted { short_turns: 3 * GRPC_TURNS_UNREAD_MAX, ..Noted::default() };
        for _ in 0..2 {
            for _ in 0..GRPC_TURNS_UNREAD_MAX {
                assert_eq!(turn(&mut turns, &mut work), ["requests"]);
            }
            assert_eq!(turn(&mut turns, &mut work), ["library", "requests"]);
            // The next turn is long enough again.
            work.short_turns = 0;
            assert_eq!(turn(&mut turns, &mut work), ["requests", "library", "requests"]);
            (work.short_turns, work.has_run) = (3 * GRPC_TURNS_UNREAD_MAX, false);
        }
    }

    #[test]
    fn the_library_does_not_run_unless_it_was_woken() {
        let mut work = Noted { library_rests: true, ..Noted::default() };
        assert_eq!(turn(&mut StreamTurns::default(), &mut work), ["requests"]);
    }

    #[test]
    fn requests_begun_by_the_library_run_at_once_unless_others_must_read() {
        for (lets_others_read, expected) in
            [(false, &["requests", "library", "requests"][..]), (true, &["requests", "library"])]
        {
            let mut work = Noted { lets_others_read, ..Noted::default() };
            assert_eq!(turn(&mut StreamTurns::default(), &mut work), expected);
        }
    }
}
