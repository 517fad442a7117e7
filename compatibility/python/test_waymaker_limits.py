"""Refused inputs, and the list for operators (W10, W17, W18)."""

import pytest
from waymaker_pb2 import *

from timing import WATCHDOG_S

BATCH_COUNT = 4
INFO_LEN = 3000


@pytest.mark.parametrize("length", [1, 1024])
def test_keys_have_1_to_1024_bytes(client, length):
    client.hold("\u0001" * length)


@pytest.mark.parametrize("name", ["", "x" * 1025, "\u00e4" * 513])
def test_every_call_refuses_keys_of_other_lengths(client, name):
    for acquire in (client.lock, client.read_lock):
        failed = acquire(name).failed("BadInput")
        assert (failed.key, failed.id) == (name, "")
    assert client.multi_lock([name]).result_code == "bad_input"
    assert client.multi_lock(["good", name]).result_code == "bad_input"
    assert client.is_free("good")


FIELDS = [("request_id", 256), ("requester_application", 256), ("requester_info", 4096)]


@pytest.mark.parametrize("field,limit", FIELDS)
def test_other_texts_have_their_limits(client, key, field, limit):
    hold = client.hold(key, **{field: "x" * limit})
    client.release(hold)
    message = client.lock(key, **{field: "x" * (limit + 1)}).failed("BadInput").message
    assert str(limit) in message
    assert client.multi_lock([key], **{field: "x" * (limit + 1)}).result_code == "bad_input"
    assert client.is_free(key)


def test_a_batch_has_at_most_1024_keys(client, key):
    names = [f"{key}/{number:04}" for number in range(1025)]
    response = client.multi_lock(names)
    assert (response.result_code, len(response.leases)) == ("bad_input", 0)
    assert client.held(key) == []
    response = client.multi_lock(names[:1024])
    assert response.success
    assert [lease.key for lease in response.leases] == names[:1024]


def test_a_batch_may_be_large(client, key):
    names = [f"{key}/{number:04}".ljust(120, "x") for number in range(1024)]
    response = client.multi_lock(names, requester_info="x" * 4096)
    assert response.success, response.message
    assert [lease.key for lease in response.leases] == names


def test_a_batch_that_is_too_large_is_refused_in_band(client, key):
    """Each key and the number of keys are within the limits, but the sum of their lengths is not."""
    for key_len, limit in (900, "131072"), (1024, "1048576"):
        names = [f"{key}/{number:04}".ljust(key_len, "x") for number in range(1024)]
        response = client.multi_lock(names, requester_info="x" * 4096)
        assert response.result_code == "bad_input"
        assert limit in response.message


def test_keys_are_bytes_without_meaning(client, key):
    names = [f"{key}{end}" for end in ("", "/", "/a", "/A", " ", "\u00e9", "e\u0301", "\0", "%2f", "*")]
    for name in names:
        client.hold(name)
    assert {lock.key for lock in client.held(key)} == set(names)


def test_the_list_has_the_holds_below_a_prefix_and_no_waiters(client, other, key):
    texts = {"requester_info": "info", "requester_application": "app", "request_id": "r"}
    hold = client.hold(f"{key}/a", priority=4, max_lease_period=600_000, **texts)
    reader = client.read_lock(f"{key}/b").acquired()
    client.hold(f"{key}-not")
    other.lock(f"{key}/a").waiting()
    first, second = client.held(f"{key}/")
    assert (first.key, first.lock_id, first.write_lock) == (hold.key, hold.id, True)
    assert (first.priority, first.fence_token) == (4, hold.fence_token)
    assert first.lease_expires_at == pytest.approx(hold.lease_expires_at, abs=5)
    assert first.acquired_at == pytest.approx(hold.acquired_at, abs=5)
    assert {name: getattr(first, name) for name in texts} == texts
    assert (second.key, second.lock_id, second.write_lock) == (reader.key, reader.id, False)
    assert {getattr(second, name) for name in texts} == {""}


def test_an_empty_prefix_lists_everything(client, key):
    client.hold(key)
    locks = client.held()
    assert key in {lock.key for lock in locks}


def test_the_list_is_sorted_by_key_and_then_by_id(client, key):
    names = [f"{key}/{end}" for end in ("b", "\u00e4", "a", "B")]
    for name in names:
        for _ in range(3):
            client.read_lock(name).acquired()
    locks = [(lock.key.encode(), lock.lock_id.encode()) for lock in client.held(f"{key}/")]
    assert len(locks) == 12
    assert locks == sorted(locks)


def test_ended_locks_are_not_listed(client, key):
    attempt = client.lock(key, max_lease_period=100)
    attempt.acquired()
    client.release(client.hold(f"{key}/released"))
    attempt.expired()
    assert client.held(key) == []


def test_the_list_is_complete_however_large_it_is(client, key):
    for batch in range(BATCH_COUNT):
        names = [f"{key}/{batch}/{number}" for number in range(1024)]
        assert client.multi_lock(names, requester_info="x" * INFO_LEN).success
    request = ListAcquiredLocksRequest(key_prefix=key)
    response = client.stub.ListAcquiredLocks(request, timeout=WATCHDOG_S)
    assert response.ByteSize() > BATCH_COUNT * 1024 * INFO_LEN
    assert len({lock.key for lock in response.locks}) == len(response.locks) == BATCH_COUNT * 1024
