"""The Waymaker contract through the stubs that grpcio generates from it."""

import contextlib

import grpc
from waymaker_pb2 import *
from waymaker_pb2_grpc import WaymakerServiceStub

from timing import HOUR_MS, WATCHDOG_S, wait_until, watchdog

# A list of locks has no pages: the client says how long it may be.
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
# Waits and leases that no test outlives.
PERIODS = {"max_wait_period": HOUR_MS, "max_lease_period": HOUR_MS}


class Attempt:
    """The stream of one Lock or ReadLock, read event by event."""

    def __init__(self, call):
        self.call = call

    def next(self):
        """The next event that is no heartbeat."""
        while True:
            event = self.any()
            if event.event_type != Heartbeat:
                return event

    def any(self):
        """The next event."""
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
        """The grant of an attempt that may have had to wait."""
        event = self.next()
        if event.event_type == Waiting:
            event = self.next()
        assert event.event_type == Acquired, event
        return event

    def failed(self, code):
        """The last event: the attempt failed for this reason."""
        event = self.next()
        assert event.event_type == Failed, event
        assert event.message.startswith(f"{code}: "), event.message
        assert self.ended()
        return event

    def expired(self):
        """The last event: the lease ended."""
        event = self.next()
        assert event.event_type == Expired, event
        assert self.ended()
        return event

    def ended(self):
        """True if the stream ends here, as it should: nothing but heartbeats before, status OK."""
        with contextlib.suppress(StopIteration):
            raise AssertionError(f"an event after the last: {self.next()}")
        return self.call.code() == grpc.StatusCode.OK

    def status(self):
        """Reads to the end, and tells with which status that was."""
        try:
            with watchdog("the end of a stream", self.call.cancel):
                for _ in self.call:
                    pass
        except grpc.RpcError as error:
            return error.code()
        return self.call.code()

    def rest(self):
        """The types of all events to the end."""
        with watchdog("the end of a stream", self.call.cancel):
            return [event.event_type for event in self.call]

    def drop(self):
        """Leaves, as a client does that is gone."""
        self.call.cancel()


class Client:
    """One connection, and the calls of the contract. Waits and leases outlive the test unless a call says otherwise."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address, options=OPTIONS)
        self.stub = WaymakerServiceStub(self.channel)
        # grpcio cancels a call that nobody refers to, and a waiter must not leave because a test only needs its id.
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
        """Locks a key that is free; the event tells under which id."""
        return self.lock(key, **fields).acquired()

    def multi_lock(self, keys, **fields):
        """Locks the keys, each exclusively unless it says otherwise as (key, write_lock)."""
        return self.stub.MultiLock(batch_of(keys, fields), timeout=WATCHDOG_S)

    def begin_multi_lock(self, keys, **fields):
        """Asks for the keys and does not wait for the answer, which `answer` returns."""
        return self.stub.MultiLock.future(batch_of(keys, fields))

    def unlock(self, key, lock_id):
        return self.stub.UnLock(UnLockRequest(key=key, id=lock_id), timeout=WATCHDOG_S)

    def release(self, hold):
        """Releases what an event, or a lease, says is held."""
        response = self.unlock(hold.key, hold.id)
        assert (response.success, response.result_code) == (True, "ok"), response

    def extend(self, key, lock_id, lease_timeout):
        request = ExtendLeaseRequest(key=key, id=lock_id, lease_timeout=lease_timeout)
        return self.stub.ExtendLease(request, timeout=WATCHDOG_S)

    def lease(self, key, lock_id):
        request = LeaseStatusRequest(key=key, id=lock_id)
        return self.stub.LeaseStatus(request, timeout=WATCHDOG_S)

    def until_gone(self, key, lock_id):
        """Returns once no waiter and no holder has this id."""
        wait_until(f"the end of {lock_id}", lambda: not self.lease(key, lock_id).success)

    def held(self, key_prefix=""):
        """What is held, as the operators' list has it."""
        request = ListAcquiredLocksRequest(key_prefix=key_prefix)
        response = self.stub.ListAcquiredLocks(request, timeout=WATCHDOG_S)
        assert response.success
        return list(response.locks)

    def is_free(self, key):
        """Whether a try gets the key; it is given back at once."""
        event = self.lock(key, max_wait_period=0).next()
        if event.event_type == Acquired:
            self.release(event)
        return event.event_type == Acquired


def answer(call):
    """The answer of a call that was begun before."""
    with watchdog("the answer of a call", call.cancel):
        return call.result()


def batch_of(keys, fields):
    """The request of a batch. A key without (key, write_lock) is locked exclusively."""
    pairs = [(key, True) if isinstance(key, str) else key for key in keys]
    items = [MultiLockKey(key=key, write_lock=write_lock) for key, write_lock in pairs]
    return MultiLockRequest(keys=items, **{**PERIODS, **fields})
