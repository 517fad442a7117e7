//! A request that has to arrive.

use crate::limits::{FRAME_MS, GRPC_AWAITED_MAX};
use http_body::{Body, Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
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

/// The requests of one connection that are waited for.
#[derive(Clone, Debug)]
pub(super) struct Awaited(Arc<Semaphore>);

/// One of them.
#[derive(Debug)]
struct Wait {
    end: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Awaited {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(GRPC_AWAITED_MAX)))
    }

    fn begin(&self) -> Result<Wait, Status> {
        let place = Arc::clone(&self.0).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "one connection has at most {GRPC_AWAITED_MAX} requests that did not arrive whole"
            ))
        })?;
        Ok(Wait { end: Box::pin(sleep(Duration::from_millis(FRAME_MS))), _place: place })
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
