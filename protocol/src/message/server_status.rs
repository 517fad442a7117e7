//! The state of the server as a whole.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, header, put_frame};
use crate::limits::{
    REASON_CODE_LEN_MAX, REASON_MESSAGE_LEN_MAX, SERVER_ADDRESSES_LEN_MAX, SERVER_REASONS_MAX,
    SERVER_VERSION_LEN_MAX,
};
use crate::message::opcode;

/// Opcode of the response to `SERVER_STATUS`.
pub const SERVER_STATUS_ANSWER: u8 = opcode::SERVER_STATUS | opcode::ANSWER;

/// Requests the state of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ServerStatus;

/// The degree to which a server grants new claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Readiness {
    /// The server refuses no kind of new claim.
    #[default]
    Ready = 0,
    /// The server refuses some new claims, or it cannot compact its durable log.
    Degraded = 1,
    /// The server refuses all new claims.
    NotReady = 2,
}

/// A reason for which a server is degraded or not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ServerReason<'a> {
    /// Code for programs, such as `recovering`. Later servers may have more codes.
    pub code: &'a [u8],
    /// Sentence for people.
    pub message: &'a [u8],
    /// Time until the reason no longer applies, in milliseconds; 0 if the server does not know it.
    pub remaining_ms: u64,
}

/// The state of the server.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ServerStatusAnswer<'a> {
    /// Time since the start of the server, in milliseconds.
    pub uptime_ms: u64,
    /// Readiness for new claims.
    pub readiness: Readiness,
    /// Version of the server.
    pub version: &'a [u8],
    /// Listeners with their addresses, separated by spaces: `binary=127.0.0.1:7420 grpc=127.0.0.1:7421`.
    pub addresses: &'a [u8],
    /// Reasons why the server is degraded or not ready, at most `SERVER_REASONS_MAX`; empty if it is ready.
    pub reasons: Vec<ServerReason<'a>>,
}

impl ServerStatus {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        Cursor::new(frame).finish()?;
        Ok(Self)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(opcode::SERVER_STATUS, 0, number, 0));
    }
}

impl Readiness {
    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        match cursor.u8("readiness")? {
            0 => Ok(Self::Ready),
            1 => Ok(Self::Degraded),
            2 => Ok(Self::NotReady),
            number => Err(DecodeError::BadValue { field: "readiness", value: u64::from(number) }),
        }
    }
}

impl<'a> ServerStatusAnswer<'a> {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let uptime_ms = cursor.u64("uptime_ms")?;
        let readiness = Readiness::decode(&mut cursor)?;
        let version = cursor.string("server_version", SERVER_VERSION_LEN_MAX)?;
        let addresses = cursor.string("addresses", SERVER_ADDRESSES_LEN_MAX)?;
        let count = cursor.count("count", SERVER_REASONS_MAX)?;
        let reasons = (0..count).map(|_| ServerReason::decode(&mut cursor)).collect::<Result<_, _>>()?;
        cursor.finish()?;
        Ok(Self { uptime_ms, readiness, version, addresses, reasons })
    }

    /// Appends the response as a frame. Cuts strings and lists that are above their limits.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, SERVER_STATUS_ANSWER, 0, number, |out| {
            out.extend_from_slice(&self.uptime_ms.to_le_bytes());
            out.push(self.readiness as u8);
            put_string(out, cut(self.version, SERVER_VERSION_LEN_MAX));
            put_string(out, cut(self.addresses, SERVER_ADDRESSES_LEN_MAX));
            let reasons = &self.reasons[..self.reasons.len().min(SERVER_REASONS_MAX)];
            out.extend_from_slice(&(reasons.len() as u16).to_le_bytes());
            for reason in reasons {
                put_string(out, cut(reason.code, REASON_CODE_LEN_MAX));
                put_string(out, cut(reason.message, REASON_MESSAGE_LEN_MAX));
                out.extend_from_slice(&reason.remaining_ms.to_le_bytes());
            }
        });
    }
}

impl<'a> ServerReason<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            code: cursor.string("reason.code", REASON_CODE_LEN_MAX)?,
            message: cursor.string("reason.message", REASON_MESSAGE_LEN_MAX)?,
            remaining_ms: cursor.u64("reason.remaining_ms")?,
        })
    }
}

fn cut(bytes: &[u8], len_max: usize) -> &[u8] {
    &bytes[..bytes.len().min(len_max)]
}
