"""Restarts: locks that survive a crash or a stop, and events before a stop (W16, W20)."""

import grpc
import pytest
from waymaker_pb2 import *

from server import Server
from timing import wait_until
from waymaker import Client, answer


@pytest.fixture
def connect(durable_server):
    """Opens clients of the running server process."""
    clients = []

    def new():
        clients.append(Client(durable_server.grpc))
        return clients[-1]

    yield new
    for client in clients:
        client.channel.close()


def test_local_locks_and_counters_survive_a_crash(durable_server, connect, key):
    client = connect()
    for _ in range(2):
        client.release(client.hold(key, fence_scope=ScopeLocal))
    hold = client.hold(key, fence_scope=ScopeLocal, request_id="r")
    assert hold.fence_token == 3
    durable_server.kill()
    durable_server.start()
    client = connect()
    assert client.lease(key, hold.id).lease.acquired
    client.lock(key, max_wait_period=0).failed("timeout")
    again = client.lock(key, request_id="r").acquired()
    assert (again.id, again.fence_token) == (hold.id, 3)
    client.release(again)
    assert client.hold(key, fence_scope=ScopeLocal).fence_token == 4


def test_ephemeral_locks_and_counters_are_lost_in_a_crash(durable_server, connect, key):
    client = connect()
    client.release(client.hold(key))
    hold = client.hold(key)
    assert hold.fence_token == 2
    durable_server.kill()
    durable_server.start()
    client = connect()
    assert client.lease(key, hold.id).result_code == "not_found"
    assert client.hold(key).fence_token == 1


def test_the_scope_of_a_key_only_rises(durable_server, connect, key):
    client = connect()
    client.release(client.hold(key, fence_scope=ScopeLocal))
    hold = client.hold(key, fence_scope=ScopeEphemeral)
    assert hold.fence_token == 2
    durable_server.kill()
    durable_server.start()
    client = connect()
    assert client.lease(key, hold.id).lease.acquired
    client.release(hold)
    assert client.hold(key).fence_token == 3


def test_a_batch_of_scope_local_survives_a_crash(durable_server, connect, key):
    names = [f"{key}/1", f"{key}/2"]
    leases = connect().multi_lock(names, fence_scope=ScopeLocal, request_id="r").leases
    assert len(leases) == 2
    durable_server.kill()
    durable_server.start()
    client = connect()
    assert [lock.lock_id for lock in client.held(key)] == [lease.id for lease in leases]
    again = client.multi_lock(names, fence_scope=ScopeLocal, request_id="r").leases
    assert [lease.id for lease in again] == [lease.id for lease in leases]


def test_all_fields_of_a_listed_lock_survive_a_crash(durable_server, connect, key):
    texts = {"requester_info": "info", "requester_application": "app", "request_id": "r"}
    connect().hold(key, fence_scope=ScopeLocal, **texts)
    durable_server.kill()
    durable_server.start()
    (lock,) = connect().held(key)
    assert {name: getattr(lock, name) for name in texts} == texts
    assert (lock.write_lock, lock.fence_token) == (True, 1)


def test_a_release_survives_a_crash_if_a_later_change_is_durable(durable_server, connect, key):
    client = connect()
    client.release(client.hold(key, fence_scope=ScopeLocal))
    client.hold(f"{key}/later", fence_scope=ScopeLocal)
    durable_server.kill()
    durable_server.start()
    assert connect().hold(key, fence_scope=ScopeLocal).fence_token == 2


def test_all_locks_survive_a_clean_stop(durable_server, connect, key):
    client = connect()
    ephemeral = client.hold(f"{key}/ephemeral", request_id="r")
    local = client.hold(f"{key}/local", fence_scope=ScopeLocal)
    assert durable_server.stop() == 0
    durable_server.start()
    client = connect()
    for hold in (ephemeral, local):
        assert client.lease(hold.key, hold.id).lease.acquired
    again = client.lock(ephemeral.key, request_id="r").acquired()
    assert (again.id, again.fence_token) == (ephemeral.id, ephemeral.fence_token)
    client.release(ephemeral)
    assert client.hold(ephemeral.key).fence_token == 2


def test_a_stop_is_reported_to_waiters_and_holders(durable_server, connect, key):
    client, other = connect(), connect()
    holder = client.lock(key)
    holder.acquired()
    waiter = other.lock(key)
    waiting = waiter.waiting()
    durable_server.terminate()
    assert waiter.failed("shutdown").id == waiting.id
    assert holder.status() == grpc.StatusCode.UNAVAILABLE
    assert durable_server.wait() == 0


def test_a_stop_ends_a_batch_that_waits(durable_server, connect, key):
    client, other = connect(), connect()
    client.hold(key)
    call = other.begin_multi_lock([key, f"{key}/2"])
    wait_until("the place of the batch", lambda: not client.is_free(f"{key}/2"))
    durable_server.terminate()
    response = answer(call)
    assert (response.result_code, len(response.leases)) == ("shutdown", 0)


def test_a_stop_without_a_data_directory_is_reported_too(key):
    server = Server("none", "--drain=200ms")
    try:
        with Client(server.grpc) as client, Client(server.grpc) as other:
            holder = client.lock(key)
            holder.acquired()
            waiter = other.lock(key)
            waiter.waiting()
            server.terminate()
            waiter.failed("shutdown")
            assert holder.status() == grpc.StatusCode.UNAVAILABLE
            server.wait()
    finally:
        server.close()
