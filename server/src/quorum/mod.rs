//! Fences of scope quorum: their counters live in an etcd cluster.
//!
//! Consensus is not ours. What must outlive this machine is asked of etcd, which keeps it on several; here is what asks.
//! [`options`] says how to reach the cluster, [`cluster`] asks one member at a time and says what became of each question:
//! it was answered, it was certainly not heard, or nobody knows.

pub mod asker;
mod channel;
pub mod cluster;
pub mod codec;
pub mod counters;
pub mod delivery;
mod endpoint;
pub mod options;
pub mod port;
mod positions;
pub mod thread;
mod tls;
mod verdict;

pub(crate) use channel::Channel;
pub use endpoint::Endpoint;
pub(crate) use tls::client_config;
