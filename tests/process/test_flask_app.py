"""What a request costs beside its own work; counted, because a busy machine changes every time."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from flask import Flask

from tests.support.actors import BASE
from tests.support.devices import make_device
from tests.support.each import each
from tests.support.scene import Scene

# Python functions that one request calls, the test client's among them, with the versions of
# constraints.txt: 795, 874 and 2,684. Userinfo made 984 and the page 3,573 when Flask asked whether
# each function is a coroutine, and Jinja and Flask-Babel looked up globals and languages again and
# again. A device's poll is to cost no more than userinfo: its calls are 2 % more without the form,
# which the test client makes.
MOST_CALLS = {"userinfo": 820, "device poll": 900, "sign-in page": 2_750}


def calls_of(act: Callable[[], object]) -> int:
    """Count the Python functions that are called, after a first time that fills caches."""
    calls = 0

    def count(_frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    act()
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


@pytest.fixture
def requests(app: Flask, scene: Scene) -> dict[str, Callable[[], object]]:
    token = scene.tokens()["access_token"]
    http = app.test_client()
    devices = [make_device(app, confidential=True) for _ in range(2)]
    for device in devices:
        device.ask()
    waiting = iter(devices)  # a second poll of one would come too early
    return {
        "userinfo": lambda: http.get(
            f"{BASE}/oauth2/userinfo", headers={"Authorization": f"Bearer {token}"}
        ),
        "device poll": lambda: next(waiting).poll(),
        "sign-in page": lambda: http.get(f"{BASE}/sign-in"),
    }


@each("name", MOST_CALLS)
def test_a_request_makes_few_calls(requests: dict[str, Callable[[], object]], name: str) -> None:
    assert 100 < calls_of(requests[name]) <= MOST_CALLS[name]
