//! gRPC contracts of Waymaker, the parts of foreign contracts that this project uses, and the code generated from
//! them.

/// Declares the module of one package.
macro_rules! generated {
    ($(#[$documentation:meta])+ $module:ident from $package:literal) => {
        $(#[$documentation])+
        #[allow(
            missing_docs,
            unreachable_pub,
            clippy::all,
            clippy::allow_attributes_without_reason,
            reason = "generated code, judged by its generator"
        )]
        pub mod $module {
            tonic::include_proto!($package);
        }
    };
}

pub mod codec;
pub mod etcd;

generated! {
    /// The contract `waymaker.WaymakerService`, from `proto/waymaker.proto`.
    waymaker from "waymaker"
}

generated! {
    /// The contract `models.Locket`, from `proto/models/locket.proto`.
    locket from "models"
}

generated! {
    /// The contract `waymaker.v1`, which covers all features of the server, from `proto/waymaker/v1/`.
    v1 from "waymaker.v1"
}

/// All contracts of this project as an encoded `google.protobuf.FileDescriptorSet`, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
