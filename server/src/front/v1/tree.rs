//! `TreeService`: claims on sets of paths.

use super::acquire::{AcquireParameters, AcquireStream, wire_terms};
use super::claims;
use super::connection::Connection;
use super::status;
use crate::front::trace_context;
use tonic::{Request, Response, Status};
use waymaker_proto::v1;
use waymaker_proto::v1::tree_service_server::TreeService;
use waymaker_protocol::{AcquireSet, Items, NamespaceKind, PathItem, PathKey, TraceParent};

const KIND: NamespaceKind = NamespaceKind::Tree;

/// `TreeService` of the contract `waymaker.v1`, for one caller on a gRPC connection.
#[derive(Debug)]
pub(super) struct Trees(pub(super) Connection);

/// Encodes the paths of a request as path keys.
fn path_keys(request: &v1::AcquirePathsRequest) -> Result<Vec<Vec<u8>>, Status> {
    request.paths.iter().map(|path| claims::path_key(path.path.as_ref())).collect()
}

fn form<'a>(
    request: &'a v1::AcquirePathsRequest,
    options: &'a v1::AcquireOptions,
    traceparent: Option<&'a TraceParent>,
    keys: &'a [Vec<u8>],
    buffer: &'a mut Vec<u8>,
) -> Result<(AcquireSet<'a>, AcquireParameters<'a>), Status> {
    let mut items = Vec::with_capacity(keys.len());
    for (path, key) in request.paths.iter().zip(keys) {
        let path_key = PathKey::new(key).map_err(|error| status::of_decode(&error))?;
        items.push(PathItem { write: !path.shared, path: path_key });
    }
    let items = Items::new(items, buffer).map_err(|error| status::of_decode(&error))?;
    let first = request.paths.first().map(|path| path.path.clone().unwrap_or_default());
    let acquiring = AcquireParameters {
        kind: KIND,
        namespace: &request.namespace,
        options,
        max_wait_ms: request.max_wait_ms,
        cancel_key: b"",
        hold: v1::Hold {
            path: first,
            shared: request.paths.iter().all(|path| path.shared),
            ..v1::Hold::default()
        },
    };
    let set = AcquireSet { items, terms: wire_terms(KIND, options, request.max_wait_ms, traceparent)? };
    Ok((set, acquiring))
}

#[tonic::async_trait]
impl TreeService for Trees {
    type AcquireStream = AcquireStream;

    async fn acquire(
        &self,
        request: Request<v1::AcquirePathsRequest>,
    ) -> Result<Response<AcquireStream>, Status> {
        let traceparent = trace_context::of_metadata(request.metadata());
        let request = request.get_ref();
        let options = request.options.clone().unwrap_or_default();
        let (keys, mut buffer) = (path_keys(request)?, Vec::new());
        let (set, acquiring) = form(request, &options, traceparent.as_ref(), &keys, &mut buffer)?;
        acquiring.follow(&self.0, |number, out| set.encode(number, out))
    }

    async fn try_acquire(
        &self,
        request: Request<v1::AcquirePathsRequest>,
    ) -> Result<Response<v1::TryAcquireResponse>, Status> {
        let traceparent = trace_context::of_metadata(request.metadata());
        let request = request.get_ref();
        let options = request.options.clone().unwrap_or_default();
        let (keys, mut buffer) = (path_keys(request)?, Vec::new());
        let (set, acquiring) = form(request, &options, traceparent.as_ref(), &keys, &mut buffer)?;
        acquiring.attempt(&self.0, |number, out| set.encode(number, out)).await
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
}
