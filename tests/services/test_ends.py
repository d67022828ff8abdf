"""Ends of accounts: at their moment, without the worker and with it."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.config.upstream.ldap import LdapProvider
from sso.errors import NotAllowed
from sso.extensions import db
from sso.flow import moments
from sso.models import Identity, User
from sso.scim import filters
from sso.services import accounts, api_tokens, declared_accounts, ends, identities
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store import scim_resources, users
from sso.upstream.identity import UpstreamIdentity
from tests.conftest import Clock
from tests.scim.conftest import USER, Provisioner, make_token
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.administration import ADMINS, sign_in_staff
from tests.support.ends import row, work
from tests.support.events import events
from tests.support.factories import make_client, make_user
from tests.support.mailbox import Mailbox, text_of
from tests.support.proxied import Proxied, make_proxied

OLGA = audit.Actor("olga")
CORP = LdapProvider(
    id="corp", type="ldap", name="Corp", directory="openldap", servers=(), base="dc=x"
)
SCOPE = "openid offline_access"


def set_end(app: Flask, user: User, ends_at: datetime | str, **more: Any) -> None:
    text = ends_at if isinstance(ends_at, str) else moments.text_of(ends_at)
    with app.app_context():
        accounts.update(OLGA, user.id, ends_at=text, **more)
        db.session.commit()


@pytest.fixture
def end(clock: Clock) -> datetime:
    clock.stand_still()
    return clock.time + timedelta(days=30)


@pytest.mark.parametrize("text", [
    "2026-11-21T12:00:01Z", "2026-11-21 12:00:01", "2026-11-21T13:00:01+01:00",
    "2026-11-21T04:00:01.9-08:00", " 2026-11-21T12:00:01+00:00 ", "20261121T120001Z",
])  # fmt: skip
def test_a_moment_is_in_utc_unless_it_says_otherwise(text: str, clock: Clock) -> None:
    assert ends.read(text) == datetime(2026, 11, 21, 12, 0, 1, tzinfo=UTC)


def test_the_hour_that_daylight_saving_repeats_is_two_hours() -> None:
    summer, winter = (ends.read(f"2027-10-31T02:30+0{hours}:00") for hours in (2, 1))
    assert summer is not None
    assert winter == summer + timedelta(hours=1)


@pytest.mark.parametrize("text", [
    "tomorrow", "2027-02-30", "2027-10-31T02:30 Europe/Berlin", "2027-10-31T25:00", "1e9",
    "9999-12-31T23:59:59-10:00", "0001-01-01T00:00+10:00", "2026-11-21T12:00:00Z", "2026-11-21",
    "2026-11-21T13:00+02:00", "x" * 999,
])  # fmt: skip
def test_what_is_no_moment_or_is_over_is_refused(text: str, clock: Clock) -> None:
    clock.stand_still()
    with pytest.raises(Invalid):
        ends.read(text)


@pytest.mark.parametrize(("seconds", "is_open"), [(-1, True), (0, False), (1, False)])
def test_every_check_compares_it_with_the_clock(
    make_app: Callable[..., Flask], clock: Clock, end: datetime, seconds: int, is_open: bool
) -> None:
    """The worker is stopped."""
    app = make_app(SSO_TRUSTED_PROXIES="1")
    clock.time = end - timedelta(minutes=5)
    make_user(app, "other@example.com", groups=[ADMINS])
    staff = sign_in_staff(app, "ada@example.com")
    with app.app_context():
        ada = users.find_by_email("ada@example.com")
        assert ada is not None
        actor = audit.Actor(ada.email, user_id=ada.id)
        _, secret = api_tokens.create(actor, "Entra", ["scim:write"])
        db.session.commit()
    program = Provisioner(app, secret)
    user, client, browser = make_user(app), make_client(app, scope=SCOPE), Browser(app)
    browser.sign_in()
    tokens = client.exchange(browser.approve(client, scope=SCOPE).code).get_json()
    wiki = Proxied(app, make_proxied(app))
    wiki.sign_in(browser)
    for ending in (user, ada):
        set_end(app, ending, end)
    clock.time = end + timedelta(seconds=seconds)
    access = tokens["access_token"]
    answers = {
        "account": browser.open(f"{ORIGIN}{BASE}/account").path.endswith("/account"),
        "authorize": browser.authorize(client, scope=SCOPE, prompt="none").error is None,
        "sign-in": Browser(app).sign_in().path.endswith("/account"),
        "userinfo": client.userinfo(access).status_code == 200,
        "introspection": client.introspect(access).get_json()["active"],
        "refresh": client.refresh(tokens["refresh_token"]).status_code == 200,
        "forward auth": wiki.ask().status_code == 200,
        "API token": program("GET", "/Users").status_code == 200,
        "console": staff.open(f"{ORIGIN}{BASE}/admin").path.endswith("/admin"),
    }
    assert answers == dict.fromkeys(answers, is_open)
    with app.app_context():
        active, inactive = (
            filters.condition(User, f"active eq {value}") for value in ("true", "false")
        )
        assert scim_resources.users_where(active, 0, 10)[0] == (3 if is_open else 1)
        assert scim_resources.users_where(inactive, 0, 10)[0] == (0 if is_open else 2)


def test_the_worker_carries_it_out_once(app: Flask, clock: Clock, end: datetime) -> None:
    clock.time = end - timedelta(hours=1)
    user, browser = make_user(app), Browser(app)
    browser.sign_in()
    set_end(app, user, end)
    clock.time = end - timedelta(seconds=1)
    assert work(app) == 1  # the announcement
    assert row(app, user).disabled_at is None
    clock.time = end
    assert [work(app), work(app)] == [1, 0]
    assert row(app, user).disabled_at == end
    (event,) = events(app, "user_disabled")
    assert (event["user"], event["reason"]) == (str(user.id), "account_ended")
    assert [one["reason"] for one in events(app, "session_ended")] == ["user_disabled"]


def test_it_is_announced_once_a_week_before(
    app: Flask, mailbox: Mailbox, clock: Clock, end: datetime
) -> None:
    user = make_user(app, claims={"zoneinfo": "Europe/Berlin", "locale": "en"})
    set_end(app, user, end)
    before = row(app, user)
    clock.time = end - moments.NOTICE - timedelta(seconds=1)
    assert work(app) == 0
    clock.time = end - moments.NOTICE
    assert [work(app), work(app)] == [1, 0]
    (mail,) = mailbox.read()
    assert "ends soon" in mail["Subject"]
    assert re.search(r"ends on December 21, 2026.*1:00\sPM UTC\+1\.", text_of(mail))
    after = row(app, user)
    assert (after.version, after.updated_at) == (before.version, before.updated_at)
    set_end(app, user, end + timedelta(days=30))  # another end is announced again
    assert work(app) == 0
    clock.move(days=30)
    assert work(app) == 1


@pytest.mark.parametrize("worked", [False, True])
@pytest.mark.parametrize("text", ["", "2027-12-31"])
def test_a_later_end_or_none_lets_the_person_sign_in_again(
    app: Flask, clock: Clock, end: datetime, text: str, worked: bool
) -> None:
    """What had ended stays ended, also if the worker had not seen to it."""
    clock.time = end - timedelta(hours=1)
    user, browser = make_user(app), Browser(app)
    browser.sign_in()
    set_end(app, user, end)
    clock.time = end
    if worked:
        work(app)
    set_end(app, user, text)
    assert not row(app, user).is_disabled
    assert browser.open(f"{ORIGIN}{BASE}/account").path.endswith("/sign-in")
    assert browser.sign_in().path.endswith("/account")


@pytest.mark.parametrize("worked", [False, True])
def test_to_enable_removes_an_end_that_has_passed(
    app: Flask, clock: Clock, end: datetime, worked: bool
) -> None:
    clock.time = end - timedelta(hours=1)
    user, browser = make_user(app), Browser(app)
    browser.sign_in()
    set_end(app, user, end)
    clock.time = end
    if worked:
        work(app)
    with app.app_context():
        accounts.enable(OLGA, users.find(user.id) or user)
        db.session.commit()
    assert (row(app, user).ends_at, row(app, user).is_disabled) == (None, False)
    assert browser.open(f"{ORIGIN}{BASE}/account").path.endswith("/sign-in")


def test_who_was_disabled_before_the_end_stays_disabled(
    app: Flask, clock: Clock, end: datetime
) -> None:
    user = make_user(app)
    set_end(app, user, end)
    set_end(app, user, end + timedelta(days=1), disabled=True)
    clock.move(days=60)
    assert work(app) == 0
    set_end(app, user, "")
    assert row(app, user).is_disabled


def _declare(user: User, **more: Any) -> declared_accounts.Plan:
    plan = declared_accounts.plan([declared_accounts.Declaration(email=user.email, **more)])
    declared_accounts.carry_out(OLGA, plan.planned)
    return plan


@pytest.mark.parametrize("worked", [False, True])
@pytest.mark.parametrize(
    "disable",
    [
        lambda user: accounts.update(OLGA, user.id, disabled=True),
        lambda user: accounts.update(OLGA, user.id, disabled=True, ends_at=""),
        lambda user: accounts.update(OLGA, user.id, disabled=True, ends_at="2030-01-01"),
        lambda user: _declare(user, disabled=True),
        lambda user: _declare(user, disabled=True, name="Else"),
        lambda user: _declare(user, disabled=True, ends_at=""),
        lambda user: _declare(user, disabled=True, ends_at="2030-01-01"),
    ],
)
def test_who_is_disabled_after_the_end_is_signed_out_and_stays_disabled(
    app: Flask, clock: Clock, end: datetime, worked: bool, disable: Callable[[User], object]
) -> None:
    """Also if the worker has not seen to the end: it does so no more."""
    clock.time = end - timedelta(hours=1)
    user, browser = make_user(app), Browser(app)
    browser.sign_in()
    set_end(app, user, end)
    clock.time = end
    if worked:
        work(app)
    clock.move(seconds=1)
    with app.app_context():
        disable(user)
        db.session.commit()
    assert [one.get("operator") for one in events(app, "user_disabled")][worked:] == ["olga"]
    assert len(events(app, "session_ended")) == 1
    assert work(app) == 0
    with app.app_context():  # already so
        assert not _declare(user, disabled=True).planned
        accounts.update(OLGA, user.id, disabled=True)
        db.session.commit()
    assert len(events(app, "user_disabled")) == 1 + worked
    set_end(app, user, "2030-12-31")
    assert row(app, user).is_disabled


@pytest.mark.parametrize("worked", [False, True])
@pytest.mark.parametrize("disabled", [None, False, True])
def test_a_declaration_that_names_the_end_disables_nobody_else(
    app: Flask, clock: Clock, end: datetime, worked: bool, disabled: bool | None
) -> None:
    """An export has `disabled = true` of those whose account has ended."""
    user = make_user(app)
    set_end(app, user, end)
    clock.time = end
    if worked:
        work(app)
    before = row(app, user)
    with app.app_context():
        text = moments.text_of(end)
        assert not _declare(user, disabled=disabled, ends_at=text).planned
        assert _declare(user, disabled=disabled, ends_at=text, name="Else").planned
        db.session.commit()
    after = row(app, user)
    assert (after.name, after.disabled_at) == ("Else", before.disabled_at)
    set_end(app, user, "2030-12-31")
    assert not row(app, user).is_disabled


@pytest.mark.parametrize(("says", "is_held"), [(True, True), (False, False)])
def test_a_program_that_says_nothing_of_active_does_not_disable(
    app: Flask, clock: Clock, end: datetime, says: bool, is_held: bool
) -> None:
    user = make_user(app)
    set_end(app, user, end)
    clock.time = end
    scim = Provisioner(app, make_token(app, "scim:write"))
    if says:
        document = {"schemas": [USER], "userName": user.email, "displayName": "Else"}
        answer = scim("PUT", f"/Users/{user.id}", {**document, "active": False})
    else:
        operation = {"op": "replace", "path": "displayName", "value": "Else"}
        answer = scim.patch(f"/Users/{user.id}", operation)
    assert answer.status_code == 200, answer.text
    assert row(app, user).name == "Else"
    set_end(app, user, "2030-12-31")
    assert row(app, user).is_disabled is is_held


def test_an_end_that_has_passed_may_stay(app: Flask, clock: Clock, end: datetime) -> None:
    user = make_user(app)
    set_end(app, user, end)
    clock.time = end
    work(app)
    set_end(app, user, end, name="Else")
    assert (row(app, user).name, row(app, user).is_disabled) == ("Else", True)


def test_a_directory_enables_nobody_after_the_end(app: Flask, clock: Clock, end: datetime) -> None:
    user = make_user(app)
    set_end(app, user, end)
    with app.app_context():
        identity = Identity(user_id=user.id, provider="corp", issuer=CORP.issuer, subject="1")
        db.session.add(identity)
        db.session.flush()
        identities.disable_user(audit.SYSTEM, CORP, identity, "gone")
        db.session.commit()
        clock.time = end
        identities.enable_user(audit.SYSTEM, CORP, UpstreamIdentity(CORP.issuer, "1"))
        db.session.commit()
    assert row(app, user).is_disabled
    assert row(app, user).ends_at == end
    assert row(app, user).disabled_at is not None
    assert not events(app, "user_enabled")


class TestTheLastAdministrator:
    """One administrator without an end remains."""

    @pytest.fixture
    def ada(self, app: Flask) -> User:
        return make_user(app, "ada@example.com", groups=[ADMINS])

    def test_gets_no_end(self, app: Flask, ada: User, end: datetime) -> None:
        with pytest.raises(NotAllowed):
            set_end(app, ada, end)
        make_user(app, "grace@example.com", groups=[ADMINS])
        set_end(app, ada, end)
        assert row(app, ada).ends_at == end

    @pytest.mark.parametrize("act", [
        lambda one: accounts.disable(OLGA, one),
        lambda one: accounts.delete(OLGA, one),
        lambda one: accounts.update(OLGA, one.id, memberships=ListEdit(removed=(ADMINS,))),
        lambda one: accounts.update(OLGA, one.id, ends_at="2028-01-01"),
    ])  # fmt: skip
    def test_is_not_the_one_with_an_end(
        self, app: Flask, ada: User, end: datetime, act: Callable[[User], Any]
    ) -> None:
        grace = make_user(app, "grace@example.com", groups=[ADMINS])
        set_end(app, ada, end)
        with app.app_context(), pytest.raises(NotAllowed):
            act(users.find(grace.id) or grace)


def test_nobody_ends_his_own_administration(app: Flask, end: datetime) -> None:
    ada = make_user(app, "ada@example.com", groups=[ADMINS])
    make_user(app, "grace@example.com", groups=[ADMINS])
    actor = audit.Actor(ada.email, user_id=ada.id)
    with app.app_context(), pytest.raises(NotAllowed):
        accounts.update(actor, ada.id, ends_at=moments.text_of(end))


def test_the_end_moves_while_the_worker_looks(
    app: Flask, clock: Clock, end: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = make_user(app)
    set_end(app, user, end)
    clock.time = end
    found = [user.id]
    set_end(app, user, end + timedelta(days=9))
    monkeypatch.setattr(users, "ended", lambda _: found)
    with app.app_context():
        assert accounts.end_due(audit.SYSTEM) == 0
    assert not row(app, user).is_disabled
    assert clock.now() == end
