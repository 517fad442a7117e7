//! Conversion of spans to OTLP.

use super::span::AcquireSpan;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use waymaker_engine::Nanos;
use waymaker_protocol::Readable;

/// Span flags of OTLP: bit 9 says that the parent span is in another process, and bit 8 says that bit 9 is known.
const REMOTE_PARENT: u32 = 0b11 << 8;

/// Readings of the server's clock and of the time of day at the same moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) nanos: Nanos,
    pub(super) unix_nanos: u64,
}

impl Anchor {
    /// Converts an instant of the server's clock to nanoseconds since 1970. The instant must not be later than
    /// `self.nanos`.
    fn unix_nanos_of(self, instant: Nanos) -> u64 {
        self.unix_nanos.saturating_sub(self.nanos.since(instant))
    }
}

/// Creates the request that sends these spans to the collector. `new_id` returns random numbers, from which each span
/// gets its id.
pub(super) fn request(
    spans: Vec<AcquireSpan>,
    server_id: u64,
    anchor: Anchor,
    new_id: impl FnMut() -> u64,
) -> ExportTraceServiceRequest {
    let resource = Resource {
        attributes: vec![
            text("service.name", "waymaker"),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", format!("{server_id:016x}")),
        ],
        ..Resource::default()
    };
    let scope = InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    // Zero is not a valid id.
    let ids = std::iter::repeat_with(new_id).filter(|id| *id != 0);
    let spans = spans.into_iter().zip(ids).map(|(span, id)| otlp_span(&span, id, anchor)).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
    let resource_spans =
        vec![ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }
}

fn otlp_span(span: &AcquireSpan, id: u64, anchor: Anchor) -> Span {
    let mut attributes = vec![
        text("waymaker.namespace", Readable(&span.namespace).to_string()),
        text("waymaker.kind", span.kind.name()),
        text("waymaker.front", span.front_end),
        text("waymaker.key", span.key_text()),
        text("waymaker.result", span.result.name()),
    ];
    // Attributes of OTLP have only signed 64-bit integers, so a fence above `i64::MAX` is omitted.
    let fence = span.fence.and_then(|fence| i64::try_from(fence).ok());
    attributes.extend(fence.map(|fence| number("waymaker.fence", fence)));
    attributes.extend(span.error.map(|error| text("error.type", error)));
    let events = span.queued.map(|queued| Event {
        time_unix_nano: anchor.unix_nanos_of(queued),
        name: "queued".to_owned(),
        ..Event::default()
    });
    Span {
        trace_id: span.parent.trace_id().to_vec(),
        span_id: id.to_be_bytes().to_vec(),
        parent_span_id: span.parent.span_id().to_vec(),
        name: "acquire".to_owned(),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: anchor.unix_nanos_of(span.begun),
        end_time_unix_nano: anchor.unix_nanos_of(span.ended),
        attributes,
        events: events.into_iter().collect(),
        flags: u32::from(span.parent.flags()) | REMOTE_PARENT,
        ..Span::default()
    }
}

fn text(key: &str, value: impl Into<String>) -> KeyValue {
    let value = AnyValue { value: Some(Value::StringValue(value.into())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

fn number(key: &str, value: i64) -> KeyValue {
    let value = AnyValue { value: Some(Value::IntValue(value)) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_of_a_span_are_readings_of_the_time_of_day() {
        let span = AcquireSpan::sample();
        let anchor = Anchor { nanos: Nanos::new(1_000), unix_nanos: 5_000 };
        let mut ids = [0, 3].into_iter();
        let request = request(vec![span], 1, anchor, || ids.next().unwrap());
        let span = &request.resource_spans[0].scope_spans[0].spans[0];
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (4_100, 4_700));
        assert_eq!((span.events[0].time_unix_nano, span.events[0].name.as_str()), (4_200, "queued"));
        assert_eq!(span.span_id, [0, 0, 0, 0, 0, 0, 0, 3], "zero is no id");
    }
}
