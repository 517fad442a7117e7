//! The answer to a request that was refused.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::error_code::ErrorCode;
use crate::frame::{Frame, put_frame};
use crate::limits::OWNER_LEN_MAX;
use crate::message::opcode;
use crate::readable::Readable;

/// Longest name of a field and longest message in bytes.
const TEXT_LEN_MAX: usize = 1024;

/// A refusal. `busy`, `timeout` and `not_owner` say who is in front, all others say it in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorAnswer<'a> {
    /// Which of the closed table.
    pub code: ErrorCode,
    /// What else there is to know.
    pub detail: ErrorDetail<'a>,
}

/// The part of a refusal that depends on its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorDetail<'a> {
    /// Of `busy`, `timeout` and `not_owner`.
    Contention(Contention<'a>),
    /// Of all other codes.
    Text {
        /// A number that the code gives a meaning: of `throttled` the nanoseconds after which to come again, of
        /// `capacity_mismatch` the capacity of the pool, of an acquire that was `cancelled` its [`CancelReason`], of others
        /// the limit that was passed or the milliseconds after which to come again; 0 if there is none.
        value: u64,
        /// The field or the limit; may be empty.
        field: &'a [u8],
        /// For people.
        message: &'a [u8],
    },
}

/// Why an acquire was answered with `cancelled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// Somebody gave the claim up, by CANCEL or RELEASE.
    Asked,
    /// A newer acquire with the same request id took its place.
    Superseded,
    /// Its connection was lost.
    ConnectionLost,
    /// An operator ended it.
    Forced,
    /// A reason that this version does not know.
    Other(u64),
}

impl CancelReason {
    /// The number on the wire.
    pub fn number(self) -> u64 {
        match self {
            Self::Asked => 0,
            Self::Superseded => 1,
            Self::ConnectionLost => 2,
            Self::Forced => 3,
            Self::Other(number) => number,
        }
    }

    /// The reason with this number.
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

/// Who stands in front of a claim that was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Contention<'a> {
    /// True: `owner` holds the key. False: nobody who conflicts holds it, and `owner` is the waiter in front.
    pub held: bool,
    /// That claim is shared.
    pub shared: bool,
    /// For how long it has been held, or has waited.
    pub age_ms: u64,
    /// What is left of its lease, or of its wait.
    pub remaining_ms: u32,
    /// How many wait for the key.
    pub waiter_count: u32,
    /// Whose it is; empty if it never said.
    pub owner: &'a [u8],
}

fn has_contention(code: ErrorCode) -> bool {
    // By number, because `Other` can hold that of a known code and is then read as that code.
    matches!(
        ErrorCode::from_number(code.number()),
        ErrorCode::Busy | ErrorCode::Timeout | ErrorCode::NotOwner
    )
}

impl<'a> ErrorAnswer<'a> {
    /// The refusal in this frame.
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

    /// Appends the refusal as a frame. A detail that does not fit the code is replaced by an empty one of its kind.
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
