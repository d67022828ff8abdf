"""Bring a node's database into being, in this process: quicker than three commands."""

from pathlib import Path

from flask import Flask

from sso import create_app
from sso.extensions import db
from sso.store import migrations
from tests.production.people import CALLBACK, EMAIL, Person
from tests.support.factories import ensure_keys, make_client, make_user
from tests.support.processes import SECRET_KEY
from tests.support.servers import Node


def application(node: Node) -> Flask:
    """The application in this process, on the node's database."""
    environ = {name: v for name, v in node.environ.items() if name.startswith("SSO_")}
    return create_app(environ, Path(node.folder))


def migrate(node: Node) -> None:
    app = application(node)
    with app.app_context():
        migrations.upgrade()
        ensure_keys(SECRET_KEY)
        db.session.remove()
        db.engine.dispose()


def a_person(node: Node) -> Person:
    """A user and a client on a migrated database, ready to act on this node."""
    app = application(node)
    make_user(app, EMAIL)
    client = make_client(
        app,
        redirect_uris=[CALLBACK],
        first_party=True,
        scope="openid profile email offline_access",
    )
    with app.app_context():
        db.engine.dispose()
    return Person(node.base_url, client.client_id, client.client_secret)
