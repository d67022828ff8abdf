"""Registrations: what a public client cannot give up, and whose web origins are known."""

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.services import clients, provisioning
from sso.services.checks import Invalid
from sso.store import clients as stored
from sso.store import provisioning as receivers
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


@pytest.mark.parametrize("entity_id", [None, "https://crm.example"])
def test_a_service_provider_is_no_public_client(entity_id: str | None) -> None:
    """Also where a program names the authentication method none for it."""
    fields = {"token_endpoint_auth_method": "none", "saml_entity_id": entity_id}
    assert clients.replacing_registration(fields)["require_pkce"] is (entity_id is None)


def test_without_its_scim_url_nothing_is_kept(app: Flask) -> None:
    """Another service that it gets later does not get the token of this one."""
    sent, olga = {"scim_url": "https://a.example/scim", "scim_everyone": True}, audit.Actor("olga")
    client_id = make_client(app, **sent).client_id
    with app.app_context():
        provisioning.set_token(olga, client_id, "token-of-a")
        clients.change(olga, client_id, {"scim_url": None, "scim_everyone": False})
        db.session.commit()
        assert receivers.find(client_id) is None
        clients.change(olga, client_id, {**sent, "scim_url": "https://b.example/scim"})
        receiver = receivers.find(client_id)
        assert receiver
        assert receiver.sealed_token is None
