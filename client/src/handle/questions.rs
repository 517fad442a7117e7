//! Requests about the keys, claims and pools of the connection's namespace, and about the whole server.

use waymaker_protocol as wire;
use waymaker_protocol::{LockId, Request, Response};

use super::Handle;
use crate::error::Result;
use crate::key::Key;
use crate::request::need::Need;
use crate::snapshot::{
    ClaimStatus, FreezeOutcome, HeldLock, KeyStatus, NamespaceStatus, PoolSummary, ReleasedClaim,
    ServerStatus, Verification, WaitingClaim,
};

impl Handle {
    pub(crate) async fn inspect(&self, key: Key) -> Result<KeyStatus> {
        let encode = move |number, out: &mut Vec<u8>| {
            Request::Inspect(wire::Inspect { key: &key }).encode(number, out);
        };
        let read = |response: Response<'_>| match response {
            Response::Inspected(inspected) => Some(inspected.into()),
            _ => None,
        };
        self.ask(encode, read).await
    }

    pub(crate) async fn status(&self, id: LockId) -> Result<ClaimStatus> {
        let encode = move |number, out: &mut Vec<u8>| {
            Request::Status(wire::Status { id, key: None }).encode(number, out);
        };
        let read = |response: Response<'_>| match response {
            Response::Status(status) => Some(status.into()),
            _ => None,
        };
        self.ask(encode, read).await
    }

    pub(crate) async fn list(&self, prefix: Key) -> Result<Vec<HeldLock>> {
        self.list_claims(prefix, false).await
    }

    pub(crate) async fn list_waiting(&self, prefix: Key) -> Result<Vec<WaitingClaim>> {
        self.list_claims(prefix, true).await
    }

    async fn list_claims<T>(&self, prefix: Key, waiting: bool) -> Result<Vec<T>>
    where
        T: for<'a> From<&'a wire::ListedLock<'a>> + Send + 'static,
    {
        let need = waiting.then_some(Need::LIST_WAITING);
        let encode = move |cursor, number, out: &mut Vec<u8>| {
            Request::List(wire::List { cursor, count_max: 0, prefix: &prefix, waiting }).encode(number, out);
        };
        let read = |response: Response<'_>| match response {
            Response::Listed(listed) => Some((listed.next, listed.locks.iter().map(Into::into).collect())),
            _ => None,
        };
        self.ask_all_with(need, encode, read).await
    }

    pub(crate) async fn verify(&self, key: Key, fence: u64) -> Result<Verification> {
        let encode = move |number, out: &mut Vec<u8>| {
            Request::Verify(wire::Verify { fence, key: &key }).encode(number, out);
        };
        let read = |response: Response<'_>| match response {
            Response::Verified(verified) => Some(verified.into()),
            _ => None,
        };
        self.ask(encode, read).await
    }

    pub(crate) async fn force_release(&self, id: LockId, reason: Key) -> Result<ReleasedClaim> {
        let encode = move |number, out: &mut Vec<u8>| {
            Request::ForceRelease(wire::ForceRelease { id, reason: &reason }).encode(number, out);
        };
        let read = |response: Response<'_>| match response {
            Response::ForceReleased(released) => Some(released.into()),
            _ => None,
        };
        self.change(None, encode, read).await
    }

    pub(crate) async fn freeze(&self, prefix: Key, thaw: bool, reason: Key) -> Result<FreezeOutcome> {
        let need = (!reason.is_empty()).then_some(Need::REASON);
        let encode = move |number, out: &mut Vec<u8>| {
            Request::Freeze(wire::Freeze { prefix: &prefix, thaw, reason: &reason }).encode(number, out);
        };
        let read = |response: Response<'_>| match response {
            Response::Frozen(frozen) => Some(frozen.into()),
            _ => None,
        };
        self.change(need, encode, read).await
    }

    pub(crate) async fn pools(&self, prefix: Key) -> Result<Vec<PoolSummary>> {
        let encode = move |cursor, number, out: &mut Vec<u8>| {
            Request::ListPools(wire::ListPools { cursor, count_max: 0, prefix: &prefix }).encode(number, out);
        };
        let read = |response: Response<'_>| match response {
            Response::PoolsListed(listed) => {
                Some((listed.next, listed.pools.iter().map(Into::into).collect()))
            }
            _ => None,
        };
        self.ask_all(encode, read).await
    }

    pub(crate) async fn remove_namespace(&self, name: Key) -> Result<()> {
        let encode = move |number, out: &mut Vec<u8>| {
            Request::RemoveNamespace(wire::RemoveNamespace { name: &name }).encode(number, out);
        };
        let read = |response: Response<'_>| match response {
            Response::NamespaceRemoved(_) => Some(()),
            _ => None,
        };
        self.change(None, encode, read).await
    }

    pub(crate) async fn server_status(&self) -> Result<ServerStatus> {
        let encode = |number, out: &mut Vec<u8>| {
            Request::ServerStatus(wire::ServerStatus).encode(number, out);
        };
        let read = |response: Response<'_>| match response {
            Response::ServerStatus(status) => Some(status.into()),
            _ => None,
        };
        self.ask(encode, read).await
    }

    pub(crate) async fn namespaces(&self) -> Result<Vec<NamespaceStatus>> {
        let encode = |cursor, number, out: &mut Vec<u8>| {
            Request::Namespaces(wire::Namespaces { cursor, count_max: 0 }).encode(number, out);
        };
        let read = |response: Response<'_>| match response {
            Response::NamespacesListed(listed) => {
                Some((listed.next, listed.namespaces.iter().map(Into::into).collect()))
            }
            _ => None,
        };
        self.ask_all(encode, read).await
    }
}
