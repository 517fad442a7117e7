//! What became of a question that was not answered as asked.
//!
//! etcd says little by codes, so its texts count. What is not known here may have been applied.

use super::channel::Lost;
use super::cluster::ClusterError;
use std::error::Error;
use tonic::{Code, Status};

/// What the answer says that a member gave, or that the connection to it gave in its place.
pub(super) fn verdict(status: &Status, reason: String) -> ClusterError {
    let says = |text: &str| status.message().contains(text);
    match status.code() {
        _ if lost(status).is_some_and(|lost| !lost.was_sent) => ClusterError::NotSent { reason },
        // What a member refuses before it looks at the question: it knows no leader (we ask to be told, see `cluster`), it has
        // no vote, or it has only begun.
        Code::Unavailable if says("no leader") || says("for learner") || says("not capable") => {
            ClusterError::NotSent { reason }
        }
        // The member is behind with what was agreed on before, and proposes nothing.
        Code::ResourceExhausted if says("too many requests") => ClusterError::NotSent { reason },
        // What raft says that took no proposal, neither to keep nor to hand to its leader.
        Code::Unknown if says("raft proposal dropped") => ClusterError::NotSent { reason },
        // The rights of the user were not even looked at.
        _ if is_stale_token(status) => ClusterError::NotSent { reason },
        // Looked at before it is applied, in the same order by every member: no space, a key in two places of one transaction,
        // no permission, or keys that members disagree on. They say it again until somebody mends it.
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
        // "request timed out", "server stopped": it was proposed, and may be applied yet. "leader changed" is said to readers
        // only, as far as we know. A connection that was lost may have carried the question.
        _ => ClusterError::Unknown { reason },
    }
}

/// The token has expired, its member has forgotten it, or rights have changed since. A new one helps.
pub(super) fn is_stale_token(status: &Status) -> bool {
    let texts = ["invalid auth token", "revision of auth store is old", "revision in header is old"];
    texts.iter().any(|text| status.message().contains(text))
}

/// Users are asked for who they are.
pub(super) fn is_missing_token(status: &Status) -> bool {
    status.code() == Code::InvalidArgument && status.message().contains("user name is empty")
}

/// Why there is no answer, if that is so.
pub(super) fn lost(status: &Status) -> Option<&Lost> {
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
