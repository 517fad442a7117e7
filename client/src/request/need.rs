//! Capabilities that requests require.

use waymaker_protocol::{Capabilities, ErrorCode};

use crate::error::Error;

/// A capability without which a server cannot serve a request. If the server lacks it, the client refuses the request
/// and does not send it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    capability: Capabilities,
    /// Part of the request that needs the capability; the `field` of the refusal.
    field: &'static str,
    message: &'static str,
}

impl Need {
    /// Capability for a list of waiting claims.
    pub(crate) const LIST_WAITING: Self = Self {
        capability: Capabilities::LIST_WAITING,
        field: "waiting",
        message: "the server cannot list claims that wait; upgrade the server",
    };
    /// Capability for a request that gives a reason, which the server writes to its audit log.
    pub(crate) const REASON: Self = Self {
        capability: Capabilities::REASON,
        field: "reason",
        message: "the server cannot record a reason for this request, so nothing was done; upgrade the server, or send no reason",
    };

    /// Returns the refusal if the server does not offer the capability.
    pub(crate) fn refusal(self, offered: Capabilities) -> Option<Error> {
        let is_missing = !offered.contains(self.capability);
        is_missing.then(|| Error::refused(ErrorCode::BadInput, self.field, 0, self.message))
    }
}
