//! Holds of Waymaker: `EXTEND` for each.

use std::io::{self, Read, Write};

use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::message::acquire::GRANTED;
use waymaker_protocol::message::extend::EXTENDED;
use waymaker_protocol::{
    Acquire, AcquireTerms, Extend, Extended, Granted, LockId, NamespaceKind, Response, next_frame,
};

use super::{Turns, key_of, leases_of_connection};
use crate::codec::waymaker::{open, refusal, whole_frame};
use crate::codec::{Answer, Broken, Claim, Codec, Parsed, refused};
use crate::plan::Plan;

/// Number of requests in flight while the leases are taken.
const BATCH: u32 = 256;

/// A connection and its holds.
#[derive(Debug)]
pub struct WaymakerRenewals {
    holds: Turns<LockId>,
    lease_ms: u32,
}

impl Codec for WaymakerRenewals {
    type Hold = ();
    const HAS_FENCES: bool = false;
    const WAITS: bool = true;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        open(plan, stream, NamespaceKind::Flat, plan.depth.max(BATCH))?;
        let connection = rand::random();
        let mut holds = Vec::new();
        let count = leases_of_connection(plan);
        for first in (0..count).step_by(BATCH as usize) {
            let batch = first..count.min(first + BATCH);
            let mut requests = Vec::new();
            for lease in batch.clone() {
                let key = key_of(connection, lease);
                let options = plan.scope.acquire_options();
                Acquire {
                    key: key.as_bytes(),
                    terms: AcquireTerms { lease_ms: plan.lease_ms, options, ..AcquireTerms::default() },
                    ..Acquire::default()
                }
                .encode(lease + 1, &mut requests);
            }
            stream.write_all(&requests)?;
            take_grants(stream, batch.end as usize, &mut holds)?;
        }
        Ok(Self { holds: Turns::new(holds), lease_ms: plan.lease_ms })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, _claim: Claim, out: &mut Vec<u8>) {
        Extend { id: *self.holds.next(), lease_ms: self.lease_ms, key: None, own: false }.encode(number, out);
    }

    fn put_release(&mut self, _number: u32, _claim: Claim, (): &(), _out: &mut Vec<u8>) {}

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<()>, Broken> {
        let Some(frame) = whole_frame(bytes)? else { return Ok(None) };
        let answer = if frame.opcode() == EXTENDED {
            Extended::decode(frame)
                .map_err(|error| Broken(format!("a renewal that cannot be decoded: {error}")))?;
            Answer::Renewed { number: frame.number() }
        } else {
            refusal(frame)?
        };
        Ok(Some((answer, frame.len())))
    }
}

/// Reads grants until this number has arrived.
fn take_grants(stream: &mut impl Read, count: usize, holds: &mut Vec<LockId>) -> io::Result<()> {
    let mut received = Vec::new();
    let mut chunk = [0; 16 << 10];
    while holds.len() < count {
        match stream.read(&mut chunk)? {
            0 => return Err(refused("the server closed the connection before the grant")),
            len => received.extend_from_slice(&chunk[..len]),
        }
        let mut offset = 0;
        while let Some(frame) =
            next_frame(&received[offset..], FRAME_LEN_MAX).map_err(|error| refused(error.to_string()))?
        {
            offset += frame.len();
            holds.push(match frame.opcode() {
                GRANTED => Granted::decode(frame).map_err(|error| refused(error.to_string()))?.id,
                _ => {
                    return Err(refused(format!(
                        "unexpected response to ACQUIRE: {:?}",
                        Response::decode(frame)
                    )));
                }
            });
        }
        received.drain(..offset);
    }
    Ok(())
}
