//! Answers that are as long as what they list.

use super::lists::{List, ListBody};
use crate::limits::GRPC_FRAME_LEN_MAX;
use http::Response;
use http_body::Frame;
use hyper::body::Bytes;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::BoxFuture;

/// The calls with such answers: their contracts have no pages.
const CALLS: [&str; 2] = ["/waymaker.WaymakerService/ListAcquiredLocks", "/models.Locket/FetchAll"];

/// Makes the long answers of one connection one after the other: the next is not begun before the one in front of it was
/// taken. So a client that asks and does not read costs the memory of one of them. The response of such a call is empty, and its [`List`] is an
/// extension of it.
#[derive(Clone, Debug)]
pub(super) struct LongAnswers(Arc<Semaphore>);

impl LongAnswers {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Whether what is asked for here may be long.
    pub(super) fn may_come_of(path: &str) -> bool {
        CALLS.contains(&path)
    }

    /// Lets the call run once it is its turn.
    pub(super) fn queue(
        &self,
        call: BoxFuture<Response<Body>, Infallible>,
    ) -> BoxFuture<Response<Body>, Infallible> {
        let turns = Arc::clone(&self.0);
        Box::pin(async move {
            let turn = turns.acquire_owned().await.ok();
            let (mut parts, body) = call.await?.into_parts();
            let list = parts.extensions.remove::<Arc<List>>();
            let body = list.map_or(body, |list| Body::new(ListBody::new(list)));
            Ok(Response::from_parts(parts, Body::new(Pieces::new(body, turn))))
        })
    }
}

/// A body in pieces of one frame. The library below takes a piece whole as soon as the client takes any of it.
#[derive(Debug)]
pub(super) struct Pieces {
    body: Body,
    /// What was taken of the body and is not sent yet.
    rest: Bytes,
    /// Given back with the body.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Pieces {
    /// Returns the pieces of a body. The permit is given back with it.
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
                    Ok(data) => own.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let len = own.rest.len().min(GRPC_FRAME_LEN_MAX as usize);
        Poll::Ready(Some(Ok(Frame::data(own.rest.split_to(len)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}
