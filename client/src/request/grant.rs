//! Grants of claims.

use waymaker_protocol::{Granted, GrantedKeys, LockId};

use super::claim::Claim;
use crate::key::Key;
use crate::one_or_more::OneOrMore;

/// A grant, with one hold or with several that were decided together.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// The server's clock at the decision, in milliseconds.
    pub(crate) stamp_ms: u64,
    pub(crate) clamped: bool,
    /// Whether the request id of the acquire has found a claim that was already held.
    pub(crate) repeated: bool,
    /// Request number of the acquire, if its caller set a request id, by which another acquire may take over the holds;
    /// otherwise `None`.
    pub(crate) take_up_number: Option<u32>,
    pub(crate) holds: OneOrMore<GrantedHold>,
}

/// One hold of a grant.
#[derive(Clone, Debug)]
pub(crate) struct GrantedHold {
    pub(crate) id: LockId,
    pub(crate) fence: u64,
    /// Remaining lease at `stamp_ms`, in milliseconds.
    pub(crate) remaining_ms: u32,
    pub(crate) stamp_ms: u64,
    pub(crate) key: Key,
    pub(crate) shared: bool,
}

impl Grant {
    /// Returns the grant of a claim with a single hold.
    pub(crate) fn one(claim: &Claim, number: u32, granted: Granted) -> Self {
        let Granted { id, fence, remaining_ms, stamp_ms, clamped, repeated, .. } = granted;
        let (key, shared) = claim.hold_key();
        let hold = GrantedHold { id, fence, remaining_ms, stamp_ms, key, shared };
        let take_up_number = claim.may_be_taken_up().then_some(number);
        Self { stamp_ms, clamped, repeated, take_up_number, holds: OneOrMore::One(hold) }
    }

    /// Returns the grant of a multi-key claim.
    pub(crate) fn multi_key(claim: &Claim, number: u32, granted: &GrantedKeys<'_>) -> Self {
        let stamp_ms = granted.stamp_ms;
        let hold = |key: &waymaker_protocol::GrantedKey<'_>| GrantedHold {
            id: key.id,
            fence: key.fence,
            remaining_ms: key.remaining_ms,
            stamp_ms,
            key: Key::from(key.key),
            shared: key.shared,
        };
        let (clamped, repeated) = (granted.clamped, granted.repeated);
        let take_up_number = claim.may_be_taken_up().then_some(number);
        let holds = OneOrMore::More(granted.keys.iter().map(hold).collect());
        Self { stamp_ms, clamped, repeated, take_up_number, holds }
    }
}
