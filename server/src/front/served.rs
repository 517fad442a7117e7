//! Settings of every gRPC service.

/// Returns the server of a service with the limit of a message, and with compression if the client uses it. The generated servers have
/// these methods, and no trait that has them.
macro_rules! served {
    ($server:expr) => {
        $server
            .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
            .send_compressed(tonic::codec::CompressionEncoding::Gzip)
            .max_decoding_message_size($crate::limits::GRPC_MESSAGE_LEN_MAX)
    };
}
pub(super) use served;
