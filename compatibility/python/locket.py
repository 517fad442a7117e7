"""The Locket contract through the stubs that grpcio generates from it."""

import re
import urllib.request

import grpc
from models.locket_pb2 import *
from models.locket_pb2_grpc import LocketStub

from timing import HOUR_MS, WATCHDOG_S

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)")


class Refused(Exception):
    """An error response: status code and message."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.answer = (code, message)


class Client:
    """One connection, with the four calls as methods."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = LocketStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def lock(self, key, owner="jim", ttl=HOUR_MS // 1000, metadata=(), **fields):
        request = LockRequest(resource=Resource(key=key, owner=owner, **fields), ttl_in_seconds=ttl)
        return call(self.stub.Lock, request, metadata)

    def release(self, key, owner="jim", **fields):
        return call(self.stub.Release, ReleaseRequest(resource=Resource(key=key, owner=owner, **fields)))

    def fetch(self, key):
        return call(self.stub.Fetch, FetchRequest(key=key)).resource

    def fetch_all(self, type_code=UNKNOWN, text=""):
        return list(call(self.stub.FetchAll, FetchAllRequest(type_code=type_code, type=text)).resources)


def call(method, request, metadata=()):
    try:
        return method(request, timeout=WATCHDOG_S, metadata=metadata)
    except grpc.RpcError as error:
        raise Refused(error.code(), error.details()) from None


def metrics(http, name):
    """Returns the samples of a metric by the value of its label. The suffixes for counters and units are ignored."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=WATCHDOG_S) as response:
        text = response.read().decode()
    samples = {}
    for line in text.splitlines():
        found = SAMPLE.match(line)
        if found and found[1].removesuffix("_total").removesuffix("_seconds") == name:
            labels = re.findall(r'="([^"]*)"', found[2] or "")
            samples[labels[0] if labels else ""] = float(found[3])
    assert samples, f"no metric {name} in:\n{text}"
    return samples
