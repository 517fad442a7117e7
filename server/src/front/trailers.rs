//! Trailers of gRPC responses whose body is not made by tonic.

use http_body::Frame;
use hyper::HeaderMap;
use hyper::body::Bytes;
use tonic::Status;

/// Returns the trailers of a response with this status: its code, and its message if it has one. Callers pass only
/// statuses without details.
pub(super) fn trailers(status: &Status) -> Frame<Bytes> {
    let mut headers = HeaderMap::new();
    // `add_header` cannot fail here: tonic encodes the message so that it is a valid header value.
    let _ = status.add_header(&mut headers);
    Frame::trailers(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_contain_only_the_status_and_its_message() {
        let trailers = trailers(&Status::unavailable("the server is stopping"));
        let headers = trailers.into_trailers().expect("trailers");
        let mut names: Vec<_> = headers.keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["grpc-message", "grpc-status"]);
        assert_eq!(headers["grpc-status"], "14");
    }
}
