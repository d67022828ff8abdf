"""Realms as `kc.sh export` of Keycloak 26.5 writes them, cut down to what is looked at."""

import base64
import hashlib
import json
from typing import Any
from uuid import UUID, uuid5

NAMESPACE = UUID("3f1d2c4e-0000-4000-8000-000000000001")
PASSWORD = "old password 1"
SECRET = "v6mUu3Dq0vXn9hQ7rT2yW8zB4cE1fG5k"  # as Keycloak makes them: 32 letters and digits
DEFAULT = ["web-origins", "acr", "profile", "roles", "basic", "email"]
OPTIONAL = ["address", "phone", "offline_access", "organization", "microprofile-jwt"]


def password(text: str = PASSWORD) -> dict[str, Any]:
    key = hashlib.pbkdf2_hmac("sha256", text.encode(), b"0123456789abcdef", 3, 64)
    secret = {"value": key, "salt": b"0123456789abcdef"}
    encoded = {name: base64.b64encode(raw).decode() for name, raw in secret.items()}
    data = {"hashIterations": 3, "algorithm": "pbkdf2-sha256", "additionalParameters": {}}
    return {"type": "password", "secretData": json.dumps(encoded),
            "credentialData": json.dumps(data)}  # fmt: skip


def user(name: str, **more: Any) -> dict[str, Any]:
    usual = {
        "id": str(uuid5(NAMESPACE, name)), "username": name, "email": f"{name}@example.com",
        "emailVerified": True, "enabled": True, "firstName": name.capitalize(), "lastName": "Doe",
        "credentials": [password()], "realmRoles": ["default-roles-acme"], "groups": [],
    }  # fmt: skip
    return usual | more


def client(client_id: str, attributes: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    usual = {
        "id": str(uuid5(NAMESPACE, f"client {client_id}")), "clientId": client_id, "enabled": True,
        "clientAuthenticatorType": "client-secret", "secret": SECRET,
        "redirectUris": [f"https://{client_id}.example.com/cb"], "webOrigins": ["+"],
        "bearerOnly": False, "consentRequired": False, "standardFlowEnabled": True,
        "implicitFlowEnabled": False, "directAccessGrantsEnabled": False,
        "serviceAccountsEnabled": False, "publicClient": False, "protocol": "openid-connect",
        "attributes": {"realm_client": "false", **(attributes or {})}, "fullScopeAllowed": True,
        "defaultClientScopes": DEFAULT, "optionalClientScopes": OPTIONAL,
    }  # fmt: skip
    return usual | more


def mapper(kind: str, name: str = "a mapper", **config: str) -> dict[str, Any]:
    tokens = {f"{token}.token.claim": "true" for token in ("id", "access", "userinfo")}
    named = {key.replace("__", "."): value for key, value in config.items()}
    return {"name": name, "protocol": "openid-connect", "protocolMapper": kind,
            "config": {**tokens, **named}}  # fmt: skip


def group(name: str, *inner: dict[str, Any], above: str = "", **more: Any) -> dict[str, Any]:
    usual = {"name": name, "path": f"{above}/{name}", "subGroups": [*inner], "attributes": {},
             "realmRoles": [], "clientRoles": {}}  # fmt: skip
    return usual | more


def realm(**more: Any) -> dict[str, Any]:
    usual = {
        "id": "4f93cffc", "realm": "acme", "keycloakVersion": "26.5.6",
        "defaultSignatureAlgorithm": "RS256",
        "roles": {
            "realm": [
                {"name": "default-roles-acme", "composite": True,
                 "composites": {"realm": ["offline_access", "uma_authorization"],
                                "client": {"account": ["view-profile"]}}},
                {"name": "offline_access"}, {"name": "uma_authorization"},
            ],
            "client": {"account": [{"name": "view-profile"}]},
        },
        "groups": [], "users": [],
        "clients": [client("account"), client("realm-management", bearerOnly=True)],
        "clientScopes": [],
    }  # fmt: skip
    return usual | more


def otp(secret: str = "nM0FUA4BPSFnwjO5MDm0", **data: Any) -> dict[str, Any]:
    usual = {"subType": "totp", "digits": 6, "counter": 0, "period": 30, "algorithm": "HmacSHA1"}
    return {"type": "otp", "userLabel": "Phone", "secretData": json.dumps({"value": secret}),
            "credentialData": json.dumps(usual | data)}  # fmt: skip


def passkey(credential_id: bytes, public_key: bytes, **data: Any) -> dict[str, Any]:
    usual = {
        "aaguid": "01020304-0506-0708-0102-030405060708", "counter": 1,
        "credentialId": base64.b64encode(credential_id).decode(),
        "credentialPublicKey": base64.urlsafe_b64encode(public_key).decode().rstrip("="),
        "attestationStatementFormat": "none", "transports": ["internal"],
    }  # fmt: skip
    return {"type": "webauthn-passwordless", "userLabel": "My key", "secretData": "{}",
            "credentialData": json.dumps(usual | data)}  # fmt: skip


def recovery_codes(*codes: str, algorithm: str = "SHA-512") -> dict[str, Any]:
    hashes = [
        {"number": number,
         "encodedHashedValue": base64.b64encode(hashlib.sha512(code.encode()).digest()).decode()}
        for number, code in enumerate(codes, 1)
    ]  # fmt: skip
    return {"type": "recovery-authn-codes", "secretData": json.dumps({"codes": hashes}),
            "credentialData": json.dumps({"algorithm": algorithm})}  # fmt: skip
