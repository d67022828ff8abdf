"""What ends an account in an application: the table of docs/explanation/revocation.md."""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from flask import Flask

from sso import audit
from sso import clock as moment
from sso.config.upstream.ldap import LdapProvider
from sso.extensions import db
from sso.flow import moments
from sso.jobs import upkeep
from sso.models import User
from sso.services import (
    accounts,
    clients,
    credentials,
    group_editing,
    identities,
    revocation,
)
from sso.services.changes import ListEdit
from sso.store import named_groups
from sso.upstream.identity import UpstreamIdentity
from tests.conftest import Clock
from tests.support.factories import make_user
from tests.support.scim_receivers import connect, in_memory, work

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DANA = "dana@example.com"
CORP = LdapProvider(
    id="corp", type="ldap", name="Corp", directory="openldap", servers=(), base="dc=x"
)


def group_id() -> UUID:
    group = named_groups.find_by_name("staff")
    assert group
    return group.id


def _barred(user: User) -> None:
    account = UpstreamIdentity(CORP.issuer, "1", DANA)
    identity = identities.link(audit.SYSTEM, user, CORP, account)
    identities.disable_user(audit.SYSTEM, CORP, identity, "gone")


OLGA = audit.Actor("olga")
Cause = Callable[[User, str], object]
CAUSES: dict[str, Cause] = {
    "user disabled": lambda user, _: accounts.disable(OLGA, user),
    "end of the account": lambda user, _: accounts.update(
        OLGA, user.id, ends_at=moments.text_of(moment.now() + timedelta(seconds=1))
    ),
    "user deleted": lambda user, _: accounts.delete(OLGA, user),
    "own account deleted": lambda user, _: accounts.delete(audit.USER, user, is_own=True),
    "barred by the directory": lambda user, _: _barred(user),
    "group lost": lambda user, _: accounts.update(
        OLGA, user.id, memberships=ListEdit(removed=("staff",))
    ),
    "group deleted": lambda *_: group_editing.delete(OLGA, group_id()),
    "client for other groups": lambda _, client_id: clients.change(
        OLGA, client_id, {"groups": ["crew"]}
    ),
    "group renamed": lambda *_: group_editing.change(OLGA, group_id(), name="crew"),
    "sign-out everywhere": lambda user, _: revocation.sessions_of_user(user.id, "test"),
    "password set by an operator": lambda user, _: credentials.set_password(
        OLGA, user, "another long password"
    ),
    "consent withdrawn": lambda user, client_id: revocation.withdraw_consent(
        audit.USER, user.id, client_id
    ),
    "client disabled": lambda _, client_id: clients.disable(OLGA, client_id),
    "client deleted": lambda _, client_id: clients.delete(OLGA, client_id),
    "SCIM URL removed": lambda _, client_id: clients.change(OLGA, client_id, {"scim_url": None}),
}


def documented() -> dict[str, str]:
    text = (ROOT / "docs/explanation/revocation.md").read_text()
    section = text.partition("## Accounts in applications")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
    return {cause: effect for cause, effect in rows if effect in ("stays", "deactivated")}


def test_the_table_has_these_causes() -> None:
    assert documented().keys() == CAUSES.keys()


@pytest.mark.parametrize("cause", CAUSES)
def test_what_happens_there(app: Flask, clock: Clock, cause: str) -> None:
    user_id = make_user(app, groups=["staff"]).id
    with in_memory() as there:
        client_id = connect(app, there.url)
        work(app)
        assert there.users[DANA]["active"] is True
        with app.app_context():
            CAUSES[cause](db.session.get_one(User, user_id), client_id)
            db.session.commit()
        clock.move(seconds=2)
        with app.app_context():
            upkeep.end_due()
        work(app)
        effect = "stays" if there.users[DANA]["active"] else "deactivated"
    assert effect == documented()[cause]
