//! Keep-alives, and the locks and connections that depend on them.

use waymaker_protocol::{Event, Released};

use super::*;

#[test]
fn one_keep_alive_renews_every_lock_on_the_session() {
    let mut rig = Rig::new();
    let mut locks = Vec::new();
    for number in 1..=50 {
        let mut answer = rig.acquire(Lease::Session, Wait::Try);
        rig.sent();
        let granted = rig.granted(u64::from(number), 10_000, false);
        rig.receive(number, &granted);
        locks.push(only(&mut answer));
    }
    rig.advance_to(13_400);
    rig.sends(&[(51, "keep alive")]);
    let kept_alive = rig.kept_alive();
    rig.receive(51, &kept_alive);
    for lock in &locks {
        assert!(lock.remaining() > Duration::from_millis(9_700), "{lock:?}");
    }
    rig.lose_connection();
    rig.advance_to(23_400);
    assert!(locks.iter().all(|lock| lock.loss_reason() == Some(LossReason::LocalDeadline)));
}

#[test]
fn a_silent_connection_counts_as_dead_after_a_third_of_the_session_lease() {
    let mut rig = Rig::new();
    rig.advance_to(13_400);
    rig.sends(&[(1, "keep alive")]);
    rig.advance_to(16_600);
    assert!(rig.lane.doubt().is_none());
    rig.advance_to(16_700);
    assert!(rig.lane.doubt().is_some());
}

/// The server sends another frame after the keep-alive, and then nothing more, not even the response.
#[test]
fn a_connection_with_an_unanswered_keep_alive_counts_as_dead_once_silent() {
    let mut rig = Rig::new();
    rig.advance_to(13_400);
    rig.sends(&[(1, "keep alive")]);
    rig.receive(0, &Response::Event(Event::Expired { id: id(9) }));
    rig.advance_to(19_900);
    assert!(rig.lane.doubt().is_none());
    rig.advance_to(20_100);
    assert!(rig.lane.doubt().is_some());
}

#[test]
fn a_connection_with_incoming_frames_does_not_count_as_dead() {
    let mut rig = Rig::new();
    rig.advance_to(13_400);
    rig.sends(&[(1, "keep alive")]);
    for seconds in 14..40 {
        rig.advance_to(seconds * 1_000);
        rig.receive(0, &Response::Event(Event::Expired { id: id(9) }));
    }
    assert!(rig.lane.doubt().is_none());
}

/// The welcome has also renewed the session, so the next keep-alive counts from it.
#[test]
fn a_keep_alive_repeated_after_an_outage_causes_no_extra_one() {
    let mut rig = Rig::new();
    rig.advance_to(13_400);
    rig.sends(&[(1, "keep alive")]);
    rig.lose_connection();
    rig.advance_to(15_000);
    rig.come_back(true);
    rig.sends(&[(1, "keep alive"), (2, "holds")]);
    rig.receive(2, &listed(&[], 0));
    let kept_alive = rig.kept_alive();
    rig.receive(1, &kept_alive);
    rig.advance_to(15_500);
    rig.sends(&[]);
    rig.advance_to(18_400);
    rig.sends(&[(3, "keep alive")]);
}

#[test]
fn a_lock_without_a_lease_is_held_while_keep_alives_are_answered() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(Lease::Without, Wait::Try, |job| {
        job.claim.release_after_ms = Some(5_000);
    });
    rig.sent();
    let granted = rig.granted(9, u32::MAX, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    assert_eq!(lock.remaining(), Duration::from_millis(5_000 - 100));
    for number in 2..20 {
        rig.advance_to(10_000 + 1_650 * u64::from(number - 1));
        rig.sends(&[(number, "keep alive")]);
        let kept_alive = rig.kept_alive();
        rig.receive(number, &kept_alive);
        assert!(lock.is_held());
    }
    rig.lose_connection();
    rig.advance_to(60_000);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
}

#[test]
fn keep_alives_slow_down_after_a_connection_bound_lock_is_released() {
    let mut rig = Rig::new();
    let lease = Lease::Own { ms: 60_000 };
    let lock = rig.lock_with(lease, 1, 9, 60_000, |job| job.claim.release_after_ms = Some(3_000));
    drop(lock);
    rig.sends(&[(2, "release 9")]);
    rig.receive(2, &Response::Released(Released::default()));
    rig.advance_to(11_000);
    rig.sends(&[(3, "keep alive")]);
    let kept_alive = rig.kept_alive();
    rig.receive(3, &kept_alive);
    rig.advance_to(14_000);
    rig.sends(&[]);
    rig.advance_to(14_400);
    rig.sends(&[(4, "keep alive")]);
}

#[test]
fn a_refused_keep_alive_is_followed_by_the_next() {
    let mut rig = Rig::new();
    rig.advance_to(13_400);
    rig.sends(&[(1, "keep alive")]);
    rig.receive(1, &refusal(ErrorCode::Overloaded));
    rig.advance_to(16_800);
    rig.sends(&[(2, "keep alive")]);
}
