//! Effects: the output of a turn. One request may cause responses to earlier requests of other lanes, whose connections
//! belong to other workers. So responses are effects, not return values.

mod answer;
mod durability;
mod event;
mod refusal;
mod status;

pub(crate) use answer::remaining_ms;
pub use answer::{Allowance, Answer, Grant, KeyGrant, Verified};
pub use durability::{
    QuorumMember, QuorumQuestion, QuorumState, Reserved, ReservedEnd, ReservedMultiKey, WhenDurable,
};
pub use event::{Event, RevokeReason};
pub use refusal::{CancelReason, Refusal};
pub use status::{
    ClaimStatus, Contention, ForceReleased, HeldLock, KeyStatus, ListedPool, Page, PermitHolder, PoolPage,
    PoolStatus, Registered, Registration, RegistrationPage, TreeStatistics, WaitingClaim,
};
pub use waymaker_log::LogState;

use crate::ids::{ClaimId, LaneAddress, Ticket};
use crate::measure::Measure;
use crate::multi_key_claim::MultiKeyClaim;
use std::sync::Arc;
use waymaker_log::Record;

/// Receiver of the effects of a turn, in the order in which they became true. The worker delivers them.
pub trait Effects {
    /// Sends the only response to a request.
    fn answer(&mut self, ticket: Ticket, answer: Answer);
    /// Sends the response to an acquire that was granted at once.
    ///
    /// By default the same as [`Effects::answer`]. Half of all responses are of this kind, and an [`Answer`] is large
    /// because of rare responses. A receiver that implements this method need not build an [`Answer`].
    #[inline]
    fn granted(&mut self, ticket: Ticket, grant: Grant) {
        self.answer(ticket, Answer::Granted(grant));
    }
    /// Sends the response to the release of a hold.
    ///
    /// By default the same as [`Effects::answer`]. The response is frequent, and an [`Answer`] is large because of rare
    /// responses. A receiver that implements this method need not build an [`Answer`].
    #[inline]
    fn released(&mut self, ticket: Ticket) {
        self.answer(ticket, Answer::Released { was_waiting: false });
    }
    /// Sends the response of the rate limiter. By default the same as [`Effects::answer`]. This response is frequent,
    /// and an [`Answer`] takes much memory because of rare responses. A receiver that implements this method need not
    /// build an [`Answer`].
    #[inline]
    fn throttled(&mut self, ticket: Ticket, allowance: Allowance) {
        self.answer(ticket, Answer::Throttled(allowance));
    }
    /// Sends the only response to an acquire that did not wait, except a new grant of one claim at once, which
    /// [`Effects::granted`] sends.
    fn answer_acquire(&mut self, ticket: Ticket, answer: Answer) {
        self.answer(ticket, answer);
    }
    /// Notes that the acquire of this ticket waits. [`Effects::answer_waiter`] sends its response later.
    fn waits(&mut self, ticket: Ticket) {
        let _ = ticket;
    }
    /// Sends the only response to an acquire that waited.
    fn answer_waiter(&mut self, ticket: Ticket, answer: Answer) {
        self.answer(ticket, answer);
    }
    /// Sends an event to a lane.
    fn event(&mut self, lane: LaneAddress, event: Event);
    /// Requests a check of a waiting multi-key claim, because one of its keys has become clear: only the other keys may
    /// still keep the claim waiting. After this turn, a worker must take the turns of all shards of the claim and call
    /// [`crate::multi_key::recheck`].
    fn recheck(&mut self, multi_key: &Arc<MultiKeyClaim>) {
        let _ = multi_key;
    }
    /// Reports that a multi-key claim ended before it was held. The worker then calls [`crate::Shard::withdraw`] for
    /// each shard with a key of the claim. This call ends the claims at those keys and grants the waiters that they
    /// blocked.
    fn withdraw(&mut self, multi_key: &Arc<MultiKeyClaim>) {
        let _ = multi_key;
    }
    /// Adds a record with this number of this shard to the durable log. Called only if [`crate::Shard::set_log_state`]
    /// reported a log.
    fn record(&mut self, shard: u16, number: u64, record: &Record<'_>) {
        let _ = (shard, number, record);
    }
    /// Reports to the audit log that an identity acts on the claim of another identity, and that the act succeeds.
    fn acted_on_other(&mut self, act: ActOnOther<'_>) {
        let _ = act;
    }
    /// Measures the duration of a hold that ended. Separate from [`Effects::measure`], because each release calls it.
    #[inline]
    fn hold_ended(&mut self, held_nanos: u64) {
        let _ = held_nanos;
    }
    /// Measures something for metrics.
    #[inline]
    fn measure(&mut self, measure: Measure) {
        let _ = measure;
    }
    /// Counts a registration of this type that ended with its lease, in a namespace of kind registry.
    fn registration_expired(&mut self, namespace: u16, type_name: &[u8]) {
        let _ = (namespace, type_name);
    }
    /// Reports the end of the walk that [`crate::Shard::forget_namespaces`] began under this number: the shard has
    /// forgotten the idle keys and the full buckets of its namespaces. The namespaces `in_use` still have other keys or
    /// buckets, so they stay.
    fn namespaces_forgotten(&mut self, number: u64, in_use: Vec<u16>) {
        let _ = (number, in_use);
    }
    /// Delays an effect until everything that this turn recorded so far is durable.
    fn when_durable(&mut self, then: WhenDurable) {
        let _ = then;
    }
    /// Asks the cluster to raise the fence counters of grants. Called only if [`crate::Shard::set_quorum_state`]
    /// reported a cluster.
    fn ask_quorum(&mut self, question: QuorumQuestion) {
        let _ = question;
    }
}

/// Kind of an act on the claim of another identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAct {
    /// The claim was ended.
    Release,
    /// The end of the lease was moved.
    Extend {
        /// Length of the lease from now on.
        lease_ms: u32,
    },
    /// The registration was renewed or changed, and belongs to the acting identity from now on.
    Register {
        /// Length of the lease from now on; 0 if the request set an end in the past, as lazy namespaces allow.
        lease_ms: u64,
    },
    /// The request id of the claim was repeated. The claim belongs to the acting identity from now on.
    TakeOver,
}

/// An act on a claim that another identity acquired.
#[derive(Debug)]
pub struct ActOnOther<'a> {
    /// Kind of the act.
    pub act: ClaimAct,
    /// Lane that acts.
    pub lane: LaneAddress,
    /// Identity of the lane that acts.
    pub by: &'a Arc<str>,
    /// Namespace of the claim.
    pub namespace: u16,
    /// Id of the claim.
    pub id: ClaimId,
    /// Key of the claim. For a set of paths, its first path that no other path of the set covers. Of this path, only as
    /// many whole segments as the maximum length of a key allows.
    pub key: Vec<u8>,
    /// Owner of the claim.
    pub owner: &'a [u8],
}
