//! Options for the etcd cluster.

use crate::option_values::heading;
use crate::tls::TlsError;
use clap::Args;
use std::fmt;
use std::path::PathBuf;

/// Default of `--quorum-prefix`.
const PREFIX: &str = "waymaker/";

/// Members of the cluster, the prefix of the keys, and how the server authenticates. The server tries endpoints in this
/// order and moves to the next one after a failure.
#[derive(Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = heading::QUORUM)]
pub struct QuorumOptions {
    /// Comma-separated etcd members: http://HOST:PORT, https://HOST:PORT or HOST:PORT (plain HTTP). Without members,
    /// scope quorum is refused [default: none]
    #[arg(
        long = "quorum-endpoints",
        env = "WAYMAKER_QUORUM_ENDPOINTS",
        value_name = "LIST",
        value_delimiter = ','
    )]
    pub endpoints: Vec<String>,
    /// Prefix of all keys in etcd. Servers that use one etcd cluster need different prefixes, or their fences mix
    #[arg(long = "quorum-prefix", env = "WAYMAKER_QUORUM_PREFIX", value_name = "TEXT", default_value = PREFIX)]
    pub prefix: String,
    /// etcd user name; needs --quorum-password [default: none]
    #[arg(long = "quorum-user", env = "WAYMAKER_QUORUM_USER", value_name = "NAME")]
    pub user: Option<String>,
    /// Password of --quorum-user. Other users of the machine can see flags, so set it in the environment or the file
    /// [default: none]
    #[arg(
        long = "quorum-password",
        env = "WAYMAKER_QUORUM_PASSWORD",
        value_name = "TEXT",
        hide_env_values = true
    )]
    pub password: Option<String>,
    /// PEM file with the CA certificates of the etcd members [default: the CAs of the system]
    #[arg(long = "quorum-ca", env = "WAYMAKER_QUORUM_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// PEM file with the client certificate for etcd; needs --quorum-key [default: none]
    #[arg(long = "quorum-cert", env = "WAYMAKER_QUORUM_CERT", value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// PEM file with the private key of --quorum-cert [default: none]
    #[arg(long = "quorum-key", env = "WAYMAKER_QUORUM_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
}

impl QuorumOptions {
    /// Returns these options, or `None` if they name no cluster.
    ///
    /// # Errors
    /// Returns [`QuorumOptionsError::Incomplete`] if other quorum options are set but no members.
    pub fn configured(&self) -> Result<Option<&Self>, QuorumOptionsError> {
        if !self.endpoints.is_empty() {
            return Ok(Some(self));
        }
        let given = [
            ("--quorum-prefix", self.prefix != PREFIX),
            ("--quorum-user", self.user.is_some()),
            ("--quorum-password", self.password.is_some()),
            ("--quorum-ca", self.ca.is_some()),
            ("--quorum-cert", self.cert.is_some()),
            ("--quorum-key", self.key.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((given, _)) => Err(QuorumOptionsError::Incomplete { given, missing: "--quorum-endpoints" }),
            None => Ok(None),
        }
    }
}

impl Default for QuorumOptions {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            prefix: PREFIX.to_owned(),
            user: None,
            password: None,
            ca: None,
            cert: None,
            key: None,
        }
    }
}

/// Omits the password.
impl fmt::Debug for QuorumOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoints, prefix, user, password: _, ca, cert, key } = self;
        let mut debug = formatter.debug_struct("QuorumOptions");
        debug.field("endpoints", endpoints).field("prefix", prefix).field("user", user);
        debug.field("ca", ca).field("cert", cert).field("key", key).finish_non_exhaustive()
    }
}

/// Reasons why the options for the etcd cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum QuorumOptionsError {
    /// The list of members is empty.
    #[error("--quorum-endpoints: the list is empty; name at least one member")]
    NoEndpoint,
    /// An endpoint is not an address.
    #[error(
        "--quorum-endpoints: {endpoint:?} is not an address; use http://HOST:PORT, https://HOST:PORT or HOST:PORT"
    )]
    BadEndpoint {
        /// The given text, without its user and password.
        endpoint: String,
    },
    /// The options name a TLS file, but also a member that is reached without TLS.
    #[error("{option}: the member {endpoint} is reached without TLS; write its address with https://")]
    NotEncrypted {
        /// Option that names the TLS file.
        option: &'static str,
        /// Member without TLS.
        endpoint: String,
    },
    /// An option needs another option that is missing.
    #[error("{given} needs {missing}")]
    Incomplete {
        /// The given option.
        given: &'static str,
        /// The missing option.
        missing: &'static str,
    },
    /// The system has no CA certificates.
    #[error("--quorum-ca: the system has no CA certificates; name a PEM file")]
    NoRoots,
    /// A TLS file cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
