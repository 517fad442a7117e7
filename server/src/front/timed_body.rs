//! A request that has to arrive.

use crate::limits::FRAME_MS;
use http_body::{Body, Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// The body of a request, which fails if it does not arrive whole in time: whoever begins a request and goes no further
/// would keep its stream for ever. Most bodies are there when they are first asked for, and cost nothing.
#[derive(Debug)]
pub(super) struct TimedBody {
    body: Incoming,
    /// Runs from when something was missing.
    limit: Option<Pin<Box<Sleep>>>,
}

/// The request did not arrive whole in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request did not arrive whole within {FRAME_MS} ms")]
struct TooLate;

impl TimedBody {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, limit: None }
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
        let limit = own.limit.get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(FRAME_MS))));
        ready!(limit.as_mut().poll(context));
        Poll::Ready(Some(Err(TooLate.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
