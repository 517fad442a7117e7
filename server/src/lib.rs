//! The Waymaker server.
//!
//! [`worker`] has the logic of one worker without any I/O. [`driver`] runs it on tokio, with one thread and one runtime
//! per worker. [`node`] has the state that the workers share. The crate `waymaker-protocol` encodes the binary
//! protocol, and `waymaker-engine` implements the locks; this crate connects them.

pub mod access;
pub mod audit;
mod chars;
pub mod clock;
mod creatable;
pub mod data_dir;
pub mod deferred;
pub mod delivery;
pub mod driver;
pub mod edge;
pub mod expiries;
mod file_identity;
pub mod front;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod limit_options;
pub mod limits;
pub mod log;
pub mod mail;
pub mod maximum;
pub mod memory;
mod metrics;
pub mod milliseconds;
pub mod namespaces;
mod network;
pub mod node;
mod option_values;
pub mod options;
pub mod peer;
pub mod port;
pub mod quorum;
pub mod readiness;
pub mod recovery;
pub mod reload;
pub mod reloader;
pub mod server;
pub mod supervisor;
pub mod tls;
pub mod traces;
pub mod unix_time;
pub mod worker;
