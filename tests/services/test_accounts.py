"""What an account needs to be made, and what a directory may change of it."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from flask import Flask

from sso import audit
from sso.config.upstream.provider import Provider
from sso.extensions import db
from sso.imports.person import Person
from sso.models import User
from sso.services import accounts, checks, identities, importing
from sso.services.checks import Invalid
from sso.store import users
from sso.upstream.identity import UpstreamIdentity
from tests.conftest import Clock
from tests.scim.conftest import USER, Provisioner, make_token
from tests.support.factories import PASSWORD, make_user

THERE = UpstreamIdentity("x", "1", "there@example.com", email_verified=True, name="Dana There")


@pytest.mark.parametrize(
    ("more", "errors"),
    [
        ({"password": "password"}, 1),
        ({"email": "nobody"}, 1),
        ({"email": "nobody", "password": "password"}, 2),
        ({"name": "", "password": PASSWORD}, 1),
    ],
)
def test_all_that_is_wrong_with_a_new_account_is_said_at_once(
    app: Flask, more: dict[str, str], errors: int
) -> None:
    usual: dict[str, Any] = {"email": "new@example.com", "name": "New", "password": PASSWORD}
    with app.app_context():
        with pytest.raises(Invalid) as refusal:
            accounts.create(audit.SYSTEM, **(usual | more))
        assert len(refusal.value.errors) == errors
        db.session.rollback()
        assert users.find_by_email("new@example.com") is None
        assert accounts.create(audit.SYSTEM, **usual)


LIVES_BY_IT: dict[str, Any] = {"password_hash": None, "user_name": None, "external_id": None}


@pytest.mark.parametrize(
    ("values", "identity", "changed"),
    [
        ({}, {}, ("Dana There", "there@example.com")),
        ({"password_hash": "x"}, {}, ()),
        ({"user_name": "dana"}, {}, ()),  # SCIM's word goes before it
        ({"external_id": "7"}, {}, ()),
        ({}, {"email_verified": False}, ("Dana There",)),
        ({}, {"email": None}, ("Dana There",)),
        ({}, {"email": "taken@example.com"}, ("Dana There",)),
        ({}, {"email": "a@elsewhere.example"}, ("Dana There",)),
        ({}, {"name": ""}, ("there@example.com",)),
    ],
)
def test_what_a_directory_changes(
    app: Flask, user: User, values: dict[str, Any], identity: dict[str, Any], changed: Any
) -> None:
    make_user(app, "taken@example.com")
    directory = SimpleNamespace(
        REDIRECTS=False, groups={}, id="corp",
        vouches_for=lambda email: email.endswith("@example.com"),
    )  # fmt: skip
    with app.app_context():
        dana = db.session.get_one(User, user.id)
        for name, value in {**LIVES_BY_IT, **values}.items():
            setattr(dana, name, value)
        db.session.commit()
        found = replace(THERE, **identity)
        identities.take_over_profile(audit.SYSTEM, cast(Provider, directory), dana, found)
        before = ("Dana Demo", "dana@example.com")
        assert {dana.name, dana.email} - set(before) == set(changed)


# Claims with a format (OIDC Core §5.1), on every surface that takes them.


def _each(names: Iterable[str], values: list[str]) -> dict[str, list[str]]:
    return dict.fromkeys(names, values)


BAD: dict[str, list[str]] = {
    **_each(
        ("profile", "picture", "website"),
        ["javascript:alert(1)", "JavaScript:alert(1)", " javascript:alert(1)", "data:text/html,x",
         "java\nscript:alert(1)", "ftp://x.example/", "//x.example/", "x.example", "https://",
         "https://user@x.example/", "https:x", "file:///etc/passwd", "vbscript:x"],
    ),
    "birthdate": ["tomorrow", "2026-13-01", "2026-02-30", "1990-1-1", "90-01-01", "1990-01",
                  "01.02.1990", "2030-01-01", "2027", "0000", "0000-02-30", "1990-01-01T00:00:00Z",
                  "\u0661\u0669\u0669\u0660", "-001-01-01", " 1990", "1990\n", "1990-00-01"],
    "zoneinfo": ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "Europe", "UTC+1", "x" * 999,
                 "Europe/Berlin\n"],
    "locale": ["klingon language", "de;q=1", "d", "../de", "de-", "de_DE.UTF-8", "x" * 9, "de\n"],
}  # fmt: skip
GOOD: dict[str, list[str]] = {
    **_each(
        ("profile", "picture", "website"),
        ["https://x.example/a?b=c#d", "http://x.example", "HTTPS://x.example:8443/%C3%A9"],
    ),
    "birthdate": ["1990-01-31", "0000-02-29", "0000-12-31", "1990", "2026", "1904-02-29"],
    "zoneinfo": ["Europe/Berlin", "UTC", "America/Argentina/Ushuaia"],
    "locale": ["de", "pt-BR", "zh-Hant-TW", "en_US", "gsw"],
}
SCIM = {"locale": "locale", "zoneinfo": "timezone"}
CASES = [(name, value) for name, values in BAD.items() for value in values]


def test_formats() -> None:
    for name, value in CASES:
        assert checks.claim_errors({name: value}), (name, value)
    for name, values in GOOD.items():
        assert checks.claim_errors({name: None}) == []
        for value in values:
            assert checks.claim_errors({name: value}) == [], (name, value)


def test_today_is_not_the_future(clock: Clock) -> None:
    """A day begins in the east while it is the day before in UTC; the clock stands at noon."""
    for value, is_accepted in (("2026-11-21", True), ("2026-11-22", True), ("2026-11-23", False)):
        assert bool(checks.claim_errors({"birthdate": value})) != is_accepted, value


@pytest.mark.parametrize("name", BAD)
def test_every_surface_refuses(app: Flask, tmp_path: Path, name: str) -> None:
    value, user = BAD[name][0], make_user(app)
    run = app.test_cli_runner().invoke
    claim = f"{name}={value}"
    updated = run(args=["user", "update", str(user.id), "--claim", claim])
    assert f"the claim {name!r} is refused" in updated.output
    created = run(
        args=["user", "create", "--email", "e@x.ch", "--name", "E", "--claim", claim],
        input="a long pass phrase here\n" * 2,
    )
    assert f"the claim {name!r} is refused" in created.output
    declaration = tmp_path / "users.toml"
    declaration.write_text(
        'format = 1\n[[users]]\nemail = "e@x.ch"\nname = "E"\n'
        f"claims = {{ {name} = {json.dumps(value)} }}\n"
    )
    applied = run(args=["apply", str(declaration)])
    assert f"the claim {name!r} is refused" in applied.output
    with app.app_context():
        person = Person(email="i@x.ch", name="I", claims={name: value}, where="line 1")
        (outcome,) = importing.add(audit.SYSTEM, [person], importing.Rules("x"))
        assert f"the claim {name}, which is not valid" in outcome.left_out
        db.session.rollback()
        with pytest.raises(Invalid, match="is refused"):
            accounts.update(audit.SYSTEM, user.id, claims={name: value})
        db.session.rollback()
        kept = users.find(user.id)
        assert kept is not None
        assert kept.claims == {}


def claims_of(app: Flask, user_id: str) -> dict[str, Any]:
    with app.app_context():
        user = users.find(UUID(user_id))
        assert user is not None
        return user.claims


@pytest.mark.slow
@pytest.mark.parametrize("name", SCIM)
def test_scim_keeps_what_no_claim_can_be(app: Flask, name: str) -> None:
    """The text of a directory that has others, such as the time zone PST, is no reason to fail."""
    scim = Provisioner(app, make_token(app, "scim:write"))
    made, attribute = scim.user(), SCIM[name]
    path, body = f"/Users/{made['id']}", {"schemas": [USER], "userName": "erin@example.com"}
    right = GOOD[name][0]
    for value in BAD[name]:
        if not value.isprintable() or len(value) > 255:
            assert scim("PUT", path, {**body, attribute: value}).status_code == 400
            continue
        assert scim("PUT", path, {**body, attribute: value}).get_json()[attribute] == value
        assert claims_of(app, made["id"]) == {}
        patch = {"op": "replace", "path": attribute, "value": right}
        assert scim.patch(path, patch).get_json()[attribute] == right
        assert claims_of(app, made["id"]) == {name: right}
        answer = scim.patch(path, {**patch, "value": value})
        assert answer.get_json()[attribute] == scim.get(path)[attribute] == value
        assert claims_of(app, made["id"]) == {}
        assert attribute not in scim.patch(path, {"op": "remove", "path": attribute}).get_json()


@pytest.mark.slow
def test_scim_refuses_urls(app: Flask) -> None:
    scim = Provisioner(app, make_token(app, "scim:write"))
    name, attribute, made = "profile", "profileUrl", scim.user()
    path, body = f"/Users/{made['id']}", {"schemas": [USER], "userName": "erin@example.com"}
    for value in BAD[name]:
        attempts: list[tuple[str, str, Any]] = [
            ("POST", "/Users", {**body, "userName": "f@x.ch", attribute: value}),
            ("PUT", path, {**body, attribute: value}),
        ]
        for method, url, sent in attempts:
            answer = scim(method, url, sent)
            found = (answer.status_code, answer.get_json().get("scimType"))
            assert found == (400, "invalidValue"), (value, answer.text)
        for operation in ({"path": attribute, "value": value}, {"value": {attribute: value}}):
            assert scim.patch(path, {"op": "add", **operation}).status_code == 400
    assert scim.get(path) == made
    for value in GOOD[name]:
        answer = scim.patch(path, {"op": "replace", "path": attribute, "value": value})
        assert answer.get_json()[attribute] == value


def test_what_is_there_from_before_may_stay_and_go(app: Flask) -> None:
    dana = make_user(app)
    with app.app_context():
        row = db.session.get(User, dana.id)
        assert row is not None
        row.claims = {"profile": "javascript:alert(1)", "birthdate": "tomorrow"}
        db.session.commit()
    run = app.test_cli_runner().invoke
    assert run(args=["user", "update", str(dana.id), "--claim", "nickname=D"]).exit_code == 0
    assert run(args=["user", "update", str(dana.id), "--claim", "profile="]).exit_code == 0
    with app.app_context():
        row = db.session.get(User, dana.id)
        assert row is not None
        assert row.claims == {"birthdate": "tomorrow", "nickname": "D"}


def test_claims_from_before_the_formats_may_stay(app: Flask, tmp_path: Path) -> None:
    """A file that has them, too, changes other fields; but nobody new gets them."""
    make_user(app, "old@example.com")
    with app.app_context():
        old = users.find_by_email("old@example.com")
        assert old is not None
        old.claims = {"website": "example.com", "locale": "klingon language"}
        db.session.commit()
    path = tmp_path / "sso.json"

    def apply(**more: Any) -> int:
        person = {"email": "old@example.com", **more}
        path.write_text(json.dumps({"format": 1, "users": [person]}))
        return app.test_cli_runner().invoke(args=["apply", str(path)]).exit_code

    kept = {"website": "example.com", "locale": "klingon language"}
    assert apply(name="New", claims=kept) == 0
    assert apply(name="Newer", claims={**kept, "website": "example.org"}) == 1
    assert apply(name="Newer", claims={"website": "example.com"}) == 0
    assert apply(claims=kept) == 1  # it was removed
    with app.app_context():
        now = users.find_by_email("old@example.com")
        assert now is not None
        assert (now.name, now.claims) == ("Newer", {"website": "example.com"})
