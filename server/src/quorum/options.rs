//! How to reach the cluster.

use crate::tls::TlsError;
use std::fmt;
use std::path::PathBuf;

/// Where the members of the cluster are, and as whom they are asked.
#[derive(Clone, PartialEq, Eq)]
pub struct QuorumOptions {
    /// The members: `http://HOST:PORT`, `https://HOST:PORT`, or `HOST:PORT`, which is the first of them. They are asked in
    /// this order, the next once one has failed.
    pub endpoints: Vec<String>,
    /// What all our keys in etcd begin with.
    pub prefix: String,
    /// The user of etcd, if it is asked as one.
    pub user: Option<String>,
    /// The password of the user.
    pub password: Option<String>,
    /// Who must have signed the certificates of members, in PEM; without it whoever the system believes.
    pub ca: Option<PathBuf>,
    /// The certificate that members are shown, in PEM.
    pub cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    pub key: Option<PathBuf>,
}

impl Default for QuorumOptions {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            prefix: "waymaker/".to_owned(),
            user: None,
            password: None,
            ca: None,
            cert: None,
            key: None,
        }
    }
}

/// Without the password.
impl fmt::Debug for QuorumOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoints, prefix, user, password: _, ca, cert, key } = self;
        let mut debug = formatter.debug_struct("QuorumOptions");
        debug.field("endpoints", endpoints).field("prefix", prefix).field("user", user);
        debug.field("ca", ca).field("cert", cert).field("key", key).finish_non_exhaustive()
    }
}

/// Why the options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum QuorumOptionsError {
    /// No member is named.
    #[error("quorum.endpoints: at least one member has to be named")]
    NoEndpoint,
    /// What should name a member does not.
    #[error("quorum.endpoints: {endpoint:?} is none of http://HOST:PORT, https://HOST:PORT and HOST:PORT")]
    BadEndpoint {
        /// What it is.
        endpoint: String,
    },
    /// Files of TLS for a member that is reached without it.
    #[error("{option}: {endpoint} is reached without TLS; it would begin with https://")]
    NotEncrypted {
        /// What was given.
        option: &'static str,
        /// The member.
        endpoint: String,
    },
    /// An option that does nothing without another.
    #[error("{given}: needs {missing} too")]
    Incomplete {
        /// What was given.
        given: &'static str,
        /// What was not.
        missing: &'static str,
    },
    /// The system believes nobody.
    #[error("quorum.ca: the system has no CA certificates, so a file is needed")]
    NoRoots,
    /// A file of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
