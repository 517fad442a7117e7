//! `LockService`: claims on one key or several keys.

use super::acquire::{AcquireParameters, AcquireStream, wire_terms};
use super::claims;
use super::connection::Connection;
use super::status;
use super::watch::WatchStream;
use crate::front::trace_context;
use tonic::{Request, Response, Status};
use waymaker_proto::v1;
use waymaker_proto::v1::lock_service_server::LockService;
use waymaker_protocol as wire;
use waymaker_protocol::{AcquireKeys, Items, KeyItem, NamespaceKind, TraceParent};

const KIND: NamespaceKind = NamespaceKind::Flat;

/// `LockService` of the contract `waymaker.v1`, for one caller on a gRPC connection.
#[derive(Debug)]
pub(super) struct Locks(pub(super) Connection);

/// Acquire request in the binary protocol. A single key has its own form, which costs the worker less than a multi-key
/// claim.
enum Form<'a> {
    One(wire::Acquire<'a>),
    MultiKeyClaim(AcquireKeys<'a>),
}

impl Form<'_> {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::One(acquire) => acquire.encode(number, out),
            Self::MultiKeyClaim(acquire) => acquire.encode(number, out),
        }
    }
}

fn form<'a>(
    request: &'a v1::AcquireKeysRequest,
    options: &'a v1::AcquireOptions,
    traceparent: Option<&'a TraceParent>,
    buffer: &'a mut Vec<u8>,
) -> Result<(Form<'a>, AcquireParameters<'a>), Status> {
    let terms = wire_terms(KIND, options, request.max_wait_ms, traceparent)?;
    let mut acquiring = AcquireParameters {
        kind: KIND,
        namespace: &request.namespace,
        options,
        max_wait_ms: request.max_wait_ms,
        cancel_key: b"",
        hold: v1::Hold::default(),
    };
    if let [v1::LockKey { key, shared }] = &request.keys[..] {
        acquiring.cancel_key = key.as_bytes();
        acquiring.hold = v1::Hold { key: key.clone(), shared: *shared, ..v1::Hold::default() };
        let one = wire::Acquire { key: key.as_bytes(), shared: *shared, terms };
        return Ok((Form::One(one), acquiring));
    }
    let items = request.keys.iter().map(|key| KeyItem { shared: key.shared, key: key.key.as_bytes() });
    let items = Items::new(items, buffer).map_err(|error| status::of_decode(&error))?;
    // A CANCEL of a multi-key acquire must name its smallest key.
    acquiring.cancel_key = items.iter().map(|item| item.key).min().unwrap_or_default();
    Ok((Form::MultiKeyClaim(AcquireKeys { items, terms }), acquiring))
}

#[tonic::async_trait]
impl LockService for Locks {
    type AcquireStream = AcquireStream;
    type WatchStream = WatchStream;

    async fn acquire(
        &self,
        request: Request<v1::AcquireKeysRequest>,
    ) -> Result<Response<AcquireStream>, Status> {
        let traceparent = trace_context::of_metadata(request.metadata());
        let request = request.get_ref();
        let options = request.options.clone().unwrap_or_default();
        let mut buffer = Vec::new();
        let (form, acquiring) = form(request, &options, traceparent.as_ref(), &mut buffer)?;
        acquiring.follow(&self.0, |number, out| form.encode(number, out))
    }

    async fn try_acquire(
        &self,
        request: Request<v1::AcquireKeysRequest>,
    ) -> Result<Response<v1::TryAcquireResponse>, Status> {
        let traceparent = trace_context::of_metadata(request.metadata());
        let request = request.get_ref();
        let options = request.options.clone().unwrap_or_default();
        let mut buffer = Vec::new();
        let (form, acquiring) = form(request, &options, traceparent.as_ref(), &mut buffer)?;
        acquiring.attempt(&self.0, |number, out| form.encode(number, out)).await
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        claims::release(&self.0, KIND, request.get_ref()).await
    }

    async fn extend(
        &self,
        request: Request<v1::ExtendRequest>,
    ) -> Result<Response<v1::ExtendResponse>, Status> {
        claims::extend(&self.0, KIND, request.get_ref()).await
    }

    async fn status(
        &self,
        request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        claims::status(&self.0, KIND, request.get_ref()).await
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
