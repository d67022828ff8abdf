"""Ends of clients' secrets and of API tokens: at their moment, and announced before."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.flow import moments
from sso.models import Client
from sso.services import api_tokens, clients
from sso.services.checks import Invalid
from sso.store import clients as stored
from sso.store import keys
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty
from tests.support.administration import ADMINS
from tests.support.ends import work
from tests.support.events import events
from tests.support.factories import make_client, make_user
from tests.support.mailbox import Mailbox, text_of

OLGA = audit.Actor("olga")


@pytest.fixture
def end(clock: Clock) -> datetime:
    clock.stand_still()
    return clock.time + timedelta(days=30)


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app, name="Wiki", scope="openid offline_access")


def limit(app: Flask, client: RelyingParty, end: datetime | None) -> None:
    with app.app_context():
        clients.limit_secret(OLGA, client.client_id, moments.text_of(end))
        db.session.commit()


def row(app: Flask, client: RelyingParty) -> Client:
    with app.app_context():
        found = stored.find(client.client_id)
        assert found
        return found


@pytest.mark.parametrize(("seconds", "is_right"), [(-1, True), (0, False), (1, False)])
def test_a_secret_is_compared_with_the_clock(
    app: Flask, client: RelyingParty, clock: Clock, end: datetime, seconds: int, is_right: bool
) -> None:
    """The worker is stopped. Access tokens stay: userinfo asks for no secret."""
    clock.time = end - timedelta(minutes=5)
    make_user(app)
    browser = Browser(app)
    tokens = client.exchange(browser.approve(client, scope="openid offline_access").code).get_json()
    clock.time = end - timedelta(seconds=20)
    code = browser.authorize(client, scope="openid").code
    limit(app, client, end)
    clock.time = end + timedelta(seconds=seconds)
    answers = {
        "code": client.exchange(code).status_code,
        "introspection": client.introspect(tokens["access_token"]).status_code,
        "refresh": client.refresh(tokens["refresh_token"]).status_code,
    }
    assert answers == dict.fromkeys(answers, 200 if is_right else 401)
    assert client.userinfo(tokens["access_token"]).status_code == 200
    if not is_right:
        refused = events(app, "client_authentication_failed")
        assert {event["reason"] for event in refused} == {"the right secret, which has ended"}
        wrong = app.test_cli_runner().invoke(args=["client", "show", client.client_id])
        assert "The secret ends at 2026-12-21 12:00 UTC." in wrong.stdout


@pytest.mark.parametrize(("hours", "seconds", "is_right"), [
    (48, -1, True), (48, 0, False), (12, -1, False), (0, -1, False),
])  # fmt: skip
def test_an_old_secret_lasts_no_longer_than_it_would_have(
    app: Flask, client: RelyingParty, clock: Clock, end: datetime, hours: int, seconds: int,
    is_right: bool,
) -> None:  # fmt: skip
    limit(app, client, end)
    clock.time = end - timedelta(days=1)
    with app.app_context():
        changed, new = clients.rotate_secret(OLGA, client.client_id, timedelta(hours=hours))
        db.session.commit()
        assert changed.secret_expires_at is None
    clock.time = end + timedelta(seconds=seconds)
    assert row(app, client).check_client_secret(client.client_secret or "") is is_right
    assert row(app, client).check_client_secret(new)


def test_a_new_secret_may_have_an_end(
    app: Flask, client: RelyingParty, clock: Clock, end: datetime
) -> None:
    with app.app_context():
        text = moments.text_of(end)
        changed, secret = clients.rotate_secret(OLGA, client.client_id, None, text)
        db.session.commit()
        assert clients.issued(changed, secret)["client_secret_expires_at"] == end.timestamp()
    assert row(app, client).check_client_secret(secret)
    clock.time = end
    assert not row(app, client).check_client_secret(secret)
    limit(app, client, None)
    assert row(app, client).check_client_secret(secret)
    changes = [event["changes"]["secret_ends_at"] for event in events(app, "client_changed")]
    assert changes == [{"before": text, "after": ""}]


def test_what_has_no_secret_has_no_end_of_it(app: Flask) -> None:
    public = make_client(app, public=True)
    with app.app_context(), pytest.raises(Invalid):
        clients.limit_secret(OLGA, public.client_id, "2099-01-01")


@pytest.mark.parametrize("text", ["soon", "2020-01-01"])
def test_what_is_no_end(app: Flask, client: RelyingParty, text: str) -> None:
    with app.app_context():
        for act in (
            lambda: clients.limit_secret(OLGA, client.client_id, text),
            lambda: clients.rotate_secret(OLGA, client.client_id, None, text),
        ):
            with pytest.raises(Invalid):
                act()


def make_token(app: Flask, name: str, owner: Any, days: int = 30) -> None:
    actor = audit.Actor(owner.email, user_id=owner.id) if owner else OLGA
    with app.app_context():
        api_tokens.create(actor, name, ["scim:read"], timedelta(days=days))
        db.session.commit()


def test_who_can_replace_them_is_told_once_a_week_before(
    app: Flask, client: RelyingParty, mailbox: Mailbox, clock: Clock, end: datetime
) -> None:
    ada = make_user(app, "ada@example.com", groups=[ADMINS])
    make_user(app, "grace@example.com", groups=[ADMINS])
    make_user(app, "gone@example.com", groups=[ADMINS], disabled=True)
    make_user(app)
    for name, owner in (("Entra", ada), ("Okta", ada), ("By command", None)):
        make_token(app, name, owner)
    make_token(app, "Later", ada, 60)
    limit(app, client, end)
    before = row(app, client)
    clock.time = end - moments.NOTICE - timedelta(seconds=1)
    assert work(app) == 0
    clock.time = end - moments.NOTICE
    assert [work(app), work(app)] == [4, 0]
    sent = sorted(
        (mail["To"].addresses[0].addr_spec, " ".join(text_of(mail).split()))
        for mail in mailbox.read()
    )
    at = "(2026-12-21 12:00 UTC)"
    expected = [
        ("ada@example.com", f"By command {at}."),
        ("ada@example.com", f"Entra {at}, Okta {at}."),
        ("ada@example.com", f"Wiki {at}."),
        ("grace@example.com", f"By command {at}."),
        ("grace@example.com", f"Wiki {at}."),
    ]
    texts = sorted((address, text.partition("soon: ")[2].partition(".")[0] + ".")
                   for address, text in sent)  # fmt: skip
    assert texts == expected
    after = row(app, client)
    assert (after.version, after.updated_at) == (before.version, before.updated_at)


def test_a_revoked_token_and_a_disabled_application_are_no_news(
    app: Flask, client: RelyingParty, clock: Clock, end: datetime
) -> None:
    make_user(app, "ada@example.com", groups=[ADMINS])
    make_token(app, "Entra", None)
    limit(app, client, end)
    with app.app_context():
        (token,) = keys.every_api_token()
        api_tokens.revoke(OLGA, token.id)
        clients.disable(OLGA, client.client_id)
        db.session.commit()
    clock.time = end - timedelta(days=1)
    assert work(app) == 0


def test_the_commands(app: Flask, client: RelyingParty) -> None:
    def run(*arguments: str) -> Any:
        return app.test_cli_runner().invoke(args=["client", *arguments])

    done = run("limit-secret", client.client_id, "--ends-at", "2099-12-31T18:00+01:00")
    assert done.exit_code == 0
    assert "The secret ends at 2099-12-31 17:00 UTC." in run("show", client.client_id).stdout
    for options in ((), ("--ends-at", "2099-01-01", "--no-ends-at")):
        wrong = run("limit-secret", client.client_id, *options)
        assert "Give --ends-at or --no-ends-at." in wrong.stderr
    assert run("limit-secret", client.client_id, "--no-ends-at").exit_code == 0
    assert row(app, client).secret_expires_at is None
    new = run("rotate-secret", client.client_id, "--ends-at", "2099-12-31", "--json")
    assert json.loads(new.stdout)["client_secret_expires_at"] == 4102358400
