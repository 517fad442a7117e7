//! Clients that send no more and still read: they get the answers that the server has.

use super::Auditor;
use crate::operation::Operation;
use waymaker_protocol::{LockId, SessionId};

impl Auditor {
    /// The client sends nothing behind this request, which a worker answers without the turn of a shard.
    pub(crate) fn note_last_words(&mut self, connection: usize, number: u32) {
        self.connections[connection].last_words = Some(number);
    }

    /// The server closes a connection that is not broken.
    pub(crate) fn judge_last_words(&mut self, connection: usize) {
        let listener = &self.connections[connection];
        let Some(number) = listener.last_words.filter(|_| !listener.is_clogged) else { return };
        if !listener.answered.contains(&number) && !self.may_close(listener.lane) {
            self.accuse("last-words", || {
                format!("connection {connection} closes without the answer to {number}, after which its client sent no more")
            });
        }
    }

    /// Returns whether the server may close the connections of a lane with requests that it has not read.
    fn may_close(&self, lane: usize) -> bool {
        let is_goodbye = |request: &usize| self.requests[*request].operation == Operation::Goodbye;
        self.stopping_ms.is_some()
            || self.is_session_over(lane)
            || self.lanes[lane].asked.values().any(is_goodbye)
    }

    /// Returns when the lease of a hold ends by the newest response, in microseconds of the run.
    pub(crate) fn lease_end_us(&self, id: LockId) -> Option<u64> {
        let hold = self.holds.get(&id).filter(|hold| hold.over_ms.is_none() && hold.session.is_none())?;
        (hold.longest_ms != u32::MAX).then(|| self.to_us(hold.lease_end_ms))
    }

    /// Returns the earliest end of a session, in microseconds of the run.
    pub(crate) fn session_end_us(&self, id: SessionId) -> Option<u64> {
        self.sessions
            .get(&id)
            .filter(|session| session.over_ms().is_none())
            .map(|session| self.to_us(session.floor_ms()))
    }
}

#[cfg(test)]
mod tests {
    use crate::auditor::Auditor;
    use crate::auditor::scene::{auditor, rule, says};
    use crate::operation::Operation;
    use waymaker_protocol::{KeptAlive, Response};

    /// A client that has said its last words, perhaps behind a goodbye. The connection closes with an answer to them or without.
    fn closes(before: Option<Operation>, is_answered: bool) -> Auditor {
        let mut auditor = auditor();
        let now_ms = auditor.settings.start_ms + 1;
        if let Some(before) = before {
            auditor.asks(0, 1, before, 0, now_ms);
        }
        auditor.asks(0, 2, Operation::KeepAlive, 1, now_ms);
        auditor.note_last_words(0, 2);
        if is_answered {
            let kept = KeptAlive { remaining_ms: 0, stamp_ms: now_ms };
            says(&mut auditor, 0, 2, &Response::KeptAlive(kept), now_ms);
        }
        auditor.judge_last_words(0);
        auditor
    }

    #[test]
    fn a_client_that_sends_no_more_gets_its_answers() {
        assert_eq!(rule(&closes(None, true)), None);
        assert_eq!(rule(&closes(None, false)), Some("last-words"));
    }

    #[test]
    fn nothing_is_read_behind_a_goodbye_or_when_the_server_stops() {
        assert_eq!(rule(&closes(Some(Operation::Goodbye), false)), None);
        let mut auditor = auditor();
        auditor.note_last_words(0, 2);
        auditor.note_stopping(1_000);
        auditor.judge_last_words(0);
        assert_eq!(rule(&auditor), None);
    }
}
