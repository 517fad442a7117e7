//! slock, over its binary protocol: LOCK and UNLOCK, each a frame of 64 bytes.
//!
//! Counts make a read-write lock: a key has one holder, or as many readers as their count allows.

use std::io::{self, Read, Write};

use super::{Answer, Broken, Claim, Codec, Parsed, refused};
use crate::key::{KeyIndex, TailPlace};
use crate::plan::Plan;

const FRAME_LEN: usize = 64;
const MAGIC: u8 = 0x56;
const VERSION: u8 = 1;
/// Types of requests and responses.
const INIT: u8 = 0;
const LOCK: u8 = 1;
const UNLOCK: u8 = 2;
/// Result codes.
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
/// Offset of the request id in every frame.
const REQUEST_ID: usize = 3;
/// Offsets in a request.
const CLIENT_ID: usize = 19;
const LOCK_ID: usize = 21;
const KEY: usize = 37;
const TIMEOUT: usize = 53;
const EXPIRY: usize = 57;
const COUNT: usize = 61;
/// Offsets in a response.
const RESULT: usize = 19;
const ANSWER_FLAGS: usize = 20;
const ANSWER_LOCK_ID: usize = 22;
/// Flag: data that is stored with a lock follows the frame.
const HAS_DATA: u8 = 0x20;
const ID_LEN: usize = 16;
/// Maximum number of readers.
const READERS: u16 = u16::MAX;
/// Maximum wait in seconds.
const WAIT_S: u16 = u16::MAX;

/// Chosen by the client.
type LockId = [u8; ID_LEN];

/// A connection to slock.
#[derive(Debug)]
pub struct Slock {
    exclusive: [u8; FRAME_LEN],
    shared: [u8; FRAME_LEN],
    release: [u8; FRAME_LEN],
    /// Start of all lock ids of this connection.
    client: [u8; 8],
    tail_place: TailPlace,
}

/// Returns a frame of this type, with its constant fields.
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
    /// Returns the id of a lock: from the connection and the request.
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

/// Checks magic, version and the end of the request id; `None` if the frame is incomplete.
#[inline]
fn next_frame(bytes: &[u8]) -> Result<Option<&[u8; FRAME_LEN]>, Broken> {
    let known_len = bytes.len().min(2);
    if bytes[..known_len] != [MAGIC, VERSION][..known_len] {
        return Err(Broken(format!("not a slock frame: it begins with {:02x?}", &bytes[..known_len])));
    }
    let Some(frame) = bytes.first_chunk::<FRAME_LEN>() else { return Ok(None) };
    if frame[REQUEST_ID + 4..REQUEST_ID + ID_LEN] != [0; ID_LEN - 4] {
        return Err(Broken("a response with an unknown request id".into()));
    }
    Ok(Some(frame))
}

/// Formats a result code.
fn result_words(result: u8) -> String {
    let name = RESULTS.get(usize::from(result)).copied().unwrap_or("unknown result");
    format!("{name} ({result})")
}

impl Codec for Slock {
    type Hold = LockId;
    const HAS_FENCES: bool = false;
    /// Used if clients contend for a key. Otherwise the acquire tries once, and busy is a wrong response.
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
                        "unexpected response to the greeting: a frame of type {}",
                        frame[2]
                    )));
                }
                Ok(None) => {}
                Err(broken) => return Err(refused(broken.0)),
            }
            let mut chunk = [0; FRAME_LEN];
            match stream.read(&mut chunk)? {
                0 => return Err(refused("the server closed the connection during the greeting")),
                count => received.extend_from_slice(&chunk[..count]),
            }
        };
        if result != SUCCEEDED {
            return Err(refused(format!("unexpected response to the greeting: {}", result_words(result))));
        }
        // Keys have sixteen bytes. Longer keys lose their common start; shorter keys are padded with leading
        // zeros.
        let tail_place = TailPlace::before(KEY + ID_LEN, usize::from(plan.key_size));
        let mut exclusive = frame(LOCK);
        let mut release = exclusive;
        release[2] = UNLOCK;
        // In whole seconds, as the protocol requires.
        let lease_s = plan.lease_ms.div_ceil(1000);
        let Ok(lease_s) = u16::try_from(lease_s) else {
            return Err(refused(format!("--lease is {lease_s} s; the maximum for slock is {} s", u16::MAX)));
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
            return Err(Broken("unexpected data in a lock response".into()));
        }
        let mut hold = LockId::default();
        hold.copy_from_slice(&frame[ANSWER_LOCK_ID..ANSWER_LOCK_ID + ID_LEN]);
        let answer = match (frame[2], frame[RESULT]) {
            (LOCK, SUCCEEDED) if hold == self.lock_id(number) => Answer::Granted { number, hold, fence: 0 },
            (LOCK, SUCCEEDED) => Answer::Refused {
                number: Some(number),
                message: format!("granted with the lock id of another request: {hold:02x?}"),
            },
            (LOCK, TIMED_OUT) => Answer::Busy { number },
            (UNLOCK, SUCCEEDED) => Answer::Released { number },
            (LOCK | UNLOCK, result) => {
                Answer::Refused { number: Some(number), message: result_words(result) }
            }
            (kind, _) => return Err(Broken(format!("an unexpected response of type {kind}"))),
        };
        Ok(Some((answer, FRAME_LEN)))
    }
}
