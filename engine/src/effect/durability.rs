//! Grants, responses and events that wait for the log or for the cluster.

use super::{Answer, Event, KeyGrant};
use crate::handle::ClaimIx;
use crate::ids::{ClaimId, CounterName, Fence, LaneAddress, Ticket};
use crate::time::Time;

/// An effect that waits until everything that the turn recorded before it is durable, or until the log has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhenDurable {
    /// Send the response to a request.
    Answer(Ticket, Answer),
    /// Send an event to a lane.
    Tell(LaneAddress, Event),
    /// Send the response to an acquire that waited, as [`Effects::answer_waiter`](super::Effects::answer_waiter) does.
    AnswerWaiter(Ticket, Answer),
    /// End a reservation with [`Shard::end_reservation`](crate::Shard::end_reservation). The hold of the reserved claim
    /// begins if its fence was confirmed.
    Begin(Reserved),
    /// End the reservations of all keys of a multi-key claim together, with
    /// [`multi_key::end_reservation`](crate::multi_key::end_reservation).
    BeginMultiKey(Box<ReservedMultiKey>),
}

/// Grants that wait until a cluster has raised their fence counters. The grants of a multi-key claim begin together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumQuestion {
    /// Time at which the grants were reserved.
    pub at: Time,
    /// The grants: one, or one for each key of a multi-key claim. No grant of a multi-key claim begins if the client
    /// has given up the first one or is disconnected.
    pub members: Box<[QuorumMember]>,
    /// Response to the acquire of a multi-key claim; `None` for any other claim.
    pub multi_key: Option<Box<[KeyGrant]>>,
}

impl QuorumQuestion {
    /// Returns the effects that end the reservations of the grants. The caller calls this when the cluster has raised
    /// the counters or has failed to. If it has raised them and the server has a log, the effects must still wait for
    /// the log.
    pub fn begin(self) -> impl Iterator<Item = WhenDurable> {
        let mut members: Vec<Reserved> = self.members.into_iter().map(|member| member.reserved).collect();
        let multi_key = self.multi_key.map(|grants| {
            let members = std::mem::take(&mut members).into();
            WhenDurable::BeginMultiKey(Box::new(ReservedMultiKey { members, grants }))
        });
        members.into_iter().map(WhenDurable::Begin).chain(multi_key)
    }
}

/// One grant that waits for a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumMember {
    /// The grant, with the fence that its shard reserved for it, which is the lowest that it can get. If the cluster's
    /// counter has reached this fence already, the grant gets a fence above the counter.
    pub reserved: Reserved,
    /// Id of the claim. The records of the claim in the log, if there are any, contain this id.
    pub id: ClaimId,
    /// Counter that the cluster must raise for the grant. `None` for a key of a multi-key claim that has a lower scope:
    /// the cluster raises no counter for it, but its hold begins together with the others.
    pub counter: Option<CounterName>,
}

/// Outcome of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedEnd {
    /// The claim is held. Its lease runs from this time.
    Begins(Time),
    /// The log failed, so it is unknown whether the claim will be held.
    Unknown,
    /// The cluster did not confirm that it counted the grant, so the claim ends.
    NotCounted,
}

/// A claim that blocks other claims already, and is held once the log, the cluster of its counter, or both have
/// confirmed its fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Shard of the claim.
    pub shard: u16,
    /// Lane of the claim when it was reserved. A later acquire may have moved the claim to another lane, which then
    /// gets the response.
    pub lane: LaneAddress,
    /// Handle of the claim in the shard.
    pub slot: ClaimIx,
    /// Secret of the claim, which distinguishes it from other claims with the same handle.
    pub secret: u64,
    /// Fence of the grant.
    pub fence: Fence,
    /// Whether a cluster counts the grant.
    pub is_counted: bool,
    /// Time at which the fence was confirmed, if a later acquire with the same request id had taken the claim over
    /// before; otherwise [`Time::NEVER`]. The claim is then held only when the log record of the takeover is durable
    /// too. Its lease still runs from the time in this field: in the log, the lease also begins with the first record
    /// of the claim.
    pub since: Time,
}

/// All claims of a multi-key claim. Like a [`Reserved`] claim, they block other claims, but are not held yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedMultiKey {
    /// One claim for each key, in the order of the response. The first claim decides for all, because only that claim
    /// ends when the client gives up its request or disconnects. If that happens before the log or the cluster confirms
    /// the fences, no claim begins.
    pub members: Box<[Reserved]>,
    /// The response.
    pub grants: Box<[KeyGrant]>,
}

/// State of the cluster that keeps the counters of quorum scope, as a shard knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum QuorumState {
    /// The server has no cluster.
    #[default]
    Absent,
    /// The cluster is not known to be unavailable, so the shard asks it to count grants.
    Ready,
    /// The cluster does not respond, so the shard makes no grants of quorum scope.
    Unavailable,
}
