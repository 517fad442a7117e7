//! Headings of `--help`.

pub(crate) const LISTENING: &str = "Listening";
pub(crate) const DURABILITY: &str = "Durability";
pub(crate) const TLS: &str = "TLS";
pub(crate) const ACCESS: &str = "Identities and rights";
pub(crate) const LIMITS: &str = "Limits and performance";
pub(crate) const SET_LIMITS: &str = "Limits of the server";
pub(crate) const LIFECYCLE: &str = "Configuration and shutdown";
pub(crate) const LOG: &str = "Log and audit log";
pub(crate) const TRACES: &str = "Traces";
pub(crate) const CONTRACTS: &str = "Contracts of other lock servers";
pub(crate) const QUORUM: &str = "Scope quorum (fences kept by an etcd cluster)";
