"""What all tests share: servers that end with the test or the file that started them."""

import itertools

import pytest

import waymaker
from server import Server

numbers = itertools.count()


def pytest_collection_modifyitems(items):
    """Begins with the tests that take long, so that others pass beside them."""
    items.sort(key=lambda item: "slow" not in item.keywords)


@pytest.fixture(scope="module")
def server():
    """A server of the file's own, without a data directory."""
    running = Server()
    yield running
    running.close()


@pytest.fixture(scope="module")
def one_worker():
    """A server like `server` with one worker, which ends everything in the order of the deadlines."""
    running = Server("none", "--workers=1")
    yield running
    running.close()


@pytest.fixture
def durable_server(tmp_path):
    """A server of the test's own, with a data directory, that may be killed and started again."""
    running = Server(tmp_path / "data", "--drain=200ms")
    yield running
    running.close()


@pytest.fixture
def client(server):
    """A client of the file's server over a connection of its own."""
    with waymaker.Client(server.grpc) as connected:
        yield connected


@pytest.fixture
def other(server):
    """A second such client."""
    with waymaker.Client(server.grpc) as connected:
        yield connected


@pytest.fixture
def one_worker_client(one_worker):
    """A client of the server with one worker."""
    with waymaker.Client(one_worker.grpc) as connected:
        yield connected


@pytest.fixture
def key(request):
    """A key that no other test uses, and that is no prefix of another's."""
    return f"{request.node.originalname}-{next(numbers):06}"
