"""The Waymaker contract through the stubs that grpcio generates from it."""

import contextlib

import grpc
from waymaker_pb2 import *
from waymaker_pb2_grpc import WaymakerServiceStub

from timing import HOUR_MS, WATCHDOG_S, wait_until, watchdog

# A list of locks has no pages, so the client must accept messages of any length.
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
# Waits and leases that are longer than any test.
PERIODS = {"max_wait_period": HOUR_MS, "max_lease_period": HOUR_MS}


class Attempt:
    """The stream of one Lock or ReadLock, read event by event."""

    def __init__(self, call):
        self.call = call

    def next(self):
        """Returns the next event other than a heartbeat."""
        while True:
            event = self.any()
            if event.event_type != Heartbeat:
                return event

    def any(self):
        """Returns the next event."""
        with watchdog("an event of a stream", self.call.cancel):
            return next(self.call)

    def waiting(self):
        event = self.next()
        assert event.event_type == Waiting, event
        return event

    def acquired(self):
        event = self.next()
        assert event.event_type == Acquired, event
        return event

    def granted(self):
        """Returns the grant, possibly after a wait."""
        event = self.next()
        if event.event_type == Waiting:
            event = self.next()
        assert event.event_type == Acquired, event
        return event

    def failed(self, code):
        """Asserts that the last event is a failure with this code."""
        event = self.next()
        assert event.event_type == Failed, event
        assert event.message.startswith(f"{code}: "), event.message
        assert self.ended()
        return event

    def expired(self):
        """Asserts that the last event is the expiry of the lease."""
        event = self.next()
        assert event.event_type == Expired, event
        assert self.ended()
        return event

    def ended(self):
        """Returns whether only heartbeats and then status OK follow."""
        with contextlib.suppress(StopIteration):
            raise AssertionError(f"an event after the last: {self.next()}")
        return self.call.code() == grpc.StatusCode.OK

    def status(self):
        """Reads the stream to its end, and returns the status."""
        try:
            with watchdog("the end of a stream", self.call.cancel):
                for _ in self.call:
                    pass
        except grpc.RpcError as error:
            return error.code()
        return self.call.code()

    def rest(self):
        """Returns the types of all remaining events."""
        with watchdog("the end of a stream", self.call.cancel):
            return [event.event_type for event in self.call]

    def drop(self):
        """Cancels the call, like a client that disconnects."""
        self.call.cancel()


class Client:
    """One connection, with the calls of the contract. By default waits and leases are longer than the test."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address, options=OPTIONS)
        self.stub = WaymakerServiceStub(self.channel)
        # grpcio cancels a call without references. Keep one, so that a waiter stays if a test needs only its id.
        self.attempts = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def lock(self, key, timeout_s=None, **fields):
        return self.attempt(self.stub.Lock, key, timeout_s, fields)

    def read_lock(self, key, timeout_s=None, **fields):
        return self.attempt(self.stub.ReadLock, key, timeout_s, fields)

    def attempt(self, acquire, key, timeout_s, fields):
        request = LockRequest(key=key, **{**PERIODS, **fields})
        self.attempts.append(Attempt(acquire(request, timeout=timeout_s)))
        return self.attempts[-1]

    def hold(self, key, **fields):
        """Locks a free key, and returns the event with the id."""
        return self.lock(key, **fields).acquired()

    def multi_lock(self, keys, **fields):
        """Locks the keys. A key without (key, write_lock) is locked exclusively."""
        return self.stub.MultiLock(batch_of(keys, fields), timeout=WATCHDOG_S)

    def begin_multi_lock(self, keys, **fields):
        """Requests the keys without waiting for the response, which `answer` returns."""
        return self.stub.MultiLock.future(batch_of(keys, fields))

    def unlock(self, key, lock_id):
        return self.stub.UnLock(UnLockRequest(key=key, id=lock_id), timeout=WATCHDOG_S)

    def release(self, hold):
        """Releases the lock of an event or a lease."""
        response = self.unlock(hold.key, hold.id)
        assert (response.success, response.result_code) == (True, "ok"), response

    def extend(self, key, lock_id, lease_timeout):
        request = ExtendLeaseRequest(key=key, id=lock_id, lease_timeout=lease_timeout)
        return self.stub.ExtendLease(request, timeout=WATCHDOG_S)

    def lease(self, key, lock_id):
        request = LeaseStatusRequest(key=key, id=lock_id)
        return self.stub.LeaseStatus(request, timeout=WATCHDOG_S)

    def until_gone(self, key, lock_id):
        """Waits until no waiter and no holder has this id."""
        wait_until(f"the end of {lock_id}", lambda: not self.lease(key, lock_id).success)

    def held(self, key_prefix=""):
        """Returns the holds in the list for operators."""
        request = ListAcquiredLocksRequest(key_prefix=key_prefix)
        response = self.stub.ListAcquiredLocks(request, timeout=WATCHDOG_S)
        assert response.success
        return list(response.locks)

    def is_free(self, key):
        """Returns whether a try gets the key. Releases the key at once."""
        event = self.lock(key, max_wait_period=0).next()
        if event.event_type == Acquired:
            self.release(event)
        return event.event_type == Acquired


def answer(call):
    """Returns the response of an earlier call."""
    with watchdog("the answer of a call", call.cancel):
        return call.result()


def batch_of(keys, fields):
    """Returns the request of a batch. A key without (key, write_lock) is locked exclusively."""
    pairs = [(key, True) if isinstance(key, str) else key for key in keys]
    items = [MultiLockKey(key=key, write_lock=write_lock) for key, write_lock in pairs]
    return MultiLockRequest(keys=items, **{**PERIODS, **fields})
