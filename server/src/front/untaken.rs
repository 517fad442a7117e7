//! Answers that a client does not take.
//!
//! A call has an answer before its client makes room for it. So the answers of one connection that its client has not taken are counted in
//! bytes. Beyond a limit calls are refused: a client that asks and does not read costs that much memory.

use crate::limits::{GRPC_PIECE_LEN, GRPC_UNTAKEN_LEN_MAX};
use http_body::{Body as _, Frame};
use hyper::body::Bytes;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;

/// Number of bytes of answers that the client of one connection has not taken.
#[derive(Debug, Default)]
pub(super) struct Untaken(AtomicUsize);

impl Untaken {
    /// Refuses a call if its answer has no room.
    pub(super) fn check_room(&self) -> Result<(), Status> {
        if self.0.load(Relaxed) < GRPC_UNTAKEN_LEN_MAX {
            return Ok(());
        }
        Err(Status::resource_exhausted(format!(
            "the client has not taken {GRPC_UNTAKEN_LEN_MAX} bytes of answers, the limit of a connection"
        )))
    }
}

/// The body of an answer. What its client has not taken of a message that is encoded counts as untaken.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    /// The rest of the message that is encoded.
    rest: Bytes,
    /// What the body gave instead of a message.
    instead: Option<Option<Result<Frame<Bytes>, Status>>>,
    untaken: Option<Arc<Untaken>>,
}

impl Answer {
    /// Returns the body of an answer in one message, which is encoded now.
    pub(super) async fn whole(mut body: Body, untaken: Arc<Untaken>) -> Self {
        let first = poll_fn(|context| Poll::Ready(Pin::new(&mut body).poll_frame(context))).await;
        let mut answer = Self::stream(body);
        match first {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(message) => {
                    untaken.0.fetch_add(message.len(), Relaxed);
                    answer.rest = message;
                }
                Err(trailers) => answer.instead = Some(Some(Ok(trailers))),
            },
            Poll::Ready(end) => answer.instead = Some(end),
            Poll::Pending => {}
        }
        answer.untaken = Some(untaken);
        answer
    }

    /// Returns the body of an answer that has many messages, each of which is made when its client takes it.
    pub(super) fn stream(body: Body) -> Self {
        Self { body, rest: Bytes::new(), instead: None, untaken: None }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let own = self.get_mut();
        if !own.rest.is_empty() {
            // The library takes a piece whole as soon as the client takes any of it.
            let piece = own.rest.split_to(own.rest.len().min(GRPC_PIECE_LEN));
            if let Some(untaken) = &own.untaken {
                untaken.0.fetch_sub(piece.len(), Relaxed);
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match own.instead.take() {
            Some(instead) => Poll::Ready(instead),
            None => Pin::new(&mut own.body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.instead.is_none() && self.body.is_end_stream()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(untaken) = &self.untaken {
            untaken.0.fetch_sub(self.rest.len(), Relaxed);
        }
    }
}
