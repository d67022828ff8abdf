"""Makes users and clients straight in the database, with no events in the audit trail."""

from typing import Any
from uuid import UUID

from flask import Flask

from sso import audit, clock
from sso.crypto import keys
from sso.extensions import db
from sso.models import Client, SigningKey, User
from sso.services import accounts, apis, attributes, clients, signing_keys
from sso.store import apis as stored_apis
from sso.store.redemption import NewToken
from tests.support.actors import RelyingParty, pkce

PASSWORD = "correct horse battery"
_METADATA = {
    "name": "client_name",
    "auth_method": "token_endpoint_auth_method",
    "id_token_alg": "id_token_signed_response_alg",
}


def make_user(app: Flask, email: str = "dana@example.com", **more: Any) -> User:
    """A user with the password `PASSWORD`, committed."""
    usual: dict[str, Any] = {"name": "Dana Demo", "password": PASSWORD, "email_verified": True}
    with app.app_context():
        with audit.dry_run():
            user = accounts.create(audit.SYSTEM, email=email, **(usual | more))
        db.session.commit()
        db.session.refresh(user)
        db.session.expunge(user)
        return user


def make_client(app: Flask, **more: Any) -> RelyingParty:
    """A registered application, ready to act; committed. A public one does PKCE by itself."""
    more = {"name": "Books", "redirect_uris": ["https://books.example/callback"]} | more
    verifier = None
    if more.pop("public", False):
        more["auth_method"], verifier = "none", pkce()[0]
    with app.app_context():
        client, secret = register_client(**more)
        db.session.commit()
        uri = more["redirect_uris"][0] if more["redirect_uris"] else ""
        return RelyingParty(app, client.client_id, secret, uri, verifier)


def make_api(app: Flask, identifier: str = "https://docs.example", **more: Any) -> str:
    """Register an API, committed; return its identifier."""
    usual = {"name": "Documents", "scopes": {"read": "Read documents", "write": "Change documents"}}
    with app.app_context():
        with audit.dry_run():
            api, _ = apis.register(audit.SYSTEM, {"identifier": identifier, **usual, **more})
        db.session.commit()
        return api.identifier


def make_attribute(app: Flask, name: str, type: str = "string", **more: Any) -> None:
    """Define an attribute, committed."""
    with app.app_context():
        with audit.dry_run():
            attributes.define(audit.SYSTEM, {"name": name, "type": type, **more})
        db.session.commit()


def change_api(app: Flask, identifier: str, **fields: Any) -> None:
    """Change an API, or delete it with `deleted`; committed."""
    with app.app_context():
        api = stored_apis.find(identifier)
        assert api is not None
        with audit.dry_run():
            if fields.pop("deleted", False):
                apis.delete(audit.SYSTEM, api.api_id)
            else:
                apis.change(audit.SYSTEM, api.api_id, fields)
        db.session.commit()


def new_token(grant_id: UUID) -> NewToken:
    """The row of a token response without a refresh token, to be stored."""
    return NewToken(
        jti=keys.make_jti(),
        access_digest="",
        grant_id=grant_id,
        scope="openid",
        audience=None,
        is_narrowed=False,
        dpop_jkt=None,
        address=None,
        issued_at=clock.now(),
        expires_at=clock.now(),
        refresh_digest=None,
        refresh_expires_at=None,
    )


def register_client(**given: Any) -> tuple[Client, str]:
    """A client by its metadata and all else that is known of it; not committed."""
    more = {name: given.pop(name) for name in ("client_id", "secret") if name in given}
    fields = {_METADATA.get(name, name): value for name, value in given.items()}
    with audit.dry_run():
        return clients.register(audit.SYSTEM, fields, **more)


def ensure_keys(secret_keys: Any) -> bool:
    made = signing_keys.ensure(secret_keys)
    db.session.commit()
    return made


def rotate(secret_keys: Any, force: bool = False) -> None:
    signing_keys.rotate(audit.SYSTEM, secret_keys, force)
    db.session.commit()


def retire(kid: str, secret_keys: Any) -> SigningKey:
    key = signing_keys.retire(audit.SYSTEM, kid, secret_keys)
    db.session.commit()
    return key
