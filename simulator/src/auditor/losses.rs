//! Rule `losses`: a server that starts after a loss of records refuses grants until the longest lease that may
//! be lost has expired.

use super::Auditor;
use super::holds::Hold;
use waymaker_protocol::LockId;

/// Records that are lost because an operator accepted damage.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Whether any records were lost. From then on, the fences of a key may have gaps.
    pub(super) has_happened: bool,
    /// Whether no server has completed the wait since records were lost.
    pub(super) is_pending: bool,
    /// Longest lease of a hold that may be lost, in milliseconds.
    pub(super) longest_ms: u64,
    /// Earliest time of the next new grant.
    pub(super) grants_from_ms: u64,
    /// Latest time from which the server must grant again.
    pub(super) granted_by_ms: u64,
}

impl Auditor {
    /// Rule `losses`: a server that starts after a loss of records refuses grants for the longest lease that
    /// may be lost.
    pub(crate) fn note_losses(&mut self, now_ms: u64, wait_ms: Option<u64>) {
        let Losses { is_pending, longest_ms, .. } = self.restarts.losses;
        if is_pending && wait_ms.is_none_or(|wait_ms| wait_ms < longest_ms) {
            self.accuse("losses", || {
                format!(
                    "the server starts after a loss of records and refuses grants for {wait_ms:?} ms, but a lost hold may have a lease of {longest_ms} ms"
                )
            });
        }
        self.restarts.losses.grants_from_ms = if is_pending { now_ms + longest_ms } else { 0 };
        self.restarts.losses.granted_by_ms = now_ms + wait_ms.unwrap_or(0);
    }

    /// Records that some log records are lost. Any hold may be among them.
    pub(super) fn lose_records(&mut self) {
        let is_local = |id: &LockId, hold: &Hold| {
            let grant = self.keys.get(&hold.key).and_then(|key| key.get(hold.fence));
            grant.is_some_and(|grant| grant.id == *id && grant.scope.is_durable())
        };
        let leases = self.holds.iter().filter(|(id, hold)| hold.over_ms.is_none() && is_local(id, hold));
        let longest_ms = leases.map(|(_, hold)| self.promised_lease_ms(hold)).max().unwrap_or(0);
        self.restarts.losses.is_pending = true;
        self.restarts.losses.longest_ms = self.restarts.losses.longest_ms.max(longest_ms);
        // The record of an end may be lost too.
        self.restarts.durable_ms = 0;
        self.pools.forget_sets();
        self.operators.doubt_thaws();
        self.restarts.losses.has_happened = true;
    }

    /// Returns the lease in the last response about a hold, or the lease of its session; 0 without a lease.
    pub(super) fn promised_lease_ms(&self, hold: &Hold) -> u64 {
        match hold.session {
            Some(session) => self.lease_ms_of_session(Some(session)).into(),
            None if hold.lease_ms == u32::MAX => 0,
            None => hold.lease_ms.into(),
        }
    }

    /// Rule `losses`: no new grant is made until every hold that may be lost has expired.
    pub(super) fn judge_granted_after_losses(&mut self, id: LockId, stamp_ms: u64) {
        let grants_from_ms = self.restarts.losses.grants_from_ms;
        if stamp_ms < grants_from_ms {
            self.accuse("losses", || {
                format!(
                    "{id} was granted at {stamp_ms} ms, but lost holds may last until {grants_from_ms} ms"
                )
            });
        }
    }
}
