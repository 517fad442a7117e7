//! A request that has to arrive.

use crate::limits::{FRAME_MS, GRPC_AWAITED_MAX};
use http_body::{Body, Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};
use tonic::Status;

/// The body of a request, which fails if it does not arrive whole in time, or if its connection has too many of these: whoever
/// begins a request and goes no further would keep its stream for ever. Most bodies are there when they are first asked for,
/// and cost nothing.
#[derive(Debug)]
pub(super) struct TimedBody {
    body: Incoming,
    awaited: Awaited,
    /// From when something was missing.
    wait: Option<Wait>,
}

/// How many requests of one connection are waited for.
#[derive(Clone, Debug, Default)]
pub(super) struct Awaited(Arc<AtomicUsize>);

/// One of them.
#[derive(Debug)]
struct Wait {
    awaited: Awaited,
    end: Pin<Box<Sleep>>,
}

impl Awaited {
    fn begin(&self) -> Result<Wait, Status> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let wait = Wait { awaited: self.clone(), end: Box::pin(sleep(Duration::from_millis(FRAME_MS))) };
        if before < GRPC_AWAITED_MAX {
            return Ok(wait);
        }
        let message =
            format!("one connection has at most {GRPC_AWAITED_MAX} requests that did not arrive whole");
        Err(Status::resource_exhausted(message))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.awaited.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TimedBody {
    pub(super) fn new(body: Incoming, awaited: &Awaited) -> Self {
        Self { body, awaited: awaited.clone(), wait: None }
    }

    /// The body, which may take its time.
    pub(super) fn without_limit(self) -> Incoming {
        self.body
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let own = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut own.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let wait = match &mut own.wait {
            Some(wait) => wait,
            None => match own.awaited.begin() {
                Ok(wait) => own.wait.insert(wait),
                Err(refusal) => return Poll::Ready(Some(Err(refusal.into()))),
            },
        };
        ready!(wait.end.as_mut().poll(context));
        let message = format!("the request did not arrive whole within {FRAME_MS} ms");
        Poll::Ready(Some(Err(Status::deadline_exceeded(message).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
