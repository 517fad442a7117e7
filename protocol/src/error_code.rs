//! The table of error codes.

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// An error code. [`ErrorCode::Other`] keeps the number of a code from a newer peer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])* $variant,)*
            /// A code that this version does not know, with its number.
            Other(u16),
        }

        impl ErrorCode {
            /// All codes of this version, in the order of their numbers.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$variant),*];

            /// Returns the number on the wire.
            pub fn number(self) -> u16 {
                match self {
                    $(ErrorCode::$variant => $number,)*
                    ErrorCode::Other(number) => number,
                }
            }

            /// Returns the code with this number.
            pub fn from_number(number: u16) -> Self {
                match number {
                    $($number => ErrorCode::$variant,)*
                    other => ErrorCode::Other(other),
                }
            }

            /// Returns the name used in documents, messages and metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $name,)*
                    ErrorCode::Other(_) => "other",
                }
            }
        }
    };
}

error_codes! {
    /// The claim would have to wait, but the acquire allows no wait. Or a registration has another owner, or a pool to
    /// remove is in use. The response describes the conflicting claim.
    Busy = 1, "busy";
    /// The wait ended before the grant. The response describes the conflicting claim.
    Timeout = 2, "timeout";
    /// The claim was cancelled while it waited, or a request with the flag `OWN` names a claim of another lane.
    /// `CancelReason` says why. An outdated attempt to resume a lane, and a watch that is repeated after its connection
    /// was lost, also get this code.
    Cancelled = 3, "cancelled";
    /// The claim, registration or namespace does not exist, or no longer exists, or the client has no right for the
    /// claim.
    NotFound = 4, "not_found";
    /// The registration belongs to another owner, which the response describes.
    NotOwner = 5, "not_owner";
    /// The claim is still waiting.
    NotHeld = 6, "not_held";
    /// The lease has expired. This version of the server sends `not_found` instead.
    Expired = 7, "expired";
    /// The hold was revoked. This version of the server sends the event `REVOKED` instead, and answers later requests
    /// with `not_found`.
    Revoked = 8, "revoked";
    /// The session has ended, or never existed.
    SessionGone = 9, "session_gone";
    /// The request is invalid. The response names the field and the limit.
    BadInput = 10, "bad_input";
    /// The pool has another capacity than the acquire expects. The response contains the capacity of the pool.
    CapacityMismatch = 11, "capacity_mismatch";
    /// The limiter refuses the request. The response says how long to wait before a retry.
    Throttled = 12, "throttled";
    /// An operator froze a prefix of the key. Grants resume when the prefix is thawed.
    Frozen = 13, "frozen";
    /// The disk is full: the server refuses new durable grants.
    NoSpace = 14, "no_space";
    /// The cluster that counts the fences of the quorum scope did not count a fence for this grant, so the client holds
    /// nothing.
    QuorumUnavailable = 15, "quorum_unavailable";
    /// The server does not offer the requested scope, or its log has not confirmed a write for a long time.
    ScopeUnavailable = 16, "scope_unavailable";
    /// A limit of the server is reached, or the server checks no credentials of the address for a while because too
    /// many were wrong. The response names the limit, or `credentials`.
    Overloaded = 17, "overloaded";
    /// The credentials are missing or wrong, or do not permit the request.
    Unauthorized = 18, "unauthorized";
    /// The server is shutting down.
    Shutdown = 19, "shutdown";
    /// Storage failed, or the response to a repeated request is no longer kept. The outcome of the request is unknown.
    Unknown = 20, "unknown";
    /// The server has a defect.
    Internal = 21, "internal";
    /// The log may have lost holds. The server refuses new grants until those holds have expired.
    Recovering = 22, "recovering";
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Other(number) => write!(formatter, "error code {number}"),
            known => formatter.write_str(known.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn every_number_maps_back_to_its_code() {
        for number in 0..64 {
            assert_eq!(ErrorCode::from_number(number).number(), number);
        }
        assert_eq!(ErrorCode::ALL.len(), 22);
    }
}
