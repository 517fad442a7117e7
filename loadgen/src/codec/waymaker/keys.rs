//! Multi-key claims; each key has its own hold.

use std::io::{self, Read, Write};

use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::message::acquire_keys::GRANTED_KEYS;
use waymaker_protocol::message::release::RELEASED;
use waymaker_protocol::{AcquireKeys, AcquireTerms, GrantedKeys, Items, KeyItem, LockId, NamespaceKind};

use super::{Releases, open, refusal, whole_frame};
use crate::codec::{Answer, Broken, Claim, Codec, Parsed};
use crate::item_set::ItemSet;
use crate::key::{KeyIndex, TAIL_LEN, TailPlace};
use crate::plan::Plan;
use crate::scope::Scope;

/// A connection that takes several keys at once. One release request sends one frame for each hold, all with the
/// same number.
#[derive(Debug)]
pub struct WaymakerKeys {
    items: ItemSet,
    lease_ms: u32,
    scope: Scope,
    /// Keys of one claim; all have the same length.
    keys: Vec<u8>,
    key_len: usize,
    tail_place: TailPlace,
    encoded_items: Vec<u8>,
    release: Releases,
    /// Claims of the requests in flight, indexed by the low bits of their number.
    claims: Box<[Claimed]>,
}

/// State of a multi-key claim.
#[derive(Clone, Debug, Default)]
struct Claimed {
    claim: Claim,
    holds: Vec<LockId>,
    unreleased_count: usize,
}

impl WaymakerKeys {
    #[inline]
    fn claimed(&mut self, number: u32) -> &mut Claimed {
        // Slots number their requests this way, and their count is a power of two.
        let index = number as usize & (self.claims.len() - 1);
        &mut self.claims[index]
    }

    /// Returns the fence of the first requested key, or an error if the grant differs from the request.
    fn take_grant(&mut self, number: u32, granted: &GrantedKeys<'_>) -> Result<u64, String> {
        let claim = self.claimed(number).claim;
        let mut wanted: Vec<KeyIndex> = self.items.keys(claim.key).collect();
        // The server sorts keys by their bytes, and shorter keys are suffixes of longer ones.
        let end = |key: KeyIndex| key.tail()[TAIL_LEN - self.key_len.min(TAIL_LEN)..].to_vec();
        wanted.sort_unstable_by_key(|key| end(*key));
        let is_whole = granted.keys.len() == wanted.len()
            && wanted.iter().zip(&granted.keys).all(|(wanted, granted)| {
                granted.key.ends_with(&end(*wanted))
                    && granted.shared == claim.shared
                    && granted.key.len() == self.key_len
            });
        if !is_whole {
            return Err(format!("requested {wanted:x?}, granted {:x?}", granted.keys));
        }
        let place = wanted.iter().position(|key| *key == claim.key).unwrap_or(0);
        let claimed = self.claimed(number);
        claimed.holds.clear();
        claimed.holds.extend(granted.keys.iter().map(|key| key.id));
        Ok(granted.keys[place].fence)
    }
}

impl Codec for WaymakerKeys {
    /// The holds are kept in the connection, because there is one for each key.
    type Hold = ();
    const HAS_FENCES: bool = true;
    const WAITS: bool = true;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        open(plan, stream, NamespaceKind::Flat, plan.depth * u32::from(plan.shape.item_count))?;
        let key = KeyIndex(0).key(usize::from(plan.key_size));
        Ok(Self {
            items: ItemSet::new(plan.shape.item_count, plan.key_count),
            lease_ms: plan.lease_ms,
            scope: plan.scope,
            keys: key.repeat(usize::from(plan.shape.item_count)),
            key_len: key.len(),
            tail_place: TailPlace::before(key.len(), key.len()),
            encoded_items: Vec::new(),
            release: Releases::default(),
            claims: vec![Claimed::default(); plan.depth.next_power_of_two() as usize].into(),
        })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        self.claimed(number).claim = claim;
        for (item, key) in self.items.keys(claim.key).zip(self.keys.chunks_exact_mut(self.key_len)) {
            self.tail_place.put(&item.tail(), key);
        }
        let items = self.keys.chunks_exact(self.key_len).map(|key| KeyItem { shared: claim.shared, key });
        let items = Items::new(items, &mut self.encoded_items).expect("as many keys as the options allow");
        let (lease_ms, wait_ms) = (self.lease_ms, WAIT_FOREVER_MS);
        let options = self.scope.acquire_options();
        AcquireKeys { items, terms: AcquireTerms { lease_ms, wait_ms, options, ..AcquireTerms::default() } }
            .encode(number, out);
    }

    #[inline]
    fn put_release(&mut self, number: u32, _claim: Claim, (): &(), out: &mut Vec<u8>) {
        // The claim is stored under the number of its acquire, which has the same low bits.
        let index = number as usize & (self.claims.len() - 1);
        let claimed = &mut self.claims[index];
        claimed.unreleased_count = claimed.holds.len();
        for hold in &claimed.holds {
            self.release.append(number, *hold, out);
        }
    }

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<()>, Broken> {
        let Some(frame) = whole_frame(bytes)? else { return Ok(None) };
        let number = frame.number();
        let answer = match frame.opcode() {
            GRANTED_KEYS => {
                let granted = GrantedKeys::decode(frame)
                    .map_err(|error| Broken(format!("a grant that cannot be decoded: {error}")))?;
                match self.take_grant(number, &granted) {
                    Ok(fence) => Answer::Granted { number, hold: (), fence },
                    Err(message) => Answer::Refused { number: Some(number), message },
                }
            }
            RELEASED => {
                let claimed = self.claimed(number);
                claimed.unreleased_count = claimed.unreleased_count.saturating_sub(1);
                match claimed.unreleased_count {
                    0 => Answer::Released { number },
                    _ => Answer::ReleasedInPart,
                }
            }
            _ => refusal(frame)?,
        };
        Ok(Some((answer, frame.len())))
    }
}
