"""The table of docs/explanation/revocation.md once more, for the tokens of devices (RFC 8628)."""

from dataclasses import dataclass
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from sso.config.client_fields import AUTHORIZATION_CODE, DEVICE_CODE, REFRESH_TOKEN
from tests.conftest import Clock
from tests.endpoints.test_what_ends_what import CALLBACK, CAUSES, SCOPE, Holding, Scene
from tests.support.actors import Browser
from tests.support.devices import Device, make_device
from tests.support.factories import make_user

pytestmark = pytest.mark.slow
URI = "https://tv.example/callback"


@dataclass
class Television(Device):
    """A device whose device code is presented where another client would present a code."""

    def exchange(
        self, code: str, headers: dict[str, str] | None = None, /, **more: str | None
    ) -> TestResponse:
        return self.poll(device_code=code)


class DeviceScene(Scene):
    """One person who has signed in the same device from two browsers, in both ways."""

    def __init__(self, app: Flask, user: Any) -> None:
        self.app, self.user = app, user
        device = make_device(
            app,
            confidential=True,
            grant_types=[AUTHORIZATION_CODE, DEVICE_CODE, REFRESH_TOKEN],
            redirect_uris=[URI],
            scope=f"{SCOPE} offline_access",
            backchannel_logout_uri=CALLBACK,
            groups=["staff"],
        )
        self.client = self.tv = Television(app, device.client_id, device.client_secret, URI)
        self.here = self._open()
        self.there = self._open()

    def _open(self) -> Holding:
        browser = Browser(self.app)
        plain = self.tv.approve(browser, scope=SCOPE).get_json()
        code = self.tv.codes["device_code"]
        offline = self.tv.approve(browser, scope=f"{SCOPE} offline_access").get_json()
        return Holding(browser, code, plain, offline)


@pytest.fixture
def scene(app: Flask, clock: Clock) -> DeviceScene:
    return DeviceScene(app, make_user(app, groups=["staff"]))


# They end what another cause ends: only who does it differs.
RARE = {
    "barred by the directory", "connected account removed by an operator", "end of the account",
    "own account deleted", "password set by an operator", "sign-out by an operator",
}  # fmt: skip


@pytest.mark.parametrize(
    "cause",
    [pytest.param(one, marks=pytest.mark.exhaustive) if one in RARE else one for one in CAUSES],
)
def test_it_ends_this_and_nothing_else(scene: DeviceScene, clock: Clock, cause: str) -> None:
    act, effect = CAUSES[cause]
    act(scene, clock)
    assert scene.measure() == effect
