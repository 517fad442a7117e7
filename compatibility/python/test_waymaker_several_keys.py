"""Multi-key claims (batches): all keys are granted or none (W14)."""

import concurrent.futures
import time

import pytest
from waymaker_pb2 import *

from timing import HOUR_MS, WATCHDOG_S, assert_shown_between, now_ms, wait_until, within
from waymaker import Client, answer

ROUND_COUNT = 1000


def keys_of(leases):
    return [lease.key for lease in leases]


def granted(response, count):
    """Returns the leases of a granted batch."""
    assert (response.success, response.result_code, response.message) == (True, "ok", ""), response
    assert len(response.leases) == count
    return list(response.leases)


def refused(response, code):
    """Returns whether the batch failed with this code and holds no key."""
    return (response.success, response.result_code, len(response.leases)) == (False, code, 0)


def test_all_keys_are_granted_in_the_order_of_their_bytes(client, key):
    names = [f"{key}/{name}" for name in ("b", "a", "B", "\u00e4", "\U0001f512", "\uffee")]
    before_ms = now_ms()
    leases = granted(client.multi_lock(names, max_lease_period=600_000), 6)
    after_ms = now_ms()
    assert keys_of(leases) == sorted(names, key=str.encode)
    assert len({lease.id for lease in leases}) == 6
    for lease in leases:
        assert lease.acquired
        assert (lease.fence_token, lease.waiting_expires_at) == (1, 0)
        assert_shown_between(lease.lease_expires_at - 600_000, before_ms, after_ms)


def test_the_holds_of_a_batch_are_independent(client, key):
    first, second = granted(client.multi_lock([f"{key}/1", f"{key}/2"]), 2)
    client.release(first)
    assert client.is_free(first.key)
    assert not client.is_free(second.key)
    extended = client.extend(second.key, second.id, HOUR_MS)
    assert extended.success
    assert extended.lease.fence_token == second.fence_token
    client.release(second)
    assert client.is_free(second.key)


def test_a_batch_waits_until_all_keys_are_free(client, other, key):
    hold = client.hold(f"{key}/1")
    call = other.begin_multi_lock([f"{key}/1", f"{key}/2"])
    until_queued(client, f"{key}/2")
    client.release(hold)
    granted(answer(call), 2)


def test_a_waiting_batch_holds_nothing_and_keeps_its_queue_position(client, other, key):
    hold = client.hold(f"{key}/1")
    call = other.begin_multi_lock([f"{key}/1", f"{key}/2"])
    until_queued(client, f"{key}/2")
    assert [lock.key for lock in client.held(key)] == [f"{key}/1"]
    client.release(hold)
    granted(answer(call), 2)


def test_a_batch_that_times_out_holds_nothing_and_raises_no_fence(client, other, key):
    hold = client.hold(f"{key}/1")
    started = time.monotonic()
    response = other.multi_lock([f"{key}/1", f"{key}/2"], max_wait_period=200)
    assert refused(response, "timeout")
    assert time.monotonic() - started >= 0.19
    assert [lock.key for lock in client.held(key)] == [f"{key}/1"]
    assert client.hold(f"{key}/2").fence_token == 1
    client.release(hold)
    assert client.hold(f"{key}/1").fence_token == 2


def test_a_batch_does_not_wait_longer_than_requested(one_worker_client, key):
    client = one_worker_client
    hold = client.hold(f"{key}/1")
    call = client.begin_multi_lock([f"{key}/1", f"{key}/2"], max_wait_period=200)
    wait_until("the place of the batch", lambda: call.done() or not client.is_free(f"{key}/2"))
    # A batch that waits longer gets its keys when this lease ends.
    client.extend(hold.key, hold.id, 300)
    assert refused(answer(call), "timeout")


def test_a_try_of_a_batch_fails_at_once(client, other, key):
    client.hold(f"{key}/2")
    assert refused(other.multi_lock([f"{key}/1", f"{key}/2"], max_wait_period=0), "timeout")
    assert client.is_free(f"{key}/1")


def test_a_batch_that_its_client_cancels_holds_nothing(client, other, key):
    hold = client.hold(f"{key}/1")
    call = other.begin_multi_lock([f"{key}/1", f"{key}/2"])
    until_queued(client, f"{key}/2")
    call.cancel()
    wait_until("the end of the wait", lambda: client.is_free(f"{key}/2"))
    client.release(hold)
    assert client.is_free(f"{key}/1")


def test_batches_in_opposite_orders_do_not_deadlock(server, key):
    names = [f"{key}/1", f"{key}/2"]

    def rounds(order):
        with Client(server.grpc) as client:
            for _ in range(ROUND_COUNT):
                for lease in granted(client.multi_lock(order), 2):
                    client.release(lease)

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(rounds, order) for order in (names, names[::-1])]:
            done.result()
    with Client(server.grpc) as client:
        fences = [lease.fence_token for lease in granted(client.multi_lock(names), 2)]
    assert fences == [2 * ROUND_COUNT + 1] * 2


def test_a_batch_can_mix_shared_and_exclusive_keys(client, other, key):
    granted(client.multi_lock([(f"{key}/r", False), (f"{key}/w", True)]), 2)
    other.read_lock(f"{key}/r").acquired()
    other.lock(f"{key}/r", max_wait_period=0).failed("timeout")
    other.read_lock(f"{key}/w", max_wait_period=0).failed("timeout")


def test_a_key_is_shared_unless_write_lock_is_set(client, other, key):
    request = MultiLockRequest(keys=[MultiLockKey(key=key)], max_wait_period=100)
    granted(client.stub.MultiLock(request, timeout=WATCHDOG_S), 1)
    other.read_lock(key).acquired()


def test_duplicate_keys_are_merged_and_exclusive_wins(client, other, key):
    (lease,) = granted(client.multi_lock([(key, False), (key, True), (key, False)]), 1)
    assert lease.fence_token == 1
    other.read_lock(key, max_wait_period=0).failed("timeout")


def test_a_batch_without_keys_is_refused(client):
    assert refused(client.multi_lock([]), "no_keys")


@pytest.mark.parametrize("scope", [ScopeLocal, ScopeQuorum, 7])
def test_scopes_that_the_server_does_not_offer_are_refused(client, key, scope):
    assert refused(client.multi_lock([key], fence_scope=scope), "invalid_scope")
    assert client.is_free(key)


def test_the_priority_of_a_batch_applies_to_each_key(client, other, key):
    # A priority of 3 moves ahead by 30 s.
    for limit in within(30_000):
        with limit:
            names = [f"{key}/{limit.number}/1", f"{key}/{limit.number}/2"]
            hold = client.hold(names[0])
            limit.begins()
            plain = other.lock(names[0])
            plain.waiting()
            call = other.begin_multi_lock(names, priority=3)
            until_queued(client, names[1])
            limit.is_over()
            client.release(hold)
            for lease in granted(answer(call), 2):
                client.release(lease)
            plain.acquired()


def test_a_repeated_batch_finds_its_leases_in_any_order(client, other, key):
    names = [f"{key}/1", f"{key}/2"]
    leases = granted(client.multi_lock(names, request_id="r"), 2)
    again = granted(other.multi_lock(names[::-1], request_id="r"), 2)
    shown = [[(lease.id, lease.key, lease.fence_token) for lease in each] for each in (leases, again)]
    assert shown[0] == shown[1]


def test_a_partly_released_batch_is_not_returned_again(client, other, key):
    names = [f"{key}/1", f"{key}/2"]
    first, second = granted(client.multi_lock(names, request_id="r"), 2)
    client.release(first)
    assert refused(other.multi_lock(names, request_id="r"), "bad_input")
    assert client.is_free(first.key)
    assert client.lease(second.key, second.id).lease.acquired


def test_a_released_batch_can_be_requested_again(client, key):
    names = [f"{key}/1", f"{key}/2"]
    leases = granted(client.multi_lock(names, request_id="r"), 2)
    for lease in leases:
        client.release(lease)
    again = granted(client.multi_lock(names, request_id="r"), 2)
    assert [lease.fence_token for lease in again] == [2, 2]
    assert not {lease.id for lease in again} & {lease.id for lease in leases}


def test_the_same_id_for_other_keys_is_another_batch(client, key):
    granted(client.multi_lock([f"{key}/1", f"{key}/2"], request_id="r"), 2)
    granted(client.multi_lock([f"{key}/3", f"{key}/4"], request_id="r"), 2)


def until_queued(client, key):
    """The list does not show a waiting batch, but a try for one of its free keys fails."""
    wait_until("the place of the batch", lambda: not client.is_free(key))
