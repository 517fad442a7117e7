//! Clients that are late or silent.

use super::*;
use crate::limit_options::LimitOptions;
use crate::limits::{FRAME_MS, PING_MS, PINGS_MISSED_MAX, WRITE_MS};
use crate::milliseconds::Milliseconds;
use waymaker_protocol::limits::{IN_FLIGHT_MAX, VALUE_LEN_MAX};
use waymaker_protocol::message::entries::LOOKED_UP;
use waymaker_protocol::message::keep_alive::KEPT_ALIVE;
use waymaker_protocol::message::registry::REGISTERED;
use waymaker_protocol::{KeepAlive, LookUp, Pong, Register, Release};

/// If a client sends more bytes than the server reads at once, each read ends with the beginning of a frame.
#[test]
fn a_connection_that_finishes_each_frame_in_time_is_never_late() {
    let mut rig = Rig::new(1);
    let (key, _) = rig.connect(SessionRequest::None);
    let request = frame(2, &Request::KeepAlive(KeepAlive));
    let (begin, end) = request.split_at(5);
    rig.say(key, begin);
    for _ in 0..4 {
        rig.pass_ms(FRAME_MS / 2);
        rig.say(key, &[end, begin].concat());
        assert_eq!(rig.hear(key), [(2, Heard::Other(KEPT_ALIVE))]);
    }
    rig.pass_ms(FRAME_MS + 1);
    let last_words = rig.take_output(key).expect("it is told why");
    assert_eq!(heard(&last_words), [(0, Heard::Refused(ErrorCode::BadInput))], "one was not finished");
    assert!(rig.take_output(key).is_none(), "the connection is closed");
}

/// Each limit is shorter than its default, so the test shows that the limits of the options apply.
#[test]
fn stalled_connections_are_closed_after_the_times_that_are_set() {
    let (short, now) = (Milliseconds::new(1_000), Time::from_millis(1_000));
    let rig = || {
        let mut node = test_node(1, now);
        let set =
            LimitOptions { hello: short, frame: short, write: short, ping: short, ..LimitOptions::default() };
        Arc::get_mut(&mut node).expect("nobody shares it").set_limits(set);
        Rig::of(node, now)
    };
    let refused = |rig: &mut Rig, key| {
        let last_words = rig.take_output(key).expect("it is told why");
        assert_eq!(heard(&last_words).last(), Some(&(0, Heard::Refused(ErrorCode::BadInput))));
    };
    let mut greeting = rig();
    let key = greeting.workers[0].handle_open(b"peer", greeting.now);
    greeting.pass_ms(1_001);
    refused(&mut greeting, key);

    let mut reading = rig();
    let (key, _) = reading.connect(SessionRequest::None);
    reading.say(key, &frame(2, &Request::KeepAlive(KeepAlive))[..5]);
    reading.pass_ms(1_001);
    refused(&mut reading, key);

    let mut silent = rig();
    let key = silent.connect_capable(Capabilities::PING);
    silent.pass_ms(HOUSEKEEPING_MS);
    for _ in 0..PINGS_MISSED_MAX {
        silent.pass_ms(1_000);
        assert_eq!(silent.hear(key), [PING]);
    }
    silent.pass_ms(1_000 + HOUSEKEEPING_MS);
    refused(&mut silent, key);

    let mut writing = rig();
    let (key, _) = writing.connect(SessionRequest::None);
    writing.say(key, &frame(2, &Request::LookUp(LookUp { key: b"key" })));
    writing.workers[0].wrote(key, 5);
    writing.pass_ms(1_001);
    assert_eq!(writing.take_output(key), None);
}

/// While the server does not run, the rest of a request may arrive in the socket. The client may also become ready to
/// read answers. So the time of the standstill must not count as time in which the client stalled. The server first
/// reads and writes.
#[test]
fn a_server_that_stalled_serves_a_connection_before_it_drops_it() {
    let mut rig = Rig::new(1);
    let now = rig.now;
    let newcomer = rig.workers[0].handle_open(b"peer", now);
    let ((key, _), (reader, _)) = (rig.connect(SessionRequest::None), rig.connect(SessionRequest::None));
    let request = frame(2, &Request::KeepAlive(KeepAlive));
    let (begin, end) = request.split_at(5);
    rig.say(newcomer, begin);
    rig.say(key, begin);
    rig.say(reader, &request);
    rig.workers[0].wrote(reader, 5);
    rig.stand_still_ms(60_000);
    assert_eq!(rig.take_output(newcomer).as_deref(), Some(&[][..]), "HELLO may have come");
    rig.say(key, end);
    assert_eq!(rig.hear(key), [(2, Heard::Other(KEPT_ALIVE))], "the rest of the frame has come");
    assert!(rig.take_output(reader).is_some_and(|rest| !rest.is_empty()), "the client may read");
}

/// Returns the frames that a connection gets in 90 s of silence, and whether the connection is open after that.
fn hear_in_silence(rig: &mut Rig, key: ConnectionKey) -> (Vec<(u32, Heard)>, bool) {
    let mut all = Vec::new();
    for _ in 0..90_000 / HOUSEKEEPING_MS {
        rig.pass_ms(HOUSEKEEPING_MS);
        match rig.take_output(key) {
            Some(output) => all.extend(heard(&output)),
            None => return (all, false),
        }
    }
    (all, true)
}

const PING: (u32, Heard) = (0, Heard::Other(opcode::PING));

/// The kernel acknowledges bytes for a stopped client process, so TCP never detects that the client is silent.
#[test]
fn a_silent_client_that_answers_pings_is_pinged_and_closed() {
    let mut rig = Rig::new(1);
    let key = rig.connect_capable(Capabilities::PING);
    let (all, is_open) = hear_in_silence(&mut rig, key);
    assert_eq!(all, [PING, PING, PING, (0, Heard::Refused(ErrorCode::BadInput))]);
    assert!(!is_open);
}

#[test]
fn only_a_client_that_answers_pings_is_pinged() {
    let mut rig = Rig::new(1);
    let (plain, _) = rig.connect(SessionRequest::None);
    let capable = rig.connect_capable(Capabilities::OWN_CLAIM);
    for key in [plain, capable] {
        assert_eq!(hear_in_silence(&mut rig, key), (vec![], true));
    }
}

/// Any bytes are a sign of life: a pong, another request, and the beginning of a frame.
#[test]
fn a_client_that_sends_pongs_or_requests_stays_connected() {
    for sign in [frame(0, &Request::Pong(Pong)), frame(2, &Request::KeepAlive(KeepAlive))] {
        let mut rig = Rig::new(1);
        let key = rig.connect_capable(Capabilities::PING);
        for _ in 0..10 {
            rig.pass_ms(HOUSEKEEPING_MS);
            for _ in 0..2 {
                rig.pass_ms(PING_MS);
                assert_eq!(rig.hear(key), [PING]);
            }
            let (begin, end) = sign.split_at(5);
            rig.say(key, begin);
            rig.pass_ms(FRAME_MS / 2);
            assert_eq!(rig.hear(key), []);
            rig.say(key, end);
            rig.hear(key);
        }
    }
}

/// The capabilities of the present connection of a lane decide.
#[test]
fn a_resumed_lane_is_pinged_if_its_new_connection_supports_pings() {
    let mut rig = Rig::new(1);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 1 << 20 });
    rig.workers[0].handle_lost(key, rig.now);
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let (key, _) = rig.connect_saying(Some(Capabilities::PING), NamespaceKind::Flat, resume);
    rig.pass_ms(HOUSEKEEPING_MS);
    rig.pass_ms(PING_MS);
    assert_eq!(rig.hear(key), [PING]);
    // A pong keeps the session alive like every other frame, and has no answer.
    assert_eq!(rig.ask(key, 0, &Request::Pong(Pong)), []);
}

/// The server stops reading while many answers wait, so it does not read the pongs of a client with a slow network.
#[test]
fn a_client_that_reads_its_answers_slowly_is_not_silent() {
    let mut rig = Rig::new(2);
    let (key, _) =
        rig.connect_saying(Some(Capabilities::PING), NamespaceKind::Registry, SessionRequest::None);
    let value = vec![b'v'; VALUE_LEN_MAX];
    let entry =
        Register { lease_ms: 600_000, key: b"key", owner: b"a", value: &value, ..Register::default() };
    rig.ask(key, 2, &Request::Register(entry));
    let turn = rig.hold_turn(b"key");
    for number in 0..IN_FLIGHT_MAX {
        rig.say(key, &frame(number, &Request::LookUp(LookUp { key: b"key" })));
    }
    rig.give_back(turn);
    for _ in 0..90_000 / HOUSEKEEPING_MS {
        rig.pass_ms(HOUSEKEEPING_MS);
        assert!(!rig.workers[0].wants_read(key), "it has many answers to take");
        rig.workers[0].wrote(key, 1);
    }
    rig.take_output(key).expect("the connection is open");
    assert!(rig.workers[0].wants_read(key), "it is read again");
    let (all, _) = hear_in_silence(&mut rig, key);
    assert_eq!(all[..3], [PING, PING, PING], "its silence begins when it is read again");
}

/// Another worker serves all requests in one turn. So all answers arrive at once, and the client can read none of them
/// in between.
#[test]
fn many_long_answers_of_another_worker_do_not_end_their_connection() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect_to(NamespaceKind::Registry, SessionRequest::None);
    let value = vec![b'v'; VALUE_LEN_MAX];
    let entry = Register {
        lease_ms: 60_000,
        absolute: false,
        ephemeral: false,
        key: b"key",
        owner: b"a",
        value: &value,
        type_name: b"",
        traceparent: None,
    };
    assert_eq!(rig.ask(key, 2, &Request::Register(entry)), [(2, Heard::Other(REGISTERED))]);
    let turn = rig.hold_turn(b"key");
    for number in 0..IN_FLIGHT_MAX {
        assert_eq!(rig.ask(key, number, &Request::LookUp(LookUp { key: b"key" })), []);
    }
    rig.give_back(turn);
    let heard = rig.hear(key);
    assert!(heard.iter().map(|(number, _)| *number).eq(0..IN_FLIGHT_MAX), "each is answered");
    let found = heard.iter().filter(|(_, heard)| *heard == Heard::Other(LOOKED_UP)).count();
    let refused = heard.iter().filter(|(_, heard)| *heard == Heard::Refused(ErrorCode::Overloaded)).count();
    assert_eq!((found + refused, found > 100), (heard.len(), true), "found {found}, refused {refused}");
}

/// A frame after the beginning of another one would look like the rest of that one.
#[test]
fn nothing_is_sent_after_a_partial_frame_to_a_stalled_connection() {
    let mut rig = Rig::new(1);
    let (holder, _) = rig.connect(SessionRequest::None);
    let (stalled, _) = rig.connect(SessionRequest::None);
    let Heard::Granted(held) = rig.ask(holder, 2, &acquire(b"key"))[0].1 else { panic!() };
    assert_eq!(rig.ask(stalled, 2, &acquire(b"key")), []);
    rig.say(stalled, &frame(3, &Request::LookUp(LookUp { key: b"key" })));
    rig.workers[0].wrote(stalled, 5);
    rig.pass_ms(WRITE_MS + 1);
    rig.ask(holder, 3, &Request::Release(Release { id: held.id, key: None, own: false }));
    assert_eq!(rig.take_output(stalled), None);
}
