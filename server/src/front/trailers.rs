//! The end of a gRPC answer whose body is not of tonic.

use http_body::Frame;
use hyper::HeaderMap;
use hyper::body::Bytes;
use tonic::Status;

/// Returns the last frame of an answer that ends with this status. The status has no details.
pub(super) fn trailers(status: &Status) -> Frame<Bytes> {
    let mut headers = HeaderMap::new();
    // Only a status with details may be too long.
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
