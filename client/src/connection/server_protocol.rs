//! Detection of a server's protocol by the first bytes that it sends.

use std::fmt;

use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Response, next_frame};

/// A protocol that a server may speak instead of the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The binary protocol of Waymaker.
    Waymaker,
    /// HTTP/1, including WebSocket.
    Http,
    /// HTTP/2, for example gRPC.
    Http2,
    /// TLS, regardless of the protocol inside.
    Tls,
    /// SSH.
    Ssh,
}

impl Protocol {
    /// Returns the protocol of a server that sends these bytes first, if it is known. A server of the binary protocol
    /// is detected only by its refusal of other bytes, because in that protocol the client speaks first.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'H', b'T', b'T', b'P', b'/', ..] => Some(Self::Http),
            // The first HTTP/2 frame of a server: SETTINGS, or GOAWAY, of stream 0.
            [0, _, _, 4 | 7, _, 0, 0, 0, 0, ..] => Some(Self::Http2),
            // A TLS record: an alert or a handshake.
            [0x15 | 0x16, 3, ..] => Some(Self::Tls),
            [b'S', b'S', b'H', b'-', ..] => Some(Self::Ssh),
            bytes => {
                let frame = next_frame(bytes, FRAME_LEN_MAX).ok().flatten()?;
                matches!(Response::decode(frame), Ok(Response::Error(_))).then_some(Self::Waymaker)
            }
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Waymaker => "the binary protocol of Waymaker",
            Self::Http => "HTTP",
            Self::Http2 => "HTTP/2 (gRPC)",
            Self::Tls => "TLS",
            Self::Ssh => "SSH",
        })
    }
}
