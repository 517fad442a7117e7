//! Trace context of a request: the `traceparent` header of the W3C recommendation Trace Context.

use crate::driver::Local;
use http::{HeaderMap, HeaderValue};
use tonic::metadata::{MetadataMap, MetadataValue};
use waymaker_protocol::TraceParent;

const NAME: &str = "traceparent";

/// Returns the trace context of an HTTP request. An invalid header counts as missing, as the recommendation requires. A
/// server that exports no traces ignores the header.
pub(super) fn of_headers(headers: &HeaderMap) -> Option<TraceParent> {
    only(headers.get_all(NAME).iter().map(HeaderValue::as_bytes))
}

/// Returns the trace context of a gRPC call. See [`of_headers`].
pub(super) fn of_metadata(metadata: &MetadataMap) -> Option<TraceParent> {
    only(metadata.get_all(NAME).iter().map(MetadataValue::as_bytes))
}

fn only<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<TraceParent> {
    if !Local::with(|local| local.node.traces.is_on()) {
        return None;
    }
    let value = values.next()?;
    let parent = std::str::from_utf8(value).ok()?.parse().ok()?;
    // If the header occurs several times, it is invalid.
    values.next().is_none().then_some(parent)
}
