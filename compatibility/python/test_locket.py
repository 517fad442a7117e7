"""The Locket contract as documented (the default), and as implemented in 2024."""

import time

import grpc
import pytest
from models.locket_pb2 import *

import locket
from locket import Refused
from server import Server
from timing import Witness, short_leases, wait_until

COLLISION = (grpc.StatusCode.ALREADY_EXISTS, "lock-collision")
INVALID_TTL = (grpc.StatusCode.INVALID_ARGUMENT, "invalid-ttl")
INVALID_OWNER = (grpc.StatusCode.INVALID_ARGUMENT, "invalid-owner")
INVALID_RESOURCE = (grpc.StatusCode.INVALID_ARGUMENT, "invalid-resource")
INVALID_TYPE = (grpc.StatusCode.NOT_FOUND, "invalid-type")
NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "resource-not-found")

# Arguments of FetchAll: type code, type name, and whether they are valid: as documented, then as of 2024.
FETCH_ALL = [
    (LOCK, "", True, True),
    (PRESENCE, "", True, True),
    (LOCK, "lock", True, True),
    (PRESENCE, "presence", True, True),
    (LOCK, "presence", False, True),
    (LOCK, "dawg", False, True),
    (PRESENCE, "lock", False, True),
    (PRESENCE, "dawg", False, True),
    (UNKNOWN, "lock", True, False),
    (UNKNOWN, "presence", True, False),
    (UNKNOWN, "dawg", False, False),
    (UNKNOWN, "LOCK", False, False),
    (UNKNOWN, "", False, False),
    (4, "", False, False),
    (4, "lock", False, False),
]


@pytest.fixture(scope="module")
def server_of_2024():
    running = Server("none", "--locket-compatibility=2024")
    yield running
    running.close()


@pytest.fixture
def client(server):
    with locket.Client(server.grpc) as connected:
        yield connected


@pytest.fixture
def client_of_2024(server_of_2024):
    with locket.Client(server_of_2024.grpc) as connected:
        yield connected


def answer(call, *arguments, **fields):
    """Returns the error of a call."""
    with pytest.raises(Refused) as refused:
        call(*arguments, **fields)
    return refused.value.answer


def test_fetch_returns_a_locked_resource(client, key):
    client.lock(key, owner="jim", value="test-data", type="lock")
    found = client.fetch(key)
    assert (found.key, found.owner, found.value) == (key, "jim", "test-data")
    assert (found.type, found.type_code) == ("lock", LOCK)


def test_another_owner_collides_and_changes_nothing(client, key):
    client.lock(key, owner="jim", value="his", type_code=LOCK)
    assert answer(client.lock, key, owner="nima", value="hers", type_code=PRESENCE) == COLLISION
    found = client.fetch(key)
    assert (found.owner, found.value, found.type) == ("jim", "his", "lock")


@pytest.mark.parametrize("owner", ["Jim", "jim ", " jim", "j\u00efm"])
def test_owners_are_compared_byte_by_byte(client, key, owner):
    client.lock(key, owner="jim")
    assert answer(client.lock, key, owner=owner) == COLLISION


def test_the_same_owner_locks_again_and_overwrites_value_and_type(client, key):
    client.lock(key, value="old", type_code=LOCK)
    client.lock(key, value="new", type_code=PRESENCE)
    found = client.fetch(key)
    assert (found.value, found.type, found.type_code) == ("new", "presence", PRESENCE)


def test_locks_and_presences_share_their_keys(client, key):
    client.lock(key, owner="jim", type_code=LOCK)
    assert answer(client.lock, key, owner="nima", type_code=PRESENCE) == COLLISION


@pytest.mark.parametrize("ttl", [0, -1, -(2**63)])
def test_a_ttl_that_is_not_positive_is_invalid(client, key, ttl):
    assert answer(client.lock, key, ttl=ttl) == INVALID_TTL
    assert answer(client.fetch, key) == NOT_FOUND


def test_the_longest_ttl_is_accepted(client, key):
    client.lock(key, ttl=2**63 - 1)
    client.fetch(key)


def test_an_owner_is_required(client, key):
    assert answer(client.lock, key, owner="") == INVALID_OWNER


def test_an_empty_key_is_a_key(client):
    client.lock("", owner="jim")
    assert client.fetch("").owner == "jim"
    assert answer(client.lock, "", owner="nima") == COLLISION
    client.release("", owner="jim")


def test_of_several_invalid_fields_the_first_is_reported(client, key):
    client.lock(key, owner="jim")
    assert answer(client.lock, key, owner="", ttl=0, type="dawg") == INVALID_TYPE
    assert answer(client.lock, key, owner="", ttl=0) == INVALID_TTL
    assert answer(client.lock, key, owner="") == INVALID_OWNER
    assert answer(client.lock, key, owner="nima") == COLLISION


def test_a_request_without_a_resource_is_refused(client):
    for call, request in (
        (client.stub.Lock, LockRequest(ttl_in_seconds=5)),
        (client.stub.Release, ReleaseRequest()),
    ):
        assert answer(locket.call, call, request) == INVALID_RESOURCE


@pytest.mark.parametrize("field,limit", [("key", 255), ("owner", 255), ("value", 4096)])
def test_texts_that_are_too_long_are_invalid_arguments(client, key, field, limit):
    fields = {"key": key, "owner": "jim", "value": ""}
    client.lock(**{**fields, field: "x" * limit})
    code, _message = answer(client.lock, **{**fields, field: "x" * (limit + 1)})
    assert code == grpc.StatusCode.INVALID_ARGUMENT


LOCK_TYPES = [
    (LOCK, "", (LOCK, "lock")),
    (PRESENCE, "", (PRESENCE, "presence")),
    (LOCK, "lock", (LOCK, "lock")),
    (PRESENCE, "presence", (PRESENCE, "presence")),
    (UNKNOWN, "lock", (LOCK, "lock")),
    (UNKNOWN, "presence", (PRESENCE, "presence")),
    (UNKNOWN, "", (UNKNOWN, "")),
    (LOCK, "presence", None),
    (PRESENCE, "lock", None),
    (LOCK, "dawg", None),
    (UNKNOWN, "random", None),
    (4, "", None),
    (4, "lock", None),
]


@pytest.mark.parametrize("code,text,stored", LOCK_TYPES)
def test_the_type_of_a_lock_is_completed_or_invalid(client, key, code, text, stored):
    if stored is None:
        assert answer(client.lock, key, type_code=code, type=text) == INVALID_TYPE
        assert answer(client.fetch, key) == NOT_FOUND
    else:
        client.lock(key, type_code=code, type=text)
        found = client.fetch(key)
        assert (found.type_code, found.type) == stored


def test_no_type_filter_lists_a_lock_without_a_type(client, key):
    client.lock(key)
    listed = [*client.fetch_all(LOCK), *client.fetch_all(PRESENCE)]
    assert key not in {found.key for found in listed}


@pytest.mark.parametrize("code,text,valid,_of_2024", FETCH_ALL)
def test_fetch_all_accepts_documented_types(client, code, text, valid, _of_2024):
    if valid:
        client.fetch_all(code, text)
    else:
        assert answer(client.fetch_all, code, text) == INVALID_TYPE


@pytest.mark.parametrize("code,text,_documented,valid", FETCH_ALL)
def test_fetch_all_of_2024_accepts_only_type_codes(client_of_2024, code, text, _documented, valid):
    if valid:
        client_of_2024.fetch_all(code, text)
    else:
        assert answer(client_of_2024.fetch_all, code, text) == INVALID_TYPE


@pytest.mark.parametrize("code,text,_documented,valid", FETCH_ALL)
def test_lock_of_2024_accepts_only_type_codes(client_of_2024, key, code, text, _documented, valid):
    if valid:
        client_of_2024.lock(key, type_code=code, type=text)
        assert client_of_2024.fetch(key).type == {LOCK: "lock", PRESENCE: "presence"}[code]
    else:
        assert answer(client_of_2024.lock, key, type_code=code, type=text) == INVALID_TYPE


def test_fetch_all_lists_only_resources_of_its_type(key):
    server = Server()
    try:
        with locket.Client(server.grpc) as client:
            assert client.fetch_all(LOCK) == client.fetch_all(PRESENCE) == []
            for name, code in (("l1", LOCK), ("l2", LOCK), ("p1", PRESENCE), ("p2", PRESENCE)):
                client.lock(name, value=f"value of {name}", type_code=code)
            for code, text, names in ((LOCK, "lock", {"l1", "l2"}), (PRESENCE, "presence", {"p1", "p2"})):
                for listed in (client.fetch_all(code), client.fetch_all(UNKNOWN, text)):
                    assert {found.key for found in listed} == names
                    assert {(found.type_code, found.type, found.owner) for found in listed} == {(code, text, "jim")}
                    assert all(found.value == f"value of {found.key}" for found in listed)
    finally:
        server.close()


def test_a_released_resource_is_not_found(client, key):
    client.lock(key)
    client.release(key)
    assert answer(client.fetch, key) == NOT_FOUND
    client.lock(key, owner="nima")


def test_only_the_owner_releases(client, key):
    client.lock(key, owner="jim")
    assert answer(client.release, key, owner="nima") == COLLISION
    assert client.fetch(key).owner == "jim"


def test_a_release_ignores_type_and_value(client, key):
    client.lock(key, type_code=LOCK, value="some")
    client.release(key, type="dawg", type_code=9, value="other")


def test_a_release_of_a_free_key_is_not_found(client, key):
    assert answer(client.release, key) == NOT_FOUND


def test_a_release_of_a_free_key_succeeded_in_2024(client_of_2024, key):
    client_of_2024.release(key)


def test_a_lock_expires_after_its_ttl_and_others_can_acquire_it(one_worker, one_worker_client, key):
    with locket.Client(one_worker.grpc) as client:
        for ttl in short_leases(1000):
            with ttl:
                name = f"{key}/{ttl.ms}"
                started = time.monotonic()
                ttl.begins()
                client.lock(name, owner="jim", ttl=ttl.ms // 1000)
                witness = Witness(one_worker_client, ttl.ms * 3 // 2)
                assert answer(client.lock, name, owner="nima") == COLLISION
                ttl.is_over()
                witness.assert_before_end("the end of the lock", lambda: is_gone(client, name))
                assert time.monotonic() - started >= 0.95 * ttl.ms / 1000
                assert answer(client.release, name) == NOT_FOUND
                client.lock(name, owner="nima")


def test_a_renewal_replaces_the_older_timer(client, key):
    client.lock(key, ttl=1)
    time.sleep(0.6)
    renewed = time.monotonic()
    client.lock(key, ttl=1)
    wait_until("the end of the lock", lambda: is_gone(client, key))
    assert time.monotonic() - renewed >= 0.95


def is_gone(client, key):
    try:
        client.fetch(key)
    except Refused as refused:
        assert refused.answer == NOT_FOUND
        return True
    return False
