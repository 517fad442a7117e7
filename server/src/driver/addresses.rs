//! Limits per source address, which decide whether a new connection is admitted.
//!
//! [`Addresses`] decides without I/O and without a clock. An [`Admission`] counts one connection for its address until
//! it is dropped, and moves with the connection between workers.
//!
//! Memory is bounded: at most [`TRACKED_ADDRESS_COUNT_MAX`] addresses are tracked. An address may be forgotten once it
//! has no connection and the token bucket of its new connections is full. While the table is full, other addresses are
//! admitted without limits of their own. A client that can fill the table can evade any limit per address, so refusing
//! other addresses would only lock out other clients.

use crate::limits::TRACKED_ADDRESS_COUNT_MAX;
use crate::maximum::Maximum;
use crate::metrics;
use crate::network::Network;
use crate::option_values::heading;
use clap::Args;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use waymaker_engine::Time;

/// Number of tracked addresses that are checked before a new address is added. The idle ones among them are forgotten.
/// A number above 1 lets the table shrink, because only one address is added.
const LOOKS_PER_ADDRESS: usize = 4;
/// Number of parts in a token. With 1,000 parts, a rate of N tokens per second refills N parts per millisecond.
const PARTS_PER_TOKEN: u64 = 1_000;

/// Limits of each source address. `AddressLimits::default()` has no limits, but the command-line options have limits by
/// default. An IPv6 address counts as its /64 network, because a single machine may use all addresses of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = heading::LIMITS)]
pub struct AddressLimits {
    /// Connections that one source address may have, or `none`. An IPv6 address counts as its /64 network. Loopback and
    /// Unix sockets have no limits per address, but see --limit-loopback
    #[arg(
        long = "connections-per-address",
        env = "WAYMAKER_CONNECTIONS_PER_ADDRESS",
        value_name = "N",
        default_value = "1024",
        allow_hyphen_values = true
    )]
    pub connections: Maximum,
    /// New connections of one source address in each second, or `none`. As many may come at once after a quiet second
    #[arg(
        long = "new-connections-per-second",
        env = "WAYMAKER_NEW_CONNECTIONS_PER_SECOND",
        value_name = "N",
        default_value = "200",
        allow_hyphen_values = true
    )]
    pub new_per_second: Maximum,
    /// Unfinished TLS handshakes that one source address may have, or `none`
    #[arg(
        long = "handshakes-per-address",
        env = "WAYMAKER_HANDSHAKES_PER_ADDRESS",
        value_name = "N",
        default_value = "64",
        allow_hyphen_values = true
    )]
    pub handshakes: Maximum,
    /// Whether the limits also apply to loopback addresses.
    #[arg(skip)]
    pub include_loopback: bool,
}

/// Limit that a refused connection exceeds, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    Connections(u32),
    NewConnections(u32),
    Handshakes(u32),
}

/// Connections of all tracked addresses.
#[derive(Debug)]
pub(super) struct Addresses {
    limits: AddressLimits,
    tracked: HashMap<Network, AddressState>,
    /// The networks in `tracked`. Before a new network is added, the first few are checked. Those that are idle (no
    /// open connection and a full token bucket) are forgotten; the others move to the end.
    order: VecDeque<Network>,
}

/// State of one address.
#[derive(Debug)]
struct AddressState {
    counts: Arc<Counts>,
    /// Tokens that are missing from the address's bucket for new connections at the time `spent_at`, in parts of a
    /// token ([`PARTS_PER_TOKEN`] make one). Each admitted connection takes one token, and the bucket refills with
    /// time. Always 0 without a limit of new connections.
    spent: u64,
    spent_at: Time,
}

/// Numbers of connections and of unfinished handshakes of one address. Only [`Addresses::admit`] increments them.
#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU32,
    handshakes: AtomicU32,
}

/// Counts one connection for its address and, after [`Admission::count`], in the metrics, until this value is dropped.
/// It counts nothing for the address if the address has no limits or is not tracked.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// Counts the connection in the metrics.
    _counted: Option<metrics::OpenConnection>,
    _connection: Option<OpenConnection>,
    handshake: Option<OpenHandshake>,
}

#[derive(Debug)]
struct OpenConnection(Arc<Counts>);

#[derive(Debug)]
struct OpenHandshake(Arc<Counts>);

impl Addresses {
    pub(super) fn new(limits: AddressLimits) -> Self {
        Self { limits, tracked: HashMap::new(), order: VecDeque::new() }
    }

    /// Returns whether connections from this address are limited at all.
    pub(super) fn has_limits(&self, address: IpAddr) -> bool {
        let AddressLimits { connections, new_per_second, handshakes, include_loopback } = self.limits;
        let is_limited =
            [connections, new_per_second, handshakes].iter().any(|limit| *limit != Maximum::NONE);
        is_limited && Network::with_limits(address, include_loopback).is_some()
    }

    /// Admits a connection from this address, or returns the limit that it exceeds. If new connections per second are
    /// limited, each admitted connection takes a token from the address's bucket. A refused connection takes none.
    /// Addresses without limits, and new ones while the table is full, are admitted without a bucket.
    pub(super) fn admit(
        &mut self,
        address: IpAddr,
        is_encrypted: bool,
        now: Time,
    ) -> Result<Admission, Excess> {
        if !self.has_limits(address) {
            return Ok(Admission::default());
        }
        let network = Network::of(address);
        if !self.tracked.contains_key(&network) {
            self.forget_idle(now);
            if self.tracked.len() >= TRACKED_ADDRESS_COUNT_MAX {
                return Ok(Admission::default());
            }
            self.order.push_back(network);
        }
        let limits = self.limits;
        let tracked = self.tracked.entry(network).or_insert_with(|| AddressState::new(now));
        tracked.admit(limits, is_encrypted, now)
    }

    /// Checks the first [`LOOKS_PER_ADDRESS`] tracked addresses. Forgets those that are idle, which means that they
    /// have no open connection and a full token bucket. Moves the others to the end of the order.
    fn forget_idle(&mut self, now: Time) {
        let rate = self.limits.new_per_second;
        for _ in 0..LOOKS_PER_ADDRESS {
            let Some(network) = self.order.pop_front() else { return };
            if self.tracked.get(&network).is_some_and(|tracked| tracked.is_idle(rate, now)) {
                self.tracked.remove(&network);
            } else {
                self.order.push_back(network);
            }
        }
    }
}

impl AddressState {
    fn new(now: Time) -> Self {
        Self { counts: Arc::default(), spent: 0, spent_at: now }
    }

    fn admit(&mut self, limits: AddressLimits, is_encrypted: bool, now: Time) -> Result<Admission, Excess> {
        let is_reached = |limit: u32, count: &AtomicU32| count.load(Ordering::Relaxed) >= limit;
        if let Some(limit) = limits.connections.get()
            && is_reached(limit, &self.counts.connections)
        {
            return Err(Excess::Connections(limit));
        }
        if is_encrypted
            && let Some(limit) = limits.handshakes.get()
            && is_reached(limit, &self.counts.handshakes)
        {
            return Err(Excess::Handshakes(limit));
        }
        if let Some(rate) = limits.new_per_second.get() {
            let spent = self.spent_at(rate, now) + PARTS_PER_TOKEN;
            if spent > u64::from(rate) * PARTS_PER_TOKEN {
                return Err(Excess::NewConnections(rate));
            }
            (self.spent, self.spent_at) = (spent, now);
        }
        Ok(Admission {
            _counted: None,
            _connection: Some(OpenConnection::new(&self.counts)),
            handshake: is_encrypted.then(|| OpenHandshake::new(&self.counts)),
        })
    }

    /// Returns how much is missing from the bucket for new connections at this time, in parts of a token
    /// ([`PARTS_PER_TOKEN`] make one). The bucket gets `rate` tokens per second.
    fn spent_at(&self, rate: u32, now: Time) -> u64 {
        self.spent.saturating_sub(now.ms_since(self.spent_at).saturating_mul(u64::from(rate)))
    }

    /// Returns whether the address has no connection and a full token bucket. A new entry would be in the same state,
    /// so the address can be forgotten.
    fn is_idle(&self, rate: Maximum, now: Time) -> bool {
        let is_full = rate.get().is_none_or(|rate| self.spent_at(rate, now) == 0);
        is_full && self.counts.connections.load(Ordering::Relaxed) == 0
    }
}

impl Admission {
    /// Counts the connection in the metrics until it ends.
    pub(super) fn count(&mut self, counted: metrics::OpenConnection) {
        self._counted = Some(counted);
    }

    /// Ends the handshake: the address no longer counts it as unfinished.
    pub(crate) fn end_handshake(&mut self) {
        self.handshake = None;
    }
}

impl OpenConnection {
    fn new(counts: &Arc<Counts>) -> Self {
        counts.connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counts))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpenHandshake {
    fn new(counts: &Arc<Counts>) -> Self {
        counts.handshakes.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counts))
    }
}

impl Drop for OpenHandshake {
    fn drop(&mut self) {
        self.0.handshakes.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const NO_LIMITS: AddressLimits = AddressLimits {
        connections: Maximum::NONE,
        new_per_second: Maximum::NONE,
        handshakes: Maximum::NONE,
        include_loopback: false,
    };

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Returns the address with this number.
    fn numbered(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn an_address_has_its_connections_and_gets_places_back_when_they_end() {
        let mut addresses = Addresses::new(AddressLimits { connections: Maximum::new(2), ..NO_LIMITS });
        let mut admit = |address| addresses.admit(ip(address), false, ms(0));
        let first = admit("192.0.2.1").unwrap();
        let _second = admit("192.0.2.1").unwrap();
        assert_eq!(admit("192.0.2.1").unwrap_err(), Excess::Connections(2));
        let _other = admit("192.0.2.2").unwrap();
        drop(first);
        assert!(admit("192.0.2.1").is_ok());
    }

    #[test]
    fn an_ipv6_address_counts_as_its_network_and_a_mapped_one_as_ipv4() {
        let mut addresses = Addresses::new(AddressLimits { connections: Maximum::new(1), ..NO_LIMITS });
        let mut admit = |address| addresses.admit(ip(address), false, ms(0));
        let _first = admit("2001:db8:0:1::1").unwrap();
        assert_eq!(admit("2001:db8:0:1:ffff::2").unwrap_err(), Excess::Connections(1));
        let _other_network = admit("2001:db8:0:2::1").unwrap();
        let _mapped = admit("::ffff:192.0.2.1").unwrap();
        assert_eq!(admit("192.0.2.1").unwrap_err(), Excess::Connections(1));
    }

    #[test]
    fn the_rate_of_new_connections_refills_with_time() {
        let mut addresses = Addresses::new(AddressLimits { new_per_second: Maximum::new(4), ..NO_LIMITS });
        let mut admit = |now| addresses.admit(ip("192.0.2.1"), false, ms(now)).map(drop);
        for _ in 0..4 {
            assert_eq!(admit(1_000), Ok(()));
        }
        assert_eq!(admit(1_000), Err(Excess::NewConnections(4)));
        assert_eq!(admit(1_249), Err(Excess::NewConnections(4)));
        assert_eq!(admit(1_250), Ok(()));
        assert_eq!(admit(1_250), Err(Excess::NewConnections(4)));
        // A long pause fills the bucket only up to its capacity.
        for _ in 0..4 {
            assert_eq!(admit(1_000_000), Ok(()));
        }
        assert_eq!(admit(1_000_000), Err(Excess::NewConnections(4)));
    }

    #[test]
    fn a_handshake_counts_until_it_ends_and_an_unencrypted_connection_never() {
        let mut addresses = Addresses::new(AddressLimits { handshakes: Maximum::new(1), ..NO_LIMITS });
        let mut admit = |is_encrypted| addresses.admit(ip("192.0.2.1"), is_encrypted, ms(0));
        let mut shaking = admit(true).unwrap();
        assert_eq!(admit(true).unwrap_err(), Excess::Handshakes(1));
        assert!(admit(false).is_ok());
        shaking.end_handshake();
        let failing = admit(true).unwrap();
        // A failed handshake ends with its connection.
        drop(failing);
        assert!(admit(true).is_ok());
    }

    #[test]
    fn loopback_has_limits_only_on_request() {
        let limits = AddressLimits { connections: Maximum::new(1), ..NO_LIMITS };
        for (include_loopback, second) in [(false, Ok(())), (true, Err(Excess::Connections(1)))] {
            for address in [ip("127.0.0.7"), Ipv6Addr::LOCALHOST.into(), ip("::ffff:127.0.0.1")] {
                let mut addresses = Addresses::new(AddressLimits { include_loopback, ..limits });
                let _first = addresses.admit(address, false, ms(0)).unwrap();
                assert_eq!(addresses.admit(address, false, ms(0)).map(drop), second, "{address}");
            }
        }
    }

    #[test]
    fn without_limits_nothing_is_tracked() {
        let mut addresses = Addresses::new(NO_LIMITS);
        let _admission = addresses.admit(ip("192.0.2.1"), true, ms(0)).unwrap();
        assert_eq!((addresses.tracked.len(), addresses.order.len()), (0, 0));
    }

    #[test]
    fn idle_addresses_are_forgotten_and_others_kept() {
        let limits =
            AddressLimits { connections: Maximum::new(1), new_per_second: Maximum::new(1), ..NO_LIMITS };
        let mut addresses = Addresses::new(limits);
        let kept = addresses.admit(numbered(0), false, ms(0)).unwrap();
        for number in 1..1_000 {
            drop(addresses.admit(numbered(number), false, ms(0)).unwrap());
        }
        assert_eq!(addresses.tracked.len(), 1_000, "no bucket is full yet");
        for number in 0..400 {
            drop(addresses.admit(numbered(2_000 + number), false, ms(1_000)).unwrap());
        }
        assert_eq!(addresses.tracked.len(), 401);
        assert_eq!(addresses.order.len(), 401);
        assert_eq!(addresses.admit(numbered(0), false, ms(1_000)).unwrap_err(), Excess::Connections(1));
        drop(kept);
    }

    #[test]
    fn a_full_table_admits_other_addresses_and_stays_as_large() {
        let mut addresses = Addresses::new(AddressLimits { connections: Maximum::new(1), ..NO_LIMITS });
        let mut admissions: Vec<_> = (0..TRACKED_ADDRESS_COUNT_MAX as u32)
            .map(|number| addresses.admit(numbered(number), false, ms(0)).unwrap())
            .collect();
        let stranger = ip("192.0.2.1");
        for _ in 0..2 {
            assert!(addresses.admit(stranger, false, ms(0)).is_ok());
        }
        assert_eq!(addresses.tracked.len(), TRACKED_ADDRESS_COUNT_MAX);
        assert_eq!(addresses.admit(numbered(7), false, ms(0)).unwrap_err(), Excess::Connections(1));
        admissions.clear();
        let _first = addresses.admit(stranger, false, ms(0)).unwrap();
        assert_eq!(addresses.admit(stranger, false, ms(0)).unwrap_err(), Excess::Connections(1));
    }
}
