//! Several keys at once, each a hold of its own.

use std::io::{self, Read, Write};

use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::message::acquire_keys::GRANTED_KEYS;
use waymaker_protocol::message::release::RELEASED;
use waymaker_protocol::{AcquireKeys, GrantedKeys, Items, KeyItem, LockId, NamespaceKind};

use super::{Releases, open, refusal, whole_frame};
use crate::item_set::ItemSet;
use crate::key::{KeyIndex, TAIL_LEN, TailPlace};
use crate::plan::Plan;
use crate::scope::Scope;
use crate::target::{Answer, Broken, Claim, Parsed, Target};

/// A connection that takes several keys at once. One release gives back all of them, each with a frame of its own under
/// the same number.
#[derive(Debug)]
pub struct WaymakerKeys {
    items: ItemSet,
    lease_ms: u32,
    scope: Scope,
    /// The keys of one claim; all as long as the first.
    keys: Vec<u8>,
    key_len: usize,
    tail_place: TailPlace,
    encoded_items: Vec<u8>,
    release: Releases,
    /// Of each request in flight, by the low bits of its number.
    claims: Box<[Claimed]>,
}

/// What a connection remembers of a claim over several keys.
#[derive(Clone, Debug, Default)]
struct Claimed {
    claim: Claim,
    holds: Vec<LockId>,
    unreleased_count: usize,
}

impl WaymakerKeys {
    #[inline]
    fn claimed(&mut self, number: u32) -> &mut Claimed {
        // Slots number their requests so, and there is a power of two of these.
        let index = number as usize & (self.claims.len() - 1);
        &mut self.claims[index]
    }

    /// Says what is wrong with a grant that is not all that was asked for; gives the fence of the first key asked for.
    fn take_grant(&mut self, number: u32, granted: &GrantedKeys<'_>) -> Result<u64, String> {
        let claim = self.claimed(number).claim;
        let mut wanted: Vec<KeyIndex> = self.items.keys(claim.key).collect();
        // The server orders keys by their bytes, and shorter keys are the end of longer ones.
        let end = |key: KeyIndex| key.tail()[TAIL_LEN - self.key_len.min(TAIL_LEN)..].to_vec();
        wanted.sort_unstable_by_key(|key| end(*key));
        let is_whole = granted.keys.len() == wanted.len()
            && wanted.iter().zip(&granted.keys).all(|(wanted, granted)| {
                granted.key.ends_with(&end(*wanted))
                    && granted.shared == claim.shared
                    && granted.key.len() == self.key_len
            });
        if !is_whole {
            return Err(format!("asked for {wanted:x?}, granted {:x?}", granted.keys));
        }
        let place = wanted.iter().position(|key| *key == claim.key).unwrap_or(0);
        let claimed = self.claimed(number);
        claimed.holds.clear();
        claimed.holds.extend(granted.keys.iter().map(|key| key.id));
        Ok(granted.keys[place].fence)
    }
}

impl Target for WaymakerKeys {
    /// The holds stay here: there are as many as keys.
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
        AcquireKeys { lease_ms, wait_ms, items, options, ..AcquireKeys::default() }.encode(number, out);
    }

    #[inline]
    fn put_release(&mut self, number: u32, _claim: Claim, (): &(), out: &mut Vec<u8>) {
        // The claim was remembered under the number of its acquire, which has the same low bits.
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
                    .map_err(|error| Broken(format!("a grant that cannot be read: {error}")))?;
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
