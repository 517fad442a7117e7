//! slock, by its binary protocol: LOCK and UNLOCK, each a frame of 64 bytes.
//!
//! A read-write lock is made of its counts: a key may be locked once, or by readers as often as their count says.

use std::io::{self, Read, Write};

use super::{Answer, Broken, Claim, Parsed, Target, refused};
use crate::key::{KeyIndex, TailPlace};
use crate::plan::Plan;

const FRAME_LEN: usize = 64;
const MAGIC: u8 = 0x56;
const VERSION: u8 = 1;
/// What a frame asks for, and what an answer is to.
const INIT: u8 = 0;
const LOCK: u8 = 1;
const UNLOCK: u8 = 2;
/// Results.
const SUCCEEDED: u8 = 0;
const TIMED_OUT: u8 = 8;
const RESULTS: [&str; 12] = [
    "OK",
    "UNKNOWN_MAGIC",
    "UNKNOWN_VERSION",
    "UNKNOWN_DB",
    "UNKNOWN_COMMAND",
    "LOCKED_ERROR",
    "UNLOCK_ERROR",
    "UNOWN_ERROR",
    "TIMEOUT",
    "EXPRIED",
    "RESULT_STATE_ERROR",
    "UNKNOWN_ERROR",
];
/// Where things are in every frame,
const REQUEST_ID: usize = 3;
/// in what is asked,
const CLIENT_ID: usize = 19;
const LOCK_ID: usize = 21;
const KEY: usize = 37;
const TIMEOUT: usize = 53;
const EXPIRY: usize = 57;
const COUNT: usize = 61;
/// and in an answer.
const RESULT: usize = 19;
const ANSWER_FLAGS: usize = 20;
const ANSWER_LOCK_ID: usize = 22;
/// More follows behind the frame: data that is kept with a lock.
const HAS_DATA: u8 = 0x20;
const ID_LEN: usize = 16;
/// As many readers as there can be.
const READERS: u16 = u16::MAX;
/// Seconds for which somebody waits: as long as can be said.
const WAIT_S: u16 = u16::MAX;

/// Chosen by whoever locks.
type LockId = [u8; ID_LEN];

/// A connection to slock.
#[derive(Debug)]
pub struct Slock {
    exclusive: [u8; FRAME_LEN],
    shared: [u8; FRAME_LEN],
    release: [u8; FRAME_LEN],
    /// What all lock ids of this connection begin with.
    client: [u8; 8],
    tail_place: TailPlace,
}

/// A frame with what all of its kind have in common.
fn frame(kind: u8) -> [u8; FRAME_LEN] {
    let mut frame = [0; FRAME_LEN];
    frame[..REQUEST_ID].copy_from_slice(&[MAGIC, VERSION, kind]);
    frame
}

/// Writes these bytes into a frame.
#[inline]
fn put(frame: &mut [u8; FRAME_LEN], offset: usize, bytes: &[u8]) {
    frame[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl Slock {
    /// Every lock has an id of its own: that of its connection and of its request.
    #[inline]
    fn lock_id(&self, number: u32) -> LockId {
        let mut id = [0; ID_LEN];
        id[..8].copy_from_slice(&self.client);
        id[8..12].copy_from_slice(&number.to_le_bytes());
        id
    }

    #[inline]
    fn append(&self, mut frame: [u8; FRAME_LEN], number: u32, id: &LockId, key: KeyIndex, out: &mut Vec<u8>) {
        put(&mut frame, REQUEST_ID, &number.to_le_bytes());
        put(&mut frame, LOCK_ID, id);
        self.tail_place.put(&key.tail(), &mut frame);
        out.extend_from_slice(&frame);
    }
}

/// Magic, version, and where a request id ends; `None` where the frame's end has not arrived.
#[inline]
fn next_frame(bytes: &[u8]) -> Result<Option<&[u8; FRAME_LEN]>, Broken> {
    let known_len = bytes.len().min(2);
    if bytes[..known_len] != [MAGIC, VERSION][..known_len] {
        return Err(Broken(format!("no frame of slock: it begins with {:02x?}", &bytes[..known_len])));
    }
    let Some(frame) = bytes.first_chunk::<FRAME_LEN>() else { return Ok(None) };
    if frame[REQUEST_ID + 4..REQUEST_ID + ID_LEN] != [0; ID_LEN - 4] {
        return Err(Broken("an answer to a request id that is none of ours".into()));
    }
    Ok(Some(frame))
}

/// A result in the words of the system.
fn result_words(result: u8) -> String {
    let name = RESULTS.get(usize::from(result)).copied().unwrap_or("not a known result");
    format!("{name} ({result})")
}

impl Target for Slock {
    type Hold = LockId;
    const HAS_FENCES: bool = false;
    /// Where others may hold the key. Otherwise it tries once, and busy is a wrong answer anyway.
    const WAITS: bool = true;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        let client = rand::random::<u64>().to_le_bytes();
        let mut init = frame(INIT);
        put(&mut init, CLIENT_ID, &client);
        stream.write_all(&init)?;
        let mut received = Vec::new();
        let result = loop {
            match next_frame(&received) {
                Ok(Some(frame)) if frame[2] == INIT && received.len() == FRAME_LEN => break frame[RESULT],
                Ok(Some(frame)) => {
                    return Err(refused(format!(
                        "the greeting was answered by a frame of type {}",
                        frame[2]
                    )));
                }
                Ok(None) => {}
                Err(broken) => return Err(refused(broken.0)),
            }
            let mut chunk = [0; FRAME_LEN];
            match stream.read(&mut chunk)? {
                0 => return Err(refused("the server closed the connection instead of greeting")),
                count => received.extend_from_slice(&chunk[..count]),
            }
        };
        if result != SUCCEEDED {
            return Err(refused(format!("the greeting was answered by {}", result_words(result))));
        }
        // Keys have sixteen bytes. Longer ones lose their common start, shorter ones are filled with zeros in front.
        let tail_place = TailPlace::before(KEY + ID_LEN, usize::from(plan.key_size));
        let mut exclusive = frame(LOCK);
        let mut release = exclusive;
        release[2] = UNLOCK;
        // In whole seconds, as its clients say it.
        let lease_s = plan.lease_ms.div_ceil(1000);
        let Ok(lease_s) = u16::try_from(lease_s) else {
            return Err(refused(format!(
                "a lock of slock lasts {} s at most, --lease is {lease_s} s",
                u16::MAX
            )));
        };
        put(&mut exclusive, EXPIRY, &lease_s.to_le_bytes());
        if plan.workload.contends() {
            put(&mut exclusive, TIMEOUT, &WAIT_S.to_le_bytes());
        }
        let mut shared = exclusive;
        put(&mut shared, COUNT, &READERS.to_le_bytes());
        Ok(Self { exclusive, shared, release, client, tail_place })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        let frame = if claim.shared { self.shared } else { self.exclusive };
        self.append(frame, number, &self.lock_id(number), claim.key, out);
    }

    #[inline]
    fn put_release(&mut self, number: u32, claim: Claim, hold: &LockId, out: &mut Vec<u8>) {
        self.append(self.release, number, hold, claim.key, out);
    }

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<LockId>, Broken> {
        let Some(frame) = next_frame(bytes)? else { return Ok(None) };
        let [a, b, c, d] = [0, 1, 2, 3].map(|place| frame[REQUEST_ID + place]);
        let number = u32::from_le_bytes([a, b, c, d]);
        if frame[ANSWER_FLAGS] & HAS_DATA != 0 {
            return Err(Broken("a lock came with data, and nobody gave it any".into()));
        }
        let mut hold = LockId::default();
        hold.copy_from_slice(&frame[ANSWER_LOCK_ID..ANSWER_LOCK_ID + ID_LEN]);
        let answer = match (frame[2], frame[RESULT]) {
            (LOCK, SUCCEEDED) if hold == self.lock_id(number) => Answer::Granted { number, hold, fence: 0 },
            (LOCK, SUCCEEDED) => Answer::Refused {
                number: Some(number),
                message: format!("the lock of another was given: {hold:02x?}"),
            },
            (LOCK, TIMED_OUT) => Answer::Busy { number },
            (UNLOCK, SUCCEEDED) => Answer::Released { number },
            (LOCK | UNLOCK, result) => {
                Answer::Refused { number: Some(number), message: result_words(result) }
            }
            (kind, _) => return Err(Broken(format!("an answer of type {kind} that nobody asked for"))),
        };
        Ok(Some((answer, FRAME_LEN)))
    }
}
