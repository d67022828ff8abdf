"""The attacker has seen the DPoP proof of one request, and sends another request with it.

It ends at every grant by itself: the first request used the proof up.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from sso.config.client_fields import JWT_BEARER
from sso.models import User
from sso.process import addresses
from tests.support import platforms
from tests.support.actors import Browser
from tests.support.assertions import Bridge, ask_assertion, make_asserting
from tests.support.devices import enter, make_device
from tests.support.exchanges import MAPS, Chain, exchange
from tests.support.factories import make_api, make_client
from tests.support.proofs import DPoP
from tests.support.services import API, make_resource_server, make_service

pytestmark = pytest.mark.slow

Headers = dict[str, str]
Send = Callable[[Headers], TestResponse]


def code(app: Flask, browser: Browser) -> list[Send]:
    client = make_client(app)
    return [partial(client.exchange, browser.approve(client).code) for _ in range(2)]


def refresh_token(app: Flask, browser: Browser) -> list[Send]:
    client = make_client(app)
    answers = [client.exchange(browser.approve(client).code).get_json() for _ in range(2)]
    return [partial(client.refresh, answer["refresh_token"]) for answer in answers]


def device_code(app: Flask, browser: Browser) -> list[Send]:
    devices = [make_device(app) for _ in range(2)]
    for device in devices:
        device.ask()
        enter(browser, device.user_code)
        browser.allow()
    return [device.poll for device in devices]


def client_credentials(app: Flask, browser: Browser) -> list[Send]:
    make_resource_server(app)
    service = make_service(app, default_api=API)
    return [service.ask] * 2


def exchanged_token(app: Flask, browser: Browser) -> list[Send]:
    chain = Chain(app, browser)
    return [lambda headers: exchange(chain.docs, chain.subject, headers, resource=MAPS)] * 2


def pushed_request(app: Flask, browser: Browser) -> list[Send]:
    return [make_client(app).push] * 2


CASES: dict[Callable[[Flask, Browser], list[Send]], str] = {
    code: "/oauth2/token",
    refresh_token: "/oauth2/token",
    device_code: "/oauth2/token",
    client_credentials: "/oauth2/token",
    exchanged_token: "/oauth2/token",
    pushed_request: "/oauth2/par",
}


def check(sends: list[Send], path: str = "/oauth2/token") -> None:
    key = DPoP()
    headers = key.header(path)
    first, second = sends
    assert first(headers).status_code in (200, 201)
    refused = second(headers)
    assert (refused.status_code, refused.get_json()["error"]) == (400, "invalid_dpop_proof")
    assert second(key.header(path)).status_code in (200, 201)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_proof_works_once(
    app: Flask, browser: Browser, user: User, make: Callable[[Flask, Browser], list[Send]]
) -> None:
    check(make(app, browser), CASES[make])


@pytest.fixture
def bridge(
    app: Flask, user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bridge]:
    monkeypatch.setattr(addresses, "forbidden", lambda *_: None)
    monkeypatch.setenv("SSL_CERT_FILE", str(platforms.certificate(tmp_path)))
    with platforms.serving(tmp_path) as platform:
        yield Bridge(app, platform, user, make_api(app))


def test_with_an_assertion_of_another_server(bridge: Bridge) -> None:
    def send(assertion: str, headers: Headers) -> TestResponse:
        form = {"grant_type": JWT_BEARER, "assertion": assertion, **bridge.client.credentials()}
        return bridge.client.post("/oauth2/token", form, headers=headers)

    check([partial(send, bridge.assertion()) for _ in range(2)])


def test_for_an_assertion(app: Flask, browser: Browser, user: User) -> None:
    client = make_asserting(app)
    id_token = client.exchange(browser.approve(client).code).get_json()["id_token"]
    check([partial(ask_assertion, client, id_token)] * 2)
