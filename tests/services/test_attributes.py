"""Attributes are defined and deleted, and their values are set, by those who may."""

from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.audit import Actor
from sso.errors import NotAllowed
from sso.extensions import db
from sso.flow import attributes as rules
from sso.flow.permissions import ROLES
from sso.models import User
from sso.services import accounts, attributes
from sso.services.changes import Changed
from sso.services.checks import Invalid
from sso.store import attributes as stored
from sso.store import users
from tests.support.events import events
from tests.support.factories import make_attribute, make_user

ADMIN = Actor("ada", user_id=None)


@pytest.fixture
def admin(app: Flask) -> Actor:
    user = make_user(app, "ada@example.com", groups=["sso-administrators"])
    return Actor(user.email, user_id=user.id)


@pytest.fixture
def helpdesk(app: Flask) -> Actor:
    user = make_user(app, "hal@example.com", groups=["sso-helpdesk"])
    return Actor(user.email, user_id=user.id, permissions=ROLES["helpdesk"])


@pytest.fixture
def defined(app: Flask) -> None:
    make_attribute(app, "of_all", "number", writers=["person", "helpdesk", "administrator"])
    make_attribute(app, "of_person", writers=["person"])
    make_attribute(app, "of_helpdesk", "boolean", writers=["helpdesk"])
    make_attribute(app, "of_admin", "list")
    make_attribute(app, "of_nobody", writers=[])


def values(app: Flask, user: User) -> dict[str, Any]:
    with app.app_context():
        row = users.find(user.id)
        assert row is not None
        return row.attributes


VALUES = {
    "of_all": 3,
    "of_person": "x",
    "of_helpdesk": False,
    "of_admin": ["a"],
    "of_nobody": "x",
}


@pytest.mark.usefixtures("defined")
@pytest.mark.parametrize("name", VALUES)
def test_each_role_changes_its_own(
    app: Flask, user: User, admin: Actor, helpdesk: Actor, name: str
) -> None:
    expected = {"of_all": 3, "of_person": 1, "of_helpdesk": 1, "of_admin": 1, "of_nobody": 0}
    allowed = []
    with app.app_context():
        for service, actor in (
            (attributes.set_values, admin),
            (attributes.set_values, helpdesk),
            (attributes.set_own, audit.USER),
        ):
            try:
                allowed.append(service(actor, user.id, {name: VALUES[name]}))
            except Invalid as error:
                assert f"the attribute '{name}' cannot be changed here" in error.errors
            db.session.rollback()
        assert len(allowed) == expected[name]
        accounts.update(audit.operator(), user.id, attributes={name: VALUES[name]})
        db.session.commit()
    assert values(app, user) == {name: VALUES[name]}


@pytest.mark.usefixtures("defined")
def test_an_administrator_is_bound_wherever_accounts_are_changed(
    app: Flask, user: User, admin: Actor
) -> None:
    with app.app_context():
        with pytest.raises(Invalid):
            accounts.update(admin, user.id, attributes={"of_person": "x"})
        with pytest.raises(Invalid):
            accounts.create(admin, email="e@example.com", name="E", attributes={"of_person": "x"})
        accounts.create(admin, email="e@example.com", name="E", attributes={"of_admin": ["x"]})


@pytest.mark.usefixtures("defined")
@pytest.mark.parametrize("group", ["sso-administrators", "sso-helpdesk"])
def test_the_helpdesk_changes_no_staff(app: Flask, helpdesk: Actor, group: str) -> None:
    boss = make_user(app, "boss@example.com", groups=[group])
    with app.app_context(), pytest.raises(NotAllowed):
        attributes.set_values(helpdesk, boss.id, {"of_helpdesk": True})


def test_the_helpdesk_defines_nothing(app: Flask, helpdesk: Actor) -> None:
    make_attribute(app, "level", "number")
    with app.app_context():
        for refused in (
            lambda: attributes.define(helpdesk, {"name": "x"}),
            lambda: attributes.change(helpdesk, "level", {"writers": ["helpdesk"]}),
            lambda: attributes.delete(helpdesk, "level"),
        ):
            with pytest.raises(NotAllowed):
                refused()


@pytest.mark.usefixtures("defined")
def test_a_disabled_person_changes_nothing(app: Flask, user: User) -> None:
    with app.app_context():
        row = users.find(user.id)
        assert row is not None
        accounts.disable(audit.operator(), row)
        db.session.commit()
        with pytest.raises(LookupError):
            attributes.set_own(audit.USER, user.id, {"of_person": "x"})


@pytest.mark.usefixtures("defined")
def test_false_is_a_value_and_empty_is_none(app: Flask, user: User) -> None:
    with app.app_context():
        edits = {"of_helpdesk": False, "of_all": 0, "of_person": " ", "of_admin": []}
        accounts.update(audit.operator(), user.id, attributes=edits)
        db.session.commit()
    assert values(app, user) == {"of_helpdesk": False, "of_all": 0}
    with app.app_context():
        accounts.update(audit.operator(), user.id, attributes={"of_helpdesk": None})
        db.session.commit()
    assert values(app, user) == {"of_all": 0}


def test_all_values_together_are_bounded(app: Flask, user: User) -> None:
    for number in range(9):
        make_attribute(app, f"text{number}")
    long = {f"text{number}": "é" * 1000 for number in range(9)}
    with app.app_context():
        accounts.update(audit.operator(), user.id, attributes={**long, "text8": None})
        with pytest.raises(Invalid, match="longer than 16384 bytes"):
            accounts.update(audit.operator(), user.id, attributes=long)


def test_the_number_of_definitions_is_bounded(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST", 2)
    make_attribute(app, "a")
    make_attribute(app, "b")
    with app.app_context(), pytest.raises(Invalid, match="there are 2 attributes already"):
        attributes.define(audit.operator(), {"name": "c"})
    with app.app_context(), pytest.raises(Invalid, match="already an attribute with the name a"):
        attributes.define(audit.operator(), {"name": "a"})


def test_name_and_type_stay(app: Flask) -> None:
    make_attribute(app, "level", "number")
    with app.app_context():
        for fields in ({"name": "other"}, {"type": "string"}):
            with pytest.raises(Invalid, match="of an attribute stays"):
                attributes.change(audit.operator(), "level", fields)


def test_a_value_that_can_no_longer_be_chosen_stays(app: Flask, user: User) -> None:
    make_attribute(app, "plan", "choice", choices=["gold", "silver"], writers=["person"])
    with app.app_context():
        attributes.set_own(audit.USER, user.id, {"plan": "gold"})
        attributes.change(audit.operator(), "plan", {"choices": ["silver"]})
        attributes.set_own(audit.USER, user.id, {"plan": "gold"})
        with pytest.raises(Invalid, match="none of silver"):
            attributes.set_own(audit.USER, user.id, {"plan": "bronze"})
        attributes.set_own(audit.USER, user.id, {"plan": "silver"})
        with pytest.raises(Invalid, match="none of silver"):
            attributes.set_own(audit.USER, user.id, {"plan": "gold"})


@pytest.mark.usefixtures("defined")
def test_a_deletion_removes_the_values_of_all(app: Flask, user: User) -> None:
    other = make_user(app, "erin@example.com", attributes={"of_nobody": "y"})
    make_user(app, "none@example.com")
    with app.app_context():
        accounts.update(
            audit.operator(), user.id, attributes={"of_nobody": "x", "of_helpdesk": False}
        )
        db.session.commit()
        assert stored.count_values("of_nobody") == 2
        assert attributes.delete(audit.operator(), "of_nobody") == 2
        db.session.commit()
    assert values(app, user) == {"of_helpdesk": False}
    assert values(app, other) == {}
    make_attribute(app, "of_nobody", "number")
    assert values(app, user) == {"of_helpdesk": False}
    with app.app_context(), pytest.raises(LookupError):
        attributes.delete(audit.operator(), "gone")


@pytest.mark.usefixtures("defined")
def test_the_audit_trail_names_attributes_without_values(
    app: Flask, user: User, admin: Actor
) -> None:
    with app.app_context():
        attributes.set_values(admin, user.id, {"of_admin": ["secret"], "of_all": 3})
        attributes.set_own(audit.USER, user.id, {"of_person": "secret"})
        attributes.set_own(audit.USER, user.id, {"of_person": "secret"})  # no change
        accounts.update(audit.operator(), user.id, name="Dana", attributes={"of_admin": ["hidden"]})
        db.session.commit()
    trail = events(app, "user_changed", "profile_changed")
    names = [event.get("attributes") for event in trail]
    assert names == ["of_admin of_all", "of_person", "of_admin"]
    assert trail[2]["changes"]["name"]["after"] == "Dana"
    assert "secret" not in str(trail)
    assert "hidden" not in str(trail)


@pytest.mark.usefixtures("defined")
def test_what_was_changed_meanwhile_is_not_overwritten(
    app: Flask, user: User, admin: Actor
) -> None:
    with app.app_context():
        attributes.set_values(admin, user.id, {"of_all": 1}, expected={"of_all": None})
        with pytest.raises(Changed):
            attributes.set_values(admin, user.id, {"of_all": 2}, expected={"of_all": None})
