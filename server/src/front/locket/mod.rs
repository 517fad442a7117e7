//! The published contract `models.Locket`.
//!
//! All locks and presences are registrations in the namespace `locket`: each key is registered by its owner. The
//! statuses and messages are exactly those that Locket's clients expect. `docs/reference/compatibility.md` lists the
//! differences between the published document and the later code, and the option that selects between them.

mod fault;
mod metrics;
mod resource_type;

pub(crate) use metrics::LocketMetrics;
pub use resource_type::LocketCompatibility;

use self::fault::Fault;
use self::resource_type::ResourceType;
use super::client::FrontCaller;
use super::conversion::text;
use super::lazy_inlet::LazyInlet;
use super::lists::List;
use super::{FrontConfig, trace_context};
use crate::driver::front_turn::next_turn;
use crate::driver::{Inlet, Reply};
use crate::limits::LIST_PAGE_COUNT;
use crate::namespaces::LOCKET_NAMESPACE;
use crate::option_values::heading;
use clap::{ArgAction, Args};
use prost::Message as _;
use std::sync::Arc;
use tonic::{Request, Response, Status};
use waymaker_proto::locket::locket_server::Locket as Contract;
use waymaker_proto::locket::{
    FetchAllRequest, FetchAllResponse, FetchRequest, FetchResponse, LockRequest, LockResponse,
    ReleaseRequest, ReleaseResponse, Resource,
};
use waymaker_protocol as wire;
use waymaker_protocol::limits::{KEY_LEN_MAX, VALUE_LEN_MAX};
use waymaker_protocol::{NamespaceKind, TraceParent};

/// Maximum length of a key in characters and of an owner in bytes, as in the database tables of the original Locket
/// server.
const TEXT_LEN_MAX: usize = 255;

/// Options of the Locket contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = heading::CONTRACTS)]
pub struct LocketConfig {
    /// Behaviour of Locket if its published document and its code since March 2024 differ: `documented` accepts a type
    /// name without a type code and answers a release of a free key with an error; `2024` accepts only type codes and
    /// answers such a release with success
    #[arg(
        long = "locket-compatibility",
        env = "WAYMAKER_LOCKET_COMPATIBILITY",
        value_name = "VERSION",
        default_value = "documented",
        hide_possible_values = true
    )]
    pub compatibility: LocketCompatibility,
    /// Keep Locket locks in the durable log, so that they survive a restart; has no effect with `--data-dir none`
    #[arg(
        long = "locket-durable",
        env = "WAYMAKER_LOCKET_DURABLE",
        value_name = "true|false",
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        default_value = "true"
    )]
    pub durable: bool,
}

/// The service for one caller on a connection.
#[derive(Debug)]
pub(super) struct Locket {
    config: LocketConfig,
    metrics: Arc<LocketMetrics>,
    inlet: LazyInlet,
}

impl Locket {
    /// Creates the service for calls of this caller.
    pub(super) fn new(config: LocketConfig, metrics: Arc<LocketMetrics>, caller: FrontCaller) -> Self {
        Self { config, metrics, inlet: LazyInlet::new(NamespaceKind::Registry, LOCKET_NAMESPACE, caller) }
    }

    async fn ask(&self, request: &wire::Request<'_>) -> Result<Reply, Fault> {
        Ok(self.inlet.get()?.ask(|number, out| request.encode(number, out)).await?)
    }

    async fn take(&self, request: LockRequest, traceparent: Option<&TraceParent>) -> Result<(), Fault> {
        let resource = request.resource.ok_or(Fault::InvalidResource)?;
        let resource_type = ResourceType::of_lock(&resource, self.config.compatibility)?;
        if request.ttl_in_seconds <= 0 {
            return Err(Fault::InvalidTtl);
        }
        if resource.owner.is_empty() {
            return Err(Fault::InvalidOwner);
        }
        let too_long = resource.key.chars().count() > TEXT_LEN_MAX
            || resource.owner.len() > TEXT_LEN_MAX
            || resource.value.len() > VALUE_LEN_MAX;
        if too_long {
            return Err(Fault::BadRequest);
        }
        let register = wire::Register {
            lease_ms: request.ttl_in_seconds.saturating_mul(1000),
            absolute: false,
            ephemeral: !self.config.durable,
            key: resource.key.as_bytes(),
            owner: resource.owner.as_bytes(),
            value: resource.value.as_bytes(),
            type_name: resource_type.name().as_bytes(),
            traceparent: traceparent.map(TraceParent::as_bytes),
        };
        let reply = self.ask(&wire::Request::Register(register)).await?;
        match reply.response() {
            wire::Response::Registered(_) => Ok(()),
            other => Err(Fault::of(&other)),
        }
    }

    async fn give_up(&self, request: ReleaseRequest) -> Result<(), Fault> {
        let resource = request.resource.ok_or(Fault::InvalidResource)?;
        let key = resource.key.as_bytes();
        let released = if key.len() > KEY_LEN_MAX {
            Err(Fault::NotFound)
        } else if resource.owner.len() > TEXT_LEN_MAX {
            // No registration made over Locket has an owner this long. So if the key is held, report that another owner
            // holds it.
            self.find(&resource.key).await.and(Err(Fault::Collision))
        } else {
            let unregister = wire::Unregister { key, owner: resource.owner.as_bytes() };
            let reply = self.ask(&wire::Request::Unregister(unregister)).await?;
            match reply.response() {
                wire::Response::Unregistered(_) => Ok(()),
                other => Err(Fault::of(&other)),
            }
        };
        match released {
            Err(Fault::NotFound) if self.config.compatibility == LocketCompatibility::Code2024 => Ok(()),
            released => released,
        }
    }

    async fn find(&self, key: &str) -> Result<Resource, Fault> {
        if key.len() > KEY_LEN_MAX {
            return Err(Fault::NotFound);
        }
        let reply = self.ask(&wire::Request::LookUp(wire::LookUp { key: key.as_bytes() })).await?;
        match reply.response() {
            wire::Response::LookedUp(looked_up) if looked_up.found => Ok(resource(&looked_up.entry)),
            wire::Response::LookedUp(_) => Err(Fault::NotFound),
            other => Err(Fault::of(&other)),
        }
    }

    async fn find_all(&self, type_name: &str) -> Result<Arc<List>, Fault> {
        let list = FrontConfig::with(|fronts| fronts.lists.begin(Vec::new()));
        let take = |page: &wire::EntriesListed<'_>| {
            let mut resources: Vec<_> = page.entries.iter().map(resource).collect();
            resources.sort_unstable_by(|a, b| (&a.key, &a.owner).cmp(&(&b.key, &b.owner)));
            list.push(FetchAllResponse { resources }.encode_to_vec())
        };
        each_page(&*self.inlet.get()?, type_name, take).await?;
        Ok(list)
    }
}

#[tonic::async_trait]
impl Contract for Locket {
    async fn lock(&self, request: Request<LockRequest>) -> Result<Response<LockResponse>, Status> {
        let call = self.metrics.lock.begin(&request);
        note("Lock", &request);
        let traceparent = trace_context::of_metadata(request.metadata());
        call.end(self.take(request.into_inner(), traceparent.as_ref()).await.map(|()| LockResponse {}))
    }

    async fn fetch(&self, request: Request<FetchRequest>) -> Result<Response<FetchResponse>, Status> {
        let call = self.metrics.fetch.begin(&request);
        note("Fetch", &request);
        let found = self.find(&request.get_ref().key).await;
        call.end(found.map(|resource| FetchResponse { resource: Some(resource) }))
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        let call = self.metrics.release.begin(&request);
        note("Release", &request);
        call.end(self.give_up(request.into_inner()).await.map(|()| ReleaseResponse {}))
    }

    async fn fetch_all(
        &self,
        request: Request<FetchAllRequest>,
    ) -> Result<Response<FetchAllResponse>, Status> {
        let call = self.metrics.fetch_all.begin(&request);
        note("FetchAll", &request);
        let FetchAllRequest { r#type, type_code } = request.get_ref();
        let found = match ResourceType::of_filter(*type_code, r#type, self.config.compatibility) {
            Ok(wanted) => self.find_all(wanted.name()).await,
            Err(fault) => Err(fault),
        };
        let response = call.end(found)?;
        let (metadata, list, mut extensions) = response.into_parts();
        extensions.insert(list);
        Ok(Response::from_parts(metadata, FetchAllResponse::default(), extensions))
    }
}

/// Logs a request with the `uuid` that Locket clients attach.
fn note<T>(name: &str, request: &Request<T>) {
    if tracing::enabled!(target: "locket", tracing::Level::DEBUG) {
        let uuid = request.metadata().get("uuid").map(|uuid| uuid.as_bytes().escape_ascii().to_string());
        tracing::debug!(target: "locket", uuid = uuid.unwrap_or_default(), "{name}");
    }
}

/// Passes all registrations of one type to `take`, page by page. Between pages, other connections get a turn.
async fn each_page(
    inlet: &Inlet,
    type_name: &str,
    mut take: impl FnMut(&wire::EntriesListed<'_>) -> Result<(), Status>,
) -> Result<(), Fault> {
    let mut cursor = 0;
    loop {
        let type_name = type_name.as_bytes();
        let list = wire::ListEntries { cursor, count_max: LIST_PAGE_COUNT, any_type: false, type_name };
        let reply = inlet.ask(|number, out| list.encode(number, out)).await?;
        let response = reply.response();
        let wire::Response::EntriesListed(page) = &response else { return Err(Fault::of(&response)) };
        take(page).map_err(|status| Fault::Other(status.code(), status.message().to_owned()))?;
        cursor = page.next;
        if cursor == 0 {
            return Ok(());
        }
        next_turn().await;
    }
}

fn resource(registration: &wire::Entry<'_>) -> Resource {
    let resource_type = ResourceType::named(registration.type_name);
    Resource {
        key: text(registration.key),
        owner: text(registration.owner),
        value: text(registration.value),
        r#type: resource_type.name().to_owned(),
        type_code: resource_type.code().into(),
    }
}
