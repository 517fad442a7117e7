//! What a connection is told, action by action.

use super::client::{Locker, broken, each_size, server};
use serde_json::Value;

#[test]
fn a_free_lock_is_acquired_at_once_and_released_by_id() {
    for server in each_size() {
        let mut locker = Locker::connect(&server, "test");
        assert_eq!(locker.take("W a"), "1");
        assert_eq!(locker.release(), "1");
        assert_eq!(locker.take("R a, W b/c"), "2");
        assert_eq!(locker.release(), "2");
    }
}

#[test]
fn a_lock_and_its_release_send_exactly_two_messages() {
    let server = server(&[]);
    let mut locker = Locker::connect(&server, "test");
    locker.take("W a");
    locker.expect_nothing();
    locker.release();
    locker.expect_nothing();
}

#[test]
fn an_answer_is_a_line_of_json_with_a_string_id() {
    let server = server(&[]);
    let mut locker = Locker::connect(&server, "test");
    locker.send_lock("W a");
    let text = locker.receive_text();
    assert!(text.ends_with('\n'), "{text:?}");
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(answer, serde_json::json!({"id": "1", "action": "lock", "state": "acquired"}));
}

#[test]
fn a_waiter_is_enqueued_and_acquires_when_the_holder_releases() {
    for server in each_size() {
        let [mut locker, mut waiter] = ["test"; 2].map(|namespace| Locker::connect(&server, namespace));
        locker.take("W a");
        let id = waiter.queue("W a");
        waiter.expect_nothing();
        locker.release();
        assert_eq!(waiter.acquire(), id);
        assert_eq!(waiter.release(), id);
        locker.take("W a");
    }
}

#[test]
fn a_waiter_that_gives_up_gets_no_more_messages_of_its_lock() {
    for server in each_size() {
        let [mut locker, mut waiter] = ["test"; 2].map(|namespace| Locker::connect(&server, namespace));
        locker.take("W a");
        let id = waiter.queue("W a");
        assert_eq!(waiter.release(), id, "although it is not acquired");
        locker.release();
        waiter.expect_nothing();
        let next = waiter.take("W a");
        assert_ne!(next, id);
    }
}

#[test]
fn a_cancelled_waiter_does_not_block_others() {
    for server in each_size() {
        let [mut reader, mut writer, mut other] = ["test"; 3].map(|name| Locker::connect(&server, name));
        reader.take("R a");
        writer.queue("W a");
        other.queue("R a/b");
        writer.release();
        other.acquire();
    }
}

#[test]
fn a_release_that_crosses_the_grant_is_answered_last() {
    let server = server(&["--workers", "3"]);
    let [mut locker, mut waiter] = ["test"; 2].map(|namespace| Locker::connect(&server, namespace));
    let mut crossed = 0;
    for round in 0..100 {
        locker.take("W a");
        let id = waiter.queue("W a");
        locker.send_release();
        waiter.send_release();
        locker.expect("release", "ready");
        let (first, action, state) = waiter.receive();
        assert_eq!(first, id);
        if action == "lock" {
            assert_eq!(state, "acquired");
            crossed += 1;
            assert_eq!(waiter.expect("release", "ready"), id);
        } else {
            assert_eq!((&*action, &*state), ("release", "ready"));
        }
        if round > 20 && crossed > 0 {
            break;
        }
    }
    waiter.expect_nothing();
}

#[test]
fn pipelined_messages_are_served_in_order() {
    for server in each_size() {
        let mut locker = Locker::connect(&server, "test");
        let rounds: u64 = 50;
        for _ in 0..rounds {
            locker.send_lock("W a, R b");
            locker.send_release();
        }
        for round in 1..=rounds {
            assert_eq!(locker.acquire(), round.to_string());
            assert_eq!(locker.expect("release", "ready"), round.to_string());
        }
    }
}

#[test]
fn an_invalid_action_for_the_state_ends_the_connection() {
    let server = server(&[]);
    let mut locker = Locker::connect(&server, "test");
    locker.send_release();
    assert_eq!(locker.ended(), broken("invalid action [release] in state [ready]"));

    let mut holder = Locker::connect(&server, "test");
    holder.take("W a");
    let mut waiter = Locker::connect(&server, "test");
    waiter.queue("W a");
    waiter.send_lock("W b");
    assert_eq!(waiter.ended(), broken("invalid action [lock] in state [enqueued]"));
    holder.send_lock("W b");
    assert_eq!(holder.ended(), broken("invalid action [lock] in state [acquired]"));
}

#[test]
fn ids_count_the_locks_of_a_namespace_across_connections() {
    let server = server(&["--workers", "3"]);
    let mut lockers: Vec<_> = (0..6).map(|_| Locker::connect(&server, "one")).collect();
    for (number, locker) in lockers.iter_mut().enumerate() {
        assert_eq!(locker.take(&format!("W {number}")), (number + 1).to_string());
    }
    assert_eq!(Locker::connect(&server, "other").take("W a"), "1");
}

#[test]
fn namespaces_are_independent() {
    for server in each_size() {
        let [mut one, mut other] = ["one", "other"].map(|namespace| Locker::connect(&server, namespace));
        one.take("W []");
        other.take("W []");
    }
}
