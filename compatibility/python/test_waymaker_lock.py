"""One key: attempts and the events of their streams (W1 to W6, W10, W13)."""

import time

import grpc
import pytest
from waymaker_pb2 import *

from timing import WATCHDOG_S, assert_shown_between, now_ms, short_leases, wait_until, within
from waymaker import Client


def test_a_free_key_is_granted_at_once_without_a_waiting_event(client, key):
    before_ms = now_ms()
    event = client.lock(key, max_lease_period=5000).next()
    assert event.event_type == Acquired
    assert event.success
    assert event.key == key
    assert event.id
    assert event.fence_token == 1
    assert event.waiting_expires_at == 0
    assert event.message == ""
    assert_shown_between(event.acquired_at, before_ms, now_ms())
    assert event.lease_expires_at - event.acquired_at == pytest.approx(5000, abs=50)


def test_an_attempt_for_a_held_key_queues_and_is_granted_after_the_release(client, other, key):
    hold = client.hold(key)
    before_ms = now_ms()
    attempt = other.lock(key, max_wait_period=600_000)
    waiting = attempt.waiting()
    after_ms = now_ms()
    assert waiting.success
    assert waiting.key == key
    assert waiting.id not in ("", hold.id)
    assert (waiting.lease_expires_at, waiting.acquired_at, waiting.fence_token) == (0, 0, 0)
    assert_shown_between(waiting.waiting_expires_at - 600_000, before_ms, after_ms)
    assert waiting.message == ""
    client.release(hold)
    acquired = attempt.acquired()
    assert acquired.id == waiting.id
    assert acquired.fence_token == hold.fence_token + 1
    assert acquired.waiting_expires_at == 0
    assert acquired.lease_expires_at > acquired.acquired_at > 0


def test_a_try_fails_at_once_and_never_waits(client, other, key):
    client.hold(key)
    failed = other.lock(key, max_wait_period=0).failed("timeout")
    assert not failed.success
    assert failed.key == key
    assert failed.id == ""
    assert (failed.lease_expires_at, failed.acquired_at, failed.waiting_expires_at) == (0, 0, 0)
    assert failed.fence_token == 0


def test_a_wait_ends_at_its_deadline(client, other, key):
    hold = client.hold(key)
    started, before_ms = time.monotonic(), now_ms()
    attempt = other.lock(key, max_wait_period=200)
    waiting = attempt.waiting()
    assert_shown_between(waiting.waiting_expires_at - 200, before_ms, now_ms())
    # A wait that lasts longer gets the key when this lease ends.
    client.extend(key, hold.id, 300)
    failed = attempt.failed("timeout")
    assert time.monotonic() - started >= 0.19
    assert not failed.success
    assert failed.id == waiting.id
    assert (failed.lease_expires_at, failed.acquired_at, failed.waiting_expires_at) == (0, 0, 0)


def test_an_expired_lease_is_reported_and_the_next_waiter_is_granted(client, other, key):
    first = client.hold(key)
    attempt = client.lock(key, max_lease_period=300)
    attempt.waiting()
    waiter = other.lock(key)
    waiter.waiting()
    started = time.monotonic()
    client.release(first)
    hold = attempt.acquired()
    expired = attempt.expired()
    assert time.monotonic() - started >= 0.29
    assert not expired.success
    assert (expired.id, expired.key) == (hold.id, key)
    assert expired.lease_expires_at == pytest.approx(hold.lease_expires_at, abs=5)
    assert expired.acquired_at == hold.acquired_at
    assert (expired.waiting_expires_at, expired.fence_token) == (0, 0)
    assert ": " in expired.message
    assert waiter.acquired().fence_token == hold.fence_token + 1


def test_a_waiter_that_disconnects_loses_its_queue_position(client, other, key):
    hold = client.hold(key)
    leaving = other.lock(key)
    left = leaving.waiting()
    staying = client.lock(key)
    staying.waiting()
    leaving.drop()
    assert leaving.status() == grpc.StatusCode.CANCELLED
    client.until_gone(key, left.id)
    client.release(hold)
    staying.acquired()


def test_a_waiter_whose_call_deadline_expires_loses_its_queue_position(client, other, key):
    client.hold(key)
    for deadline in short_leases(200):
        with deadline:
            deadline.begins()
            attempt = other.lock(key, timeout_s=deadline.ms / 1000)
            waiting = attempt.waiting()
            deadline.is_over()
            assert attempt.status() == grpc.StatusCode.DEADLINE_EXCEEDED
            client.until_gone(key, waiting.id)


@pytest.mark.parametrize("request_id", ["", "same"])
def test_a_retry_after_leaving_the_queue_starts_at_its_end(client, other, key, request_id):
    hold = client.hold(key)
    first = other.lock(key, request_id=request_id)
    left = first.waiting()
    second = client.lock(key)
    second.waiting()
    first.drop()
    client.until_gone(key, left.id)
    retry = other.lock(key, request_id=request_id)
    assert retry.waiting().id != left.id
    client.release(hold)
    client.release(second.acquired())
    retry.acquired()


def test_a_hold_survives_its_stream_and_is_found_by_its_request_id(server, client, key):
    with Client(server.grpc) as gone:
        attempt = gone.lock(key, request_id="r")
        hold = attempt.acquired()
        attempt.drop()
    assert client.lease(key, hold.id).lease.acquired
    assert not client.is_free(key)
    again = client.lock(key, request_id="r").acquired()
    assert (again.id, again.fence_token, again.acquired_at) == (hold.id, hold.fence_token, hold.acquired_at)
    assert again.lease_expires_at == pytest.approx(hold.lease_expires_at, abs=5)


def test_a_hold_without_a_stream_ends_when_its_lease_expires(client, other, key):
    first = client.hold(key)
    attempt = client.lock(key, max_lease_period=300)
    attempt.waiting()
    waiter = other.lock(key)
    waiter.waiting()
    started = time.monotonic()
    client.release(first)
    attempt.acquired()
    attempt.drop()
    waiter.acquired()
    assert time.monotonic() - started >= 0.29


def test_a_lease_is_not_longer_than_requested(client, other, key):
    started = time.monotonic()
    client.hold(key, max_lease_period=300)
    # The server ends leases and waits of one key in order, so this wait ends first if the lease is 1.5 times as long.
    other.lock(key, max_wait_period=450).granted()
    assert time.monotonic() - started >= 0.29


def test_a_release_ends_the_stream_without_an_event(client, other, key):
    attempt = client.lock(key)
    other.release(attempt.acquired())
    assert attempt.ended()


def test_heartbeats_arrive_every_third_of_the_lease_and_do_not_renew_it(client, other, key):
    for lease in short_leases(1200, count=4):
        with lease:
            name = f"{key}/{lease.ms}"
            started = time.monotonic()
            attempt = client.lock(name, max_lease_period=lease.ms)
            hold = attempt.acquired()
            # This wait ends first if a heartbeat renews the lease.
            waiter = other.lock(name, max_wait_period=lease.ms * 5 // 4)
            beats = []
            while (event := attempt.any()).event_type == Heartbeat:
                beats.append(event)
                assert time.monotonic() - started >= len(beats) * lease.ms / 3000 - 0.02
            assert event.event_type == Expired
            assert attempt.ended()
            for beat in beats:
                assert beat.success
                assert (beat.id, beat.key, beat.acquired_at) == (hold.id, name, hold.acquired_at)
                assert beat.lease_expires_at == pytest.approx(hold.lease_expires_at, abs=5)
                assert (beat.waiting_expires_at, beat.fence_token, beat.message) == (0, 0, "")
            waiter.granted()
            if len(beats) < 2:
                lease.give_up("the server stood still for a third of the lease, or sends no heartbeats")


def test_heartbeats_of_short_leases_are_a_quarter_of_a_second_apart(client, key):
    for lease in within(300):
        with lease:
            started = time.monotonic()
            attempt = client.lock(f"{key}/{lease.number}", max_lease_period=lease.ms)
            attempt.acquired()
            count = 0
            while (event := attempt.any()).event_type == Heartbeat:
                count += 1
                assert time.monotonic() - started >= count * 0.25 - 0.01
            assert event.event_type == Expired
            if count == 0:
                lease.give_up("the server stood still for 50 ms, or sends no heartbeats")


def test_a_heartbeat_after_an_extension_has_the_new_end(client, other, key):
    for lease in short_leases(900):
        with lease:
            name = f"{key}/{lease.ms}"
            lease.begins()
            attempt = client.lock(name, max_lease_period=lease.ms)
            hold = attempt.acquired()
            extended = other.extend(name, hold.id, 600_000).lease
            lease.is_over()
            # Heartbeats that the server sent before the extension contain the old end.
            while (beat := attempt.any()).lease_expires_at == hold.lease_expires_at:
                assert beat.event_type == Heartbeat
            assert beat.event_type == Heartbeat
            assert beat.lease_expires_at == pytest.approx(extended.lease_expires_at, abs=5)


def test_no_heartbeat_comes_while_an_attempt_waits(client, other, key):
    client.hold(key)
    attempt = other.lock(key, max_wait_period=700, max_lease_period=300)
    assert attempt.rest() == [Waiting, Failed]


def test_a_client_that_reads_late_still_receives_the_decisive_events(client, other, key):
    attempt = client.lock(key, max_lease_period=700)
    try_count = 0

    def has_ended():
        nonlocal try_count
        event = other.lock(key, max_wait_period=0).next()
        if event.event_type == Failed:
            return False
        other.release(event)
        try_count += 1
        # Each try that is granted raises the fence by one, and the attempt raises it by one more.
        return event.fence_token > try_count

    wait_until("the end of the lease", has_ended)
    assert [event for event in attempt.rest() if event not in (Waiting, Heartbeat)] == [Acquired, Expired]


def test_a_lease_of_zero_means_30_seconds(client, key):
    hold = client.hold(key, max_lease_period=0)
    assert hold.lease_expires_at - hold.acquired_at == pytest.approx(30_000, abs=50)


def test_a_lease_is_at_most_a_day(client, key):
    hold = client.hold(key, max_lease_period=2**32 - 1)
    assert hold.lease_expires_at - hold.acquired_at == pytest.approx(86_400_000, abs=50)


def test_a_lock_is_not_reentrant(client, key):
    same = {"requester_application": "app", "requester_info": "me"}
    client.hold(key, request_id="1", **same)
    client.lock(key, max_wait_period=0, **same).failed("timeout")
    client.lock(key, max_wait_period=0, request_id="2", **same).failed("timeout")


def test_a_read_lock_is_not_upgraded(client, key):
    client.read_lock(key).acquired()
    client.lock(key, max_wait_period=0).failed("timeout")


def test_scope_local_without_a_data_directory_is_refused_by_name(client, key):
    failed = client.lock(key, fence_scope=ScopeLocal).failed("BadInput")
    assert not failed.success
    assert failed.id == ""
    assert client.is_free(key)


@pytest.mark.parametrize("scope", [ScopeQuorum, 7])
def test_quorum_and_unknown_scopes_are_refused_on_one_node(client, key, scope):
    client.lock(key, fence_scope=scope).failed("BadInput")
    assert client.is_free(key)


@pytest.mark.parametrize("scope", [ScopeUnspecified, ScopeEphemeral])
def test_ephemeral_is_the_default_scope(client, key, scope):
    assert client.hold(key, fence_scope=scope).fence_token == 1


def test_unknown_fields_are_tolerated(client, key):
    request = LockRequest(key=key, max_wait_period=0).SerializeToString()
    unknown = b"\xa0\x06\x01" + b"\xaa\x06\x03abc"  # fields 100 and 101: a number, and bytes
    call = client.channel.unary_stream(
        "/waymaker.WaymakerService/Lock",
        request_serializer=bytes,
        response_deserializer=LockEvent.FromString,
    )
    assert next(call(request + unknown, timeout=WATCHDOG_S)).event_type == Acquired


def test_the_health_service_reports_serving(client):
    call = client.channel.unary_unary("/grpc.health.v1.Health/Check")
    assert call(b"", timeout=WATCHDOG_S) == b"\x08\x01"  # field 1: SERVING


def test_the_reflection_service_lists_the_services(client):
    call = client.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    (answer,) = call(iter([b"\x3a\x00"]), timeout=WATCHDOG_S)  # field 7: list the services
    assert b"waymaker.WaymakerService" in answer
    assert b"models.Locket" in answer


def test_calls_that_the_contract_does_not_have_are_unimplemented(client):
    call = client.channel.unary_unary("/waymaker.WaymakerService/Unlock")
    with pytest.raises(grpc.RpcError) as error:
        call(b"", timeout=WATCHDOG_S)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
