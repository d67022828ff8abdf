"""A small device: it shows a code in the terminal, and waits until somebody has signed it in.

As docs/how-to/devices.md shows it for programs of your own, with a stop in between.
"""

import json
import sys
from collections.abc import Mapping
from threading import Event
from typing import Any

import click
import requests
import segno

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
SCOPE = "openid profile offline_access"
_TIMEOUT = 10  # seconds


class DeviceClient:
    """A public client of one server that has no browser."""

    def __init__(self, issuer: str, client_id: str) -> None:
        self._client_id = client_id
        self._http = requests.Session()
        self._http.trust_env = False  # loopback requests go to no proxy
        self._server = self._get(f"{issuer}/.well-known/openid-configuration")

    def ask(self) -> Mapping[str, Any]:
        """Request a device code and a user code (RFC 8628 §3.1)."""
        return self._post("device_authorization_endpoint", scope=SCOPE)

    def wait(self, codes: Mapping[str, Any], stop: Event) -> Mapping[str, Any] | None:
        """Poll until the person has answered (§3.4); return the tokens, or the error.

        Return `None` if it is stopped before that.
        """
        interval = codes["interval"]
        while not stop.wait(interval):
            answer = self._post(
                "token_endpoint", grant_type=DEVICE_CODE, device_code=codes["device_code"]
            )
            if answer.get("error") == "slow_down":
                interval += 5
            elif answer.get("error") != "authorization_pending":
                return answer
        return None

    def name(self, tokens: Mapping[str, Any]) -> str:
        """Return who has signed in."""
        bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
        return str(self._get(self._server["userinfo_endpoint"], headers=bearer)["name"])

    def _get(self, url: str, **more: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._http.get(url, timeout=_TIMEOUT, **more).json()
        return answer

    def _post(self, endpoint: str, **form: str) -> Mapping[str, Any]:
        form["client_id"] = self._client_id
        url = self._server[endpoint]
        answer: Mapping[str, Any] = self._http.post(url, data=form, timeout=_TIMEOUT).json()
        return answer


def run(issuer: str, client_id: str, stop: Event, as_json: bool) -> None:
    """Show codes in the terminal, one after the other, until somebody signs the device in."""
    device = DeviceClient(issuer, client_id)
    while not stop.is_set():
        codes = device.ask()
        if "error" in codes:
            return _say(codes["error_description"], codes, as_json)
        show(codes, as_json)
        answer = device.wait(codes, stop)
        if answer is None:
            return None
        if "error" not in answer:
            name = device.name(answer)
            return _say(f"  The device is signed in as {name}.", {"signed_in": name}, as_json)
        _say(f"  The device was refused: {answer['error_description']}", answer, as_json)
        if answer["error"] != "expired_token":
            return None
    return None


def show(codes: Mapping[str, Any], as_json: bool) -> None:
    """Print where to sign the device in, and the code to enter there."""
    public = {name: codes[name] for name in ("user_code", "verification_uri_complete")}
    if not as_json:
        click.echo(
            "  A device wants to be signed in. On a server of yours, a phone can scan this:\n"
        )
        segno.make(codes["verification_uri_complete"]).terminal(sys.stdout, compact=True)
    _say(
        f"\n  Here, open {codes['verification_uri']}\n  and enter {codes['user_code']}\n",
        public,
        as_json,
    )


def _say(text: str, value: Mapping[str, Any], as_json: bool) -> None:
    click.echo(json.dumps(dict(value)) if as_json else text)
    sys.stdout.flush()
