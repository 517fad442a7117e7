//! DynamoDB responses with the headers that SDKs expect.

use super::problem::Problem;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderName, StatusCode};
use rand::seq::IndexedRandom as _;

const JSON: &str = "application/x-amz-json-1.0";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-crc32");
/// Length of a DynamoDB request id in characters; it consists of [`REQUEST_ID_CHARACTERS`].
const REQUEST_ID_LEN: usize = 52;
const REQUEST_ID_CHARACTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// Returns the response with this body or for this problem.
pub(super) fn answer(result: Result<String, Problem>) -> Response {
    let (status, body) = match result {
        Ok(body) => (StatusCode::OK, body),
        Err(problem) => (problem.status(), problem.body()),
    };
    let checksum = crc32fast::hash(body.as_bytes()).to_string();
    let headers = [(CONTENT_TYPE, JSON.to_owned()), (REQUEST_ID, request_id()), (CHECKSUM, checksum)];
    (status, headers, body).into_response()
}

fn request_id() -> String {
    let mut random = rand::rng();
    let character = || REQUEST_ID_CHARACTERS.choose(&mut random).copied().map_or('0', char::from);
    std::iter::repeat_with(character).take(REQUEST_ID_LEN).collect()
}

#[cfg(test)]
mod tests {
    use super::super::problem::Kind;
    use super::*;

    #[test]
    fn an_answer_has_the_headers_of_dynamodb() {
        let response = answer(Ok("{}".to_owned()));
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(response.status(), 200);
        assert_eq!(header("content-type"), "application/x-amz-json-1.0");
        assert_eq!(header("x-amz-crc32"), "2745614147");
        assert_eq!(header("x-amzn-requestid").len(), 52);
        let again = answer(Ok("{}".to_owned()));
        assert_ne!(again.headers()["x-amzn-requestid"], response.headers()["x-amzn-requestid"]);
    }

    #[test]
    fn a_problem_has_the_name_and_the_status_of_dynamodb() {
        for (kind, status, name) in [
            (
                Kind::ConditionalCheckFailed,
                400,
                "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
            ),
            (Kind::Validation, 400, "com.amazon.coral.validate#ValidationException"),
            (Kind::BodyTooLarge, 413, "com.amazon.coral.service#RequestEntityTooLargeException"),
            (Kind::InternalServerError, 500, "com.amazonaws.dynamodb.v20120810#InternalServerError"),
        ] {
            let problem = Problem::new(kind, "why");
            assert_eq!(problem.body(), format!(r#"{{"__type":"{name}","message":"why"}}"#));
            assert_eq!(answer(Err(problem)).status().as_u16(), status);
        }
    }
}
