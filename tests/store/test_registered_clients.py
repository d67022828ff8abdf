"""What a client may do, as its row says: each property alone decides."""

from dataclasses import replace
from typing import Any

import pytest
from flask import Flask

from sso.config.auth_methods import NO_AUTH_METHOD
from sso.extensions import db
from sso.models.clients import OPEN
from sso.store import clients
from sso.store.clients import RegisteredClient
from tests.support.factories import make_client

CALLBACK = "https://app.example/cb"
LOOPBACK = "http://127.0.0.1/cb"


@pytest.fixture
def app(make_app: Any) -> Flask:
    made: Flask = make_app()
    return made


def registered(app: Flask, *, public: bool = False, **more: Any) -> RegisteredClient:
    """A client with this metadata, whether it can be registered or not."""
    client_id = make_client(app, redirect_uris=[CALLBACK]).client_id
    with app.app_context():
        client = clients.find_enabled(db.session.connection(), client_id)
        assert client
        metadata = dict(client.client_metadata) | more
        if public:
            metadata["token_endpoint_auth_method"] = NO_AUTH_METHOD
        return replace(client, client_metadata=metadata)


@pytest.mark.parametrize("public", [True, False])
def test_scripts_of_public_clients_alone_read_answers(app: Flask, public: bool) -> None:
    client = registered(app, public=public, redirect_uris=["https://spa.example:8443/cb"])
    assert client.has_origin("https://spa.example:8443") is public
    for other in ("https://spa.example", "http://spa.example:8443", "https://other.example", ""):
        assert not client.has_origin(other)


@pytest.mark.parametrize("grant_type", ["authorization_code", "refresh_token"])
def test_behind_a_proxy_nothing_buys_tokens(app: Flask, grant_type: str) -> None:
    assert registered(app).check_grant_type(grant_type)
    assert not registered(app, grant_types=[]).check_grant_type(grant_type)
    proxied = registered(app, proxy_urls=["https://app.example"])
    assert grant_type in proxied.client_metadata["grant_types"]
    assert not proxied.check_grant_type(grant_type)


@pytest.mark.parametrize(
    ("public", "proxied", "uri", "asks"),
    [
        (True, False, LOOPBACK, True),
        (True, False, "com.example.app:/cb", True),
        (True, False, CALLBACK, False),
        (True, True, LOOPBACK, False),
        (False, False, LOOPBACK, False),
    ],
)
def test_which_clients_ask_each_time(
    app: Flask, public: bool, proxied: bool, uri: str, asks: bool
) -> None:
    urls = ["http://127.0.0.1:3000"] if proxied else []
    client = registered(app, public=public, proxy_urls=urls, redirect_uris=[CALLBACK, uri])
    assert client.policy_at(uri).ask_each_time is asks
    assert client.always_asks is False
    assert replace(client, client_metadata={**client.client_metadata, "redirect_uris": [uri]}
                   ).always_asks is asks  # fmt: skip


@pytest.mark.parametrize("first_party", [True, False])
@pytest.mark.parametrize("registration", [None, OPEN])
def test_nobody_skips_consent_at_an_agent(
    app: Flask, first_party: bool, registration: str | None
) -> None:
    """Not even if its row says so."""
    client = replace(registered(app), first_party=first_party, registration=registration)
    policy = client.policy_at(CALLBACK)
    assert policy.first_party is (first_party and registration is None)
    assert policy.ask_each_time is (registration is not None)
