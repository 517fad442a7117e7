//! Entry point of the fuzz target for DynamoDB.

use super::request::Request;
use super::row::row_of;
use waymaker_protocol::Entry;

/// Decodes a request, and then the row of a registration whose value is `body`.
pub fn read(target: &[u8], body: &[u8]) {
    match Request::read(target, body) {
        Ok(request) => drop(request),
        Err(problem) => drop(problem.body()),
    }
    let registration =
        Entry { key: b"k", owner: b"o", value: body, type_name: super::row::TYPE_NAME, ..Entry::default() };
    row_of(&registration, 0);
}
