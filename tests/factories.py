"""Makes users and clients straight in the database."""

from typing import Any

from flask import Flask

from sso.cli.registration import create_user, register_client
from sso.extensions import db
from sso.models import User
from tests.actors import RelyingParty

PASSWORD = "correct horse battery"


def make_user(app: Flask, email: str = "dana@example.com", **more: Any) -> User:
    """A user with the password `PASSWORD`, committed."""
    usual: dict[str, Any] = {"name": "Dana Demo", "password": PASSWORD, "email_verified": True}
    with app.app_context():
        user = create_user(email=email, **(usual | more))
        db.session.commit()
        db.session.refresh(user)
        db.session.expunge(user)
        return user


def make_client(app: Flask, **more: Any) -> RelyingParty:
    """A registered application, ready to act; committed."""
    more = {"name": "Books", "redirect_uris": ["https://books.example/callback"]} | more
    with app.app_context():
        client, secret = register_client(**more)
        db.session.commit()
        return RelyingParty(app, client.client_id, secret, more["redirect_uris"][0])
