//! gRPC request bodies with limits on time and memory.

use super::rejection::reject;
use super::streams::may_run;
use super::unread_responses::UnreadResponses;
use crate::driver::Local;
use crate::limits::{GRPC_AWAITED_LEN_MAX, GRPC_AWAITED_MAX, GRPC_MESSAGE_LEN_MAX};
use crate::milliseconds::Milliseconds;
use http_body::{Body, Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tokio::time::{Sleep, sleep};
use tonic::Status;

/// Length of the prefix of a gRPC message: the compression flag and the message length.
const PREFIX_LEN: usize = 5;

/// Body of a request with one message. The body passes the message on only when it is complete, because the decoding
/// library allocates the claimed length of the message in advance. The body fails if it is too long or does not arrive
/// in time. It also fails if its connection has too many incomplete bodies, too many bytes of them, or too many unread
/// response bytes. Most bodies are complete at the first poll and cost nothing.
#[derive(Debug)]
pub(super) struct TimedBody {
    body: Incoming,
    bodies: OpenBodies,
    unread: Arc<UnreadResponses>,
    /// Bytes of the message that have arrived; `None` for a message that arrives in one frame at the first poll of the
    /// body.
    part: Option<Box<Part>>,
}

/// Number of the incomplete requests of one connection, and the total length of their bytes that have arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenBodies(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

/// The part of an incomplete body that has arrived, with the deadline for the rest.
#[derive(Debug)]
struct Part {
    bytes: Vec<u8>,
    end: Pin<Box<Sleep>>,
    bodies: OpenBodies,
}

impl OpenBodies {
    fn begin(&self) -> Result<Part, Status> {
        let Self(counts) = self;
        if counts.requests.load(Ordering::Relaxed) >= GRPC_AWAITED_MAX {
            let message =
                format!("{GRPC_AWAITED_MAX} requests of this connection are incomplete, the maximum");
            return Err(reject("incomplete requests per connection", message));
        }
        counts.requests.fetch_add(1, Ordering::Relaxed);
        let end = Box::pin(sleep(frame_limit().into()));
        Ok(Part { bytes: Vec::new(), end, bodies: self.clone() })
    }
}

impl Part {
    fn push(&mut self, bytes: &[u8]) -> Result<(), Status> {
        let len = self.bytes.len() + bytes.len();
        if len > PREFIX_LEN + GRPC_MESSAGE_LEN_MAX {
            return Err(Status::resource_exhausted(format!(
                "the message is at least {len} bytes long; the maximum is {GRPC_MESSAGE_LEN_MAX}"
            )));
        }
        let OpenBodies(counts) = &self.bodies;
        // Only this connection's requests change `counts.bytes`, and they all run on one thread, so no atomic addition
        // is needed.
        let awaited_len = counts.bytes.load(Ordering::Relaxed) + bytes.len();
        if awaited_len > GRPC_AWAITED_LEN_MAX {
            let message = format!(
                "incomplete requests of this connection have {awaited_len} bytes; the maximum is {GRPC_AWAITED_LEN_MAX}"
            );
            return Err(reject("bytes of incomplete requests", message));
        }
        counts.bytes.store(awaited_len, Ordering::Relaxed);
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let OpenBodies(counts) = &self.bodies;
        counts.requests.fetch_sub(1, Ordering::Relaxed);
        counts.bytes.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl TimedBody {
    pub(super) fn new(body: Incoming, bodies: &OpenBodies, unread: &Arc<UnreadResponses>) -> Self {
        Self { body, bodies: bodies.clone(), unread: Arc::clone(unread), part: None }
    }

    /// Returns the body without limits, for streams of requests.
    pub(super) fn without_limit(self) -> Incoming {
        self.body
    }

    /// Returns the bytes of the message that have arrived, with their deadline. The first call creates them, counts the
    /// request as incomplete, and sets the deadline.
    fn part(&mut self) -> Result<&mut Part, Status> {
        if self.part.is_none() {
            self.part = Some(Box::new(self.bodies.begin()?));
        }
        Ok(self.part.as_mut().expect("it was set above"))
    }

    /// Passes on a complete message.
    fn whole(&self, message: Bytes) -> Result<Frame<Bytes>, BodyError> {
        // Check the unread responses only after the whole request has arrived. The HTTP/2 library would reset a call
        // that is rejected earlier, and it closes connections with many resets.
        self.unread.check_room()?;
        Ok(Frame::data(message))
    }

    /// Stores bytes of a message until the rest arrives.
    fn keep(&mut self, bytes: &Bytes) -> Result<(), Status> {
        if bytes.is_empty() { Ok(()) } else { self.part()?.push(bytes) }
    }

    fn poll_whole(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // `first` holds the data of the first frame. The first frame usually contains the whole message; the end of the
        // body may follow as a separate frame.
        let mut first = Bytes::new();
        loop {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    if self.part.is_none() && (first.is_empty() || bytes.is_empty()) {
                        if self.body.is_end_stream() {
                            let message = if first.is_empty() { bytes } else { first };
                            return Poll::Ready(Some(self.whole(message)));
                        }
                        if !bytes.is_empty() {
                            first = bytes;
                            continue;
                        }
                    }
                    let first = std::mem::take(&mut first);
                    if let Err(refusal) = self.keep(&first).and_then(|()| self.keep(&bytes)) {
                        return Poll::Ready(Some(Err(refusal.into())));
                    }
                    // A message may arrive in thousands of frames. Stop between two frames if the turn of the
                    // connection is over, so that other connections get theirs.
                    if !may_run(context) {
                        return Poll::Pending;
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => {
                    let Some(mut part) = self.part.take() else {
                        return Poll::Ready((!first.is_empty()).then(|| self.whole(first)));
                    };
                    let OpenBodies(counts) = &part.bodies;
                    counts.bytes.fetch_sub(part.bytes.len(), Ordering::Relaxed);
                    return Poll::Ready(Some(self.whole(std::mem::take(&mut part.bytes).into())));
                }
                Poll::Pending => {
                    match self.keep(&first).and_then(|()| self.part()) {
                        Ok(part) => ready!(part.end.as_mut().poll(context)),
                        Err(refusal) => return Poll::Ready(Some(Err(refusal.into()))),
                    }
                    let message =
                        format!("the request did not arrive completely within {} ms", frame_limit().get());
                    return Poll::Ready(Some(Err(Status::deadline_exceeded(message).into())));
                }
            }
        }
    }
}

/// Returns the time within which a whole gRPC request must arrive (`--limits-frame`).
fn frame_limit() -> Milliseconds {
    Local::with(|local| local.node.set.frame)
}

type BodyError = Box<dyn std::error::Error + Send + Sync>;

impl Body for TimedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.get_mut().poll_whole(context)
    }

    fn is_end_stream(&self) -> bool {
        self.part.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
