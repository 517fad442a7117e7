"""Calls with a lock id: UnLock, ExtendLease and the status of a lease (W8, W9, W15, W19)."""

import time

import pytest
from waymaker_pb2 import *

from timing import HOUR_MS, assert_shown_between, now_ms, short_leases
from waymaker import Client


def waiting(client, key):
    """Returns an attempt that waits behind another, and its id."""
    attempt = client.lock(key)
    return attempt, attempt.waiting().id


def refused(response, code):
    """Returns whether the call failed with this code and changed nothing."""
    return (response.success, response.result_code) == (False, code)


def test_a_release_succeeds_and_frees_the_key(client, key):
    hold = client.hold(key)
    response = client.unlock(key, hold.id)
    assert (response.success, response.result_code) == (True, "ok")
    assert client.is_free(key)


def test_a_second_release_is_not_found(client, key):
    hold = client.hold(key)
    client.release(hold)
    assert refused(client.unlock(key, hold.id), "not_found")


def test_a_second_release_does_not_touch_the_next_holder(client, key):
    hold = client.hold(key)
    client.release(hold)
    following = client.hold(key)
    assert refused(client.unlock(key, hold.id), "not_found")
    assert client.lease(key, following.id).lease.acquired


@pytest.mark.parametrize("lock_id", ["", "no such id", "x" * 64, "x" * 5000, "\u00fc"])
def test_an_invalid_id_releases_nothing(client, key, lock_id):
    hold = client.hold(key)
    assert not client.unlock(key, lock_id).success
    assert client.lease(key, hold.id).lease.acquired


def test_an_id_releases_nothing_under_another_key(client, key):
    hold = client.hold(key)
    client.hold(f"{key}/other")
    assert refused(client.unlock(f"{key}/other", hold.id), "not_found")
    assert refused(client.unlock(f"{key}/unknown", hold.id), "not_found")
    assert client.lease(key, hold.id).lease.acquired


def test_any_connection_can_release_a_lock_by_its_id(server, client, key):
    hold = client.hold(key)
    with Client(server.grpc) as stranger:
        stranger.release(hold)
    assert client.is_free(key)


def test_a_release_after_the_lease_expired_is_not_found(client, key):
    attempt = client.lock(key, max_lease_period=150)
    hold = attempt.acquired()
    attempt.expired()
    assert refused(client.unlock(key, hold.id), "not_found")


def test_a_release_of_a_waiter_cancels_its_wait(client, other, key):
    client.hold(key)
    attempt, lock_id = waiting(client, key)
    response = other.unlock(key, lock_id)
    assert (response.success, response.result_code) == (True, "ok")
    assert attempt.failed("cancelled").id == lock_id
    assert refused(other.unlock(key, lock_id), "not_found")


@pytest.mark.parametrize("lease_timeout", [2 * HOUR_MS, 1000])
def test_an_extension_counts_from_now_and_can_shorten_the_lease(client, key, lease_timeout):
    hold = client.hold(key, max_lease_period=HOUR_MS)
    before_ms = now_ms()
    response = client.extend(key, hold.id, lease_timeout)
    assert (response.success, response.result_code) == (True, "ok")
    lease = response.lease
    assert_shown_between(lease.lease_expires_at - lease_timeout, before_ms, now_ms())
    assert (lease.id, lease.key, lease.acquired) == (hold.id, key, True)
    assert lease.fence_token == hold.fence_token
    assert lease.waiting_expires_at == 0


def test_an_extended_lock_is_held_until_its_new_end(client, key):
    for lease in short_leases(300):
        with lease:
            name = f"{key}/{lease.ms}"
            lease.begins()
            attempt = client.lock(name, max_lease_period=lease.ms)
            hold = attempt.acquired()
            started = time.monotonic()
            assert client.extend(name, hold.id, 3 * lease.ms).success
            lease.is_over()
            attempt.expired()
            assert time.monotonic() - started >= 3 * lease.ms / 1000 - 0.01


def test_a_shortened_lease_ends_early(client, key):
    attempt = client.lock(key, max_lease_period=60_000)
    assert client.extend(key, attempt.acquired().id, 200).success
    attempt.expired()


def test_an_extension_is_at_most_a_day(client, key):
    hold = client.hold(key)
    before_ms = now_ms()
    lease = client.extend(key, hold.id, 2**32 - 1).lease
    assert_shown_between(lease.lease_expires_at - 86_400_000, before_ms, now_ms())


def test_an_extension_of_zero_is_refused(client, key):
    hold = client.hold(key)
    response = client.extend(key, hold.id, 0)
    assert refused(response, "bad_input")
    assert not response.HasField("lease")
    assert client.lease(key, hold.id).lease.lease_expires_at == pytest.approx(hold.lease_expires_at, abs=5)


def test_a_waiter_is_not_extended(client, key):
    client.hold(key)
    _attempt, lock_id = waiting(client, key)
    response = client.extend(key, lock_id, 1000)
    assert refused(response, "not_held")
    assert not response.HasField("lease")


def test_an_ended_lock_is_not_extended(client, key):
    attempt = client.lock(key, max_lease_period=150)
    hold = attempt.acquired()
    attempt.expired()
    response = client.extend(key, hold.id, 1000)
    assert refused(response, "not_found")
    assert not response.HasField("lease")
    assert client.is_free(key)


def test_an_unknown_id_is_not_extended(client, key):
    assert refused(client.extend(key, "no such id", 1000), "not_found")


def test_the_status_of_a_hold(client, key):
    before_ms = now_ms()
    hold = client.hold(key, priority=3)
    after_ms = now_ms()
    response = client.lease(key, hold.id)
    assert (response.success, response.result_code) == (True, "ok")
    lease = response.lease
    assert (lease.id, lease.key, lease.acquired, lease.priority) == (hold.id, key, True, 3)
    assert lease.lease_expires_at == pytest.approx(hold.lease_expires_at, abs=5)
    assert (lease.waiting_expires_at, lease.fence_token) == (0, hold.fence_token)
    assert_shown_between(lease.created_at, before_ms, after_ms)


def test_the_status_of_a_waiter(client, key):
    client.hold(key)
    before_ms = now_ms()
    attempt = client.lock(key, priority=2)
    waiter = attempt.waiting()
    after_ms = now_ms()
    response = client.lease(key, waiter.id)
    assert (response.success, response.result_code) == (True, "ok")
    lease = response.lease
    assert (lease.id, lease.key, lease.acquired, lease.priority) == (waiter.id, key, False, 2)
    assert (lease.lease_expires_at, lease.fence_token) == (0, 0)
    for shown in (waiter, lease):
        assert_shown_between(shown.waiting_expires_at - HOUR_MS, before_ms, after_ms)


def test_created_at_is_the_arrival_of_the_attempt_not_its_grant(client, key):
    hold = client.hold(key)
    attempt, lock_id = waiting(client, key)
    created_at = client.lease(key, lock_id).lease.created_at
    time.sleep(0.1)
    client.release(hold)
    granted = attempt.acquired()
    assert client.lease(key, lock_id).lease.created_at == pytest.approx(created_at, abs=5)
    assert granted.acquired_at - created_at >= 95


def test_the_status_of_an_ended_claim_is_not_found(client, key):
    hold = client.hold(key)
    client.release(hold)
    for lock_id in (hold.id, "no such id"):
        response = client.lease(key, lock_id)
        assert refused(response, "not_found")
        assert not response.HasField("lease")


def test_the_status_of_an_empty_id_is_bad_input(client, key):
    assert refused(client.lease(key, ""), "bad_input")


def test_ids_are_short_and_unique(client, key):
    ids = set()
    for _ in range(200):
        hold = client.hold(key)
        client.release(hold)
        ids.add(hold.id)
    assert len(ids) == 200
    assert all(1 <= len(lock_id) <= 64 for lock_id in ids)


def test_each_grant_of_a_key_raises_its_fence_by_one(client, key):
    fences = []
    for acquire in (client.lock, client.read_lock) * 3:
        hold = acquire(key).acquired()
        client.release(hold)
        fences.append(hold.fence_token)
    assert fences == [1, 2, 3, 4, 5, 6]


def test_a_failed_attempt_does_not_raise_the_fence(client, other, key):
    hold = client.hold(key)
    other.lock(key, max_wait_period=0).failed("timeout")
    attempt = other.lock(key, max_wait_period=50)
    attempt.waiting()
    attempt.failed("timeout")
    client.release(hold)
    assert client.hold(key).fence_token == hold.fence_token + 1
