"""Conflicts between sets of paths, and the order of waiters."""

import pytest

from locktopus import Connection


@pytest.fixture
def connect(server, key):
    """Opens connections to a namespace that only this test uses."""
    connections = []

    def new():
        connections.append(Connection(server.http, key))
        return connections[-1]

    yield new
    for connection in connections:
        connection.socket.close()


# Paths that one connection holds, paths that another requests, and whether the second has to wait.
CONFLICTS = [
    (["W a/b/c"], ["W a/b/c"], True),
    (["W"], ["W a/b/c"], True),
    (["W"], ["W"], True),
    (["W a/b"], ["W a/b/2"], True),
    (["W a/b/2"], ["W a/b"], True),
    (["W a/b/1"], ["W a/b/2"], False),
    (["R a/b/1"], ["R a/b/2"], False),
    (["R a/b"], ["R a/b"], False),
    (["R"], ["R a"], False),
    (["R a"], ["W a/1/x"], True),
    (["R a", "W a/b"], ["R a/c"], False),
    (["R a", "W a/b"], ["R a"], True),
    (["R a", "W a/b"], ["R a/b"], True),
    (["R", "W c"], ["R"], True),
    (["R a"], ["R a", "W a"], True),
    (["W 2"], ["R 1", "W 3", "W"], True),
    (["W 2/1", "R 2"], ["R 2", "R 2/1/1"], True),
    (["W /"], ["W a"], False),
    (["W /"], ["W"], True),
    (["W a", "R a/b", "W a", "W a"], ["R a/b"], True),
]


@pytest.mark.parametrize("held,asked,waits", CONFLICTS)
def test_conflicts(connect, held, asked, waits):
    one, two = connect(), connect()
    one.lock(*held)
    answer, _ = two.ask(*asked)
    assert answer == ("lock", "enqueued" if waits else "acquired")
    one.release()
    if waits:
        two.acquire()


def test_a_waiter_blocks_later_waiters_for_the_same_paths(connect):
    one, two, three = connect(), connect(), connect()
    one.lock("W a1", "W a2", "W a3")
    two.enqueue("R a3", "R a4", "R a5")
    three.enqueue("W a5", "W a6", "W a7")
    one.release()
    two.acquire()
    assert three.is_silent()
    two.release()
    three.acquire()


def test_a_waiter_does_not_block_unrelated_paths(connect):
    one, two, three = connect(), connect(), connect()
    one.lock("W a")
    two.enqueue("W a", "W b")
    three.lock("W c")


def test_a_read_waits_behind_a_waiting_read_that_overlaps_it(connect):
    one, two, three, four = connect(), connect(), connect(), connect()
    one.lock("R a")
    two.enqueue("W a/1", "W a/2")
    three.enqueue("R")
    four.enqueue("R a/3")
    one.release()
    two.acquire()
    two.release()
    three.acquire()
    four.acquire()


def test_a_read_that_queued_does_not_wait_for_reads(connect):
    one, two, three = connect(), connect(), connect()
    one.lock("R a")
    two.lock("W b")
    three.enqueue("R a", "R b")
    two.release()
    three.acquire()


def test_a_released_neighbour_blocks_no_waiter(connect):
    one, two, three = connect(), connect(), connect()
    one.lock("R a/b")
    two.lock("R a")
    two.release()
    three.lock("W a/c")


def test_adjacent_reads_are_granted_together_and_the_write_after_all_of_them(connect):
    one, writer = connect(), connect()
    one.lock("W a")
    paths = ["a/b", "a/b", "a/b/1", "a/b/2", "a/b/2/a", "a/b/2/b", "a/b/2/b/c", ""]
    readers = [connect() for _ in paths]
    for reader, path in zip(readers, paths):
        reader.enqueue(f"R {path}".strip())
    writer.enqueue("W a/b/2/b/c")
    one.release()
    for reader in readers:
        reader.acquire()
    for reader in readers:
        assert writer.is_silent()
        reader.release()
    writer.acquire()


def test_a_release_frees_all_paths_of_the_set_at_once(connect):
    one, two, three = connect(), connect(), connect()
    one.lock("W a", "W b")
    two.enqueue("W a")
    three.enqueue("W b")
    one.release()
    two.acquire()
    three.acquire()
