//! Choice of the HELLO for each server.
//!
//! A server of version 1 refuses a HELLO with capabilities and closes the connection. The client then connects once
//! more with the HELLO of version 1, which servers of all versions accept. Each lane remembers the address until its
//! next outage, so each address costs it at most one extra connection per outage. A new outage, or a new caller after a
//! long one, begins with capabilities again: a restarted server may have been upgraded, and a connection should use
//! every capability of its server.

use std::collections::BTreeSet;

use waymaker_protocol::{Capabilities, VERSION, VERSION_MIN};

/// The part of HELLO that depends on the version of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Newest version that the client offers to speak.
    pub(crate) version_max: u16,
    /// Capabilities of the client; `None` for a server of version 1.
    pub(crate) capabilities: Option<Capabilities>,
}

/// Endpoints whose servers refused a HELLO with capabilities. To these, the lane sends a HELLO of version 1 during the
/// present outage.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    /// Endpoints that refused a HELLO with capabilities in this outage.
    older: BTreeSet<usize>,
}

impl Greeting {
    /// Forgets which endpoints refused a HELLO with capabilities: each of their servers may have been upgraded since.
    pub(super) fn begin_outage(&mut self) {
        self.older.clear();
    }

    /// Returns the offer for the server at this endpoint.
    pub(super) fn offer(&self, endpoint: usize) -> Offer {
        if self.older.contains(&endpoint) {
            Offer { version_max: VERSION_MIN, capabilities: None }
        } else {
            Offer { version_max: VERSION, capabilities: Some(Capabilities::KNOWN) }
        }
    }

    /// Handles the refusal of this field of HELLO, as `bad_input`, by the server at this endpoint. Returns whether to
    /// send an older HELLO at once: true for the field `flags`, but only once for each endpoint and outage, so the
    /// attempts end.
    ///
    /// A refused `version` does not cause an older HELLO: the refused HELLO also offered version 1, so the server would
    /// refuse version 1 alone too.
    pub(super) fn handle_refused(&mut self, endpoint: usize, field: &str) -> bool {
        field == "flags" && self.older.insert(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST: Offer = Offer { version_max: VERSION, capabilities: Some(Capabilities::KNOWN) };
    const OLDEST: Offer = Offer { version_max: 1, capabilities: None };

    #[test]
    fn a_server_that_refuses_the_flags_is_offered_version_1_once() {
        let mut greeting = Greeting::default();
        assert_eq!(greeting.offer(0), NEWEST);
        assert!(greeting.handle_refused(0, "flags"));
        assert_eq!(greeting.offer(0), OLDEST);
        assert!(!greeting.handle_refused(0, "flags"), "the older HELLO was refused too: there is no other");
    }

    #[test]
    fn only_a_refusal_of_the_flags_changes_the_offer_to_that_server() {
        let mut greeting = Greeting::default();
        for field in ["version", "worker", "kind", "magic", ""] {
            assert!(!greeting.handle_refused(0, field), "{field}");
        }
        assert_eq!(greeting.offer(0), NEWEST);
        assert!(greeting.handle_refused(1, "flags"));
        assert_eq!((greeting.offer(0), greeting.offer(1), greeting.offer(2)), (NEWEST, OLDEST, NEWEST));
    }

    #[test]
    fn each_outage_offers_capabilities_again() {
        let mut greeting = Greeting::default();
        assert!(greeting.handle_refused(0, "flags"));
        greeting.begin_outage();
        assert_eq!(greeting.offer(0), NEWEST);
        assert!(greeting.handle_refused(0, "flags"));
    }
}
