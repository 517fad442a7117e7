"""Pings of the server detect peers that vanished without closing (W3, and keep-alive for Locktopus)."""

import contextlib

import pytest

from locktopus import Connection, statistics
from relay import Relay
from timing import Witness
from waymaker import Client

# Over gRPC the server sends a ping every ten seconds, and waits ten seconds for the answer.
GRPC_NOTICED_MS = 20_000
# Over a WebSocket it sends a ping every fifteen seconds, and closes the connection when two answers are missing.
WEB_SOCKET_NOTICED_MS = 45_000

pytestmark = pytest.mark.slow


def test_a_silent_waiter_loses_its_queue_position_and_a_holder_keeps_its_lock(one_worker, one_worker_client, key):
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


def test_a_locktopus_lock_is_freed_after_its_connection_is_silent(one_worker, one_worker_client, key):
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
