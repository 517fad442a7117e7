//! The messages. A request, its answer and their codec stand in one file.

pub mod acquire;
pub mod cancel;
pub mod error;
pub mod event;
pub mod extend;
pub mod goodbye;
pub mod hello;
pub mod inspect;
pub mod keep_alive;
pub mod list;
pub mod release;
pub mod status;

use crate::decode_error::DecodeError;
use crate::frame::Frame;

/// The opcodes. An answer has the opcode of its request with the top bit set; 0xe0 and above are events and errors.
///
/// Set aside for later: 0x17-0x1f operators and watches, 0x20-0x2f sets of paths, 0x30-0x3f pools, 0x40-0x4f limiter,
/// 0x50-0x5f registry and lazy locks.
pub mod opcode {
    #![expect(missing_docs, reason = "each is documented at its message")]
    pub const HELLO: u8 = 0x01;
    pub const KEEP_ALIVE: u8 = 0x02;
    pub const GOODBYE: u8 = 0x03;
    pub const ACQUIRE: u8 = 0x10;
    pub const RELEASE: u8 = 0x11;
    pub const EXTEND: u8 = 0x12;
    pub const CANCEL: u8 = 0x13;
    pub const STATUS: u8 = 0x14;
    pub const INSPECT: u8 = 0x15;
    pub const LIST: u8 = 0x16;

    /// Set in the opcode of an answer.
    pub const ANSWER: u8 = 0x80;

    pub const QUEUED: u8 = 0xe0;
    pub const EXPIRED: u8 = 0xe1;
    pub const REVOKED: u8 = 0xe2;
    pub const SESSION_EXPIRED: u8 = 0xe3;
    pub const LEASE_MOVED: u8 = 0xe4;
    pub const ERROR: u8 = 0xff;
}

/// What a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is its message")]
pub enum Request<'a> {
    Hello(hello::Hello<'a>),
    KeepAlive(keep_alive::KeepAlive),
    Goodbye(goodbye::Goodbye),
    Acquire(acquire::Acquire<'a>),
    Release(release::Release<'a>),
    Extend(extend::Extend<'a>),
    Cancel(cancel::Cancel<'a>),
    Status(status::Status<'a>),
    Inspect(inspect::Inspect<'a>),
    List(list::List<'a>),
}

impl<'a> Request<'a> {
    /// The request in this frame.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        match frame.opcode() {
            opcode::ACQUIRE => acquire::Acquire::decode(frame).map(Self::Acquire),
            opcode::RELEASE => release::Release::decode(frame).map(Self::Release),
            opcode::EXTEND => extend::Extend::decode(frame).map(Self::Extend),
            opcode::CANCEL => cancel::Cancel::decode(frame).map(Self::Cancel),
            opcode::STATUS => status::Status::decode(frame).map(Self::Status),
            opcode::INSPECT => inspect::Inspect::decode(frame).map(Self::Inspect),
            opcode::LIST => list::List::decode(frame).map(Self::List),
            opcode::HELLO => hello::Hello::decode(frame).map(Self::Hello),
            opcode::KEEP_ALIVE => keep_alive::KeepAlive::decode(frame).map(Self::KeepAlive),
            opcode::GOODBYE => goodbye::Goodbye::decode(frame).map(Self::Goodbye),
            opcode => Err(DecodeError::UnknownOpcode { opcode }),
        }
    }

    /// Appends the request as a frame.
    #[inline]
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::Hello(message) => message.encode(number, out),
            Self::KeepAlive(message) => message.encode(number, out),
            Self::Goodbye(message) => message.encode(number, out),
            Self::Acquire(message) => message.encode(number, out),
            Self::Release(message) => message.encode(number, out),
            Self::Extend(message) => message.encode(number, out),
            Self::Cancel(message) => message.encode(number, out),
            Self::Status(message) => message.encode(number, out),
            Self::Inspect(message) => message.encode(number, out),
            Self::List(message) => message.encode(number, out),
        }
    }
}

/// What the server sends: an answer with the number of its request, or an event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is its message")]
pub enum Response<'a> {
    Welcome(hello::Welcome),
    KeptAlive(keep_alive::KeptAlive),
    Farewell(goodbye::Farewell),
    Granted(acquire::Granted),
    Released(release::Released),
    Extended(extend::Extended),
    Cancelled(cancel::Cancelled),
    Status(status::StatusAnswer<'a>),
    Inspected(inspect::Inspected<'a>),
    Listed(list::Listed<'a>),
    Event(event::Event),
    Error(error::ErrorAnswer<'a>),
}

impl<'a> Response<'a> {
    /// The response in this frame.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        match frame.opcode() {
            acquire::GRANTED => acquire::Granted::decode(frame).map(Self::Granted),
            release::RELEASED => release::Released::decode(frame).map(Self::Released),
            extend::EXTENDED => extend::Extended::decode(frame).map(Self::Extended),
            cancel::CANCELLED => cancel::Cancelled::decode(frame).map(Self::Cancelled),
            status::STATUS_ANSWER => status::StatusAnswer::decode(frame).map(Self::Status),
            inspect::INSPECTED => inspect::Inspected::decode(frame).map(Self::Inspected),
            list::LISTED => list::Listed::decode(frame).map(Self::Listed),
            hello::WELCOME => hello::Welcome::decode(frame).map(Self::Welcome),
            keep_alive::KEPT_ALIVE => keep_alive::KeptAlive::decode(frame).map(Self::KeptAlive),
            goodbye::FAREWELL => goodbye::Farewell::decode(frame).map(Self::Farewell),
            opcode::ERROR => error::ErrorAnswer::decode(frame).map(Self::Error),
            opcode::QUEUED..=opcode::LEASE_MOVED => event::Event::decode(frame).map(Self::Event),
            opcode => Err(DecodeError::UnknownOpcode { opcode }),
        }
    }

    /// Appends the response as a frame. Events about a hold carry the number 0.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::Welcome(message) => message.encode(number, out),
            Self::KeptAlive(message) => message.encode(number, out),
            Self::Farewell(message) => message.encode(number, out),
            Self::Granted(message) => message.encode(number, out),
            Self::Released(message) => message.encode(number, out),
            Self::Extended(message) => message.encode(number, out),
            Self::Cancelled(message) => message.encode(number, out),
            Self::Status(message) => message.encode(number, out),
            Self::Inspected(message) => message.encode(number, out),
            Self::Listed(message) => message.encode(number, out),
            Self::Event(message) => message.encode(number, out),
            Self::Error(message) => message.encode(number, out),
        }
    }
}

/// Where a request must be served, read off without decoding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// In the shard of this key.
    Key(&'a [u8]),
    /// In the shard that the place of an id names.
    Place(u64),
    /// Wherever the cursor of a list points.
    Cursor(u64),
    /// At the connection itself.
    Connection,
    /// Too short to tell, or unknown. Decoding it says what is wrong.
    Malformed,
}

/// The route of a frame. It trusts nothing: a frame that routes may still fail to decode.
#[inline]
pub fn route(frame: Frame<'_>) -> Route<'_> {
    fn place_at(frame: Frame<'_>, offset: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*frame.bytes().get(offset..)?.first_chunk()?))
    }
    fn key_at(frame: Frame<'_>, offset: usize) -> Option<&[u8]> {
        let len = u16::from_le_bytes(*frame.bytes().get(offset..)?.first_chunk()?);
        frame.bytes().get(offset + 2..)?.get(..usize::from(len))
    }
    let route = match frame.opcode() {
        opcode::ACQUIRE => key_at(frame, acquire::KEY_OFFSET).map(Route::Key),
        opcode::RELEASE | opcode::EXTEND | opcode::STATUS => {
            place_at(frame, crate::frame::HEADER_LEN).map(Route::Place)
        }
        opcode::CANCEL => key_at(frame, cancel::KEY_OFFSET).map(Route::Key),
        opcode::INSPECT => key_at(frame, inspect::KEY_OFFSET).map(Route::Key),
        opcode::LIST => place_at(frame, crate::frame::HEADER_LEN).map(Route::Cursor),
        opcode::HELLO | opcode::KEEP_ALIVE | opcode::GOODBYE => Some(Route::Connection),
        _ => None,
    };
    route.unwrap_or(Route::Malformed)
}
