"""Metadata (OIDC Discovery §3, RFC 8414), the key set, and health."""

from authlib.oauth2 import rfc8414, rfc9207
from authlib.oidc.discovery import OpenIDProviderMetadata
from flask import Flask
from sqlalchemy import text

from sso.extensions import db
from tests.actors import BASE, ISSUER, ORIGIN


def test_both_addresses_give_the_same_valid_document(app: Flask) -> None:
    http = app.test_client()
    found = http.get(f"{BASE}/.well-known/openid-configuration").get_json()
    assert http.get(f"/.well-known/oauth-authorization-server{BASE}").get_json() == found
    assert found["issuer"] == ISSUER
    metadata = OpenIDProviderMetadata(found)
    metadata.validate(
        metadata_classes=[rfc8414.AuthorizationServerMetadata, rfc9207.AuthorizationServerMetadata]
    )


def test_every_advertised_address_answers(app: Flask) -> None:
    http = app.test_client()
    found = http.get(f"{BASE}/.well-known/openid-configuration").get_json()
    addresses = {name: value for name, value in found.items() if name.endswith(("endpoint", "uri"))}
    assert len(addresses) == 7
    for address in addresses.values():
        assert address.startswith(ISSUER + "/")
        path = address.removeprefix(ORIGIN)
        assert http.options(path, base_url=ORIGIN).status_code == 200


def test_the_key_set_is_cached_and_public(app: Flask) -> None:
    http = app.test_client()
    answer = http.get(f"{BASE}/oauth2/jwks")
    assert "max-age=300" in answer.headers["Cache-Control"]
    keys = answer.get_json()["keys"]
    assert len(keys) == 6
    for key in keys:
        assert {"kid", "use", "alg", "kty"} <= set(key)
        assert not {"d", "p", "q", "dp", "dq", "qi", "k"} & set(key)
    again = http.get(f"{BASE}/oauth2/jwks", headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304


def test_readiness(app: Flask) -> None:
    http = app.test_client()
    assert http.get("/healthz").status_code == 200
    assert http.get("/readyz").status_code == 200
    with app.app_context():
        db.session.execute(text("UPDATE alembic_version SET version_num = '0000'"))
        db.session.commit()
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert "flask db upgrade" in answer.text
    with app.app_context():
        db.session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
        db.session.execute(text("DELETE FROM signing_keys"))
        db.session.commit()
        app.extensions["sso.keys"].reload()
    assert "signing key" in http.get("/readyz").text
