"""Owners of groups: who they are, what they may do, and what ends it."""

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask, current_app

from sso import audit, clock, context
from sso.audit import Actor
from sso.errors import NotAllowed
from sso.extensions import db
from sso.flow.permissions import ADMIN, HELPDESK, OWNER, ROLES
from sso.models import Mail, User
from sso.services import accounts, group_editing, group_owners
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store import named_groups, users
from tests.support.events import events
from tests.support.factories import make_user

OLGA = Actor("olga")
ADMINS, HELPERS = "sso-administrators", "sso-helpdesk"


class Team:
    """A group with an owner and a member."""

    def __init__(self, app: Flask) -> None:
        self.app = app
        self.lead = make_user(app, "lead@example.com")
        self.dana = make_user(app, "dana@example.com", groups=["team", "other"])
        with app.app_context():
            self.id = self._id("team")
            self.other_id = self._id("other")
            group_owners.change(OLGA, self.id, added=[self.lead.id])
            db.session.commit()

    @staticmethod
    def _id(name: str) -> UUID:
        group = named_groups.find_by_name(name)
        assert group
        return group.id

    @property
    def actor(self) -> Actor:
        return Actor(self.lead.email, user_id=self.lead.id, permissions=ROLES[OWNER])

    def add(self, email: str = "new@example.com", name: str = "New") -> User:
        user = group_owners.add_member(self.actor, self.id, email=email, name=name)
        db.session.commit()
        return user


@pytest.fixture
def team(app: Flask) -> Team:
    return Team(app)


def groups_of(email: str) -> list[str]:
    user = users.find_by_email(email)
    assert user
    db.session.refresh(user)
    return user.groups


def test_an_owner_adds_and_removes_people_who_have_an_account(app: Flask, team: Team) -> None:
    make_user(app, "erin@example.com", name="Erin", groups=["staff"])
    with app.app_context():
        before = db.session.query(Mail).count()
        team.add("ERIN@example.com", "Somebody else")
        assert groups_of("erin@example.com") == ["staff", "team"]
        erin = users.find_by_email("erin@example.com")
        assert erin
        assert erin.name == "Erin"
        assert db.session.query(Mail).count() == before
        group_owners.remove_member(team.actor, team.id, erin.id)
        db.session.commit()
        assert groups_of("erin@example.com") == ["staff"]
    for event in events(app, "user_changed")[-2:]:
        assert event["operator"] == "lead@example.com"
        assert event["operator_id"] == str(team.lead.id)


def test_an_owner_invites_people_who_have_none(app: Flask, team: Team) -> None:
    with app.app_context():
        user = team.add()
        db.session.refresh(user)
        assert (user.name, user.groups, user.password_hash) == ("New", ["team"], None)
        assert [mail.kind for mail in db.session.query(Mail)][-1] == "invite"
    (event,) = events(app, "user_invited")
    assert event["operator"] == "lead@example.com"


def test_adding_somebody_again_changes_nothing(app: Flask, team: Team) -> None:
    with app.app_context():
        team.add("dana@example.com")
        assert groups_of("dana@example.com") == ["team", "other"]


def test_an_owner_changes_no_other_group(app: Flask, team: Team) -> None:
    with app.app_context():
        for group_id in (team.other_id, uuid4()):
            with pytest.raises(LookupError):
                group_owners.add_member(team.actor, group_id, email="x@example.com", name="X")
            with pytest.raises(LookupError):
                group_owners.remove_member(team.actor, group_id, team.dana.id)
            db.session.rollback()
        assert users.find_by_email("x@example.com") is None
        assert groups_of("dana@example.com") == ["team", "other"]


@pytest.mark.parametrize("user", ["lead", "nobody"])
def test_only_members_are_removed(app: Flask, team: Team, user: str) -> None:
    user_id = team.lead.id if user == "lead" else uuid4()
    with app.app_context(), pytest.raises(LookupError):
        group_owners.remove_member(team.actor, team.id, user_id)


NEVER: dict[str, Callable[[Team], Any]] = {
    "make an owner": lambda team: group_owners.change(
        team.actor, team.other_id, added=[team.lead.id]
    ),
    "remove an owner": lambda team: group_owners.change(
        team.actor, team.id, removed=[team.lead.id]
    ),
    "rename": lambda team: group_editing.change(team.actor, team.id, name=ADMINS),
    "replace the members": lambda team: group_editing.change(team.actor, team.id, whole=[]),
    "add a member as an administrator does": lambda team: group_editing.change(
        team.actor, team.id, added=[team.lead.id]
    ),
    "create a group": lambda team: group_editing.create(team.actor, "mine"),
    "delete the group": lambda team: group_editing.delete(team.actor, team.id),
    "promote oneself": lambda team: accounts.update(
        team.actor, team.lead.id, memberships=ListEdit(added=(ADMINS,))
    ),
    "invite with a group": lambda team: accounts.invite(
        team.actor, email="x@example.com", name="X", groups=[ADMINS]
    ),
    "invite": lambda team: accounts.invite(team.actor, email="x@example.com", name="X"),
    "disable a member": lambda team: accounts.disable(team.actor, team.dana),
}


@pytest.mark.parametrize("what", NEVER)
def test_what_an_owner_may_never_do(app: Flask, team: Team, what: str) -> None:
    with app.app_context(), pytest.raises(NotAllowed):
        NEVER[what](team)


def test_the_helpdesk_chooses_no_owners(app: Flask, team: Team) -> None:
    hal = make_user(app, "hal@example.com", groups=[HELPERS])
    actor = Actor(hal.email, user_id=hal.id, permissions=ROLES[HELPDESK])
    with app.app_context():
        with pytest.raises(NotAllowed):
            group_owners.change(actor, team.id, added=[hal.id])
        with pytest.raises(NotAllowed):
            group_owners.add_member(actor, team.id, email="hal@example.com", name="Hal")


def test_a_token_without_the_scope_owns_no_group_of_administration(app: Flask) -> None:
    token = Actor("API token", changes_staff=False)
    with app.app_context():
        group = group_editing.create(OLGA, ADMINS)
        with pytest.raises(NotAllowed):
            group_owners.change(token, group.id, removed=[uuid4()])


@pytest.mark.parametrize("name", [ADMINS, HELPERS])
def test_a_group_of_the_administration_gets_no_owners(app: Flask, team: Team, name: str) -> None:
    with app.app_context():
        group = group_editing.create(OLGA, name)
        with pytest.raises(Invalid, match="gives rights in the administration"):
            group_owners.change(OLGA, group.id, added=[team.lead.id])


def test_a_group_that_becomes_one_of_the_administration(app: Flask, team: Team) -> None:
    """By its new name: an owner of it makes nobody an administrator."""
    with app.app_context():
        group_editing.change(OLGA, team.id, name=ADMINS)
        db.session.commit()
        with pytest.raises(LookupError):
            group_owners.add_member(team.actor, team.id, email="lead@example.com", name="Lead")
        db.session.rollback()
        assert groups_of("lead@example.com") == []
        # Those who are left can still be removed.
        assert len(group_owners.change(OLGA, team.id, removed=[team.lead.id])[1]) == 1


def test_the_number_of_owners_is_limited(app: Flask, team: Team) -> None:
    with app.app_context():
        ids = [
            accounts.create(OLGA, email=f"p{number}@example.com", name="P", email_verified=True).id
            for number in range(group_owners.MOST_OWNERS)
        ]
        group_owners.change(OLGA, team.id, added=ids[1:])  # with the lead, exactly as many
        with pytest.raises(Invalid, match="at most 100 owners"):
            group_owners.change(OLGA, team.id, added=ids[:1])
        group_owners.change(OLGA, team.id, added=ids[:1], removed=[team.lead.id])
        assert len(named_groups.owners(team.id)) == group_owners.MOST_OWNERS


def test_owners_that_do_not_exist(app: Flask, team: Team) -> None:
    with app.app_context():
        with pytest.raises(Invalid, match="there is no user"):
            group_owners.change(OLGA, team.id, added=[uuid4()])
        with pytest.raises(LookupError):
            group_owners.change(OLGA, uuid4(), added=[team.lead.id])
        assert group_owners.change(OLGA, team.id, removed=[uuid4()]) == ([], [])
        assert group_owners.change(OLGA, team.id, added=[team.lead.id]) == ([], [])
    assert [event["user"] for event in events(app, "group_owner_added")] == [str(team.lead.id)]


def _protect(team: Team) -> None:
    settings = context.settings()
    current_app.extensions["sso.settings"] = replace(settings, helpdesk_group="team")


def _delete_group(team: Team) -> None:
    group_editing.delete(OLGA, team.id)
    team.id = group_editing.create(OLGA, "team").id


def _lead() -> User:
    user = users.find_by_email("lead@example.com")
    assert user
    return user


def _end(at: datetime) -> None:
    _lead().ends_at = at


# The rows of docs/explanation/revocation.md: what is done, and how it is undone.
CAUSES: dict[str, tuple[Callable[[Team], Any], Callable[[Team], Any] | None]] = {
    "owner removed from the group's owners": (
        lambda team: group_owners.change(OLGA, team.id, removed=[team.lead.id]), None,
    ),
    "owner disabled": (
        lambda team: accounts.disable(OLGA, _lead()), lambda team: accounts.enable(OLGA, _lead()),
    ),
    "end of the owner's account": (
        lambda team: _end(clock.now()), lambda team: _end(clock.now() + timedelta(seconds=1)),
    ),
    "owner deleted": (lambda team: accounts.delete(OLGA, _lead()), None),
    "group deleted": (_delete_group, None),
    "group renamed": (lambda team: group_editing.change(OLGA, team.id, name="crew"), None),
    "owner is no longer a member": (
        lambda team: group_editing.change(OLGA, team.id, removed=[team.lead.id]), None,
    ),
    "group gives rights in the administration": (
        _protect,
        lambda team: current_app.extensions.update(
            {"sso.settings": replace(context.settings(), helpdesk_group=HELPERS)}
        ),
    ),
}  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]


def rows() -> dict[str, str]:
    text = (ROOT / "docs/explanation/revocation.md").read_text()
    section = text.partition("## Owners of groups")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)[1:])


def may_manage(team: Team) -> bool:
    db.session.expire_all()
    group = named_groups.find(team.id)
    assert group
    return group_owners.may_manage(team.actor, group)


def test_the_documentation_has_every_cause() -> None:
    assert [row for row in rows() if row != "---"] == list(CAUSES)


@pytest.mark.parametrize("cause", CAUSES)
def test_what_ends_it(app: Flask, team: Team, cause: str) -> None:
    act, undo = CAUSES[cause]
    answer = rows()[cause]
    settings = app.extensions["sso.settings"]
    try:
        with app.app_context():
            group_editing.change(OLGA, team.id, added=[team.lead.id])
            db.session.commit()
            assert may_manage(team)
            act(team)
            db.session.commit()
            assert may_manage(team) is (answer == "yes")
            assert (undo is not None) == ("until" in answer or "while" in answer)
            if undo:
                undo(team)
                db.session.commit()
                assert may_manage(team)
    finally:
        app.extensions["sso.settings"] = settings


LATE: dict[str, Callable[[Team], Any]] = {
    "removed": lambda team: group_owners.change(OLGA, team.id, removed=[team.lead.id]),
    "disabled": lambda team: accounts.disable(OLGA, _lead()),
    "deleted": lambda team: accounts.delete(OLGA, _lead()),
    "the group is deleted": lambda team: group_editing.delete(OLGA, team.id),
}


@pytest.mark.parametrize("what", LATE)
def test_an_owner_who_adds_somebody_at_that_moment(app: Flask, team: Team, what: str) -> None:
    """Nobody is added after the right has ended: the one waits for the other."""
    ended, adding = threading.Event(), threading.Event()
    outcomes: list[str] = []

    def add() -> None:
        with app.app_context():
            assert ended.wait(10)
            # The page has let the owner in before; the first look still sees the right.
            group = named_groups.find(team.id)
            assert group
            assert group_owners.may_manage(team.actor, group)
            db.session.rollback()
            adding.set()
            try:
                group_owners.add_member(team.actor, team.id, email="dave@example.com", name="Dave")
                db.session.commit()
                outcomes.append("added")
            except LookupError:
                db.session.rollback()
                outcomes.append("refused")

    thread = threading.Thread(target=add)
    thread.start()
    with app.app_context():
        LATE[what](team)
        ended.set()
        assert adding.wait(10)
        thread.join(0.3)  # it waits for this transaction, or looks at what it wrote
        db.session.commit()
    thread.join(30)
    assert outcomes == ["refused"]
    with app.app_context():
        assert users.find_by_email("dave@example.com") is None


def test_two_changes_of_owners_at_once(app: Flask, team: Team) -> None:
    """Both make the same person an owner: there is one event, and no error."""
    bob = make_user(app, "bob@example.com")
    barrier, errors = threading.Barrier(2), []

    def add() -> None:
        with app.app_context():
            barrier.wait(10)
            try:
                group_owners.change(OLGA, team.id, added=[bob.id])
                db.session.commit()
            except Exception as error:
                errors.append(error)
                raise

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    added = [event for event in events(app, "group_owner_added") if event["user"] == str(bob.id)]
    assert len(added) == 1


def test_administrators_need_no_ownership(app: Flask, team: Team) -> None:
    ada = make_user(app, "ada@example.com", groups=[ADMINS])
    actor = Actor(ada.email, user_id=ada.id, permissions=ROLES[ADMIN])
    with app.app_context():
        group_owners.remove_member(actor, team.id, team.dana.id)
        group_owners.remove_member(audit.operator(), team.other_id, team.dana.id)
        db.session.commit()
        assert groups_of("dana@example.com") == []
