//! Compiles the contracts. Uses protox instead of protoc, so that the build needs no tool other than Rust.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

/// Contracts of this project, which servers also publish by reflection.
const CONTRACTS: [&str; 9] = [
    "waymaker.proto",
    "models/locket.proto",
    "waymaker/v1/errors.proto",
    "waymaker/v1/limiter_service.proto",
    "waymaker/v1/lock_service.proto",
    "waymaker/v1/operator_service.proto",
    "waymaker/v1/owned_lock_service.proto",
    "waymaker/v1/semaphore_service.proto",
    "waymaker/v1/tree_service.proto",
];
/// Contracts of other projects, for which this project only has clients.
const CONTRACTS_OF_OTHERS: [&str; 2] = ["etcd/rpc.proto", "etcd/v3lock.proto"];
const FOLDER: &str = "proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let set = protox::compile(CONTRACTS, [FOLDER])?;
    let path = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(path, set.encode_to_vec())?;
    tonic_prost_build::configure().codec_path("crate::codec::SmallBufferCodec").compile_fds(set)?;
    let others = protox::compile(CONTRACTS_OF_OTHERS, [FOLDER])?;
    tonic_prost_build::configure().build_server(false).compile_fds(others)?;
    Ok(())
}
