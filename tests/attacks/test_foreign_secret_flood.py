"""The attacker sends wrong secrets for a client of which only another server's hash is stored.

Each check is slow, and waits for the others. Meanwhile everybody else is answered.
"""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from flask import Flask
from sqlalchemy import select

from sso import audit
from sso.crypto import foreign_hashes, passwords, secrets
from sso.extensions import db
from sso.models import ClientSecretHash
from sso.services import clients
from sso.store import clients as stored_clients
from tests.support.actors import BASE
from tests.support.factories import make_client

SECRET = "x" * 40
FLOOD = passwords.AT_ONCE


@pytest.fixture
def checks(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """A client with a foreign hash, whose checks wait for this event."""
    key = hashlib.pbkdf2_hmac("sha256", SECRET.encode(), b"saltsalt", 1000)
    salt, digest = foreign_hashes.encoded(b"saltsalt"), foreign_hashes.encoded(key)
    with app.app_context():
        clients.register(
            audit.operator(by="test"),
            {"client_name": "Wiki", "redirect_uris": ["https://wiki.example.com/cb"]},
            client_id="wiki",
            secret_hash=f"$pbkdf2-sha256$i=1000${salt}${digest}",
        )
        db.session.commit()
    go_on, verify = Event(), foreign_hashes.verify

    def slow(secret: str, stored: str) -> bool:
        assert go_on.wait(60)
        return verify(secret, stored)

    monkeypatch.setattr(foreign_hashes, "verify", slow)
    yield go_on
    go_on.set()


def post(app: Flask, path: str, client_id: str, secret: str) -> int:
    form = {"client_id": client_id, "client_secret": secret, "token": "x"}
    form |= {"grant_type": "refresh_token", "refresh_token": "x"} if path == "token" else {}
    return app.test_client().post(f"{BASE}/oauth2/{path}", data=form).status_code


@pytest.mark.parametrize("path", ["token", "introspect", "par", "device_authorization"])
def test_others_are_answered(app: Flask, checks: Event, path: str) -> None:
    other = make_client(app).client_id
    with ThreadPoolExecutor(FLOOD) as flood, ThreadPoolExecutor(1) as others:
        wrong = [flood.submit(post, app, path, "wiki", f"wrong {n}") for n in range(FLOOD)]
        try:
            assert others.submit(post, app, "token", other, "wrong").result(timeout=4) == 401
        finally:
            checks.set()
        assert {answer.result() for answer in wrong} == {401}


@pytest.mark.parametrize("is_first", [True, False])
def test_a_secret_that_was_changed_meanwhile_ends(
    app: Flask, checks: Event, is_first: bool
) -> None:
    """Before, the client was read before the check: an old secret was good until its end."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(post, app, "introspect", "wiki", SECRET)
        with pytest.raises(TimeoutError):
            answer.result(timeout=0.5)
        with app.app_context():
            if is_first:
                clients.rotate_secret(audit.operator(by="test"), "wiki")
            else:  # another request has stored its digest
                client = stored_clients.lock("wiki")
                assert client
                client.secret_digest = secrets.digest(SECRET)
                stored = db.session.scalars(select(ClientSecretHash)).one()
                stored.hash, stored.replaced_by = "", client.secret_digest
            db.session.commit()
        checks.set()
        assert answer.result() == (401 if is_first else 200)
