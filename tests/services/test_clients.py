"""Registrations: what a public client cannot give up, and whose web origins are known."""

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.services import clients
from sso.services.checks import Invalid
from sso.store import clients as stored
from tests.support.factories import make_client, register_client


def test_a_public_client_requires_pkce_from_the_start(app: Flask) -> None:
    with app.app_context():
        with pytest.raises(Invalid, match="always requires PKCE"):
            register_client(
                name="App", redirect_uris=["https://a.example/cb"], auth_method="none",
                require_pkce=False,
            )  # fmt: skip
        db.session.rollback()
    public, confidential = make_client(app, public=True), make_client(app)
    with app.app_context():
        with pytest.raises(Invalid, match="always requires PKCE"):
            clients.change(audit.SYSTEM, public.client_id, {"require_pkce": False})
        db.session.rollback()
        clients.change(audit.SYSTEM, confidential.client_id, {"require_pkce": False})


@pytest.mark.parametrize(
    ("after", "origins"),
    [([], []), (["https://b.example/cb"], ["https://b.example"]),
     (["https://a.example/cb", "https://b.example/cb"], ["https://a.example", "https://b.example"])],
)  # fmt: skip
def test_the_origins_of_a_client_are_those_that_it_has_now(
    app: Flask, after: list[str], origins: list[str]
) -> None:
    more = {"grant_types": ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"]}
    if not after:
        more["grant_types"] = more["grant_types"][1:]
    client = make_client(app, public=True, redirect_uris=["https://a.example/cb"])
    with app.app_context():
        clients.change(audit.SYSTEM, client.client_id, {"redirect_uris": after, **more})
        db.session.flush()
        on = db.session.connection()
        both = ["https://a.example", "https://b.example"]
        assert [origin for origin in both if stored.is_origin_of_any(on, origin)] == origins
