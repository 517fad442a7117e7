"""The Locktopus protocol, frame by frame."""

import contextlib
import http.client
import json

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

LIMIT_S = 10


class Connection:
    """One WebSocket to a namespace."""

    def __init__(self, address, namespace, abandon_timeout_ms=None):
        query = f"namespace={namespace}"
        if abandon_timeout_ms is not None:
            query += f"&abandon-timeout-ms={abandon_timeout_ms}"
        options = {"open_timeout": LIMIT_S, "close_timeout": 1, "ping_interval": None, "proxy": None}
        self.stack = contextlib.ExitStack()
        self.socket = self.stack.enter_context(connect(f"ws://{address}/v1?{query}", **options))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    def send(self, message):
        """Sends a frame: text as it is, anything else as JSON."""
        self.socket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))

    def receive(self, limit_s=LIMIT_S):
        """The next message, as (action, state) and its id."""
        text = self.socket.recv(limit_s)
        assert isinstance(text, str) and text.endswith("\n"), text
        message = json.loads(text)
        assert set(message) == {"id", "action", "state"}, message
        assert isinstance(message["id"], str)
        return (message["action"], message["state"]), message["id"]

    def is_silent(self, limit_s=0.15):
        """Whether nothing comes for a while."""
        try:
            self.socket.recv(limit_s)
        except TimeoutError:
            return True
        return False

    def ask(self, *items):
        """Asks to lock items such as "R a/b" or "W" (the whole namespace), and tells what is answered."""
        self.send({"action": "lock", "resources": [resource(item) for item in items]})
        return self.receive()

    def lock(self, *items):
        """Locks items that are free, and returns the id."""
        answer, lock_id = self.ask(*items)
        assert answer == ("lock", "acquired")
        return lock_id

    def enqueue(self, *items):
        """Asks for items that are not free, and returns the id."""
        answer, lock_id = self.ask(*items)
        assert answer == ("lock", "enqueued")
        return lock_id

    def acquire(self, limit_s=LIMIT_S):
        """Waits until what was enqueued is acquired, and returns the id."""
        answer, lock_id = self.receive(limit_s)
        assert answer == ("lock", "acquired")
        return lock_id

    def release(self):
        self.send({"action": "release"})
        answer, lock_id = self.receive()
        assert answer == ("release", "ready")
        return lock_id

    def failed(self):
        """What the server said was wrong before it closed, which is all it does after that."""
        text = self.socket.recv(LIMIT_S)
        start = "communication error: "
        assert text.startswith(start), text
        assert self.closed() == (3000, "")
        return text.removeprefix(start).rstrip("\n")

    def closed(self):
        """The code and the reason of the server's close frame, which is next."""
        try:
            raise AssertionError(f"a frame before the close: {self.socket.recv(LIMIT_S)}")
        except ConnectionClosed as closed:
            return closed.rcvd.code, closed.rcvd.reason


def resource(item):
    """ "R a/b" is the path of a and b to be read; "W" alone is the whole namespace; "W /" is one empty segment."""
    kind, _, path = item.partition(" ")
    segments = [""] if path == "/" else path.split("/") if path else []
    return {"type": {"R": "read", "W": "write"}[kind], "path": segments}


def get(address, target, method="GET", headers=None):
    """Status, headers and text of an HTTP answer."""
    connection = http.client.HTTPConnection(address, timeout=LIMIT_S)
    try:
        connection.request(method, target, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()
