//! Request numbers that are repeated after a clean stop and a start.

use crate::durable::Place;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireTerms, ErrorCode, Granted, Items, KeyItem, Request, Response,
    SessionRequest, Welcome,
};

fn plain(key: &[u8]) -> Acquire<'_> {
    Acquire { key, terms: AcquireTerms { lease_ms: 60_000, ..AcquireTerms::default() }, ..Acquire::default() }
}

fn resumed(welcome: &Welcome) -> SessionRequest {
    SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane }
}

/// A session takes the key `held` under number 77, and the server stops.
fn plain_hold_and_clean_stop(place: &Place) -> (Welcome, Granted) {
    let mut server = place.start(&["--workers", "2"]);
    let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 60_000 });
    client.send_numbered(77, Request::Acquire(plain(b"held")));
    let held = client.receive().granted();
    server.signal("TERM");
    assert!(server.wait().success());
    (welcome, held)
}

#[test]
fn a_multi_key_acquire_repeated_after_a_clean_stop_keeps_its_answer() {
    let place = Place::new();
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let mut buffer = Vec::new();
    let items = Items::new(keys.map(|key| KeyItem { shared: false, key }), &mut buffer);
    let items = items.expect("a few keys");
    let acquire =
        AcquireKeys { items, terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() } };
    let ids_of = |answer: &Response<'_>| match answer {
        Response::GrantedKeys(granted) => granted.keys.iter().map(|lock| lock.id).collect::<Vec<_>>(),
        other => panic!("the answer to ACQUIRE_KEYS is {other:?}"),
    };
    let (welcome, ids) = {
        let mut server = place.start(&["--workers", "2"]);
        let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 60_000 });
        client.send_numbered(77, Request::AcquireKeys(acquire));
        let ids = ids_of(&client.receive().response());
        server.signal("TERM");
        assert!(server.wait().success());
        (welcome, ids)
    };
    let server = place.start(&["--workers", "2"]);
    let (mut client, again) = server.session_client(resumed(&welcome));
    assert!(again.resumed);
    client.send_numbered(77, Request::AcquireKeys(acquire));
    assert_eq!(ids_of(&client.receive().response()), ids);
}

/// Memory keeps no number of a plain acquire, so it is served again.
#[test]
fn a_plain_acquire_repeated_after_a_clean_stop_is_busy() {
    let place = Place::new();
    let (welcome, _) = plain_hold_and_clean_stop(&place);
    let server = place.start(&["--workers", "2"]);
    let (mut client, _) = server.session_client(resumed(&welcome));
    client.send_numbered(77, Request::Acquire(plain(b"held")));
    let answer = client.receive();
    let Response::Error(error) = answer.response() else { panic!("{:?}", answer.response()) };
    assert_eq!(error.code, ErrorCode::Busy);
}

/// A hold without a known request number answers no request.
#[test]
fn a_new_request_with_number_0_after_a_clean_stop_is_served() {
    let place = Place::new();
    let (welcome, held) = plain_hold_and_clean_stop(&place);
    let server = place.start(&["--workers", "2"]);
    let (mut client, _) = server.session_client(resumed(&welcome));
    client.send_numbered(0, Request::Acquire(plain(b"another")));
    assert_ne!(client.receive().granted().id, held.id, "the grant of one key answers the acquire of another");
}
