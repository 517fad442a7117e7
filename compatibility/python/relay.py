"""A connection that can become silent."""

import contextlib
import socket
import threading


class Relay:
    """Forwards bytes between client and server. Once silent, it forwards nothing but keeps both connections open."""

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
