"""Ends of memberships: at their moment, without the worker and with it."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from flask import Flask

from sso import audit
from sso.errors import NotAllowed
from sso.extensions import db
from sso.flow import group_ends, moments
from sso.models import User
from sso.services import accounts, api_tokens, declared_accounts, group_editing, identities
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store import groups as memberships
from sso.store import named_groups, users
from tests.conftest import Clock
from tests.scim.conftest import Provisioner
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.administration import ADMINS, sign_in_staff
from tests.support.ends import row, work
from tests.support.events import events
from tests.support.factories import make_client, make_user
from tests.support.mailbox import Mailbox, text_of
from tests.support.proxied import Proxied, make_proxied
from tests.test_services import CORP, ERIN_THERE

OLGA = audit.Actor("olga")
SCOPE = "openid groups offline_access"
DAY = timedelta(days=1)


@pytest.fixture
def end(clock: Clock) -> datetime:
    clock.stand_still()
    return clock.time + timedelta(days=30)


def update(app: Flask, user: User, **changes: Any) -> None:
    with app.app_context():
        accounts.update(OLGA, user.id, **changes)
        db.session.commit()


def set_end(app: Flask, user: User, end: datetime | None, group: str = "staff") -> None:
    update(app, user, group_ends={group: moments.text_of(end)})


def group_id(name: str) -> UUID:
    group = named_groups.find_by_name(name)
    assert group is not None
    return group.id


@pytest.mark.parametrize(("seconds", "is_in"), [(-1, True), (0, False), (1, False)])
def test_every_check_compares_it_with_the_clock(
    make_app: Callable[..., Flask], clock: Clock, end: datetime, seconds: int, is_in: bool
) -> None:
    """The worker is stopped."""
    app = make_app(SSO_TRUSTED_PROXIES="1")
    clock.time = end - timedelta(minutes=5)
    make_user(app, "other@example.com", groups=[ADMINS])
    staff = sign_in_staff(app)
    with app.app_context():
        ada = users.find_by_email("ada@example.com")
        assert ada is not None
        actor = audit.Actor(ada.email, user_id=ada.id)
        _, secret = api_tokens.create(actor, "Entra", ["scim:write"])
        db.session.commit()
    program = Provisioner(app, secret)
    user, browser = make_user(app, groups=["staff", "club"]), Browser(app)
    open_to_all = make_client(app, scope=SCOPE, roles=["editor=staff"])
    closed = make_client(app, name="Closed", scope=SCOPE, groups=["staff"])
    browser.sign_in()
    of_all, of_closed = (
        client.exchange(browser.approve(client, scope=SCOPE).code).get_json()
        for client in (open_to_all, closed)
    )
    wiki = Proxied(app, make_proxied(app, groups=["staff"]))
    wiki.sign_in(browser)
    set_end(app, user, end)
    set_end(app, ada, end, ADMINS)
    clock.time = end + timedelta(seconds=seconds)
    claims = open_to_all.userinfo(of_all["access_token"]).get_json()
    assert claims["groups"] == (["staff", "club"] if is_in else ["club"])
    assert claims.get("roles", []) == (["editor"] if is_in else [])
    fresh = open_to_all.refresh(of_all["refresh_token"]).get_json()
    assert "access_token" in fresh
    answers = {
        "authorize": browser.authorize(closed, scope=SCOPE, prompt="none").error is None,
        "userinfo": closed.userinfo(of_closed["access_token"]).status_code == 200,
        "introspection": closed.introspect(of_closed["access_token"]).get_json()["active"],
        "refresh": closed.refresh(of_closed["refresh_token"]).status_code == 200,
        "forward auth": wiki.ask().status_code == 200,
        "API token": program("GET", "/Users").status_code == 200,
        "console": staff.open(f"{ORIGIN}{BASE}/admin").status == 200,
    }
    assert answers == dict.fromkeys(answers, is_in)
    assert browser.open(f"{ORIGIN}{BASE}/account").path.endswith("/account")


def test_the_worker_removes_the_member_and_what_the_group_gave(
    app: Flask, clock: Clock, end: datetime
) -> None:
    clock.time = end - timedelta(minutes=5)
    user, browser = make_user(app, groups=["staff", "club"]), Browser(app)
    client = make_client(app, scope=SCOPE, groups=["staff"])
    tokens = client.exchange(browser.approve(client, scope=SCOPE).code).get_json()
    set_end(app, user, end)
    assert work(app) == 1  # it announces the end
    clock.time = end
    assert [work(app), work(app)] == [1, 0]
    after = row(app, user)
    assert (after.stored_groups, after.group_ends, after.groups_due_at) == (["club"], None, None)
    update(app, user, memberships=ListEdit(added=("staff",)))
    assert client.userinfo(tokens["access_token"]).status_code == 401
    changes = [event["changes"] for event in events(app, "user_changed")]
    removed = [change["groups"]["removed"] for change in changes if "groups" in change]
    assert sorted(removed) == [[], ["staff"]]


def test_it_is_announced_once_a_week_before(
    app: Flask, mailbox: Mailbox, clock: Clock, end: datetime
) -> None:
    user = make_user(app, groups=["staff", "club", "board"])
    for name in ("staff", "board"):
        set_end(app, user, end, name)
    set_end(app, user, end + timedelta(days=1), "club")
    before = row(app, user)
    clock.time = end - moments.NOTICE - timedelta(seconds=1)
    assert work(app) == 0
    clock.time = end - moments.NOTICE
    assert [work(app), work(app)] == [1, 0]
    (mail,) = mailbox.read()
    assert "ends: board, staff." in " ".join(text_of(mail).split())
    after = row(app, user)
    assert (after.version, after.updated_at) == (before.version, before.updated_at)
    with app.app_context():  # another change of the groups tells nobody again
        group_editing.change(OLGA, group_id("board"), removed=[user.id])
        db.session.commit()
    assert work(app) == 0
    clock.move(days=1)
    assert [work(app), work(app)] == [1, 0]
    (mail,) = mailbox.read()
    assert "ends: club." in " ".join(text_of(mail).split())


def test_another_end_is_announced_again(
    app: Flask, mailbox: Mailbox, clock: Clock, end: datetime
) -> None:
    user = make_user(app, groups=["staff"])
    set_end(app, user, end)
    clock.time = end - moments.NOTICE
    assert work(app) == 1
    set_end(app, user, end + 30 * DAY)
    assert row(app, user).groups_due_at == end + 30 * DAY - moments.NOTICE
    assert work(app) == 0
    mailbox.read()
    clock.move(days=30)
    assert [work(app), work(app)] == [1, 0]
    (mail,) = mailbox.read()
    assert "ends: staff." in " ".join(text_of(mail).split())


@pytest.mark.parametrize("way", ["user", "group"])
def test_who_is_added_again_is_a_new_member(
    app: Flask, clock: Clock, end: datetime, way: str
) -> None:
    """Also while the worker is stopped: what had ended stays ended."""
    clock.time = end - timedelta(minutes=5)
    user, browser = make_user(app, groups=["staff"]), Browser(app)
    client = make_client(app, scope=SCOPE, groups=["staff"])
    tokens = client.exchange(browser.approve(client, scope=SCOPE).code).get_json()
    set_end(app, user, end)
    clock.time = end
    if way == "user":
        update(app, user, memberships=ListEdit(added=("staff",)))
    else:
        with app.app_context():
            group_editing.change(OLGA, group_id("staff"), added=[user.id])
            db.session.commit()
    assert (row(app, user).groups, row(app, user).group_ends) == (["staff"], None)
    assert client.userinfo(tokens["access_token"]).status_code == 401


def test_an_end_goes_with_its_membership(app: Flask, end: datetime) -> None:
    user = make_user(app, groups=["staff", "club"])
    set_end(app, user, end)
    for edit in (ListEdit(removed=("staff",)), ListEdit(added=("staff",))):
        update(app, user, memberships=edit)
    assert row(app, user).group_ends is None
    set_end(app, user, end)
    with app.app_context():
        group_editing.change(OLGA, group_id("staff"), removed=[user.id])
        group_editing.change(OLGA, group_id("staff"), added=[user.id])
        db.session.commit()
    assert (row(app, user).group_ends, row(app, user).groups_due_at) == (None, None)


def test_a_new_name_of_the_group_keeps_the_end(app: Flask, end: datetime) -> None:
    user = make_user(app, groups=["staff"])
    set_end(app, user, end)
    with app.app_context():
        group_editing.change(OLGA, group_id("staff"), name="crew")
        db.session.commit()
    assert row(app, user).group_ends == {"crew": moments.text_of(end)}
    assert row(app, user).groups_due_at == end - moments.NOTICE


def test_members_are_added_with_an_end(app: Flask, clock: Clock, end: datetime) -> None:
    new, old = make_user(app), make_user(app, "old@example.com", groups=["staff"])
    text = moments.text_of(end)
    with app.app_context():
        group = group_id("staff")
        group_editing.change(OLGA, group, added=[new.id, old.id], ends_at=text)
        db.session.commit()
    assert [row(app, user).group_ends for user in (new, old)] == [{"staff": text}] * 2
    with app.app_context(), pytest.raises(Invalid):
        group_editing.change(OLGA, group, added=[new.id], ends_at="2020-01-01")
    clock.time = end
    with app.app_context():
        members = memberships.all_members("staff")
        assert [member.is_in("staff") for member in members] == [False, False]


@pytest.mark.parametrize(
    ("group", "text"), [("other", "2099-01-01"), ("staff", "2020-01-01"), ("staff", "soon")]
)
def test_what_is_refused(app: Flask, clock: Clock, group: str, text: str) -> None:
    user = make_user(app, groups=["staff"])
    with pytest.raises(Invalid):
        update(app, user, group_ends={group: text})


def test_the_last_administrators_membership_has_no_end(
    app: Flask, clock: Clock, end: datetime
) -> None:
    ada = make_user(app, "ada@example.com", groups=[ADMINS])
    with pytest.raises(NotAllowed):
        set_end(app, ada, end, ADMINS)
    grace = make_user(app, "grace@example.com", groups=[ADMINS])
    set_end(app, ada, end, ADMINS)
    for changes in ({"disabled": True}, {"group_ends": {ADMINS: moments.text_of(end)}},
                    {"memberships": ListEdit(removed=(ADMINS,))}):  # fmt: skip
        with pytest.raises(NotAllowed):
            update(app, grace, **changes)
    actor = audit.Actor("ada@example.com", user_id=ada.id)
    with app.app_context(), pytest.raises(NotAllowed):
        accounts.update(actor, ada.id, group_ends={ADMINS: moments.text_of(end)})
    clock.time = end
    set_end(app, grace, None, ADMINS)  # to remove an end is always possible
    work(app)
    assert row(app, ada).stored_groups == []


def test_without_an_end_nothing_is_compared() -> None:
    groups = ["staff"]
    assert group_ends.present(groups, None, datetime.max) == groups
    assert group_ends.next_due({}, {}) is None


def signs_in_at_provider(app: Flask, user: User) -> list[str]:
    """The provider names the group `staff`; return the groups afterwards."""
    with app.app_context():
        current = users.find(user.id)
        assert current
        identities.take_over_profile(audit.USER, CORP, current, ERIN_THERE)
        db.session.commit()
        db.session.refresh(current)
        return current.groups


@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize(("seconds", "is_in"), [(-1, True), (0, False), (1, False)])
def test_a_provider_does_not_give_it_back(
    app: Flask, clock: Clock, end: datetime, seconds: int, is_in: bool, is_told: bool,
    is_settled: bool,
) -> None:  # fmt: skip
    """Whether or not the worker has told of the end and removed the membership."""
    user = make_user(app, groups=["staff", "club"])
    set_end(app, user, end)
    if is_told:
        clock.time = end - timedelta(days=1)
        work(app)
    clock.time = end + timedelta(seconds=seconds)
    if is_settled:
        work(app)
    assert ("staff" in signs_in_at_provider(app, user)) is is_in
    # Other changes of groups, by each way, do not forget it.
    with app.app_context():
        group_editing.change(OLGA, group_id("club"), removed=[user.id])
        group_editing.change(OLGA, group_editing.create(OLGA, "choir").id, added=[user.id])
        accounts.update(OLGA, user.id, memberships=ListEdit(added=("band",)))
        accounts.update(OLGA, user.id, group_ends={"band": moments.text_of(end + 40 * DAY)})
        db.session.commit()
    clock.time = end + timedelta(days=2)
    if is_settled:
        work(app)
    groups = signs_in_at_provider(app, user)
    assert groups == ["choir", "band"]


@pytest.mark.parametrize("way", ["group", "user"])
def test_whom_an_operator_adds_again_the_provider_manages_again(
    app: Flask, clock: Clock, end: datetime, way: str
) -> None:
    user = make_user(app, groups=["staff"])
    set_end(app, user, end)
    clock.time = end + timedelta(seconds=1)
    work(app)
    assert signs_in_at_provider(app, user) == []
    with app.app_context():
        if way == "group":
            group_editing.change(OLGA, group_id("staff"), added=[user.id])
        else:
            accounts.update(OLGA, user.id, memberships=ListEdit(added=("staff",)))
        db.session.commit()
    assert signs_in_at_provider(app, user) == ["staff"]
    update(app, user, memberships=ListEdit(removed=("staff",)))
    assert signs_in_at_provider(app, user) == ["staff"]  # as without an end
    assert row(app, user).group_ends_told is None


def test_declared_groups_do_not_forget_it(app: Flask, clock: Clock, end: datetime) -> None:
    user = make_user(app, groups=["staff", "club"])
    set_end(app, user, end)
    clock.time = end + timedelta(seconds=1)
    with app.app_context():
        declaration = declared_accounts.Declaration(email=user.email, groups=["choir"])
        plan = declared_accounts.plan([declaration])
        declared_accounts.carry_out(OLGA, plan.planned)
        db.session.commit()
    assert signs_in_at_provider(app, user) == ["choir"]
