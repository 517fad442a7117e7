//! The closed table of errors.

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// What went wrong, as a number on the wire. A number of a newer peer is kept as it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])* $variant,)*
            /// A code that this version does not know.
            Other(u16),
        }

        impl ErrorCode {
            /// All codes of this version, in the order of their numbers.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$variant),*];

            /// The number on the wire.
            pub fn number(self) -> u16 {
                match self {
                    $(ErrorCode::$variant => $number,)*
                    ErrorCode::Other(number) => number,
                }
            }

            /// The code with this number.
            pub fn from_number(number: u16) -> Self {
                match number {
                    $($number => ErrorCode::$variant,)*
                    other => ErrorCode::Other(other),
                }
            }

            /// The name used in documents, messages and metrics.
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
    /// A try met a holder or a waiter; the answer names who is in front.
    Busy = 1, "busy";
    /// The wait ended before the grant.
    Timeout = 2, "timeout";
    /// The claim was cancelled while it waited.
    Cancelled = 3, "cancelled";
    /// There is no such claim, or it is over.
    NotFound = 4, "not_found";
    /// The claim belongs to somebody else.
    NotOwner = 5, "not_owner";
    /// The claim waits and is not held yet.
    NotHeld = 6, "not_held";
    /// The lease is over.
    Expired = 7, "expired";
    /// The hold was taken away.
    Revoked = 8, "revoked";
    /// The session has ended, or never was.
    SessionGone = 9, "session_gone";
    /// The request is wrong; the answer names the field and the limit.
    BadInput = 10, "bad_input";
    /// The pool has another capacity.
    CapacityMismatch = 11, "capacity_mismatch";
    /// The limiter says no; the answer says when to come again.
    Throttled = 12, "throttled";
    /// An operator froze this prefix.
    Frozen = 13, "frozen";
    /// The disk is full: no new durable grants.
    NoSpace = 14, "no_space";
    /// The cluster that keeps Quorum fences does not answer.
    QuorumUnavailable = 15, "quorum_unavailable";
    /// This server does not offer the scope that was asked for.
    ScopeUnavailable = 16, "scope_unavailable";
    /// A table is full; the answer names the limit.
    Overloaded = 17, "overloaded";
    /// The credentials do not allow this.
    Unauthorized = 18, "unauthorized";
    /// The server is stopping.
    Shutdown = 19, "shutdown";
    /// Storage failed: whether the request took effect is not known.
    Unknown = 20, "unknown";
    /// A defect of the server.
    Internal = 21, "internal";
    /// Holds may have been lost from the log: no new grants until they have expired.
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
