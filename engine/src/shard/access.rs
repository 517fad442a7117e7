//! Rights of a lane for claims of other identities.

use super::{Caller, Shard};
use crate::access::{Access, Rights};
use crate::claim::Claim;
use crate::effect::{ActOnOther, ClaimAct, Effects, Refusal};
use crate::handle::{ClaimIx, LaneIx};
use crate::ids::LaneAddress;
use std::sync::Arc;

impl Shard {
    /// Sets the identity and the rights of a lane, and the quota accounts that count its claims. `None` means no
    /// identity, all rights and no accounts.
    pub fn note_access(&mut self, lane: LaneIx, access: Option<&Arc<Access>>) {
        let known = &mut self.lanes.lanes[lane].access;
        if known.as_ref().map(Arc::as_ptr) != access.map(Arc::as_ptr) {
            *known = access.cloned();
            self.account_for(lane);
        }
    }

    /// Changes the identity and the rights of a lane, if the shard knows the lane.
    pub fn change_access(&mut self, address: LaneAddress, access: Option<&Arc<Access>>) {
        if let Some(lane) = self.lanes.find(address) {
            self.note_access(lane, access);
        }
    }

    /// Returns the identity that acquired a claim, if known. For a restored hold that no lane has taken over since, the
    /// log names it. For any other claim, it is the present identity of its lane.
    pub(super) fn identity_of(&self, claim: ClaimIx) -> Option<&Arc<str>> {
        let Claim { lane, detail, .. } = self.claims[claim];
        let kept = self.details.get(detail).and_then(|detail| detail.identity.as_ref());
        kept.or_else(|| Some(self.lanes.lanes[lane].access.as_ref()?.identity()))
    }

    /// Whether a lane may act on a claim: its own identity acquired the claim, or [`Shard::has_right`] says that it has
    /// this right for the claim.
    pub(super) fn may(&self, lane: LaneIx, claim: ClaimIx, right: Rights) -> bool {
        let Some(access) = self.access_of(lane) else { return true };
        access.everywhere().contains(right)
            || self.identity_of(claim) == Some(access.identity())
            || self.has_right(lane, claim, right)
    }

    /// Whether a lane has this right for the key or for all paths of a claim, regardless of the identity that acquired
    /// it. For a waiting or reserved multi-key claim, and for a set of more than `COMPARED_PATH_COUNT_MAX` paths, only
    /// a right for the whole namespace counts.
    pub(super) fn has_right(&self, lane: LaneIx, claim: ClaimIx, right: Rights) -> bool {
        self.access_of(lane).is_none_or(|access| {
            access.everywhere().contains(right)
                || access.somewhere().contains(right) && self.covers_all_keys(access, claim, right)
        })
    }

    /// Whether a lane may list a claim. A lane without the rights to list and to inspect all keys of its namespace
    /// requires a comparison of the claim's keys with its rights. The function then adds the cost to `looked`, in units
    /// of one visited claim. Only a set of paths has such a cost.
    pub(super) fn may_list(&self, lane: LaneIx, claim: ClaimIx, looked: &mut u32) -> bool {
        let is_compared = self
            .access_of(lane)
            .is_some_and(|access| !access.everywhere().contains(Rights::LIST | Rights::INSPECT));
        if is_compared {
            *looked += self.cost_of_compared_rights(claim);
        }
        self.may(lane, claim, Rights::LIST)
    }

    /// Returns the rights of a lane, or `None` for all rights.
    pub(super) fn access_of(&self, lane: LaneIx) -> Option<&Access> {
        self.lanes.lanes[lane].access.as_deref()
    }

    fn covers_all_keys(&self, access: &Access, claim: ClaimIx, right: Rights) -> bool {
        let detail = self.claims[claim].detail;
        if self.details.get(detail).is_some_and(|detail| detail.multi_key().is_some()) {
            // The claim is one key of a waiting or reserved multi-key claim. Its other keys may be in other shards, so
            // this shard does not know whether the right covers all of them.
            return false;
        }
        self.is_covered(claim, access, right)
    }

    /// Refuses a request about a claim as if the claim did not exist, unless [`Shard::may`] allows it.
    #[cold]
    pub(super) fn check_access(&self, caller: &Caller, claim: ClaimIx, right: Rights) -> Result<(), Refusal> {
        if self.may(caller.lane, claim, right) { Ok(()) } else { Err(Refusal::NotFound) }
    }

    /// Checks that a lane may release the claim of another lane. Reports the release to the audit log if the lane has
    /// an identity that did not acquire the claim. Of a waiting or reserved multi-key claim, only the first key can be
    /// released.
    #[cold]
    pub(super) fn check_release(
        &self,
        caller: &Caller,
        claim: ClaimIx,
        effects: &mut impl Effects,
    ) -> Result<(), Refusal> {
        self.check_access(caller, claim, Rights::RELEASE_OTHERS)?;
        if self.is_far(claim) {
            return Err(Refusal::NotFound);
        }
        self.report_act(caller.lane, claim, ClaimAct::Release, effects);
        Ok(())
    }

    /// Reports an act of a lane on the claim of another lane to the audit log, if another identity acquired the claim.
    /// The acts of a lane without an identity are not reported. The claim must still belong to the other lane, and the
    /// act must be certain to happen.
    #[cold]
    pub(super) fn report_act(&self, lane: LaneIx, claim: ClaimIx, act: ClaimAct, effects: &mut impl Effects) {
        let Some(access) = self.access_of(lane) else { return };
        // Of a waiting or reserved multi-key claim, clients know only the id of the first key, so only that key is
        // reported.
        if self.identity_of(claim) == Some(access.identity()) || self.is_far(claim) {
            return;
        }
        effects.acted_on_other(ActOnOther {
            act,
            lane: self.lanes.lanes[lane].address,
            by: access.identity(),
            namespace: self.namespace_of(claim),
            id: self.id(claim),
            key: self.shown_key(claim),
            owner: self.owner_of(claim),
        });
    }

    /// Returns the owner of a claim. Returns an empty owner if `is_known` is false, which means that the client may not
    /// see the owner.
    pub(super) fn owner_if(&self, is_known: bool, claim: ClaimIx) -> Arc<[u8]> {
        if is_known { Arc::clone(self.owner_of(claim)) } else { Arc::from([]) }
    }
}
