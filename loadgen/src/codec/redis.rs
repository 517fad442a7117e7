//! Redis: `SET key owner NX PX lease`, and a script that deletes the key if it still has the owner's value.
//!
//! A careful client does the same. With [`RedisRelease::Del`] the release is `DEL key`, which does not check the
//! owner: the lower bound of the cost of a Redis lock.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use super::{Answer, Broken, Claim, Codec, Parsed, refused};
use crate::key::{KeyIndex, TailPlace};
use crate::options::RedisRelease;
use crate::plan::Plan;

/// Deletes a key if it has the owner's value, and returns the number of deleted keys.
const SCRIPT: &[u8] =
    b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
/// Maximum length of a response line.
const LINE_LEN_MAX: usize = 512;

/// A connection to Redis.
#[derive(Debug)]
pub struct Redis {
    /// Templates for acquire and release of any key; the end of the key is patched in.
    acquire: Vec<u8>,
    acquire_tail: TailPlace,
    release: Vec<u8>,
    release_tail: TailPlace,
    /// Error text for a release that finds no key.
    lost: &'static str,
    /// Numbers of the requests without a response. Redis responds in request order and has no request numbers.
    unanswered: VecDeque<(u32, Sent)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Acquire,
    Release,
}

fn put_word(word: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| put_word(word, &mut bytes));
    bytes
}

/// Returns a command, and the position of the key in it.
fn keyed_command(before: &[&[u8]], key: &[u8], after: &[&[u8]]) -> (Vec<u8>, TailPlace) {
    let mut behind = b"\r\n".to_vec();
    after.iter().for_each(|word| put_word(word, &mut behind));
    let bytes = command(&[before, &[key], after].concat());
    // A line break follows the key.
    let place = TailPlace::before(bytes.len() - behind.len(), key.len());
    (bytes, place)
}

/// Sends one request and reads a response with this number of lines.
fn ask(stream: &mut (impl Read + Write), words: &[&[u8]], line_count: usize) -> io::Result<String> {
    stream.write_all(&command(words))?;
    let name = String::from_utf8_lossy(words[0]);
    let mut received = Vec::new();
    // An error is always one line.
    while !received.ends_with(b"\r\n")
        || !received.starts_with(b"-") && received.iter().filter(|byte| **byte == b'\n').count() < line_count
    {
        let mut chunk = [0; 256];
        match stream.read(&mut chunk)? {
            0 => {
                return Err(refused(format!(
                    "the server closed the connection without a response to {name}"
                )));
            }
            count => received.extend_from_slice(&chunk[..count]),
        }
        if received.len() > LINE_LEN_MAX {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&received).into_owned())
}

/// Loads the script into the server, and returns its name.
fn load_script(stream: &mut (impl Read + Write)) -> io::Result<String> {
    let answer = ask(stream, &[b"SCRIPT", b"LOAD", SCRIPT], 2)?;
    let name = answer.strip_prefix("$40\r\n").and_then(|rest| rest.strip_suffix("\r\n"));
    match name.filter(|name| name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        Some(name) => Ok(name.to_owned()),
        None => Err(refused(format!("unexpected response to SCRIPT LOAD: {answer:?}"))),
    }
}

impl Codec for Redis {
    type Hold = ();
    const HAS_FENCES: bool = false;
    const WAITS: bool = false;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        let pong = ask(stream, &[b"PING"], 1)?;
        if pong != "+PONG\r\n" {
            return Err(refused(format!("unexpected response to PING: {pong:?}")));
        }
        let key = &KeyIndex(0).key(usize::from(plan.key_size))[..];
        // As long as a Waymaker lock id, and unique.
        let owner = format!("{:016x}", rand::random::<u64>());
        let (owner, lease_ms) = (owner.as_bytes(), plan.lease_ms.to_string());
        let (acquire, acquire_tail) =
            keyed_command(&[b"SET"], key, &[owner, b"NX", b"PX", lease_ms.as_bytes()]);
        let ((release, release_tail), lost) = match plan.redis_release {
            RedisRelease::Script => {
                let script = load_script(stream)?;
                let release = keyed_command(&[b"EVALSHA", script.as_bytes(), b"1"], key, &[owner]);
                (release, "the script found no key of its owner; the hold was lost")
            }
            RedisRelease::Del => (keyed_command(&[b"DEL"], key, &[]), "DEL found no key; the hold was lost"),
        };
        let unanswered = VecDeque::with_capacity(plan.depth as usize);
        Ok(Self { acquire, acquire_tail, release, release_tail, lost, unanswered })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.acquire);
        self.acquire_tail.put(&claim.key.tail(), &mut out[start..]);
        self.unanswered.push_back((number, Sent::Acquire));
    }

    #[inline]
    fn put_release(&mut self, number: u32, claim: Claim, _hold: &(), out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.release);
        self.release_tail.put(&claim.key.tail(), &mut out[start..]);
        self.unanswered.push_back((number, Sent::Release));
    }

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<()>, Broken> {
        let Some(end) = bytes.iter().take(LINE_LEN_MAX).position(|byte| *byte == b'\n') else {
            return if bytes.len() < LINE_LEN_MAX {
                Ok(None)
            } else {
                Err(Broken(format!("a line longer than {LINE_LEN_MAX} bytes")))
            };
        };
        let line = &bytes[..=end];
        let Some((number, sent)) = self.unanswered.pop_front() else {
            return Err(Broken(format!("a response without a request: {:?}", String::from_utf8_lossy(line))));
        };
        let answer = match (sent, line) {
            (Sent::Acquire, b"+OK\r\n") => Answer::Granted { number, hold: (), fence: 0 },
            (Sent::Acquire, b"$-1\r\n") => Answer::Busy { number },
            (Sent::Release, b":1\r\n") => Answer::Released { number },
            (Sent::Release, b":0\r\n") => Answer::Refused { number: Some(number), message: self.lost.into() },
            (_, line) => Answer::Refused {
                number: Some(number),
                message: String::from_utf8_lossy(line).trim_end().to_owned(),
            },
        };
        Ok(Some((answer, line.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::{command, keyed_command};

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        assert_eq!(command(&[b"DEL", b"key"]), b"*2\r\n$3\r\nDEL\r\n$3\r\nkey\r\n");
    }

    #[test]
    fn finds_the_key_between_other_words() {
        for after in [&[][..], &[&b"00000000"[..], b"NX"]] {
            let (mut bytes, place) = keyed_command(&[b"SET"], b"waymaker12345678", after);
            place.put(b"another key here", &mut bytes);
            assert_eq!(bytes, keyed_command(&[b"SET"], b"another key here", after).0);
        }
    }
}
