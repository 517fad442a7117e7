//! Asks the cluster, one member at a time.
//!
//! Any member will do: those that do not lead hand on what they are asked. So one connection is kept, to the member that was
//! found last, and any number of questions are in flight over it. Where it fails the next member has its turn. A question
//! that may have been heard is never asked again here: only who asked knows whether that does harm.
//!
//! A connection counts as open once the member has answered something over it. One that is stopped still accepts connections,
//! and what is only then found out would leave the question in doubt.

use super::channel::{Channel, explain};
use super::endpoint::Endpoint;
use super::options::{QuorumOptions, QuorumOptionsError};
use super::verdict::{is_missing_token, is_stale_token, lost, verdict};
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

/// Why there is no answer. All but what is refused may be asked again of this same cluster, which then asks another member;
/// who does should wait a moment, since an election takes a while and is answered at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// It was certainly not applied and will not be: no member heard it, or the one that did could do nothing with it.
    #[error("etcd did not receive the request: {reason}")]
    NotSent {
        /// The member, and why not.
        reason: String,
    },
    /// It may have been applied, or may be later: the answer was lost or did not come in time.
    #[error("the outcome of a request to etcd is unknown: {reason}")]
    Unknown {
        /// The member, and why there is no answer.
        reason: String,
    },
    /// It was not applied, and will be refused again until somebody changes the options or the cluster.
    #[error("etcd refused the request: {reason}")]
    Refused {
        /// The member, and what it says.
        reason: String,
    },
    /// It was not sent: etcd does not accept the user or the password. A retry fails until one of them is changed.
    #[error("etcd rejected the user or the password: {reason}")]
    Unauthenticated {
        /// The member, and what it says.
        reason: String,
    },
}

/// A cluster as this process asks it. Copies are cheap, and share one connection, which lives on the runtime of whoever made
/// it: all have to ask from one.
#[derive(Clone, Debug)]
pub struct Cluster(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    endpoints: Vec<Endpoint>,
    credentials: Option<Credentials>,
    current: Mutex<Current>,
    /// Only one connects; whoever else needs a connection waits for what becomes of it.
    connecting: tokio::sync::Mutex<()>,
}

/// Whom is asked.
#[derive(Debug, Default)]
struct Current {
    /// Of the endpoint.
    index: usize,
    /// Without one the next question connects.
    connection: Option<Arc<Connection>>,
}

/// A member that has answered.
#[derive(Debug)]
struct Connection {
    channel: Channel,
    /// Which endpoint, for messages.
    index: usize,
    /// Who we are, where etcd wants to know.
    token: Option<Token>,
}

/// What etcd knows a user by for a while.
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
    /// Reads the files, and connects to nobody yet.
    ///
    /// # Errors
    /// If an option cannot be used; the error names it.
    pub fn new(options: &QuorumOptions) -> Result<Self, QuorumOptionsError> {
        let incomplete = |given, missing| Err(QuorumOptionsError::Incomplete { given, missing });
        let credentials = match (options.user.clone(), options.password.clone()) {
            (Some(user), Some(password)) => Some(Credentials { user, password }),
            (None, None) => None,
            (Some(_), None) => return incomplete("--quorum-user", "--quorum-password"),
            (None, Some(_)) => return incomplete("--quorum-password", "--quorum-user"),
        };
        let endpoints = Endpoint::all(options)?;
        Ok(Self(Arc::new(Shared {
            endpoints,
            credentials,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })))
    }

    /// One transaction, asked of one member, and not again once it may have been sent.
    ///
    /// # Errors
    /// Says what is known of it, before the time is over.
    pub async fn txn(&self, txn: TxnRequest, timeout: Duration) -> Result<TxnResponse, ClusterError> {
        self.ask(txn, timeout, |mut client, request| async move { client.txn(request).await }).await
    }

    /// Reads, asking one member.
    ///
    /// # Errors
    /// As [`Self::txn`].
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
            // Half of the time, so that whoever does not get through can still ask another member.
            let connection = shared.connection(deadline, timeout / 2).await?;
            let endpoint = &shared.endpoints[connection.index];
            let mut request = addressed(question.clone());
            if let Some(token) = &connection.token {
                request.metadata_mut().insert("token", token.clone());
            }
            let channel = connection.channel.clone();
            let client = KvClient::with_origin(channel.clone(), channel.origin());
            // An answer that is too long for us would be one to a question that was heard.
            let client = client.max_decoding_message_size(usize::MAX);
            let status = match timeout_at(deadline, call(client, request)).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => status,
                Err(_) => {
                    shared.leave(&connection, Next::OtherMember);
                    let reason = format!("{endpoint}: no answer within {timeout:?}");
                    return Err(ClusterError::Unknown { reason });
                }
            };
            // Nothing was done, and the next connection begins with another token. None is missing but where users are asked for
            // only since this one began.
            let needs_token = is_stale_token(&status) || is_missing_token(&status);
            if needs_token && shared.credentials.is_some() && !token_was_renewed {
                token_was_renewed = true;
                shared.leave(&connection, Next::SameMember);
                continue;
            }
            let error = verdict(&status, format!("{endpoint}: {}", status.message()));
            if !matches!(error, ClusterError::Refused { .. }) {
                shared.leave(&connection, Next::OtherMember);
            }
            return Err(error);
        }
    }
}

/// Whom to ask when a connection is given up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    SameMember,
    OtherMember,
}

impl Shared {
    /// The connection that is open, or one that is opened within this time.
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
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        // Nobody else moves it while there is no connection.
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
            // Of a certificate that was not taken the connection alone knows, and not even that if it was reset in a hurry.
            drop(channel);
            let problem = ending.problem().await.unwrap_or_else(|| status.message().to_owned());
            let hint = match &endpoint.encryption {
                Some(encryption) if !encryption.config.client_auth_cert_resolver.has_certs() => {
                    "; the member may require a client certificate (--quorum-cert)"
                }
                _ => "",
            };
            return Err(cannot(&format!("{problem}{hint}")));
        }
        // The question itself was not sent, whatever became of the name.
        match verdict(&status, format!("{endpoint}: cannot authenticate: {}", status.message())) {
            ClusterError::Unknown { reason } => Err(ClusterError::NotSent { reason }),
            ClusterError::Refused { reason } => Err(ClusterError::Unauthenticated { reason }),
            error => Err(error),
        }
    }

    /// Gives a connection up, for those who ask later. Those that are in flight over it go on, and only the first of those that
    /// fail together comes here in time.
    fn leave(&self, connection: &Arc<Connection>, next: Next) {
        let mut current = self.current();
        if current.connection.take_if(|current| Arc::ptr_eq(current, connection)).is_some()
            && next == Next::OtherMember
        {
            current.index = (connection.index + 1) % self.endpoints.len();
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears whether somebody is there, who needs no token.
async fn greet(channel: Channel) -> Result<Option<Token>, Status> {
    let origin = channel.origin();
    match MaintenanceClient::with_origin(channel, origin).status(addressed(StatusRequest {})).await {
        Err(status) if lost(&status).is_some() => Err(status),
        // Whatever else it says, it is there.
        _ => Ok(None),
    }
}

/// A token, unless none is needed: whoever has a name may come in where nobody is asked for one.
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

/// A member that knows no leader refuses this at once, instead of keeping it until there is one or the time is over.
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
