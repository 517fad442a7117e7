//! `RegistryService`: registrations that name the owner of a key.

use super::claims;
use super::connection::Connection;
use super::registrations;
use super::status;
use super::watch::WatchStream;
use crate::front::conversion::unix_ms;
use crate::front::trace_context;
use tonic::{Request, Response, Status};
use waymaker_proto::v1;
use waymaker_proto::v1::register_request::Lease;
use waymaker_proto::v1::registry_service_server::RegistryService;
use waymaker_protocol as wire;
use waymaker_protocol::{NamespaceKind, TraceParent};

const KIND: NamespaceKind = NamespaceKind::Registry;

/// `RegistryService` of the contract `waymaker.v1`, for one caller on a gRPC connection.
#[derive(Debug)]
pub(super) struct Registries(pub(super) Connection);

fn form<'a>(
    request: &'a v1::RegisterRequest,
    traceparent: Option<&'a TraceParent>,
) -> Result<wire::Register<'a>, Status> {
    let (lease_ms, absolute) = match request.lease {
        Some(Lease::LeaseMs(lease_ms)) => (lease_ms, false),
        Some(Lease::LeaseEndAtMs(end_at_ms)) => (end_at_ms, true),
        None => return Err(status::bad_input("lease", 0, "must be set")),
    };
    Ok(wire::Register {
        lease_ms,
        absolute,
        ephemeral: request.ephemeral,
        key: request.key.as_bytes(),
        owner: request.owner.as_bytes(),
        value: &request.value,
        type_name: request.r#type.as_bytes(),
        traceparent: traceparent.map(TraceParent::as_bytes),
    })
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass responses by value")]
fn registered(response: wire::Response<'_>) -> Option<v1::RegisterResponse> {
    let wire::Response::Registered(registered) = response else { return None };
    Some(v1::RegisterResponse {
        id: registered.id.to_string(),
        fence: registered.fence,
        remaining_ms: registered.remaining_ms,
        lease_expires_at_ms: unix_ms(registered.stamp_ms).saturating_add(registered.remaining_ms),
        renewed: registered.renewed,
    })
}

#[tonic::async_trait]
impl RegistryService for Registries {
    type WatchStream = WatchStream;

    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterResponse>, Status> {
        let traceparent = trace_context::of_metadata(request.metadata());
        let request = request.get_ref();
        let register = wire::Request::Register(form(request, traceparent.as_ref())?);
        self.0.ask(KIND, &request.namespace, register, registered).await.map(Response::new)
    }

    async fn heartbeat(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterResponse>, Status> {
        let request = request.get_ref();
        let register = wire::Register { ephemeral: false, ..form(request, None)? };
        let heartbeat = wire::Request::Heartbeat(wire::Heartbeat(register));
        self.0.ask(KIND, &request.namespace, heartbeat, registered).await.map(Response::new)
    }

    async fn unregister(
        &self,
        request: Request<v1::UnregisterRequest>,
    ) -> Result<Response<v1::UnregisterResponse>, Status> {
        let request = request.get_ref();
        let unregister = wire::Unregister { key: request.key.as_bytes(), owner: request.owner.as_bytes() };
        let read = |response: wire::Response<'_>| {
            matches!(response, wire::Response::Unregistered(_)).then_some(v1::UnregisterResponse {})
        };
        let asked = wire::Request::Unregister(unregister);
        self.0.ask(KIND, &request.namespace, asked, read).await.map(Response::new)
    }

    async fn look_up(
        &self,
        request: Request<v1::LookUpRequest>,
    ) -> Result<Response<v1::LookUpResponse>, Status> {
        let request = request.get_ref();
        let look_up = wire::Request::LookUp(wire::LookUp { key: request.key.as_bytes() });
        let read = |response: wire::Response<'_>| match response {
            wire::Response::LookedUp(found) => {
                let entry = found.found.then(|| registrations::registration(&found.entry, found.stamp_ms));
                Some(v1::LookUpResponse { entry })
            }
            _ => None,
        };
        self.0.ask(KIND, &request.namespace, look_up, read).await.map(Response::new)
    }

    async fn list_entries(
        &self,
        request: Request<v1::ListEntriesRequest>,
    ) -> Result<Response<v1::ListEntriesResponse>, Status> {
        let request = request.get_ref();
        registrations::list(&self.0, KIND, &request.namespace, request).await
    }

    async fn verify(
        &self,
        request: Request<v1::VerifyRequest>,
    ) -> Result<Response<v1::VerifyResponse>, Status> {
        claims::verify(&self.0, KIND, request.get_ref()).await
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<WatchStream>, Status> {
        WatchStream::begin(&self.0, KIND, request.get_ref())
    }
}
