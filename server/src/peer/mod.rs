//! Servers to which this server connects over HTTP/2: members of an etcd cluster, and a collector of spans.

mod channel;
mod endpoint;
mod tls;

pub(crate) use channel::{Channel, LostConnection, explain};
pub use endpoint::Endpoint;
pub(crate) use tls::{client_config, system_roots};
