//! Sets of paths of a tree.

use std::io::{self, Read, Write};

use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{AcquireSet, AcquireTerms, Items, LockId, NamespaceKind, PathItem, PathKey};

use super::{Releases, next_of_one_hold, open};
use crate::codec::{Broken, Claim, Codec, Parsed};
use crate::item_set::ItemSet;
use crate::key::{DIGITS, KeyIndex};
use crate::plan::Plan;
use crate::scope::Scope;

/// Number of digits in each segment.
const SEGMENT_LEN: usize = 4;
/// Length of an encoded segment.
const SEGMENT_WIRE_LEN: usize = 2 + SEGMENT_LEN;

/// A connection that takes sets of paths. A key is a leaf; its segments are the digits of its number in base
/// fan-out.
#[derive(Debug)]
pub struct WaymakerSets {
    items: ItemSet,
    fan_out: u32,
    lease_ms: u32,
    scope: Scope,
    /// Concatenated paths; all have the same length.
    paths: Vec<u8>,
    path_len: usize,
    encoded_items: Vec<u8>,
    release: Releases,
}

impl WaymakerSets {
    fn write_paths(&mut self, first: KeyIndex) {
        for (key, path) in self.items.keys(first).zip(self.paths.chunks_exact_mut(self.path_len)) {
            let mut rest = key.0;
            // The last digit is the deepest segment.
            for segment in path.chunks_exact_mut(SEGMENT_WIRE_LEN).rev() {
                let digits = KeyIndex(rest % self.fan_out).digits();
                segment[2..].copy_from_slice(&digits[DIGITS - SEGMENT_LEN..]);
                rest /= self.fan_out;
            }
        }
    }
}

impl Codec for WaymakerSets {
    type Hold = LockId;
    const HAS_FENCES: bool = true;
    const WAITS: bool = true;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        open(plan, stream, NamespaceKind::Tree, plan.depth)?;
        let mut path = Vec::new();
        PathKey::append(vec![[b'0'; SEGMENT_LEN]; usize::from(plan.shape.tree_depth)], &mut path)
            .map_err(io::Error::other)?;
        Ok(Self {
            items: ItemSet::new(plan.shape.item_count, plan.key_count),
            fan_out: plan.shape.fan_out,
            lease_ms: plan.lease_ms,
            scope: plan.scope,
            paths: path.repeat(usize::from(plan.shape.item_count)),
            path_len: path.len(),
            encoded_items: Vec::new(),
            release: Releases::default(),
        })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        self.write_paths(claim.key);
        let paths = self.paths.chunks_exact(self.path_len);
        let items = paths.map(|bytes| PathItem {
            write: !claim.shared,
            path: PathKey::new(bytes).expect("segments keep their lengths"),
        });
        let items = Items::new(items, &mut self.encoded_items).expect("as many paths as the options allow");
        let (lease_ms, wait_ms) = (self.lease_ms, WAIT_FOREVER_MS);
        let options = self.scope.acquire_options();
        AcquireSet { items, terms: AcquireTerms { lease_ms, wait_ms, options, ..AcquireTerms::default() } }
            .encode(number, out);
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
