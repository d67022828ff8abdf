"""The attacker gains from passwords that were imported from another system.

It ends at bounds for what a hash may cost, at one cost for all wrong passwords, and at Argon2id
from the first sign-in on.
"""

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from flask import Flask

from sso import clock
from sso.checkup import components
from sso.checkup.finding import Status
from sso.crypto import foreign_hashes, passwords
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import ImportedHash
from sso.store import password_hashes, users
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
        assert password_hashes.foreign_hash_methods() == set()
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
        upkeep.purge()
        assert password_hashes.foreign_hash_methods() == {METHOD, "$bcrypt$r=5"}
        users.remove(users.find_by_email("erin@example.com"))  # type: ignore[arg-type]
        upkeep.purge()
        assert password_hashes.foreign_hash_methods() == {"$bcrypt$r=5"}


def test_bombs_and_weak_ones_are_refused(app: Flask, apply: Callable[..., Any]) -> None:
    for stored in (STORED.replace("$04$", "$31$"), "md5$abc$5f4dcc3b5aa765d61d8327deb882cf99"):
        done = apply(stored)
        assert done.exit_code == 1
        assert "erin@example.com" in done.stderr
        assert stored[8:] not in done.output


def test_no_file_makes_every_sign_in_slow(app: Flask, apply: Callable[..., Any]) -> None:
    """Each set of parameters of a memory-hard function is one more that all failures pay for."""
    with app.app_context():
        password_hashes.note_foreign_hashes(
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


KEY = "A" * 43
BCRYPT, PBKDF2, ARGON = "$bcrypt$r=12", "$pbkdf2-sha256$i=900000", "$argon2id$v=19$m=64,t=2,p=1"
# By method: the seconds of a check.
COSTS = {BCRYPT: 0.6, "$bcrypt$r=13": 1.2, PBKDF2: 0.5, ARGON: 0.3}
HASHES = {
    BCRYPT: STORED.replace("$04$", "$12$"),
    "$bcrypt$r=13": STORED.replace("$04$", "$13$"),
    PBKDF2: f"{PBKDF2}$c2FsdHNhbHQ${KEY}",
    ARGON: f"{ARGON}$c2FsdHNhbHQ${KEY}",
}


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine takes `COSTS`."""

    def measured(method: str) -> float:
        if method == "$bcrypt$r=8":
            return COSTS[BCRYPT] / 2**4
        return COSTS[ARGON] if method == ARGON else COSTS[PBKDF2] / 18

    foreign_hashes._of_round.cache_clear()
    monkeypatch.setattr(foreign_hashes, "_measured", measured)
    yield
    foreign_hashes._of_round.cache_clear()


@pytest.fixture
def import_(app: Flask, tmp_path: Path) -> Callable[..., Any]:
    """Import one person for each of these methods, in this order."""

    def run(methods: list[str], *options: str) -> Any:
        path = tmp_path / "people.csv"
        lines = [f"p{method.strip('$').replace('$', '-').replace('=', '-').replace(',', '-')}"
                 f"@example.com,Person,\"{HASHES[method]}\"" for method in methods]  # fmt: skip
        path.write_text("\n".join(["email,name,password_hash", *lines]))
        arguments = ["user", "import", "csv", str(path), "--json", *options]
        done = app.test_cli_runner().invoke(args=arguments)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return run


def methods_of(app: Flask) -> set[str]:
    with app.app_context():
        return set(password_hashes.foreign_hash_methods())


@pytest.mark.usefixtures("costs")
@pytest.mark.parametrize("options", [(), ("--plan",)])
def test_all_methods_together_take_a_second_at_most(
    app: Flask, import_: Callable[..., Any], options: tuple[str, ...]
) -> None:
    """In any order of the file, the slowest ones lose their passwords."""
    done = import_(["$bcrypt$r=13", BCRYPT, PBKDF2, ARGON], *options)
    assert (done["imported"], done["without_password"], done["too_slow"]) == (4, 2, 2)
    assert [(one["count"], one["examples"][0]["email"]) for one in done["left_out"]] == [
        (1, "pbcrypt-r-13@example.com"),
        (1, "pbcrypt-r-12@example.com"),
    ]
    assert "--slow-passwords" in done["left_out"][0]["reason"]
    assert methods_of(app) == (set() if options else {PBKDF2, ARGON})


@pytest.mark.usefixtures("costs")
def test_imports_count_together(
    app: Flask, import_: Callable[..., Any], apply: Callable[..., Any]
) -> None:
    assert import_([BCRYPT])["too_slow"] == 0
    assert import_([PBKDF2])["too_slow"] == 1
    assert import_([ARGON])["too_slow"] == 0
    assert methods_of(app) == {BCRYPT, ARGON}
    refused = apply(HASHES[PBKDF2])
    assert refused.exit_code == 1
    assert "--slow-passwords" in refused.stderr
    # What costs nothing more is accepted: a lower cost of the same function.
    assert apply(STORED).exit_code == 0
    assert methods_of(app) == {BCRYPT, ARGON, METHOD}


@pytest.mark.usefixtures("costs")
def test_an_operator_may_insist(
    app: Flask, import_: Callable[..., Any], apply: Callable[..., Any]
) -> None:
    done = import_(["$bcrypt$r=13", ARGON], "--slow-passwords")
    assert (done["too_slow"], done["without_password"]) == (0, 0)
    assert apply(HASHES[PBKDF2], "--slow-passwords").exit_code == 0
    assert methods_of(app) == {"$bcrypt$r=13", ARGON, PBKDF2}
    with app.app_context():
        (finding,) = components.imported_passwords()
    assert (finding.status, "2000 ms" in str(finding.seen)) == (Status.WARNING, True)
    assert import_([BCRYPT])["too_slow"] == 0  # nothing more


def test_the_sum_is_what_is_spent() -> None:
    """Measured in turns; the machine may be busy, so only roughly."""
    methods = [BCRYPT.replace("12", "9"), "$bcrypt$r=6", "$pbkdf2-sha256$i=40000",
               "$pbkdf2-sha1$i=40000", "$argon2id$v=19$m=8192,t=2,p=1"]  # fmt: skip
    expected = foreign_hashes.seconds(methods)
    began = time.process_time()
    foreign_hashes.spend(methods, None)
    assert expected / 3 < time.process_time() - began < expected * 3
    assert foreign_hashes.seconds([]) == 0


def test_doctor_says_what_it_costs(app: Flask, apply: Callable[..., Any]) -> None:
    def seen() -> tuple[Status, str]:
        with app.app_context():
            (finding,) = components.imported_passwords()
        return finding.status, str(finding.seen)

    assert seen() == (Status.OK, "no hashes of other systems are left")
    assert apply(STORED).exit_code == 0
    status, text = seen()
    assert status == Status.OK
    assert "bcrypt$r=4" in text
