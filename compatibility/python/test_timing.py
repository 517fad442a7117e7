"""The helpers of `timing` fail in the right cases only."""

import threading
import time

import pytest

import timing
from timing import HOUR_MS, Witness, short_leases, wait_until, watchdog, within


def test_a_failure_is_ignored_if_the_steps_were_late():
    lengths_ms = []
    for lease in short_leases(1):
        with lease:
            lengths_ms.append(lease.ms)
            lease.begins()
            if lease.ms == 1:
                time.sleep(0.002)
                raise AssertionError("the lease has ended")
    assert lengths_ms == [1, 2]


def test_a_failure_counts_if_the_steps_were_in_time():
    count = 0
    with pytest.raises(AssertionError, match="the server is wrong"):
        for limit in within(HOUR_MS):
            with limit:
                count += 1
                limit.begins()
                raise AssertionError("the server is wrong")
    assert count == 1


def test_a_test_fails_if_all_its_attempts_were_too_late():
    with pytest.raises(AssertionError, match="no attempt"):
        for lease in short_leases(1, count=3):
            with lease:
                lease.give_up("nothing was seen")


def test_a_watchdog_turns_a_hang_into_a_failure(monkeypatch):
    monkeypatch.setattr(timing, "WATCHDOG_S", 0)
    with pytest.raises(AssertionError, match="missing after 0 s: an event"):
        wait_until("an event", lambda: False)
    given_up = threading.Event()
    with pytest.raises(AssertionError, match="missing after 0 s: an event"), watchdog("an event", given_up.set):
        given_up.wait()
        raise RuntimeError("unblocked")


def test_an_event_after_the_end_of_a_witness_is_too_late(one_worker_client):
    late = one_worker_client.hold("late")
    witness = Witness(one_worker_client, 200)
    with pytest.raises(AssertionError, match="not within 200 ms"):
        witness.assert_before_end("the end of the hold", lambda: not one_worker_client.lease(late.key, late.id).success)


def test_an_event_before_the_end_of_a_witness_is_in_time(one_worker_client):
    hold = one_worker_client.hold("in time", max_lease_period=200)
    witness = Witness(one_worker_client, 300)
    witness.assert_before_end("the end of the hold", lambda: not one_worker_client.lease(hold.key, hold.id).success)
