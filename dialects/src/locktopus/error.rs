//! What can go wrong.

/// Short for a result of this dialect.
pub type Result<T> = std::result::Result<T, LocktopusError>;

/// Why a call failed: all that there is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocktopusError {
    /// The address cannot be understood.
    #[error(
        "cannot use the address {url:?}: {problem}; expected ws://HOST:PORT/v1?namespace=NAME or wss://..."
    )]
    Url {
        /// The address.
        url: String,
        /// What is wrong with it.
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
    /// The server wants no such connection.
    #[error("{url} refused the connection with status {status}: {message}")]
    Refused {
        /// Where the client tried.
        url: String,
        /// The status of HTTP.
        status: u16,
        /// What the server said; may be empty.
        message: String,
    },
    /// There is nothing to lock.
    #[error("the set of resources is empty")]
    NoResources,
    /// The connection has a lock already, or waits for one.
    #[error("this connection already holds a lock or waits for one; release it first")]
    Locked,
    /// There is no lock to wait for, or to release.
    #[error("this connection holds no lock")]
    NotLocked,
    /// The lock that was waited for was released.
    #[error("released before acquired")]
    ReleasedBeforeAcquired,
    /// The connection has ended. If a lock was held, it is lost.
    #[error("the connection has ended: {0}")]
    Closed(CloseReason),
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// This client closed it, or was dropped.
    #[error("closed by the client")]
    ByClient,
    /// The server closed it.
    #[error("closed by the server with code {code}")]
    ByServer {
        /// The code of the close frame; 1005 if it had none.
        code: u16,
    },
    /// The server found something wrong, and said what.
    #[error("communication error: {0}")]
    Communication(String),
    /// The server said something that nobody asked for, so it was closed with code 3000.
    #[error("unexpected message: {0}")]
    Unexpected(String),
    /// It broke, or the server is silent.
    #[error("connection lost: {0}")]
    Lost(String),
}
