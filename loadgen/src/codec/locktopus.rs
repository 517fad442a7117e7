//! Locktopus: one lock at a time on each WebSocket; also the bare WebSocket server that it is compared with.

use std::io::{self, Read, Write};

use super::websocket::{next_text, put_text, shake_hands};
use super::{Answer, Broken, Claim, Codec, Parsed};
use crate::key::{KeyIndex, TailPlace};
use crate::plan::Plan;

/// A separate namespace, in which the locks of a lost connection are free at once.
const PATH: &str = "/v1?namespace=loadgen&abandon-timeout-ms=0";
const RELEASE: &[u8] = br#"{"action":"release"}"#;

/// A connection to Locktopus.
#[derive(Debug)]
pub struct Locktopus {
    exclusive: LockMessage,
    shared: LockMessage,
    release: Vec<u8>,
    /// Number of the request in flight; the protocol has no request numbers.
    number: u32,
}

/// A message that locks a path of one segment; the end of the key is patched in.
#[derive(Debug)]
struct LockMessage {
    frame: Vec<u8>,
    tail_place: TailPlace,
}

impl LockMessage {
    fn new(lock_type: &str, plan: &Plan) -> Self {
        let key = KeyIndex(0).text(usize::from(plan.key_size));
        let key = String::from_utf8_lossy(&key);
        let begin = format!(r#"{{"action":"lock","resources":[{{"type":"{lock_type}","path":[""#);
        let mut frame = Vec::new();
        let start = put_text(format!(r#"{begin}{key}"]}}]}}"#).as_bytes(), &mut frame);
        Self { tail_place: TailPlace::before(start + begin.len() + key.len(), key.len()), frame }
    }

    #[inline]
    fn append(&self, key: KeyIndex, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        self.tail_place.put(&key.letters(), &mut out[start..]);
    }
}

impl Locktopus {
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        self.number = number;
        let message = if claim.shared { &self.shared } else { &self.exclusive };
        message.append(claim.key, out);
    }

    fn put_release(&mut self, number: u32, out: &mut Vec<u8>) {
        self.number = number;
        out.extend_from_slice(&self.release);
    }
}

impl Codec for Locktopus {
    type Hold = ();
    /// Each lock has an id, and ids rise.
    const HAS_FENCES: bool = true;
    const WAITS: bool = true;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        shake_hands(stream, plan.socket_address, PATH, &plan.credentials)?;
        let mut release = Vec::new();
        put_text(RELEASE, &mut release);
        Ok(Self {
            exclusive: LockMessage::new("write", plan),
            shared: LockMessage::new("read", plan),
            release,
            number: 0,
        })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        self.put_acquire(number, claim, out);
    }

    #[inline]
    fn put_release(&mut self, number: u32, _claim: Claim, _hold: &(), out: &mut Vec<u8>) {
        self.put_release(number, out);
    }

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<()>, Broken> {
        let mut start = 0;
        loop {
            let Some((text, len)) = next_text(&bytes[start..])? else { return Ok(None) };
            start += len;
            let number = self.number;
            let answer = match said(text) {
                Some((id, "lock", "acquired")) => Answer::Granted { number, hold: (), fence: id },
                Some((_, "release", "ready")) => Answer::Released { number },
                // The lock is acquired later.
                Some((_, "lock", "enqueued")) => continue,
                _ => {
                    let message = String::from_utf8_lossy(text).trim_end().to_owned();
                    Answer::Refused { number: Some(number), message }
                }
            };
            return Ok(Some((answer, start)));
        }
    }
}

/// Returns id, action and state of a response, in the only form in which servers write it.
#[inline]
fn said(text: &[u8]) -> Option<(u64, &str, &str)> {
    let text = std::str::from_utf8(text).ok()?.trim_ascii_end();
    let (id, rest) = text.strip_prefix(r#"{"id":""#)?.split_once(r#"","action":""#)?;
    let (action, state) = rest.strip_suffix(r#""}"#)?.split_once(r#"","state":""#)?;
    Some((id.parse().ok()?, action, state))
}

/// A connection to the bare server: the same requests, and a constant response.
#[derive(Debug)]
pub struct WebSocketEcho {
    requests: Locktopus,
    /// Whether the request in flight is an acquire.
    is_acquiring: bool,
}

impl Codec for WebSocketEcho {
    type Hold = ();
    const HAS_FENCES: bool = false;
    const WAITS: bool = false;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        Ok(Self { requests: Locktopus::open(plan, stream)?, is_acquiring: false })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        self.is_acquiring = true;
        self.requests.put_acquire(number, claim, out);
    }

    #[inline]
    fn put_release(&mut self, number: u32, _claim: Claim, _hold: &(), out: &mut Vec<u8>) {
        self.is_acquiring = false;
        self.requests.put_release(number, out);
    }

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<()>, Broken> {
        let parsed = self.requests.next_answer(bytes)?;
        // Parses the response as for a real server, so that the client does the same work.
        Ok(parsed.map(|(answer, len)| match answer {
            Answer::Granted { number, .. } if !self.is_acquiring => (Answer::Released { number }, len),
            answer => (answer, len),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::said;

    #[test]
    fn parses_a_response_in_its_only_form() {
        let text = b"{\"id\":\"42\",\"action\":\"lock\",\"state\":\"enqueued\"}\n";
        assert_eq!(said(text), Some((42, "lock", "enqueued")));
        for text in
            ["", "communication error: unexpected EOF", r#"{"id":42,"action":"lock","state":"ready"}"#]
        {
            assert_eq!(said(text.as_bytes()), None, "{text}");
        }
    }
}
