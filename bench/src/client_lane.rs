//! Pairs of guards through the client's side of a connection, without a socket or a runtime.
//!
//! A pair is `client.write(key).await` and `lock.release().await`. The count covers both futures and their
//! commands, the encoded requests, the responses cut out of the read bytes, the hold and its timer in the session,
//! and the guard. It also covers the `Responder`, a server that grants every request: about 300 instructions of a
//! pair.

use crate::keys::{key, shuffled};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use waymaker_client::harness::Harness;
use waymaker_client::{BootTime, Clock, LockId, SessionId, Timer};
use waymaker_protocol::limits::{FRAME_LEN_MAX, IN_FLIGHT_MAX};
use waymaker_protocol::message::opcode;
use waymaker_protocol::{Granted, Released, Response, Welcome, next_frame};

const KEY_COUNT: u32 = 1_000;
/// Length of the leases that the responder grants.
const LEASE_MS: u32 = 30_000;
/// Constant time of the responder.
const STAMP_MS: u64 = 5_000;

/// A stopped clock, so that no timer fires.
struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> BootTime {
        BootTime::from_nanos(10_000_000_000)
    }

    fn timer(&self) -> std::io::Result<Box<dyn Timer>> {
        Err(std::io::Error::other("a stopped clock has no timers"))
    }
}

/// A server that grants every acquire and finds every hold. Fences count its grants.
#[derive(Debug, Default)]
struct Responder {
    granted: u64,
    released: u64,
}

impl Responder {
    /// Replaces `answers` with the responses to these requests.
    fn answer(&mut self, mut requests: &[u8], answers: &mut Vec<u8>) {
        answers.clear();
        while let Ok(Some(frame)) = next_frame(requests, FRAME_LEN_MAX) {
            requests = &requests[frame.len()..];
            match frame.opcode() {
                opcode::ACQUIRE => {
                    self.granted += 1;
                    let granted = Granted {
                        id: LockId { place: self.granted, secret: 1 },
                        fence: self.granted,
                        remaining_ms: LEASE_MS,
                        stamp_ms: STAMP_MS,
                        ..Granted::default()
                    };
                    Response::Granted(granted).encode(frame.number(), answers);
                }
                opcode::RELEASE => {
                    self.released += 1;
                    let released = Released { was_waiting: false };
                    Response::Released(released).encode(frame.number(), answers);
                }
                other => panic!("a pair sends no request of opcode {other}"),
            }
        }
    }
}

/// Acquires and releases of 1,000 keys in random order, through one lane of the client.
pub struct Pairs {
    lane: Harness,
    responder: Responder,
    /// Bytes in flight to the responder.
    sent: Vec<u8>,
    /// Bytes in flight from the responder.
    answers: Vec<u8>,
    keys: Vec<u32>,
    fences: u64,
}

impl Pairs {
    /// Creates a connected client without holds.
    pub fn new() -> Self {
        let welcome = Welcome {
            session_id: SessionId { place: 1, secret: 2 },
            session_lease_ms: 10_000,
            stamp_ms: STAMP_MS,
            lease_default_ms: LEASE_MS,
            lease_min_ms: 10,
            lease_max_ms: 86_400_000,
            in_flight_max: IN_FLIGHT_MAX,
            worker_count: 1,
            shard_count: 1,
            ..Welcome::default()
        };
        let mut pairs = Self {
            lane: Harness::connected(Arc::new(StoppedClock), welcome),
            responder: Responder::default(),
            sent: Vec::new(),
            answers: Vec::new(),
            keys: shuffled(KEY_COUNT),
            fences: 0,
        };
        pairs.pairs(u64::from(KEY_COUNT));
        pairs
    }

    /// Acquires and releases `count` times. Returns the sum of all fences so far.
    ///
    /// # Panics
    /// If a key is not granted, or a lock is not released.
    pub fn pairs(&mut self, count: u64) -> u64 {
        for _ in 0..count {
            let place = (self.responder.granted % self.keys.len() as u64) as usize;
            let key = key(u64::from(self.keys[place]));
            let acquire = pin!(self.lane.write(&key).into_future());
            let lock = self.finish(acquire).expect("the responder grants everything");
            self.fences = self.fences.wrapping_add(lock.fence());
            let release = pin!(lock.release());
            self.finish(release).expect("the responder finds every hold");
        }
        self.fences
    }

    /// Drives a future that sends one request: sends the request, and passes the response on.
    fn finish<F: Future>(&mut self, mut future: Pin<&mut F>) -> F::Output {
        let context = &mut Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(context).is_pending(), "no response before the request is sent");
        self.lane.transmit(&mut self.sent);
        self.responder.answer(&self.sent, &mut self.answers);
        self.lane.receive(&self.answers).expect("the responder speaks the protocol");
        match future.poll(context) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the answer has arrived, and the future is still pending"),
        }
    }
}

impl Default for Pairs {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_one_acquire_and_one_release() {
        let mut pairs = Pairs::new();
        assert_eq!(pairs.pairs(500), 1_500 * 1_501 / 2);
        assert_eq!((pairs.responder.granted, pairs.responder.released), (1_500, 1_500));
    }

    #[test]
    fn a_dropped_guard_releases_its_hold() {
        let mut pairs = Pairs::new();
        let acquire = pin!(pairs.lane.write(b"key").into_future());
        let lock = pairs.finish(acquire).expect("the responder grants everything");
        assert!(lock.is_held());
        assert_eq!((lock.key(), lock.fence()), (&b"key"[..], 1_001));
        drop(lock);
        pairs.lane.transmit(&mut pairs.sent);
        pairs.responder.answer(&pairs.sent, &mut pairs.answers);
        assert_eq!(pairs.responder.released, 1_001);
    }
}
