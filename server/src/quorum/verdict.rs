//! Classification of failed requests to etcd.
//!
//! etcd has few error codes, so this module also compares the texts of errors. A request with an unknown error may have
//! been applied.

use super::cluster::ClusterError;
use crate::peer::LostConnection;
use std::error::Error;
use tonic::{Code, Status};

/// Returns the outcome of a request that failed with this status. The status comes from the member or from the
/// connection.
pub(super) fn verdict(status: &Status, reason: String) -> ClusterError {
    let says = |text: &str| status.message().contains(text);
    match status.code() {
        _ if lost(status).is_some_and(|lost| !lost.was_sent) => ClusterError::NotSent { reason },
        // A member that knows no leader, is a learner, or has just started refuses every request before it reads it. So
        // the request was certainly not applied, and the caller may send it again.
        Code::Unavailable if says("no leader") || says("for learner") || says("not capable") => {
            ClusterError::NotSent { reason }
        }
        // The member has too many unapplied proposals and does not propose this one.
        Code::ResourceExhausted if says("too many requests") => ClusterError::NotSent { reason },
        // The Raft library of the member dropped the proposal: the member neither stored it nor forwarded it to the
        // leader.
        Code::Unknown if says("raft proposal dropped") => ClusterError::NotSent { reason },
        // The member rejected the authentication token before it checked the rights of the user. So the request was
        // certainly not applied, and the caller may send it again with a new token.
        _ if is_stale_token(status) => ClusterError::NotSent { reason },
        // All members apply the same requests in the same order and check for these errors first, so the request has
        // changed nothing on any member. Examples are no space, a repeated key, missing permission, and a corrupt
        // cluster. The same request fails again until an operator corrects the cause.
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss
        | Code::Unauthenticated => ClusterError::Refused { reason },
        Code::ResourceExhausted if says("space exceeded") || says("received message larger") => {
            ClusterError::Refused { reason }
        }
        // "request timed out" and "server stopped": the member proposed the request, so it may still be applied.
        // "leader changed" seems to go to readers only. A lost connection may have carried the request.
        _ => ClusterError::Unknown { reason },
    }
}

/// Returns whether a new token helps. The token has expired, its member has forgotten it, or rights have changed since
/// the token was issued.
pub(super) fn is_stale_token(status: &Status) -> bool {
    let texts = ["invalid auth token", "revision of auth store is old", "revision in header is old"];
    texts.iter().any(|text| status.message().contains(text))
}

/// Returns whether the member requires a token and the request had none.
pub(super) fn is_missing_token(status: &Status) -> bool {
    status.code() == Code::InvalidArgument && status.message().contains("user name is empty")
}

/// Returns the reason for which the connection gave no response, if that happened.
pub(super) fn lost(status: &Status) -> Option<&LostConnection> {
    status.source().and_then(|source| source.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certainly_unproposed_requests_count_as_not_sent() {
        for (code, text, expected) in [
            (Code::Unavailable, "etcdserver: no leader", "not sent"),
            (Code::Unavailable, "etcdserver: rpc not supported for learner", "not sent"),
            (Code::Unavailable, "etcdserver: not capable", "not sent"),
            (Code::ResourceExhausted, "etcdserver: too many requests", "not sent"),
            (Code::Unknown, "raft proposal dropped", "not sent"),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "not sent"),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", "not sent"),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                "refused",
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", "refused"),
            (Code::InvalidArgument, "etcdserver: too many operations in txn request", "refused"),
            (Code::InvalidArgument, "etcdserver: request is too large", "refused"),
            (Code::PermissionDenied, "etcdserver: permission denied", "refused"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "refused"),
            (Code::DataLoss, "etcdserver: corrupt cluster", "refused"),
            (Code::Unavailable, "etcdserver: leader changed", "unknown"),
            (Code::Unavailable, "etcdserver: server stopped", "unknown"),
            (Code::Unavailable, "etcdserver: request timed out", "unknown"),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
                "unknown",
            ),
            (Code::Unavailable, "etcdserver: request timed out, possibly due to connection lost", "unknown"),
            (Code::ResourceExhausted, "grpc: trying to send message larger than max", "unknown"),
            (Code::DeadlineExceeded, "context deadline exceeded", "unknown"),
            (Code::Cancelled, "context canceled", "unknown"),
            (Code::Internal, "stream terminated", "unknown"),
            (Code::Unknown, "anything", "unknown"),
        ] {
            let found = match verdict(&Status::new(code, text), text.to_owned()) {
                ClusterError::NotSent { .. } => "not sent",
                ClusterError::Unknown { .. } => "unknown",
                ClusterError::Refused { .. } => "refused",
                ClusterError::Unauthenticated { .. } => "unauthenticated",
            };
            assert_eq!(found, expected, "{code:?} {text}");
        }
    }
}
