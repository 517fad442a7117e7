//! The response to a refused request.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::error_code::ErrorCode;
use crate::frame::{Frame, put_frame};
use crate::limits::OWNER_LEN_MAX;
use crate::message::opcode;
use crate::readable::Readable;

/// Maximum length of `field`, and of `message`, in bytes. Longer texts are cut when encoded.
const TEXT_LEN_MAX: usize = 1024;

/// Refusal of a request. `busy`, `timeout` and `not_owner` describe the conflicting claim; all other codes have a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorAnswer<'a> {
    /// Reason of the refusal.
    pub code: ErrorCode,
    /// Details that depend on the code.
    pub detail: ErrorDetail<'a>,
}

/// The part of a refusal that depends on its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorDetail<'a> {
    /// The conflicting claim, for `busy`, `timeout` and `not_owner`.
    Contention(Contention<'a>),
    /// A number and a text, for all other codes.
    Text {
        /// Number whose meaning depends on the code; 0 if there is none.
        ///
        /// - `throttled`: nanoseconds until a retry can succeed; `u64::MAX` if no retry can.
        /// - `capacity_mismatch`: capacity of the pool.
        /// - `cancelled`, for an acquire or for a request with the flag `OWN` (act only on a claim of this lane): the
        ///   number of its [`CancelReason`].
        /// - `cancelled` with the field `attempt`: number of the later attempt that has resumed the lane.
        /// - `recovering`: milliseconds until grants resume.
        /// - `overloaded` with the field `credentials`: milliseconds until the server checks credentials again.
        /// - `cancelled` with the field `attempt`, for a `HELLO`: the latest attempt that the server has accepted.
        /// - `bad_input` with the field `connections`: number of users of the namespace that was to be removed.
        /// - All other cases: the limit that the request violates, such as the maximum length of `field`; 0 if it
        ///   violates none.
        value: u64,
        /// Name of the field, the limit or the missing right; may be empty.
        field: &'a [u8],
        /// Message for people.
        message: &'a [u8],
    },
}

/// Reason for the code `cancelled` in the response to an acquire, or to a request with the flag `OWN` (act only on a
/// claim of this lane).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// A client cancelled or released the claim, or a front end no longer waited for it.
    Asked,
    /// A newer acquire with the same request id took over the claim.
    Superseded,
    /// The connection of the acquire was lost.
    ConnectionLost,
    /// An operator ended the claim.
    Forced,
    /// A reason that this version does not know, with its number.
    Other(u64),
}

impl CancelReason {
    /// Returns the number on the wire.
    pub fn number(self) -> u64 {
        match self {
            Self::Asked => 0,
            Self::Superseded => 1,
            Self::ConnectionLost => 2,
            Self::Forced => 3,
            Self::Other(number) => number,
        }
    }

    /// Returns the reason with this number.
    pub fn from_number(number: u64) -> Self {
        match number {
            0 => Self::Asked,
            1 => Self::Superseded,
            2 => Self::ConnectionLost,
            3 => Self::Forced,
            other => Self::Other(other),
        }
    }
}

/// The claim that blocks the request: a conflicting holder, or a waiter ahead in the queue. If no claim blocks it, all
/// fields except `waiter_count` are zero or empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Contention<'a> {
    /// Whether the blocking claim is a hold. If not, it is a waiter ahead in the queue, or a granted claim whose fence
    /// is not durable yet.
    pub held: bool,
    /// Whether the blocking claim is shared.
    pub shared: bool,
    /// Time since the blocking claim was granted or began to wait, in milliseconds; for a registration, since its last
    /// renewal.
    pub age_ms: u64,
    /// Remaining lease or wait of the blocking claim, in milliseconds; `u32::MAX` if it has no end.
    pub remaining_ms: u32,
    /// Number of other claims that wait for the key or pool, or in the tree namespace.
    pub waiter_count: u32,
    /// Owner of the blocking claim; empty if its client gave no owner, or if the client of the request has no right to
    /// see it.
    pub owner: &'a [u8],
}

fn has_contention(code: ErrorCode) -> bool {
    // Compare numbers: `Other` can hold the number of a known code, and the peer reads that as the known code.
    matches!(
        ErrorCode::from_number(code.number()),
        ErrorCode::Busy | ErrorCode::Timeout | ErrorCode::NotOwner
    )
}

impl<'a> ErrorAnswer<'a> {
    /// Parses the refusal from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let code = ErrorCode::from_number(cursor.u16("code")?);
        let detail = if has_contention(code) {
            ErrorDetail::Contention(Contention {
                held: cursor.bool("held")?,
                shared: cursor.bool("shared")?,
                age_ms: cursor.u64("age_ms")?,
                remaining_ms: cursor.u32("remaining_ms")?,
                waiter_count: cursor.u32("waiter_count")?,
                owner: cursor.string("owner", OWNER_LEN_MAX)?,
            })
        } else {
            ErrorDetail::Text {
                value: cursor.u64("value")?,
                field: cursor.string("field", TEXT_LEN_MAX)?,
                message: cursor.string("message", TEXT_LEN_MAX)?,
            }
        };
        cursor.finish()?;
        Ok(Self { code, detail })
    }

    /// Appends the refusal as a frame. If the detail does not fit the code, an empty detail of the right kind replaces
    /// it.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::ERROR, 0, number, |out| {
            out.extend_from_slice(&self.code.number().to_le_bytes());
            if has_contention(self.code) {
                let contention = match self.detail {
                    ErrorDetail::Contention(contention) => contention,
                    ErrorDetail::Text { .. } => Contention::default(),
                };
                out.push(u8::from(contention.held));
                out.push(u8::from(contention.shared));
                out.extend_from_slice(&contention.age_ms.to_le_bytes());
                out.extend_from_slice(&contention.remaining_ms.to_le_bytes());
                out.extend_from_slice(&contention.waiter_count.to_le_bytes());
                put_string(out, contention.owner);
            } else {
                let (value, field, message) = match self.detail {
                    ErrorDetail::Text { value, field, message } => (value, field, message),
                    ErrorDetail::Contention(_) => (0, &b""[..], &b""[..]),
                };
                out.extend_from_slice(&value.to_le_bytes());
                put_string(out, &field[..field.len().min(TEXT_LEN_MAX)]);
                put_string(out, &message[..message.len().min(TEXT_LEN_MAX)]);
            }
        });
    }
}

impl DecodeError {
    /// Returns the response that reports this error to the peer. `message` is the text of the error.
    pub fn answer<'a>(&self, message: &'a str) -> ErrorAnswer<'a> {
        ErrorAnswer {
            code: ErrorCode::BadInput,
            detail: ErrorDetail::Text {
                value: self.limit(),
                field: self.field().as_bytes(),
                message: message.as_bytes(),
            },
        }
    }
}

impl std::fmt::Display for ErrorAnswer<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.code)?;
        match &self.detail {
            ErrorDetail::Text { message: [], .. } => Ok(()),
            ErrorDetail::Text { message, .. } => write!(formatter, ": {}", Readable(message)),
            ErrorDetail::Contention(Contention { held, age_ms, owner, waiter_count, .. }) => {
                let verb = if *held { "held" } else { "wanted" };
                write!(formatter, ": {verb} by ")?;
                if owner.is_empty() {
                    write!(formatter, "a client without a name")?;
                } else {
                    write!(formatter, "\"{}\"", Readable(owner))?;
                }
                write!(formatter, " for {age_ms} ms, {waiter_count} waiting")
            }
        }
    }
}
