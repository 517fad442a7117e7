//! The checker finds what is wrong, and nothing where nothing is.

use super::checker::violations;
use super::history::{Call, Entry, Micros, Renewal};
use waymaker_protocol::LockId;

fn id(number: u64) -> LockId {
    LockId { place: number, secret: 0 }
}

fn call(invoked: Micros) -> Call {
    Call { invoked, returned: invoked + 2 }
}

/// A grant of the key 7 with the id of its fence, invoked at `at`, answered two later, sure until `until`.
fn grant(fence: u64, at: Micros, until: Micros) -> Entry {
    Entry::Granted { call: call(at), id: id(fence), key: 7, shared: false, fence, until }
}

fn shared(fence: u64, at: Micros, until: Micros) -> Entry {
    Entry::Granted { call: call(at), id: id(fence), key: 7, shared: true, fence, until }
}

fn renewed(fence: u64, at: Micros, outcome: Renewal) -> Entry {
    Entry::Renewed { call: call(at), id: id(fence), outcome }
}

fn released(fence: u64, at: Micros, was_found: Option<bool>) -> Entry {
    Entry::Released { call: call(at), id: id(fence), was_found }
}

fn seen(held: u64, at: Micros, fence: Option<u64>) -> Entry {
    Entry::Seen { call: call(at), id: id(held), fence }
}

fn found(held: usize) -> Entry {
    Entry::Found { call: call(0), name: "all".to_owned(), held, wanted: 3 }
}

#[track_caller]
fn right(history: &[Entry]) {
    assert_eq!(violations(history), Vec::<String>::new());
}

#[track_caller]
fn wrong(what: &str, history: &[Entry]) {
    let violations = violations(history);
    assert!(violations.iter().any(|violation| violation.starts_with(what)), "{what}: {violations:?}");
}

#[test]
fn a_possible_history_is_accepted() {
    right(&[grant(1, 0, 100), released(1, 50, Some(true)), grant(2, 49, 200)]);
    right(&[grant(1, 0, 100), grant(2, 99, 200)]);
    right(&[shared(1, 0, 100), shared(2, 10, 100), grant(4, 98, 200)]);
    right(&[grant(1, 0, 100), seen(1, 10, Some(1)), seen(1, 99, None)]);
    right(&[found(0), found(3)]);
}

#[test]
fn a_lost_request_may_have_taken_effect() {
    right(&[grant(1, 0, 100), released(1, 50, None), released(1, 60, Some(false)), grant(5, 70, 200)]);
    // A renewal to a shorter lease.
    let shortened = renewed(1, 10, Renewal::Lost { lease: 20 });
    right(&[grant(1, 0, 100), shortened.clone(), grant(2, 30, 100)]);
    wrong("granted too early", &[grant(1, 0, 100), shortened, grant(2, 20, 100)]);
}

#[test]
fn concurrent_grants_may_have_been_decided_in_any_order() {
    let late = Entry::Granted {
        call: Call { invoked: 0, returned: 90 },
        id: id(2),
        key: 7,
        shared: false,
        fence: 2,
        until: 80,
    };
    right(&[grant(1, 10, 30), late]);
}

#[test]
fn a_repeated_or_decreasing_fence_is_detected() {
    let twin = Entry::Granted { call: call(300), id: id(9), key: 7, shared: false, fence: 1, until: 400 };
    wrong("the same fence twice", &[grant(1, 0, 100), twin]);
    wrong("a fence went back", &[grant(5, 0, 100), grant(4, 300, 400)]);
    // Also past others that are right.
    wrong("a fence went back", &[grant(5, 0, 10), grant(6, 20, 30), grant(7, 40, 50), grant(4, 300, 400)]);
    wrong("a fence went back", &[grant(2, 100, 110), shared(3, 90, 120), shared(1, 200, 300)]);
}

#[test]
fn a_grant_of_a_key_that_is_certainly_held_is_detected() {
    wrong("granted too early", &[grant(1, 0, 100), grant(2, 97, 200)]);
    wrong("granted too early", &[grant(1, 0, 100), shared(2, 50, 200)]);
    wrong("granted too early", &[shared(1, 0, 100), shared(2, 0, 30), grant(3, 50, 200)]);
    // Even one that was over before its answer came.
    wrong("granted too early", &[grant(1, 0, 100), grant(2, 50, 0)]);
}

#[test]
fn a_grant_before_the_end_of_a_renewed_lease_is_detected() {
    let again = renewed(1, 90, Renewal::Done { until: 190 });
    right(&[grant(1, 0, 100), again.clone(), grant(2, 188, 300)]);
    wrong("granted too early", &[grant(1, 0, 100), again.clone(), grant(2, 120, 300)]);
    wrong("granted too early", &[grant(1, 0, 100), again, released(1, 150, None), grant(2, 120, 300)]);
}

#[test]
fn a_certain_hold_that_is_lost_or_changed_is_detected() {
    wrong("lost", &[grant(1, 0, 100), seen(1, 50, None)]);
    wrong("lost", &[grant(1, 0, 100), renewed(1, 50, Renewal::Gone)]);
    wrong("lost", &[grant(1, 0, 100), released(1, 50, Some(false))]);
    wrong("lost", &[grant(1, 0, 100), renewed(1, 90, Renewal::Done { until: 190 }), seen(1, 150, None)]);
    wrong("held with another fence", &[grant(1, 0, 100), seen(1, 50, Some(2))]);
    let other = Entry::Granted { call: call(50), id: id(1), key: 7, shared: false, fence: 2, until: 100 };
    wrong("repeated differently", &[grant(1, 0, 100), other]);
}

#[test]
fn a_partial_multi_key_claim_is_detected() {
    wrong("a part of several", &[found(1)]);
    wrong("a part of several", &[found(2)]);
}
