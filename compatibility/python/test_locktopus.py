"""The Locktopus protocol over a WebSocket: messages, errors, and ends of connections."""

import json
import socket
import time

import pytest
from websockets.exceptions import ConnectionClosed

from locktopus import Connection, statistics
from timing import HOUR_MS, WATCHDOG_S, Witness, short_leases

ABANDON_MS = 300


@pytest.fixture
def connect(server, key):
    """Opens connections to a namespace that only this test uses, or to another namespace or server."""
    connections = []

    def new(to=server, namespace=key, **options):
        connections.append(Connection(to.http, namespace, **options))
        return connections[-1]

    yield new
    for connection in connections:
        connection.socket.close()


def lock_of(members):
    return {"action": "lock", "resources": [members]}


def test_a_free_path_is_acquired_at_once_with_the_first_id(connect):
    assert connect().lock("W a") == "1"


def test_ids_count_the_locks_of_a_namespace(connect):
    one, two = connect(), connect()
    assert one.lock("W a") == "1"
    assert two.enqueue("W a") == "2"
    assert one.release() == "1"
    assert two.acquire() == "2"
    assert one.lock("W b") == "3"


def test_a_held_path_is_enqueued_and_acquired_after_the_release(connect):
    one, two = connect(), connect()
    one.lock("W a")
    two.enqueue("W a")
    one.release()
    two.acquire()
    two.release()


def test_a_connection_locks_again_after_its_release(connect):
    one = connect()
    for _ in range(3):
        one.lock("W a", "R b")
        one.release()


def test_a_waiter_can_cancel_and_receives_nothing_afterwards(connect):
    one, two = connect(), connect()
    one.lock("W a")
    lock_id = two.enqueue("W a")
    assert two.release() == lock_id
    one.release()
    assert two.is_silent()
    assert one.lock("W a") == "3"


def test_a_cancelled_waiter_blocks_no_later_waiter(connect):
    one, two, three = connect(), connect(), connect()
    one.lock("R a")
    two.enqueue("W a")
    two.release()
    three.lock("R a")


def test_messages_may_be_sent_before_earlier_responses_arrive(connect):
    one = connect()
    for _ in range(50):
        one.send(lock_of({"type": "write", "path": ["a"]}))
        one.send({"action": "release"})
    for number in range(1, 51):
        assert one.receive() == (("lock", "acquired"), str(number))
        assert one.receive() == (("release", "ready"), str(number))


def test_a_release_that_crosses_the_grant_gets_the_last_response(connect):
    """A waiter may receive the grant first. The response to the release follows with the same id, and nothing else."""
    one, two = connect(), connect()
    for _ in range(30):
        one.lock("W a")
        lock_id = two.enqueue("W a")
        one.send({"action": "release"})
        two.send({"action": "release"})
        answer = two.receive()
        if answer == (("lock", "acquired"), lock_id):
            answer = two.receive()
        assert answer == (("release", "ready"), lock_id)
        assert one.receive()[0] == ("release", "ready")


@pytest.mark.parametrize("kind", ["write", "w", "Write", "WRITE", "W"])
def test_the_write_type_has_several_spellings(connect, kind):
    one, two = connect(), connect()
    one.send(lock_of({"type": kind, "path": ["a"]}))
    assert one.receive()[0] == ("lock", "acquired")
    two.enqueue("R a")


@pytest.mark.parametrize("kind", ["read", "r", "Read", "READ", "R"])
def test_the_read_type_has_several_spellings(connect, kind):
    one, two, three = connect(), connect(), connect()
    one.send(lock_of({"type": kind, "path": ["a"]}))
    assert one.receive()[0] == ("lock", "acquired")
    two.lock("R a")
    three.enqueue("W a")


MEMBERS = [
    '{"action":"lock","resources":[{"type":"write","path":["a"]}]}',
    '{"Action":"lock","Resources":[{"Type":"write","Path":["a"]}]}',
    '{"ACTION":"lock","rEsOuRcEs":[{"TYPE":"write","PATH":["a"]}]}',
    '{"action":"lock","other":{"x":[1]},"resources":[{"type":"write","path":["a"],"more":null}]}',
    '  {"action":"lock","resources":[{"type":"write","path":["a"]}]}\n{"action":"nonsense"}',
]


@pytest.mark.parametrize("text", MEMBERS)
@pytest.mark.parametrize("binary", [False, True])
def test_member_names_have_any_case_and_unknown_ones_are_ignored(connect, text, binary):
    one, two = connect(), connect()
    one.send(text.encode() if binary else text)
    assert one.receive() == (("lock", "acquired"), "1")
    two.enqueue("W a")


def test_a_release_ignores_resources(connect):
    one = connect()
    one.lock("W a")
    one.send({"action": "release", "resources": [{"type": "write", "path": ["b"]}]})
    assert one.receive()[0] == ("release", "ready")


def test_a_null_segment_is_an_empty_one(connect):
    one, two = connect(), connect()
    one.send('{"action":"lock","resources":[{"type":"write","path":[null]}]}')
    assert one.receive()[0] == ("lock", "acquired")
    two.enqueue("W /")


@pytest.mark.parametrize("segment", ["\u00e9", "e\u0301", "\U0001f512", "a/b", " ", "\0", "A"])
def test_segments_are_compared_byte_by_byte(connect, segment):
    one, two, three = connect(), connect(), connect()
    one.send(lock_of({"type": "write", "path": [segment]}))
    assert one.receive()[0] == ("lock", "acquired")
    two.lock("W a", "W b")
    three.send(lock_of({"type": "read", "path": [segment, "x"]}))
    assert three.receive()[0] == ("lock", "enqueued")


INPUTS = [
    ("{}", "invalid action: "),
    ('{"action":null}', "invalid action: "),
    ('{"action":"steal"}', "invalid action: steal"),
    ('{"action":"LOCK"}', "invalid action: LOCK"),
    ('{"action":"release"}', "invalid action [release] in state [ready]"),
    (
        '{"action":"lock","resources":[{"type":"shared","path":["a"]}]}',
        "cannot build resource lock: invalid lock type: shared",
    ),
    ('{"action":"lock","resources":[{"path":["a"]}]}', "cannot build resource lock: invalid lock type: "),
    ("", "unexpected EOF"),
    (b"", "unexpected EOF"),
]


@pytest.mark.parametrize("sent,detail", INPUTS, ids=[str(number) for number in range(len(INPUTS))])
def test_an_error_is_reported_before_the_connection_is_closed(connect, sent, detail):
    one = connect()
    one.send(sent)
    assert one.failed() == detail


MALFORMED = [
    "lock",
    "{",
    '"lock"',
    "[]",
    b"\xff\xfe",
    '{"action":7}',
    '{"action":"lock","resources":{}}',
    '{"action":"lock","resources":[7]}',
    '{"action":"lock","resources":[{"type":"read","path":"a"}]}',
    '{"action":"lock","resources":[{"type":"read","path":[1]}]}',
    # Differs from the original server, which would lock the whole namespace, or nothing.
    '{"action":"lock","resources":[{"type":"read"}]}',
    '{"action":"lock","resources":[{"type":"read","path":null}]}',
    '{"action":"lock","resources":[]}',
    '{"action":"lock"}',
    '{"action":"lock","resources":null}',
]


@pytest.mark.parametrize("sent", MALFORMED, ids=[str(number) for number in range(len(MALFORMED))])
def test_a_malformed_message_is_an_error(connect, sent):
    one = connect()
    one.send(sent)
    assert one.failed()


def test_only_one_lock_at_a_time(connect):
    one, two = connect(), connect()
    one.lock("W a")
    one.send(lock_of({"type": "write", "path": ["b"]}))
    assert one.failed() == "invalid action [lock] in state [acquired]"
    two.enqueue("W a")
    two.send(lock_of({"type": "write", "path": ["b"]}))
    assert two.failed() == "invalid action [lock] in state [enqueued]"


def test_an_error_is_reported_before_the_abandon_timeout_expires(connect):
    one, two = connect(abandon_timeout_ms=HOUR_MS), connect()
    one.lock("W a")
    one.send('{"action":"steal"}')
    assert one.failed() == "invalid action: steal"
    two.enqueue("W a")


def test_an_error_keeps_the_lock_for_the_abandon_timeout(connect, one_worker, one_worker_client, key):
    one, two = connect(one_worker, abandon_timeout_ms=ABANDON_MS), connect(one_worker)
    one.lock("W a")
    two.enqueue("W a")
    started = time.monotonic()
    one.send('{"action":"steal"}')
    assert one.failed() == "invalid action: steal"
    witness = Witness(one_worker_client, 2 * ABANDON_MS)
    assert_granted_before_end(witness, one_worker, key)
    two.acquire()
    assert time.monotonic() - started >= ABANDON_MS / 1000 - 0.02


@pytest.mark.parametrize("what", ["resources", "segments", "segment", "message"])
def test_limits(connect, what):
    """1024 resources, 64 segments, 1 KiB a segment and 1 MiB a message are accepted, and more of each is refused."""
    good, bad = {
        "resources": ([["a"]] * 1024, [["a"]] * 1025),
        "segments": ([["a"] * 64], [["a"] * 65]),
        "segment": ([["a" * 1024]], [["a" * 1025]]),
        "message": ([["a" * 1000]] * 1000, [["a" * 1024] * 64] * 17),
    }[what]
    one, two = connect(), connect()
    one.send(writing(good))
    assert one.receive()[0] == ("lock", "acquired")
    with pytest.raises(ConnectionClosed):
        two.send(writing(bad))
        assert two.receive_text().startswith("communication error: ")
        two.receive_text()


def writing(paths):
    return {"action": "lock", "resources": [{"type": "write", "path": path} for path in paths]}


@pytest.mark.parametrize("code", [1000, 3000, 4321])
def test_the_code_of_a_clients_close_is_echoed(connect, code):
    one = connect()
    one.socket.close(code, "close")
    assert (one.socket.close_code, one.socket.close_reason) == (code, "")


def test_a_pong_has_the_payload_of_its_ping(connect):
    assert connect().answers_ping()


@pytest.mark.parametrize("code", [1000, 3000, None], ids=["normal", "protocol error", "cut"])
def test_a_lock_is_kept_for_the_abandon_timeout_of_its_connection(connect, one_worker, one_worker_client, key, code):
    one, two = connect(one_worker, abandon_timeout_ms=ABANDON_MS), connect(one_worker)
    one.lock("W a")
    two.enqueue("W a")
    started = time.monotonic()
    leave(one, code)
    witness = Witness(one_worker_client, 2 * ABANDON_MS)
    assert_granted_before_end(witness, one_worker, key)
    two.acquire()
    assert time.monotonic() - started >= ABANDON_MS / 1000 - 0.02


def test_a_close_is_acknowledged_before_the_abandon_timeout_expires(connect):
    one, two = connect(abandon_timeout_ms=HOUR_MS), connect()
    one.lock("W a")
    started = time.monotonic()
    one.socket.close()
    assert one.socket.close_code == 1000
    # If the server does not close the connection, the client closes it at the end of the watchdog.
    assert time.monotonic() - started < WATCHDOG_S
    two.enqueue("W a")


def test_a_timeout_of_zero_releases_at_once(connect, one_worker, one_worker_client, key):
    one, two = connect(one_worker, abandon_timeout_ms=0), connect(one_worker)
    one.lock("W a")
    two.enqueue("W a")
    one.socket.close()
    witness = Witness(one_worker_client, 200)
    assert_granted_before_end(witness, one_worker, key)
    two.acquire()


def test_a_connection_without_a_lock_leaves_nothing(connect):
    one, two = connect(abandon_timeout_ms=HOUR_MS), connect()
    one.lock("W a")
    one.release()
    one.socket.close()
    two.lock("W a")


def test_a_waiter_leaves_the_queue_when_its_connection_ends(connect):
    """The original server keeps the waiter. It may grant the lock and then block all clients for the timeout."""
    one, two, three = connect(), connect(abandon_timeout_ms=HOUR_MS), connect()
    one.lock("R a")
    two.enqueue("W a")
    three.enqueue("R a")
    two.socket.close()
    three.acquire()


def test_a_new_connection_does_not_own_the_lock_of_an_earlier_one(connect, key):
    for timeout in short_leases(ABANDON_MS):
        with timeout:
            options = {"namespace": f"{key}/{timeout.ms}", "abandon_timeout_ms": timeout.ms}
            one = connect(**options)
            one.lock("W a")
            timeout.begins()
            one.socket.close()
            again = connect(**options)
            again.enqueue("W a")
            timeout.is_over()
            again.acquire()


def test_namespaces_do_not_see_each_other(server, key):
    with Connection(server.http, f"{key}-1") as one, Connection(server.http, f"{key}-2") as two:
        assert (one.lock("W"), two.lock("W")) == ("1", "1")


def test_responses_are_text_frames_that_end_with_a_newline(connect):
    one = connect()
    one.send(lock_of({"type": "write", "path": []}))
    text = one.receive_text()
    assert json.loads(text) == {"id": "1", "action": "lock", "state": "acquired"}
    assert text.endswith("}\n")


def assert_granted_before_end(witness, server, namespace):
    """Asserts that the only waiter of a namespace is granted its lock before the witness ends."""
    witness.assert_before_end("the grant", lambda: statistics(server.http, namespace)["GroupsPending"] == 0)


def leave(connection, code):
    """Closes with a code, or without a close frame."""
    if code is None:
        connection.socket.socket.shutdown(socket.SHUT_RDWR)
    else:
        connection.socket.close(code)
