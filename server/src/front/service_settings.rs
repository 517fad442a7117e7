//! Settings of all gRPC services. They are macros, because the generated servers share no trait for the methods that
//! change settings.

use http::{HeaderMap, HeaderName};

/// Sets the maximum length of the request messages of a service.
macro_rules! with_length_limit {
    ($server:expr) => {
        $server.max_decoding_message_size($crate::limits::GRPC_MESSAGE_LEN_MAX)
    };
}

/// Enables compression for a service.
macro_rules! with_compression {
    ($server:expr) => {
        $server
            .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
            .send_compressed(tonic::codec::CompressionEncoding::Gzip)
    };
}

/// Lets a service handle a request. The response is compressed only if the request is, because many clients accept gzip
/// by default without needing it.
macro_rules! call {
    ($server:expr, $request:expr) => {
        if $crate::front::service_settings::is_compressed($request.headers()) {
            $crate::front::service_settings::with_compression!($server.clone()).call($request)
        } else {
            $server.clone().call($request)
        }
    };
}

pub(super) use {call, with_compression, with_length_limit};

static ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Returns whether the messages of a request may be compressed.
pub(super) fn is_compressed(headers: &HeaderMap) -> bool {
    // Compare the name of each header with the wanted name: a call has few headers, and a hash lookup takes longer.
    headers.iter().any(|(name, encoding)| name == ENCODING && encoding != "identity")
}
