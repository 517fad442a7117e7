"""Locks over DynamoDB, with boto3: the cases of Clever's own tests, two processes that share a lock, restarts, and wrong requests."""

import multiprocessing
import time
from datetime import datetime, timedelta

import pytest

import dynamodb
from dynamodb import Locker, connect, create_table, error_of
from server import Server

MINUTES = timedelta(minutes=1)
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEYS = f"""
region = "eu-west-1"
[[key]]
access_key_id = "WAYMAKERBILLING1"
secret_access_key = "{SECRET}"
identity = "billing"
"""


@pytest.fixture(scope="module")
def address():
    """The address of a server for all tests of the file, without a data directory."""
    running = Server("none", "--dynamodb-listen=127.0.0.1:0")
    yield running.addresses["dynamodb"]
    running.close()


@pytest.fixture
def client(address):
    return connect(address)


@pytest.fixture
def table(client, key):
    """A table that no other test uses."""
    create_table(client, key)
    return key


@pytest.fixture
def owner1(client, table):
    return Locker(client, table, "owner1")


@pytest.fixture
def owner2(client, table):
    return Locker(client, table, "owner2")


def instant(text):
    return datetime.fromisoformat(text)


def test_a_free_lock_is_acquired_and_released(owner1, owner2):
    assert owner1.acquire("k")
    assert owner1.release("k")
    assert owner1.release("k"), "a lock that nobody has can be released"
    assert owner2.acquire("k")


def test_another_owner_takes_over_after_the_lease(owner1, owner2):
    assert owner1.acquire("k", -5 * MINUTES)
    assert owner2.acquire("k")
    assert not owner1.heartbeat("k")


def test_another_owner_does_not_take_over_within_the_grace(owner1, owner2):
    assert owner1.acquire("k", timedelta(0))
    assert not owner2.acquire("k")
    assert not owner2.release("k")
    assert owner1.acquire("k", timedelta(seconds=-6))
    assert owner2.acquire("k")


def test_an_owner_acquires_again(owner1):
    assert owner1.acquire("k")
    assert owner1.acquire("k", 2 * MINUTES)
    assert instant(owner1.current("k")["leasedUntil"]) < dynamodb.now() + 3 * MINUTES


def test_a_lock_of_another_owner_is_not_acquired_or_released(owner1, owner2):
    assert owner1.acquire("k")
    assert not owner2.acquire("k")
    assert not owner2.release("k")
    assert owner1.current("k")["owner"] == "owner1"


def test_a_heartbeat_extends_a_lease_even_after_its_end(owner1):
    assert not owner1.heartbeat("k"), "there is nothing to keep"
    assert owner1.acquire("k")
    assert owner1.heartbeat("k", 10 * MINUTES)
    row = owner1.current("k")
    assert instant(row["leasedUntil"]) > dynamodb.now() + 9 * MINUTES
    assert instant(row["ttl"]) - instant(row["leasedUntil"]) == dynamodb.FORGET
    assert owner1.acquire("k", -5 * MINUTES)
    assert owner1.heartbeat("k")


def test_a_heartbeat_fails_once_another_owner_had_the_lock(owner1, owner2):
    assert owner1.acquire("k", -5 * MINUTES)
    assert owner2.acquire("k")
    assert not owner1.heartbeat("k")
    assert owner2.release("k")
    assert not owner1.heartbeat("k")


def test_a_late_lock_of_another_owner_is_released(owner1, owner2):
    assert owner1.acquire("k", -5 * MINUTES)
    assert owner2.release("k")
    assert owner1.current("k") is None


def test_a_row_comes_back_as_it_was_written(client, table):
    locker = Locker(client, table, "owner1")
    row = locker.row("k", 5 * MINUTES)
    row["leasedUntil"] = {"S": (dynamodb.now() + 5 * MINUTES).isoformat(timespec="microseconds")}
    row |= {"version": {"N": "7"}, "raw": {"B": b"\x00\xff"}, "tags": {"SS": ["a", "b"]}, "list": {"L": [{"BOOL": True}, {"NULL": True}]}}
    client.put_item(TableName=table, Item=row, **locker._take())
    assert client.get_item(TableName=table, Key={"key": {"S": "k"}})["Item"] == row


def hold_in_turn(address, table, owner, counter, most):
    """Acquires and releases a lock many times. Counts how often, and how many processes had the lock at once."""
    locker = Locker(connect(address), table, owner)
    done = 0
    while done < 50:
        if not locker.acquire("k"):
            time.sleep(0.001)
            continue
        with counter.get_lock():
            counter.value += 1
            most.value = max(most.value, counter.value)
        assert locker.current("k")["owner"] == owner
        with counter.get_lock():
            counter.value -= 1
        assert locker.release("k")
        done += 1


def test_two_processes_have_a_lock_in_turn(address, table):
    context = multiprocessing.get_context("spawn")
    counter, most = context.Value("i"), context.Value("i")
    owners = [context.Process(target=hold_in_turn, args=(address, table, f"owner{number}", counter, most)) for number in (1, 2)]
    for process in owners:
        process.start()
    for process in owners:
        process.join()
    assert [process.exitcode for process in owners] == [0, 0]
    assert most.value == 1


def test_tables_are_created_listed_and_deleted(client, key):
    names = [f"{key}-{number}" for number in range(3)]
    for name in names:
        assert create_table(client, name)["TableDescription"]["TableStatus"] == "ACTIVE"
    assert error_of(create_table, client, names[0]) == "ResourceInUseException"
    client.get_waiter("table_exists").wait(TableName=names[0])
    listed = [name for page in client.get_paginator("list_tables").paginate(PaginationConfig={"PageSize": 2}) for name in page["TableNames"]]
    assert [name for name in listed if name in names] == names
    assert listed == sorted(set(listed))
    assert Locker(client, names[0], "owner1").acquire("k")
    client.delete_table(TableName=names[0])
    client.get_waiter("table_not_exists").wait(TableName=names[0])
    assert error_of(client.delete_table, TableName=names[0]) == "ResourceNotFoundException"
    assert error_of(Locker(client, names[0], "owner1").acquire, "k") == "ResourceNotFoundException"
    create_table(client, names[0])
    assert Locker(client, names[0], "owner2").acquire("k"), "the locks of a deleted table are gone"


def test_other_operations_and_writes_are_refused(client, table):
    row = Locker(client, table, "owner1").row("k", MINUTES)
    assert error_of(client.scan, TableName=table) == "UnknownOperationException"
    assert error_of(client.update_item, TableName=table, Key={"key": {"S": "k"}}) == "UnknownOperationException"
    assert error_of(client.put_item, TableName=table, Item=row) == "ValidationException"
    assert error_of(client.delete_item, TableName=table, Key={"key": {"S": "k"}}) == "ValidationException"
    only_new = {"ConditionExpression": "attribute_not_exists(#k)", "ExpressionAttributeNames": {"#k": "key"}}
    assert error_of(client.put_item, TableName=table, Item=row, **only_new) == "ValidationException"
    for wrong in ({"key": {"S": ""}}, {"owner": {"S": ""}}, {"key": {"N": "1"}}, {"leasedUntil": {"S": "soon"}}, {"x": {"S": "x" * 5000}}):
        assert error_of(client.put_item, TableName=table, Item=row | wrong, **Locker(client, table, "owner1")._take()) == "ValidationException"
    assert Locker(client, table, "owner1").current("k") is None


def test_locks_and_tables_survive_a_crash(tmp_path):
    server = Server(tmp_path / "data", "--dynamodb-listen=127.0.0.1:0")
    create_table(connect(server.addresses["dynamodb"]), "jobs")
    locker = Locker(connect(server.addresses["dynamodb"]), "jobs", "owner1")
    assert locker.acquire("k")
    row = locker.current("k")
    server.kill()
    server.start()
    client = connect(server.addresses["dynamodb"])
    assert Locker(client, "jobs", "owner2").current("k") == row
    assert not Locker(client, "jobs", "owner2").acquire("k")
    assert Locker(client, "jobs", "owner1").heartbeat("k")
    server.close()


def test_requests_are_signed_with_a_key_of_the_server(tmp_path):
    (tmp_path / "keys.toml").write_text(KEYS)
    server = Server("none", "--dynamodb-listen=127.0.0.1:0", f"--dynamodb-keys={tmp_path / 'keys.toml'}")
    address = server.addresses["dynamodb"]
    right = {"aws_access_key_id": "WAYMAKERBILLING1", "aws_secret_access_key": SECRET}
    client = connect(address, "eu-west-1", right)
    create_table(client, "jobs")
    assert Locker(client, "jobs", "größe").acquire("ключ")
    wrong = [
        (connect(address, "eu-west-1", right | {"aws_secret_access_key": "another secret"}), "InvalidSignatureException"),
        (connect(address, "us-west-1", right), "InvalidSignatureException"),
        (connect(address, "eu-west-1"), "UnrecognizedClientException"),
    ]
    for other, code in wrong:
        assert error_of(other.list_tables) == code
    assert client.list_tables()["TableNames"] == ["jobs"]
    server.close()
