//! Queues for calls whose responses can be long.

use super::lists::{List, ListBody};
use super::rejection::reject;
use crate::limits::{GRPC_FRAME_LEN_MAX, GRPC_LONG_WAITING_MAX, GRPC_PAGES_MAX};
use http::Response;
use http_body::Frame;
use hyper::body::Bytes;
use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::BoxFuture;

/// Calls that return whole lists, because their contracts have no pages. The message of such a response is empty; its
/// [`List`] is attached as an extension.
const LISTS: [&str; 2] = ["/waymaker.WaymakerService/ListAcquiredLocks", "/models.Locket/FetchAll"];
/// Other calls whose responses are long compared to their requests, such as pages of a list.
const PAGES: [&str; 7] = [
    "/waymaker.v1.OperatorService/List",
    "/waymaker.v1.OperatorService/Inspect",
    "/waymaker.v1.OperatorService/ListEntries",
    "/waymaker.v1.OperatorService/ListFrozen",
    "/waymaker.v1.OperatorService/ListNamespaces",
    "/waymaker.v1.RegistryService/ListEntries",
    "/waymaker.v1.SemaphoreService/Describe",
];

/// Limits the long responses of one connection: one list and a few pages at a time. If the client has not taken these,
/// the next response is made only after it has taken one of them. A client that requests without reading therefore uses
/// a bounded amount of memory.
#[derive(Clone, Debug)]
pub(super) struct LongAnswers {
    lists: Arc<Semaphore>,
    pages: Arc<Semaphore>,
    /// Permits for calls that wait until they may send their response: a whole list, with a permit of `lists`, or a
    /// page, with a permit of `pages`. Without a permit of `waiting`, a call is rejected.
    waiting: Arc<Semaphore>,
}

impl LongAnswers {
    pub(super) fn new() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { lists: places(1), pages: places(GRPC_PAGES_MAX), waiting: places(GRPC_LONG_WAITING_MAX) }
    }

    /// Returns whether calls of this path have long responses.
    pub(super) fn has(path: &str) -> bool {
        LISTS.contains(&path) || PAGES.contains(&path)
    }

    /// Runs a call with a long response as soon as the connection has fewer than the maximum of such responses in
    /// progress. Rejects the call if too many calls already wait. Runs a call with a short response at once.
    pub(super) fn queue(
        &self,
        path: &str,
        call: BoxFuture<Response<Body>, Infallible>,
    ) -> BoxFuture<Response<Body>, Infallible> {
        let places = match path {
            _ if LISTS.contains(&path) => Arc::clone(&self.lists),
            _ if PAGES.contains(&path) => Arc::clone(&self.pages),
            _ => return call,
        };
        let Ok(waiting) = Arc::clone(&self.waiting).try_acquire_owned() else {
            let limit =
                format!("{GRPC_LONG_WAITING_MAX} list calls of this connection are waiting, the maximum");
            return Box::pin(ready(Ok(reject("waiting list calls per connection", limit).into_http())));
        };
        Box::pin(async move {
            let place = places.acquire_owned().await.ok();
            drop(waiting);
            let (mut parts, body) = call.await?.into_parts();
            let list = parts.extensions.remove::<Arc<List>>();
            let body = list.map_or(body, |list| Body::new(ListBody::new(list)));
            Ok(Response::from_parts(parts, Body::new(Pieces::new(body, place))))
        })
    }
}

/// Body that is sent in pieces of at most one frame. The HTTP/2 library takes a whole piece as soon as the client has
/// room for any of it, so a piece must be short. If bytes are split, each piece is a copy, because a slice would keep
/// all of them in memory.
#[derive(Debug)]
pub(super) struct Pieces {
    body: Body,
    /// Bytes that were taken from the body but not sent yet.
    rest: Bytes,
    /// Released together with the body.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Pieces {
    /// Splits a body into pieces. The permit limits how many such responses the connection has at once, and is released
    /// when the body is dropped.
    pub(super) fn new(body: Body, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self { body, rest: Bytes::new(), _permit: permit }
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let own = self.get_mut();
        if own.rest.is_empty() {
            match ready!(Pin::new(&mut own.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.len() <= GRPC_FRAME_LEN_MAX as usize => {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                    Ok(data) => own.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let len = own.rest.len().min(GRPC_FRAME_LEN_MAX as usize);
        let piece = Bytes::copy_from_slice(&own.rest.split_to(len));
        if own.rest.is_empty() {
            own.rest = Bytes::new();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}
