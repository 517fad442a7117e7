"""The Locktopus protocol, frame by frame."""

import contextlib
import http.client
import json

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from timing import WATCHDOG_S


class Connection:
    """One WebSocket to a namespace."""

    def __init__(self, address, namespace, abandon_timeout_ms=None):
        query = f"namespace={namespace}"
        if abandon_timeout_ms is not None:
            query += f"&abandon-timeout-ms={abandon_timeout_ms}"
        options = {"open_timeout": WATCHDOG_S, "close_timeout": WATCHDOG_S, "ping_interval": None, "proxy": None}
        self.stack = contextlib.ExitStack()
        self.socket = self.stack.enter_context(connect(f"ws://{address}/v1?{query}", **options))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    def send(self, message):
        """Sends a frame: text unchanged, any other value as JSON."""
        self.socket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))

    def receive(self):
        """Returns the next message as (action, state) and its id."""
        text = self.receive_text()
        assert isinstance(text, str) and text.endswith("\n"), text
        message = json.loads(text)
        assert set(message) == {"id", "action", "state"}, message
        assert isinstance(message["id"], str)
        return (message["action"], message["state"]), message["id"]

    def receive_text(self):
        """Returns the text of the next message."""
        return self.socket.recv(WATCHDOG_S)

    def answers_ping(self):
        """Returns whether the server answers a ping. All earlier messages of the server have then arrived."""
        return self.socket.ping(b"payload").wait(WATCHDOG_S)

    def is_silent(self):
        """Returns whether the server sends no message before it answers a ping."""
        assert self.answers_ping()
        try:
            self.socket.recv(0)
        except TimeoutError:
            return True
        return False

    def ask(self, *items):
        """Requests items such as "R a/b" or "W" (the whole namespace), and returns the response."""
        self.send({"action": "lock", "resources": [resource(item) for item in items]})
        return self.receive()

    def lock(self, *items):
        """Locks items that are free, and returns the id."""
        answer, lock_id = self.ask(*items)
        assert answer == ("lock", "acquired")
        return lock_id

    def enqueue(self, *items):
        """Requests items that are not free, and returns the id."""
        answer, lock_id = self.ask(*items)
        assert answer == ("lock", "enqueued")
        return lock_id

    def acquire(self):
        """Waits until an enqueued lock is acquired, and returns the id."""
        answer, lock_id = self.receive()
        assert answer == ("lock", "acquired")
        return lock_id

    def release(self):
        self.send({"action": "release"})
        answer, lock_id = self.receive()
        assert answer == ("release", "ready")
        return lock_id

    def failed(self):
        """Returns the error that the server reports. After the error the server may only close the connection."""
        text = self.receive_text()
        start = "communication error: "
        assert text.startswith(start), text
        assert self.closed() == (3000, "")
        return text.removeprefix(start).rstrip("\n")

    def closed(self):
        """Returns the code and the reason of the close frame, which must be the next frame of the server."""
        try:
            raise AssertionError(f"a frame before the close: {self.receive_text()}")
        except ConnectionClosed as closed:
            return closed.rcvd.code, closed.rcvd.reason


def resource(item):
    """Parses an item: "R a/b" reads the path of a and b, "W" writes the whole namespace, "W /" one empty segment."""
    kind, _, path = item.partition(" ")
    segments = [""] if path == "/" else path.split("/") if path else []
    return {"type": {"R": "read", "W": "write"}[kind], "path": segments}


def get(address, target, method="GET", headers=None):
    """Returns status, headers and text of an HTTP response."""
    connection = http.client.HTTPConnection(address, timeout=WATCHDOG_S)
    try:
        connection.request(method, target, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def statistics(address, namespace):
    """Returns the statistics of a namespace."""
    status, _, text = get(address, f"/stats_v1?namespace={namespace}")
    assert status == 200, text
    return json.loads(text)
