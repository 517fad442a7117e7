//! Rules `welcome` and `farewell`: no frame precedes WELCOME. After GOODBYE the server reads no more
//! requests, and after FAREWELL it sends no more frames.

use super::Auditor;
use crate::operation::Operation;
use std::collections::BTreeSet;
use waymaker_protocol::Response;

impl Auditor {
    /// Records a request that a client sends, perhaps after a GOODBYE on the same connection.
    pub(super) fn note_behind_goodbye(&mut self, connection: usize, number: u32, operation: &Operation) {
        match &mut self.connections[connection].behind_goodbye {
            Some(behind) => _ = behind.insert(number),
            none if *operation == Operation::Goodbye => *none = Some(BTreeSet::new()),
            _ => {}
        }
    }

    /// Rule `welcome`: the first frame after HELLO is WELCOME or an error.
    pub(super) fn judge_welcome(&mut self, connection: usize, response: &Response<'_>) {
        let is_first = std::mem::take(&mut self.connections[connection].is_greeting);
        if is_first && !matches!(response, Response::Welcome(_) | Response::Error(_)) {
            self.accuse("welcome", || {
                format!("connection {connection} got a frame before its WELCOME: {response:?}")
            });
        }
    }

    /// Returns whether the server does not read this request because it was sent after GOODBYE.
    pub(super) fn is_behind_goodbye(&self, connection: usize, request: usize) -> bool {
        let behind = self.connections[connection].behind_goodbye.as_ref();
        behind.is_some_and(|behind| behind.contains(&self.requests[request].number))
    }

    /// Rule `farewell`: no frame follows FAREWELL, and no request after GOODBYE is served. A refused GOODBYE
    /// has no effect.
    pub(super) fn judge_farewell(&mut self, connection: usize, number: u32, response: &Response<'_>) {
        let listener = &mut self.connections[connection];
        let was_over = listener.has_farewell;
        listener.has_farewell |= matches!(response, Response::Farewell(_));
        if was_over {
            return self.accuse("farewell", || {
                format!(
                    "connection {connection} got a response to request {number} after its FAREWELL: {response:?}"
                )
            });
        }
        let listener = &self.connections[connection];
        let Some(behind) = listener.behind_goodbye.as_ref().filter(|_| listener.has_farewell) else { return };
        if let Some(served) = behind.intersection(&listener.answered).next().copied() {
            self.accuse("farewell", || {
                format!(
                    "connection {connection}: request {served} was sent after GOODBYE and must not be served, but has a response"
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::auditor::Auditor;
    use crate::auditor::scene::{auditor, rule, says};
    use crate::operation::Operation;
    use waymaker_protocol::limits::ANY_WORKER;
    use waymaker_protocol::{Event, Farewell, KeptAlive, NamespaceKind, Response, SessionRequest, Welcome};

    const FAREWELL: Response<'_> = Response::Farewell(Farewell);

    fn kept(now_ms: u64) -> Response<'static> {
        Response::KeptAlive(KeptAlive { remaining_ms: 0, stamp_ms: now_ms })
    }

    /// Returns an auditor with a client that sends KEEP_ALIVE (1), GOODBYE (2) and KEEP_ALIVE (3).
    fn leaving() -> (Auditor, u64) {
        let mut auditor = auditor();
        let now_ms = auditor.settings.start_ms + 1;
        for (number, operation) in
            [(1, Operation::KeepAlive), (2, Operation::Goodbye), (3, Operation::KeepAlive)]
        {
            auditor.asks(0, number, operation, 0, now_ms);
        }
        (auditor, now_ms)
    }

    #[test]
    fn welcome_is_the_first_frame() {
        let hello =
            Operation::Hello { session: SessionRequest::None, worker: ANY_WORKER, kind: NamespaceKind::Flat };
        let heard_first = |response: &Response<'_>, number| {
            let mut auditor = auditor();
            let now_ms = auditor.settings.start_ms + 1;
            auditor.asks(0, 1, hello, 0, now_ms);
            says(&mut auditor, 0, number, response, now_ms);
            auditor.violation().is_some_and(|violation| violation.rule == "welcome")
        };
        assert!(heard_first(&Response::Event(Event::KeyFreed { fence: 1 }), 9));
        assert!(!heard_first(&Response::Welcome(Welcome::default()), 1));
    }

    #[test]
    fn farewell_is_the_last_frame() {
        let (mut auditor, now_ms) = leaving();
        says(&mut auditor, 0, 1, &kept(now_ms), now_ms);
        says(&mut auditor, 0, 2, &FAREWELL, now_ms);
        assert_eq!(rule(&auditor), None);
        let (mut auditor, now_ms) = leaving();
        says(&mut auditor, 0, 2, &FAREWELL, now_ms);
        says(&mut auditor, 0, 1, &kept(now_ms), now_ms);
        assert_eq!(rule(&auditor), Some("farewell"));
    }

    #[test]
    fn a_request_after_goodbye_is_not_served() {
        let (mut auditor, now_ms) = leaving();
        says(&mut auditor, 0, 3, &kept(now_ms), now_ms);
        assert_eq!(rule(&auditor), None, "the server may refuse GOODBYE");
        says(&mut auditor, 0, 2, &FAREWELL, now_ms);
        assert_eq!(rule(&auditor), Some("farewell"));
    }
}
