//! The capabilities that client and server exchange when a connection opens.

use std::fmt;

/// Set of capabilities, which are optional parts of the protocol. `HELLO` has the set that the client understands,
/// `WELCOME` the set that the server offers.
///
/// Each bit stands for one optional part of the protocol. Both peers ignore unknown bits, so different versions work
/// together. A bit never changes its meaning. `docs/reference/wire.md` lists all bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Capabilities(u64);

impl Capabilities {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// The server has a data directory and supports the scope `local`.
    pub const SCOPE_LOCAL: Self = Self(1 << 0);
    /// The server has a quorum cluster configured and supports the scope `quorum`.
    pub const SCOPE_QUORUM: Self = Self(1 << 1);
    /// The server serves `LIST_POOLS`.
    pub const LIST_POOLS: Self = Self(1 << 2);
    /// The server serves `REMOVE_NAMESPACE`.
    pub const REMOVE_NAMESPACE: Self = Self(1 << 3);
    /// The server accepts the flag `OWN` of `RELEASE` and `EXTEND`. With it, the request affects only a claim of the
    /// same lane.
    pub const OWN_CLAIM: Self = Self(1 << 4);
    /// The client or server handles `PING`. A client with this capability answers `PING` with `PONG`. A server with
    /// this capability sends `PING` to such a client if the client has sent no frame for some time.
    pub const PING: Self = Self(1 << 5);
    /// The server serves `SERVER_STATUS`.
    pub const SERVER_STATUS: Self = Self(1 << 6);
    /// The server accepts the field `reason` in `FREEZE` and `SET_CAPACITY`, which it writes to the audit log.
    pub const REASON: Self = Self(1 << 7);
    /// The server accepts the flag `WAITING` of `LIST`, which lists waiting claims instead of holds.
    pub const LIST_WAITING: Self = Self(1 << 8);
    /// The server accepts the trace context `traceparent` in acquires and in `REGISTER`.
    pub const TRACEPARENT: Self = Self(1 << 9);
    /// Every capability that this version of the crate knows.
    pub const KNOWN: Self = Self(
        Self::SCOPE_LOCAL.0
            | Self::SCOPE_QUORUM.0
            | Self::LIST_POOLS.0
            | Self::REMOVE_NAMESPACE.0
            | Self::OWN_CLAIM.0
            | Self::PING.0
            | Self::SERVER_STATUS.0
            | Self::REASON.0
            | Self::LIST_WAITING.0
            | Self::TRACEPARENT.0,
    );

    /// The known capabilities with their names, in the order of their bits.
    pub const NAMES: [(Self, &'static str); 10] = [
        (Self::SCOPE_LOCAL, "scope_local"),
        (Self::SCOPE_QUORUM, "scope_quorum"),
        (Self::LIST_POOLS, "list_pools"),
        (Self::REMOVE_NAMESPACE, "remove_namespace"),
        (Self::OWN_CLAIM, "own_claim"),
        (Self::PING, "ping"),
        (Self::SERVER_STATUS, "server_status"),
        (Self::REASON, "reason"),
        (Self::LIST_WAITING, "list_waiting"),
        (Self::TRACEPARENT, "traceparent"),
    ];

    /// Returns the set with these bits. Unknown bits are kept.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the bits as sent on the wire.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether all capabilities of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the capabilities that are in both sets.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the capabilities that are in either set.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the set has no bits, known or unknown.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the bits of this set that this version of the crate does not know.
    pub const fn unknown_bits(self) -> u64 {
        self.0 & !Self::KNOWN.0
    }

    /// Returns the names of the known capabilities in this set, in the order of their bits.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .filter_map(move |(capability, name)| self.contains(capability).then_some(name))
    }
}

impl fmt::Debug for Capabilities {
    /// Writes the names of known capabilities, and after them all unknown bits as one hexadecimal number:
    /// `{scope_local, 0x8000000000000000}`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = formatter.debug_set();
        for name in self.names() {
            set.entry(&format_args!("{name}"));
        }
        match self.unknown_bits() {
            0 => {}
            bits => {
                set.entry(&format_args!("{bits:#x}"));
            }
        }
        set.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_capability_has_its_own_bit_and_name() {
        let mut all = Capabilities::NONE;
        for (capability, name) in Capabilities::NAMES {
            assert_eq!(capability.bits().count_ones(), 1, "{name}");
            assert!(!all.contains(capability), "{name} shares its bit");
            assert_eq!(capability.names().collect::<Vec<_>>(), [name]);
            all = all.union(capability);
        }
        assert_eq!(all, Capabilities::KNOWN);
        let mut names: Vec<_> = Capabilities::KNOWN.names().collect();
        names.dedup();
        assert_eq!(names.len(), Capabilities::NAMES.len());
    }

    #[test]
    fn a_set_contains_its_intersections_and_the_empty_set() {
        let both = Capabilities::SCOPE_LOCAL.union(Capabilities::SCOPE_QUORUM);
        assert!(both.contains(Capabilities::SCOPE_LOCAL) && both.contains(Capabilities::NONE));
        assert!(!Capabilities::SCOPE_LOCAL.contains(both));
        assert_eq!(both.intersection(Capabilities::SCOPE_QUORUM), Capabilities::SCOPE_QUORUM);
        assert!(Capabilities::SCOPE_LOCAL.intersection(Capabilities::SCOPE_QUORUM).is_empty());
    }

    #[test]
    fn unknown_bits_are_kept_and_reported_separately() {
        let newer = Capabilities::from_bits(1 << 63 | 1);
        assert_eq!((newer.bits(), newer.unknown_bits()), (1 << 63 | 1, 1 << 63));
        assert_eq!(newer.names().collect::<Vec<_>>(), ["scope_local"]);
        assert!(newer.contains(Capabilities::SCOPE_LOCAL));
        assert!(!Capabilities::from_bits(1 << 63).is_empty());
        assert_eq!(newer.intersection(Capabilities::KNOWN), Capabilities::SCOPE_LOCAL);
    }

    #[test]
    fn debug_output_names_known_bits_and_shows_others_in_hexadecimal() {
        for (bits, text) in [
            (0, "{}"),
            (0b01, "{scope_local}"),
            (0b11, "{scope_local, scope_quorum}"),
            (1 << 63, "{0x8000000000000000}"),
            (1 << 40 | 1 << 31 | 0b10, "{scope_quorum, 0x10080000000}"),
            (0b100, "{list_pools}"),
            (0b1000, "{remove_namespace}"),
            (0b11_0000, "{own_claim, ping}"),
            (0b100_0000, "{server_status}"),
            (0b1_1000_0000, "{reason, list_waiting}"),
            (0b10_0000_0000, "{traceparent}"),
        ] {
            assert_eq!(format!("{:?}", Capabilities::from_bits(bits)), text);
        }
    }
}
