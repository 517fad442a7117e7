//! Acts of operators that lanes of this worker request, for the audit log.
//!
//! An event of the audit log begins when the worker reads the request of an operator. The lane (the server's state of
//! the connection) then names the operator. The event ends with the response, because the response contains the result.
//! So the log also shows requests that a shard refused, and requests of clients that disconnected before the response.
//! A request that is refused before its event begins, such as one above a limit, is in the log only if the client
//! lacked a right.

use super::State;
use super::answer::put_refusal;
use super::by_ticket::ByTicket;
use super::lane::{Client, Lane, Stage};
use crate::audit::{Act, AuditEvent, Caller, Detail, Outcome};
use crate::node::Node;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use waymaker_engine::{Answer, LaneSlot, Refusal, Ticket};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{ErrorCode, ErrorDetail, Frame, Request, Response, next_frame};

/// Events of one worker.
#[derive(Debug, Default)]
pub(crate) struct Acts {
    /// Events whose requests have no response yet.
    begun: ByTicket<AuditEvent>,
    ended: VecDeque<AuditEvent>,
}

impl Acts {
    /// Returns the next event that has ended, oldest first.
    pub(crate) fn poll(&mut self) -> Option<AuditEvent> {
        self.ended.pop_front()
    }

    /// Returns whether every event has ended.
    pub(super) fn is_idle(&self) -> bool {
        self.begun.is_empty()
    }

    pub(super) fn begin(&mut self, ticket: Ticket, event: AuditEvent) {
        self.begun.insert(ticket, event);
    }

    /// Adds an event that waits for no response.
    pub(crate) fn note(&mut self, event: AuditEvent) {
        self.ended.push_back(event);
    }

    /// Adds the namespace and the key to the event that ended last, which is a refusal.
    pub(super) fn complete_newest(&mut self, namespace: Option<Box<[u8]>>, key: Option<Box<[u8]>>) {
        if let Some(event) = self.ended.back_mut() {
            (event.namespace, event.key) = (namespace, key);
        }
    }

    /// Ends the event of a request with its response.
    pub(super) fn end(&mut self, ticket: Ticket, answer: &Answer) {
        let Some(mut event) = self.begun.take(ticket) else { return };
        match answer {
            Answer::Refused(Refusal::Unknown) => event.outcome = Outcome::Unknown,
            Answer::Refused(refusal) => event.outcome = outcome_of(refusal),
            Answer::ForceReleased(released) => {
                event.key = Some(released.key.as_slice().into());
                event.details = vec![
                    ("fence", Detail::Number(released.fence.get())),
                    ("holder", Detail::Bytes((*released.owner).into())),
                    ("waiting", Detail::Flag(released.was_waiting)),
                ];
            }
            Answer::Frozen { changed, .. } => event.details.push(("changed", Detail::Flag(*changed))),
            Answer::CapacitySet { previous } => event.details.push(("previous", Detail::Number(*previous))),
            _ => {}
        }
        self.ended.push_back(event);
    }
}

impl State {
    /// Begins an audit event if the request is a well-formed act of an operator, such as a forced release or a freeze.
    /// Every such request gets a response later, which ends the event.
    #[inline]
    pub(super) fn note_act(&mut self, node: &Node, slot: LaneSlot, frame: Frame<'_>) {
        if is_act(frame.opcode()) {
            self.begin_act(node, slot, frame);
        }
    }

    #[cold]
    fn begin_act(&mut self, node: &Node, slot: LaneSlot, frame: Frame<'_>) {
        let lane = &self.lanes[slot];
        let event = |act| AuditEvent::new(act, caller(lane));
        let event = match Request::decode(frame) {
            Ok(Request::ForceRelease(release)) => AuditEvent {
                id: Some(release.id),
                reason: Some(release.reason.into()),
                ..event(Act::ForceRelease)
            },
            Ok(Request::Freeze(freeze)) => {
                let act = if freeze.thaw { Act::Thaw } else { Act::Freeze };
                AuditEvent { key: Some(freeze.prefix.into()), reason: reason_of(freeze.reason), ..event(act) }
            }
            Ok(Request::SetCapacity(set)) => AuditEvent {
                key: Some(set.name.into()),
                reason: reason_of(set.reason),
                details: vec![("capacity", Detail::Number(set.capacity))],
                ..event(Act::SetCapacity)
            },
            Ok(Request::RemoveNamespace(remove)) => {
                AuditEvent { namespace: Some(remove.name.into()), ..event(Act::RemoveNamespace) }
            }
            // The request is refused as malformed.
            _ => return,
        };
        let namespace = event.namespace.or_else(|| {
            let namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            namespaces.name_of(lane.namespace).map(Box::from)
        });
        let ticket = Ticket { lane: lane.address, number: frame.number() };
        self.followed.begin_act(ticket, AuditEvent { namespace, ..event });
    }

    /// Adds the namespace and the key to the event of a denied request, which must be the newest event.
    #[cold]
    pub(super) fn describe_denied(&mut self, node: &Node, slot: LaneSlot, key: Option<&[u8]>) {
        let namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        let namespace = namespaces.name_of(self.lanes[slot].namespace).map(Box::from);
        self.followed.acts.complete_newest(namespace, key.map(Box::from));
    }

    /// Adds an event to the audit log if `code` says that a client was refused because of its credentials or its
    /// rights. Refusals with another code add no event here.
    #[cold]
    pub(super) fn note_refused(&mut self, slot: LaneSlot, code: ErrorCode, message: &str) {
        if code == ErrorCode::Unauthorized {
            let lane = &self.lanes[slot];
            let act = if lane.stage == Stage::Hello { Act::Authenticate } else { Act::Deny };
            let event = AuditEvent::refused(act, caller(lane), code.name(), message.to_owned());
            self.followed.acts.note(event);
        }
    }
}

/// Returns the reason of a request for which a reason is optional.
fn reason_of(reason: &[u8]) -> Option<Box<[u8]>> {
    (!reason.is_empty()).then(|| reason.into())
}

/// Returns whether requests with this opcode are acts of operators.
pub(super) const fn is_act(opcode: u8) -> bool {
    matches!(opcode, opcode::FORCE_RELEASE | opcode::FREEZE | opcode::SET_CAPACITY | opcode::REMOVE_NAMESPACE)
}

/// Returns the client of a lane as the caller that an audit event names.
pub(super) fn caller(lane: &Lane) -> Caller {
    let Client { address, front_end, .. } = &lane.client;
    Caller {
        identity: lane.identity().map(|identity| Arc::clone(&identity.name)),
        address: address.clone(),
        front_end: *front_end,
        owner: Some(Arc::clone(&lane.owner)),
    }
}

/// Returns the name of the error code in the response for a refusal; `None` if that response cannot be decoded, which
/// would be a defect.
pub(super) fn error_code_of(refusal: &Refusal) -> Option<&'static str> {
    match outcome_of(refusal) {
        Outcome::Refused { code, .. } => Some(code),
        _ => None,
    }
}

/// Returns the outcome of a refused request for its audit event: the name of the error code and the text of the
/// response. A response about contention has no text, so the name of the code stands for it.
fn outcome_of(refusal: &Refusal) -> Outcome {
    let mut bytes = Vec::new();
    put_refusal(&mut bytes, 0, refusal);
    let response = next_frame(&bytes, FRAME_LEN_MAX).ok().flatten().map(Response::decode);
    let Some(Ok(Response::Error(error))) = response else { return Outcome::Unknown };
    let message = match error.detail {
        ErrorDetail::Text { message, .. } => String::from_utf8_lossy(message).into_owned(),
        ErrorDetail::Contention(_) => error.code.name().to_owned(),
    };
    Outcome::Refused { code: error.code.name(), message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Worker;
    use crate::worker::test_node::test_node;
    use waymaker_engine::{LaneAddress, Time};

    #[test]
    fn a_refusal_of_credentials_or_rights_is_an_event_and_another_is_not() {
        let now = Time::from_millis(1_000);
        let node = test_node(1, now);
        let mut worker = Worker::new(Arc::clone(&node), 0, now);
        let key = worker.handle_open(b"peer", now);
        worker.state.refuse(key.slot, 1, ErrorCode::Unauthorized, 0, "credentials", "unknown token");
        worker.state.lanes[key.slot].stage = Stage::Open;
        worker.state.refuse(key.slot, 2, ErrorCode::Unauthorized, 0, "freeze", "no right");
        worker.state.refuse(key.slot, 3, ErrorCode::BadInput, 0, "key", "too long");
        let events: Vec<_> = std::iter::from_fn(|| worker.poll_audit()).collect();
        let expected =
            [(Act::Authenticate, "unknown token"), (Act::Deny, "no right")].map(|(act, message)| {
                let caller = Caller { owner: Some(Arc::from(&b"peer"[..])), ..Caller::default() };
                AuditEvent::refused(act, caller, "unauthorized", message.to_owned())
            });
        assert_eq!(events, expected);
    }

    /// Both requests are from one client and have the same number.
    #[test]
    fn requests_with_one_number_have_an_event_each() {
        let mut acts = Acts::default();
        let ticket = Ticket { lane: LaneAddress::default(), number: 7 };
        for key in [b"a", b"b"] {
            let event = AuditEvent::new(Act::Freeze, Caller::default());
            acts.begin(ticket, AuditEvent { key: Some(Box::from(&key[..])), ..event });
        }
        acts.end(Ticket { number: 8, ..ticket }, &Answer::NamespaceRemoved);
        assert_eq!(acts.poll(), None, "another request");
        acts.end(ticket, &Answer::Frozen { changed: true, frozen_count: 1 });
        acts.end(ticket, &Answer::Refused(Refusal::NotFound));
        acts.end(ticket, &Answer::NamespaceRemoved);
        let first = acts.poll().unwrap();
        assert_eq!((first.key.as_deref(), first.outcome), (Some(&b"a"[..]), Outcome::Done));
        assert_eq!(first.details, [("changed", Detail::Flag(true))]);
        let second = acts.poll().unwrap();
        assert_eq!(second.key.as_deref(), Some(&b"b"[..]));
        assert!(matches!(second.outcome, Outcome::Refused { code: "not_found", .. }), "{second:?}");
        assert_eq!(acts.poll(), None);
    }
}
