"""What a request costs beside its own work; counted, because a busy machine changes every time."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from flask import Flask, Request
from werkzeug.test import EnvironBuilder

from sso.web.routing import RoutedRequest
from tests.conftest import ON_POSTGRESQL
from tests.support.actors import BASE, Browser
from tests.support.devices import make_device
from tests.support.each import each
from tests.support.factories import make_user
from tests.support.proxied import Proxied, make_proxied
from tests.support.scene import Scene

# Python functions that one request calls, the test client's among them, with the versions of
# constraints.txt: 813, 891 and 2,718, and some more in a process where other tests have left log
# handlers. Userinfo made 984 and the page 3,573 when Flask asked whether
# each function is a coroutine, and Jinja and Flask-Babel looked up globals and languages again and
# again. A device's poll is to cost no more than userinfo: its calls are 2 % more without the form,
# which the test client makes.
# On PostgreSQL, whose driver is in Python, they are about 90 more, 80 and 30.
MOST_CALLS = (
    {"userinfo": 945, "device poll": 1_010, "sign-in page": 2_860}
    if ON_POSTGRESQL
    else {"userinfo": 855, "device poll": 930, "sign-in page": 2_830}
)
# 911, and 985 on PostgreSQL; 24 more when all headers were looked through for the cookies.
MOST_OF_FORWARD_AUTH = 1_006 if ON_POSTGRESQL else 932


TIMES = 3


def calls_of(act: Callable[[], object]) -> int:
    """Count the Python functions that are called, after a first time that fills caches.

    The least of some times: what is looked up again every few seconds is not of each request.
    """
    calls = 0

    def count(_frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    def counted() -> int:
        nonlocal calls
        calls = 0
        sys.setprofile(count)
        try:
            act()
        finally:
            sys.setprofile(None)
        return calls

    act()
    return min(counted() for _ in range(TIMES))


@pytest.fixture
def requests(app: Flask, scene: Scene) -> dict[str, Callable[[], object]]:
    token = scene.tokens()["access_token"]
    http = app.test_client()
    devices = [make_device(app, confidential=True) for _ in range(1 + TIMES)]
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


def test_forward_auth_makes_few_calls(make_app: Callable[..., Flask]) -> None:
    """Each request of an application costs them, with the headers that browsers send."""
    app = make_app(SSO_TRUSTED_PROXIES="1")
    make_user(app)
    wiki = Proxied(app, make_proxied(app))
    wiki.sign_in(Browser(app))
    usual = {f"Sec-Ch-Ua-{number}": "?" for number in range(12)}
    assert wiki.ask("/", usual).status_code == 200
    assert 100 < calls_of(lambda: wiki.ask("/", usual)) <= MOST_OF_FORWARD_AUTH


@each("header", ["", "a=1; b=2", "a=1; a=2", "a=1,b=2", 'a="x\\"y"; b; =c', "a=\xfc; b=%2F", ";;a"])
def test_cookies_are_read_as_werkzeug_reads_them(header: str) -> None:
    environ = {**EnvironBuilder().get_environ(), "HTTP_COOKIE": header}
    cookies = RoutedRequest(environ).cookies
    assert cookies == Request(environ).cookies
    assert type(cookies) is type(Request(environ).cookies)
    assert not RoutedRequest(EnvironBuilder().get_environ()).cookies
