//! Acquires of keys, paths and permits: the single attempt, and the stream that follows a claim to its end.

use super::claims::times;
use super::connection::{Connection, OwnLane, Space};
use super::status;
use crate::driver::{Inlet, ReplyStream};
use crate::front::conversion::text;
use futures_core::Stream;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tonic::{Response as Answer, Status};
use waymaker_proto::v1;
use waymaker_proto::v1::acquire_response::Event as Told;
use waymaker_protocol::{
    AcquireOptions, AcquireTerms, Event, Granted, GrantedKeys, LockId, NamespaceKind, Response, RevokeReason,
    TraceParent,
};

/// Parameters that all forms of acquire share.
pub(super) struct AcquireParameters<'a> {
    pub(super) kind: NamespaceKind,
    pub(super) namespace: &'a str,
    pub(super) options: &'a v1::AcquireOptions,
    pub(super) max_wait_ms: u32,
    /// Key or pool name that a CANCEL of the claim must name: for a multi-key claim the smallest of its keys; empty for
    /// a set of paths.
    pub(super) cancel_key: &'a [u8],
    /// Fields of the granted hold that the grant of the worker does not contain, such as its key or its permits. They
    /// are empty for a multi-key acquire, whose grant names the key of each hold.
    pub(super) hold: v1::Hold,
}

/// Converts the options and the longest wait of a request to the terms of an acquire.
pub(super) fn wire_terms<'a>(
    kind: NamespaceKind,
    options: &'a v1::AcquireOptions,
    max_wait_ms: u32,
    traceparent: Option<&'a TraceParent>,
) -> Result<AcquireTerms<'a>, Status> {
    if kind != NamespaceKind::Flat && options.priority != 0 {
        return Err(status::bad_input("priority", 0, "must be 0: only locks on keys have priorities"));
    }
    let scope = u8::try_from(options.scope).map_err(|_| {
        status::bad_input("scope", 3, "unknown scope; use SCOPE_EPHEMERAL, SCOPE_LOCAL or SCOPE_QUORUM")
    })?;
    let given = |text: &'a String| (!text.is_empty()).then_some(text.as_bytes());
    Ok(AcquireTerms {
        lease_ms: options.lease_ms,
        wait_ms: max_wait_ms,
        session_lease: false,
        notify_queued: true,
        options: AcquireOptions {
            release_after_ms: options.release_after_ms,
            priority: (options.priority != 0).then_some(options.priority),
            scope: (scope != 0).then_some(scope),
            request_id: given(&options.request_id),
            owner: given(&options.owner),
            metadata: given(&options.metadata),
            traceparent: traceparent.map(TraceParent::as_bytes),
        },
    })
}

impl AcquireParameters<'_> {
    /// Acquires at once or fails. If the caller drops the future before it is ready, granted holds are released, unless
    /// another request took them over.
    pub(super) async fn attempt(
        self,
        connection: &Connection,
        encode: impl FnOnce(u32, &mut Vec<u8>),
    ) -> Result<Answer<v1::TryAcquireResponse>, Status> {
        if self.max_wait_ms != 0 {
            return Err(status::bad_input(
                "max_wait_ms",
                0,
                "must be 0: TryAcquire does not wait; use Acquire",
            ));
        }
        let space = connection.space(self.kind, self.namespace)?;
        let asked = space.claims.ask_for_holds(self.cancel_key, encode);
        let reply = asked.await.map_err(status::closed)?;
        let acquired = match reply.response() {
            Response::Granted(granted) => acquired(&self.hold, &granted),
            Response::GrantedKeys(granted) => acquired_keys(&granted),
            Response::Error(error) => return Err(status::of(&error)),
            _ => return Err(status::unexpected()),
        };
        Ok(Answer::new(v1::TryAcquireResponse { acquired: Some(acquired) }))
    }

    /// Requests the claim and returns the stream of its events.
    pub(super) fn follow(
        self,
        connection: &Connection,
        encode: impl FnOnce(u32, &mut Vec<u8>),
    ) -> Result<Answer<AcquireStream>, Status> {
        let lane = if self.options.release_after_ms.is_some() {
            Lane::Own(connection.own_lane(self.kind, self.namespace)?)
        } else {
            Lane::Shared(connection.space(self.kind, self.namespace)?)
        };
        let followed = lane.inlet().follow(self.cancel_key, encode);
        Ok(Answer::new(AcquireStream {
            followed,
            hold: self.hold,
            held: BTreeSet::new(),
            is_over: false,
            _lane: lane,
        }))
    }
}

/// Lane on which a claim is made.
#[derive(Debug)]
enum Lane {
    Shared(Arc<Space>),
    Own(OwnLane),
}

impl Lane {
    fn inlet(&self) -> &Inlet {
        match self {
            Self::Shared(space) => &space.claims,
            Self::Own(own) => &own.inlet,
        }
    }
}

/// Events of one acquire.
///
/// The stream is woken only by worker replies to its acquire and by the end of its lane. Dropping the stream cancels a
/// claim that still waits; a hold stays. But if the acquire set `release_after_ms`, the stream has its own lane, which
/// closes with the stream. The server then releases the hold after `release_after_ms`.
#[derive(Debug)]
pub(super) struct AcquireStream {
    followed: ReplyStream,
    hold: v1::Hold,
    /// Granted holds whose loss the stream has not reported.
    held: BTreeSet<LockId>,
    is_over: bool,
    _lane: Lane,
}

impl Stream for AcquireStream {
    type Item = Result<v1::AcquireResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let own = self.get_mut();
        while !own.is_over {
            let reply = match ready!(own.followed.poll_reply(context)) {
                Ok(reply) => reply,
                Err(closed) => {
                    own.is_over = true;
                    return Poll::Ready(Some(Err(status::closed(closed))));
                }
            };
            if let Some(told) = own.hear(&reply.response()) {
                return Poll::Ready(Some(told.map(|event| v1::AcquireResponse { event: Some(event) })));
            }
        }
        Poll::Ready(None)
    }
}

impl AcquireStream {
    fn hear(&mut self, response: &Response<'_>) -> Option<Result<Told, Status>> {
        Some(Ok(match response {
            Response::Event(Event::Queued { id, position, ticket }) => {
                Told::Queued(v1::Queued { id: id.to_string(), position: *position, ticket: *ticket })
            }
            Response::Granted(granted) => {
                self.held = BTreeSet::from([granted.id]);
                Told::Acquired(acquired(&self.hold, granted))
            }
            Response::GrantedKeys(granted) => {
                self.held = granted.keys.iter().map(|key| key.id).collect();
                Told::Acquired(acquired_keys(granted))
            }
            Response::Event(Event::LeaseMoved { id, remaining_ms, stamp_ms }) => {
                Told::LeaseMoved(v1::LeaseMoved {
                    id: id.to_string(),
                    remaining_ms: *remaining_ms,
                    lease_expires_at_ms: times(*stamp_ms, 0, *remaining_ms).1,
                    stamp_ms: *stamp_ms,
                })
            }
            Response::Event(Event::Expired { id }) => self.lost(*id, v1::LostReason::Expired, b""),
            Response::Event(Event::Revoked { id, reason, message }) => {
                let reason = match reason {
                    RevokeReason::ReleasedElsewhere => v1::LostReason::Released,
                    RevokeReason::ConnectionLost => v1::LostReason::Disconnected,
                    RevokeReason::Forced => v1::LostReason::Revoked,
                    RevokeReason::Other(_) => v1::LostReason::Unspecified,
                };
                self.lost(*id, reason, message)
            }
            Response::Event(Event::TakenUp { .. }) => {
                self.is_over = true;
                return Some(Err(status::taken_over()));
            }
            Response::Error(error) => {
                self.is_over = true;
                return Some(Err(status::of(error)));
            }
            _ => return None,
        }))
    }

    fn lost(&mut self, id: LockId, reason: v1::LostReason, message: &[u8]) -> Told {
        self.held.remove(&id);
        // A multi-key claim loses its holds one by one. The stream ends when none is left.
        self.is_over = self.held.is_empty();
        Told::Lost(v1::Lost { id: id.to_string(), reason: reason.into(), message: text(message) })
    }
}

/// Describes a single granted hold. The request supplies the fields that the grant does not contain.
fn acquired(hold: &v1::Hold, granted: &Granted) -> v1::Acquired {
    let (acquired_at_ms, lease_expires_at_ms) = times(granted.stamp_ms, 0, granted.remaining_ms);
    let hold = v1::Hold {
        id: granted.id.to_string(),
        fence: granted.fence,
        remaining_ms: granted.remaining_ms,
        lease_expires_at_ms,
        // If an earlier request created the hold, the grant does not contain the time at which the hold began. So
        // report 0.
        acquired_at_ms: if granted.repeated { 0 } else { acquired_at_ms },
        ..hold.clone()
    };
    v1::Acquired {
        holds: vec![hold],
        clamped: granted.clamped,
        waited: granted.waited,
        already_held: granted.repeated,
        stamp_ms: granted.stamp_ms,
    }
}

fn acquired_keys(granted: &GrantedKeys<'_>) -> v1::Acquired {
    let hold = |key: &waymaker_protocol::GrantedKey<'_>| {
        let (acquired_at_ms, lease_expires_at_ms) = times(granted.stamp_ms, 0, key.remaining_ms);
        v1::Hold {
            id: key.id.to_string(),
            key: text(key.key),
            shared: key.shared,
            fence: key.fence,
            remaining_ms: key.remaining_ms,
            lease_expires_at_ms,
            acquired_at_ms: if granted.repeated { 0 } else { acquired_at_ms },
            ..v1::Hold::default()
        }
    };
    v1::Acquired {
        holds: granted.keys.iter().map(hold).collect(),
        clamped: granted.clamped,
        waited: granted.waited,
        already_held: granted.repeated,
        stamp_ms: granted.stamp_ms,
    }
}
