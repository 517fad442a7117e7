"""A repeated request finds the attempt with its request id (W7)."""

import grpc
import pytest
from waymaker_pb2 import *

from timing import HOUR_MS, short_leases


def test_the_same_id_while_waiting_takes_over_the_queue_position(client, other, key):
    hold = client.hold(key)
    first = client.lock(key, request_id="r")
    waiting = first.waiting()
    behind = client.lock(key)
    behind.waiting()
    second = other.lock(key, request_id="r")
    again = second.waiting()
    assert again.id == waiting.id
    assert again.waiting_expires_at == pytest.approx(waiting.waiting_expires_at, abs=5)
    assert first.status() == grpc.StatusCode.ABORTED
    client.release(hold)
    assert second.acquired().id == waiting.id


def test_a_wait_that_is_taken_over_keeps_its_first_deadline(client, other, key):
    for wait in short_leases(400):
        with wait:
            name = f"{key}/{wait.ms}"
            hold = client.hold(name)
            wait.begins()
            client.lock(name, request_id="r", max_wait_period=wait.ms).waiting()
            second = other.lock(name, request_id="r", max_wait_period=HOUR_MS)
            second.waiting()
            wait.is_over()
            # A wait that lasts longer gets the key when this lease ends.
            client.extend(name, hold.id, wait.ms * 3 // 2)
            second.failed("timeout")


def test_the_same_id_while_held_returns_the_same_hold(client, other, key):
    first = client.lock(key, request_id="r", max_lease_period=HOUR_MS)
    hold = first.acquired()
    again = other.lock(key, request_id="r", max_lease_period=2 * HOUR_MS).acquired()
    assert (again.id, again.fence_token, again.acquired_at) == (hold.id, hold.fence_token, hold.acquired_at)
    assert again.lease_expires_at == pytest.approx(hold.lease_expires_at, abs=5)
    assert first.status() == grpc.StatusCode.ABORTED


def test_a_try_with_the_same_id_finds_the_hold(client, other, key):
    hold = client.hold(key, request_id="r")
    assert other.lock(key, request_id="r", max_wait_period=0).acquired().id == hold.id


def test_the_same_id_returns_the_current_end_of_the_lease(client, other, key):
    hold = client.hold(key, request_id="r", max_lease_period=HOUR_MS)
    extended = client.extend(key, hold.id, 2 * HOUR_MS).lease
    again = other.lock(key, request_id="r").acquired()
    assert again.lease_expires_at == pytest.approx(extended.lease_expires_at, abs=5)


def test_the_same_id_in_the_other_mode_is_refused_while_held(client, other, key):
    attempt = client.lock(key, request_id="r")
    hold = attempt.acquired()
    other.read_lock(key, request_id="r").failed("BadInput")
    assert client.lease(key, hold.id).lease.acquired
    client.release(hold)
    assert attempt.ended()


def test_the_same_id_in_the_other_mode_is_refused_while_waiting(client, other, key):
    hold = client.hold(key)
    attempt = client.read_lock(key, request_id="r")
    attempt.waiting()
    other.lock(key, request_id="r").failed("BadInput")
    client.release(hold)
    attempt.acquired()


def test_an_id_is_free_again_after_a_release(client, key):
    hold = client.hold(key, request_id="r")
    client.release(hold)
    again = client.hold(key, request_id="r")
    assert again.id != hold.id
    assert again.fence_token == hold.fence_token + 1


def test_an_id_is_free_again_after_the_lease_expired(client, key):
    attempt = client.lock(key, request_id="r", max_lease_period=200)
    hold = attempt.acquired()
    attempt.expired()
    again = client.hold(key, request_id="r")
    assert again.id != hold.id
    assert again.fence_token == hold.fence_token + 1


def test_an_id_is_free_again_after_a_failure(client, other, key):
    hold = client.hold(key)
    other.lock(key, request_id="r", max_wait_period=0).failed("timeout")
    attempt = other.lock(key, request_id="r", max_wait_period=100)
    waited = attempt.waiting()
    attempt.failed("timeout")
    client.release(hold)
    assert other.hold(key, request_id="r").id != waited.id


def test_an_id_is_free_again_after_the_wait_was_cancelled(client, other, key):
    hold = client.hold(key)
    attempt = other.lock(key, request_id="r")
    waited = attempt.waiting()
    assert client.unlock(key, waited.id).success
    attempt.failed("cancelled")
    client.release(hold)
    assert other.hold(key, request_id="r").id != waited.id


def test_applications_can_use_the_same_id_independently(client, other, key):
    client.hold(key, request_id="r", requester_application="one")
    other.lock(key, request_id="r", requester_application="two", max_wait_period=0).failed("timeout")


def test_the_same_id_for_another_key_is_another_attempt(client, key):
    first = client.hold(f"{key}/1", request_id="r")
    assert client.hold(f"{key}/2", request_id="r").id != first.id


def test_attempts_without_an_id_are_independent(client, other, key):
    client.hold(key)
    other.lock(key, max_wait_period=0).failed("timeout")
