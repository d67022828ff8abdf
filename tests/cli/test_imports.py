"""`flask user import`: everybody once, with a report, and nobody over somebody who is there."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import audit
from sso.cli import imports
from sso.crypto import foreign_hashes
from sso.extensions import db
from sso.models import AuditEvent, Mail, User
from sso.services import accounts, importing
from sso.store import password_hashes, users
from tests.support.factories import make_user

STORED = bcrypt.hashpw(b"old password 1", b"$2b$04$" + b"." * 22).decode()
Import = Callable[..., Any]


def table(rows: Iterable[dict[str, Any]]) -> str:
    text = io.StringIO()
    names = ("id", "email", "name", "groups", "password_hash", "email_verified", "disabled")
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def person(number: int, **more: Any) -> dict[str, Any]:
    usual = {"id": number, "email": f"person{number}@example.com", "name": f"Person {number}"}
    return usual | {"password_hash": STORED, "email_verified": "1"} | more


@pytest.fixture
def run(app: Flask, tmp_path: Path) -> Import:
    def import_(rows: Iterable[dict[str, Any]] | str, *options: str, code: int = 0) -> Any:
        path = tmp_path / "people.csv"
        path.write_text(rows if isinstance(rows, str) else table(rows))
        done = app.test_cli_runner().invoke(
            args=["user", "import", "csv", str(path), "--json", *options]
        )
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    return import_


def found(app: Flask, email: str) -> User | None:
    with app.app_context():
        return users.find_by_email(email)


def count(app: Flask, table: type) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(table)) or 0


def test_everybody_once(
    app: Flask, run: Import, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(imports, "BATCH", 3)
    rows = [
        *(person(number, groups="staff") for number in range(6)),
        person(6, email="Person1@EXAMPLE.com"), person(7, email="nobody"),
        person(8, password_hash="md5$x$5f4dcc3b"), person(9, password_hash="", email_verified=""),
        person(10, disabled="true"), person(11, name="x" * 300), person(12, groups=' a ,"x'),
    ]  # fmt: skip
    planned = run(rows, "--plan")
    assert (count(app, User), count(app, AuditEvent)) == (0, 0)
    with app.app_context():
        assert not password_hashes.foreign_hash_methods()
    done = run(rows)
    assert "user_imported" not in caplog.text  # the trail has them; no log wants a million
    assert planned == {**done, "applied": False}
    assert (done["imported"], done["exists"], done["skipped"]) == (9, 0, 4)
    assert (done["without_password"], done["disabled"], done["email_not_verified"]) == (1, 1, 1)
    assert done["hashes"] == {"bcrypt$r=4": 8}
    assert done["groups"]["staff"] == 6
    reasons = {one["reason"]: one["examples"][0]["where"] for one in done["reasons"]["skipped"]}
    assert reasons == {
        "another in the file has the same email address": "line 8",
        "the email address is not valid": "line 9",
        "the password: md5 is not supported; argon2, bcrypt, PBKDF2 and scrypt are": "line 10",
        "the name is longer than 200 characters": "line 13",
    }
    with app.app_context():
        events = db.session.scalars(select(AuditEvent)).all()
        assert {event.name for event in events} == {"user_imported"}
        assert len({event.user_id for event in events}) == len(events) == 9
        assert '"source": "csv"' in events[0].fields
        assert db.session.scalar(select(func.count()).select_from(Mail)) == 0
        assert password_hashes.foreign_hash_methods() == {"$bcrypt$r=4"}
    again = run(rows)
    assert (again["imported"], again["exists"], again["skipped"]) == (0, 9, 4)
    assert count(app, AuditEvent) == 9
    off = found(app, "person10@example.com")
    assert off is not None
    assert off.disabled_at is not None
    dropped = run([rows[8]], "--drop-passwords")
    assert (dropped["imported"], dropped["without_password"]) == (1, 1)
    assert "md5" in dropped["left_out"][0]["reason"]


def test_it_goes_on_after_an_interruption(
    app: Flask, run: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "BATCH", 4)
    text = table(person(number) for number in range(10))
    broken = run(text + "x" * 200_000, code=1)
    assert (broken["imported"], broken["complete"]) == (10, False)
    broken = run(table(person(number) for number in range(10, 16)) + "a,b", code=0)
    assert broken["skipped"] == 1
    done = run(table(person(number) for number in range(18)))
    assert (done["imported"], done["exists"]) == (2, 16)


def test_who_changed_their_address_is_not_imported_again(app: Flask, run: Import) -> None:
    run([person(1)])
    with app.app_context():
        user = users.find_by_email("person1@example.com")
        assert user is not None
        user.email = "new@example.com"
        db.session.commit()
    done = run([person(1)])
    assert [one["reason"] for one in done["reasons"]["exists"]] == [importing.SAME_ID]
    assert run([person(1)], "--source", "other site")["imported"] == 1


def test_a_sign_up_at_the_same_moment_stays(
    app: Flask, run: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    existing = users.existing
    late: list[int] = []

    def and_then_somebody_signs_up(*given: Any) -> Any:
        answer = existing(*given)
        if not late:
            late.append(1)
            with app.app_context():
                accounts.create(audit.SYSTEM, email="person2@example.com", name="First")
                db.session.commit()
        return answer

    monkeypatch.setattr(users, "existing", and_then_somebody_signs_up)
    done = run([person(number, groups="staff,sso-helpdesk") for number in range(4)])
    assert (done["imported"], done["exists"]) == (3, 1)
    assert done["left_out"][0]["count"] == 3
    user = found(app, "person2@example.com")
    assert user is not None
    assert user.name == "First"


def test_no_file_takes_an_account_over(app: Flask, run: Import) -> None:
    """Neither by the address, in any spelling, nor by the id of an administrator."""
    admin = make_user(app, "root@example.com", groups=["sso-administrators"])
    before = admin.password_hash
    done = run([
        person(1, email="ROOT@Example.com", groups="other"),
        person(2, email="root2@example.com", id=str(admin.id), groups="sso-administrators"),
    ], "--allow-admins")  # fmt: skip
    assert (done["imported"], done["exists"]) == (0, 2)
    after = found(app, "root@example.com")
    assert after is not None
    assert (after.password_hash, after.groups) == (before, ["sso-administrators"])
    assert (after.version, after.id) == (admin.version, admin.id)


def test_no_file_makes_an_administrator_by_itself(app: Flask, run: Import) -> None:
    rows = [person(1, groups="staff,sso-administrators,sso-helpdesk"), person(2, groups="staff")]
    done = run(rows)
    user = found(app, "person1@example.com")
    assert user is not None
    assert user.groups == ["staff"]
    (left_out,) = done["left_out"]
    assert (left_out["reason"], left_out["count"]) == (importing.PRIVILEGED, 2)
    run([person(3, groups="sso-administrators")], "--allow-admins")
    deliberate = found(app, "person3@example.com")
    assert deliberate is not None
    assert deliberate.groups == ["sso-administrators"]


@pytest.mark.parametrize(("groups", "is_told"), [("staff", False), ("sso-helpdesk", True)])
def test_the_report_names_the_option(
    app: Flask, tmp_path: Path, groups: str, is_told: bool
) -> None:
    path = tmp_path / "people.csv"
    path.write_text(table([person(1, groups=groups)]))
    done = app.test_cli_runner().invoke(args=["user", "import", "csv", str(path), "--plan"])
    assert done.exit_code == 0, done.output
    assert ("are imported with --allow-admins" in done.stdout) == is_told


def test_no_file_fills_memory_or_the_terminal(
    app: Flask, run: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "MOST_GROUPS", 20)
    rows = [
        person(1, name="=cmd|' /C calc'!A0"), person(2, name="\x1b[2J"),
        person(3, groups="g" * 250),
        person(4, groups=",".join(f"g{n}" for n in range(30))),
        person(5, password_hash=STORED.replace("$04$", "$31$")),
        *(person(n, email=f"{n}\x1b@example.com") for n in range(6, 90)),
    ]  # fmt: skip
    done = run(rows)
    assert done["imported"] == 3
    formula = found(app, "person1@example.com")
    assert formula is not None
    assert formula.name == "=cmd|' /C calc'!A0"  # a text; our exports are not for spreadsheets
    assert len(done["reasons"]["skipped"]) <= 51
    many = found(app, "person4@example.com")
    assert many is not None
    assert len(many.groups) == importing.MOST_GROUPS
    path = tmp_path / "people.csv"
    shown = app.test_cli_runner().invoke(args=["user", "import", "csv", str(path), "--plan"])
    assert "\x1b" not in shown.output


def test_many_costs_are_too_many(app: Flask, run: Import) -> None:
    """Each is one more that every sign-in reads, or even pays for."""
    key = "A" * 43
    rows = [
        *(person(n, password_hash=f"$pbkdf2-sha256$i={n}$c2FsdHNhbHQ${key}") for n in range(1, 90)),
        *(person(n, password_hash=f"$argon2id$v=19$m={n},t=1,p=1$c2FsdHNhbHQ${key}")
          for n in range(90, 100)),
    ]  # fmt: skip
    assert run(reversed(rows))["imported"] == 64
    with app.app_context():
        known = password_hashes.foreign_hash_methods()
    assert len(known) == 64
    assert sum(map(foreign_hashes.is_memory_hard, known)) == foreign_hashes.MOST_MEMORY_HARD


def test_what_is_no_file(app: Flask, tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.csv", Path("/dev/null")):
        done = app.test_cli_runner().invoke(args=["user", "import", "csv", str(path)])
        assert done.exit_code == 1
        assert "cannot be read" in done.stderr


PEAK = """
import resource, sys
from flask.cli import main
sys.argv[0] = "flask"
try:
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    environ = {
        "PATH": "/usr/bin:/bin",
        "SSO_SECRET_KEY": "a secret key for tests, and for tests alone",
        "SSO_DATABASE_URL": f"sqlite:///{tmp_path / 'sso.db'}",
    }

    def flask(*arguments: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", PEAK, *arguments],
            env=environ, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return int(done.stderr.split()[-1])

    flask("db", "upgrade")
    peaks = []
    for many in (1000, 20_000):
        path = tmp_path / "people.json"
        with path.open("w") as file:
            file.write('{"users": [')
            for number in range(many):
                user = {"id": str(number), "email": f"p{number}@example.com", "note": "x" * 400}
                file.write("," * bool(number) + json.dumps(user))
            file.write("]}")
        peaks.append(flask("user", "import", "keycloak", str(path), "--plan"))
    assert peaks[1] - peaks[0] < 16_000, peaks  # KiB; the file has 9,000


def test_an_end(app: Flask, run: Import) -> None:
    rows = (
        "email,disabled,ends_at\n"
        "a@example.com,,2099-12-31T18:00+01:00\n"
        "b@example.com,yes,2020-01-01\n"
        "c@example.com,no,2020-01-01\n"
        "d@example.com,yes,soon\n"
        "e@example.com,,\n"
    )
    report = run(rows)
    assert report["imported"] == 3
    (skipped,) = report["reasons"]["skipped"]
    assert [each["detail"] for each in skipped["examples"]] == ["2020-01-01", "soon"]
    ends = {name: getattr(found(app, f"{name}@example.com"), "ends_at", "none") for name in "abcde"}
    assert ends == {
        "a": datetime(2099, 12, 31, 17, tzinfo=UTC),
        "b": datetime(2020, 1, 1, tzinfo=UTC),
        "c": "none",
        "d": "none",
        "e": None,
    }


def test_ends_of_memberships(app: Flask, run: Import) -> None:
    report = run(
        "email,groups,group_ends\n"
        'a@example.com,"staff,a=b","staff=2099-12-31T18:00+01:00, a=b=2099-01-01"\n'
        "b@example.com,staff,\n"
        'c@example.com,staff,"club=2099-01-01"\n'
        'd@example.com,staff,"staff=2020-01-01"\n'
        'e@example.com,staff,"staff=soon"\n'
        'f@example.com,staff,"staff"\n'
        'g@example.com,staff,"staff="\n'
        'h@example.com,sso-administrators,"sso-administrators=2099-01-01"\n'
    )
    assert report["imported"] == 4
    (skipped,) = report["reasons"]["skipped"]
    assert len(skipped["examples"]) == 4
    ends = {name: getattr(found(app, f"{name}@example.com"), "group_ends", "-") for name in "abcdh"}
    assert ends == {
        "a": {"staff": "2099-12-31T17:00:00Z", "a=b": "2099-01-01T00:00:00Z"},
        "b": None,
        "c": None,
        "d": "-",
        "h": None,  # who is not put into that group
    }
