//! Graceful shutdown of gRPC connections. Each client gets a GOAWAY before the worker closes the lanes. So the calls in
//! progress are answered if they end in time, and clients make later calls on another connection.

use super::trailers::trailers;
use super::unread_responses::Answer;
use http_body::{Frame, SizeHint};
use hyper::body::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;

/// Time limit for the shutdown of gRPC connections: enough for a GOAWAY, the answers to calls in progress and a round
/// trip.
const CLOSE: Duration = Duration::from_secs(1);

/// Open gRPC connections of a server, and whether they must close.
#[derive(Debug, Default)]
pub(super) struct Closing {
    is_closing: watch::Sender<bool>,
    connection_count: AtomicUsize,
    connection_ended: Notify,
}

/// One open gRPC connection; dropping it counts the connection as closed.
#[derive(Debug)]
pub(super) struct OpenConnection<'a>(&'a Closing);

impl Closing {
    /// Counts a connection until the returned value is dropped.
    pub(super) fn note_open(&self) -> OpenConnection<'_> {
        self.connection_count.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self)
    }

    /// Returns a future that completes when connections must close, because the server stops.
    pub(super) fn wait(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut is_closing = self.is_closing.subscribe();
        async move {
            // An error means that the sender is gone. The server has ended in this case, so the connection must close
            // too.
            let _ = is_closing.wait_for(|is_closing| *is_closing).await;
        }
    }

    /// Returns whether connections must close.
    pub(super) fn is_closing(&self) -> bool {
        *self.is_closing.borrow()
    }

    /// Tells all gRPC connections to close, and waits until they have closed, for at most [`CLOSE`]. The workers must
    /// still serve the connections during this time.
    pub(super) async fn close(&self) {
        self.is_closing.send_replace(true);
        let ended = async {
            while self.connection_count.load(Ordering::Relaxed) > 0 {
                self.connection_ended.notified().await;
            }
        };
        // Ignore a timeout: a client that does not respond in time loses its connection when the process ends.
        let _ = timeout(CLOSE, ended).await;
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.connection_count.fetch_sub(1, Ordering::Relaxed);
        self.0.connection_ended.notify_one();
    }
}

/// Response that may last as long as its connection. If connections must close while it has nothing to send, it ends
/// with UNAVAILABLE.
pub(super) struct EndingBody {
    body: Answer,
    closing: Arc<Closing>,
    /// Completes when connections must close; created when the body first has nothing to send.
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    has_ended: bool,
}

impl EndingBody {
    pub(super) fn new(body: Answer, closing: Arc<Closing>) -> Self {
        Self { body, closing, end: None, has_ended: false }
    }
}

impl http_body::Body for EndingBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let own = self.get_mut();
        if own.has_ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut own.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        let end = own.end.get_or_insert_with(|| Box::pin(own.closing.wait()));
        ready!(end.as_mut().poll(context));
        own.has_ended = true;
        // Dropping the body cancels a waiting claim, as a disconnect of the client does.
        own.body = Answer::stream(Body::empty());
        Poll::Ready(Some(Ok(trailers(&Status::unavailable("the server is stopping")))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
