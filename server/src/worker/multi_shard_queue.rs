//! The queue of a worker for work that needs the turns of several shards at once, such as a multi-key acquire. The work
//! waits here while another worker holds one of the turns, or until the connections of this worker have had their
//! turns.

use super::multi_shard::MultiShard;
use std::collections::{BTreeSet, VecDeque};
use waymaker_engine::{ClaimId, Ticket};

#[derive(Debug, Default)]
pub(super) struct MultiShardQueue {
    works: VecDeque<MultiShard>,
    /// Ids of the claims that have a recheck in `works`: a check whether all keys of a waiting multi-key claim can now
    /// be granted. No claim has two.
    rechecks: BTreeSet<ClaimId>,
    /// Number of entries of `works`, from the front, for which the worker is still to try to take the turns of all
    /// their shards.
    untried: usize,
}

impl MultiShardQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    /// Adds work at the back of the queue. The worker has failed to take all turns that the work needs, or has no time
    /// left for it in this step.
    pub(super) fn push(&mut self, work: MultiShard) {
        self.rechecks.extend(work.rechecked());
        self.works.push_back(work);
    }

    /// Whether `works` contains a recheck of this claim.
    pub(super) fn will_recheck(&self, claim: ClaimId) -> bool {
        self.rechecks.contains(&claim)
    }

    /// Marks all work in the queue as still to be tried. Returns whether none was marked before; otherwise a caller
    /// already tries the marked work.
    pub(super) fn try_all(&mut self) -> bool {
        let was_idle = self.untried == 0;
        self.untried = self.works.len();
        was_idle
    }

    /// Removes and returns work that is to be tried now.
    pub(super) fn next_untried(&mut self) -> Option<MultiShard> {
        self.untried = self.untried.checked_sub(1)?;
        // If the worker fails to take all turns that some work needs, it puts the work at the back of the queue. So the
        // work in front has not been tried yet.
        let work = self.works.pop_front()?;
        if let Some(claim) = work.rechecked() {
            self.rechecks.remove(&claim);
        }
        Some(work)
    }

    pub(super) fn has_untried(&self) -> bool {
        self.untried > 0
    }

    /// Removes the request with this ticket. Returns false if it is not here.
    pub(super) fn remove_request(&mut self, ticket: Ticket) -> bool {
        let Some(place) = self.works.iter().position(|work| work.requested_by(ticket)) else { return false };
        self.works.remove(place);
        // A removed entry in front counted as untried. If `untried` still counted it, `untried` would never reach 0,
        // and `try_all` would report a try that nobody makes.
        self.untried -= usize::from(place < self.untried);
        true
    }
}
