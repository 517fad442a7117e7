//! Rule `welcome`: the limits that the server announces in WELCOME are its settings.

use super::Auditor;
use crate::operation::Operation;
use waymaker_protocol::limits::{FRAME_LEN_MAX, IN_FLIGHT_MAX};
use waymaker_protocol::{SessionId, SessionRequest, VERSION, VERSION_MIN, Welcome};
use waymaker_server::limits::{SESSION_LEASE_DEFAULT_MS, SESSION_LEASE_MAX_MS};
use waymaker_server::node::shard_count;

impl Auditor {
    /// Rule `welcome`: WELCOME agrees with the settings of the server and with its HELLO.
    pub(super) fn judge_announced(&mut self, request: usize, welcome: &Welcome) {
        let Operation::Hello { session, .. } = self.requests[request].operation else { return };
        let limits = self.settings.limits;
        let announced = [
            ("lease_default_ms", welcome.lease_default_ms, limits.lease_default_ms),
            ("lease_min_ms", welcome.lease_min_ms, limits.lease_min_ms),
            ("lease_max_ms", welcome.lease_max_ms, limits.lease_max_ms),
            ("in_flight_max", welcome.in_flight_max, IN_FLIGHT_MAX),
            ("frame_len_max", welcome.frame_len_max, FRAME_LEN_MAX as u32),
        ];
        let worker_count = self.settings.worker_count;
        let counts = [
            ("worker_count", welcome.worker_count.into(), worker_count as u32),
            ("shard_count", welcome.shard_count.into(), shard_count(worker_count) as u32),
        ];
        // A restarted server may have another number of workers.
        let counts = counts.into_iter().filter(|_| self.restarts.count == 0);
        let wrong = announced.into_iter().chain(counts).find(|(_, said, set)| said != set);
        if let Some((name, said, set)) = wrong {
            self.accuse("welcome", || {
                format!("WELCOME announces {name} {said}, but the server is set to {set}: {welcome:?}")
            });
        }
        let is_spoken = (VERSION_MIN..=VERSION).contains(&welcome.version);
        if !is_spoken || welcome.worker >= welcome.worker_count || !self.is_session_as_asked(session, welcome)
        {
            self.accuse("welcome", || {
                format!(
                    "HELLO requested {session:?}, but WELCOME has another session, version or worker: {welcome:?}"
                )
            });
        }
    }

    /// Returns whether the session of WELCOME is the one in HELLO, with the lease that the first HELLO of the
    /// session requested.
    fn is_session_as_asked(&self, request: SessionRequest, welcome: &Welcome) -> bool {
        let Welcome { session_id, session_lease_ms, lane, resumed, .. } = *welcome;
        let known = self.sessions.get(&session_id);
        let is_as_long = known.is_none_or(|known| known.lease_ms() as u32 == session_lease_ms);
        match request {
            SessionRequest::None => {
                (session_id, session_lease_ms, lane, resumed) == (SessionId::default(), 0, 0, false)
            }
            SessionRequest::New { lease_ms } => {
                let given_ms = match lease_ms {
                    0 => SESSION_LEASE_DEFAULT_MS,
                    lease_ms => lease_ms.min(SESSION_LEASE_MAX_MS),
                };
                session_id != SessionId::default()
                    && (session_lease_ms, lane, resumed) == (given_ms, 0, false)
            }
            SessionRequest::Join { id } => session_id == id && is_as_long && !resumed,
            SessionRequest::Resume { id, lane: resumed_lane } => {
                session_id == id && is_as_long && resumed && lane == resumed_lane
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{auditor, rule, says, welcome};
    use super::*;
    use waymaker_protocol::{NamespaceKind, Response};

    /// Returns the rule that is broken if a HELLO that requests a session of 700 ms gets a WELCOME with this
    /// change.
    fn broken_by(change: impl FnOnce(&mut Welcome)) -> Option<&'static str> {
        let mut auditor = auditor();
        let session = SessionRequest::New { lease_ms: 700 };
        let hello = Operation::Hello { session, worker: u16::MAX, kind: NamespaceKind::Flat };
        auditor.asks(0, u32::MAX, hello, 0, 1_000);
        let mut welcome = welcome(&auditor, 700, 1_000);
        change(&mut welcome);
        says(&mut auditor, 0, u32::MAX, &Response::Welcome(welcome), 1_000);
        rule(&auditor)
    }

    #[test]
    fn welcome_announces_the_limits_of_the_server_and_the_requested_session() {
        assert_eq!(broken_by(|_| {}), None);
        let changes: [fn(&mut Welcome); 9] = [
            |welcome| welcome.lease_default_ms += 1,
            |welcome| welcome.lease_min_ms += 1,
            |welcome| welcome.lease_max_ms -= 1,
            |welcome| welcome.in_flight_max /= 2,
            |welcome| welcome.frame_len_max -= 1,
            |welcome| welcome.worker_count += 1,
            |welcome| welcome.session_lease_ms += 1,
            |welcome| welcome.resumed = true,
            |welcome| welcome.worker = welcome.worker_count,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert_eq!(broken_by(change), Some("welcome"), "change {number}");
        }
    }
}
