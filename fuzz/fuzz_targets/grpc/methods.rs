//! The paths of all methods of the port, from the descriptors of its contracts.

use std::sync::LazyLock;

static PATHS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut paths = waymaker_fuzz::contracts::paths();
    // Health and reflection are served beside the contracts of this project.
    paths.extend(
        [
            "/grpc.health.v1.Health/Check",
            "/grpc.health.v1.Health/Watch",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        ]
        .map(str::to_owned),
    );
    paths
});

/// Returns one of the paths.
pub(crate) fn path(index: usize) -> &'static str {
    &PATHS[index % PATHS.len()]
}
