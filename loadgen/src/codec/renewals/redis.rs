//! Keys of Redis: `PEXPIRE key lease` for each.
//!
//! `PEXPIRE` does not check the owner of the key; a careful client runs a script.

use std::io::{self, Read, Write};

use super::{Turns, key_of, leases_of_connection};
use crate::codec::redis::{Redis, command};
use crate::codec::{Answer, Broken, Claim, Codec, Parsed, refused};
use crate::plan::Plan;

/// Value of each key.
const VALUE: &[u8] = b"waymaker-loadgen";
/// Number of requests in flight while the leases are taken.
const BATCH: usize = 256;

/// A connection and its keys.
#[derive(Debug)]
pub struct RedisRenewals {
    /// `PEXPIRE` command of each key.
    renewals: Turns<Vec<u8>>,
    /// Redis responds in request order.
    unanswered: std::collections::VecDeque<u32>,
}

impl Codec for RedisRenewals {
    type Hold = ();
    const HAS_FENCES: bool = false;
    const WAITS: bool = false;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        Redis::open(plan, stream)?;
        let connection = rand::random();
        let lease_ms = plan.lease_ms.to_string();
        let keys: Vec<String> =
            (0..leases_of_connection(plan)).map(|lease| key_of(connection, lease)).collect();
        for batch in keys.chunks(BATCH) {
            let mut requests = Vec::new();
            for key in batch {
                requests.extend(command(&[b"SET", key.as_bytes(), VALUE, b"NX", b"PX", lease_ms.as_bytes()]));
            }
            stream.write_all(&requests)?;
            let mut answers = vec![0; batch.len() * b"+OK\r\n".len()];
            stream.read_exact(&mut answers)?;
            if answers.chunks(5).any(|answer| answer != b"+OK\r\n") {
                return Err(refused(format!(
                    "unexpected response to SET: {:?}",
                    String::from_utf8_lossy(&answers)
                )));
            }
        }
        let renewal = |key: &String| command(&[b"PEXPIRE", key.as_bytes(), lease_ms.as_bytes()]);
        Ok(Self {
            renewals: Turns::new(keys.iter().map(renewal).collect()),
            unanswered: std::collections::VecDeque::new(),
        })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, _claim: Claim, out: &mut Vec<u8>) {
        out.extend_from_slice(self.renewals.next());
        self.unanswered.push_back(number);
    }

    fn put_release(&mut self, _number: u32, _claim: Claim, (): &(), _out: &mut Vec<u8>) {}

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<()>, Broken> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line = &bytes[..=end];
        let Some(number) = self.unanswered.pop_front() else {
            return Err(Broken(format!("a response without a request: {:?}", String::from_utf8_lossy(line))));
        };
        let answer = match line {
            b":1\r\n" => Answer::Renewed { number },
            line => Answer::Refused {
                number: Some(number),
                message: format!(
                    "unexpected response to PEXPIRE: {:?}",
                    String::from_utf8_lossy(line).trim_end()
                ),
            },
        };
        Ok(Some((answer, line.len())))
    }
}
