//! Answers that a client does not take.
//!
//! A call has an answer before its client makes room for it. So the answers of one connection that its client has not taken are counted in
//! bytes. Beyond a limit calls are refused: a client that asks and does not read costs that much memory.

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

/// Number of bytes of answers that the client of one connection has not taken.
#[derive(Debug, Default)]
pub(super) struct Untaken(AtomicUsize);

impl Untaken {
    fn add(&self, len: isize) {
        // Only answers of this connection change the number, and they are on one thread.
        self.0.store(self.0.load(Relaxed).wrapping_add_signed(len), Relaxed);
    }

    /// Refuses a call if its answer has no room.
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

/// A number of bytes that count as untaken until this is dropped.
#[derive(Debug)]
struct Counted {
    untaken: Arc<Untaken>,
    len: usize,
}

impl Counted {
    fn new(untaken: Arc<Untaken>, len: usize) -> Self {
        untaken.add(len as isize);
        Self { untaken, len }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.untaken.add(-(self.len as isize));
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// The rest of the message, if it was encoded at the beginning.
    message: Bytes,
    /// Set with `message`. The whole message counts until its last piece is taken.
    counted: Option<Counted>,
    /// The next frame after the message.
    end: Option<Box<Result<Frame<Bytes>, Status>>>,
    /// The rest of the frames.
    body: Body,
}

impl Answer {
    /// Returns the body of an answer in one message, which is encoded now. The encoder of a message that is not short is dropped: it may keep
    /// far more memory than the message has bytes.
    pub(super) fn whole(body: Body, untaken: Arc<Untaken>, context: &mut Context<'_>) -> Self {
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
                // The libraries encode a message into one frame.
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
        answer.counted = Some(Counted::new(untaken, answer.message.len()));
        answer
    }

    /// Returns the body of an answer that has many messages, each of which is made when its client takes it.
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
            // The library takes a piece whole as soon as the client takes any of it. As a part of the message, the piece would keep all of it in
            // memory.
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
