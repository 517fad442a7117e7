"""Peers that are gone without a word are noticed by the server's pings (W3, and our keep-alive for Locktopus)."""

import contextlib

import pytest

from locktopus import Connection
from relay import Relay
from waymaker import Client

# Over gRPC the server asks every ten seconds, and waits as long for an answer.
GRPC_NOTICED_S = 25
# Over a WebSocket it asks every fifteen, and goes when two answers are missing.
WEB_SOCKET_NOTICED_S = 50

pytestmark = pytest.mark.slow


def test_a_waiter_that_fell_silent_loses_its_place_and_a_holder_keeps_the_lock(server, client, key):
    client.hold(key, max_lease_period=60_000)
    relay = Relay(server.grpc)
    with contextlib.closing(relay), Client(relay.address) as silent:
        holder = silent.lock(f"{key}/held", max_lease_period=60_000, timeout_s=60).acquired()
        waiter = silent.lock(key, max_wait_period=60_000, timeout_s=60).waiting()
        relay.silent.set()
        client.until_gone(key, waiter.id, GRPC_NOTICED_S)
        assert client.lease(holder.key, holder.id).lease.acquired


def test_a_lock_of_locktopus_is_free_after_its_connection_fell_silent(server, key):
    relay = Relay(server.http)
    with contextlib.closing(relay), Connection(server.http, key) as waiter:
        silent = Connection(relay.address, key, abandon_timeout_ms=0)
        silent.lock("W a")
        waiter.enqueue("W a")
        relay.silent.set()
        assert waiter.acquire(WEB_SOCKET_NOTICED_S) == "2"
        silent.socket.socket.close()
