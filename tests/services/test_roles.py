"""Rules about those who administer, for pages and commands alike."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask

from sso import audit, clock
from sso.audit import Actor
from sso.errors import NotAllowed
from sso.extensions import db
from sso.flow.permissions import ROLES
from sso.models import User, Webhook
from sso.services import (
    accounts,
    agents,
    api_tokens,
    attributes,
    authentication,
    credentials,
    group_editing,
    identities,
    importing,
    mail_queue,
    webhooks,
)
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store import named_groups, users
from tests.support.administration import ADMINS, HELPDESK
from tests.support.factories import PASSWORD, make_user

OPERATOR = Actor("olga")


def admins() -> UUID:
    group = named_groups.find_by_name(ADMINS)
    return group.id if group else uuid4()


REMOVE: dict[str, Callable[[Actor, User], Any]] = {
    "disable": accounts.disable,
    "delete": accounts.delete,
    "update disabled": lambda actor, one: accounts.update(actor, one.id, disabled=True),
    "remove the group": lambda actor, one: accounts.update(
        actor, one.id, memberships=ListEdit(removed=(ADMINS,))
    ),
    "replace the groups": lambda actor, one: accounts.update(
        actor, one.id, memberships=ListEdit(whole=(HELPDESK,))
    ),
    "remove the member": lambda actor, one: group_editing.change(
        actor, admins(), removed={one.id}
    ),
}  # fmt: skip
BY_NAME = pytest.mark.parametrize("remove", REMOVE.values(), ids=REMOVE)


@pytest.fixture
def ada(app: Flask) -> User:
    return make_user(app, "ada@example.com", groups=[ADMINS])


def acting(user: User, **more: Any) -> Actor:
    return replace(Actor(user.email, user_id=user.id), **more)


def helper(app: Flask) -> Actor:
    hal = make_user(app, "hal@example.com", groups=[HELPDESK])
    return acting(hal, permissions=ROLES["helpdesk"])


def loaded(user: User) -> User:
    found = users.find(user.id)
    assert found
    return found


@BY_NAME
def test_the_last_administrator_stays(app: Flask, ada: User, remove: Any) -> None:
    make_user(app, "off@example.com", groups=[ADMINS], disabled=True)
    make_user(app, "hal@example.com", groups=[HELPDESK, "sso-administrators "[:-1] + "2"])
    with app.app_context():
        with pytest.raises(NotAllowed, match=r"last administrator.*--add-group"):
            remove(OPERATOR, loaded(ada))
        db.session.rollback()
    make_user(app, "bob@example.com", groups=[ADMINS])
    with app.app_context():
        remove(OPERATOR, loaded(ada))


@BY_NAME
def test_nobody_removes_themselves(app: Flask, ada: User, remove: Any) -> None:
    make_user(app, "bob@example.com", groups=[ADMINS])
    with app.app_context():
        for actor in (acting(ada), audit.USER):
            with pytest.raises(NotAllowed, match="your own"):
                remove(actor, loaded(ada))
            db.session.rollback()


def test_other_changes_to_the_last_one(app: Flask, ada: User) -> None:
    with app.app_context():
        edit = ListEdit(added=("staff",))
        user, _ = accounts.update(acting(ada), ada.id, name="Ada", memberships=edit)
        assert user.groups == [ADMINS, "staff"]


@BY_NAME
@pytest.mark.parametrize("are_others", [True, False])
def test_a_disabled_administrator_may_go(app: Flask, remove: Any, are_others: bool) -> None:
    """Nobody is lost who could sign in, whoever else there is."""
    off = make_user(app, "off@example.com", groups=[ADMINS], disabled=True)
    if are_others:
        make_user(app, "ada@example.com", groups=[ADMINS])
    with app.app_context():
        remove(OPERATOR, loaded(off))


HELP: dict[str, Callable[[Actor, User], Any]] = {
    "sign out": authentication.sign_out,
    "factors": credentials.reset_factors,
    "verification": credentials.request_verification,
    "invitation": credentials.invite_again,
    "password": credentials.mail_password_reset,
}
NEVER: dict[str, Callable[[Actor, User], Any]] = {
    **REMOVE,
    "enable": accounts.enable,
    "rename": lambda actor, one: accounts.update(actor, one.id, name="Else"),
    "email": lambda actor, one: accounts.update(actor, one.id, email="mallory@example.com"),
    "raise": lambda actor, one: accounts.update(
        actor, one.id, memberships=ListEdit(added=(ADMINS,))),
    "password": lambda actor, one: credentials.set_password(actor, one, "another long password"),
    "link": lambda actor, one: credentials.make_enrolment_link(actor, one, None),  # type: ignore[arg-type]
    "invite with a group": lambda actor, _: accounts.invite(
        actor, email="new@example.com", name="New", groups=["staff"]),
    "create": lambda actor, _: accounts.create(actor, email="new@example.com", name="New"),
    "create a webhook": lambda actor, _: webhooks.create(actor, "https://a.example/", []),
    "change a webhook": lambda actor, user: webhooks.change(actor, user.id),
    "disable a webhook": lambda actor, user: webhooks.disable(actor, user.id),
    "enable a webhook": lambda actor, user: webhooks.enable(actor, user.id),
    "delete a webhook": lambda actor, user: webhooks.delete(actor, user.id),
    "test a webhook": lambda actor, _: webhooks.ping(actor, Webhook(url="https://a.example/")),
    "deliver again": lambda actor, user: webhooks.retry(actor, user.id),
    "send a mail again": lambda actor, user: mail_queue.resend(actor, user.id),
    "send all mails again": lambda actor, _: mail_queue.resend_failed(actor),
    "delete a mail": lambda actor, user: mail_queue.delete(actor, user.id),
    "remove an identity": lambda actor, user: identities.remove_identity(
        actor, user, user.id, warned=()),
    "create a group": lambda actor, _: group_editing.create(actor, "new"),
    "change a group": lambda actor, user: group_editing.change(actor, user.id, name="else"),
    "delete a group": lambda actor, user: group_editing.delete(actor, user.id),
    "allow an agent": lambda actor, _: agents.allow(actor, "agent.example"),
    "block an agent": lambda actor, _: agents.block(actor, "agent.example"),
    "forget an agent": lambda actor, _: agents.remove(actor, "agent.example"),
    "create an API token": lambda actor, _: api_tokens.create(actor, "x", ["scim:read"]),
    "revoke an API token": lambda actor, user: api_tokens.revoke(actor, user.id),
    "import": lambda actor, _: importing.add(actor, [], None),  # type: ignore[arg-type]
    "define an attribute": lambda actor, _: attributes.define(actor, {"name": "x"}),
    "change an attribute": lambda actor, _: attributes.change(actor, "x", {}),
    "delete an attribute": lambda actor, _: attributes.delete(actor, "x"),
}  # fmt: skip


def test_what_the_helpdesk_may_never_do(app: Flask) -> None:
    hal = helper(app)
    dana = make_user(app)
    with app.app_context():
        for name, call in NEVER.items():
            with pytest.raises(NotAllowed):
                call(hal, loaded(dana))
            assert not db.session.dirty, name
            db.session.rollback()


@pytest.mark.parametrize("group", [ADMINS, HELPDESK])
def test_the_helpdesk_touches_nobody_who_administers(app: Flask, group: str) -> None:
    hal = helper(app)
    other = make_user(app, "other@example.com", groups=[group])
    dana = make_user(app, "dana@example.com", password=None)
    with app.app_context():
        for call in HELP.values():
            with pytest.raises(NotAllowed, match="Only administrators"):
                call(hal, loaded(other))
            call(hal, loaded(dana))


def test_the_command_gives_a_hint(app: Flask, ada: User) -> None:
    done = app.test_cli_runner().invoke(args=["user", "delete", "--yes", ada.email])
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert "flask user update WHO --add-group sso-administrators" in done.stderr


def test_the_first_administrator(app: Flask) -> None:
    made = app.test_cli_runner().invoke(
        args=["user", "create", "--email", "ada@example.com", "--name", "Ada", "--admin",
              "--password-stdin"],
        input="correct horse battery\n",
    )  # fmt: skip
    assert made.exit_code == 0
    assert made.stderr == ""
    with app.app_context():
        found = users.find_by_email("ada@example.com")
        assert found
        assert found.groups == [ADMINS]


def test_an_administrator_in_other_groups(app: Flask) -> None:
    email = "ada@example.com"
    more = ["--group", "staff", "--group", "board", "--password-stdin"]
    made = app.test_cli_runner().invoke(
        args=["user", "create", "--email", email, "--name", "Ada", "--admin", *more],
        input="correct horse battery\n",
    )
    assert made.exit_code == 0
    with app.app_context():
        user = users.find_by_email(email)
        assert user
        assert set(user.groups) == {"staff", "board", ADMINS}


def test_two_who_remove_each_other(app: Flask, ada: User) -> None:
    """One of them is too late, on every database."""
    bob = make_user(app, "bob@example.com", groups=[ADMINS])
    barrier = threading.Barrier(2)
    outcomes = []

    def remove(actor: User, other: User) -> None:
        with app.app_context():
            target = loaded(other)
            db.session.rollback()
            barrier.wait(10)
            try:
                accounts.disable(acting(actor), target)
                db.session.commit()
                outcomes.append("done")
            except NotAllowed:
                db.session.rollback()
                outcomes.append("refused")

    threads = [threading.Thread(target=remove, args=pair) for pair in ((ada, bob), (bob, ada))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == ["done", "refused"]


@pytest.mark.parametrize("state", ["disabled", "with a password"])
def test_who_is_not_invited_again(app: Flask, state: str) -> None:
    """A link to set a password is for those who never had one, and may sign in."""
    password = PASSWORD if state == "with a password" else None
    dana = make_user(app, "dana@example.com", password=password)
    with app.app_context():
        user = loaded(dana)
        user.disabled_at = clock.now() if state == "disabled" else None
        db.session.commit()
        with pytest.raises(Invalid):
            credentials.invite_again(OPERATOR, user)
        user.disabled_at, user.password_hash = None, None
        credentials.invite_again(OPERATOR, user)


@pytest.mark.parametrize("group", [ADMINS, HELPDESK])
def test_a_token_without_the_scope_makes_nobody_a_member_of_the_staff(
    app: Flask, user: User, group: str
) -> None:
    """What somebody would become counts, not only what they are."""
    token = Actor("API token", changes_staff=False)
    with app.app_context():
        with pytest.raises(NotAllowed):
            accounts.update(token, user.id, memberships=ListEdit(added=(group,)))
        db.session.rollback()
        assert loaded(user).groups == []
        accounts.update(token, user.id, memberships=ListEdit(added=("staff",)))
        assert loaded(user).groups == ["staff"]


@pytest.mark.parametrize("group", [ADMINS, HELPDESK])
def test_a_token_without_the_scope_touches_nobody_of_the_staff(app: Flask, group: str) -> None:
    """Each service refuses by itself, whatever its caller has looked at before."""
    make_user(app, "other@example.com", groups=[ADMINS])
    one, plain = make_user(app, groups=[group]), make_user(app, "plain@example.com")
    token = Actor("API token", changes_staff=False)
    own = ("enable", "rename", "email", "password")
    for name, act in {**REMOVE, **{name: NEVER[name] for name in own}}.items():
        with app.app_context():
            with pytest.raises(NotAllowed, match="scim:privileged"):
                act(token, loaded(one))
            db.session.rollback()
            if name in own:
                act(token, loaded(plain))
    with app.app_context(), pytest.raises(NotAllowed, match="scim:privileged"):
        accounts.create(token, email="new@example.com", name="New", groups=["x", group])


@pytest.mark.parametrize("group", [ADMINS, HELPDESK])
def test_a_token_without_the_scope_takes_nobody_out_of_the_staff(app: Flask, group: str) -> None:
    """What somebody was counts, too, if they stay in another group."""
    make_user(app, "other@example.com", groups=[ADMINS])
    one = make_user(app, groups=[group, "board"])
    token = Actor("API token", changes_staff=False)
    for edit in (ListEdit(removed=(group,)), ListEdit(whole=("board",))):
        with app.app_context():
            with pytest.raises(NotAllowed, match="scim:privileged"):
                accounts.update(token, one.id, memberships=edit)
            db.session.rollback()
            assert loaded(one).groups == [group, "board"]
            accounts.update(OPERATOR, one.id, memberships=edit)
            assert loaded(one).groups == ["board"]
            db.session.rollback()
