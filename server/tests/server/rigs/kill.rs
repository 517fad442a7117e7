//! KILL: the process ends at a random moment under load, and another one goes on.

use super::client::RigClient;
use super::load::Load;
use super::site::{any_shape, count, judge, start};

#[test]
fn no_promise_is_broken_by_kills_at_any_moment() {
    let place = tempfile::tempdir().expect("a directory");
    let load = Load::new(RigClient::run);
    for _ in 0..count("WAYMAKER_KILLS", 12) {
        let mut server = start(place.path(), &any_shape());
        load.turn_to(&server);
        let lives = load.wait_for_grants(rand::random_range(0..300), &mut server);
        assert!(lives, "the server ended by itself: {}", server.wait());
        server.signal("KILL");
        server.wait();
    }
    let mut server = start(place.path(), &any_shape());
    load.turn_to(&server);
    assert!(load.wait_for_grants(100, &mut server), "the server ended by itself");
    judge("kills", &load.stop());
}
