//! Responses that a client has not taken yet.
//!
//! A call produces its response even if its client does not read. Each connection therefore counts the bytes of
//! single-message responses that its client has not taken. Above a limit, it rejects calls. This bounds the memory that
//! such a client can occupy.

use super::rejection::reject;
use crate::limits::{GRPC_PIECE_LEN, GRPC_SHORT_LEN, GRPC_UNTAKEN_LEN_MAX};
use http_body::{Body as _, Frame};
use hyper::body::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;

/// Number of bytes of single-message responses that the client of one connection has not taken.
#[derive(Debug, Default)]
pub(super) struct UnreadResponses(AtomicUsize);

impl UnreadResponses {
    fn add(&self, len: isize) {
        // Only responses of this connection change the number of unread bytes, and they all run on one thread, so no
        // atomic addition is needed.
        self.0.store(self.0.load(Relaxed).wrapping_add_signed(len), Relaxed);
    }

    /// Rejects a call if the client has left too many response bytes of this connection unread.
    pub(super) fn check_room(&self) -> Result<(), Status> {
        if self.0.load(Relaxed) < GRPC_UNTAKEN_LEN_MAX {
            return Ok(());
        }
        let message = format!(
            "the client has not read {GRPC_UNTAKEN_LEN_MAX} bytes of responses, the maximum for a connection"
        );
        Err(reject("bytes of unread responses", message))
    }
}

/// Counts `len` response bytes as not taken by the client, until this value is dropped.
#[derive(Debug)]
struct Counted {
    unread: Arc<UnreadResponses>,
    len: usize,
}

impl Counted {
    fn new(unread: Arc<UnreadResponses>, len: usize) -> Self {
        unread.add(len as isize);
        Self { unread, len }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.unread.add(-(self.len as isize));
    }
}

/// Body of a gRPC response. If the response is a single message, all its bytes count as unread until the client has
/// taken the last of them.
#[derive(Debug)]
pub(super) struct Answer {
    /// Bytes of the message that the client has not taken yet, if the message was encoded in advance.
    message: Bytes,
    /// Counts the whole `message` as unread until its last piece is taken.
    counted: Option<Counted>,
    /// Frame that follows `message`, if it was already taken from `body`.
    end: Option<Box<Result<Frame<Bytes>, Status>>>,
    /// Source of the remaining frames.
    body: Body,
}

impl Answer {
    /// Creates the body of a single-message response and encodes the message now. If the message is longer than
    /// [`GRPC_SHORT_LEN`], its encoder (`body`) is dropped, because the encoder may keep far more memory than the
    /// message has bytes.
    pub(super) fn whole(body: Body, unread: Arc<UnreadResponses>, context: &mut Context<'_>) -> Self {
        let mut answer = Self::stream(body);
        while let Poll::Ready(frame) = Pin::new(&mut answer.body).poll_frame(context) {
            match frame {
                Some(Ok(frame)) if frame.is_data() && answer.message.is_empty() => {
                    let message = frame.into_data().unwrap_or_default();
                    if message.len() <= GRPC_SHORT_LEN {
                        answer.message = message;
                        break;
                    }
                    answer.message = Bytes::copy_from_slice(&message);
                }
                // The gRPC libraries encode each message into one frame. So this second data frame is another message,
                // which follows `answer.message`.
                Some(Ok(frame)) if frame.is_data() => {
                    answer.end = Some(Box::new(Ok(frame)));
                    break;
                }
                end => {
                    answer.end = end.map(Box::new);
                    answer.body = Body::empty();
                    break;
                }
            }
        }
        answer.counted = Some(Counted::new(unread, answer.message.len()));
        answer
    }

    /// Creates the body of a response with many messages, each of which is made when the client takes it.
    pub(super) fn stream(body: Body) -> Self {
        Self { message: Bytes::new(), counted: None, end: None, body }
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
        if own.message.len() > GRPC_PIECE_LEN {
            // The HTTP/2 library takes a whole piece as soon as the client has room for any of it. Copy the piece,
            // because a slice would keep the whole message in memory. The message no longer counts as unread after its
            // last piece was taken.
            let piece = Bytes::copy_from_slice(&own.message.split_to(GRPC_PIECE_LEN));
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if let Some(counted) = own.counted.take() {
            let last = std::mem::take(&mut own.message);
            if !last.is_empty() {
                let is_part = counted.len > last.len();
                let last = if is_part { Bytes::copy_from_slice(&last) } else { last };
                return Poll::Ready(Some(Ok(Frame::data(last))));
            }
        }
        match own.end.take() {
            Some(end) => Poll::Ready(Some(*end)),
            None => Pin::new(&mut own.body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_empty() && self.end.is_none() && self.body.is_end_stream()
    }
}
