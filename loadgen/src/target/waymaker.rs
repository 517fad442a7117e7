//! Our server, by its binary protocol.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use waymaker_protocol::id::ID_LEN;
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX, WAIT_FOREVER_MS};
use waymaker_protocol::message::acquire::{GRANTED, KEY_OFFSET, flag};
use waymaker_protocol::message::release::RELEASED;
use waymaker_protocol::{
    Acquire, ErrorCode, Frame, Granted, Hello, LockId, Release, Released, Response, Welcome, next_frame,
};

use super::{Answer, Broken, Claim, Parsed, Target, refused};
use crate::key::{DIGITS, KeyIndex};
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

/// A connection to our server.
#[derive(Debug)]
pub struct Waymaker {
    /// Acquire and release of any key; number, flags, digits of the key and id are patched in.
    acquire: Vec<u8>,
    release: [u8; RELEASE_LEN],
}

impl Waymaker {
    /// Templates for this plan; also what an echo sends.
    pub(super) fn templates(plan: &Plan) -> Self {
        let key = KeyIndex(0).text(usize::from(plan.key_size));
        let wait_ms = if plan.workload == WorkloadName::Pair { 0 } else { WAIT_FOREVER_MS };
        let mut acquire = Vec::new();
        Acquire { lease_ms: plan.lease_ms, wait_ms, key: &key, ..Acquire::default() }.encode(1, &mut acquire);
        let mut release = Vec::new();
        Release::default().encode(1, &mut release);
        let release = release.try_into().expect("a release without a key has a fixed length");
        Self { acquire, release }
    }

    /// Lengths of an acquire and of a release in bytes.
    pub(super) fn frame_lens(&self) -> (usize, usize) {
        (self.acquire.len(), self.release.len())
    }

    #[inline]
    pub(super) fn append_acquire(&self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        let start = out.len();
        // A length known beforehand is copied in two moves instead of a call.
        match <&[u8; ACQUIRE_LEN_USUAL]>::try_from(self.acquire.as_slice()) {
            Ok(usual) => out.extend_from_slice(usual),
            Err(_) => out.extend_from_slice(&self.acquire),
        }
        let frame = &mut out[start..];
        frame[NUMBER_OFFSET..NUMBER_OFFSET + 4].copy_from_slice(&number.to_le_bytes());
        if claim.shared {
            frame[FLAGS_OFFSET..FLAGS_OFFSET + 2].copy_from_slice(&flag::SHARED.to_le_bytes());
        }
        // The key ends the frame, and its digits the key.
        let digits = frame.len() - DIGITS;
        frame[digits..].copy_from_slice(&claim.key.digits());
    }

    #[inline]
    pub(super) fn append_release(&self, number: u32, hold: LockId, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.release);
        let frame = &mut out[start..];
        frame[NUMBER_OFFSET..NUMBER_OFFSET + 4].copy_from_slice(&number.to_le_bytes());
        frame[ID_OFFSET..].copy_from_slice(&hold.to_bytes());
    }
}

impl Target for Waymaker {
    type Hold = LockId;
    const HAS_FENCES: bool = true;
    const WAITS: bool = true;

    fn open(plan: &Plan, stream: &mut TcpStream) -> io::Result<Self> {
        let hello = Hello {
            version_min: waymaker_protocol::VERSION,
            version_max: waymaker_protocol::VERSION,
            worker: ANY_WORKER,
            namespace: b"loadgen",
            owner: b"waymaker-loadgen",
            ..Hello::default()
        };
        let mut request = Vec::new();
        hello.encode(1, &mut request);
        stream.write_all(&request)?;
        let welcome = read_welcome(stream)?;
        if welcome.in_flight_max < plan.depth {
            return Err(refused(format!(
                "the server allows {} requests in flight, --depth asks for {}",
                welcome.in_flight_max, plan.depth
            )));
        }
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
        let frame = match next_frame(bytes, FRAME_LEN_MAX) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(None),
            Err(error) => return Err(Broken(error.to_string())),
        };
        let number = frame.number();
        let answer = match frame.opcode() {
            GRANTED => match Granted::decode(frame) {
                Ok(granted) => Answer::Granted { number, hold: granted.id, fence: granted.fence },
                Err(error) => return Err(Broken(format!("a grant that cannot be read: {error}"))),
            },
            RELEASED => match Released::decode(frame) {
                Ok(_) => Answer::Released { number },
                Err(error) => return Err(Broken(format!("a release that cannot be read: {error}"))),
            },
            _ => refusal(frame)?,
        };
        Ok(Some((answer, frame.len())))
    }
}

#[cold]
fn refusal(frame: Frame<'_>) -> Result<Answer<LockId>, Broken> {
    let response =
        Response::decode(frame).map_err(|error| Broken(format!("an answer that cannot be read: {error}")))?;
    let number = Some(frame.number()).filter(|number| *number != 0);
    Ok(match response {
        Response::Error(error) if error.code == ErrorCode::Busy => Answer::Busy { number: frame.number() },
        Response::Error(error) => Answer::Refused { number, message: error.to_string() },
        other => Answer::Refused { number, message: format!("unexpected {other:?}") },
    })
}

fn read_welcome(stream: &mut TcpStream) -> io::Result<Welcome> {
    let mut received = Vec::new();
    loop {
        if let Some(frame) =
            next_frame(&received, FRAME_LEN_MAX).map_err(|error| refused(no_waymaker(&error)))?
        {
            return match Response::decode(frame) {
                Ok(Response::Welcome(welcome)) => Ok(welcome),
                Ok(Response::Error(error)) => {
                    Err(refused(format!("the server refuses the connection: {error}")))
                }
                Ok(other) => Err(refused(no_waymaker(&format!("it begins with {other:?}")))),
                Err(error) => Err(refused(no_waymaker(&error))),
            };
        }
        let mut chunk = [0; 1024];
        match stream.read(&mut chunk)? {
            0 => return Err(refused("the server closed the connection instead of greeting")),
            count => received.extend_from_slice(&chunk[..count]),
        }
    }
}

fn no_waymaker(why: &dyn std::fmt::Display) -> String {
    format!("what answers there does not speak the Waymaker protocol: {why}")
}
