//! Errors of a call, and reasons for the end of a connection.

/// Result of a call of this dialect.
pub type Result<T> = std::result::Result<T, LocktopusError>;

/// Reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocktopusError {
    /// The address is not valid.
    #[error(
        "cannot use the address {url:?}: {problem}; expected ws://HOST:PORT/v1?namespace=NAME or wss://..."
    )]
    Url {
        /// The address.
        url: String,
        /// Description of the mistake.
        problem: String,
    },
    /// The TLS settings cannot be used.
    #[error("tls: {problem}")]
    Tls {
        /// Description of the file or name that cannot be used.
        problem: String,
    },
    /// The credentials cannot be sent.
    #[error("the credentials have a byte that the header `authorization` cannot have")]
    Credentials,
    /// No server answers there, or it speaks another protocol.
    #[error("cannot reach {url}: {problem}")]
    Connect {
        /// Where the client tried.
        url: String,
        /// What went wrong.
        problem: String,
    },
    /// The server refused the connection.
    #[error("{url} refused the connection with status {status}: {message}")]
    Refused {
        /// Where the client tried.
        url: String,
        /// HTTP status.
        status: u16,
        /// Message of the server; may be empty.
        message: String,
    },
    /// The set of resources is empty.
    #[error("the set of resources is empty")]
    NoResources,
    /// The connection already has a lock or waits for one.
    #[error("this connection already holds a lock or waits for one; release it first")]
    Locked,
    /// The connection has no lock to wait for or to release.
    #[error("this connection holds no lock")]
    NotLocked,
    /// The lock was released while a task waited for it.
    #[error("released before acquired")]
    ReleasedBeforeAcquired,
    /// The connection has ended. If a lock was held, it is lost.
    #[error("the connection has ended: {0}")]
    Closed(CloseReason),
}

/// Reason why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The client closed the connection, or was dropped.
    #[error("closed by the client")]
    ByClient,
    /// The server closed the connection.
    #[error("closed by the server with code {code}")]
    ByServer {
        /// Code of the close frame; 1005 if it had none.
        code: u16,
    },
    /// The server reported an error.
    #[error("communication error: {0}")]
    Communication(String),
    /// The server sent a message that answers no request, so the client closed the connection with code 3000.
    #[error("unexpected message: {0}")]
    Unexpected(String),
    /// The connection broke, or the server stopped responding.
    #[error("connection lost: {0}")]
    Lost(String),
}
