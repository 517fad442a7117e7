"""HTTP responses of Locktopus: upgrades, errors and statistics."""

import json

import pytest
from websockets.exceptions import ConnectionClosed

from locktopus import Connection, get
from server import Server

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
NAMESPACE_REQUIRED = "URL parameter 'namespace' is required"
TIMEOUT_INVALID = (
    "URL parameter 'abandon-timeout-ms' should be integer value >= 0 "
    "representing broken connection timeout (in milliseconds)"
)
MEMBERS = {
    "LastGroupID",
    "GroupsPending",
    "GroupsAcquired",
    "LocksPending",
    "LocksAcquired",
    "LockrefCount",
    "TokensTotal",
    "TokensUnique",
    "PathCount",
}


@pytest.fixture(scope="module")
def open_server():
    """A server for web pages of every origin, like the original."""
    running = Server("none", "--http-origins=*")
    yield running
    running.close()


@pytest.mark.parametrize("target", ["/v1", "/v1?", "/v1?namespace=", "/v1?Namespace=x", "/v1?abandon-timeout-ms=x"])
@pytest.mark.parametrize("headers", [{}, UPGRADE], ids=["plain", "upgrade"])
def test_a_namespace_is_required(server, target, headers):
    status, _, text = get(server.http, target, headers=headers)
    assert (status, text.rstrip("\n")) == (400, NAMESPACE_REQUIRED)


@pytest.mark.parametrize("value", ["", "-1", "1.5", "1s", "x", "0x10", "99999999999999999999999"])
def test_the_abandon_timeout_is_a_number(server, value):
    status, _, text = get(server.http, f"/v1?namespace=n&abandon-timeout-ms={value}", headers=UPGRADE)
    assert (status, text.rstrip("\n")) == (400, TIMEOUT_INVALID)


QUERIES = ["namespace=n", "other=1&namespace=n", "abandon-timeout-ms=0&namespace=n", "namespace=a%20b"]


@pytest.mark.parametrize("query", QUERIES)
def test_an_upgrade_is_granted_without_extensions_or_subprotocol(open_server, query):
    offers = {"Sec-WebSocket-Extensions": "permessage-deflate", "Sec-WebSocket-Protocol": "chat", "Origin": "http://x"}
    status, headers, _ = get(open_server.http, f"/v1?{query}", headers={**UPGRADE, **offers})
    assert status == 101
    assert headers["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert "Sec-WebSocket-Extensions" not in headers
    assert "Sec-WebSocket-Protocol" not in headers


@pytest.mark.parametrize("missing", sorted(UPGRADE))
def test_a_bad_upgrade_is_a_bad_request(server, missing):
    headers = {name: value for name, value in UPGRADE.items() if name != missing}
    status, answered, _ = get(server.http, "/v1?namespace=n", headers=headers)
    assert status == 400
    assert answered["Sec-WebSocket-Version"] == "13"


def test_another_version_is_a_bad_request(server):
    status, answered, _ = get(server.http, "/v1?namespace=n", headers={**UPGRADE, "Sec-WebSocket-Version": "8"})
    assert status == 400
    assert answered["Sec-WebSocket-Version"] == "13"


def test_only_get_upgrades(server):
    status, _, _ = get(server.http, "/v1?namespace=n", method="POST", headers=UPGRADE)
    assert status == 405


@pytest.mark.parametrize("target", ["/v1/", "/v1/x", "/v2", "/stats_v1/", "/nothing"])
def test_other_paths_are_not_found(server, target):
    assert get(server.http, target)[0] == 404


@pytest.mark.parametrize("path", ["/stats_v1", "/stats"])
def test_statistics_need_a_namespace_that_was_connected_to(server, key, path):
    status, _, text = get(server.http, f"{path}?namespace={key}")
    assert (status, text.rstrip("\n")) == (404, "Namespace not found")
    status, _, text = get(server.http, path)
    assert (status, text.rstrip("\n")) == (400, NAMESPACE_REQUIRED)


@pytest.mark.parametrize("path", ["/stats_v1", "/stats"])
def test_statistics_of_a_namespace(server, key, path):
    def statistics():
        status, headers, text = get(server.http, f"{path}?namespace={key}")
        assert (status, headers.get_content_type()) == (200, "application/json")
        found = json.loads(text)
        assert set(found) == MEMBERS
        assert all(type(value) is int for value in found.values())
        return found

    with Connection(server.http, key) as one, Connection(server.http, key) as two:
        assert statistics()["LastGroupID"] == 0
        one.lock("W a", "R b")
        two.enqueue("R a/x")
        found = statistics()
        assert found["LastGroupID"] == 2
        assert (found["GroupsAcquired"], found["GroupsPending"]) == (1, 1)
        assert (found["LocksAcquired"], found["LocksPending"]) == (2, 1)
        one.release()
        two.acquire()
        two.release()
        found = statistics()
        assert found["LastGroupID"] == 2
        assert [found[name] for name in MEMBERS if name.startswith(("Groups", "Locks"))] == [0] * 4
    assert statistics()["LastGroupID"] == 2


def test_redundant_resources_are_counted_once(server, key):
    with Connection(server.http, key) as one:
        one.lock("W a", "R a/b", "W a/c", "W a")
        _, _, text = get(server.http, f"/stats_v1?namespace={key}")
        assert json.loads(text)["LocksAcquired"] == 1


def test_a_page_of_any_origin_may_read_the_statistics_if_all_are_allowed(open_server, key):
    with Connection(open_server.http, key):
        _, headers, _ = get(open_server.http, f"/stats_v1?namespace={key}", headers={"Origin": "http://example.test"})
    assert headers["Access-Control-Allow-Origin"] == "*"


PREFLIGHTS = [
    ({}, 400),
    ({"Access-Control-Request-Method": "GET"}, 200),
    ({"Access-Control-Request-Method": "POST"}, 200),
    ({"Access-Control-Request-Method": "PUT"}, 405),
    ({"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "X-Custom"}, 403),
]


@pytest.mark.parametrize("headers,status", PREFLIGHTS)
def test_preflights(open_server, headers, status):
    origin = {"Origin": "http://example.test"}
    assert get(open_server.http, "/v1", method="OPTIONS", headers={**origin, **headers})[0] == status


def test_a_page_of_another_origin_is_refused_by_default(server):
    status, headers, text = get(server.http, "/v1", headers={"Origin": "http://example.test"})
    assert status == 403 and "--http-origins" in text
    assert "Access-Control-Allow-Origin" not in headers


def test_locktopus_may_have_a_port_of_its_own(key):
    server = Server("none", "--locktopus-listen=127.0.0.1:0")
    try:
        address = server.addresses["locktopus"]
        with Connection(address, key) as one, Connection(server.http, key) as two:
            one.lock("W a")
            two.enqueue("W a")
            assert get(address, f"/stats_v1?namespace={key}")[0] == 200
            status, headers, text = get(address, "/")
            assert (status, headers.get_content_type()) == (200, "text/plain")
            assert key in text
            assert get(address, "/metrics")[0] == 404
    finally:
        server.close()


def test_a_stopping_server_closes_with_code_1001():
    server = Server("none", "--drain=1h")
    try:
        with Connection(server.http, "n") as one, Connection(server.http, "n") as two:
            one.lock("W a")
            server.terminate()
            assert lock_until_closed(two) == 1001
            one.release()
            server.wait()
    finally:
        server.close()


def lock_until_closed(connection):
    """Locks and releases until the server closes the connection, and returns the close code."""
    try:
        while True:
            connection.lock("W b")
            connection.release()
    except ConnectionClosed as closed:
        return closed.rcvd.code
