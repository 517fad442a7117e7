//! Consul: `PUT /v1/kv/KEY?acquire=SESSION` and `?release=SESSION`, with one session per connection.
//!
//! A client that finds a key held polls, as with Redis. A Consul client would instead wait with a blocking read of
//! the key and then try again. That makes each hand-over two requests, and all waiters still race for the key.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use super::http::{ask, next_response};
use super::{Answer, Broken, Claim, Codec, Parsed, refused};
use crate::key::{KeyIndex, TailPlace};
use crate::plan::Plan;

/// Bounds of a session TTL, in seconds.
const SESSION_S_MIN: u64 = 10;
const SESSION_S_MAX: u64 = 86_400;

/// A connection to Consul and its session.
#[derive(Debug)]
pub struct Consul {
    /// Templates for requests of any key; the end of the key is patched in.
    acquire: Vec<u8>,
    release: Vec<u8>,
    tail_place: TailPlace,
    /// The request that ends the session.
    destroy: Vec<u8>,
    /// Numbers of the requests without a response. Consul responds in request order and has no request numbers.
    unanswered: VecDeque<(u32, Sent)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Acquire,
    Release,
}

/// Opens a session with this TTL and returns its id.
pub(crate) fn open_session(stream: &mut (impl Read + Write), host: &str, lasts_s: u64) -> io::Result<String> {
    let lasts_s = lasts_s.clamp(SESSION_S_MIN, SESSION_S_MAX);
    // With these settings, the end of the session frees its keys at once and deletes them.
    let body = format!(r#"{{"TTL":"{lasts_s}s","LockDelay":"0s","Behavior":"delete"}}"#);
    let request = format!(
        "PUT /v1/session/create HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (status, body) = ask(stream, request.as_bytes())?;
    let id = || {
        let answer: serde_json::Value = serde_json::from_slice(&body).ok()?;
        let id = answer.get("ID")?.as_str()?;
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        is_id.then(|| id.to_owned())
    };
    match (status, id()) {
        (200, Some(id)) => Ok(id),
        _ => Err(refused(format!("cannot open a session: {status} {}", String::from_utf8_lossy(&body)))),
    }
}

impl Codec for Consul {
    type Hold = ();
    /// The response to an acquire does not contain the key's acquire count; only a read of the key would.
    const HAS_FENCES: bool = false;
    const WAITS: bool = false;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        let host = plan.socket_address.to_string();
        // The session is not renewed, so its TTL covers the whole load.
        let lasts_s = (plan.warmup + plan.duration).as_secs() + u64::from(plan.lease_ms.div_ceil(1000));
        let session = open_session(stream, &host, lasts_s)?;
        let put =
            |path: &str| format!("PUT /v1/{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        let key = KeyIndex(0).text(usize::from(plan.key_size));
        let key = String::from_utf8_lossy(&key);
        Ok(Self {
            acquire: put(&format!("kv/{key}?acquire={session}")).into_bytes(),
            release: put(&format!("kv/{key}?release={session}")).into_bytes(),
            tail_place: TailPlace::before("PUT /v1/kv/".len() + key.len(), key.len()),
            destroy: put(&format!("session/destroy/{session}")).into_bytes(),
            unanswered: VecDeque::with_capacity(plan.depth as usize),
        })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.acquire);
        self.tail_place.put(&claim.key.letters(), &mut out[start..]);
        self.unanswered.push_back((number, Sent::Acquire));
    }

    #[inline]
    fn put_release(&mut self, number: u32, claim: Claim, _hold: &(), out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.release);
        self.tail_place.put(&claim.key.letters(), &mut out[start..]);
        self.unanswered.push_back((number, Sent::Release));
    }

    fn put_close(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.destroy);
    }

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<()>, Broken> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let Some((response, len)) = next_response(bytes)? else { return Ok(None) };
        let Some((number, sent)) = self.unanswered.pop_front() else {
            return Err(Broken(format!("a response without a request: {}", response.words())));
        };
        let answer = match (sent, response.status, response.body) {
            (Sent::Acquire, 200, b"true") => Answer::Granted { number, hold: (), fence: 0 },
            (Sent::Acquire, 200, b"false") => Answer::Busy { number },
            (Sent::Release, 200, b"true") => Answer::Released { number },
            (Sent::Release, 200, b"false") => Answer::Refused {
                number: Some(number),
                message: "the session does not hold the key; the hold was lost".into(),
            },
            _ => Answer::Refused { number: Some(number), message: response.words() },
        };
        Ok(Some((answer, len)))
    }
}
