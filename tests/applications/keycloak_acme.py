"""The realm of a company: 1,000 people, 30 clients of all kinds, groups, roles and mappers."""

import base64
import hashlib
import json
from typing import Any

from tests.support.keycloak import mapper

SECRET = "v6mUu3Dq0vXn9hQ7rT2yW8zB4cE1fG5k"
PEOPLE, CLIENTS = 1000, 30
COMMON_PASSWORD = "Passw0rd-of-many"
_SALT = b"0123456789abcdef"


def password(name: str) -> str:
    return COMMON_PASSWORD if name.startswith("person") else f"Passw0rd-of-{name}"


def person(name: str, **more: Any) -> dict[str, Any]:
    return {
        "username": name, "email": f"{name}@example.com", "emailVerified": True, "enabled": True,
        "firstName": name.capitalize(), "lastName": "Doe",
        "credentials": [{"type": "password", "value": password(name)}],
    } | more  # fmt: skip


def _hashed(text: str) -> dict[str, Any]:
    """A password with its hash, which Keycloak would take long to make for all of them."""
    value = hashlib.pbkdf2_hmac("sha512", text.encode(), _SALT, 210_000, 64)
    parts = {"value": base64.b64encode(value).decode(), "salt": base64.b64encode(_SALT).decode()}
    data = {"hashIterations": 210_000, "algorithm": "pbkdf2-sha512", "additionalParameters": {}}
    return {"type": "password", "secretData": json.dumps(parts),
            "credentialData": json.dumps(data)}  # fmt: skip


def realm(web: str, mobile: str) -> dict[str, Any]:
    """The realm, with two applications at these redirect URIs."""
    hashed = _hashed(COMMON_PASSWORD)
    return {
        "realm": "acme", "enabled": True, "sslRequired": "none",
        "roles": {
            "realm": [{"name": "staff"},
                      {"name": "auditor", "composite": True,
                       "composites": {"realm": ["staff"], "client": {"web": ["viewer"]}}}],
            "client": {"web": [{"name": "viewer"}, {"name": "editor"}]},
        },
        "groups": [
            {"name": "teams", "subGroups": [{"name": "red", "clientRoles": {"web": ["editor"]}}]},
            {"name": "営業"},
        ],
        "clients": _clients(web, mobile),
        "users": [
            person("dana", groups=["/teams/red"], attributes={"department": ["R&D"]},
                   clientRoles={"web": ["viewer"]}),
            person("otto"), person("paula"), person("rita", realmRoles=["auditor"]),
            person("erin", enabled=False),
            *(person(f"person{number}", credentials=[hashed], groups=["/営業"],
                     realmRoles=["offline_access"])
              for number in range(PEOPLE - 5)),
        ],
    }  # fmt: skip


def _clients(web: str, mobile: str) -> list[dict[str, Any]]:
    return [
        {"clientId": "web", "name": "Web", "secret": SECRET,
         "redirectUris": [web, "https://web.example.com/*"],
         "attributes": {
             "post.logout.redirect.uris": f"+##{web.removesuffix('callback')}",
             "backchannel.logout.url": "https://web.example.com/logout",
         },
         "protocolMappers": [
             mapper("oidc-usermodel-attribute-mapper", "department", user__attribute="department",
                    claim__name="department", jsonType__label="String"),
             mapper("oidc-usermodel-client-role-mapper", "roles", claim__name="roles",
                    multivalued="true", usermodel__clientRoleMapping__clientId="web"),
         ]},
        {"clientId": "mobile", "publicClient": True, "redirectUris": [mobile],
         "attributes": {"pkce.code.challenge.method": "S256"}},
        {"clientId": "spa", "publicClient": True, "redirectUris": ["https://spa.example.com/cb"],
         "webOrigins": ["+"], "attributes": {"pkce.code.challenge.method": "S256"}},
        {"clientId": "robot", "serviceAccountsEnabled": True, "standardFlowEnabled": False,
         "secret": SECRET[::-1]},
        {"clientId": "television", "publicClient": True, "standardFlowEnabled": False,
         "attributes": {"oauth2.device.authorization.grant.enabled": "true"}},
        {"clientId": "bank", "clientAuthenticatorType": "client-jwt",
         "redirectUris": ["https://bank.example.com/cb"],
         "attributes": {"use.jwks.url": "true", "jwks.url": "https://bank.example.com/jwks"}},
        {"clientId": "partner", "secret": SECRET, "consentRequired": True,
         "redirectUris": ["https://partner.example.com/cb"]},
        {"clientId": "api", "bearerOnly": True},
        {"clientId": "https://saml.example.com/metadata", "protocol": "saml",
         "redirectUris": ["https://saml.example.com/acs"],
         "attributes": {"saml.client.signature": "false", "saml_name_id_format": "email"}},
        *({"clientId": f"app{number}", "secret": SECRET,
           "redirectUris": [f"https://app{number}.example.com/cb"]}
          for number in range(CLIENTS - 9)),
    ]  # fmt: skip
