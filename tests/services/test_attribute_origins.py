"""Who set an attribute: noted by each writer, kept until it changes, shown in the preview."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.audit import Actor
from sso.config.upstream.file import Upstreams
from sso.extensions import db
from sso.flow.attributes import WRITERS, origins_after
from sso.imports.person import Person
from sso.models import User
from sso.services import accounts, attributes, identities, importing, preview
from sso.store import attributes as stored
from sso.store import users
from tests.support.administration import ADMINS, HELPDESK, staff_of
from tests.support.factories import make_attribute, make_client, make_user
from tests.test_services import CORP, DANA

NAME = "department"


@pytest.fixture
def dana(app: Flask) -> User:
    make_attribute(app, NAME, writers=list(WRITERS), at_sign_up="optional")
    make_attribute(app, "since", "date", writers=["person"])
    app.extensions["sso.upstreams"] = Upstreams([CORP])
    user = make_user(app)
    with app.app_context():
        with audit.dry_run():
            identities.resolve(audit.USER, CORP, DANA)
        db.session.commit()
    return user


def origin(app: Flask, user: User, name: str = NAME) -> str | None:
    with app.app_context():
        row = users.find(user.id)
        assert row
        text = attributes.origin_text(row, name)
        return text and str(text)


def act(app: Flask, change: Callable[[], object]) -> None:
    with app.app_context():
        change()
        db.session.commit()


def updated(actor: Actor, user: User, value: str | None) -> Callable[[], object]:
    return lambda: accounts.update(actor, user.id, attributes={NAME: value})


def by_provider(**values: Any) -> None:
    identities.resolve(audit.USER, CORP, replace(DANA, attributes=values))


def at_sign_up(user: User, value: str) -> None:
    attributes.hold({NAME: value})
    row = users.lock(user.id)
    assert row
    attributes.set_at_sign_up(audit.USER, row, {NAME: value})


def test_each_writer_is_noted(app: Flask, dana: User) -> None:
    admin, helper = staff_of(app, ADMINS), staff_of(app, HELPDESK)
    scim = Actor("Entra", token="1")
    steps: list[tuple[str | None, Callable[[], object]]] = [
        (None, lambda: None),
        ("set by the person", lambda: at_sign_up(dana, "a")),
        ("set at the command line", updated(audit.operator(), dana, "b")),
        ("set by an administrator", updated(admin, dana, "c")),
        ("set by the helpdesk", lambda: attributes.set_values(helper, dana.id, {NAME: "d"})),
        ("set by an administrator", lambda: attributes.set_values(admin, dana.id, {NAME: "e"})),
        ("set by the person", lambda: attributes.set_own(audit.USER, dana.id, {NAME: "f"})),
        ("set by a program that provisions people (SCIM)", updated(scim, dana, "g")),
        ("from the sign-in provider Corp", lambda: by_provider(**{NAME: "h"})),
        # The same value again, and another attribute, change nothing.
        ("from the sign-in provider Corp", updated(admin, dana, "h")),
        ("from the sign-in provider Corp",
         lambda: attributes.set_own(audit.USER, dana.id, {"since": "2030-01-31"})),
        (None, lambda: by_provider(**{NAME: None})),
        ("set by an administrator", updated(admin, dana, "h")),
    ]  # fmt: skip
    for number, (text, step) in enumerate(steps):
        act(app, step)
        assert origin(app, dana) == text, number
    assert origin(app, dana, "since") == "set by the person"


def test_of_new_people(app: Flask, dana: User) -> None:
    admin = staff_of(app, ADMINS)
    person = Person(email="i@x.ch", name="I", attributes={NAME: "Books"}, where="line 1")
    act(app, lambda: importing.add(admin, [person], importing.Rules("csv")))
    created = make_user(app, "new@example.com", attributes={NAME: "Books"})
    with app.app_context():
        imported = users.find_by_email("i@x.ch")
        assert imported
    assert origin(app, imported) == "imported"
    assert origin(app, created) == "set at the command line"


def test_of_a_declaration(app: Flask, dana: User, tmp_path: Path) -> None:
    act(app, lambda: by_provider(**{NAME: "Books"}))
    act(app, lambda: attributes.set_own(audit.USER, dana.id, {"since": "2030-01-31"}))
    declaration = tmp_path / "users.toml"

    def apply(values: str) -> None:
        people = (
            f'[[users]]\nemail = "dana@example.com"\nattributes = {{ {values} }}\n'
            f'[[users]]\nemail = "e@x.ch"\nname = "E"\nattributes = {{ {values} }}\n'
        )
        declaration.write_text(f"format = 1\n{people}")
        done = app.test_cli_runner().invoke(args=["apply", str(declaration), "--yes"])
        assert done.exit_code == 0, done.output

    apply('department = "Books", since = "2031-01-31"')
    assert origin(app, dana) == "from the sign-in provider Corp"
    assert origin(app, dana, "since") == "set at the command line"
    apply('department = "Music"')
    assert origin(app, dana) == "set at the command line"
    assert origin(app, dana, "since") is None
    with app.app_context():
        other = users.find_by_email("e@x.ch")
        assert other
        assert other.attribute_origins == {NAME: "operator"}


def test_the_preview_names_the_provider(app: Flask, dana: User) -> None:
    """By its title; by its ID when the operator has removed it from the file."""
    act(app, lambda: by_provider(**{NAME: "Books"}))
    client = make_client(app, own_claims=["room=attribute:since,department", "x=constant:a"])

    def texts() -> list[str | None]:
        with app.app_context():
            row = users.find(dana.id)
            assert row
            return [claim.set_by for claim in preview.make(client.client_id, row).own_claims]

    arguments = ["client", "preview", client.client_id, "--user", "dana"]
    done = app.test_cli_runner().invoke(args=arguments)
    line = "Books by attribute department (from the sign-in provider Corp), in userinfo"
    assert line in done.output
    done = app.test_cli_runner().invoke(args=[*arguments, "--json"])
    claims = json.loads(done.output)["own_claims"]
    assert [claim["set_by"] for claim in claims] == ["from the sign-in provider Corp", None]
    app.extensions["sso.upstreams"] = Upstreams([])
    assert texts() == ["from the sign-in provider corp", None]
    act(app, updated(audit.operator(), dana, None))
    assert texts() == [None, None]


def test_it_is_not_read_with_every_account(app: Flask, dana: User) -> None:
    with app.app_context():
        assert "attribute_origins" not in vars(users.find(dana.id))


def test_an_attribute_that_was_deleted_and_defined_again(app: Flask, dana: User) -> None:
    act(app, lambda: by_provider(**{NAME: "Books"}))
    act(app, lambda: attributes.delete(audit.operator(), NAME))
    make_attribute(app, NAME)
    assert origin(app, dana) is None
    act(app, updated(audit.operator(), dana, "Books"))
    assert origin(app, dana) == "set at the command line"
    with app.app_context():
        assert stored.count_values(NAME) == 1


@pytest.mark.parametrize(
    ("before", "after", "result"),
    [
        ({}, {"a": 1}, {"a": "new"}),
        ({"a": 1}, {"a": 1}, {"a": "old"}),
        ({"a": 1}, {"a": True}, {"a": "new"}),
        ({"a": 0}, {"a": False}, {"a": "new"}),
        ({"a": 1, "b": 2}, {"b": 2}, {}),  # of b, nobody knows
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": "old", "b": "new"}),
    ],
)
def test_of_changes(before: dict[str, Any], after: dict[str, Any], result: dict[str, str]) -> None:
    assert origins_after({"a": "old"}, before, after, "new") == result
