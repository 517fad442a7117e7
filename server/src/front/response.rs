//! Final processing of the response to a gRPC call.

use super::closing::{Closing, EndingBody};
use super::grpc::SERVICES;
use super::refused_stream;
use super::unread_responses::{Answer, UnreadResponses};
use http::uri::PathAndQuery;
use http_body::Body as _;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::{Code, Status};

/// Waits for the response of a gRPC service and prepares it for the client. The response ends when its connection must
/// close. A single message counts as unread bytes until the client takes it. If the service reports by the status
/// `refused_stream` that it did not process the call, the call is reset when its connection must close. gRPC clients
/// then retry it automatically. Errors of the gRPC library get the codes and messages that clients expect.
pub(super) struct Response {
    answer: BoxFuture<http::Response<Body>, Infallible>,
    path: PathAndQuery,
    is_one_message: bool,
    closing: Arc<Closing>,
    unread: Arc<UnreadResponses>,
    /// Completes when connections must close. A call that was not served waits for it.
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Response {
    pub(super) fn new(
        path: PathAndQuery,
        answer: BoxFuture<http::Response<Body>, Infallible>,
        is_one_message: bool,
        closing: &Arc<Closing>,
        unread: &Arc<UnreadResponses>,
    ) -> Self {
        let (closing, unread) = (Arc::clone(closing), Arc::clone(unread));
        Self { answer, path, is_one_message, closing, unread, end: None }
    }
}

impl Future for Response {
    type Output = Result<http::Response<EndingBody>, h2::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.end.is_none() {
            let Ok(mut response) = ready!(self.answer.as_mut().poll(context));
            let status = response.extensions().get::<Status>();
            let is_refused_stream = status.is_some_and(refused_stream::is_refused_stream);
            // Only the gRPC library uses `OutOfRange`, for a message that is too long. Clients expect
            // `ResourceExhausted` for it.
            if let Some(status) = status.filter(|status| status.code() == Code::OutOfRange) {
                response = Status::resource_exhausted(status.message()).into_http();
            } else if !is_refused_stream && is_unimplemented(&response) {
                response = unimplemented(self.path.path()).into_http();
            }
            if !is_refused_stream {
                let (closing, unread) = (Arc::clone(&self.closing), Arc::clone(&self.unread));
                let is_one_message = self.is_one_message;
                return Poll::Ready(Ok(response.map(|body| {
                    let body = if is_one_message {
                        Answer::whole(body, unread, context)
                    } else {
                        Answer::stream(body)
                    };
                    EndingBody::new(body, closing)
                })));
            }
            let end = self.closing.wait();
            self.end = Some(Box::pin(end));
        }
        let end = self.end.as_mut().expect("it was set above");
        ready!(end.as_mut().poll(context));
        Poll::Ready(Err(h2::Reason::REFUSED_STREAM.into()))
    }
}

/// Returns whether this is the library's response to an unknown path, which has no message.
fn is_unimplemented(response: &http::Response<Body>) -> bool {
    if !response.body().is_end_stream() {
        return false;
    }
    let header = |name| response.headers().get(name).map(http::HeaderValue::as_bytes).unwrap_or_default();
    header(Status::GRPC_STATUS) == (Code::Unimplemented as i32).to_string().as_bytes()
        && header(Status::GRPC_MESSAGE).is_empty()
}

/// Returns the status for an unknown service or method, with the wording of other gRPC servers.
fn unimplemented(path: &str) -> Status {
    let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
    if SERVICES.contains(&service) {
        Status::unimplemented(format!("unknown method {method} for service {service}"))
    } else {
        Status::unimplemented(format!("unknown service {service}"))
    }
}
