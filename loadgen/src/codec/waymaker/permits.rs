//! Permits of pools.

use std::io::{self, Read, Write};

use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{AcquirePermits, AcquireTerms, LockId, NamespaceKind};

use super::{NUMBER_OFFSET, Releases, next_of_one_hold, open, tail_place};
use crate::codec::{Broken, Claim, Codec, Parsed};
use crate::key::{KeyIndex, TailPlace};
use crate::plan::Plan;

/// A connection that takes permits; the key of a claim is the pool.
#[derive(Debug)]
pub struct WaymakerPermits {
    /// Template of an acquire of any pool; number and end of the name are patched in.
    acquire: Vec<u8>,
    tail_place: TailPlace,
    release: Releases,
}

impl Codec for WaymakerPermits {
    type Hold = LockId;
    const HAS_FENCES: bool = true;
    const WAITS: bool = true;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        open(plan, stream, NamespaceKind::Pool, plan.depth)?;
        let permits = AcquirePermits {
            capacity: u64::from(plan.shape.capacity),
            permits: u64::from(plan.shape.permits),
            name: &KeyIndex(0).key(usize::from(plan.key_size)),
            terms: AcquireTerms {
                lease_ms: plan.lease_ms,
                wait_ms: WAIT_FOREVER_MS,
                options: plan.scope.acquire_options(),
                ..AcquireTerms::default()
            },
            ..AcquirePermits::default()
        };
        let mut acquire = Vec::new();
        permits.encode(1, &mut acquire);
        let tail_place = tail_place(&acquire, plan);
        Ok(Self { acquire, tail_place, release: Releases::default() })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.acquire);
        let frame = &mut out[start..];
        frame[NUMBER_OFFSET..NUMBER_OFFSET + 4].copy_from_slice(&number.to_le_bytes());
        self.tail_place.put(&claim.key.tail(), frame);
    }

    #[inline]
    fn put_release(&mut self, number: u32, _claim: Claim, hold: &LockId, out: &mut Vec<u8>) {
        self.release.append(number, *hold, out);
    }

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<LockId>, Broken> {
        next_of_one_hold(bytes)
    }
}
