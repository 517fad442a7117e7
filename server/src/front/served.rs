//! Settings of every gRPC service. The generated servers have these methods, and no trait that has them.

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
        if $request.headers().contains_key(&$crate::front::served::ENCODING) {
            $crate::front::served::compressed!($server.clone()).call($request)
        } else {
            $server.clone().call($request)
        }
    };
}

pub(super) use {call, compressed, served};

/// The header that names the compression of a request.
pub(super) static ENCODING: http::HeaderName = http::HeaderName::from_static("grpc-encoding");
