//! gRPC services of one connection. Calls of several identities may use the connection. Each identity gets a set of
//! services of its own, because their lanes (streams of requests to workers) have the rights of one identity.

use super::FrontConfig;
use super::client::{FrontCaller, FrontClient, bearer};
use super::locket::Locket;
use super::rejection::reject;
use super::service_settings::with_length_limit;
use super::v1::{self, V1};
use super::waymaker::Waymaker;
use crate::access::NotIdentified;
use crate::driver::Local;
use crate::limits::GRPC_IDENTITIES_MAX;
use http::HeaderMap;
use std::sync::{Arc, Mutex, PoisonError};
use tonic::Status;
use waymaker_access::Identity;
use waymaker_engine::Counted;
use waymaker_proto::locket::locket_server::LocketServer;
use waymaker_proto::waymaker::waymaker_service_server::WaymakerServiceServer;

/// Lock services for one identity, with lanes of that identity.
#[derive(Debug)]
pub(super) struct Contracts {
    identity: Option<Arc<Identity>>,
    /// Counts the connection against the quota of the identity. All credentials of identities with the same name share
    /// this value, so the connection counts once. `None` without an identity.
    counted: Option<Arc<Counted>>,
    pub(super) waymaker: WaymakerServiceServer<Waymaker>,
    pub(super) locket: LocketServer<Locket>,
    pub(super) v1: V1,
}

impl Contracts {
    /// Returns whether the identity is still valid; true without an identity.
    fn is_current(&self) -> bool {
        self.identity.as_ref().is_none_or(|identity| {
            Local::with(|local| local.node.access.policy().is_current(identity, local.node.unix_seconds()))
        })
    }

    fn new(config: &FrontConfig, caller: FrontCaller, counted: Option<Arc<Counted>>) -> Self {
        let locket = Locket::new(config.locket, Arc::clone(&config.metrics.locket), caller.clone());
        Self {
            waymaker: with_length_limit!(WaymakerServiceServer::new(Waymaker::new(&caller))),
            locket: with_length_limit!(LocketServer::new(locket)),
            v1: V1::new(caller.clone()),
            identity: caller.identity,
            counted,
        }
    }
}

/// Callers of one connection.
pub(super) struct Callers {
    client: FrontClient,
    known: Mutex<KnownCallers>,
}

#[derive(Default)]
struct KnownCallers {
    /// Credentials of the latest call that was identified. While `version` is still the version of the policy, a call
    /// with the same credentials uses the services in `newest` without another identification. Their identity must
    /// still be valid.
    credentials: Box<[u8]>,
    version: u64,
    newest: Option<Arc<Contracts>>,
    /// Services of the identities that have called on this connection, because calls of several identities may
    /// alternate. A new identity removes those that are no longer valid.
    all: Vec<Arc<Contracts>>,
}

impl std::fmt::Debug for Callers {
    /// Formats the callers without their credentials, which are secret.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Callers").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Callers {
    /// Creates the callers of a new connection.
    pub(super) fn new(client: FrontClient) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// Returns the services for the caller with these headers.
    ///
    /// # Errors
    /// Fails if the caller cannot be identified, or if logins of its address are paused. For an identity that is new on
    /// this connection, also fails if the connection has the maximum number of identities, or if the quota of the
    /// identity has no room for the connection.
    pub(super) fn contracts(&self, headers: &HeaderMap) -> Result<Arc<Contracts>, Status> {
        let credentials = bearer(headers);
        let version = Local::with(|local| local.node.access.version());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(newest) = &known.newest
            && known.version == version
            && *known.credentials == *credentials
            && newest.is_current()
        {
            return Ok(Arc::clone(newest));
        }
        let caller = self.client.identify(credentials).map_err(|refusal| match refusal {
            NotIdentified::Unauthenticated { .. } => {
                let message = format!("{refusal}; gRPC metadata: authorization: Bearer TOKEN");
                Status::unauthenticated(message)
            }
            NotIdentified::Paused { retry_ms } => v1::logins_paused(retry_ms, &refusal.to_string()),
        })?;
        let contracts = known.of(caller)?;
        known.credentials = credentials.into();
        known.version = version;
        known.newest = Some(Arc::clone(&contracts));
        Ok(contracts)
    }
}

impl KnownCallers {
    fn of(&mut self, caller: FrontCaller) -> Result<Arc<Contracts>, Status> {
        if let Some(known) = self.all.iter().find(|contracts| contracts.identity == caller.identity) {
            return Ok(Arc::clone(known));
        }
        let name = |identity: &Option<Arc<Identity>>| identity.as_ref().map(|own| Arc::clone(&own.name));
        // Search for the name of the identity before expired identities are removed. If a client has renewed its token,
        // its connection already counts against its quota and must not count twice.
        let same_name = self.all.iter().find(|known| name(&known.identity) == name(&caller.identity));
        let counted = same_name.map(|known| known.counted.clone());
        Local::with(|local| {
            let (policy, now_unix_s) = (local.node.access.policy(), local.node.unix_seconds());
            self.all.retain(|known| {
                known.identity.as_ref().is_none_or(|identity| policy.is_current(identity, now_unix_s))
            });
            if self.all.len() >= GRPC_IDENTITIES_MAX {
                let message = format!(
                    "the connection has {GRPC_IDENTITIES_MAX} identities, the maximum; use another connection"
                );
                return Err(reject("identities per connection", message));
            }
            let counted = match counted {
                Some(counted) => counted,
                None => {
                    let counted = caller.count_connection(local);
                    counted.map_err(|reached| v1::quota_reached(&reached))?.map(Arc::new)
                }
            };
            let contracts = Arc::new(FrontConfig::with(|fronts| Contracts::new(fronts, caller, counted)));
            self.all.push(Arc::clone(&contracts));
            Ok(contracts)
        })
    }
}
