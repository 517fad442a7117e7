"""Peers that are gone without a word are noticed by the server's pings (W3, and our keep-alive for Locktopus)."""

import contextlib

import pytest

from locktopus import Connection, statistics
from relay import Relay
from timing import Witness
from waymaker import Client

# Over gRPC the server asks every ten seconds, and waits as long for an answer.
GRPC_NOTICED_MS = 20_000
# Over a WebSocket it asks every fifteen seconds, and closes the connection when two answers are missing.
WEB_SOCKET_NOTICED_MS = 45_000

pytestmark = pytest.mark.slow


def test_a_waiter_that_fell_silent_loses_its_place_and_a_holder_keeps_the_lock(one_worker, one_worker_client, key):
    client = one_worker_client
    client.hold(key)
    relay = Relay(one_worker.grpc)
    with contextlib.closing(relay), Client(relay.address) as silent:
        holder = silent.lock(f"{key}/held").acquired()
        waiter = silent.lock(key).waiting()
        relay.silent.set()
        witness = Witness(client, 2 * GRPC_NOTICED_MS)
        witness.assert_before_end("the end of the wait", lambda: not client.lease(key, waiter.id).success)
        assert client.lease(holder.key, holder.id).lease.acquired


def test_a_lock_of_locktopus_is_free_after_its_connection_fell_silent(one_worker, one_worker_client, key):
    relay = Relay(one_worker.http)
    with contextlib.closing(relay), Connection(one_worker.http, key) as waiter:
        silent = Connection(relay.address, key, abandon_timeout_ms=0)
        silent.lock("W a")
        waiter.enqueue("W a")
        relay.silent.set()
        witness = Witness(one_worker_client, 2 * WEB_SOCKET_NOTICED_MS)
        is_granted = lambda: statistics(one_worker.http, key)["GroupsPending"] == 0
        witness.assert_before_end("the end of the lock", is_granted)
        assert waiter.acquire() == "2"
        silent.socket.socket.close()
