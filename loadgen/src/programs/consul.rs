//! A cluster of one server of Consul.

use std::path::Path;

use super::go_module::GoModule;

/// The newest that can be built as a dependency. Later ones need modules of their own repository (envoyextensions, troubleshoot)
/// that they replace by folders, and whose published versions could not be verified.
pub(super) const MODULE: GoModule = GoModule { path: "github.com/hashicorp/consul", version: "v1.13.9" };

/// Serves HTTP on the first port; what servers say to each other goes to the other two. Its log is on the disk of this directory.
pub(super) fn arguments(directory: &Path, [http, cluster, gossip]: [u16; 3]) -> Vec<String> {
    let data = directory.join("consul-data").to_string_lossy().into_owned();
    let (http, cluster, gossip) = (http.to_string(), cluster.to_string(), gossip.to_string());
    [
        &["agent", "-server", "-bootstrap-expect=1", "-node=waymaker-loadgen", "-data-dir", &data][..],
        &["-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=warn", "-disable-host-node-id"],
        &["-http-port", &http, "-server-port", &cluster, "-serf-lan-port", &gossip],
        &["-serf-wan-port=-1", "-dns-port=-1", "-grpc-port=-1"],
        // All connections of a load come from one address.
        &["-hcl", "limits { http_max_conns_per_client = 0 }"],
        // As for servers that people use; elsewhere it is slow to notice that it leads.
        &["-hcl", "performance { raft_multiplier = 1 }"],
        &["-hcl", "disable_update_check = true"],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}
