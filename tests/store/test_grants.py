"""Consents are merged, and grants end: what has to stay stands beside what goes."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import select, update

from sso import clock as sso_clock
from sso.extensions import db
from sso.flow.resources import qualified
from sso.models import Grant, User
from sso.store import assertions, grants
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty


@pytest.fixture
def app(make_app: Any) -> Flask:
    """One database is enough here; test_races.py has both."""
    made: Flask = make_app()
    return made


@pytest.mark.parametrize(
    ("decisions", "scope", "declined"),
    [
        ([("openid email", "")], "openid email", ""),
        ([("openid", ""), ("email", "")], "openid email", ""),
        ([("openid", "email"), ("", "profile")], "openid", "email profile"),
        ([("openid", "email"), ("email", "")], "openid email", ""),
        ([("openid email", ""), ("", "email")], "openid", "email"),
        ([("openid email", "profile"), ("profile", "email")], "openid profile", "email"),
    ],
)
def test_a_decision_is_stored_beside_earlier_ones(
    app: Flask,
    client: RelyingParty,
    user: User,
    decisions: list[tuple[str, str]],
    scope: str,
    declined: str,
) -> None:
    with app.app_context():
        for allowed, refused in decisions:
            grants.remember_consent(user.id, client.client_id, allowed.split(), refused.split())
        consent = grants.find_consent(user.id, client.client_id)
        assert consent
        assert (consent.scope, consent.declined) == (scope, declined)


@pytest.mark.parametrize("name", ["scope", "declined"])
def test_a_forgotten_api_leaves_those_of_similar_names(
    app: Flask, client: RelyingParty, user: User, name: str
) -> None:
    forgotten = [qualified("https://docs.example", scope) for scope in ("read", "write")]
    kept = ["openid", *(qualified(f"https://{api}", "read") for api in (
        "docs.example/v2", "proxy.example/https://docs.example", "docs", "x",
    ))]  # fmt: skip
    both = [*forgotten[:1], *kept, *forgotten[1:]]
    with app.app_context():
        of_name = {"scope": (both, ()), "declined": ((), both)}[name]
        grants.remember_consent(user.id, client.client_id, *of_name)
        grants.forget_api("https://docs.example")
        consent = grants.find_consent(user.id, client.client_id)
        assert consent
        assert getattr(consent, name).split() == kept


def test_all_end_but_those_of_one_session(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    """What was given in a session that is purged, or in none, ends like that of others."""
    for _ in range(3):
        browser.approve(client, scope="openid offline_access")
    elsewhere = Browser(app)
    elsewhere.approve(client)
    with app.app_context():
        of_other = select(Grant.session_id).order_by(Grant.created_at.desc()).limit(1)
        other: UUID | None = db.session.scalar(of_other)
        here = select(Grant).where(Grant.session_id != other).order_by(Grant.created_at)
        purged, kept, kept_too = db.session.scalars(here).all()
        assert kept.session_id
        assert kept.session_id == kept_too.session_id
        purged.session_id = None
        db.session.flush()
        grants.end_of_user_but_session(user.id, kept.session_id, "password_changed")
        live = db.session.scalars(select(Grant.id).where(Grant.ended_at.is_(None))).all()
        assert set(live) == {kept.id, kept_too.id}


def test_an_assertion_is_made_from_the_newest_grant(
    app: Flask, browser: Browser, client: RelyingParty, user: User, clock: Clock
) -> None:
    for scope in ("openid profile email", "openid", "openid email"):
        browser.approve(client, scope=scope)
        clock.move(seconds=1)
    with app.app_context():
        newest_first = select(Grant).order_by(Grant.created_at.desc())
        newest, older, oldest = db.session.scalars(newest_first).all()
        ask = (db.session.connection(), user.id, client.client_id, newest.sid)
        for grant in (newest, older, oldest):
            latest = assertions.find_grant(*ask)
            assert latest
            assert latest.id == grant.id
            db.session.execute(
                update(Grant).where(Grant.id == grant.id).values(ended_at=sso_clock.now())
            )
        assert assertions.find_grant(*ask) is None


@pytest.mark.parametrize("other", ["user", "client", "sign-in"])
def test_an_assertion_is_made_from_ones_own_grant(
    app: Flask, browser: Browser, client: RelyingParty, user: User, other: str
) -> None:
    browser.approve(client)
    with app.app_context():
        sid = db.session.scalars(select(Grant.sid)).one()
        on = db.session.connection()
        asked = {
            "user": (uuid4(), client.client_id, sid),
            "client": (user.id, "another", sid),
            "sign-in": (user.id, client.client_id, str(uuid4())),
        }[other]
        assert assertions.find_grant(on, user.id, client.client_id, sid)
        assert assertions.find_grant(on, *asked) is None
