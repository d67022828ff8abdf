"""Metadata (OIDC Discovery §3, RFC 8414), the key set, and health."""

from collections.abc import Callable

import pytest
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
    assert http.get(f"/.well-known/openid-configuration{BASE}").get_json() == found
    assert found["issuer"] == ISSUER
    metadata = OpenIDProviderMetadata(found)
    metadata.validate(
        metadata_classes=[rfc8414.AuthorizationServerMetadata, rfc9207.AuthorizationServerMetadata]
    )


def test_every_advertised_address_answers(app: Flask) -> None:
    http = app.test_client()
    found = http.get(f"{BASE}/.well-known/openid-configuration").get_json()
    addresses = {name: value for name, value in found.items() if name.endswith(("endpoint", "uri"))}
    assert len(addresses) == 9
    for address in addresses.values():
        assert address.startswith(ISSUER + "/")
        path = address.removeprefix(ORIGIN)
        assert http.options(path, base_url=ORIGIN).status_code == 200


def test_nothing_is_advertised_that_is_not_there_and_the_other_way_round(app: Flask) -> None:
    found = app.test_client().get(f"{BASE}/.well-known/openid-configuration").get_json()
    server = app.extensions["sso.oauth"]
    grants = {grant.GRANT_TYPE for grant, _ in server._token_grants}
    assert set(found["grant_types_supported"]) == grants
    names = ["authorize", "par", "token", "userinfo", "revoke", "introspect", "end-session", "jwks"]
    names.append("device_authorization")
    endpoints = {f"{ISSUER}/oauth2/{name}" for name in names}
    rules = (rule.rule for rule in app.url_map.iter_rules() if "/oauth2/" in rule.rule)
    # Registration is for operators' programs, and not advertised to clients.
    offered = {ORIGIN + rule for rule in rules if "/oauth2/register" not in rule}
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
        "pushed_authorization_request_endpoint",  # RFC 9126 §5
        "device_authorization_endpoint",  # RFC 8628 §4
        "require_pushed_authorization_requests",
        "require_signed_request_object",  # RFC 9101 §10.5
        "authorization_signing_alg_values_supported",  # JARM §4
        "dpop_signing_alg_values_supported",  # RFC 9449 §5.1
        "prompt_values_supported",  # OpenID Connect Prompt Create §4.1
        "authorization_grant_profiles_supported",  # ID-JAG
        "identity_chaining_requested_token_types_supported",  # OAuth Identity Chaining
    }
    assert set(found) <= known


def test_the_key_set_is_cached_and_public(app: Flask) -> None:
    http = app.test_client()
    answer = http.get(f"{BASE}/oauth2/jwks")
    assert "max-age=300" in answer.headers["Cache-Control"]
    keys = answer.get_json()["keys"]
    assert len(keys) == 8
    for key in keys:
        assert {"kid", "use", "alg", "kty"} <= set(key)
        assert not {"d", "p", "q", "dp", "dq", "qi", "k"} & set(key)
    again = http.get(f"{BASE}/oauth2/jwks", headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304


def test_the_key_set_is_also_where_clients_of_better_auth_look(app: Flask) -> None:
    http = app.test_client()
    alias, published = http.get(f"{BASE}/jwks"), http.get(f"{BASE}/oauth2/jwks")
    assert alias.get_data() == published.get_data()
    for name in ("Cache-Control", "ETag", "Content-Type", "Access-Control-Allow-Origin"):
        assert alias.headers[name] == published.headers[name]
    again = http.get(f"{BASE}/jwks", headers={"If-None-Match": alias.headers["ETag"]})
    assert again.status_code == 304
    found = http.get(f"{BASE}/.well-known/openid-configuration").get_json()
    assert found["jwks_uri"] == f"{ISSUER}/oauth2/jwks"


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/openid-configuration",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/api",
        f"/.well-known/oauth-authorization-server{BASE}/",
        f"{BASE}/.well-known/oauth-authorization-server",
        f"{BASE}/.well-known/jwks.json",
        f"{BASE}/oauth2/.well-known/openid-configuration",
        "/api/.well-known/openid-configuration",
        "/realms/master/.well-known/openid-configuration",
        "/.well-known/webfinger?resource=acct:dana@example.com",
    ],
)
def test_metadata_at_the_wrong_address_says_where_it_is(app: Flask, path: str) -> None:
    headers = {"Host": "evil.example", "Origin": "https://app.example"}
    answer = app.test_client().get(path, headers=headers)
    assert answer.status_code == 404
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.get_json() == {
        "error": "invalid_request",
        "error_description": f"The issuer of this server is {ISSUER}: give clients exactly this "
        "URL.",
        "issuer": ISSUER,
        "openid_configuration": f"{ISSUER}/.well-known/openid-configuration",
    }


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/change-password", "/.well-known/openid-configurations", "/.well-known/",
        f"{BASE}/account/openid-configuration",
    ],
)  # fmt: skip
def test_what_is_not_metadata_is_not_there(app: Flask, path: str) -> None:
    answer = app.test_client().get(path)
    assert answer.status_code == 404
    assert ISSUER + "/.well-known" not in answer.text


def test_without_a_path_the_root_is_the_place(make_app: Callable[..., Flask]) -> None:
    http = make_app(SSO_BASE_URL=ORIGIN).test_client()
    found = http.get("/.well-known/openid-configuration").get_json()
    assert found["issuer"] == ORIGIN
    assert http.get("/.well-known/oauth-authorization-server").get_json() == found
    assert http.get("/jwks").get_json() == http.get("/oauth2/jwks").get_json()
    elsewhere = http.get(f"{BASE}/.well-known/openid-configuration")
    assert (elsewhere.status_code, elsewhere.get_json()["issuer"]) == (404, ORIGIN)


def test_public_clients_are_told_which_endpoints_they_may_use(app: Flask) -> None:
    found = app.test_client().get(f"{BASE}/.well-known/openid-configuration").get_json()
    methods = ["client_secret_basic", "client_secret_post", "private_key_jwt"]
    assert found["token_endpoint_auth_methods_supported"] == [*methods, "none"]
    assert found["revocation_endpoint_auth_methods_supported"] == [*methods, "none"]
    assert found["introspection_endpoint_auth_methods_supported"] == methods


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
