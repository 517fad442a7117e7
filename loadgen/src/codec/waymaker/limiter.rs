//! The rate limiter: one token from a bucket.

use std::io::{self, Read, Write};

use waymaker_protocol::message::throttle::THROTTLED;
use waymaker_protocol::{Bucket, NamespaceKind, Throttle, Throttled};

use super::{NUMBER_OFFSET, open, refusal, whole_frame};
use crate::codec::{Answer, Broken, Claim, Codec, Parsed};
use crate::key::{KeyIndex, TailPlace};
use crate::plan::Plan;

/// A period of one second.
const PERIOD_NS: u64 = 1_000_000_000;

/// A connection that sends limiter requests. They hold nothing, so there are no releases.
#[derive(Debug)]
pub struct WaymakerLimiter {
    /// Template of a request to any bucket; number and end of the name are patched in.
    question: Vec<u8>,
    tail_place: TailPlace,
}

impl Codec for WaymakerLimiter {
    type Hold = ();
    const HAS_FENCES: bool = false;
    const WAITS: bool = false;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        open(plan, stream, NamespaceKind::Limit, plan.depth)?;
        let name = KeyIndex(0).key(usize::from(plan.key_size));
        let (rate, burst) = (plan.shape.bucket_rate, plan.shape.burst);
        let bucket = Bucket { rate, burst, cost: 1, period_ns: PERIOD_NS, name: &name };
        let mut question = Vec::new();
        Throttle { bucket, refund: false }.encode(1, &mut question);
        // The name is at the end of the frame.
        let tail_place = TailPlace::before(question.len(), name.len());
        Ok(Self { question, tail_place })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.question);
        let frame = &mut out[start..];
        frame[NUMBER_OFFSET..NUMBER_OFFSET + 4].copy_from_slice(&number.to_le_bytes());
        self.tail_place.put(&claim.key.tail(), frame);
    }

    fn put_release(&mut self, _number: u32, _claim: Claim, (): &(), _out: &mut Vec<u8>) {}

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<()>, Broken> {
        let Some(frame) = whole_frame(bytes)? else { return Ok(None) };
        if frame.opcode() != THROTTLED {
            return Ok(Some((refusal(frame)?, frame.len())));
        }
        let throttled = Throttled::decode(frame)
            .map_err(|error| Broken(format!("a limiter response that cannot be decoded: {error}")))?;
        let Throttled { allowed, retry_after_ns, .. } = throttled;
        let number = frame.number();
        let answer = if allowed == (retry_after_ns == 0) {
            Answer::Throttled { number, allowed }
        } else {
            Answer::Refused { number: Some(number), message: format!("inconsistent response: {throttled:?}") }
        };
        Ok(Some((answer, frame.len())))
    }
}
