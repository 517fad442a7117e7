//! The gRPC contracts of Waymaker, what we need of those of others, and the code generated from them; nothing else.

pub mod codec;
pub mod etcd;

/// The contract `waymaker.WaymakerService`, from `proto/waymaker.proto`.
pub mod waymaker {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::allow_attributes_without_reason,
        reason = "generated code, judged by its generator"
    )]
    tonic::include_proto!("waymaker");
}

/// The contract `models.Locket`, from `proto/models/locket.proto`.
pub mod locket {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::allow_attributes_without_reason,
        reason = "generated code, judged by its generator"
    )]
    tonic::include_proto!("models");
}

/// The contract `waymaker.v1`, all that the server can, from `proto/waymaker/v1/`.
pub mod v1 {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::allow_attributes_without_reason,
        reason = "generated code, judged by its generator"
    )]
    tonic::include_proto!("waymaker.v1");
}

/// All contracts of ours as an encoded `google.protobuf.FileDescriptorSet`, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
