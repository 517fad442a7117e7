//! Worker lanes of one caller on a gRPC connection.

use super::status;
use crate::driver::{Inlet, Reply};
use crate::front::FrontCaller;
use crate::limits::{GRPC_NAMESPACES_MAX, GRPC_OWN_LANES_MAX};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tonic::Status;
use waymaker_access::Identity;
use waymaker_engine::{Access, Rights};
use waymaker_protocol::{NamespaceKind, Request, Response};

/// Lanes of one caller on a gRPC connection, by namespace. All services of this caller share them. A lane is opened at
/// its first use. It closes with these services, or if the worker closes it; the next use then opens a new one.
#[derive(Clone, Debug)]
pub(super) struct Connection(Arc<Lanes>);

/// Lanes by namespace name, each with the kind under which it was opened.
type Spaces = BTreeMap<Box<[u8]>, (NamespaceKind, Arc<Space>)>;

#[derive(Debug)]
struct Lanes {
    /// Caller of all requests on these lanes. Its address is recorded as the owner of operator actions.
    caller: FrontCaller,
    spaces: Mutex<Spaces>,
    own_count: AtomicUsize,
}

/// Lanes of a caller in one namespace.
///
/// Claims are made on one lane, and all other requests on the other. The worker reports the release of a hold only if
/// another lane than the claim's lane requested it. With two lanes, the stream of a claim hears even of releases by the
/// same client.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) claims: Inlet,
    pub(super) questions: Inlet,
}

impl Space {
    /// Returns whether the worker has closed one of the lanes.
    fn is_closed(&self) -> bool {
        self.claims.is_closed() || self.questions.is_closed()
    }
}

/// Lane of a single stream. When the stream is dropped, the lane closes: the connection of its claim counts as lost,
/// and its watch ends.
#[derive(Debug)]
pub(super) struct OwnLane {
    pub(super) inlet: Inlet,
    lanes: Arc<Lanes>,
}

impl Drop for OwnLane {
    fn drop(&mut self) {
        self.lanes.own_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the namespace that an empty name stands for.
fn default_namespace(kind: NamespaceKind) -> &'static str {
    match kind {
        NamespaceKind::Flat => "default",
        NamespaceKind::Tree => "tree/default",
        NamespaceKind::Registry => "registry/default",
        NamespaceKind::Lazy => "lazy/clever/default",
        NamespaceKind::Pool => "sem/default",
        NamespaceKind::Limit => "limit/default",
    }
}

impl Connection {
    /// Returns the lanes of a caller; none is open yet.
    pub(super) fn new(caller: FrontCaller) -> Self {
        let (spaces, own_count) = (Mutex::default(), AtomicUsize::new(0));
        Self(Arc::new(Lanes { caller, spaces, own_count }))
    }

    /// Returns the identity of the caller; `None` if the server requires none.
    pub(super) fn identity(&self) -> Option<&Arc<Identity>> {
        self.0.caller.identity.as_ref()
    }

    /// Returns the rights of the client in a namespace; `None` means all rights.
    pub(super) fn access(&self, namespace: &str, kind: NamespaceKind) -> Option<Access> {
        self.0.caller.access(namespace.as_bytes(), kind)
    }

    /// Rejects a client unless it has this right for at least one key of a namespace. The namespace need not exist.
    pub(super) fn check_right(&self, namespace: &str, right: Rights) -> Result<(), Status> {
        let checked = self.0.caller.check_right(namespace.as_bytes(), right);
        checked.map_err(|message| status::unauthorized(right.name(), &message))
    }

    /// Returns the lanes in a namespace of this kind; opens them if needed.
    pub(super) fn space(&self, kind: NamespaceKind, namespace: &str) -> Result<Arc<Space>, Status> {
        let name = named(kind, namespace);
        let mut spaces = self.0.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        match spaces.get(name.as_bytes()) {
            // If this name is open under another kind, open new lanes and let the worker refuse them.
            Some((known, space)) if *known == kind && !space.is_closed() => return Ok(Arc::clone(space)),
            None if spaces.len() >= GRPC_NAMESPACES_MAX => {
                let message = format!(
                    "the connection uses {GRPC_NAMESPACES_MAX} namespaces, the maximum; use another connection"
                );
                return Err(status::overloaded("namespaces per connection", GRPC_NAMESPACES_MAX, &message));
            }
            _ => {}
        }
        // A client may repeat its acquire on another connection. The worker finds the claim of the first acquire by the
        // request id, but only if the owner is the same. So the lane for claims has an empty owner instead of the
        // address of the client.
        let claims = self.0.open(kind, name, b"")?;
        let space = Arc::new(Space {
            claims,
            questions: self.0.open(
                kind,
                name,
                self.0.caller.address.as_deref().unwrap_or_default().as_bytes(),
            )?,
        });
        spaces.insert(name.as_bytes().into(), (kind, Arc::clone(&space)));
        Ok(space)
    }

    /// Opens a lane in a namespace of this kind for a single stream.
    pub(super) fn own_lane(&self, kind: NamespaceKind, namespace: &str) -> Result<OwnLane, Status> {
        if self.0.own_count.load(Ordering::Relaxed) >= GRPC_OWN_LANES_MAX {
            let limited = "watches and acquires with release_after_ms";
            let message = format!(
                "the connection has {GRPC_OWN_LANES_MAX} {limited}, the maximum; use another connection"
            );
            return Err(status::overloaded(limited, GRPC_OWN_LANES_MAX, &message));
        }
        let inlet = self.0.open(kind, named(kind, namespace), b"")?;
        self.0.own_count.fetch_add(1, Ordering::Relaxed);
        Ok(OwnLane { inlet, lanes: Arc::clone(&self.0) })
    }

    /// Sends a request on the `questions` lane in the namespace with this kind and name, and reads the expected
    /// response. Errors of the worker become gRPC statuses.
    pub(super) async fn ask<T>(
        &self,
        kind: NamespaceKind,
        namespace: &str,
        request: Request<'_>,
        read: impl FnOnce(Response<'_>) -> Option<T>,
    ) -> Result<T, Status> {
        let reply = self.ask_whole(kind, namespace, request).await?;
        match reply.response() {
            Response::Error(error) => Err(status::of(&error)),
            response => read(response).ok_or_else(status::unexpected),
        }
    }

    /// Sends a request like `ask`, but returns the whole reply, for callers that read errors themselves.
    pub(super) async fn ask_whole(
        &self,
        kind: NamespaceKind,
        namespace: &str,
        request: Request<'_>,
    ) -> Result<Reply, Status> {
        let space = self.space(kind, namespace)?;
        space.questions.ask(|number, out| request.encode(number, out)).await.map_err(status::closed)
    }
}

fn named(kind: NamespaceKind, namespace: &str) -> &str {
    if namespace.is_empty() { default_namespace(kind) } else { namespace }
}

impl Lanes {
    fn open(&self, kind: NamespaceKind, name: &str, owner: &[u8]) -> Result<Inlet, Status> {
        let opened = Inlet::open(kind, name.as_bytes(), owner, self.caller.lane_client());
        opened.map_err(|refused| status::of_reply(&refused))
    }
}
