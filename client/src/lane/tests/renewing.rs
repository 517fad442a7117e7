//! Renewals and extends of a lock, and the resulting deadlines.

use waymaker_protocol::Event;

use super::*;

#[test]
fn a_lock_is_renewed_each_time_a_third_of_its_lease_has_passed() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    rig.advance_to(10_999);
    rig.sends(&[]);
    rig.advance_to(11_000);
    rig.sends(&[(2, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(2, &extended);
    assert_eq!(lock.remaining(), Duration::from_millis(3_000 - 80));
    rig.advance_to(12_000);
    rig.sends(&[(3, "extend 9 by 3000")]);
}

/// If their times were spread, each of thousands of renewals would need its own write and its own wake-up of the task.
#[test]
fn locks_granted_close_together_are_renewed_together() {
    let mut rig = Rig::new();
    let mut locks = Vec::new();
    for number in 1..=3 {
        locks.push(rig.lock(number, u64::from(number), 3_000));
        rig.advance_to(10_000 + u64::from(number));
    }
    rig.advance_to(10_999);
    rig.sends(&[]);
    rig.advance_to(11_000);
    rig.sends(&[(4, "extend 1 by 3000"), (5, "extend 2 by 3000"), (6, "extend 3 by 3000")]);
}

#[test]
fn a_shortening_takes_effect_locally_before_it_is_answered() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    rig.submit(Job::Extend { id: id(9), lease_ms: 1_000, is_own: false, reply: Reply::Nobody });
    // The response may take long, but the server may have shortened the lease at once.
    assert_eq!(lock.remaining(), Duration::from_millis(1_000 - 60));
    rig.sends(&[(2, "extend 9 by 1000")]);
    let extended = rig.extended(1_000);
    rig.receive(2, &extended);
    rig.advance_to(10_400);
    rig.sends(&[(3, "extend 9 by 1000")]);
}

/// After the extend, the server would serve a renewal with the old length and shorten the lease again, while the guard
/// relies on the longer lease.
#[test]
fn no_renewal_with_the_old_length_follows_an_extend() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 300);
    let extend = Job::Extend { id: id(9), lease_ms: 30_000, is_own: false, reply: Reply::Nobody };
    rig.submit(extend);
    rig.sends(&[(2, "extend 9 by 30000")]);
    rig.advance_to(10_150);
    rig.sends(&[]);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(2, "extend 9 by 30000"), (3, "holds"), (4, "status 9")]);
    let (extended, status) = (rig.extended(30_000), rig.status(30_000));
    rig.receive(2, &extended);
    rig.receive(4, &status);
    assert_eq!(lock.remaining(), Duration::from_millis(30_000 - 350));
    rig.advance_to(20_150);
    rig.sends(&[(5, "keep alive"), (6, "extend 9 by 30000")]);
}

/// The server served the renewal first, and its response says 30 s. But it may have served the later extend by now,
/// too.
#[test]
fn the_answer_to_an_earlier_renewal_does_not_undo_a_shortening() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    rig.advance_to(20_000);
    rig.sends(&[(2, "keep alive"), (3, "extend 9 by 30000")]);
    rig.submit(Job::Extend { id: id(9), lease_ms: 1_000, is_own: false, reply: Reply::Nobody });
    rig.sends(&[(4, "extend 9 by 1000")]);
    let extended = rig.extended(30_000);
    rig.receive(3, &extended);
    assert_eq!(lock.remaining(), Duration::from_millis(1_000 - 60));
    rig.receive(4, &refusal(ErrorCode::Overloaded));
    rig.advance_to(20_001);
    rig.sends(&[(5, "extend 9 by 30000")]);
    let extended = rig.extended(30_000);
    rig.receive(5, &extended);
    assert_eq!(lock.remaining(), Duration::from_millis(30_000 - 350));
}

/// The renewal asked for a longer lease, so the server responded only once that lease was durable. The response to the
/// later shortening arrived first.
#[test]
fn a_late_renewal_answer_does_not_undo_an_answered_shortening() {
    for apart_ms in [0, 5] {
        let mut rig = Rig::new();
        let lock = rig.lock(1, 9, 30_000);
        rig.advance_to(20_000);
        rig.sends(&[(2, "keep alive"), (3, "extend 9 by 30000")]);
        let long = rig.extended(30_000);
        rig.advance_to(20_000 + apart_ms);
        rig.submit(Job::Extend { id: id(9), lease_ms: 1_000, is_own: false, reply: Reply::Nobody });
        rig.sends(&[(4, "extend 9 by 1000")]);
        let short = rig.extended(1_000);
        rig.receive(4, &short);
        let remaining = lock.remaining();
        rig.receive(3, &long);
        assert_eq!(lock.remaining(), remaining, "the requests are {apart_ms} ms apart");
    }
}

#[test]
fn a_lock_may_be_extended_twice_in_one_millisecond() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 1_000);
    rig.submit(Job::Extend { id: id(9), lease_ms: 2_000, is_own: false, reply: Reply::Nobody });
    rig.submit(Job::Extend { id: id(9), lease_ms: 30_000, is_own: false, reply: Reply::Nobody });
    rig.sends(&[(2, "extend 9 by 2000"), (3, "extend 9 by 30000")]);
    let (first, second) = (rig.extended(2_000), rig.extended(30_000));
    rig.receive(2, &first);
    rig.receive(3, &second);
    assert_eq!(lock.remaining(), Duration::from_millis(30_000 - 350));
}

/// Another client shortened the lease in the same millisecond. The order of the two changes is unknown.
#[test]
fn the_shorter_lease_wins_if_a_renewal_and_a_shortening_share_a_millisecond() {
    for event_is_first in [true, false] {
        let mut rig = Rig::new();
        let lock = rig.lock(1, 9, 30_000);
        rig.advance_to(20_000);
        rig.sends(&[(2, "keep alive"), (3, "extend 9 by 30000")]);
        let answer = rig.extended(30_000);
        let Response::Extended(Extended { remaining_ms, stamp_ms, .. }) = rig.extended(1_000) else {
            unreachable!()
        };
        let moved = Response::Event(Event::LeaseMoved { id: id(9), remaining_ms, stamp_ms });
        let mut words = [(0, &moved), (3, &answer)];
        if !event_is_first {
            words.reverse();
        }
        for (number, word) in words {
            rig.receive(number, word);
        }
        assert_eq!(
            lock.remaining(),
            Duration::from_millis(1_000 - 60),
            "the event is first: {event_is_first}"
        );
    }
}

/// The other client's change may come before, between or after the two extends. So the client assumes the shortest of
/// the three leases.
#[test]
fn the_shortest_lease_wins_if_three_changes_share_a_millisecond() {
    for event_is_first in [true, false] {
        let mut rig = Rig::new();
        let lock = rig.lock(1, 9, 30_000);
        for lease_ms in [500, 20_000] {
            rig.submit(Job::Extend { id: id(9), lease_ms, is_own: false, reply: Reply::Nobody });
        }
        rig.sends(&[(2, "extend 9 by 500"), (3, "extend 9 by 20000")]);
        let (shorter, longer) = (rig.extended(500), rig.extended(20_000));
        let Response::Extended(Extended { remaining_ms, stamp_ms, .. }) = rig.extended(1_000) else {
            unreachable!()
        };
        let moved = Response::Event(Event::LeaseMoved { id: id(9), remaining_ms, stamp_ms });
        let mut words = [(0, &moved), (2, &shorter)];
        if !event_is_first {
            words.reverse();
        }
        for (number, word) in words {
            rig.receive(number, word);
        }
        rig.receive(3, &longer);
        assert_eq!(lock.remaining(), Duration::from_millis(500 - 55), "the event is first: {event_is_first}");
    }
}

/// The server may have served only the first extend.
#[test]
fn the_shorter_of_two_pending_extends_wins() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    rig.advance_to(20_000);
    rig.sends(&[(2, "keep alive"), (3, "extend 9 by 30000")]);
    for lease_ms in [1_000, 20_000] {
        rig.submit(Job::Extend { id: id(9), lease_ms, is_own: false, reply: Reply::Nobody });
    }
    let extended = rig.extended(30_000);
    rig.receive(3, &extended);
    assert_eq!(lock.remaining(), Duration::from_millis(1_000 - 60));
}

/// The server may have served the other extend before the client reads this response.
#[test]
fn the_answer_to_one_extend_does_not_override_a_shorter_pending_one() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    for lease_ms in [20_000, 1_000] {
        rig.submit(Job::Extend { id: id(9), lease_ms, is_own: false, reply: Reply::Nobody });
    }
    rig.sends(&[(2, "extend 9 by 20000"), (3, "extend 9 by 1000")]);
    let extended = rig.extended(20_000);
    rig.receive(2, &extended);
    assert_eq!(lock.remaining(), Duration::from_millis(1_000 - 60));
}

/// Another client lengthened the lease in the same millisecond. The order of the two changes is unknown.
#[test]
fn the_shorter_lease_wins_if_an_extend_and_a_lengthening_share_a_millisecond() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    rig.submit(Job::Extend { id: id(9), lease_ms: 1_000, is_own: false, reply: Reply::Nobody });
    rig.sends(&[(2, "extend 9 by 1000")]);
    let extended = rig.extended(1_000);
    let Response::Extended(Extended { remaining_ms, stamp_ms, .. }) = rig.extended(30_000) else {
        unreachable!()
    };
    rig.receive(2, &extended);
    rig.receive(0, &Response::Event(Event::LeaseMoved { id: id(9), remaining_ms, stamp_ms }));
    assert_eq!(lock.remaining(), Duration::from_millis(1_000 - 60));
}

#[test]
fn an_extend_below_the_minimum_lease_is_rejected_without_effect() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    let (reply, mut answer) = Reply::channel();
    rig.submit(Job::Extend { id: id(9), lease_ms: 9, is_own: false, reply });
    assert_eq!(answer.try_recv().unwrap().unwrap_err().code(), Some(ErrorCode::BadInput));
    assert_eq!(lock.remaining(), Duration::from_millis(30_000 - 350));
}

#[test]
fn a_shortening_by_another_client_moves_the_local_deadline() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    let Response::Extended(Extended { remaining_ms, stamp_ms, .. }) = rig.extended(1_000) else {
        unreachable!()
    };
    rig.receive(0, &Response::Event(Event::LeaseMoved { id: id(9), remaining_ms, stamp_ms }));
    assert_eq!(lock.remaining(), Duration::from_millis(1_000 - 60));
}

#[test]
fn a_forgotten_lock_is_neither_renewed_nor_released() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    assert_eq!(lock.forget(), id(9));
    rig.sends(&[]);
    rig.advance_to(13_000);
    rig.sends(&[]);
}

#[test]
fn a_lock_without_renewal_ends_with_its_lease() {
    let mut rig = Rig::new();
    let lock = rig.lock_with(OWN, 1, 9, 3_000, |job| job.renew = false);
    rig.advance_to(13_000);
    rig.sends(&[]);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
}

#[test]
fn a_renewal_refused_as_overloaded_is_retried_soon() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    rig.advance_to(11_000);
    rig.sent();
    rig.receive(2, &refusal(ErrorCode::Overloaded));
    assert!(lock.is_held());
    rig.advance_to(11_300);
    rig.sends(&[(3, "extend 9 by 3000")]);
}

/// The server's machine was rebooted, so its clock restarted and shows less than at the last renewal.
#[test]
fn a_lock_is_renewed_after_the_server_clock_restarts() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    rig.lose_connection();
    rig.advance_to(12_000);
    let now = rig.now();
    rig.lane.handle_welcome(Welcome { server_id: 7, ..welcome(1_000, true) }, now, now);
    rig.sends(&[(2, "holds"), (3, "extend 9 by 30000")]);
    let extended = Extended { remaining_ms: 30_000, stamp_ms: 1_000, clamped: false };
    rig.receive(3, &Response::Extended(extended));
    assert_eq!(lock.remaining(), Duration::from_millis(30_000 - 350));
}

/// A lock without a lease is never renewed, so no later response corrects its deadline.
#[test]
fn a_refused_extend_restores_the_previous_deadline() {
    let shortened = Duration::from_millis(1_000 - 60);
    for (code, is_shortened) in [(ErrorCode::BadInput, false), (ErrorCode::Unknown, true)] {
        let mut rig = Rig::new();
        let lock = rig.lock_with(Lease::Without, 1, 9, u32::MAX, |_| {});
        rig.submit(Job::Extend { id: id(9), lease_ms: 1_000, is_own: false, reply: Reply::Nobody });
        assert_eq!(lock.remaining(), shortened, "the server may serve it at any time");
        rig.sends(&[(2, "extend 9 by 1000")]);
        rig.receive(2, &refusal(code));
        assert_eq!(lock.remaining() == shortened, is_shortened, "{code:?}");
    }
}
