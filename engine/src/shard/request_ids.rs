//! Request ids: a repeated acquire finds the claim of the first one.

use super::Shard;
use crate::access::Rights;
use crate::claim::{Claim, Detail};
use crate::handle::{ClaimIx, DetailIx, KeyIx, LaneIx};
use crate::multi_key_claim::KeySet;
use crate::slab::Slab;
use ahash::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

impl Shard {
    /// Returns the hash under which the table of request ids has the claim with this key record, owner and request id.
    fn request_id_hash(hasher: &RandomState, entry: KeyIx, owner: &[u8], request_id: &[u8]) -> u64 {
        let mut state = hasher.build_hasher();
        state.write_u32(entry.number());
        // The length marks the end of the owner. Without it, different pairs of owner and request id could collide
        // easily.
        state.write_usize(owner.len());
        state.write(owner);
        state.write(request_id);
        state.finish()
    }

    /// Returns the claim at this key with this owner and request id, if the lane may take it over. If `keys` is `None`,
    /// the claim is for this key alone; otherwise it is for these keys, including this one.
    pub(super) fn find_request_id(
        &self,
        lane: LaneIx,
        entry: KeyIx,
        owner: &[u8],
        request_id: &[u8],
        keys: Option<&KeySet>,
    ) -> Option<ClaimIx> {
        if entry.is_none() {
            return None;
        }
        let hash = Self::request_id_hash(&self.hasher, entry, owner, request_id);
        let names = |claim: ClaimIx| {
            let detail = &self.details[self.claims[claim].detail];
            self.claims[claim].entry == entry
                && self.owner_of(claim).as_ref() == owner
                && detail.request_id.as_deref() == Some(request_id)
                && detail.is_part_of(keys)
                // Clients of any identity can choose the same owner name, so the name alone does not allow a client to
                // take the claim over. Its lane needs the identity that acquired the claim, or the right to release
                // claims of others.
                && self.may(lane, claim, Rights::RELEASE_OTHERS)
        };
        self.request_ids.find(hash, names)
    }

    pub(super) fn request_id_hash_of(&self, claim: ClaimIx) -> u64 {
        Self::hash_of_named(&self.hasher, &self.claims, &self.details, claim)
    }

    /// Returns the hash under which the table of request ids has a claim that was acquired with a request id. The owner
    /// is part of the hash: `remember_request_id` has stored it in the `Detail` (the record of rare data) of each such
    /// claim.
    fn hash_of_named(
        hasher: &RandomState,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        claim: ClaimIx,
    ) -> u64 {
        let Claim { entry, detail, .. } = claims[claim];
        let Detail { owner, request_id, .. } = &details[detail];
        let (owner, request_id) =
            (owner.as_deref().unwrap_or_default(), request_id.as_deref().unwrap_or_default());
        Self::request_id_hash(hasher, entry, owner, request_id)
    }

    pub(super) fn remember_request_id(&mut self, claim: ClaimIx) {
        // The owner is part of the hash, so it must stay the same when the claim moves to another lane. A claim without
        // an owner in its `Detail` has the owner of its present lane. So the owner of the present lane is copied into
        // it.
        if self.detail_mut(claim).owner.is_none() {
            let owner = Arc::clone(&self.lanes.lanes[self.claims[claim].lane].owner);
            self.detail_mut(claim).owner = Some(owner);
        }
        let hash = self.request_id_hash_of(claim);
        let Self { request_ids, claims, details, hasher, .. } = self;
        request_ids.insert(hash, claim, |other| Self::hash_of_named(hasher, claims, details, other));
    }

    pub(super) fn forget_request_id(&mut self, claim: ClaimIx) {
        let hash = self.request_id_hash_of(claim);
        self.request_ids.remove(hash, claim);
    }
}
