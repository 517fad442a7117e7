//! `OperatorService`: requests about the claims and namespaces of other clients.

use super::claims::{self, cursor, key_of, next_cursor, page_size, place, times};
use super::connection::Connection;
use super::registrations;
use super::status;
use crate::driver::Local;
use crate::front::conversion::{now_ms, text};
use crate::front::operators::{frozen_prefixes, some_namespace};
use tonic::{Request, Response, Status};
use waymaker_engine::Rights;
use waymaker_proto::v1;
use waymaker_proto::v1::operator_service_server::OperatorService;
use waymaker_protocol as wire;
use waymaker_protocol::{Freeze, Frozen, Inspected, Listed, NamespaceKind, RemoveNamespace};

/// Name of the namespace that an empty name stands for.
const DEFAULT: &str = "default";

/// `OperatorService` of the contract `waymaker.v1`, for one caller on a gRPC connection.
#[derive(Debug)]
pub(super) struct Operators(pub(super) Connection);

/// An existing namespace.
struct ExistingNamespace<'a> {
    name: &'a str,
    number: u16,
    kind: NamespaceKind,
}

/// Looks up a namespace in which the client must have this right. A lookup never creates a namespace.
fn named<'a>(connection: &Connection, name: &'a str, right: Rights) -> Result<ExistingNamespace<'a>, Status> {
    let name = if name.is_empty() { DEFAULT } else { name };
    connection.check_right(name, right)?;
    let found = Local::with(|local| local.node.find_namespace(name.as_bytes()));
    let (number, kind) =
        found.ok_or_else(|| status::not_found("namespace", "there is no namespace of this name"))?;
    Ok(ExistingNamespace { name, number, kind })
}

fn kind_of(kind: NamespaceKind) -> v1::NamespaceKind {
    match kind {
        NamespaceKind::Flat => v1::NamespaceKind::Flat,
        NamespaceKind::Tree => v1::NamespaceKind::Tree,
        NamespaceKind::Registry => v1::NamespaceKind::Registry,
        NamespaceKind::Lazy => v1::NamespaceKind::Lazy,
        NamespaceKind::Pool => v1::NamespaceKind::Pool,
        NamespaceKind::Limit => v1::NamespaceKind::Limit,
    }
}

fn listed(kind: NamespaceKind, page: &Listed<'_>) -> v1::ListResponse {
    let stamp_ms = now_ms();
    let holds = page.locks.iter().map(|lock| {
        let (key, path) = place(kind, lock.key);
        let (acquired_at_ms, lease_expires_at_ms) = times(stamp_ms, lock.held_ms, lock.remaining_ms);
        v1::Hold {
            id: lock.id.to_string(),
            key,
            path,
            shared: lock.shared,
            fence: lock.fence,
            remaining_ms: lock.remaining_ms,
            lease_expires_at_ms,
            acquired_at_ms,
            priority: lock.priority,
            permits: 0,
            owner: text(lock.owner),
            request_id: text(lock.request_id),
            metadata: text(lock.metadata),
        }
    });
    v1::ListResponse {
        holds: holds.collect(),
        next_cursor: next_cursor(page.next),
        ..v1::ListResponse::default()
    }
}

/// Converts a page of waiting claims. In a waiting claim of the wire, `held_ms` is the age of the wait and
/// `remaining_ms` the remaining time of the wait.
fn listed_waiting(kind: NamespaceKind, page: &Listed<'_>) -> v1::ListResponse {
    let stamp_ms = now_ms();
    let waiters = page.locks.iter().map(|claim| {
        let (key, path) = place(kind, claim.key);
        let (waiting_since_ms, wait_ends_at_ms) = times(stamp_ms, claim.held_ms, claim.remaining_ms);
        v1::Waiter {
            id: claim.id.to_string(),
            key,
            path,
            shared: claim.shared,
            remaining_ms: claim.remaining_ms,
            wait_ends_at_ms,
            waiting_since_ms,
            priority: claim.priority,
            owner: text(claim.owner),
            request_id: text(claim.request_id),
            metadata: text(claim.metadata),
            ..v1::Waiter::default()
        }
    });
    v1::ListResponse {
        waiters: waiters.collect(),
        next_cursor: next_cursor(page.next),
        ..v1::ListResponse::default()
    }
}

fn inspected(request: &v1::InspectRequest, answer: &Inspected<'_>) -> v1::InspectResponse {
    let holders = answer.holders.iter().map(|holder| {
        let (acquired_at_ms, lease_expires_at_ms) =
            times(answer.stamp_ms, holder.held_ms, holder.remaining_ms);
        v1::Hold {
            id: holder.id.to_string(),
            key: request.key.clone(),
            shared: holder.shared,
            fence: holder.fence,
            remaining_ms: holder.remaining_ms,
            lease_expires_at_ms,
            acquired_at_ms,
            owner: text(holder.owner),
            ..v1::Hold::default()
        }
    });
    let waiters = answer.waiters.iter().map(|waiter| {
        let (waiting_since_ms, wait_ends_at_ms) = times(answer.stamp_ms, waiter.age_ms, waiter.remaining_ms);
        v1::Waiter {
            id: waiter.id.to_string(),
            key: request.key.clone(),
            shared: waiter.shared,
            ticket: waiter.ticket,
            remaining_ms: waiter.remaining_ms,
            wait_ends_at_ms,
            waiting_since_ms,
            priority: waiter.priority,
            owner: text(waiter.owner),
            ..v1::Waiter::default()
        }
    });
    v1::InspectResponse {
        fence: answer.fence,
        holder_count: answer.holder_count,
        waiter_count: answer.waiter_count,
        holders: holders.collect(),
        waiters: waiters.collect(),
    }
}

impl Operators {
    async fn freeze(&self, namespace: &str, freeze: Freeze<'_>) -> Result<Frozen, Status> {
        let ExistingNamespace { name, kind, .. } = named(&self.0, namespace, Rights::FREEZE)?;
        let read = |response: wire::Response<'_>| match response {
            wire::Response::Frozen(frozen) => Some(frozen),
            _ => None,
        };
        self.0.ask(kind, name, wire::Request::Freeze(freeze), read).await
    }
}

impl Operators {
    /// Returns a namespace on whose lane the client can send a request about the namespace `name`. The result is the
    /// default namespace. If the client has no right there, the result is the first namespace other than `name` in
    /// which it has a right. Without such a namespace, the result is the default one.
    async fn other_namespace(&self, name: &str) -> (NamespaceKind, String) {
        let access = self.0.access(DEFAULT, NamespaceKind::Flat);
        let is_other = |other: &[u8]| other != name.as_bytes();
        let other = match access {
            Some(access) if access.somewhere() == Rights::NONE => {
                some_namespace(self.0.identity(), is_other).await
            }
            _ => None,
        };
        other.unwrap_or_else(|| (NamespaceKind::Flat, DEFAULT.to_owned()))
    }
}

#[tonic::async_trait]
impl OperatorService for Operators {
    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<v1::ListResponse>, Status> {
        let request = request.get_ref();
        let ExistingNamespace { name, kind, .. } = named(&self.0, &request.namespace, Rights::LIST)?;
        let prefix = key_of(kind, "prefix", &request.prefix, request.path.as_ref())?;
        let list = wire::List {
            cursor: cursor(&request.cursor)?,
            count_max: page_size(request.page_size),
            prefix: &prefix,
            waiting: request.waiting,
        };
        let read = |response: wire::Response<'_>| match response {
            wire::Response::Listed(page) if request.waiting => Some(listed_waiting(kind, &page)),
            wire::Response::Listed(page) => Some(listed(kind, &page)),
            _ => None,
        };
        self.0.ask(kind, name, wire::Request::List(list), read).await.map(Response::new)
    }

    async fn inspect(
        &self,
        request: Request<v1::InspectRequest>,
    ) -> Result<Response<v1::InspectResponse>, Status> {
        let request = request.get_ref();
        let ExistingNamespace { name, kind, .. } = named(&self.0, &request.namespace, Rights::INSPECT)?;
        let key = key_of(kind, "key", &request.key, request.path.as_ref())?;
        let inspect = wire::Request::Inspect(wire::Inspect { key: &key });
        let read = |response: wire::Response<'_>| match response {
            wire::Response::Inspected(answer) => Some(inspected(request, &answer)),
            _ => None,
        };
        self.0.ask(kind, name, inspect, read).await.map(Response::new)
    }

    async fn force_release(
        &self,
        request: Request<v1::ForceReleaseRequest>,
    ) -> Result<Response<v1::ForceReleaseResponse>, Status> {
        let request = request.get_ref();
        let ExistingNamespace { name, kind, .. } = named(&self.0, &request.namespace, Rights::FORCE_RELEASE)?;
        let release = wire::ForceRelease { id: claims::id(&request.id)?, reason: request.reason.as_bytes() };
        let read = |response: wire::Response<'_>| match response {
            wire::Response::ForceReleased(released) => {
                let (key, path) = place(kind, released.key);
                Some(v1::ForceReleaseResponse {
                    key,
                    path,
                    owner: text(released.owner),
                    fence: released.fence,
                    was_waiting: released.was_waiting,
                })
            }
            _ => None,
        };
        self.0.ask(kind, name, wire::Request::ForceRelease(release), read).await.map(Response::new)
    }

    async fn freeze(
        &self,
        request: Request<v1::FreezeRequest>,
    ) -> Result<Response<v1::FreezeResponse>, Status> {
        let request = request.get_ref();
        let (prefix, reason) = (request.prefix.as_bytes(), request.reason.as_bytes());
        let freeze = Freeze { prefix, thaw: false, reason };
        let Frozen { changed, frozen_count } = self.freeze(&request.namespace, freeze).await?;
        Ok(Response::new(v1::FreezeResponse { changed, frozen_count: u32::from(frozen_count) }))
    }

    async fn thaw(&self, request: Request<v1::ThawRequest>) -> Result<Response<v1::ThawResponse>, Status> {
        let request = request.get_ref();
        let (prefix, reason) = (request.prefix.as_bytes(), request.reason.as_bytes());
        let thaw = Freeze { prefix, thaw: true, reason };
        let Frozen { changed, frozen_count } = self.freeze(&request.namespace, thaw).await?;
        Ok(Response::new(v1::ThawResponse { changed, frozen_count: u32::from(frozen_count) }))
    }

    async fn list_frozen(
        &self,
        request: Request<v1::ListFrozenRequest>,
    ) -> Result<Response<v1::ListFrozenResponse>, Status> {
        let ExistingNamespace { name, number, kind } =
            named(&self.0, &request.get_ref().namespace, Rights::LIST)?;
        let access = self.0.access(name, kind);
        let prefixes = frozen_prefixes(number, access.as_ref(), text);
        Ok(Response::new(v1::ListFrozenResponse { prefixes }))
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesResponse>, Status> {
        let request = request.get_ref();
        let namespaces =
            wire::Namespaces { cursor: cursor(&request.cursor)?, count_max: page_size(request.page_size) };
        let Some((kind, name)) = some_namespace(self.0.identity(), |_| true).await else {
            return Ok(Response::new(v1::ListNamespacesResponse::default()));
        };
        let read = |response: wire::Response<'_>| match response {
            wire::Response::NamespacesListed(page) => {
                let namespaces = page.namespaces.iter().map(|namespace| v1::Namespace {
                    name: text(namespace.name),
                    kind: kind_of(namespace.kind).into(),
                    held: namespace.held,
                    waiting: namespace.waiting,
                    timeouts: namespace.timeouts,
                    expired: namespace.expired,
                    revoked: namespace.revoked,
                });
                let namespaces = namespaces.collect();
                Some(v1::ListNamespacesResponse { namespaces, next_cursor: next_cursor(page.next) })
            }
            _ => None,
        };
        self.0.ask(kind, &name, wire::Request::Namespaces(namespaces), read).await.map(Response::new)
    }

    async fn remove_namespace(
        &self,
        request: Request<v1::RemoveNamespaceRequest>,
    ) -> Result<Response<v1::RemoveNamespaceResponse>, Status> {
        let ExistingNamespace { name, .. } = named(&self.0, &request.get_ref().namespace, Rights::ADMIN)?;
        let remove = wire::Request::RemoveNamespace(RemoveNamespace { name: name.as_bytes() });
        let read = |response: wire::Response<'_>| match response {
            wire::Response::NamespaceRemoved(_) => Some(v1::RemoveNamespaceResponse {}),
            _ => None,
        };
        // Send the request on a lane of another namespace. A lane of the namespace `name` would count as its use, and
        // the server does not remove a namespace in use.
        let (kind, other) = self.other_namespace(name).await;
        self.0.ask(kind, &other, remove, read).await.map(Response::new)
    }

    async fn list_entries(
        &self,
        request: Request<v1::ListEntriesRequest>,
    ) -> Result<Response<v1::ListEntriesResponse>, Status> {
        let request = request.get_ref();
        let ExistingNamespace { name, kind, .. } = named(&self.0, &request.namespace, Rights::LIST)?;
        registrations::list(&self.0, kind, name, request).await
    }
}
