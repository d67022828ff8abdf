"""Attributes that sign-in providers write: typed, theirs alone, removed with the claim."""

import logging
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.flow.attributes import MAX_VALUES, Party
from sso.models import User
from sso.services import accounts, attributes, identities
from sso.store import users
from tests.support.events import events
from tests.support.factories import make_attribute, make_user
from tests.test_services import CORP, DANA

WRITERS = [Party.UPSTREAM, Party.ADMINISTRATOR]


@pytest.fixture
def dana(app: Flask) -> User:
    for name, kind in (
        ("team", "string"), ("level", "number"), ("external", "boolean"), ("since", "date"),
        ("skills", "list"),
    ):  # fmt: skip
        make_attribute(app, name, kind, writers=WRITERS)
    make_attribute(app, "plan", "choice", choices=["gold", "silver"], writers=[Party.UPSTREAM])
    make_attribute(app, "salary", "number")  # for administrators alone
    user = make_user(app, attributes={"salary": 1, "team": "Old"})
    with app.app_context():
        with audit.dry_run():
            identities.resolve(audit.USER, CORP, DANA)
        db.session.commit()
    return user


def says(app: Flask, **values: Any) -> dict[str, Any]:
    """The provider says so at a sign-in; return all values afterwards."""
    with app.app_context():
        answer = identities.resolve(audit.USER, CORP, replace(DANA, attributes=values))
        assert isinstance(answer, identities.SignIn)
        db.session.commit()
        user = users.find(answer.user.id)
        assert user
        return dict(user.attributes)


KEPT = {"salary": 1, "team": "Old"}


@pytest.mark.parametrize(
    ("name", "stated", "value"),
    [
        ("team", " Blue ", "Blue"), ("team", ["Blue"], "Blue"), ("team", None, None),
        ("team", "", None), ("team", [], None),
        ("level", 3, 3), ("level", "3", 3), ("level", ["2.5"], 2.5), ("level", 0, 0),
        ("external", False, False), ("external", "TRUE", True), ("external", ["false"], False),
        ("since", "2030-01-31", "2030-01-31"),
        ("skills", ["a", " b", "a"], ["a", "b"]), ("skills", "a, b", ["a, b"]),
        ("skills", [], None), ("plan", "gold", "gold"),
    ],
)  # fmt: skip
def test_values_fit_the_types(
    app: Flask, dana: User, name: str, stated: object, value: object
) -> None:
    after = says(app, **{name: stated})
    assert after.get(name) == value
    assert type(after.get(name)) is type(value)
    assert says(app, **{name: None}) == {key: text for key, text in KEPT.items() if key != name}


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("team", 3), ("team", True), ("team", ["a", "b"]), ("team", {"a": 1}), ("team", "x" * 2001),
        ("team", "a\nb"), ("team", "\0"), ("team", ["a", 3]), ("team", "x" * 10**6),
        ("level", "three"), ("level", True), ("level", 1e300), ("level", "9" * 400),
        ("level", float("nan")), ("external", 1), ("external", "yes"), ("since", "31.1.2030"),
        ("since", "2030-02-30"), ("skills", [1]), ("skills", {"a": "b"}),
        ("skills", ["y" * 201]), ("skills", [str(n) for n in range(101)]), ("plan", "Gold"),
        ("salary", 1000000), ("nothing", "x"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_left_out(
    app: Flask, dana: User, caplog: pytest.LogCaptureFixture, name: str, stated: object
) -> None:
    """The sign-in goes on, the other values are taken, and the log names no value."""
    with caplog.at_level(logging.WARNING, "sso.upstream"):
        after = says(app, **{name: stated, "since": "2029-01-01"} if name != "since" else
                     {name: stated})  # fmt: skip
    assert after == KEPT | ({} if name == "since" else {"since": "2029-01-01"})
    (line,) = [text for text in caplog.messages if "provider corp" in text]
    assert name in line
    assert len(line) < 400
    assert "1000000" not in line


def test_no_statement_changes_nothing(app: Flask, dana: User) -> None:
    """As at a recheck, or without the key in the file."""
    with app.app_context():
        identities.resolve(audit.USER, CORP, DANA)
        db.session.commit()
    assert says(app) == KEPT
    assert events(app, "user_changed") == []


def test_all_values_are_bounded_together(
    app: Flask, dana: User, caplog: pytest.LogCaptureFixture
) -> None:
    make_attribute(app, "notes", "list", writers=["administrator"])
    with app.app_context():
        notes = [f"{number:0190}" for number in range(84)]
        accounts.update(audit.Actor("olga"), dana.id, attributes={"notes": notes})
        db.session.commit()
        user = users.find(dana.id)
        assert user
        assert attributes._size(user.attributes) < MAX_VALUES
    after = says(app, team="x" * 1900, level=3)
    assert (after["team"], after.get("level")) == ("Old", None)
    assert f"longer than {MAX_VALUES} bytes" in caplog.text


def test_the_audit_trail_names_no_values(app: Flask, dana: User) -> None:
    says(app, team="Secret", level=3)
    (event,) = events(app, "user_changed")
    assert (event["attributes"], event["by"]) == ("level team", "corp")
    assert "Secret" not in str(event)
    says(app, team="Secret", level=3)
    assert len(events(app, "user_changed")) == 1
