//! Progress of the client's current message, derived from the bytes of its WebSocket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Length of a frame header without its extended length and mask.
const HEAD_LEN: usize = 2;
const MASK_LEN: usize = 4;
/// Lowest opcode of control frames, which may occur between the frames of a message.
const CONTROL: u8 = 0x8;

/// Finds the WebSocket frame boundaries in the bytes of a client and counts its messages, without looking at their
/// content. The connection thereby learns whether a message is unfinished, and whether it has read messages that it has
/// not served.
#[derive(Debug, Default)]
pub(super) struct FrameTracker {
    /// Bytes of an incomplete header.
    header: Vec<u8>,
    /// Number of payload bytes of the current frame that have not arrived yet.
    payload_left: u64,
    /// Whether another frame must follow to end the message.
    goes_on: bool,
    /// Whether at least one frame of a message is complete, but not its last one.
    is_fragmented: bool,
    begun_count: u64,
    /// Whether the current frame completes its message or is a control frame.
    completes: bool,
    /// Number of completed messages and control frames.
    complete_count: u64,
}

impl FrameTracker {
    /// Returns the number of the message or control frame that has begun and is not complete, if there is one. A
    /// control frame within a message has no number of its own.
    pub(super) fn partial(&self) -> Option<u64> {
        let is_partial = !self.header.is_empty() || self.payload_left > 0 || self.is_fragmented;
        is_partial.then_some(self.begun_count)
    }

    /// Returns the number of messages and control frames that the client has sent completely.
    pub(super) fn complete_count(&self) -> u64 {
        self.complete_count
    }

    /// Records bytes that the client sent.
    pub(super) fn note(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let len = bytes.len().min(usize::try_from(self.payload_left).unwrap_or(usize::MAX));
                bytes = &bytes[len..];
                self.payload_left -= len as u64;
            } else {
                if self.partial().is_none() {
                    self.begun_count += 1;
                }
                self.header.push(bytes[0]);
                bytes = &bytes[1..];
                self.read_header();
            }
            if self.payload_left == 0 && self.header.is_empty() {
                self.is_fragmented = self.goes_on;
                self.complete_count += u64::from(self.completes);
            }
        }
    }

    /// Parses the header if it is complete.
    ///
    /// `FrameHeader::parse` of tungstenite is unsuitable: it returns no length if the opcode is reserved, and takes
    /// twice the time.
    fn read_header(&mut self) {
        let [first, second, ..] = self.header[..] else { return };
        let mask_len = if second & 0x80 == 0 { 0 } else { MASK_LEN };
        let (len_len, short_len) = match second & 0x7f {
            126 => (2, 0),
            127 => (8, 0),
            len => (0, u64::from(len)),
        };
        if self.header.len() < HEAD_LEN + len_len + mask_len {
            return;
        }
        let extended = &self.header[HEAD_LEN..HEAD_LEN + len_len];
        let len = extended.iter().fold(0, |len, byte| len << 8 | u64::from(*byte));
        self.payload_left = if len_len == 0 { short_len } else { len };
        self.header.clear();
        let (is_last, opcode) = (first & 0x80 != 0, first & 0x0f);
        if opcode < CONTROL {
            self.goes_on = !is_last;
        }
        self.completes = is_last || opcode >= CONTROL;
    }
}

/// Socket wrapper that tracks the frames of its client, to detect unfinished messages.
#[derive(Debug)]
pub(super) struct FramedSocket<S> {
    socket: S,
    pub(super) framing: FrameTracker,
}

impl<S> FramedSocket<S> {
    /// Wraps a socket. `read` holds the bytes that were already read from the socket: the wrapper counts their frames,
    /// but reads do not return them again.
    pub(super) fn new(socket: S, read: &[u8]) -> Self {
        let mut framing = FrameTracker::default();
        framing.note(read);
        Self { socket, framing }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FramedSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut own.socket).poll_read(context, buffer);
        own.framing.note(&buffer.filled()[before..]);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FramedSocket<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;

    /// Returns a masked client frame.
    fn frame(first: u8, payload_len: usize) -> Vec<u8> {
        let header = FrameHeader {
            is_final: first & 0x80 != 0,
            opcode: (first & 0x0f).into(),
            mask: Some([7; MASK_LEN]),
            ..FrameHeader::default()
        };
        let mut bytes = Vec::new();
        header.format(payload_len as u64, &mut bytes).expect("a vector takes all bytes");
        bytes.resize(bytes.len() + payload_len, 0x81);
        bytes
    }

    #[test]
    fn a_message_is_partial_from_its_first_byte_to_its_last() {
        for len in [0, 1, 125, 126, 65_535, 65_536] {
            let mut framing = FrameTracker::default();
            let bytes = frame(0x81, len);
            for byte in &bytes[..bytes.len() - 1] {
                framing.note(&[*byte]);
                assert_eq!(framing.partial(), Some(1), "a message of {len} bytes");
            }
            framing.note(&bytes[bytes.len() - 1..]);
            assert_eq!(framing.partial(), None, "a message of {len} bytes");
        }
    }

    #[test]
    fn messages_and_control_frames_are_counted_when_they_are_complete() {
        let mut framing = FrameTracker::default();
        let mut note = |bytes: &[u8]| {
            framing.note(bytes);
            framing.complete_count()
        };
        let text = frame(0x81, 3);
        assert_eq!(note(&text[..text.len() - 1]), 0);
        assert_eq!(note(&text[text.len() - 1..]), 1);
        assert_eq!(note(&frame(0x01, 3)), 1, "the first frame of a message");
        assert_eq!(note(&frame(0x89, 0)), 2, "a ping");
        assert_eq!(note(&frame(0x00, 0)), 2, "an empty frame");
        assert_eq!(note(&frame(0x80, 3)), 3);
        assert_eq!(note(&[frame(0x81, 0), frame(0x81, 300), text].concat()), 6);
    }

    #[test]
    fn control_frames_inside_a_message_begin_no_new_message() {
        let mut framing = FrameTracker::default();
        framing.note(&frame(0x01, 3));
        assert_eq!(framing.partial(), Some(1));
        framing.note(&frame(0x89, 0));
        framing.note(&frame(0x00, 3));
        assert_eq!(framing.partial(), Some(1));
        framing.note(&frame(0x80, 0));
        assert_eq!(framing.partial(), None);
        framing.note(&frame(0x81, 3)[..4]);
        assert_eq!(framing.partial(), Some(2));
    }

    #[test]
    fn framing_does_not_depend_on_how_bytes_are_split() {
        let mut bytes = Vec::new();
        let messages = [(0, 1), (1, 3), (200, 2), (70_000, 1), (5, 4)];
        for (len, frame_count) in messages {
            for index in 0..frame_count {
                let last = if index + 1 == frame_count { 0x80 } else { 0 };
                bytes.extend(frame(u8::from(index == 0) | last, len));
            }
        }
        for piece_len in (1..20).chain([1_000, 1_000_000]) {
            let mut framing = FrameTracker::default();
            bytes.chunks(piece_len).for_each(|piece| framing.note(piece));
            assert_eq!(
                (framing.partial(), framing.begun_count, framing.complete_count),
                (None, messages.len() as u64, messages.len() as u64),
                "{piece_len}"
            );
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        for seed in 0..=255_u8 {
            let noise: Vec<u8> = (0..1_000_u32).map(|index| (index * index + index) as u8 ^ seed).collect();
            FrameTracker::default().note(&noise);
        }
    }
}
