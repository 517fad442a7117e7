//! Sessions of Consul: `PUT /v1/session/renew/ID` for each. Keys stay held as long as their session.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use super::{Turns, leases_of_connection};
use crate::codec::consul::open_session;
use crate::codec::http::next_response;
use crate::codec::{Answer, Broken, Claim, Codec, Parsed};
use crate::plan::Plan;

/// A connection and its sessions.
#[derive(Debug)]
pub struct ConsulRenewals {
    /// Renewal request of each session.
    renewals: Turns<Vec<u8>>,
    /// Requests that end all sessions.
    destroy: Vec<u8>,
    /// Consul responds in request order.
    unanswered: VecDeque<u32>,
}

impl Codec for ConsulRenewals {
    type Hold = ();
    const HAS_FENCES: bool = false;
    const WAITS: bool = false;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        let host = plan.socket_address.to_string();
        let put = |what: &str, session: &str| {
            format!("PUT /v1/session/{what}/{session} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n")
        };
        let (mut renewals, mut destroy) = (Vec::new(), String::new());
        for _ in 0..leases_of_connection(plan) {
            let session = open_session(stream, &host, u64::from(plan.lease_ms.div_ceil(1000)))?;
            renewals.push(put("renew", &session).into_bytes());
            destroy.push_str(&put("destroy", &session));
        }
        let renewals = Turns::new(renewals);
        Ok(Self { renewals, destroy: destroy.into_bytes(), unanswered: VecDeque::new() })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, _claim: Claim, out: &mut Vec<u8>) {
        out.extend_from_slice(self.renewals.next());
        self.unanswered.push_back(number);
    }

    fn put_release(&mut self, _number: u32, _claim: Claim, (): &(), _out: &mut Vec<u8>) {}

    fn put_close(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.destroy);
    }

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<()>, Broken> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let Some((response, len)) = next_response(bytes)? else { return Ok(None) };
        let Some(number) = self.unanswered.pop_front() else {
            return Err(Broken(format!("a response without a request: {}", response.words())));
        };
        let answer = match response.status {
            200 => Answer::Renewed { number },
            _ => Answer::Refused { number: Some(number), message: response.words() },
        };
        Ok(Some((answer, len)))
    }
}
