//! Due times of the requests of an open loop, and their connections.

/// Requests at equal intervals, on one connection after the other.
#[derive(Clone, Debug)]
pub struct Schedule {
    requests_per_second: u64,
    /// Index of this thread; request n of a load belongs to thread n modulo threads.
    thread: u64,
    thread_count: u64,
    connection_count: usize,
    sent_count: u64,
    next_connection: usize,
}

impl Schedule {
    /// Creates the schedule of one thread for a load of `requests_per_second`.
    pub fn new(requests_per_second: u64, thread: u64, thread_count: u64, connection_count: usize) -> Self {
        Self {
            requests_per_second,
            thread,
            thread_count,
            connection_count,
            sent_count: 0,
            next_connection: 0,
        }
    }

    /// Returns the due time of the next request.
    #[inline]
    pub fn next_due_ns(&self) -> u64 {
        let nth = u128::from(self.sent_count) * u128::from(self.thread_count) + u128::from(self.thread);
        u64::try_from(nth * 1_000_000_000 / u128::from(self.requests_per_second)).unwrap_or(u64::MAX)
    }

    /// Returns the due time of the next request; the caller must send it.
    pub fn take_next(&mut self) -> u64 {
        let due_ns = self.next_due_ns();
        self.sent_count += 1;
        due_ns
    }

    /// Returns the next due request and a connection that can send it. Returns `None` if no request is due, or if
    /// no connection can send it: the request is then sent later, but its latency still counts from its due time.
    #[inline]
    pub fn take_due(&mut self, now_ns: u64, can_take: impl Fn(usize) -> bool) -> Option<(u64, usize)> {
        let due_ns = self.next_due_ns();
        if due_ns > now_ns {
            return None;
        }
        for _ in 0..self.connection_count {
            let connection = self.next_connection;
            self.next_connection = (connection + 1) % self.connection_count;
            if can_take(connection) {
                self.sent_count += 1;
                return Some((due_ns, connection));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    #[test]
    fn requests_are_due_at_equal_intervals_and_late_requests_keep_their_time() {
        let mut schedule = Schedule::new(1000, 1, 2, 3);
        assert_eq!(schedule.take_due(999_999, |_| true), None);
        assert_eq!(schedule.take_due(9_000_000, |_| false), None);
        let sent: Vec<_> = std::iter::from_fn(|| schedule.take_due(9_000_000, |index| index != 1)).collect();
        let expected = [(1_000_000, 0), (3_000_000, 2), (5_000_000, 0), (7_000_000, 2), (9_000_000, 0)];
        assert_eq!(sent, expected);
    }
}
