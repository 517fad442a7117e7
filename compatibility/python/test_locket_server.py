"""Locket: server log, metrics and restarts."""

import contextlib
import time

import grpc
import pytest
from models.locket_pb2 import *

import locket
from locket import Refused, metrics
from server import Server
from timing import Witness, short_leases, wait_until
from waymaker import Client


@pytest.fixture
def own_server():
    """A server that receives only the requests of this test."""
    running = Server()
    yield running
    running.close()


def is_held(client, key):
    try:
        client.fetch(key)
    except Refused:
        return False
    return True


def test_the_uuid_of_a_request_is_in_the_log(monkeypatch):
    monkeypatch.setenv("WAYMAKER_LOG", "locket=debug")
    server = Server()
    try:
        uuid = "2f1c5e0a-8f0e-4cc5-93a0-2f5a5b1d1c11"
        with locket.Client(server.grpc) as client:
            client.lock("a", metadata=[("uuid", uuid)])
            client.lock("a")
        assert server.said().count(uuid) == 1
    finally:
        server.close()


def test_calls_are_counted_by_kind(own_server):
    with locket.Client(own_server.grpc) as client:
        client.lock("a", type_code=LOCK)
        client.lock("a", type_code=LOCK)
        client.fetch("a")
        client.fetch_all(LOCK)
        client.release("a")
    started = metrics(own_server.http, "locket_requests_started")
    assert started == metrics(own_server.http, "locket_requests_succeeded")
    assert started == {"Lock": 2, "Fetch": 1, "FetchAll": 1, "Release": 1}


def test_a_collision_counts_as_success_and_every_other_error_as_failure(own_server):
    with locket.Client(own_server.grpc) as client:
        client.lock("a", owner="jim")
        refusals = [
            (client.lock, "a", {"owner": "nima"}),
            (client.lock, "a", {"ttl": 0}),
            (client.lock, "a", {"owner": ""}),
            (client.release, "a", {"owner": "nima"}),
            (client.release, "b", {}),
            (client.fetch, "b", {}),
            (client.fetch_all, 4, {}),
        ]
        for call, argument, fields in refusals:
            with pytest.raises(Refused):
                call(argument, **fields)
    http = own_server.http
    succeeded, failed = (metrics(http, f"locket_requests_{outcome}") for outcome in ("succeeded", "failed"))
    assert (succeeded["Lock"], failed["Lock"]) == (2, 2)
    assert (succeeded["Release"], failed["Release"]) == (1, 1)
    assert (succeeded.get("Fetch", 0), failed["Fetch"]) == (0, 1)
    assert (succeeded.get("FetchAll", 0), failed["FetchAll"]) == (0, 1)


def test_no_request_is_in_flight_after_all_responses(own_server):
    with locket.Client(own_server.grpc) as client:
        client.lock("a")
    assert set(metrics(own_server.http, "locket_requests_in_flight").values()) == {0}
    assert set(metrics(own_server.http, "locket_requests_cancelled").values()) == {0}


def test_metrics_show_the_longest_latency(own_server):
    with locket.Client(own_server.grpc) as client:
        client.lock("a")
    assert metrics(own_server.http, "locket_request_latency_max")["Lock"] >= 0


def test_metrics_count_held_and_expired_locks_and_presences(own_server):
    with locket.Client(own_server.grpc) as client:
        client.lock("l", type_code=LOCK)
        client.lock("p1", type_code=PRESENCE)
        client.lock("p2", type_code=PRESENCE)
        active = lambda name: metrics(own_server.http, f"locket_active_{name}")
        wait_until("both are counted", lambda: active("locks") == {"": 1} and active("presences") == {"": 2})
        client.lock("short", type_code=LOCK, ttl=1)
        client.lock("brief", type_code=PRESENCE, ttl=1)
        wait_until("the end of both", lambda: not is_held(client, "short") and not is_held(client, "brief"))
    assert metrics(own_server.http, "locket_locks_expired") == {"": 1}
    assert metrics(own_server.http, "locket_presence_expired") == {"": 1}


def test_a_lock_survives_a_crash_with_its_full_ttl(tmp_path, key):
    for ttl in short_leases(3000):
        with ttl, contextlib.closing(Server(tmp_path / str(ttl.ms), "--workers=1")) as server:
            with locket.Client(server.grpc) as client:
                ttl.begins()
                client.lock(key, owner="jim", value="data", type_code=PRESENCE, ttl=ttl.ms // 1000)
                time.sleep(ttl.ms / 2000)
            server.kill()
            ttl.is_over()
            started = time.monotonic()
            ttl.begins()
            server.start()
            with locket.Client(server.grpc) as client, Client(server.grpc) as other:
                witness = Witness(other, ttl.ms * 4 // 3)
                found = client.fetch(key)
                assert (found.owner, found.value, found.type_code) == ("jim", "data", PRESENCE)
                with pytest.raises(Refused) as refused:
                    client.lock(key, owner="nima")
                assert refused.value.answer == (grpc.StatusCode.ALREADY_EXISTS, "lock-collision")
                ttl.is_over()
                witness.assert_before_end("the end of the presence", lambda: not is_held(client, key))
            assert time.monotonic() - started >= ttl.ms / 1000 - 0.05


def test_the_owner_renews_its_lock_after_a_crash(durable_server, key):
    with locket.Client(durable_server.grpc) as client:
        client.lock(key, owner="jim", value="old")
        client.lock(key, owner="jim", value="new")
    durable_server.kill()
    durable_server.start()
    with locket.Client(durable_server.grpc) as client:
        assert client.fetch(key).value == "new"
        client.lock(key, owner="jim", value="newer")
        client.release(key, owner="jim")
        assert not is_held(client, key)


def test_a_release_survives_a_crash_if_a_later_change_is_durable(durable_server, key):
    with locket.Client(durable_server.grpc) as client:
        client.lock(key)
        client.release(key)
        client.lock(f"{key}/later")
    durable_server.kill()
    durable_server.start()
    with locket.Client(durable_server.grpc) as client:
        assert not is_held(client, key)


def test_without_durability_a_lock_is_lost_in_a_crash(tmp_path, key):
    server = Server(tmp_path / "data", "--locket-durable=false")
    try:
        with locket.Client(server.grpc) as client:
            client.lock(key)
        server.kill()
        server.start()
        with locket.Client(server.grpc) as client:
            assert not is_held(client, key)
    finally:
        server.close()


def test_an_unknown_compatibility_is_named_in_the_error():
    with pytest.raises(AssertionError, match="(?s)did not become ready.*compatibility"):
        Server("none", "--locket-compatibility=1999").close()
