"""Waits and time limits that do not depend on how fast a test runs."""

import contextlib
import itertools
import threading
import time

import pytest

# Time after which an expected event counts as missing. No other verdict depends on it.
WATCHDOG_S = 60
# A lease, wait or timeout that is longer than any test.
HOUR_MS = 3_600_000
# The server shows the time of day within 100 ms of the machine's clock. A thread of the server that
# is not scheduled may show the time of its last clock reading.
SHOWN_WITHIN_MS = 500

ATTEMPTS_MAX = 8
POLL_S = 0.01

numbers = itertools.count()


@contextlib.contextmanager
def watchdog(what, give_up):
    """Fails if the body takes longer than the watchdog. `give_up` must then unblock the body."""
    done = threading.Event()
    missing = threading.Event()

    def watch():
        # After a stop of the whole process the first wait ends at once. During the second the body can see its event.
        if not done.wait(WATCHDOG_S) and not done.wait(1):
            missing.set()
            give_up()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except Exception as error:
        if missing.is_set():
            raise AssertionError(f"missing after {WATCHDOG_S} s: {what}") from error
        raise
    finally:
        done.set()


def wait_until(what, is_so):
    """Polls `is_so` until it returns true. The last poll is after the end of the watchdog."""
    until = time.monotonic() + WATCHDOG_S
    while True:
        is_last = time.monotonic() >= until
        if is_so():
            return
        assert not is_last, f"missing after {WATCHDOG_S} s: {what}"
        time.sleep(POLL_S)


def now_ms():
    """The time of day in milliseconds, as the server shows it."""
    return time.time() * 1000


def assert_shown_between(shown_ms, before_ms, after_ms):
    """Asserts that an instant that the server shows lies between two instants of the client's clock."""
    assert before_ms - SHOWN_WITHIN_MS <= shown_ms <= after_ms + SHOWN_WITHIN_MS, (before_ms, shown_ms, after_ms)


class Witness:
    """A hold that shows how much time has passed on the clock of the server.

    A server with one worker ends everything in the order of the deadlines. If an event is missing when the witness
    has ended, the server was late by its own clock; a slow test does not matter. Begin the witness after the limit
    under test.
    """

    def __init__(self, client, length_ms):
        self.client = client
        self.length_ms = length_ms
        self.hold = client.hold(f"witness-{next(numbers):06}", max_lease_period=length_ms)

    def assert_before_end(self, what, has_happened):
        """Waits until `has_happened` returns true, and asserts that this is before the witness ends.

        `has_happened` asks the server, because a message that the server sent may arrive late.
        """
        while True:
            is_over = not self.client.lease(self.hold.key, self.hold.id).success
            if has_happened():
                return
            assert not is_over, f"{what}: not within {self.length_ms} ms of the server's time"
            time.sleep(POLL_S)


class GivenUp(Exception):
    """Raised if an attempt was too slow to judge the server."""


class Limit:
    """A time limit of the server, such as a lease, for the steps of one attempt of a test."""

    def __init__(self, number, ms):
        self.number = number
        self.ms = ms
        self.sent_s = None
        self.was_missed = False
        self.has_passed = False

    def begins(self):
        """Starts the limit. Call this before the request that starts it in the server."""
        self.sent_s = time.monotonic()

    def is_over(self):
        """Ends the limit. Call this after the last step that has to be in time."""
        if self.sent_s is not None and (time.monotonic() - self.sent_s) * 1000 >= self.ms:
            self.was_missed = True
        self.sent_s = None

    def give_up(self, reason):
        """Ends the attempt because something other than the server may be at fault."""
        raise GivenUp(reason)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        self.is_over()
        self.has_passed = kind is None
        if isinstance(error, GivenUp):
            print(f"{error}: the test runs again")
            return True
        if self.was_missed and isinstance(error, (Exception, pytest.fail.Exception)):
            print(f"the steps of this test took longer than {self.ms} ms: it runs again")
            return True
        return False


def within(limit_ms):
    """Yields attempts of a test whose steps have to finish within a fixed limit.

        for limit in within(5000):
            with limit:
                limit.begins()
                ...

    If an attempt fails although its steps were in time, the test fails. If the steps took longer than the limit, the
    failure does not show a fault of the server, and another attempt follows.
    """
    return attempts([limit_ms] * ATTEMPTS_MAX)


def short_leases(lease_ms, count=ATTEMPTS_MAX):
    """Yields attempts like `within`, each with twice the lease of the attempt before."""
    return attempts([lease_ms << number for number in range(count)])


def attempts(lengths_ms):
    for number, length_ms in enumerate(lengths_ms):
        limit = Limit(number, length_ms)
        yield limit
        if limit.has_passed:
            return
    raise AssertionError(f"no attempt could show that the server is right: {lengths_ms} ms")
