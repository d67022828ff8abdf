"""What ends a mailed code, and what changes attributes and roles of applications: the tables of
docs/explanation/revocation.md.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from flask import Flask

from sso import audit
from sso import clock as moment
from sso.extensions import db
from sso.flow import moments
from sso.models import User
from sso.services import accounts, clients, credentials, group_editing, revocation
from sso.services.changes import ListEdit
from sso.store import named_groups
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, claims_of
from tests.support.factories import make_attribute, make_client, make_user
from tests.support.mailbox import Mailbox, text_of
from tests.support.second_factors import CODE, is_signed_in

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs/explanation/revocation.md"
OLGA = audit.Actor("olga")


def documented(heading: str) -> dict[str, str]:
    """The table below a heading of the page."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
    return {cause: effect for cause, effect in rows if "---" not in cause and cause != "cause"}


def update(**fields: object) -> Callable[[UUID], object]:
    return lambda user_id: accounts.update(OLGA, user_id, **fields)  # type: ignore[arg-type]  # each case has its own fields


def _user(user_id: UUID) -> User:
    return db.session.get_one(User, user_id)


CODES: dict[str, Callable[[UUID], object]] = {
    "nothing, for nine minutes": lambda _: None,
    "user disabled": lambda user_id: accounts.disable(OLGA, _user(user_id)),
    "end of the account": lambda user_id: accounts.update(
        OLGA, user_id, ends_at=moments.text_of(moment.now() + timedelta(seconds=1))
    ),
    "user deleted": lambda user_id: accounts.delete(OLGA, _user(user_id)),
    "password set by an operator": lambda user_id: credentials.set_password(
        OLGA, _user(user_id), "another long password"
    ),
    "email address changed": update(email="duck@example.com"),
    "permissions in the administration": update(
        memberships=ListEdit(added=("sso-administrators",))
    ),
    "group lost": update(memberships=ListEdit(removed=("staff",))),
    "sign-out by an operator": lambda user_id: revocation.sessions_of_user(user_id, "test"),
}


def test_the_table_of_codes_has_these_causes() -> None:
    assert documented("Codes in emails").keys() == CODES.keys()


@pytest.mark.parametrize("cause", CODES)
def test_codes_in_emails(app: Flask, clock: Clock, mailbox: Mailbox, cause: str) -> None:
    app.extensions["sso.settings"] = replace(app.extensions["sso.settings"], mail_codes="on")
    user_id = make_user(app, groups=["staff"]).id
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in/code")
    browser.submit(email="dana@example.com")
    (code,) = {code for mail in mailbox.read() for code in CODE.findall(text_of(mail))}
    with app.app_context():
        CODES[cause](user_id)
        db.session.commit()
    clock.move(minutes=9)
    browser.submit(code=code)
    effect = "works" if is_signed_in(browser) else "refused"
    assert effect == documented("Codes in emails")[cause]


def _rename(name: str, new: str) -> None:
    group = named_groups.find_by_name(name)
    assert group
    group_editing.change(OLGA, group.id, name=new)


def _delete(name: str) -> None:
    group = named_groups.find_by_name(name)
    assert group
    group_editing.delete(OLGA, group.id)


RIGHTS: dict[str, Callable[[UUID, str], object]] = {
    "nothing": lambda *_: None,
    "attribute changed": lambda user_id, _: accounts.update(
        OLGA, user_id, attributes={"team": "Press"}
    ),
    "attribute removed": lambda user_id, _: accounts.update(
        OLGA, user_id, attributes={"team": None}
    ),
    "claim taken from the client": lambda _, client_id: clients.change(
        OLGA, client_id, {"own_claims": []}
    ),
    "group of the role lost": lambda user_id, _: accounts.update(
        OLGA, user_id, memberships=ListEdit(removed=("writers",))
    ),
    "end of the membership": lambda user_id, _: accounts.update(
        OLGA, user_id,
        memberships=ListEdit(added=("writers",)),
        group_ends={"writers": moments.text_of(moment.now() + timedelta(seconds=1))},
    ),
    "group of the role deleted": lambda *_: _delete("writers"),
    "group of the role renamed": lambda *_: _rename("writers", "authors"),
    "role taken from the client": lambda _, client_id: clients.change(
        OLGA, client_id, {"roles": []}
    ),
}  # fmt: skip


def test_the_table_of_rights_has_these_causes() -> None:
    assert documented("Attributes and roles").keys() == RIGHTS.keys()


@pytest.mark.parametrize("cause", RIGHTS)
def test_attributes_and_roles(app: Flask, clock: Clock, cause: str) -> None:
    make_attribute(app, "team")
    user = make_user(app, groups=["staff", "writers"], attributes={"team": "Care"})
    client = make_client(
        app, own_claims=["team=attribute:team"], roles=["editor=writers"], id_token_claims="all"
    )
    tokens = client.exchange(Browser(app).approve(client).code).get_json()
    with app.app_context():
        RIGHTS[cause](user.id, client.client_id)
        db.session.commit()
    clock.move(seconds=2)
    profile = client.userinfo(tokens["access_token"])
    assert profile.status_code == 200  # no token ends
    refreshed = client.refresh(tokens["refresh_token"]).get_json()
    for claims in (profile.get_json(), claims_of(refreshed["id_token"])):
        team = {"Care": "attribute", "Press": "new attribute", None: "none"}[claims.get("team")]
        roles = "role" if claims.get("roles") else "no role"
        effect = f"{team}, {roles}".replace("none, ", "no attribute, ")
        assert effect == documented("Attributes and roles")[cause]
