"""API tokens of administrators who are gone, and programs that go on using them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask

from sso import audit, clock, context
from sso.config.upstream.ldap import LdapProvider
from sso.extensions import db
from sso.models import Identity, User
from sso.services import accounts, api_tokens, group_editing, identities
from sso.services.changes import ListEdit
from sso.store import keys, named_groups, users
from tests.scim.conftest import Provisioner
from tests.support.actors import BASE
from tests.support.events import events
from tests.support.factories import make_user

ADMINS, HELPDESK = "sso-administrators", "sso-helpdesk"
OLGA = audit.Actor("olga")
CORP = LdapProvider(
    id="corp", type="ldap", name="Corp", directory="openldap", servers=(), base="dc=x"
)


@pytest.fixture
def owner(app: Flask) -> User:
    make_user(app, "other@example.com", groups=[ADMINS])
    return make_user(app, "owner@example.com", groups=[ADMINS, "staff"])


def token_of(app: Flask, owner: User | None, name: str = "Entra", *more: str) -> Provisioner:
    actor = audit.Actor(owner.email, user_id=owner.id) if owner else OLGA
    with app.app_context():
        _, secret = api_tokens.create(actor, name, ["scim:write", "clients:read", *more])
        db.session.commit()
    return Provisioner(app, secret)


def admins() -> Any:
    group = named_groups.find_by_name(ADMINS)
    assert group is not None
    return group.id


def shut_out(owner: User) -> None:
    identity = Identity(user_id=owner.id, provider="corp", issuer="ldap:corp", subject="1")
    db.session.add(identity)
    db.session.flush()
    identities.disable_user(audit.SYSTEM, CORP, identity, "gone")


CAUSES: dict[str, tuple[str, Callable[[User], Any]]] = {
    "deleted": ("owner_deleted", lambda one: accounts.delete(OLGA, one)),
    "disabled": ("owner_disabled", lambda one: accounts.disable(OLGA, one)),
    "disabled by an update": (
        "owner_disabled",
        lambda one: accounts.update(OLGA, one.id, disabled=True),
    ),
    "disabled by a directory": ("owner_disabled", shut_out),
    "taken out of the group": (
        "owner_lost_role",
        lambda one: accounts.update(OLGA, one.id, memberships=ListEdit(removed=(ADMINS,))),
    ),
    "helpdesk from now on": (
        "owner_lost_role",
        lambda one: accounts.update(
            OLGA, one.id, memberships=ListEdit(added=(HELPDESK,), removed=(ADMINS,))
        ),
    ),
    "removed at the group": (
        "owner_lost_role",
        lambda one: group_editing.change(OLGA, admins(), removed=[one.id]),
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_token_ends_with_its_owner(app: Flask, owner: User, cause: str) -> None:
    token, unowned = token_of(app, owner), token_of(app, None, "By command")
    another = make_user(app, "another@example.com", groups=[ADMINS])
    theirs = token_of(app, another, "Theirs")
    assert token("GET", "/Users").status_code == 200
    reason, act = CAUSES[cause]
    with app.app_context():
        user = users.find(owner.id)
        assert user is not None
        act(user)
        db.session.commit()
    assert token("GET", "/Users").status_code == 401
    registrations = app.test_client().get(f"{BASE}/oauth2/register", headers=token.headers)
    assert registrations.status_code == 401
    assert unowned("GET", "/Users").status_code == 200
    assert theirs("GET", "/Users").status_code == 200
    (noted,) = events(app, "api_token_revoked")
    assert (noted["name"], noted["owner"], noted["reason"]) == ("Entra", str(owner.id), reason)


@pytest.mark.parametrize("cause", ["disabled", "taken out of the group"])
def test_it_stays_ended(app: Flask, owner: User, cause: str) -> None:
    token = token_of(app, owner)
    with app.app_context():
        user = users.find(owner.id)
        assert user is not None
        CAUSES[cause][1](user)
        db.session.commit()
        accounts.update(OLGA, owner.id, disabled=False, memberships=ListEdit(added=(ADMINS,)))
        db.session.commit()
    assert token("GET", "/Users").status_code == 401


def test_what_leaves_the_owner_an_administrator_ends_nothing(app: Flask, owner: User) -> None:
    token = token_of(app, owner)
    with app.app_context():
        accounts.update(OLGA, owner.id, name="Else", memberships=ListEdit(removed=("staff",)))
        group_editing.change(OLGA, admins(), provisioned={"external_id": "7"})
        db.session.commit()
    assert token("GET", "/Users").status_code == 200
    assert events(app, "api_token_revoked") == []


@pytest.mark.parametrize("how", ["setting", "groups by SQL", "helpdesk by SQL", "disabled by SQL"])
def test_an_owner_who_is_no_administrator_for_another_reason(
    app: Flask, owner: User, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no service has seen is seen when the token is used; it works again when that ends."""
    token = token_of(app, owner)
    with app.app_context():
        if how == "setting":
            settings = replace(context.settings(), admin_group="bosses")
            monkeypatch.setattr(context, "settings", lambda: settings)
        else:
            row = users.find(owner.id)
            assert row is not None
            if how == "disabled by SQL":
                row.disabled_at = clock.now()
            else:
                row.groups = [HELPDESK] if how == "helpdesk by SQL" else ["staff"]
            db.session.commit()
    assert token("GET", "/Users").status_code == 401
    assert [one["reason"] for one in events(app, "api_token_refused")] == ["owner"]


def test_a_token_may_end_itself(app: Flask, owner: User) -> None:
    token = token_of(app, owner, "Entra", "scim:privileged")
    assert token("DELETE", f"/Users/{owner.id}").status_code == 204
    assert token("GET", "/Users").status_code == 401


def test_the_owner_is_shown(app: Flask, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    token_of(app, owner)
    token_of(app, None, "By command")
    run = app.test_cli_runner().invoke
    listed = run(args=["api-token", "list", "--json"]).stdout
    assert listed.count('"owner": "owner@example.com"') == 1
    assert listed.count('"owner_id": null') == 1
    assert "owner@example.com" in run(args=["api-token", "list"]).stdout
    questions: list[str] = []
    monkeypatch.setattr("sso.cli.users.confirm", lambda question, _: questions.append(question))
    with app.app_context():
        assert [one.name for one in keys.of_owner(owner.id)] == ["Entra"]
    assert run(args=["user", "delete", str(owner.id), "--yes"]).exit_code == 0
    assert questions == [f"Delete owner@example.com ({owner.id}), and revoke the API tokens Entra?"]
    listed = run(args=["api-token", "list", "--json"]).stdout
    assert f'"owner_id": "{owner.id}"' in listed
    assert str(owner.id) in run(args=["api-token", "list"]).stdout
