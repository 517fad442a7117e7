//! Pairs through a whole worker: bytes in, frames out, without a socket, a thread or a clock.
//!
//! The node has one worker and therefore one shard. The connection has no session. The count covers the calls of
//! the driver for each read. Requests are encoded in advance. About a hundred instructions of a pair belong to the
//! benchmark itself: it copies the id of each grant into its release, and adds up the fences.

use crate::codec;
use crate::instant_log::InstantLog;
use crate::keys::shuffled;
use crate::node::{START, time_after, with_one_worker};
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use waymaker_engine::Time;
use waymaker_protocol::frame::HEADER_LEN;
use waymaker_protocol::id::ID_LEN;
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX};
use waymaker_protocol::message::acquire_terms::flag;
use waymaker_protocol::{Granted, Hello, SessionRequest, VERSION, next_frame};
use waymaker_server::log::LogPort;
use waymaker_server::mail::ConnectionKey;
use waymaker_server::node::{Node, shard_count};
use waymaker_server::worker::Worker;

/// Number of keys, all of them known to the engine.
pub const KEY_COUNT: u32 = 1_000;
/// Encoded scope local of an ACQUIRE.
const SCOPE_LOCAL: u8 = 2;
/// Range of the flags in a header.
const FLAGS: Range<usize> = 10..12;
/// Range of the id in GRANTED and in RELEASE.
const ID: Range<usize> = HEADER_LEN..HEADER_LEN + ID_LEN;
/// Range of the fence in GRANTED.
const FENCE: Range<usize> = ID.end..ID.end + 8;
/// Length of a RELEASE without a key.
const RELEASE_LEN: usize = HEADER_LEN + ID_LEN;

/// A connection to a worker that is driven by hand.
struct Connection {
    node: Arc<Node>,
    worker: Worker,
    key: ConnectionKey,
    log: Option<InstantLog>,
}

impl Connection {
    /// Opens a connection to a flat namespace.
    fn open(log: Option<(LogPort, InstantLog)>) -> Self {
        let (port, log) = log.unzip();
        let (node, mut worker) = with_one_worker(port);
        let key = worker.handle_open(b"bench", START);
        let mut connection = Self { node, worker, key, log };
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            session: SessionRequest::None,
            worker: ANY_WORKER,
            namespace: b"default",
            owner: b"bench",
            ..Hello::default()
        };
        let mut bytes = Vec::new();
        hello.encode(1, &mut bytes);
        let welcome_len = connection.serve(&bytes, START).len();
        connection.wrote(welcome_len);
        connection
    }

    /// Serves the bytes of one read, with the calls of the driver, and returns the responses.
    #[inline]
    fn serve(&mut self, bytes: &[u8], now: Time) -> &[u8] {
        black_box(self.worker.wants_read(self.key));
        self.worker.handle_bytes(self.key, bytes, now);
        if let Some(log) = &self.log {
            log.sync(&self.node, now);
        }
        self.worker.handle_mail(now);
        while let Some(dirty) = self.worker.poll_dirty() {
            black_box(dirty);
        }
        black_box(self.worker.poll_wake());
        black_box(self.worker.poll_accept());
        black_box(self.worker.wants_drain());
        black_box(self.worker.next_deadline());
        self.worker.output(self.key).unwrap_or_default()
    }

    /// Tells the worker that the socket accepted `len` bytes of the responses.
    #[inline]
    fn wrote(&mut self, len: usize) {
        self.worker.wrote(self.key, len);
    }
}

/// Acquires and releases of [`KEY_COUNT`] keys in random order, over one connection.
pub struct Pairs {
    connection: Connection,
    /// Reads of `depth` acquires each. Together they name every key equally often.
    acquires: Vec<Vec<u8>>,
    /// One read of `depth` releases. The ids are written into it.
    releases: Vec<u8>,
    depth: u64,
    read_count: u64,
    fences: u64,
}

impl Pairs {
    /// Creates a warm worker. Each read has `depth` acquires, or the `depth` releases of these grants. `depth` is
    /// at most [`KEY_COUNT`], so that no key occurs twice in one read.
    pub fn new(depth: u32) -> Self {
        Self::with_log(depth, None)
    }

    /// Like `new`, with fences of scope local and a log that makes every record durable at once.
    pub fn durable(depth: u32) -> Self {
        Self::with_log(depth, Some(InstantLog::new(shard_count(1))))
    }

    fn with_log(depth: u32, log: Option<(LogPort, InstantLog)>) -> Self {
        assert!((1..=KEY_COUNT).contains(&depth), "a read has 1 to {KEY_COUNT} pairs");
        let requests = Requests::new(log.is_some());
        let mut pairs = Self {
            connection: Connection::open(log),
            acquires: requests.reads(depth),
            releases: requests.release.repeat(depth as usize),
            depth: u64::from(depth),
            read_count: 0,
            fences: 0,
        };
        // Uses each key once, so that the engine knows all of them.
        pairs.pairs(u64::from(KEY_COUNT.next_multiple_of(depth)));
        pairs
    }

    /// Serves `count` pairs, rounded down to whole reads. Returns the sum of all fences so far.
    pub fn pairs(&mut self, count: u64) -> u64 {
        for _ in 0..count / self.depth {
            let now = time_after(self.read_count * self.depth);
            let acquires = &self.acquires[(self.read_count % self.acquires.len() as u64) as usize];
            self.read_count += 1;
            let grants = self.connection.serve(acquires, now);
            let releases = self.releases.chunks_exact_mut(RELEASE_LEN);
            for (grant, release) in grants.chunks_exact(Granted::FRAME_LEN).zip(releases) {
                release[ID].copy_from_slice(&grant[ID]);
                let mut fence = [0; 8];
                fence.copy_from_slice(&grant[FENCE]);
                self.fences = self.fences.wrapping_add(u64::from_le_bytes(fence));
            }
            let grants_len = grants.len();
            self.connection.wrote(grants_len);
            let released_len = self.connection.serve(&self.releases, now).len();
            self.connection.wrote(released_len);
        }
        self.fences
    }
}

/// Requests of the pairs, as [`codec::encode_requests`] encodes them. Encoding them here too would change the
/// inlining of the encoders in the scenario `codec`, and so its instruction count.
struct Requests {
    /// One acquire for each key.
    acquires: Vec<Vec<u8>>,
    /// A release without an id.
    release: Vec<u8>,
}

impl Requests {
    fn new(is_local: bool) -> Self {
        let mut bytes = Vec::new();
        codec::encode_requests(KEY_COUNT, &mut bytes);
        let (mut acquires, mut release) = (Vec::new(), Vec::new());
        let mut rest = &bytes[..];
        while let Ok(Some(frame)) = next_frame(rest, FRAME_LEN_MAX) {
            rest = &rest[frame.len()..];
            let frame = frame.bytes().to_vec();
            if frame.len() == RELEASE_LEN {
                release = frame;
            } else {
                acquires.push(if is_local { with_scope_local(frame) } else { frame });
            }
        }
        Self { acquires, release }
    }

    /// Returns reads of `depth` acquires each, which walk through the shuffled keys until every key occurs equally
    /// often.
    fn reads(&self, depth: u32) -> Vec<Vec<u8>> {
        let keys = shuffled(KEY_COUNT);
        let mut reads = Vec::new();
        let mut place = 0;
        loop {
            let mut read = Vec::new();
            for _ in 0..depth {
                read.extend_from_slice(&self.acquires[keys[place] as usize]);
                place = (place + 1) % keys.len();
            }
            reads.push(read);
            if place == 0 {
                return reads;
            }
        }
    }
}

/// Sets the scope of an ACQUIRE without options to local: changes its length and flags, and appends the scope as
/// its last byte.
fn with_scope_local(mut acquire: Vec<u8>) -> Vec<u8> {
    acquire[0] += 1;
    acquire[FLAGS].copy_from_slice(&flag::SCOPE.to_le_bytes());
    acquire.push(SCOPE_LOCAL);
    acquire
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_protocol::{LockId, Release, Released, Request, Response};

    /// Returns the sum of the fences of `KEY_COUNT` keys that were granted `count` times each.
    fn fences(count: u64) -> u64 {
        u64::from(KEY_COUNT) * count * (count + 1) / 2
    }

    fn claim_count(connection: &Connection) -> u32 {
        let turn = connection.node.shards[0].enter().expect("the turn is free");
        let count = turn.shard.claim_count();
        assert!(turn.leave().is_none());
        count
    }

    #[test]
    fn a_pair_grants_the_next_fence_of_its_key() {
        let mut one_by_one = Pairs::new(1);
        assert_eq!(one_by_one.pairs(2_000), fences(3));
        assert_eq!(claim_count(&one_by_one.connection), 0);
        let mut in_batches = Pairs::new(128);
        assert_eq!(in_batches.pairs(16_000 - 1_024), fences(16));
        assert_eq!(claim_count(&in_batches.connection), 0);
    }

    #[test]
    fn a_durable_pair_grants_the_next_fence_of_its_key() {
        let mut pairs = Pairs::durable(1);
        assert_eq!(pairs.pairs(2_000), fences(3));
        assert_eq!(claim_count(&pairs.connection), 0);
        let log = pairs.connection.log.as_ref().expect("it was opened with a log");
        assert_eq!(log.status.durable(0), 2 * 3_000, "each grant and each release is a record of its shard");
    }

    /// Serves one read and returns its responses with their numbers.
    fn answers(connection: &mut Connection, read: &[u8], now: Time) -> Vec<(u32, Heard)> {
        let mut answers = Vec::new();
        let mut bytes = connection.serve(read, now);
        let len = bytes.len();
        while let Some(frame) = next_frame(bytes, FRAME_LEN_MAX).expect("the worker writes frames") {
            bytes = &bytes[frame.len()..];
            let heard = match Response::decode(frame).expect("the worker writes responses") {
                Response::Granted(granted) => Heard::Granted(granted.id),
                Response::Released(released) => Heard::Released(released),
                other => panic!("neither a grant nor a release: {other:?}"),
            };
            answers.push((frame.number(), heard));
        }
        connection.wrote(len);
        answers
    }

    #[derive(Debug, PartialEq)]
    enum Heard {
        Granted(LockId),
        Released(Released),
    }

    #[test]
    fn a_read_of_acquires_gets_grants_in_order_that_can_be_released() {
        let mut pairs = Pairs::new(128);
        let now = time_after(pairs.read_count * pairs.depth);
        let grants = answers(&mut pairs.connection, &pairs.acquires[0], now);
        assert_eq!(claim_count(&pairs.connection), 128);
        let mut asked = Vec::new();
        let mut rest = &pairs.acquires[0][..];
        while let Some(frame) = next_frame(rest, FRAME_LEN_MAX).expect("the read has whole frames") {
            asked.push(frame.number());
            rest = &rest[frame.len()..];
        }
        let mut releases = Vec::new();
        for ((answered, heard), number) in grants.iter().zip(&asked) {
            let Heard::Granted(id) = heard else { panic!("{heard:?} answers an acquire") };
            assert_eq!(answered, number);
            Release { id: *id, key: None, own: false }.encode(*number, &mut releases);
        }
        let released = Heard::Released(Released { was_waiting: false });
        for (number, heard) in answers(&mut pairs.connection, &releases, now) {
            assert_eq!(heard, released, "request {number}");
        }
        assert_eq!((grants.len(), asked.len(), claim_count(&pairs.connection)), (128, 128, 0));
    }

    #[test]
    fn an_acquire_of_scope_local_differs_only_in_its_scope() {
        let [ephemeral, local] = [false, true].map(|is_local| Requests::new(is_local).acquires);
        for (ephemeral, local) in ephemeral.iter().zip(&local) {
            let decoded = |bytes| {
                let frame = next_frame(bytes, FRAME_LEN_MAX).expect("a frame").expect("a whole frame");
                match Request::decode(frame).expect("a request") {
                    Request::Acquire(acquire) => acquire,
                    other => panic!("{other:?} is not an acquire"),
                }
            };
            let mut expected = decoded(ephemeral);
            expected.terms.options.scope = Some(SCOPE_LOCAL);
            assert_eq!(decoded(local), expected);
        }
    }
}
