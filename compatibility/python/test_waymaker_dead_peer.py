"""A peer that is gone without a word (W3)."""

import contextlib
import socket
import threading
import time

from waymaker import Client

# The server asks every ten seconds, and waits as long for an answer.
NOTICED_S = 25


class Relay:
    """Passes bytes on between a client and the server until it falls silent, with both connections open."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.server = (host, int(port))
        self.silent = threading.Event()
        self.sockets = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.server)
                self.sockets += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self.pass_on, args=pair, daemon=True).start()

    def pass_on(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.silent.is_set():
                    sink.sendall(data)

    def close(self):
        for each in (self.listener, *self.sockets):
            each.close()


def test_a_waiter_that_fell_silent_loses_its_place_and_a_holder_keeps_the_lock(server, client, key):
    client.hold(key, max_lease_period=60_000)
    relay = Relay(server.grpc)
    with contextlib.closing(relay), Client(relay.address) as silent:
        holder = silent.lock(f"{key}/held", max_lease_period=60_000, timeout_s=60).acquired()
        waiter = silent.lock(key, max_wait_period=60_000, timeout_s=60).waiting()
        relay.silent.set()
        until = time.monotonic() + NOTICED_S
        while client.lease(key, waiter.id).success:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert client.lease(holder.key, holder.id).lease.acquired
