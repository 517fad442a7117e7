"""A server process on free ports."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path

from timing import WATCHDOG_S, watchdog

BINARY = Path(os.environ["WAYMAKER_SERVER"])


class Server:
    """A server that runs until it is stopped or killed. It can be started again on the same data directory.

    Every start uses other ports, so read `grpc` and `http` again.
    """

    def __init__(self, data_dir="none", *options):
        self.data_dir = str(data_dir)
        self.options = options
        self.log = tempfile.TemporaryFile()
        self.process = None
        self.addresses = {}
        self.start()

    def start(self):
        listen = [f"--{name}=127.0.0.1:0" for name in ("listen", "grpc-listen", "http-listen")]
        arguments = [BINARY, *listen, f"--data-dir={self.data_dir}", *self.options]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=self.log, text=True)
        with watchdog("a server that is ready", self.process.kill):
            words = self.process.stdout.readline().split()
        if words[:1] != ["ready"]:
            self.kill()
            raise AssertionError(f"{arguments} did not become ready: {self.said()}")
        self.addresses = dict(word.split("=", 1) for word in words[1:])

    @property
    def grpc(self):
        return self.addresses["grpc"]

    @property
    def http(self):
        return self.addresses["http"]

    def said(self):
        """Returns the standard error output of the server."""
        self.log.seek(0)
        return self.log.read().decode()

    def terminate(self):
        """Sends SIGTERM, and does not wait for the end."""
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        """Sends SIGTERM, and waits until the server has stopped."""
        self.terminate()
        return self.wait()

    def wait(self):
        code = self.process.wait(WATCHDOG_S)
        self.process.stdout.close()
        return code

    def kill(self):
        """Kills the server, like a crash."""
        self.process.kill()
        self.wait()

    def close(self):
        if self.process.poll() is None:
            self.kill()
        self.log.close()
