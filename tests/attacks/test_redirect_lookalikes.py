"""The attacker wants a code at an address that nearly is a native application's.

It ends at comparison: of loopback only the port may differ, of all else nothing.
"""

from collections.abc import Callable

import pytest
from flask import Flask

from sso.models import User
from sso.services.checks import Invalid
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_client, register_client
from tests.support.signing import make_keyed_client

LOOPBACK, APP = "http://127.0.0.1:8000/cb?x=1", "com.example.app:/cb"
LOOKALIKES = [
    "http://127.0.0.1:8001/other?x=1", "http://127.0.0.1:8001/cb", "http://127.0.0.1:8001/cb?x=2",
    "http://127.0.0.1:8001/cb?x=1&y=2", "http://127.0.0.1:8001/cb/?x=1", "http://127.0.0.1:8001/CB?x=1",
    "http://127.0.0.1:8001/%63b?x=1", "http://127.0.0.1:8001/cb?x=1#f", "http://127.0.0.1:8001",
    "https://127.0.0.1:8000/cb?x=1", "http://localhost:8000/cb?x=1", "http://[::1]:8000/cb?x=1",
    "http://127.0.0.2:8000/cb?x=1", "http://127.1:8000/cb?x=1", "http://2130706433:8000/cb?x=1",
    "http://0x7f.0.0.1:8000/cb?x=1", "http://0177.0.0.1:8000/cb?x=1", "http://0.0.0.0:8000/cb?x=1",
    "http://[::ffff:127.0.0.1]:8000/cb?x=1", "http://[::1%25lo]:8000/cb?x=1",
    "http://127.0.0.1.evil.com:8000/cb?x=1", "http://localhost.evil:8000/cb?x=1",
    "http://evil.com/?http://127.0.0.1:8000/cb?x=1", "http://127.0.0.1:8000@evil.com/cb?x=1",
    "http://127.0.0.1@evil.com:8000/cb?x=1", "http://u@127.0.0.1:8000/cb?x=1",
    "http://127.0.0.1:8000\\@evil.com/cb?x=1", "http://127.0.0.1:@evil.com/cb?x=1",
    "http://127.0.0.1:80.evil.com/cb?x=1", "http://127.0.0.1:-1/cb?x=1", "http://127.0.0.1:0/cb?x=1",
    "http://127.0.0.1:65536/cb?x=1", "http://127.0.0.1:/cb?x=1", "http://127.0.0.1: 80/cb?x=1",
    "HTTP://127.0.0.1:8000/cb?x=1", "http:127.0.0.1:8001/cb?x=1", "//127.0.0.1:8000/cb?x=1",
    "com.example.app:/cb?", "com.example.app:/CB", "com.example.app://cb", "com.example.app:cb",
    "COM.EXAMPLE.APP:/cb", "com.example.app.evil:/cb", "com.example.ap:/cb",
    "com.example.app:/cb#f", "com.example.app://evil/cb", "xcom.example.app:/cb",
    "com.example.app:8000/cb", "javascript:alert(1)",
]  # fmt: skip


@pytest.fixture
def public(app: Flask) -> RelyingParty:
    return make_client(
        app,
        redirect_uris=[LOOPBACK, APP],
        post_logout_redirect_uris=[LOOPBACK, APP],
        public=True,
    )


def test_authorize(browser: Browser, public: RelyingParty) -> None:
    for uri in LOOKALIKES:
        page = browser.authorize(public, redirect_uri=uri)
        assert page.is_at_server, uri
        assert page.status == 400, uri
        assert "Location" not in page.headers, uri


def test_after_sign_out(browser: Browser, public: RelyingParty, user: User) -> None:
    for uri in LOOKALIKES:
        asked = {"client_id": public.client_id, "post_logout_redirect_uri": uri}
        page = browser.open(f"{ORIGIN}{BASE}/oauth2/end-session", query_string=asked)
        assert page.is_at_server, uri
        assert page.status == 400, uri


@pytest.mark.parametrize("make", [make_client, make_keyed_client])
def test_the_port_of_a_confidential_client_counts(
    app: Flask, browser: Browser, user: User, make: Callable[..., RelyingParty]
) -> None:
    """A server-side application has one address, and a program beside it is not it."""
    client = make(
        app, redirect_uris=[LOOPBACK], post_logout_redirect_uris=[LOOPBACK], first_party=True
    )
    other = LOOPBACK.replace("8000", "8001")
    browser.sign_in()
    assert browser.authorize(client, redirect_uri=other).status == 400
    asked = {"client_id": client.client_id, "post_logout_redirect_uri": other}
    page = browser.open(f"{ORIGIN}{BASE}/oauth2/end-session", query_string=asked)
    assert page.is_at_server
    assert browser.authorize(client).code


@pytest.mark.parametrize(
    "uri",
    [
        "javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "myapp:/cb", "http://app.example/cb",
        "http.example:/cb", "JAVASCRIPT.x:/cb", "vbscript.x:/cb", "http://127.0.0.1.evil.com/cb",
        "http://localhost.evil/cb", "http://127.1/cb", "http://2130706433/cb",
        "http://u@127.0.0.1/cb", "com.example.app:/cb#f",
    ],
)  # fmt: skip
def test_what_cannot_be_registered(app: Flask, uri: str) -> None:
    with app.app_context():
        for field in ("redirect_uris", "post_logout_redirect_uris"):
            metadata = {"redirect_uris": ["https://app.example/cb"], field: [uri]}
            for method in ("none", "any"):
                with pytest.raises(Invalid):
                    register_client(name="App", auth_method=method, **metadata)


def test_a_private_use_scheme_of_a_confidential_client(app: Flask) -> None:
    """Any program may claim the scheme, and the secret would stand in the program."""
    with app.app_context(), pytest.raises(Invalid, match="only public clients"):
        register_client(name="App", redirect_uris=[APP])
