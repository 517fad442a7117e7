use super::message::{Action, Answer, State};
use super::namespaces::Namespaces;
use super::session::{Closing, Reaction, Session};
use waymaker_protocol::{ErrorCode, LockId};

const LOCK: &[u8] = br#"{"action":"lock","resources":[{"type":"w","path":["a"]}]}"#;
const RELEASE: &[u8] = br#"{"action":"release"}"#;

fn session() -> Session {
    Session::new(Namespaces::default().open("test"))
}

fn lock(number: u8) -> LockId {
    LockId::from_bytes([number; 16])
}

fn answer(id: u64, action: Action, state: State) -> Reaction {
    Reaction::Send(Answer { id, action, state })
}

/// Requests a lock.
fn ask(session: &mut Session) {
    assert!(matches!(session.handle_message(LOCK), Reaction::Acquire(_)));
}

fn enqueued() -> Session {
    let mut session = session();
    ask(&mut session);
    assert_eq!(session.handle_queued(lock(1)), answer(1, Action::Lock, State::Enqueued));
    session
}

fn acquired() -> Session {
    let mut session = session();
    ask(&mut session);
    assert_eq!(session.handle_granted(lock(1)), answer(1, Action::Lock, State::Acquired));
    session
}

fn broken(reaction: Reaction) -> String {
    let Reaction::Close(Closing::Broken(detail)) = reaction else { panic!("{reaction:?}") };
    detail
}

#[test]
fn each_acquire_gets_a_new_id_that_its_release_shares() {
    let mut session = acquired();
    assert_eq!(session.handle_message(RELEASE), Reaction::Release(lock(1)));
    assert_eq!(session.handle_released(), answer(1, Action::Release, State::Ready));
    ask(&mut session);
    assert_eq!(session.handle_granted(lock(2)), answer(2, Action::Lock, State::Acquired));
    assert_eq!(session.handle_message(RELEASE), Reaction::Release(lock(2)));
    assert_eq!(session.handle_released(), answer(2, Action::Release, State::Ready));
}

#[test]
fn a_blocked_lock_is_enqueued_and_acquired_later_under_the_same_id() {
    let mut session = enqueued();
    assert_eq!(session.handle_granted(lock(1)), answer(1, Action::Lock, State::Acquired));
    assert_eq!(session.handle_message(RELEASE), Reaction::Release(lock(1)));
    assert_eq!(session.handle_released(), answer(1, Action::Release, State::Ready));
}

#[test]
fn a_waiter_can_give_up() {
    let mut session = enqueued();
    assert_eq!(session.handle_message(RELEASE), Reaction::Release(lock(1)));
    assert_eq!(session.handle_refused(ErrorCode::Cancelled, "given up"), Reaction::Wait);
    assert_eq!(session.handle_released(), answer(1, Action::Release, State::Ready));
}

#[test]
fn nothing_is_sent_about_a_lock_after_its_release() {
    let mut session = enqueued();
    assert_eq!(session.handle_message(RELEASE), Reaction::Release(lock(1)));
    assert_eq!(session.handle_granted(lock(1)), Reaction::Wait, "the grant crossed the release");
    assert_eq!(session.handle_lost("by force"), Reaction::Wait);
    assert_eq!(session.handle_released(), answer(1, Action::Release, State::Ready));
    assert_eq!(session.handle_granted(lock(1)), Reaction::Wait);
    assert_eq!(session.handle_lost("by force"), Reaction::Wait);
    assert_eq!(session.handle_refused(ErrorCode::Cancelled, "given up"), Reaction::Wait);
    assert_eq!(session.handle_released(), Reaction::Wait);
    assert!(session.wants_message());
}

#[test]
fn a_message_waits_while_another_is_served() {
    let mut session = session();
    assert!(session.wants_message());
    ask(&mut session);
    assert!(!session.wants_message());
    session.handle_queued(lock(1));
    assert!(session.wants_message());
    session.handle_granted(lock(1));
    assert!(session.wants_message());
    session.handle_message(RELEASE);
    assert!(!session.wants_message());
    session.handle_released();
    assert!(session.wants_message());
}

#[test]
fn an_invalid_action_is_reported_with_the_current_state() {
    let detail = broken(session().handle_message(RELEASE));
    assert_eq!(detail, "invalid action [release] in state [ready]");
    let detail = broken(enqueued().handle_message(LOCK));
    assert_eq!(detail, "invalid action [lock] in state [enqueued]");
    let detail = broken(acquired().handle_message(LOCK));
    assert_eq!(detail, "invalid action [lock] in state [acquired]");
    // An action that is invalid in this state is reported before its resources are validated.
    let detail = broken(acquired().handle_message(br#"{"action":"lock","resources":[{"type":"x"}]}"#));
    assert_eq!(detail, "invalid action [lock] in state [acquired]");
}

#[test]
fn an_invalid_message_ends_the_connection_in_any_state() {
    for mut session in [session(), enqueued(), acquired()] {
        assert_eq!(broken(session.handle_message(b"")), "unexpected EOF");
        assert!(!session.wants_message());
        assert_eq!(session.handle_message(LOCK), Reaction::Wait);
        assert_eq!(session.handle_granted(lock(1)), Reaction::Wait);
        assert_eq!(session.handle_released(), Reaction::Wait);
    }
    assert_eq!(broken(session().handle_message(b"{}")), "invalid action: ");
    assert_eq!(broken(acquired().handle_message(br#"{"action":"x"}"#)), "invalid action: x");
}

#[test]
fn a_rejected_set_uses_up_no_id() {
    let namespace = Namespaces::default().open("test");
    let mut session = Session::new(namespace.clone());
    broken(session.handle_message(br#"{"action":"lock","resources":[]}"#));
    assert_eq!(namespace.last_id(), 0);
}

#[test]
fn a_stopping_server_closes_connections_with_pending_locks() {
    let mut asked = session();
    ask(&mut asked);
    for mut session in [asked, enqueued()] {
        let reaction = session.handle_refused(ErrorCode::Shutdown, "the server is stopping");
        assert_eq!(reaction, Reaction::Close(Closing::Stopping));
        assert!(!session.wants_message());
    }
}

#[test]
fn a_refused_or_lost_lock_closes_the_connection_with_a_reason() {
    let mut session = session();
    ask(&mut session);
    let detail = broken(session.handle_refused(ErrorCode::Overloaded, "too many claims"));
    assert_eq!(detail, "the lock was refused: too many claims");
    assert_eq!(broken(acquired().handle_lost("by force")), "the lock was lost: by force");
}

#[test]
fn a_refused_release_is_not_reported_as_done() {
    let releasing = || {
        let mut session = acquired();
        session.handle_message(RELEASE);
        session
    };
    let detail = broken(releasing().handle_release_refused(ErrorCode::Overloaded, "too many requests"));
    assert_eq!(detail, "the release was refused: too many requests");
    let stopping = releasing().handle_release_refused(ErrorCode::Shutdown, "the server is stopping");
    assert_eq!(stopping, Reaction::Close(Closing::Stopping));
}
