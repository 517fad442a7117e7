//! Rule `last-words`: a client that closed its sending side and still reads gets all responses that the
//! server has for it.

use super::Auditor;
use crate::operation::Operation;
use waymaker_protocol::{LockId, SessionId};

impl Auditor {
    /// Records that the client sends nothing after this request, which a worker answers without the turn of a
    /// shard.
    pub(crate) fn note_last_words(&mut self, connection: usize, number: u32) {
        self.connections[connection].last_words = Some(number);
    }

    /// Rule `last-words`: the server closes an unbroken connection only after it has answered the last
    /// request.
    pub(crate) fn judge_last_words(&mut self, connection: usize) {
        let listener = &self.connections[connection];
        let Some(number) = listener.last_words.filter(|_| !listener.is_clogged) else { return };
        if !listener.answered.contains(&number) && !self.may_close(listener.lane) {
            self.accuse("last-words", || {
                format!(
                    "the server closes connection {connection} without a response to {number}, the last request of its client"
                )
            });
        }
    }

    /// Returns whether the server may close the connections of a lane with unread requests.
    fn may_close(&self, lane: usize) -> bool {
        let is_goodbye = |request: &usize| self.requests[*request].operation == Operation::Goodbye;
        self.stopping_ms.is_some()
            || self.is_session_over(lane)
            || self.lanes[lane].requests.values().any(is_goodbye)
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

    /// Returns an auditor with a client that has sent its last request, perhaps after `before`. The
    /// connection closes, with or without a response to this request.
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
    fn a_client_that_closed_its_sending_side_gets_its_responses() {
        assert_eq!(rule(&closes(None, true)), None);
        assert_eq!(rule(&closes(None, false)), Some("last-words"));
    }

    #[test]
    fn no_request_is_read_after_goodbye_or_by_a_stopping_server() {
        assert_eq!(rule(&closes(Some(Operation::Goodbye), false)), None);
        let mut auditor = auditor();
        auditor.note_last_words(0, 2);
        auditor.note_stopping(1_000);
        auditor.judge_last_words(0);
        assert_eq!(rule(&auditor), None);
    }
}
