"""The programs in README.md work as described there."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waymaker_pb2 import *

from locktopus import Connection
from timing import WATCHDOG_S, watchdog, within

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "compatibility/examples"
WORK = ROOT / "target/compatibility"
KEY = "jobs/nightly"
# Time for which the example waits for the lock.
WAIT_MS = 5000


def command(name, server):
    """Returns the command that runs an example with the packages and stubs of its language."""
    language = {".py": "python", ".go": "go", ".js": "node"}[Path(name).suffix]
    if language not in os.environ["LANGUAGES"].split(","):
        pytest.skip(f"{language} is not installed")
    return {
        "python": [sys.executable, EXAMPLES / name, server.grpc],
        "go": [WORK / "bin/example", server.grpc],
        "node": ["node", WORK / "node" / name, server.http],
    }[language]


def start(name, server):
    return subprocess.Popen(command(name, server), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def first_line(process):
    with watchdog("the first line of an example", process.kill):
        return process.stdout.readline()


def printed(process):
    """Returns the output lines of a program that must succeed."""
    text, _ = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == 0, text
    return text.splitlines()


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir()))
def test_the_readme_contains_the_example_unchanged(name):
    assert (EXAMPLES / name).read_text() in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name,last", [("lock.py", "released"), ("lock.go", "EOF")])
def test_a_lock_is_acquired_and_released(server, client, name, last):
    before = client.hold(KEY)
    client.release(before)
    assert printed(start(name, server)) == [f"acquired with fence {before.fence_token + 1}", last]
    assert client.is_free(KEY)


def test_the_python_example_waits_until_the_lock_is_free(server, client):
    for limit in within(WAIT_MS):
        hold = client.hold(KEY)
        with limit, contextlib.ExitStack() as stack:
            stack.callback(client.unlock, KEY, hold.id)
            limit.begins()
            process = start("lock.py", server)
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert first_line(process) == "held by another client: waiting\n"
            client.release(hold)
            limit.is_over()
            assert printed(process) == [f"acquired with fence {hold.fence_token + 1}", "released"]


def test_the_javascript_example_waits_until_the_lock_is_free(server):
    with Connection(server.http, "shop") as first:
        first.lock("W orders")
        process = start("lock.js", server)
        assert first_line(process) == "held by another client: waiting\n"
        first.release()
        assert printed(process) == ["acquired as lock 2", "released"]
        first.lock("W")
