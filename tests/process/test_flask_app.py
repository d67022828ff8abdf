"""What a request costs beside its own work; counted, because a busy machine changes every time."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from flask import Flask

from tests.support.actors import BASE
from tests.support.each import each
from tests.support.scene import Scene

# Python functions that one request calls, the test client's among them, with the versions of
# constraints.txt: 811 and 2,713. It was 984 and 3,573 when Flask asked whether each function is a
# coroutine, and Jinja and Flask-Babel looked up globals and languages again and again.
MOST_CALLS = {"userinfo": 840, "sign-in page": 2_800}


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
    return {
        "userinfo": lambda: http.get(
            f"{BASE}/oauth2/userinfo", headers={"Authorization": f"Bearer {token}"}
        ),
        "sign-in page": lambda: http.get(f"{BASE}/sign-in"),
    }


@each("name", MOST_CALLS)
def test_a_request_makes_few_calls(requests: dict[str, Callable[[], object]], name: str) -> None:
    assert 100 < calls_of(requests[name]) <= MOST_CALLS[name]
