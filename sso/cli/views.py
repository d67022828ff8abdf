"""What commands show of clients, users, sessions and keys: never a secret or a digest."""

from typing import TYPE_CHECKING, Any

from sso import clock
from sso.cli.output import iso

if TYPE_CHECKING:
    from sso.models import BrowserSession, Client, Grant, SigningKey, User
    from sso.store.factors import Factors


def client(row: "Client") -> dict[str, Any]:
    """A client by RFC 7591 names, with our own beside them."""
    return {
        "client_id": row.client_id,
        "client_id_issued_at": clock.timestamp(row.created_at),
        **row.client_metadata,
        "first_party": row.first_party,
        "require_pkce": row.require_pkce,
        "require_mfa": row.require_mfa,
        "disabled": row.disabled_at is not None,
    }


def grant(row: "Grant") -> dict[str, Any]:
    """One approval; its user has to be loaded."""
    return {
        "user": row.user.email,
        "scope": row.scope,
        "sid": row.sid,
        "since": iso(row.created_at),
    }


def client_with_secret(row: "Client", secret: str) -> dict[str, Any]:
    """A client with the secret that is shown once (RFC 7591 §3.2.1)."""
    shown = client(row)
    return {
        "client_id": shown.pop("client_id"),
        "client_secret": secret,
        "client_id_issued_at": shown.pop("client_id_issued_at"),
        "client_secret_expires_at": 0,
        **shown,
    }


def user(row: "User") -> dict[str, Any]:
    return {
        "id": str(row.id),
        "email": row.email,
        "name": row.name,
        "email_verified": row.email_verified,
    }


def whole_user(row: "User") -> dict[str, Any]:
    return {
        **user(row),
        "groups": row.groups,
        "claims": row.claims,
        "disabled": row.disabled_at is not None,
        "created_at": iso(row.created_at),
    }


def session(row: "BrowserSession") -> dict[str, Any]:
    """A sign-in; `sid` is what identity tokens call it."""
    return {
        "sid": str(row.id),
        "signed_in_at": iso(row.auth_time),
        "last_seen_at": iso(row.last_seen_at),
        "expires_at": iso(row.expires_at),
        "address": row.address,
        "browser": row.browser,
    }


def factors(found: "Factors") -> list[dict[str, Any]]:
    """A user's second factors; recovery codes only by number."""
    shown = [
        {
            "kind": "passkey",
            "name": one.name,
            "since": iso(one.created_at),
            "last_used_at": iso(one.last_used_at),
        }
        for one in found.passkeys
    ]
    if found.totp:
        since, used = iso(found.totp.created_at), iso(found.totp.last_used_at)
        shown.append({"kind": "totp", "name": None, "since": since, "last_used_at": used})
    return shown


def key(row: "SigningKey") -> dict[str, Any]:
    return {
        "kid": row.kid,
        "alg": row.alg,
        "state": str(row.state),
        "created_at": iso(row.created_at),
        "activated_at": iso(row.activated_at),
        "retired_at": iso(row.retired_at),
    }
