//! Redis: `SET key value NX PX lease` and `DEL key`.
//!
//! The delete does not look whose the key is. That is the least a Redis lock can cost; a careful client runs a script.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use super::{Answer, Broken, Claim, Parsed, Target, refused};
use crate::key::{DIGITS, KeyIndex};
use crate::plan::Plan;

/// What is stored under a key; as long as our lock id.
const VALUE: &[u8; 16] = b"waymaker-loadgen";
/// The longest line of an answer that makes sense here.
const LINE_LEN_MAX: usize = 512;

/// A connection to Redis.
#[derive(Debug)]
pub struct Redis {
    /// `SET` and `DEL` of any key; the digits of the key are patched in.
    acquire: Vec<u8>,
    acquire_digits: usize,
    release: Vec<u8>,
    release_digits: usize,
    /// Redis answers in the order of the requests and numbers nothing: these are the numbers it owes.
    unanswered: VecDeque<(u32, Sent)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Acquire,
    Release,
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Redis {
    fn templates(plan: &Plan) -> Self {
        let key = KeyIndex(0).text(usize::from(plan.key_size));
        let lease_ms = plan.lease_ms.to_string();
        let head_len =
            |name: &[u8]| command(&[name]).len() + format!("${}\r\n", key.len()).len() + key.len() - DIGITS;
        let acquire = command(&[b"SET", &key, VALUE, b"NX", b"PX", lease_ms.as_bytes()]);
        let release = command(&[b"DEL", &key]);
        let unanswered = VecDeque::with_capacity(plan.depth as usize);
        Self {
            acquire_digits: head_len(b"SET"),
            acquire,
            release_digits: head_len(b"DEL"),
            release,
            unanswered,
        }
    }
}

impl Target for Redis {
    type Hold = ();
    const HAS_FENCES: bool = false;
    const WAITS: bool = false;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        stream.write_all(&command(&[b"PING"]))?;
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n") {
            let mut chunk = [0; 256];
            match stream.read(&mut chunk)? {
                0 => return Err(refused("the server closed the connection instead of answering PING")),
                count => received.extend_from_slice(&chunk[..count]),
            }
            if received.len() > LINE_LEN_MAX {
                break;
            }
        }
        match received.as_slice() {
            b"+PONG\r\n" => Ok(Self::templates(plan)),
            other => Err(refused(format!("PING was answered by {:?}", String::from_utf8_lossy(other)))),
        }
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        let digits = out.len() + self.acquire_digits;
        out.extend_from_slice(&self.acquire);
        out[digits..digits + DIGITS].copy_from_slice(&claim.key.digits());
        self.unanswered.push_back((number, Sent::Acquire));
    }

    #[inline]
    fn put_release(&mut self, number: u32, claim: Claim, _hold: &(), out: &mut Vec<u8>) {
        let digits = out.len() + self.release_digits;
        out.extend_from_slice(&self.release);
        out[digits..digits + DIGITS].copy_from_slice(&claim.key.digits());
        self.unanswered.push_back((number, Sent::Release));
    }

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<()>, Broken> {
        let Some(end) = bytes.iter().take(LINE_LEN_MAX).position(|byte| *byte == b'\n') else {
            return if bytes.len() < LINE_LEN_MAX {
                Ok(None)
            } else {
                Err(Broken("a line without end".into()))
            };
        };
        let line = &bytes[..=end];
        let Some((number, sent)) = self.unanswered.pop_front() else {
            return Err(Broken(format!("an answer to no request: {:?}", String::from_utf8_lossy(line))));
        };
        let answer = match (sent, line) {
            (Sent::Acquire, b"+OK\r\n") => Answer::Granted { number, hold: (), fence: 0 },
            (Sent::Acquire, b"$-1\r\n") => Answer::Busy { number },
            (Sent::Release, b":1\r\n") => Answer::Released { number },
            (Sent::Release, b":0\r\n") => Answer::Refused {
                number: Some(number),
                message: "DEL found no key: the hold was lost".into(),
            },
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
    use super::command;

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        assert_eq!(command(&[b"DEL", b"key"]), b"*2\r\n$3\r\nDEL\r\n$3\r\nkey\r\n");
    }
}
