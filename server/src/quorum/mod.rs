//! Fences of scope quorum, whose counters are in an etcd cluster.
//!
//! The server has no consensus of its own. These counters must survive the loss of this machine, so they are stored in
//! etcd, which replicates them. [`options`] has the addresses of the cluster. [`cluster`] sends each request to one
//! member and reports its outcome: answered, certainly not applied, or unknown.

pub mod cluster;
pub mod codec;
pub mod counters;
mod endpoint;
pub mod options;
pub mod port;
mod positions;
pub mod requester;
pub mod thread;
mod tls;
mod verdict;
