//! Watches of a key.

use tokio::sync::watch;
use waymaker_protocol::{Event, Watching};

use super::*;
use crate::key::Key;
use crate::key::{KeyHolder, KeyState};
use crate::request::job::{Listener, WatchJob};

impl Rig {
    pub(super) fn watch(&mut self) -> (watch::Receiver<Option<KeyState>>, oneshot::Receiver<Result<()>>) {
        let (states, receiver) = watch::channel(None);
        let (reply, answer) = Reply::channel();
        let (token, key) = (7, Key::from(&b"k"[..]));
        self.submit(Job::Watch(WatchJob { token, key, listener: Some(Listener::new(states)), reply }));
        (receiver, answer)
    }

    pub(super) fn watching(&self, fence: u64, holder_count: u32) -> Response<'static> {
        Response::Watching(Watching { fence, stamp_ms: self.stamp_ms(), holder_count, waiter_count: 0 })
    }
}

const WATCH: &str = "Watch(Watch { key: [107] })";

#[test]
fn a_watch_reports_the_current_state_and_then_each_change() {
    let mut rig = Rig::new();
    let (mut states, mut answer) = rig.watch();
    rig.sends(&[(1, WATCH)]);
    let watching = rig.watching(3, 1);
    rig.receive(1, &watching);
    answer.try_recv().unwrap().unwrap();
    assert_eq!(*states.borrow_and_update(), Some(KeyState::Held { fence: 3, holder: None }));
    rig.receive(1, &Response::Event(Event::KeyFreed { fence: 3 }));
    rig.receive(1, &Response::Event(Event::KeyHeld { fence: 4, shared: true, owner: b"x" }));
    // The newest state replaces the older ones.
    let holder = KeyHolder { shared: true, owner: b"x".to_vec() };
    assert_eq!(*states.borrow_and_update(), Some(KeyState::Held { fence: 4, holder: Some(holder) }));
    rig.receive(9, &Response::Event(Event::KeyFreed { fence: 4 }));
    assert!(!states.has_changed().unwrap(), "that was another watch");
    rig.lane.handle_command(Command::Unwatch { token: 7 }, at(10_000));
    rig.sends(&[(2, "Unwatch(Unwatch { watch_number: 1, key: [107] })")]);
    assert!(states.has_changed().is_err());
}

#[test]
fn a_watch_restarts_after_a_reconnect_and_reports_only_changes() {
    let mut rig = Rig::new();
    let (mut states, _answer) = rig.watch();
    rig.sent();
    rig.lose_connection();
    rig.advance_to(10_100);
    rig.come_back(true);
    // The watch gets a new number: to the old number, the server would only repeat its response, without beginning a
    // watch.
    rig.sends(&[(2, "holds"), (3, WATCH)]);
    let watching = rig.watching(3, 0);
    rig.receive(3, &watching);
    assert_eq!(*states.borrow_and_update(), Some(KeyState::Free { fence: 3 }));
    for (resumed, number, fence, changed) in [(true, 5, 3, false), (false, 1, 4, true)] {
        rig.lose_connection();
        assert!(rig.lane.wants_connection(at(99_000)));
        rig.come_back(resumed);
        assert_eq!(rig.sent().last().unwrap(), &(number, WATCH.to_owned()));
        let watching = rig.watching(fence, 0);
        rig.receive(number, &watching);
        assert_eq!(states.has_changed().unwrap(), changed);
    }
}

#[test]
fn a_watch_restarts_after_an_overrun() {
    let mut rig = Rig::new();
    let (states, _answer) = rig.watch();
    rig.sent();
    let watching = rig.watching(3, 0);
    rig.receive(1, &watching);
    rig.receive(1, &Response::Event(Event::Overrun));
    rig.sends(&[(2, "Unwatch(Unwatch { watch_number: 1, key: [107] })"), (3, WATCH)]);
    let watching = rig.watching(8, 1);
    rig.receive(3, &watching);
    assert_eq!(*states.borrow(), Some(KeyState::Held { fence: 8, holder: None }));
}

/// A stopping server refuses to begin watches.
#[test]
fn a_watch_survives_a_stopping_server() {
    let mut rig = Rig::new();
    let (states, _answer) = rig.watch();
    rig.sent();
    let watching = rig.watching(3, 0);
    rig.receive(1, &watching);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(2, "holds"), (3, WATCH)]);
    rig.receive(3, &refusal(ErrorCode::Shutdown));
    assert!(states.has_changed().is_ok(), "the watch goes on");
    rig.lose_connection();
    rig.come_back(true);
    assert_eq!(rig.sent().last().unwrap(), &(5, WATCH.to_owned()));
}

#[test]
fn a_watch_dropped_before_it_starts_is_ended_when_it_starts() {
    let mut rig = Rig::new();
    let _watch = rig.watch();
    rig.sent();
    rig.lane.handle_command(Command::Unwatch { token: 7 }, at(10_000));
    rig.sends(&[]);
    let watching = rig.watching(3, 0);
    rig.receive(1, &watching);
    rig.sends(&[(2, "Unwatch(Unwatch { watch_number: 1, key: [107] })")]);
}
