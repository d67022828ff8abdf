"""The module of the certification plan Config OP."""

from flask import Flask

from tests.support.actors import BASE, ISSUER


def test_oidcc_discovery_endpoint_verification(app: Flask) -> None:
    """OIDC Discovery §3, §4.2."""
    answer = app.test_client().get(f"{BASE}/.well-known/openid-configuration")
    assert answer.mimetype == "application/json"
    found = answer.get_json()
    assert found["issuer"] == ISSUER
    required = {
        "authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri",
        "response_types_supported", "subject_types_supported", "scopes_supported",
        "id_token_signing_alg_values_supported", "claims_supported",
    }  # fmt: skip
    assert required <= set(found)
    assert "RS256" in found["id_token_signing_alg_values_supported"]
    assert "openid" in found["scopes_supported"]
    keys = app.test_client().get(found["jwks_uri"].replace(ISSUER, BASE)).get_json()["keys"]
    assert len({key["kid"] for key in keys}) == len(keys)
