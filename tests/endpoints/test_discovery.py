"""Metadata (OIDC Discovery §3, RFC 8414), the key set, and health."""

from authlib.oauth2 import rfc8414, rfc9207
from authlib.oidc.discovery import OpenIDProviderMetadata
from flask import Flask
from sqlalchemy import text

from sso.extensions import db
from sso.flow import scopes
from tests.support.actors import BASE, ISSUER, ORIGIN


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


def test_nothing_is_advertised_that_is_not_there_and_the_other_way_round(app: Flask) -> None:
    found = app.test_client().get(f"{BASE}/.well-known/openid-configuration").get_json()
    server = app.extensions["sso.oauth"]
    grants = {grant.GRANT_TYPE for grant, _ in server._token_grants}
    assert set(found["grant_types_supported"]) == grants
    names = ["authorize", "token", "userinfo", "revoke", "introspect", "end-session", "jwks"]
    endpoints = {f"{ISSUER}/oauth2/{name}" for name in names}
    offered = {ORIGIN + rule.rule for rule in app.url_map.iter_rules() if "/oauth2/" in rule.rule}
    advertised = {v for k, v in found.items() if k.endswith("endpoint") or k == "jwks_uri"}
    assert endpoints == offered == advertised
    assert set(found["scopes_supported"]) == set(scopes.SCOPES)
    assert set(scopes.ALL_CLAIMS) <= set(found["claims_supported"])
    published = app.test_client().get(f"{BASE}/oauth2/jwks").get_json()["keys"]
    algorithms = {key["alg"] for key in published}
    assert set(found["id_token_signing_alg_values_supported"]) == algorithms
    known = {
        *rfc8414.AuthorizationServerMetadata.REGISTRY_KEYS,
        *OpenIDProviderMetadata.REGISTRY_KEYS,
        *rfc9207.AuthorizationServerMetadata.REGISTRY_KEYS,
        "userinfo_endpoint",  # OIDC Discovery §3; Authlib's list lacks it
        "end_session_endpoint",  # RP-Initiated Logout §2.1
        "backchannel_logout_supported",  # Back-Channel Logout §2.1
        "backchannel_logout_session_supported",
        "prompt_values_supported",  # OpenID Connect Prompt Create §4.1
    }
    assert set(found) <= known


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
        db.session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        db.session.commit()
    # A newer program has upgraded the schema; this one serves on until it is replaced.
    assert http.get("/readyz").status_code == 200
    with app.app_context():
        db.session.execute(text("DELETE FROM alembic_version"))
        db.session.commit()
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert "flask db upgrade" in answer.text
    with app.app_context():
        db.session.execute(text("INSERT INTO alembic_version VALUES ('9999')"))
        db.session.execute(text("DELETE FROM signing_keys"))
        db.session.commit()
        app.extensions["sso.keys"].reload()
    assert "signing key" in http.get("/readyz").text
