//! What is asked for, under the contract's names.

use std::time::Duration;

use waymaker_client::FenceScope;
use waymaker_client::internal::scope_number;
use waymaker_proto::waymaker as contract;

/// What `Lock` and `ReadLock` are asked. Whatever is not set is as the contract has it: no wait, the server's lease (30
/// seconds), priority 0, no requester, an ephemeral fence.
#[derive(Clone, Debug)]
#[must_use]
pub struct LockRequest(pub(super) contract::LockRequest);

/// What `MultiLock` is asked: keys, each to be written or read, all in one step or none.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct MultiLockRequest(pub(super) contract::MultiLockRequest);

impl LockRequest {
    /// For this key, of 1 to 1024 bytes.
    pub fn new(key: impl Into<String>) -> Self {
        Self(contract::LockRequest { key: key.into(), ..Default::default() })
    }
}

impl MultiLockRequest {
    /// Without keys, which is refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more key, for this alone.
    pub fn write_lock(self, key: impl Into<String>) -> Self {
        self.key(key.into(), true)
    }

    /// One more key, together with other readers.
    pub fn read_lock(self, key: impl Into<String>) -> Self {
        self.key(key.into(), false)
    }

    fn key(mut self, key: String, write_lock: bool) -> Self {
        self.0.keys.push(contract::MultiLockKey { key, write_lock });
        self
    }
}

/// The settings that both have.
macro_rules! settings {
    ($request:ty) => {
        impl $request {
            /// How long to wait for the grant at most, in whole milliseconds. Zero is a try.
            pub fn max_wait_period(mut self, period: Duration) -> Self {
                self.0.max_wait_period = milliseconds(period);
                self
            }

            /// How long to hold it at most, unless the lease is extended, in whole milliseconds. Zero leaves it to the
            /// server.
            pub fn max_lease_period(mut self, period: Duration) -> Self {
                self.0.max_lease_period = milliseconds(period);
                self
            }

            /// The larger, the earlier. It never takes a lock from a holder.
            pub fn priority(mut self, priority: u32) -> Self {
                self.0.priority = priority;
                self
            }

            /// For people: who asks.
            pub fn requester_info(mut self, info: impl Into<String>) -> Self {
                self.0.requester_info = info.into();
                self
            }

            /// Which application asks; request ids are its own.
            pub fn requester_application(mut self, application: impl Into<String>) -> Self {
                self.0.requester_application = application.into();
                self
            }

            /// Names one logical acquire, so that whoever repeats it, even another process, finds what it got.
            pub fn request_id(mut self, id: impl Into<String>) -> Self {
                self.0.request_id = id.into();
                self
            }

            /// How durable the fence token must be.
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

/// As the contract counts: what is not zero stays so, and what is too long is cut.
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
