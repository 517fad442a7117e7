//! How to reach the cluster.

use crate::tls::TlsError;
use clap::Args;
use serde::Deserialize;
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

/// The same as flags, and as the part `[quorum]` of a file.
#[derive(Clone, Default, Args, Deserialize)]
#[command(next_help_heading = "Scope quorum (fences kept by an etcd cluster)")]
#[serde(deny_unknown_fields)]
pub struct QuorumFlags {
    /// Comma-separated etcd members: http://HOST:PORT, https://HOST:PORT or HOST:PORT (plain HTTP). Without members,
    /// scope quorum is refused [default: none]
    #[arg(
        long = "quorum-endpoints",
        env = "WAYMAKER_QUORUM_ENDPOINTS",
        value_name = "LIST",
        value_delimiter = ','
    )]
    endpoints: Option<Vec<String>>,
    /// Prefix of all keys in etcd. Servers that use one etcd cluster need different prefixes, or their fences mix
    /// [default: waymaker/]
    #[arg(long = "quorum-prefix", env = "WAYMAKER_QUORUM_PREFIX", value_name = "TEXT")]
    prefix: Option<String>,
    /// etcd user name; needs --quorum-password [default: none]
    #[arg(long = "quorum-user", env = "WAYMAKER_QUORUM_USER", value_name = "NAME")]
    user: Option<String>,
    /// Password of --quorum-user. Other users of the machine can see flags, so set it in the environment or the file
    /// [default: none]
    #[arg(
        long = "quorum-password",
        env = "WAYMAKER_QUORUM_PASSWORD",
        value_name = "TEXT",
        hide_env_values = true
    )]
    password: Option<String>,
    /// PEM file with the CA certificates of the etcd members [default: the CAs of the system]
    #[arg(long = "quorum-ca", env = "WAYMAKER_QUORUM_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file with the client certificate for etcd; needs --quorum-key [default: none]
    #[arg(long = "quorum-cert", env = "WAYMAKER_QUORUM_CERT", value_name = "FILE")]
    cert: Option<PathBuf>,
    /// PEM file with the private key of --quorum-cert [default: none]
    #[arg(long = "quorum-key", env = "WAYMAKER_QUORUM_KEY", value_name = "FILE")]
    key: Option<PathBuf>,
}

impl QuorumFlags {
    /// These, completed by those of the file. `None`: there is no cluster.
    ///
    /// # Errors
    /// If there are others than the members, and no members.
    pub fn resolve(self, file: Self) -> Result<Option<QuorumOptions>, QuorumOptionsError> {
        let endpoints = self.endpoints.or(file.endpoints);
        let (prefix, user) = (self.prefix.or(file.prefix), self.user.or(file.user));
        let password = self.password.or(file.password);
        let (ca, cert, key) = (self.ca.or(file.ca), self.cert.or(file.cert), self.key.or(file.key));
        let given = [
            ("--quorum-prefix", prefix.is_some()),
            ("--quorum-user", user.is_some()),
            ("--quorum-password", password.is_some()),
            ("--quorum-ca", ca.is_some()),
            ("--quorum-cert", cert.is_some()),
            ("--quorum-key", key.is_some()),
        ];
        let Some(endpoints) = endpoints else {
            return match given.into_iter().find(|(_, is_given)| *is_given) {
                Some((given, _)) => {
                    Err(QuorumOptionsError::Incomplete { given, missing: "--quorum-endpoints" })
                }
                None => Ok(None),
            };
        };
        let prefix = prefix.unwrap_or_else(|| QuorumOptions::default().prefix);
        Ok(Some(QuorumOptions { endpoints, prefix, user, password, ca, cert, key }))
    }
}

/// Without the password.
impl fmt::Debug for QuorumFlags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("QuorumFlags").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
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
    #[error("--quorum-endpoints: the list is empty; name at least one member")]
    NoEndpoint,
    /// What should name a member does not.
    #[error(
        "--quorum-endpoints: {endpoint:?} is not an address; use http://HOST:PORT, https://HOST:PORT or HOST:PORT"
    )]
    BadEndpoint {
        /// What it is.
        endpoint: String,
    },
    /// Files of TLS for a member that is reached without it.
    #[error("{option}: the member {endpoint} is reached without TLS; write its address with https://")]
    NotEncrypted {
        /// What was given.
        option: &'static str,
        /// The member.
        endpoint: String,
    },
    /// An option that does nothing without another.
    #[error("{given} needs {missing}")]
    Incomplete {
        /// What was given.
        given: &'static str,
        /// What was not.
        missing: &'static str,
    },
    /// The system believes nobody.
    #[error("--quorum-ca: the system has no CA certificates; name a PEM file")]
    NoRoots,
    /// A file of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
