//! The part of a client's source address to which the limits per address apply.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 address, or the /64 network of an IPv6 address. One machine may use all addresses of such a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Network {
    V4(u32),
    /// First 64 bits of the address.
    V6(u64),
}

impl Network {
    /// Returns the network of an address. An IPv4 address mapped to IPv6 counts as IPv4.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }

    /// Returns the network of an address, or `None` if the address has no limits. Loopback addresses have limits only
    /// if `include_loopback` is set.
    pub(crate) fn with_limits(address: IpAddr, include_loopback: bool) -> Option<Self> {
        (include_loopback || !address.to_canonical().is_loopback()).then(|| Self::of(address))
    }
}

impl Display for Network {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4(bits) => write!(formatter, "{}", Ipv4Addr::from_bits(bits)),
            Self::V6(bits) => write!(formatter, "{}/64", Ipv6Addr::from_bits(u128::from(bits) << 64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_is_shown_as_its_network() {
        let shown = |address: &str| Network::of(address.parse().unwrap()).to_string();
        assert_eq!(shown("192.0.2.1"), "192.0.2.1");
        assert_eq!(shown("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(shown("2001:db8:0:1:2::3"), "2001:db8:0:1::/64");
    }

    #[test]
    fn loopback_has_limits_only_on_request() {
        for address in ["127.0.0.7", "::1", "::ffff:127.0.0.1"] {
            let address = address.parse().unwrap();
            assert_eq!(Network::with_limits(address, false), None);
            assert_eq!(Network::with_limits(address, true), Some(Network::of(address)));
        }
        assert!(Network::with_limits("192.0.2.1".parse().unwrap(), false).is_some());
    }
}
