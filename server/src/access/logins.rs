//! The limit of failed logins per source address, shared by all workers.

use super::back_off::BackOff;
use super::evidence::Evidence;
use crate::audit::{Act, Audit, AuditEvent, Caller, Detail};
use crate::maximum::Maximum;
use crate::network::Network;
use crate::option_values::heading;
use clap::Args;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use waymaker_engine::Time;
use waymaker_protocol::ErrorCode;

/// Limit of failed logins per source address. A login is an attempt to identify with credentials.
/// `LoginLimits::default()` sets no limit, but the command-line option has a limit by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct LoginLimits {
    /// Failed logins of one source address within a second after which the server refuses its credentials for a while,
    /// or `none`. The pause is 1 s at first, and doubles up to 60 s until no login of the address has failed for 10
    /// minutes
    #[arg(
        long = "failed-logins-per-second",
        env = "WAYMAKER_FAILED_LOGINS_PER_SECOND",
        value_name = "N",
        default_value = "5",
        allow_hyphen_values = true,
        help_heading = heading::LIMITS
    )]
    pub failed_per_second: Maximum,
    /// Whether the limit also applies to loopback addresses.
    #[arg(skip)]
    pub include_loopback: bool,
}

/// A pause that has just started after failed logins of a source address. Until the pause ends, the server refuses the
/// logins of the address, except requests with a valid signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    network: Network,
    len_ms: u64,
}

impl Pause {
    /// Returns the audit event of this pause. `caller` is the client whose login failed.
    pub(crate) fn event(self, caller: Caller) -> AuditEvent {
        let details = vec![
            ("network", Detail::Text(self.network.to_string())),
            ("pause_ms", Detail::Number(self.len_ms)),
        ];
        AuditEvent { details, ..AuditEvent::new(Act::PauseLogins, caller) }
    }
}

/// Writes a failed login to the audit log. If the failure started a pause of the client's address, writes the pause
/// first.
pub(crate) fn audit_failed_login(audit: &Audit, caller: Caller, reason: String, pause: Option<Pause>) {
    let pause = pause.map(|pause| pause.event(caller.clone()));
    let event = AuditEvent::refused(Act::Authenticate, caller, ErrorCode::Unauthorized.name(), reason);
    pause.iter().chain([&event]).for_each(|event| audit.record(event));
}

/// Failed logins of all source addresses.
#[derive(Debug)]
pub(super) struct Logins {
    include_loopback: bool,
    /// Failed logins and pauses of addresses; `None` without a limit.
    back_off: Option<Mutex<BackOff>>,
    /// Latest end of any pause, in milliseconds; 0 before the first pause. At and after that time no address is paused,
    /// so the server then admits a login without locking the failed logins.
    pauses_end_ms: AtomicU64,
    failed_count: AtomicU64,
    refused_count: AtomicU64,
}

impl Logins {
    pub(super) fn new(limits: LoginLimits) -> Self {
        Self {
            include_loopback: limits.include_loopback,
            back_off: limits.failed_per_second.get().map(|count| Mutex::new(BackOff::new(count))),
            pauses_end_ms: AtomicU64::new(0),
            failed_count: AtomicU64::new(0),
            refused_count: AtomicU64::new(0),
        }
    }

    /// Admits a login, unless the address of the client is paused. Counts a refused login.
    ///
    /// # Errors
    /// Returns the remaining pause of the address, in milliseconds.
    pub(super) fn admit(&self, evidence: &Evidence, now: Time) -> Result<(), u64> {
        if now.as_millis() >= self.pauses_end_ms.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some((back_off, network)) = self.of(evidence) else { return Ok(()) };
        match back_off.pause_left_ms(network, now) {
            0 => Ok(()),
            left_ms => {
                self.refused_count.fetch_add(1, Ordering::Relaxed);
                Err(left_ms)
            }
        }
    }

    /// Counts a failed login. If the client's source address had too many failures, starts a pause of the address and
    /// returns it. Clients of Unix sockets, and loopback addresses without `include_loopback`, are never paused.
    pub(super) fn note_failure(&self, evidence: &Evidence, now: Time) -> Option<Pause> {
        self.failed_count.fetch_add(1, Ordering::Relaxed);
        let (mut back_off, network) = self.of(evidence)?;
        let len_ms = back_off.note_failure(network, now)?;
        self.pauses_end_ms.fetch_max(now.after_ms(len_ms).as_millis(), Ordering::Release);
        Some(Pause { network, len_ms })
    }

    /// Returns the number of failed logins, without those that were refused during a pause.
    pub(super) fn failed_count(&self) -> u64 {
        self.failed_count.load(Ordering::Relaxed)
    }

    /// Returns the number of logins that were refused because their address was paused.
    pub(super) fn refused_count(&self) -> u64 {
        self.refused_count.load(Ordering::Relaxed)
    }

    /// Locks the failed logins of all addresses. Returns them with the network of a client, or `None` if the client has
    /// no limit.
    fn of(&self, evidence: &Evidence) -> Option<(MutexGuard<'_, BackOff>, Network)> {
        let back_off = self.back_off.as_ref()?;
        let network = Network::with_limits(evidence.address?, self.include_loopback)?;
        Some((back_off.lock().unwrap_or_else(PoisonError::into_inner), network))
    }
}

impl Default for Logins {
    fn default() -> Self {
        Self::new(LoginLimits::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn from(address: &str) -> Evidence {
        Evidence { address: Some(address.parse().unwrap()), ..Evidence::default() }
    }

    #[test]
    fn an_address_without_a_pause_needs_no_lock() {
        let logins = Logins::new(LoginLimits { failed_per_second: Maximum::new(2), include_loopback: false });
        assert_eq!(logins.note_failure(&from("192.0.2.1"), ms(1_000)), None);
        let locked = logins.back_off.as_ref().unwrap().lock().unwrap();
        // The test holds the lock on the failed logins, so `admit` would block for ever if it took the lock.
        assert_eq!(logins.admit(&from("192.0.2.1"), ms(1_000)), Ok(()));
        assert_eq!(logins.admit(&from("192.0.2.2"), ms(1_000)), Ok(()));
        drop(locked);
        assert!(logins.note_failure(&from("192.0.2.1"), ms(1_000)).is_some());
        assert_eq!(logins.admit(&from("192.0.2.1"), ms(1_500)), Err(500));
        assert_eq!(logins.admit(&from("192.0.2.2"), ms(1_500)), Ok(()));
        let _locked = logins.back_off.as_ref().unwrap().lock().unwrap();
        assert_eq!(logins.admit(&from("192.0.2.1"), ms(2_000)), Ok(()));
        assert_eq!((logins.failed_count(), logins.refused_count()), (2, 1));
    }

    #[test]
    fn loopback_unix_sockets_and_a_server_without_the_limit_have_no_pauses() {
        let is_paused = |failed_per_second, include_loopback, evidence: &Evidence| {
            let logins = Logins::new(LoginLimits { failed_per_second, include_loopback });
            let began = logins.note_failure(evidence, ms(1)).is_some();
            assert_eq!(logins.admit(evidence, ms(1)).is_err(), began);
            assert_eq!(logins.failed_count(), 1);
            began
        };
        let one = Maximum::new(1);
        assert!(is_paused(one, false, &from("192.0.2.1")));
        assert!(!is_paused(one, false, &from("127.0.0.1")));
        assert!(is_paused(one, true, &from("127.0.0.1")));
        assert!(!is_paused(one, true, &Evidence { uid: Some(0), ..Evidence::default() }));
        assert!(!is_paused(Maximum::NONE, true, &from("192.0.2.1")));
    }

    #[test]
    fn a_pause_is_audited_with_its_network_and_its_length() {
        let logins = Logins::new(LoginLimits { failed_per_second: Maximum::new(1), include_loopback: false });
        let pause = logins.note_failure(&from("2001:db8::1"), ms(1)).unwrap();
        assert_eq!(
            pause.event(Caller::default()).to_string(),
            "pause-logins result=done network=\"2001:db8::/64\" pause_ms=1000"
        );
    }
}
