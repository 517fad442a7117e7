//! Settings of every gRPC service. The generated servers have these methods, and no trait that has them.

use http::{HeaderMap, HeaderName};

/// Returns the server of a service with the limit of a message.
macro_rules! served {
    ($server:expr) => {
        $server.max_decoding_message_size($crate::limits::GRPC_MESSAGE_LEN_MAX)
    };
}

/// Returns the server of a service with compression, if the client uses it.
macro_rules! compressed {
    ($server:expr) => {
        $server
            .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
            .send_compressed(tonic::codec::CompressionEncoding::Gzip)
    };
}

/// Lets a service serve a request. An answer is compressed only if its request is: many clients accept gzip by default and do not need
/// it.
macro_rules! call {
    ($server:expr, $request:expr) => {
        if $crate::front::served::is_compressed($request.headers()) {
            $crate::front::served::compressed!($server.clone()).call($request)
        } else {
            $server.clone().call($request)
        }
    };
}

pub(super) use {call, compressed, served};

static ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Returns true for a request whose messages may be compressed.
pub(super) fn is_compressed(headers: &HeaderMap) -> bool {
    // A call has few headers, and to hash the name takes longer than to compare it with them.
    headers.iter().any(|(name, encoding)| name == ENCODING && encoding != "identity")
}
