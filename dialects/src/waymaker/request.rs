//! Requests, with the names of the contract.

use std::time::Duration;

use waymaker_client::FenceScope;
use waymaker_client::internal::scope_number;
use waymaker_proto::waymaker as contract;

/// Request of `Lock` and `ReadLock`. The contract defines the defaults: no wait, the lease of the server (30 seconds),
/// priority 0, no requester, and an ephemeral fence.
#[derive(Clone, Debug)]
#[must_use]
pub struct LockRequest(pub(super) contract::LockRequest);

/// Request of `MultiLock`: keys to write or to read, acquired in one step.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct MultiLockRequest(pub(super) contract::MultiLockRequest);

impl LockRequest {
    /// Creates a request for this key, of 1 to 1024 bytes.
    pub fn new(key: impl Into<String>) -> Self {
        Self(contract::LockRequest { key: key.into(), ..Default::default() })
    }
}

impl MultiLockRequest {
    /// Creates a request without keys, which the server refuses.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key with an exclusive lock.
    pub fn write_lock(self, key: impl Into<String>) -> Self {
        self.key(key.into(), true)
    }

    /// Adds a key with a lock that is shared with other readers.
    pub fn read_lock(self, key: impl Into<String>) -> Self {
        self.key(key.into(), false)
    }

    fn key(mut self, key: String, write_lock: bool) -> Self {
        self.0.keys.push(contract::MultiLockKey { key, write_lock });
        self
    }
}

/// Defines the settings of both requests.
macro_rules! settings {
    ($request:ty) => {
        impl $request {
            /// Sets the maximum wait for the grant, in whole milliseconds. Zero is a try.
            pub fn max_wait_period(mut self, period: Duration) -> Self {
                self.0.max_wait_period = milliseconds(period);
                self
            }

            /// Sets the length of the lease, in whole milliseconds, unless it is extended. Zero selects the default of the
            /// server.
            pub fn max_lease_period(mut self, period: Duration) -> Self {
                self.0.max_lease_period = milliseconds(period);
                self
            }

            /// Sets the priority. Waiters with a larger one are served earlier. It never takes a lock from a holder.
            pub fn priority(mut self, priority: u32) -> Self {
                self.0.priority = priority;
                self
            }

            /// Sets a description of the requester, for people.
            pub fn requester_info(mut self, info: impl Into<String>) -> Self {
                self.0.requester_info = info.into();
                self
            }

            /// Sets the application of the requester. Each application has its own request ids.
            pub fn requester_application(mut self, application: impl Into<String>) -> Self {
                self.0.requester_application = application.into();
                self
            }

            /// Sets the id of one logical acquire. A repeated request, even of another process, finds the same lock.
            pub fn request_id(mut self, id: impl Into<String>) -> Self {
                self.0.request_id = id.into();
                self
            }

            /// Sets the durability of the fence token.
            pub fn fence_scope(mut self, scope: FenceScope) -> Self {
                // The contract numbers the scopes as the binary protocol does.
                self.0.fence_scope = scope_number(scope).into();
                self
            }
        }
    };
}

settings!(LockRequest);
settings!(MultiLockRequest);

/// Converts a duration to milliseconds of the contract: rounds up, and limits a long duration to the maximum.
pub(super) fn milliseconds(period: Duration) -> u32 {
    u32::try_from(period.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_round_up_to_whole_milliseconds() {
        for (period, ms) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(7), 7),
            (Duration::MAX, u32::MAX),
        ] {
            assert_eq!(milliseconds(period), ms);
        }
    }

    #[test]
    fn a_fence_scope_gets_its_number_of_the_contract() {
        for (scope, expected) in [
            (FenceScope::Ephemeral, contract::FenceScope::ScopeEphemeral),
            (FenceScope::Local, contract::FenceScope::ScopeLocal),
            (FenceScope::Quorum, contract::FenceScope::ScopeQuorum),
        ] {
            assert_eq!(LockRequest::new("k").fence_scope(scope).0.fence_scope(), expected);
        }
    }
}
