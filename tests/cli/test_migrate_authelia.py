"""`flask migrate authelia`: the same secrets, passwords, codes and passkeys, under the subjects."""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest
from flask import Flask
from sqlalchemy import select

from sso.crypto import secrets as crypto_secrets
from sso.extensions import db
from sso.models import Client, ClientSecretHash, Consent, Passkey, TotpSecret, User
from tests.conftest import Clock
from tests.support.actors import BASE, Browser, RelyingParty, claims_of
from tests.support.authelia import (
    HANDLE,
    PASSWORD,
    SECRET,
    SUBJECT,
    TOTP_SECRET,
    client,
    configuration,
    database,
    totp_export,
    user,
    write,
)
from tests.support.authenticator import Authenticator
from tests.support.each import each
from tests.support.second_factors import code_of, sign_in_by_passkey

Run = Callable[..., Any]
IDENTIFIERS = {"identifiers": [
    {"service": "openid", "sector_id": "", "username": "dana", "identifier": SUBJECT},
]}  # fmt: skip


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    """Passkeys need a host with a name."""
    return make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}")


@pytest.fixture
def migrate(app: Flask, tmp_path: Path) -> Run:
    def run(*contents: Any, options: tuple[str, ...] = (), code: int = 0) -> Any:
        paths = [
            content if isinstance(content, Path) else write(tmp_path / f"{number}.yml", content)
            for number, content in enumerate(contents)
        ]
        done = app.test_cli_runner().invoke(
            args=["migrate", "authelia", *map(str, paths), "--json", *options]
        )
        assert done.exit_code == code, done.output
        return json.loads(done.stdout) if not code else done.stderr

    return run


def users(**people: Any) -> dict[str, Any]:
    return {"users": people or {"dana": user("dana")}}


def rows(app: Flask, table: type) -> list[Any]:
    with app.app_context():
        return list(db.session.scalars(select(table)))


def wiki(app: Flask, secret: str = SECRET) -> RelyingParty:
    return RelyingParty(app, "wiki", secret, "https://wiki.example.com/cb")


def lines(report: Any) -> list[tuple[str, str]]:
    return [(finding["fate"], finding["what"]) for finding in report["findings"]]


def test_nothing_changes_for_applications_and_people(
    app: Flask, browser: Browser, clock: Clock, migrate: Run, tmp_path: Path
) -> None:
    files = (
        configuration(client("wiki", consent_mode="implicit", grant_types=["authorization_code"])),
        users(), database(tmp_path / "db.sqlite3"),
    )  # fmt: skip
    planned = migrate(*files, options=("--plan",))
    assert rows(app, User) == rows(app, Client) == []
    report = migrate(*files)
    assert {**planned, "applied": True} == report
    assert report["people"]["factors"] == {"authenticator apps": 1, "consents": 1}
    browser.authorize(wiki(app))
    browser.sign_in(password=PASSWORD)
    page = browser.submit(code=code_of(TOTP_SECRET))
    tokens = wiki(app).exchange(page.code).get_json()
    claims = claims_of(tokens["id_token"])
    assert (claims["sub"], claims["preferred_username"]) == (SUBJECT, "dana")
    assert (claims["email"], claims["email_verified"]) == ("dana@example.com", True)


def test_the_hash_of_a_secret_is_replaced_when_it_is_used(app: Flask, migrate: Run) -> None:
    files = (configuration(client("wiki", grant_types=["client_credentials"])), users())
    migrate(*files)
    assert wiki(app, "wrong" * 9).introspect("x").status_code == 401
    [stored] = rows(app, ClientSecretHash)
    assert (stored.hash[:15], stored.replaced_by) == ("$pbkdf2-sha512$", None)
    assert wiki(app, stored.digest).introspect("x").status_code == 401
    assert wiki(app, stored.hash).introspect("x").status_code == 401
    assert wiki(app).introspect("x").status_code == 200
    [registered] = rows(app, Client)
    assert registered.secret_digest == crypto_secrets.digest(SECRET)
    [stored] = rows(app, ClientSecretHash)
    assert (stored.hash, stored.replaced_by) == ("", registered.secret_digest)
    assert wiki(app).introspect("x").status_code == 200
    assert wiki(app, "wrong" * 9).introspect("x").status_code == 401
    assert migrate(*files)["clients"] == {"wiki": "same"}
    other = client("wiki", grant_types=["client_credentials"], client_secret=SECRET + "!")
    assert migrate(configuration(other), users())["clients"] == {"wiki": "changed"}
    assert wiki(app).introspect("x").status_code == 401
    assert wiki(app, SECRET + "!").introspect("x").status_code == 200
    assert migrate(*files)["clients"] == {"wiki": "changed"}  # back to the hash
    assert wiki(app).introspect("x").status_code == 200


def test_a_short_secret_keeps_its_slow_hash(app: Flask, migrate: Run) -> None:
    key = hashlib.pbkdf2_hmac("sha256", b"short", b"saltsalt", 1000)
    encoded = base64.b64encode(key).decode().rstrip("=").replace("+", ".")
    short = f"$pbkdf2-sha256$1000${base64.b64encode(b'saltsalt').decode().rstrip('=')}${encoded}"
    migrate(configuration(client("wiki", client_secret=short)), users())
    for _ in range(2):
        assert wiki(app, "short").introspect("x").status_code == 200
    [stored] = rows(app, ClientSecretHash)
    assert (len(stored.hash) > 60, stored.replaced_by) == (True, None)


def test_guesses_at_a_hash_are_limited_before_they_cost(app: Flask, migrate: Run) -> None:
    migrate(configuration(client("wiki")), users())
    statuses = [wiki(app, f"wrong {n}").introspect("x").status_code for n in range(25)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert wiki(app).introspect("x").status_code == 429


def test_a_rotated_secret_ends_the_hash(app: Flask, migrate: Run) -> None:
    migrate(configuration(client("wiki")), users())
    runner = app.test_cli_runner()
    kept = runner.invoke(args=["client", "rotate-secret", "wiki", "--keep-old", "1"])
    assert kept.exit_code == 0, kept.output
    assert wiki(app).introspect("x").status_code == 200  # the old one, for an hour
    assert runner.invoke(args=["client", "rotate-secret", "wiki"]).exit_code == 0
    assert wiki(app).introspect("x").status_code == 401


def test_a_passkey_of_authelia_signs_in(
    app: Flask, browser: Browser, clock: Clock, migrate: Run, tmp_path: Path
) -> None:
    key = Authenticator()
    key.create({"user": {"id": ""}, "challenge": "x"})
    key.handle = base64.urlsafe_b64encode(HANDLE.encode()).decode().rstrip("=")
    key.count = 1
    point = key.key.public_key().public_numbers()
    cose = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32), -3: point.y.to_bytes(32)}
    row = {"kid": base64.b64encode(key.id).decode(), "public_key": cbor2.dumps(cose)}
    report = migrate(configuration(), users(), database(tmp_path / "db", key=row))
    assert report["people"]["factors"]["passkeys and security keys"] == 1
    browser.open(f"{BASE}/sign-in")
    assert sign_in_by_passkey(browser, key).path.endswith("/account")
    for change in ({"rpid": "other.example"}, {"legacy": 1}):
        planned = migrate(users(), database(tmp_path / "db", key={**row, **change}),
                          options=("--plan", "--source", "other"))  # fmt: skip
        assert planned["people"]["factors"] == {}


@each(
    "files, options, factors, left_out",
    {
        "exported": ((totp_export(), IDENTIFIERS), (), {"authenticator apps": 1}, []),
        "an app of no use": ((totp_export(secret="!"),), (), {}, ["authenticator apps that are "
                             "not TOTP with 6 digits, 30 seconds and SHA-1"]),
        "another person's": ((totp_export("erin"),), (), {}, []),
    }.values(),
)  # fmt: skip
def test_exports(
    files: Any, options: Any, factors: Any, left_out: Any, app: Flask, migrate: Run
) -> None:
    report = migrate(users(), *files, options=("--plan", *options))["people"]
    assert report["factors"] == factors
    assert [entry["reason"] for entry in report["left_out"]] == left_out


@each(
    "key, version",
    {"none": ("", 15), "another": ("another key", 15), "newer": ("", 26)}.values(),
)
def test_a_database_that_cannot_be_decrypted(
    key: str, version: int, app: Flask, migrate: Run, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("KEY", key)
    options = ("--encryption-key", "env:KEY") if key else ()
    stored = database(tmp_path / "db", version=version)
    report = migrate(users(), stored, options=("--plan", *options))
    assert report["people"]["factors"] == {}  # nor consents, without their client
    assert "encryption key" in report["people"]["left_out"][0]["reason"]
    assert ("not_taken", "") in lines(report) or version == 15


def test_the_key_of_an_option(
    app: Flask, migrate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "a_very_long_encryption_key_123")
    migrate(users(), database(tmp_path / "db"), options=("--encryption-key", "env:KEY"))
    assert len(rows(app, TotpSecret)) == 1


def test_what_changed_there_is_brought(app: Flask, migrate: Run) -> None:
    migrate(configuration(client("wiki")), users(), IDENTIFIERS)
    people = users(dana=user("dana", groups=["ops"], displayname="Dana D."), erin=user("erin"))
    changed = client("wiki", redirect_uris=["https://wiki.example.com/new"])
    report = migrate(configuration(changed), people, IDENTIFIERS)
    assert report["clients"] == {"wiki": "changed"}
    assert report["people"]["updates"] == {"changed": 1}
    assert report["people"]["imported"] == 1
    names = {person.email: person.name for person in rows(app, User)}
    assert names == {"dana@example.com": "Dana D.", "erin@example.com": "Erin"}


def test_without_subjects_it_asks(app: Flask, migrate: Run) -> None:
    assert ("question", "") in lines(migrate(users(), options=("--plan",)))
    assert ("question", "") not in lines(migrate(users(), IDENTIFIERS, options=("--plan",)))


def test_administrators_come_without_their_rights(app: Flask, migrate: Run) -> None:
    files = (users(dana=user("dana", groups=["sso-administrators", "dev"])), IDENTIFIERS)
    migrate(*files)
    [dana] = rows(app, User)
    assert dana.groups == ["dev"]


def test_administrators_are_taken_if_the_operator_says_so(app: Flask, migrate: Run) -> None:
    people = users(dana=user("dana", groups=["sso-administrators", "dev"]))
    migrate(people, IDENTIFIERS, options=("--allow-admins",))
    [dana] = rows(app, User)
    assert sorted(dana.groups) == ["dev", "sso-administrators"]


def test_consents_that_last_are_taken(app: Flask, migrate: Run, tmp_path: Path) -> None:
    clients = configuration(client("wiki"), client("blog"))
    migrate(clients, users(), database(tmp_path / "db"))
    assert [(row.client_id, row.scope) for row in rows(app, Consent)] == [("wiki", "openid email")]
    assert rows(app, Passkey) == []


@each(
    "files, error",
    {
        "truncated": (('{"users": {"dana"',), "it is not YAML"),
        "nothing of Authelia": (("a: 1",), "is neither a configuration"),
        "a list": (("[1, 2]",), "is neither a configuration"),
        "only exports": ((IDENTIFIERS,), "no file is a configuration or a users file"),
        "a person twice": (("users: {dana: {}, dana: {}}",), "is there twice"),
        "a client twice": ((configuration(client("a"), client("a")),), "the client a twice"),
        "templates": (("users:\n  dana:\n    password: {{ secret \"/run/x\" }}\n",),
                      "template filters"),
        "a bomb": (("users: {}\na0: &a0 x\n" + "".join(
            f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),),
            "values, aliases included"),
        "an alias of itself": (("users: &a {dana: *a}",), "stands for nothing"),
        "no text": (("users: {dana: \"\0\"}",), "it is not YAML"),
        "many groups": ((users(dana=user("dana", groups=[f"g{n}" for n in range(20_001)])),),
                        "more than 20000 groups"),
        "a broken database": (("SQLite format 3\0 and then nothing",), "cannot be read"),
    }.values(),
)  # fmt: skip
def test_files_that_are_refused(files: Any, error: str, app: Flask, migrate: Run) -> None:
    assert error in migrate(*files, code=1)
    assert rows(app, User) == rows(app, Client) == []


def test_people_that_cannot_be_taken(app: Flask, migrate: Run) -> None:
    report = migrate(users(
        dana=user("dana"), twin=user("twin", email="DANA@example.com"),
        nobody=user("nobody", email=""), old=user("old", password="$1$abc$def"),
        weak=user("weak", password="$argon2id$v=19$m=4194304,t=9,p=4$c2FsdHNhbHQ$" + "A" * 43),
        odd="not an object", зоя=user("zoé", displayname="Зоя 李", groups=["Ünïts", ""]),
    ))["people"]  # fmt: skip
    assert (report["imported"], report["skipped"]) == (2, 5)
    zoe = next(person for person in rows(app, User) if person.name == "Зоя 李")
    assert (zoe.claims["preferred_username"], zoe.groups) == ("зоя", ["Ünïts"])
