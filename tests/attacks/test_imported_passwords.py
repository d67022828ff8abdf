"""The attacker gains from passwords that were imported from another system.

It ends at bounds for what a hash may cost, at one cost for all wrong passwords, and at Argon2id
from the first sign-in on.
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from flask import Flask

from sso import clock
from sso.crypto import foreign_hashes, passwords
from sso.extensions import db
from sso.jobs import purge
from sso.models import ImportedHash
from sso.store import imported_hashes, users
from tests.support.actors import BASE, ORIGIN, Browser

OLD = "hunter2"  # short, and on every list
STORED = bcrypt.hashpw(OLD.encode(), b"$2b$04$" + b"." * 22).decode()
METHOD = "$bcrypt$r=4"
FILE = """
format = 1
[[users]]
email = "erin@example.com"
name = "Erin"
email_verified = true
password_hash = "{}"
"""


@pytest.fixture
def apply(app: Flask, tmp_path: Path) -> Callable[..., Any]:
    def run(stored: str, *options: str) -> Any:
        path = tmp_path / "sso.toml"
        path.write_text(FILE.format(stored))
        return app.test_cli_runner().invoke(args=["apply", str(path), *options])

    return run


def hash_of(app: Flask) -> str:
    with app.app_context():
        found = users.find_by_email("erin@example.com")
        assert found is not None
        return found.password_hash or ""


def test_it_is_replaced_at_the_first_sign_in(app: Flask, apply: Callable[..., Any]) -> None:
    assert "erin" in apply(STORED, "--plan").stdout
    with app.app_context():
        assert imported_hashes.methods() == set()
    assert apply(STORED).exit_code == 0
    assert hash_of(app).startswith(METHOD)
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    assert browser.sign_in("erin@example.com", "hunter3").status == 200
    assert hash_of(app).startswith(METHOD)
    assert browser.sign_in("erin@example.com", OLD).path.endswith("/account")
    assert hash_of(app).startswith(passwords.own_method())
    again = Browser(app)
    again.open(f"{ORIGIN}{BASE}/sign-in")
    assert again.sign_in("erin@example.com", OLD).path.endswith("/account")


def test_the_cost_is_that_of_all_imported_ones(
    app: Flask, apply: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert apply(STORED).exit_code == 0
    spent: list[tuple[set[str], str | None]] = []
    monkeypatch.setattr(
        foreign_hashes, "spend", lambda methods, done: spent.append((set(methods), done))
    )
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    for email in ("erin@example.com", "nobody@example.com"):
        assert browser.sign_in(email, "wrong").status == 200
    assert spent == [({METHOD}, METHOD), ({METHOD}, None)]


def test_a_method_is_forgotten_with_the_last_user(app: Flask, apply: Callable[..., Any]) -> None:
    assert apply(STORED).exit_code == 0
    with app.app_context():
        old = clock.now() - timedelta(days=2)
        db.session.add(ImportedHash(method="$bcrypt$r=40", imported_at=old))
        db.session.add(ImportedHash(method="$bcrypt$r=5", imported_at=clock.now()))
        row = db.session.get(ImportedHash, METHOD)
        assert row is not None
        row.imported_at = old
        db.session.commit()
        purge.purge()
        assert imported_hashes.methods() == {METHOD, "$bcrypt$r=5"}
        users.remove(users.find_by_email("erin@example.com"))  # type: ignore[arg-type]
        purge.purge()
        assert imported_hashes.methods() == {"$bcrypt$r=5"}


def test_bombs_and_weak_ones_are_refused(app: Flask, apply: Callable[..., Any]) -> None:
    for stored in (STORED.replace("$04$", "$31$"), "md5$abc$5f4dcc3b5aa765d61d8327deb882cf99"):
        done = apply(stored)
        assert done.exit_code == 1
        assert "erin@example.com" in done.stderr
        assert stored[8:] not in done.output


def test_no_file_makes_every_sign_in_slow(app: Flask, apply: Callable[..., Any]) -> None:
    """Each set of parameters of a memory-hard function is one more that all failures pay for."""
    with app.app_context():
        imported_hashes.note(
            [
                f"$argon2id$v=19$m={1024 * n},t=1,p=1"
                for n in range(1, 1 + foreign_hashes.MOST_MEMORY_HARD)
            ]
        )
        db.session.commit()
    done = apply("$argon2id$v=19$m=64,t=2,p=1$c2FsdHNhbHQ$" + "A" * 43)
    assert done.exit_code == 1
    assert "other sets of parameters" in done.stderr


def test_one_that_was_written_into_the_database_is_bounded(
    app: Flask, apply: Callable[..., Any]
) -> None:
    assert apply(STORED).exit_code == 0
    with app.app_context():
        found = users.find_by_email("erin@example.com")
        assert found is not None
        found.password_hash = "$argon2id$v=19$m=4194304,t=9,p=1$c2FsdHNhbHQ$" + "A" * 43
        db.session.commit()
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    assert browser.sign_in("erin@example.com", OLD).status == 200
