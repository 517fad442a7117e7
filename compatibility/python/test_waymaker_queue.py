"""Order of grants: readers and writers, arrival and priority (W11, W12)."""

import time

import pytest

from timing import within
from waymaker import Client


def waits(client, attempt, key):
    """Returns whether an attempt still waits after its Waiting event was read."""
    return not client.lease(key, attempt.id).lease.acquired


def queue(client, key, count=1, read=False, **fields):
    """Starts `count` attempts, each after the one before waits."""
    acquire = client.read_lock if read else client.lock
    attempts = []
    for _ in range(count):
        attempt = acquire(key, **fields)
        attempt.id = attempt.waiting().id
        attempts.append(attempt)
    return attempts


def test_readers_share(client, other, key):
    first = client.read_lock(key).acquired()
    second = other.read_lock(key).acquired()
    assert first.id != second.id
    assert second.fence_token == first.fence_token + 1


def test_a_writer_excludes_readers_and_writers(client, other, key):
    client.hold(key)
    other.read_lock(key, max_wait_period=0).failed("timeout")
    other.lock(key, max_wait_period=0).failed("timeout")


def test_readers_exclude_a_writer_until_the_last_one_releases(client, other, key):
    first, second = client.read_lock(key).acquired(), client.read_lock(key).acquired()
    (writer,) = queue(other, key)
    client.release(first)
    assert waits(client, writer, key)
    client.release(second)
    writer.acquired()


def test_no_reader_overtakes_a_waiting_writer(client, other, key):
    reader = client.read_lock(key).acquired()
    (writer,) = queue(other, key)
    other.read_lock(key, max_wait_period=0).failed("timeout")
    (late,) = queue(other, key, read=True)
    client.release(reader)
    hold = writer.acquired()
    assert waits(client, late, key)
    client.release(hold)
    late.acquired()


def test_readers_at_the_head_are_granted_together_and_the_writer_behind_waits_for_all(client, other, key):
    hold = client.hold(key)
    readers = queue(client, key, 3, read=True)
    (writer,) = queue(other, key)
    (late,) = queue(other, key, read=True)
    client.release(hold)
    holds = [reader.acquired() for reader in readers]
    for held in holds:
        assert waits(client, writer, key) and waits(client, late, key)
        client.release(held)
    client.release(writer.acquired())
    late.acquired()


def test_a_waiting_writer_that_leaves_lets_the_readers_behind_it_in(client, other, key):
    client.read_lock(key).acquired()
    (writer,) = queue(other, key)
    (reader,) = queue(client, key, read=True)
    writer.drop()
    reader.acquired()


def test_without_priority_waiters_are_served_in_order_of_arrival(client, other, key):
    hold = client.hold(key)
    attempts = queue(other, key, 5)
    client.release(hold)
    fences = []
    for attempt in attempts:
        granted = attempt.acquired()
        fences.append(granted.fence_token)
        client.release(granted)
    assert fences == list(range(2, 7))


def test_a_greater_priority_is_served_earlier(client, other, key):
    # A priority of 2 moves ahead by 20 s, and 4 by 20 s more.
    for limit in within(20_000):
        with limit:
            name = f"{key}/{limit.number}"
            hold = client.hold(name)
            limit.begins()
            plain, low, high = (queue(other, name, priority=priority)[0] for priority in (0, 2, 4))
            limit.is_over()
            client.release(hold)
            for attempt in (high, low, plain):
                client.release(attempt.acquired())


def test_equal_priorities_are_served_in_order_of_arrival(client, other, key):
    hold = client.hold(key)
    first, second = queue(other, key, 2, priority=3)
    client.release(hold)
    client.release(first.acquired())
    second.acquired()


def test_priority_does_not_preempt_a_holder(client, other, key):
    hold = client.hold(key)
    (attempt,) = queue(other, key, priority=2**32 - 1)
    assert waits(client, attempt, key)
    assert client.lease(key, hold.id).lease.acquired


def test_priority_moves_ahead_by_at_most_a_minute(client, other, key):
    """A priority of 6 moves ahead by a minute, and a higher one by no more, so the earlier of two waiters is first."""
    hold = client.hold(key)
    (six,) = queue(other, key, priority=6)
    time.sleep(0.005)
    (many,) = queue(other, key, priority=1_000_000)
    client.release(hold)
    client.release(six.acquired())
    many.acquired()


@pytest.mark.parametrize("modes", ["rw", "wr"])
def test_an_expired_hold_frees_the_key_like_a_release(client, other, key, modes):
    acquire = {"r": Client.read_lock, "w": Client.lock}
    hold = client.hold(key)
    first = acquire[modes[0]](client, key, max_lease_period=200)
    first.waiting()
    second = acquire[modes[1]](other, key)
    second.waiting()
    client.release(hold)
    first.acquired()
    second.acquired()
    first.expired()
