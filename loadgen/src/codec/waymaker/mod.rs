//! Waymaker, over its binary protocol. One file for each kind of request.

pub mod greeting;
mod keys;
mod limiter;
mod permits;
mod sets;

pub use keys::WaymakerKeys;
pub use limiter::WaymakerLimiter;
pub use permits::WaymakerPermits;
pub use sets::WaymakerSets;

use std::io::{self, Read, Write};

use waymaker_protocol::id::ID_LEN;
use waymaker_protocol::limits::{FRAME_LEN_MAX, WAIT_FOREVER_MS};
use waymaker_protocol::message::acquire::{GRANTED, KEY_OFFSET};
use waymaker_protocol::message::acquire_terms::flag;
use waymaker_protocol::message::release::RELEASED;
use waymaker_protocol::{
    Acquire, AcquireTerms, ErrorCode, Frame, Granted, LockId, NamespaceKind, Release, Released, Response,
    next_frame,
};

use super::{Answer, Broken, Claim, Codec, Parsed, refused};
use crate::key::{KeyIndex, TailPlace};
use crate::options::WorkloadName;
use crate::plan::Plan;

/// Offset of the request number in every frame.
const NUMBER_OFFSET: usize = 4;
/// Offset of the flags in every frame.
const FLAGS_OFFSET: usize = 10;
/// Offset of the id in a release.
const ID_OFFSET: usize = 12;
/// Length of a release without a key.
const RELEASE_LEN: usize = ID_OFFSET + ID_LEN;
/// Length of an acquire with the usual key of 16 bytes.
const ACQUIRE_LEN_USUAL: usize = KEY_OFFSET + 2 + 16;

/// A connection to Waymaker.
#[derive(Debug)]
pub struct Waymaker {
    /// Templates for acquire and release of any key; number, flags, end of the key and id are patched in.
    acquire: Vec<u8>,
    /// Position of the key in the acquire.
    tail_place: TailPlace,
    /// Flags of a shared acquire.
    shared_flags: [u8; 2],
    release: Releases,
}

/// Encodes releases by patching number and id into a template.
#[derive(Debug)]
struct Releases {
    template: [u8; RELEASE_LEN],
}

impl Default for Releases {
    fn default() -> Self {
        let mut template = Vec::new();
        Release::default().encode(1, &mut template);
        Self { template: template.try_into().expect("a release without a key has a fixed length") }
    }
}

impl Releases {
    #[inline]
    fn append(&self, number: u32, hold: LockId, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.template);
        let frame = &mut out[start..];
        frame[NUMBER_OFFSET..NUMBER_OFFSET + 4].copy_from_slice(&number.to_le_bytes());
        frame[ID_OFFSET..].copy_from_slice(&hold.to_bytes());
    }
}

impl Waymaker {
    /// Creates the templates for this plan; the codec of the echo server uses them too.
    pub(super) fn templates(plan: &Plan) -> Self {
        let key = KeyIndex(0).key(usize::from(plan.key_size));
        let wait_ms = if plan.workload == WorkloadName::Pair { 0 } else { WAIT_FOREVER_MS };
        let mut acquire = Vec::new();
        let options = plan.scope.acquire_options();
        Acquire {
            key: &key,
            terms: AcquireTerms { lease_ms: plan.lease_ms, wait_ms, options, ..AcquireTerms::default() },
            ..Acquire::default()
        }
        .encode(1, &mut acquire);
        let flags = u16::from_le_bytes([acquire[FLAGS_OFFSET], acquire[FLAGS_OFFSET + 1]]);
        Self {
            tail_place: tail_place(&acquire, plan),
            acquire,
            shared_flags: (flags | flag::SHARED).to_le_bytes(),
            release: Releases::default(),
        }
    }

    /// Returns the lengths of an acquire and of a release, in bytes.
    pub(super) fn frame_lens(&self) -> (usize, usize) {
        (self.acquire.len(), RELEASE_LEN)
    }

    #[inline]
    pub(super) fn append_acquire(&self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        let start = out.len();
        // A constant length compiles to two moves instead of a call.
        match <&[u8; ACQUIRE_LEN_USUAL]>::try_from(self.acquire.as_slice()) {
            Ok(usual) => out.extend_from_slice(usual),
            Err(_) => out.extend_from_slice(&self.acquire),
        }
        let frame = &mut out[start..];
        frame[NUMBER_OFFSET..NUMBER_OFFSET + 4].copy_from_slice(&number.to_le_bytes());
        if claim.shared {
            frame[FLAGS_OFFSET..FLAGS_OFFSET + 2].copy_from_slice(&self.shared_flags);
        }
        self.tail_place.put(&claim.key.tail(), frame);
    }

    #[inline]
    pub(super) fn append_release(&self, number: u32, hold: LockId, out: &mut Vec<u8>) {
        self.release.append(number, hold, out);
    }
}

impl Codec for Waymaker {
    type Hold = LockId;
    const HAS_FENCES: bool = true;
    const WAITS: bool = true;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        open(plan, stream, NamespaceKind::Flat, plan.depth)?;
        Ok(Self::templates(plan))
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        self.append_acquire(number, claim, out);
    }

    #[inline]
    fn put_release(&mut self, number: u32, _claim: Claim, hold: &LockId, out: &mut Vec<u8>) {
        self.append_release(number, *hold, out);
    }

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<LockId>, Broken> {
        next_of_one_hold(bytes)
    }
}

/// Returns the next response, for claims that become a single hold.
#[inline]
fn next_of_one_hold(bytes: &[u8]) -> Result<Parsed<LockId>, Broken> {
    let Some(frame) = whole_frame(bytes)? else { return Ok(None) };
    let number = frame.number();
    let answer = match frame.opcode() {
        GRANTED => match Granted::decode(frame) {
            Ok(granted) => Answer::Granted { number, hold: granted.id, fence: granted.fence },
            Err(error) => return Err(Broken(format!("a grant that cannot be decoded: {error}"))),
        },
        RELEASED => match Released::decode(frame) {
            Ok(_) => Answer::Released { number },
            Err(error) => return Err(Broken(format!("a release that cannot be decoded: {error}"))),
        },
        _ => refusal(frame)?,
    };
    Ok(Some((answer, frame.len())))
}

/// Returns the first frame of these bytes; `None` if it is incomplete.
#[inline]
pub(super) fn whole_frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, Broken> {
    next_frame(bytes, FRAME_LEN_MAX).map_err(|error| Broken(error.to_string()))
}

/// Performs the handshake for a namespace of this kind, and checks that the server allows this number of requests
/// in flight on one connection.
pub(super) fn open(
    plan: &Plan,
    stream: &mut (impl Read + Write),
    kind: NamespaceKind,
    in_flight_count: u32,
) -> io::Result<()> {
    let welcome = greeting::greet(stream, &greeting::hello(plan, greeting::namespace(kind), kind))?;
    if welcome.in_flight_max < in_flight_count {
        return Err(refused(format!(
            "the server allows {} requests in flight, but --depth {} of the workload {} needs {in_flight_count}",
            welcome.in_flight_max,
            plan.depth,
            plan.workload.name()
        )));
    }
    Ok(())
}

/// Returns the position of the key in an acquire that ends with its key, or with the scope after the key.
fn tail_place(acquire: &[u8], plan: &Plan) -> TailPlace {
    TailPlace::before(acquire.len() - plan.scope.wire_len(), usize::from(plan.key_size))
}

#[cold]
pub(super) fn refusal<Hold>(frame: Frame<'_>) -> Result<Answer<Hold>, Broken> {
    let response = Response::decode(frame)
        .map_err(|error| Broken(format!("a response that cannot be decoded: {error}")))?;
    let number = Some(frame.number()).filter(|number| *number != 0);
    Ok(match response {
        Response::Error(error) if error.code == ErrorCode::Busy => Answer::Busy { number: frame.number() },
        Response::Error(error) if error.code == ErrorCode::ScopeUnavailable => Answer::Impossible {
            message: format!(
                "the server refuses the requested --scope: {error}; for local, start waymaker-server with \
                 --data-dir PATH"
            ),
        },
        Response::Error(error) => Answer::Refused { number, message: error.to_string() },
        other => Answer::Refused { number, message: format!("unexpected response {other:?}") },
    })
}
