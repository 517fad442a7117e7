//! Requests to the cluster, sent to one member at a time.
//!
//! Any voting member can serve a request: followers forward it to the leader. The server therefore keeps one connection
//! to the last working member, with any number of requests in flight. If that member fails, the server moves to the
//! next one. This module never repeats a request that may have been applied: only the caller knows whether a repetition
//! is safe.
//!
//! A connection counts as open after the member has answered a first request on it. If the process of a member is
//! suspended, its system still accepts TCP connections. If only the caller's request discovered such a member, the
//! outcome of that request would be unknown.

use super::endpoint::endpoints;
use super::options::{QuorumOptions, QuorumOptionsError};
use super::verdict::{is_missing_token, is_stale_token, lost, verdict};
use crate::peer::{Channel, Endpoint, explain};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Response, Status};
use waymaker_proto::etcd::etcdserverpb::auth_client::AuthClient;
use waymaker_proto::etcd::etcdserverpb::kv_client::KvClient;
use waymaker_proto::etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use waymaker_proto::etcd::etcdserverpb::{
    AuthenticateRequest, RangeRequest, RangeResponse, StatusRequest, TxnRequest, TxnResponse,
};

/// Reasons why a request has no response. A retry can help after `NotSent` and, if a repetition is safe, after
/// `Unknown`; the retry usually goes to the next member. The caller should pause before the retry. During an election
/// members refuse requests immediately.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// The request was certainly not applied and never will be. No member received it, or the member refused it before
    /// processing it.
    #[error("etcd did not receive the request: {reason}")]
    NotSent {
        /// Member and cause.
        reason: String,
    },
    /// The request may have been applied, or may be applied later. Its response was lost or did not arrive in time.
    #[error("the outcome of a request to etcd is unknown: {reason}")]
    Unknown {
        /// Member and cause.
        reason: String,
    },
    /// The request was not applied. The same request fails again until an operator changes the options or the cluster.
    #[error("etcd refused the request: {reason}")]
    Refused {
        /// Member and its message.
        reason: String,
    },
    /// The request was not sent: etcd refused the authentication, usually because the user or the password is wrong. A
    /// retry fails until an operator corrects the cause.
    #[error("etcd rejected the user or the password: {reason}")]
    Unauthenticated {
        /// Member and its message.
        reason: String,
    },
}

/// A client of the etcd cluster that counts the fences of claims with scope quorum. Clones are cheap and share one
/// connection. All clones must be used on the same runtime, which drives the connection.
#[derive(Clone, Debug)]
pub struct Cluster(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    endpoints: Vec<Endpoint>,
    credentials: Option<Credentials>,
    current: Mutex<CurrentMember>,
    /// Lock of the only task that connects; other tasks wait for its result.
    connecting: tokio::sync::Mutex<()>,
}

/// The member in use.
#[derive(Debug, Default)]
struct CurrentMember {
    /// Index of its endpoint.
    index: usize,
    /// Open connection. Without one, the next request connects.
    connection: Option<Arc<Connection>>,
}

/// An open connection to a member that has answered.
#[derive(Debug)]
struct Connection {
    channel: Channel,
    /// Index of the endpoint, for messages.
    index: usize,
    /// Authentication token, if the options have a user and etcd requires authentication.
    token: Option<Token>,
}

/// A token that etcd issues to a user for a limited time.
type Token = MetadataValue<Ascii>;

struct Credentials {
    user: String,
    password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Checks the options, and reads the TLS files if a member is reached with TLS. Does not connect yet.
    ///
    /// # Errors
    /// Returns an error about the first option found that cannot be used.
    pub fn new(options: &QuorumOptions) -> Result<Self, QuorumOptionsError> {
        let incomplete = |given, missing| Err(QuorumOptionsError::Incomplete { given, missing });
        let credentials = match (options.user.clone(), options.password.clone()) {
            (Some(user), Some(password)) => Some(Credentials { user, password }),
            (None, None) => None,
            (Some(_), None) => return incomplete("--quorum-user", "--quorum-password"),
            (None, Some(_)) => return incomplete("--quorum-password", "--quorum-user"),
        };
        let endpoints = endpoints(options)?;
        Ok(Self(Arc::new(Shared {
            endpoints,
            credentials,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })))
    }

    /// Sends a transaction to one member. Does not repeat it if it may have been applied.
    ///
    /// # Errors
    /// Returns whether the transaction may have been applied, at the latest after `timeout`.
    ///
    /// # Cancel safety
    /// If the future is dropped, the outcome of the transaction is unknown: it may still be applied.
    pub async fn txn(&self, txn: TxnRequest, timeout: Duration) -> Result<TxnResponse, ClusterError> {
        self.ask(txn, timeout, |mut client, request| async move { client.txn(request).await }).await
    }

    /// Reads from one member.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::txn`].
    ///
    /// # Cancel safety
    /// The future can be dropped at any time, because a read changes nothing.
    pub async fn range(&self, range: RangeRequest, timeout: Duration) -> Result<RangeResponse, ClusterError> {
        self.ask(range, timeout, |mut client, request| async move { client.range(request).await }).await
    }

    async fn ask<Q: Clone, A, F: Future<Output = Result<Response<A>, Status>>>(
        &self,
        question: Q,
        timeout: Duration,
        call: impl Fn(KvClient<Channel>, Request<Q>) -> F,
    ) -> Result<A, ClusterError> {
        let shared = &*self.0;
        let deadline = Instant::now() + timeout;
        let mut token_was_renewed = false;
        loop {
            // Connecting may take at most half of the timeout, so that the caller has time to try another member.
            let connection = shared.connection(deadline, timeout / 2).await?;
            let endpoint = &shared.endpoints[connection.index];
            let mut request = addressed(question.clone());
            if let Some(token) = &connection.token {
                request.metadata_mut().insert("token", token.clone());
            }
            let channel = connection.channel.clone();
            let client = KvClient::with_origin(channel.clone(), channel.origin());
            // No limit on responses: a response above the limit would fail a request that the member has already
            // applied.
            let client = client.max_decoding_message_size(usize::MAX);
            let status = match timeout_at(deadline, call(client, request)).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => status,
                Err(_) => {
                    shared.leave(&connection, NextMember::OtherMember);
                    let reason = format!("{endpoint}: no answer within {timeout:?}");
                    return Err(ClusterError::Unknown { reason });
                }
            };
            // A member that rejects the token, or the lack of one, has done nothing for the request. The next
            // connection gets a new token. A missing token means that authentication was enabled after this connection
            // opened.
            let needs_token = is_stale_token(&status) || is_missing_token(&status);
            if needs_token && shared.credentials.is_some() && !token_was_renewed {
                token_was_renewed = true;
                shared.leave(&connection, NextMember::SameMember);
                continue;
            }
            let error = verdict(&status, format!("{endpoint}: {}", status.message()));
            if !matches!(error, ClusterError::Refused { .. }) {
                shared.leave(&connection, NextMember::OtherMember);
            }
            return Err(error);
        }
    }
}

/// The member to use after a connection is given up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextMember {
    SameMember,
    OtherMember,
}

impl Shared {
    /// Returns the open connection, or opens one within `connect_time_max`. If another task already opens one, waits
    /// for it until `deadline`.
    async fn connection(
        &self,
        deadline: Instant,
        connect_time_max: Duration,
    ) -> Result<Arc<Connection>, ClusterError> {
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        let Ok(_alone) = timeout_at(deadline, self.connecting.lock()).await else {
            let reason = "could not connect to a member in time".to_owned();
            return Err(ClusterError::NotSent { reason });
        };
        // Another task may have connected while this one waited for the lock.
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        // `index` cannot change now: only the holder of `connecting` changes it while there is no connection.
        let index = self.current().index;
        let endpoint = &self.endpoints[index];
        let opened = timeout_at(deadline.min(Instant::now() + connect_time_max), self.open(index)).await;
        let error = match opened {
            Ok(Ok(connection)) => {
                let connection = Arc::new(connection);
                self.current().connection = Some(Arc::clone(&connection));
                return Ok(connection);
            }
            Ok(Err(error)) => error,
            Err(_) => ClusterError::NotSent { reason: format!("{endpoint}: cannot connect: no answer") },
        };
        self.current().index = (index + 1) % self.endpoints.len();
        Err(error)
    }

    fn usable(&self) -> Option<Arc<Connection>> {
        let mut current = self.current();
        current.connection.take_if(|connection| connection.channel.is_closed());
        current.connection.clone()
    }

    async fn open(&self, index: usize) -> Result<Connection, ClusterError> {
        let endpoint = &self.endpoints[index];
        let cannot =
            |reason: &str| ClusterError::NotSent { reason: format!("{endpoint}: cannot connect: {reason}") };
        let (channel, ending) = Channel::open(endpoint).await.map_err(|error| cannot(&explain(&error)))?;
        let token = match &self.credentials {
            None => greet(channel.clone()).await,
            Some(credentials) => authenticate(channel.clone(), credentials).await,
        };
        let status = match token {
            Ok(token) => return Ok(Connection { channel, index, token }),
            Err(status) => status,
        };
        if lost(&status).is_some() {
            // If the member rejects the client certificate, only the error of the TLS connection says so, not the gRPC
            // status of the first request. So use the error of the connection. Even that error is missing if the member
            // reset the connection at once; then use the status.
            drop(channel);
            let problem = ending.problem().await.unwrap_or_else(|| status.message().to_owned());
            let hint = if endpoint.lacks_certificate() {
                "; the member may require a client certificate (--quorum-cert)"
            } else {
                ""
            };
            return Err(cannot(&format!("{problem}{hint}")));
        }
        // Only the authentication was sent, not the caller's request. So the request was certainly not applied,
        // whatever the outcome of the authentication.
        match verdict(&status, format!("{endpoint}: cannot authenticate: {}", status.message())) {
            ClusterError::Unknown { reason } => Err(ClusterError::NotSent { reason }),
            ClusterError::Refused { reason } => Err(ClusterError::Unauthenticated { reason }),
            error => Err(error),
        }
    }

    /// Gives up a connection for later requests; requests in flight continue. If several requests fail together, only
    /// the first one changes the member.
    fn leave(&self, connection: &Arc<Connection>, next: NextMember) {
        let mut current = self.current();
        if current.connection.take_if(|current| Arc::ptr_eq(current, connection)).is_some()
            && next == NextMember::OtherMember
        {
            current.index = (connection.index + 1) % self.endpoints.len();
        }
    }

    fn current(&self) -> MutexGuard<'_, CurrentMember> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that the member answers. Used instead of `authenticate` if the options have no user.
async fn greet(channel: Channel) -> Result<Option<Token>, Status> {
    let origin = channel.origin();
    match MaintenanceClient::with_origin(channel, origin).status(addressed(StatusRequest {})).await {
        Err(status) if lost(&status).is_some() => Err(status),
        // Any response to this status request, even an error, shows that the member is running. Only a lost connection
        // does not.
        _ => Ok(None),
    }
}

/// Returns a token, or `None` if the cluster has authentication disabled and needs no token.
async fn authenticate(channel: Channel, credentials: &Credentials) -> Result<Option<Token>, Status> {
    let origin = channel.origin();
    let Credentials { user, password } = credentials;
    let asked = AuthenticateRequest { name: user.clone(), password: password.clone() };
    match AuthClient::with_origin(channel, origin).authenticate(addressed(asked)).await {
        Ok(answer) => {
            let token = Token::try_from(answer.into_inner().token);
            token.map(Some).map_err(|_| {
                Status::internal("the authentication token of etcd is not a valid HTTP header value")
            })
        }
        Err(status) if is_not_enabled(&status) => Ok(None),
        Err(status) => Err(status),
    }
}

/// Returns a request that a member refuses at once if it knows no leader. Without the header `hasleader` the member
/// would hold the request until it has a leader or the time is over.
fn addressed<Q>(question: Q) -> Request<Q> {
    let mut request = Request::new(question);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

fn is_not_enabled(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition && status.message().contains("authentication is not enabled")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_user_needs_a_password_and_the_password_is_not_shown() {
        let endpoints = vec!["127.0.0.1:2379".to_owned()];
        let [user, password] = ["waymaker", "secret"].map(str::to_owned);
        for (user, password, expected) in [
            (Some(user.clone()), None, "--quorum-user needs --quorum-password"),
            (None, Some(password.clone()), "--quorum-password needs --quorum-user"),
        ] {
            let options =
                QuorumOptions { endpoints: endpoints.clone(), user, password, ..Default::default() };
            assert_eq!(Cluster::new(&options).unwrap_err().to_string(), expected);
        }
        let options =
            QuorumOptions { endpoints, user: Some(user), password: Some(password), ..Default::default() };
        let shown = format!("{options:?} {:?}", Cluster::new(&options).unwrap());
        assert!(shown.contains("waymaker") && !shown.contains("secret"), "{shown}");
    }
}
