"""`flask demo`: everything from nothing, in one command."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.services import ROOT, free_port


@contextmanager
def demo(folder: Path, port: int, client_port: int) -> Iterator[dict[str, str]]:
    """Run it; gives what it printed, and ends it as Ctrl-C does."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "flask", "demo", "--json", "--folder", str(folder)),
            *("--port", str(port), "--client-port", str(client_port)),
        ],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which something else listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_it_runs_twice_and_gives_way_to_others(tmp_path: Path, taken: int) -> None:
    for _ in range(2):
        with demo(tmp_path / "demo", taken, free_port()) as told:
            assert f":{taken}/" not in told["server"]
            assert told["password"]
            page = requests.get(told["open"], timeout=10)
            assert "Sign in" in page.text
            begun = requests.get(told["open"] + "login", timeout=10)
            assert begun.url.startswith(told["server"] + "/sign-in?resume=")
            assert "Sample application" in begun.text
        with pytest.raises(requests.ConnectionError):
            requests.get(told["open"], timeout=5)
