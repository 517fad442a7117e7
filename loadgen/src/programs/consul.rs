//! A Consul cluster with one server.

use std::path::Path;

use super::go_module::GoModule;

/// Newest version that can be built as a dependency. Later versions need modules of their own repository
/// (envoyextensions, troubleshoot) that they replace by folders, and whose published versions could not be
/// verified.
pub(super) const MODULE: GoModule = GoModule { path: "github.com/hashicorp/consul", version: "v1.13.9" };

/// Returns the arguments. Serves HTTP on the first port; servers talk to each other on the other two. The log is
/// on the disk of this directory.
pub(super) fn arguments(directory: &Path, [http, cluster, gossip]: [u16; 3]) -> Vec<String> {
    let data = directory.join("consul-data").to_string_lossy().into_owned();
    let (http, cluster, gossip) = (http.to_string(), cluster.to_string(), gossip.to_string());
    [
        &["agent", "-server", "-bootstrap-expect=1", "-node=waymaker-loadgen", "-data-dir", &data][..],
        &["-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=warn", "-disable-host-node-id"],
        &["-http-port", &http, "-server-port", &cluster, "-serf-lan-port", &gossip],
        &["-serf-wan-port=-1", "-dns-port=-1", "-grpc-port=-1"],
        // All connections of a load come from the same address, which would exceed the default limit.
        &["-hcl", "limits { http_max_conns_per_client = 0 }"],
        // The setting for production. With the default, the server takes long to notice that it is the leader.
        &["-hcl", "performance { raft_multiplier = 1 }"],
        &["-hcl", "disable_update_check = true"],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}
