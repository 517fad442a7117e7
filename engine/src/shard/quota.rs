//! Accounting of the claims of lanes.
//!
//! Each lane with quota accounts has counts of its claims, waiters and bytes. If the lane gets other accounts, these
//! counts are subtracted from the old accounts and added to the new ones. If a lane without accounts, but with claims,
//! gets accounts, these count the claims, but neither their waiters nor their bytes. To know these amounts, the shard
//! would have to visit each claim. This concerns lanes of an earlier server process, and lanes that were open before
//! their identity had a quota. If a claim that was never counted moves from a lane without accounts to a lane with
//! accounts, the bytes of its key count, but not its other strings. Those of a registration count too, because its
//! renewal contains them anew.
//!
//! As long as no lane of a shard has had quota accounts, counting costs nothing. A new claim is then only compared with
//! `room_at_once`, which is the maximum number of claims in the shard. From the first accounts on, `room_at_once` is
//! zero. No claim is within that, so [`Shard::has_room_for`] also compares each new claim with the accounts of its
//! lane. The end of a claim reads one record of its lane in either case.

use super::Shard;
use crate::account::{Accounts, QuotaReached, Resource};
use crate::claim::Claim;
use crate::effect::Refusal;
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::lane::Lane;

impl From<QuotaReached> for Refusal {
    fn from(QuotaReached { limit, max }: QuotaReached) -> Self {
        Self::Overloaded { limit, value: max }
    }
}

/// Amounts that accounts count for new claims.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NewClaims {
    pub(super) count: usize,
    /// Bytes of their keys.
    pub(super) keys: usize,
    /// Bytes of the strings besides the keys. The claims of one request share these strings, and the first claim counts
    /// them.
    pub(super) more: usize,
}

impl NewClaims {
    /// Returns the amounts that quota accounts count for one claim for this key.
    pub(super) fn of_key(key: &[u8]) -> Self {
        Self { count: 1, keys: key.len(), more: 0 }
    }

    /// Returns the same amounts, with `more` bytes besides the key.
    pub(super) fn and(self, more: usize) -> Self {
        Self { more, ..self }
    }
}

/// Sums over the claims that a request moves to another lane: the number of claims, their bytes, and the waiters among
/// them. Quota accounts count these amounts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MovedClaims {
    claims: u64,
    bytes: u64,
    waiters: u64,
}

/// Converts a length. No request is longer than `u32::MAX` bytes.
pub(super) fn as_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl Shard {
    /// Sets the quota accounts of a lane.
    pub(super) fn set_accounts(&mut self, lane: LaneIx, accounts: Accounts) {
        self.has_accounts |= !accounts.is_empty();
        self.set_room_at_once();
        self.lanes.lanes[lane].set_accounts(accounts);
    }

    pub(super) fn set_room_at_once(&mut self) {
        self.room_at_once = if self.has_accounts { 0 } else { self.claim_room };
    }

    /// Checks that the limits of the shard allow `count` more claims.
    pub(super) fn is_within_limits(&self, count: u32) -> Result<(), Refusal> {
        if self.claims.live_count().saturating_add(count) <= self.claim_room {
            return Ok(());
        }
        Err(match self.full_memory {
            Some(value) => Refusal::Overloaded { limit: "bytes of memory", value },
            None => Refusal::Overloaded { limit: "claims per shard", value: u64::from(self.claim_room) },
        })
    }

    /// Checks that the limits of the shard and the quota accounts of a lane allow `count` more claims. `counted` has
    /// the amounts that the accounts count for them.
    #[cold]
    pub(super) fn has_room_and_quota(
        &mut self,
        lane: LaneIx,
        count: u32,
        counted: NewClaims,
    ) -> Result<(), Refusal> {
        self.is_within_limits(count)?;
        self.has_quota(lane, counted)
    }

    /// Checks that the quota accounts of a lane allow these claims. If so, stores the bytes besides their keys for the
    /// next new claim.
    pub(super) fn has_quota(&mut self, lane: LaneIx, counted: NewClaims) -> Result<(), Refusal> {
        let accounts = &self.lanes.lanes[lane].accounts;
        accounts.have_room(Resource::Claims, counted.count as u64)?;
        accounts.have_room(Resource::Bytes, (counted.keys + counted.more) as u64)?;
        self.next_len = counted.more;
        Ok(())
    }

    /// Checks that the quota accounts of a lane allow `more` bytes. Zero bytes are always allowed, even beyond the
    /// quota.
    pub(super) fn has_quota_for_bytes(&self, lane: LaneIx, more: usize) -> Result<(), Refusal> {
        if more > 0 {
            self.lanes.lanes[lane].accounts.have_room(Resource::Bytes, more as u64)?;
        }
        Ok(())
    }

    /// Checks that the quota accounts of a lane allow one more waiting claim.
    #[inline]
    pub(super) fn may_have_waiter(&self, lane: LaneIx) -> Result<(), Refusal> {
        if self.has_accounts { self.has_quota_to_wait(lane) } else { Ok(()) }
    }

    #[cold]
    fn has_quota_to_wait(&self, lane: LaneIx) -> Result<(), Refusal> {
        Ok(self.lanes.lanes[lane].accounts.have_room(Resource::Waiters, 1)?)
    }

    /// Adds a new claim to the quota accounts of its lane, if the lane has any. The first claim of a request also gets
    /// the bytes besides the keys that [`Shard::has_quota`] stored.
    #[cold]
    pub(super) fn count_new_claim(&mut self, claim: ClaimIx) {
        if !self.lanes.lanes[self.claims[claim].lane].is_counted {
            return;
        }
        let len = std::mem::take(&mut self.next_len);
        if len > 0 {
            self.detail_mut(claim).counted_len = as_u32(len);
        }
        self.count_claim(claim);
    }

    fn count_claim(&mut self, claim: ClaimIx) {
        let Claim { lane, entry, .. } = self.claims[claim];
        let len = self.counted_len(entry, self.len_beside_key(claim));
        let lane = &mut self.lanes.lanes[lane];
        lane.add(Resource::Claims, 1);
        lane.add(Resource::Bytes, len);
    }

    /// Subtracts a claim from the quota accounts of `lane`, if it has any, because it ends or leaves the lane. `more`
    /// is the number of its bytes besides its key.
    fn uncount_claim(&mut self, lane: LaneIx, entry: KeyIx, more: u32) {
        let len = self.counted_len(entry, more);
        let lane = &mut self.lanes.lanes[lane];
        lane.subtract(Resource::Claims, 1);
        lane.subtract(Resource::Bytes, len);
    }

    /// Returns the number of bytes that quota accounts count for a claim besides its key.
    fn len_beside_key(&self, claim: ClaimIx) -> u32 {
        self.details.get(self.claims[claim].detail).map_or(0, |detail| detail.counted_len)
    }

    fn counted_len(&self, entry: KeyIx, more: u32) -> u64 {
        self.keys.key(entry).len() as u64 + u64::from(more)
    }

    /// Subtracts an ended claim from the counts of its lane, which [needs care](crate::lane::Lane::needs_care). A lane
    /// needs care if quota accounts count its claims, or if it is closed and is removed with its last claim. Last step
    /// of the end of such a claim.
    #[cold]
    pub(super) fn drop_claim_with_care(&mut self, lane: LaneIx, entry: KeyIx, more: u32) {
        self.uncount_claim(lane, entry, more);
        let record = &mut self.lanes.lanes[lane];
        record.is_late &= record.claim_count > 1;
        self.lanes.drop_claim(lane);
    }

    /// Sets the number of bytes besides the key that quota accounts count for a claim, if its lane has accounts.
    #[inline]
    pub(super) fn count_len(&mut self, claim: ClaimIx, len: usize) {
        if self.lanes.lanes[self.claims[claim].lane].is_counted {
            self.set_counted_len(claim, len);
        }
    }

    #[cold]
    fn set_counted_len(&mut self, claim: ClaimIx, len: usize) {
        let len = as_u32(len);
        let before = std::mem::replace(&mut self.detail_mut(claim).counted_len, len);
        let lane = &mut self.lanes.lanes[self.claims[claim].lane];
        lane.subtract(Resource::Bytes, u64::from(before));
        lane.add(Resource::Bytes, u64::from(len));
    }

    /// Counts a claim that begins to wait, or that is reserved, as a waiter of its lane, for the quotas of waiters. Of
    /// a multi-key claim, only the claim at the first key counts.
    #[inline]
    pub(super) fn count_waiter(&mut self, claim: ClaimIx) {
        if self.has_accounts && !self.is_far(claim) {
            self.lane_of(claim).add(Resource::Waiters, 1);
        }
    }

    /// Counts a claim no longer as a waiter of its lane, because it is granted or ends. If `is_far`, it belongs to a
    /// multi-key claim and is not at its first key, so it was not counted.
    #[inline]
    pub(super) fn uncount_waiter(&mut self, claim: ClaimIx, is_far: bool) {
        if self.has_accounts && !is_far {
            self.lane_of(claim).subtract(Resource::Waiters, 1);
        }
    }

    #[cold]
    fn lane_of(&mut self, claim: ClaimIx) -> &mut Lane {
        &mut self.lanes.lanes[self.claims[claim].lane]
    }

    /// Refuses to move a claim to a lane whose quota accounts have no room for it and for the claims in `moved`. Those
    /// are the other claims that the same request moves; the claim is added to them. An account that already counts the
    /// claim needs no more room.
    #[inline]
    pub(super) fn may_move_to(
        &self,
        claim: ClaimIx,
        lane: LaneIx,
        moved: &mut MovedClaims,
    ) -> Result<(), Refusal> {
        if !self.has_accounts {
            return Ok(());
        }
        self.has_quota_for_move(claim, lane, self.len_beside_key(claim), moved)
    }

    /// Checks that the quota accounts of `lane` have room for a claim that moves there from its present lane. They must
    /// also have room for the claims in `moved`, which the same request moves. After the move, the claim will have
    /// `more` bytes besides its key. Adds the claim to `moved`.
    #[cold]
    pub(super) fn has_quota_for_move(
        &self,
        claim: ClaimIx,
        lane: LaneIx,
        more: u32,
        moved: &mut MovedClaims,
    ) -> Result<(), Refusal> {
        let Claim { lane: from, entry, .. } = self.claims[claim];
        moved.claims += 1;
        moved.bytes += self.counted_len(entry, more);
        moved.waiters += u64::from(self.is_waiter(claim));
        let accounts = self.lanes.lanes[lane].accounts.without(&self.lanes.lanes[from].accounts);
        accounts.have_room(Resource::Claims, moved.claims)?;
        accounts.have_room(Resource::Bytes, moved.bytes)?;
        if moved.waiters > 0 {
            accounts.have_room(Resource::Waiters, moved.waiters)?;
        }
        Ok(())
    }

    fn is_waiter(&self, claim: ClaimIx) -> bool {
        !self.claims[claim].is_held() && !self.is_far(claim)
    }

    /// Moves a claim to another lane, and the amounts that quota accounts count for it from the old to the new
    /// accounts.
    pub(super) fn set_lane(&mut self, claim: ClaimIx, lane: LaneIx) {
        if !self.has_accounts {
            self.claims[claim].lane = lane;
            return;
        }
        let waiters = u64::from(self.is_waiter(claim));
        let Claim { lane: from, entry, .. } = self.claims[claim];
        let more = self.len_beside_key(claim);
        self.uncount_claim(from, entry, more);
        self.lanes.lanes[from].subtract(Resource::Waiters, waiters);
        self.claims[claim].lane = lane;
        self.count_claim(claim);
        self.lanes.lanes[lane].add(Resource::Waiters, waiters);
    }
}
