//! All request messages of the contracts.

use prost::Message;
use waymaker_proto::{locket, v1, waymaker};

/// Declares the table of request messages.
macro_rules! messages {
    ($($message:ty),+ $(,)?) => {
        const CHECKS: &[fn(&[u8])] = &[$(check_one::<$message>),+];
    };
}

messages![
    waymaker::LockRequest,
    waymaker::UnLockRequest,
    waymaker::ExtendLeaseRequest,
    waymaker::LeaseStatusRequest,
    waymaker::MultiLockRequest,
    waymaker::ListAcquiredLocksRequest,
    locket::LockRequest,
    locket::ReleaseRequest,
    locket::FetchRequest,
    locket::FetchAllRequest,
    v1::ReleaseRequest,
    v1::ExtendRequest,
    v1::StatusRequest,
    v1::VerifyRequest,
    v1::WatchRequest,
    v1::ThrottleRequest,
    v1::AcquireKeysRequest,
    v1::ListRequest,
    v1::InspectRequest,
    v1::ForceReleaseRequest,
    v1::FreezeRequest,
    v1::ThawRequest,
    v1::ListFrozenRequest,
    v1::RemoveNamespaceRequest,
    v1::ListNamespacesRequest,
    v1::AcquireLockRequest,
    v1::AcquireAnyLockRequest,
    v1::HeartbeatLockRequest,
    v1::ReleaseLockRequest,
    v1::GetCurrentLockRequest,
    v1::RegisterRequest,
    v1::UnregisterRequest,
    v1::LookUpRequest,
    v1::ListEntriesRequest,
    v1::AcquirePermitsRequest,
    v1::DescribeRequest,
    v1::SetCapacityRequest,
    v1::RemoveRequest,
    v1::AcquirePathsRequest,
];

/// Decodes one of the messages, and checks that it survives being encoded.
pub(crate) fn check(index: usize, bytes: &[u8]) {
    CHECKS[index % CHECKS.len()](bytes);
}

fn check_one<M: Message + Default>(bytes: &[u8]) {
    if let Ok(message) = M::decode(bytes) {
        let encoded = message.encode_to_vec();
        assert_eq!(encoded.len(), message.encoded_len());
        let again = M::decode(&*encoded).expect("an encoded message decodes");
        // A number that is not a number differs from itself, so the bytes are compared.
        assert_eq!(again.encode_to_vec(), encoded);
    }
}
