//! The part of the WebSocket protocol that a client of short messages needs.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use waymaker_client::Credentials;

use super::{Broken, refused};

/// First byte of an unfragmented text message.
const TEXT: u8 = 0x81;
/// The peer closes the connection.
const CLOSE: u8 = 0x88;
/// Keep-alive request and response.
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
/// Flag for frames of clients, which carry a mask. The mask here is zero, so the payload is not changed.
const MASKED: u8 = 0x80;
const MASK: [u8; 4] = [0; 4];
/// Length value: the real length follows in two bytes.
const LEN_FOLLOWS: u8 = 126;
/// Maximum length of a handshake response.
const HANDSHAKE_LEN_MAX: usize = 4 << 10;

/// Upgrades a new connection to a WebSocket. Does not verify the key in the response.
pub(super) fn shake_hands(
    stream: &mut (impl Read + Write),
    host: SocketAddr,
    path: &str,
    credentials: &Credentials,
) -> io::Result<()> {
    let mut request = Vec::new();
    // In one write: if the server closed the connection meanwhile, the read that follows reports the reason.
    write!(
        request,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: d2F5bWFrZXItbG9hZGdlbg==\r\n"
    )?;
    if !credentials.is_empty() {
        request.extend([b"Authorization: Bearer ", credentials.as_ref(), b"\r\n"].concat());
    }
    request.extend(b"\r\n");
    stream.write_all(&request)?;
    let mut answer = vec![0; HANDSHAKE_LEN_MAX];
    let mut len = 0;
    // The server sends nothing after the handshake until it gets a message.
    while !answer[..len].ends_with(b"\r\n\r\n") {
        match stream.read(&mut answer[len..])? {
            0 => return Err(refused("the server does not speak HTTP")),
            count => len += count,
        }
    }
    if answer.starts_with(b"HTTP/1.1 101 ") {
        return Ok(());
    }
    let first_line = answer[..len].split(|&byte| byte == b'\r').next().unwrap_or_default();
    Err(refused(format!("the server refused the WebSocket: {}", String::from_utf8_lossy(first_line))))
}

/// Appends a text message, and returns the position of its text.
pub(super) fn put_text(text: &[u8], out: &mut Vec<u8>) -> usize {
    out.push(TEXT);
    match u8::try_from(text.len()) {
        Ok(len) if len < LEN_FOLLOWS => out.push(MASKED | len),
        _ => {
            out.push(MASKED | LEN_FOLLOWS);
            let len = u16::try_from(text.len()).expect("messages of a load are short");
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
    out.extend_from_slice(&MASK);
    let start = out.len();
    out.extend_from_slice(text);
    start
}

/// Returns the first text message in `bytes` and its end; `None` if it is incomplete. Skips keep-alive frames
/// before it; they need no response, because the requests of this client also prove that it is alive.
#[inline]
pub(super) fn next_text(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Broken> {
    let mut start = 0;
    loop {
        let [kind, len, rest @ ..] = &bytes[start..] else { return Ok(None) };
        let (header_len, len) = match (*len, rest) {
            (len @ 0..LEN_FOLLOWS, _) => (2, usize::from(len)),
            (LEN_FOLLOWS, [high, low, ..]) => (4, usize::from(u16::from_be_bytes([*high, *low]))),
            (LEN_FOLLOWS, _) => return Ok(None),
            _ => return Err(Broken("an invalid WebSocket frame".to_owned())),
        };
        let end = start + header_len + len;
        let Some(payload) = bytes.get(start + header_len..end) else { return Ok(None) };
        match *kind {
            TEXT => return Ok(Some((payload, end))),
            PING | PONG => start = end,
            CLOSE => {
                let code = payload.first_chunk().map_or(0, |code| u16::from_be_bytes(*code));
                return Err(Broken(format!("the server closed the WebSocket with {code}")));
            }
            other => return Err(Broken(format!("a WebSocket frame of unknown kind {other:#04x}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{next_text, put_text};

    #[test]
    fn frames_messages_of_any_length() {
        for (len, header_len) in [(0, 2), (125, 2), (126, 4), (1_100, 4)] {
            let text = vec![b'x'; len];
            let mut frame = Vec::new();
            assert_eq!(put_text(&text, &mut frame), header_len + 4, "{len}");
            // Without the mask it is a frame of a server.
            frame.drain(header_len..header_len + 4);
            frame[1] &= 0x7f;
            assert_eq!(next_text(&frame).expect("sound"), Some((&text[..], frame.len())));
            for short in 0..frame.len() {
                assert_eq!(next_text(&frame[..short]).expect("sound"), None, "{short} of {len}");
            }
        }
    }

    #[test]
    fn skips_keep_alive_frames_and_rejects_other_frames() {
        assert_eq!(next_text(b"\x89\x01p\x8a\x00\x81\x01t").expect("sound"), Some((&b"t"[..], 8)));
        for (bytes, words) in [
            (&b"\x88\x02\x0b\xb8"[..], "closed the WebSocket with 3000"),
            (b"\x88\x00", "with 0"),
            (b"\x02\x00", "0x02"),
            (b"\x81\x7f", "invalid WebSocket frame"),
        ] {
            let broken = next_text(bytes).expect_err(words).0;
            assert!(broken.contains(words), "{broken}");
        }
    }
}
