//! The trace context of a request: its header `traceparent`, which the W3C recommendation Trace Context defines.

use crate::driver::Local;
use http::{HeaderMap, HeaderValue};
use tonic::metadata::{MetadataMap, MetadataValue};
use waymaker_protocol::TraceParent;

const NAME: &str = "traceparent";

/// Returns the trace context of an HTTP request. An invalid header counts as none, as the recommendation says. A server that exports no
/// traces does not look at it.
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
    // Of several values none counts.
    values.next().is_none().then_some(parent)
}
