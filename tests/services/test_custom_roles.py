"""Roles of the operator's own: what they give, and that nobody gives what they lack."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from flask import Flask

from sso.audit import Actor
from sso.config import role_settings
from sso.errors import NotAllowed
from sso.extensions import db
from sso.flow.permissions import Permission, custom_roles
from sso.imports.person import Person
from sso.models import User
from sso.services import (
    accounts,
    authentication,
    clients,
    credentials,
    group_editing,
    group_owners,
    groups,
    importing,
    roles,
)
from sso.services.changes import ListEdit
from sso.store import named_groups, users
from tests.support.administration import staff_of
from tests.support.factories import make_client, make_user

ADMINS, HELPERS = "sso-administrators", "sso-helpdesk"
ROLES = "auditors=audit, hr=people-write, teams=groups, hr-lead=people-write groups audit"


@pytest.fixture(autouse=True)
def settings(app: Flask) -> Iterator[None]:
    before = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(before, admin_roles=ROLES)
    yield
    app.extensions["sso.settings"] = before


def loaded(user: User) -> User:
    found = users.find(user.id)
    assert found
    return found


def group_id(name: str) -> UUID:
    group = named_groups.find_by_name(name)
    return group.id if group else group_editing.create(Actor("olga"), name).id


def test_what_groups_give(app: Flask) -> None:
    read, write = Permission.READ_PEOPLE, Permission.WRITE_PEOPLE
    with app.app_context():
        assert roles.rights_of([]).permissions == frozenset()
        assert roles.rights_of(["staff", "auditor", "AUDITORS"]).permissions == frozenset()
        assert roles.rights_of(["auditors"]).permissions == {Permission.AUDIT}
        assert roles.rights_of(["hr"]).permissions == {read, write}
        assert roles.rights_of(["hr", "auditors"]).permissions == {read, write, Permission.AUDIT}
        assert roles.rights_of([HELPERS, "auditors"]).permissions == {
            read, Permission.SUPPORT_PEOPLE, Permission.AUDIT,
        }  # fmt: skip
        assert roles.rights_of([ADMINS, "auditors"]).permissions == set(Permission)
        assert roles.role_of(["hr"]) is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("auditors", "give groups with permissions"),
        ("auditors=", "give groups with permissions"),
        ("=audit", "give groups with permissions"),
        ("", "give groups with permissions"),
        ("a=audit,", "give groups with permissions"),
        ("a=audit, a=keys", "the group a is there twice"),
        ("a=Audit", "there is no permission Audit to give; known: people-read"),
        ("a=everything", "there is no permission everything"),
        ("a=api-tokens", "there is no permission api-tokens"),
        ("a=own-groups", "there is no permission own-groups"),
        (f"{'x' * 201}=audit", "at most 200 characters"),
        ("a\x00b=audit", "without commas"),
    ],
)
def test_what_the_setting_may_not_be(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        role_settings.checked(text)


def test_names_of_groups_in_the_setting() -> None:
    assert custom_roles(" my team = audit  keys ,a=b=mail") == {
        "my team": {Permission.AUDIT, Permission.KEYS},
        "a=b": {Permission.MAIL},
    }


def join(by: Actor, user: User, name: str) -> Any:
    return group_editing.change(by, group_id(name), added=[user.id])


def update(by: Actor, user: User, name: str) -> Any:
    return accounts.update(by, user.id, memberships=ListEdit(added=(name,)))


def create(by: Actor, _: User, name: str) -> Any:
    return accounts.create(by, email="new@example.com", name="New", groups=["plain", name])


def invite(by: Actor, _: User, name: str) -> Any:
    return accounts.invite(by, email="new@example.com", name="New", groups=["plain", name])


GIVE: dict[str, tuple[str, Callable[[Actor, User, str], Any]]] = {
    "add to the group": ("teams", join),
    "change the user": ("hr", update),
    "create a user": ("hr", create),
    "invite a user": ("hr", invite),
}


@pytest.mark.parametrize("how", GIVE)
def test_nobody_gives_what_they_lack(app: Flask, how: str) -> None:
    role, give = GIVE[how]
    by, dana = staff_of(app, role), make_user(app)
    with app.app_context():
        for name in ADMINS, HELPERS, "auditors", "hr-lead", "teams" if role == "hr" else "hr":
            id_ = group_id(name)
            db.session.commit()
            with pytest.raises(NotAllowed):
                give(by, dana, name)
            db.session.rollback()
            if role == "teams":  # nor to themselves
                with pytest.raises(NotAllowed):
                    group_editing.change(by, id_, added=[by.user_id or dana.id])
                db.session.rollback()
        assert loaded(dana).groups == []
        give(by, dana, role)  # what they have
        db.session.rollback()
        give(by, dana, "plain")


def test_nobody_promotes_themselves(app: Flask) -> None:
    by = staff_of(app, "hr")
    assert by.user_id
    with app.app_context():
        for name in (ADMINS, "auditors"):
            with pytest.raises(NotAllowed):
                accounts.update(by, by.user_id, memberships=ListEdit(added=(name,)))
            db.session.rollback()


CHANGE: dict[str, Callable[[Actor, User], Any]] = {
    "disable": accounts.disable,
    "enable": accounts.enable,
    "delete": accounts.delete,
    "change the address": lambda by, user: accounts.update(by, user.id, email="mine@example.com"),
    "take the group": lambda by, user: accounts.update(
        by, user.id, memberships=ListEdit(whole=())
    ),
    "set the password": lambda by, user: credentials.set_password(by, user, "another password 1"),
    "mail a link": credentials.mail_password_reset,
    "reset factors": credentials.reset_factors,
    "sign out": authentication.sign_out,
    "make a link": lambda by, user: credentials.make_enrolment_link(by, user, timedelta(hours=1)),
}  # fmt: skip


@pytest.mark.parametrize("how", CHANGE)
def test_nobody_changes_people_with_more_permissions(app: Flask, how: str) -> None:
    by = staff_of(app, "hr")
    others = {
        name: make_user(app, f"{name}@other.example", groups=["plain", name])
        for name in (ADMINS, HELPERS, "auditors", "hr-lead", "hr", "staff")
    }
    make_user(app, "second@other.example", groups=[ADMINS])
    for name, user in others.items():
        with app.app_context():
            if name in ("hr", "staff"):
                CHANGE[how](by, loaded(user))
                continue
            with pytest.raises(NotAllowed):
                CHANGE[how](by, loaded(user))


def test_groups_with_permissions_are_left_alone(app: Flask) -> None:
    by = staff_of(app, "teams")
    ada = make_user(app, "ada@example.com", groups=[ADMINS, "plain"])
    make_user(app, "second@example.com", groups=[ADMINS])
    with app.app_context():
        ids = {name: group_id(name) for name in (ADMINS, "hr", "teams", "plain")}
        db.session.commit()
        for call in (
            lambda: group_editing.delete(by, ids["hr"]),
            lambda: group_editing.change(by, ids["hr"], name="former"),
            lambda: group_editing.change(by, ids["plain"], name="auditors"),
            lambda: group_editing.create(by, "auditors"),
            lambda: group_editing.change(by, ids[ADMINS], removed=[ada.id]),
            lambda: group_editing.change(by, ids["plain"], removed=[ada.id]),
            lambda: group_owners.change(by, ids["hr"], removed=[ada.id]),
            lambda: group_owners.remove_member(by, ids[ADMINS], ada.id),
            lambda: group_owners.remove_member(by, ids["plain"], ada.id),
        ):
            with pytest.raises(NotAllowed):
                call()
            db.session.rollback()
        group_editing.create(by, "mine")


def test_a_group_of_a_role_has_no_owners(app: Flask) -> None:
    with app.app_context():
        assert group_owners.gives_permissions("auditors")
        assert not group_owners.gives_permissions("plain")


def test_tokens_without_the_scope_keep_away_from_roles(app: Flask) -> None:
    token = Actor("API token", changes_staff=False)
    dana = make_user(app)
    with app.app_context():
        for name in ("auditors", "hr"):
            with pytest.raises(NotAllowed, match="scim:privileged"):
                accounts.update(token, dana.id, memberships=ListEdit(added=(name,)))
            db.session.rollback()


def test_imports_leave_the_groups_of_roles_out(app: Flask) -> None:
    by = staff_of(app, "hr")
    person = Person("line 2", "erin@example.com", "Erin", groups=["auditors", "plain"])
    with app.app_context():
        importing.add(by, [person], importing.Rules("csv"))
        db.session.commit()
        erin = users.find_by_email("erin@example.com")
        assert erin
        assert erin.groups == ["plain"]


def test_groups_of_roles_are_no_typos(app: Flask) -> None:
    dana = make_user(app)
    with app.app_context():
        assert groups.not_known(["auditors"], loaded(dana)) == []
        (warning,) = groups.not_known(["auditor"], loaded(dana))
        assert "did you mean auditors?" in warning


def test_an_owner_manages_people_with_permissions(app: Flask) -> None:
    """Their membership of a team says nothing about the administration."""
    lead = make_user(app, "lead@example.com")
    ada = make_user(app, "ada@example.com", groups=[ADMINS])
    by = Actor(lead.email, user_id=lead.id, permissions=frozenset({Permission.OWN_GROUPS}))
    with app.app_context():
        team = group_id("team")
        group_owners.change(Actor("olga"), team, added=[lead.id])
        group_owners.add_member(by, team, email="ada@example.com", name="Ada")
        db.session.commit()
        db.session.expire_all()
        assert loaded(ada).groups == [ADMINS, "team"]
        group_owners.remove_member(by, team, ada.id)


def test_who_may_have_people_sent_elsewhere(app: Flask) -> None:
    """Applications alone are not enough: all people could be sent to a server of one's own."""
    url, reading = "https://scim.example/v2", frozenset({Permission.READ_PEOPLE})
    held = frozenset({Permission.APPLICATIONS})
    by = Actor("wim", user_id=make_user(app).id, permissions=held)
    client_id = make_client(app, groups=["staff"]).client_id
    with app.app_context():
        with pytest.raises(NotAllowed):
            clients.change(by, client_id, {"scim_url": url})
        db.session.rollback()
        clients.change(replace(by, permissions=held | reading), client_id, {"scim_url": url})
        db.session.commit()
        clients.change(by, client_id, {"scim_everyone": False, "scim_url": url})  # it stays
        with pytest.raises(NotAllowed):
            clients.change(by, client_id, {"scim_url": url + "/mine"})
