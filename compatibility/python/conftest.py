"""Fixtures of all tests: servers and clients. A server ends with the test or the file that started it."""

import itertools

import pytest

import waymaker
from server import Server

numbers = itertools.count()


def pytest_collection_modifyitems(items):
    """Starts with the slow tests, so that other tests run at the same time."""
    items.sort(key=lambda item: "slow" not in item.keywords)


@pytest.fixture(scope="module")
def server():
    """A server for all tests of a file, without a data directory."""
    running = Server()
    yield running
    running.close()


@pytest.fixture(scope="module")
def one_worker():
    """Like `server`, but with one worker, so that leases and waits end in the order of their deadlines."""
    running = Server("none", "--workers=1")
    yield running
    running.close()


@pytest.fixture
def durable_server(tmp_path):
    """A server for one test, with a data directory. The test may kill and restart it."""
    running = Server(tmp_path / "data", "--drain=200ms")
    yield running
    running.close()


@pytest.fixture
def client(server):
    """A client of `server` with a connection of its own."""
    with waymaker.Client(server.grpc) as connected:
        yield connected


@pytest.fixture
def other(server):
    """A second client like `client`."""
    with waymaker.Client(server.grpc) as connected:
        yield connected


@pytest.fixture
def one_worker_client(one_worker):
    """A client of `one_worker`."""
    with waymaker.Client(one_worker.grpc) as connected:
        yield connected


@pytest.fixture
def key(request):
    """A key that no other test uses. It is not a prefix of another such key."""
    return f"{request.node.originalname}-{next(numbers):06}"
