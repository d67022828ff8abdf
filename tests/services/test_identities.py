"""Whose an upstream identity is, and which one may be removed: with the near misses."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import select

from sso import audit, clock
from sso.config.upstream.file import Upstreams
from sso.config.upstream.ldap import LdapProvider
from sso.extensions import db
from sso.models import (
    BrowserSession,
    Identity,
    Passkey,
    TotpSecret,
    UpstreamSession,
    User,
)
from sso.services import accounts, checks, identities
from sso.services.identities import LinkRefused, ProveAccount, Refused, Resolution, SignIn
from sso.store import identities as stored
from sso.store import users
from sso.upstream.identity import UpstreamIdentity
from tests.conftest import Clock
from tests.support.actors import Browser
from tests.support.factories import make_client, make_user
from tests.support.upstreams import provider

CORP, OTHER = provider(sign_up=True), provider("other")
DANA = UpstreamIdentity(CORP.issuer, "1", "dana@example.com", email_verified=True, name="Dana")


@pytest.fixture(autouse=True)
def app(app: Flask) -> Flask:
    app.extensions["sso.upstreams"] = Upstreams([CORP, OTHER])
    return app


def resolve(app: Flask, found: UpstreamIdentity = DANA) -> Resolution:
    with app.app_context(), audit.dry_run():
        resolution = identities.resolve(audit.USER, CORP, found)
        db.session.commit()
        return resolution


def linked(app: Flask, user: User, issuer: str = CORP.issuer, name: str = CORP.id) -> UUID:
    with app.app_context():
        identity = Identity(user_id=user.id, provider=name, issuer=issuer, subject=str(uuid4()))
        stored.add(identity)
        db.session.commit()
        return identity.id


def change(app: Flask, user: User, **values: Any) -> None:
    with app.app_context():
        loaded = users.find(user.id)
        assert loaded
        for name, value in values.items():
            setattr(loaded, name, value)
        db.session.commit()


def test_by_a_verified_address(app: Flask, user: User) -> None:
    found = resolve(app)
    assert isinstance(found, SignIn)
    assert found.user.id == user.id


def test_a_disabled_account(app: Flask) -> None:
    user = make_user(app, disabled=True)
    assert isinstance(resolve(app), Refused)
    with app.app_context():
        assert not stored.of_user(user.id)


def test_an_address_that_somebody_else_has_there_now(app: Flask, user: User) -> None:
    """Who has an identity of this issuer is not who comes with another one."""
    linked(app, user)
    assert isinstance(resolve(app), ProveAccount)


def test_an_identity_of_another_issuer_does_not_matter(app: Flask, user: User) -> None:
    linked(app, user, OTHER.issuer, OTHER.id)
    assert isinstance(resolve(app), SignIn)


@pytest.mark.parametrize(("days", "outcome"), [(6, ProveAccount), (8, SignIn)])
def test_an_address_that_was_changed_lately(
    app: Flask, user: User, days: int, outcome: type[Any]
) -> None:
    change(app, user, email_changed_at=clock.now() - timedelta(days=days))
    assert isinstance(resolve(app), outcome)


def test_an_address_that_changes_under_way(
    app: Flask, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = users.lock

    def late(user_id: UUID) -> User | None:
        db.session.get_one(User, user_id).email = "dana@elsewhere.example"
        db.session.flush()
        return lock(user_id)

    monkeypatch.setattr(users, "lock", late)
    assert isinstance(resolve(app), ProveAccount)


def prepared(app: Flask) -> User:
    """An account that nobody could sign in to so far, for an address that nobody confirmed."""
    return make_user(app, password=None, email_verified=False)


def test_an_account_that_waits_for_its_owner(app: Flask) -> None:
    user = prepared(app)
    assert isinstance(resolve(app), SignIn)
    with app.app_context():
        loaded = users.find(user.id)
        assert loaded
        assert loaded.email_verified


def _with_password(app: Flask, user: User) -> None:
    change(app, user, password_hash="$argon2id$x")


def _with_authenticator_app(app: Flask, user: User) -> None:
    with app.app_context():
        db.session.add(TotpSecret(user_id=user.id, sealed_secret="x"))
        db.session.commit()


def _with_another_identity(app: Flask, user: User) -> None:
    linked(app, user, OTHER.issuer, OTHER.id)


@pytest.mark.parametrize(
    "prepare", [_with_password, _with_authenticator_app, _with_another_identity]
)
def test_an_account_that_a_stranger_may_have_prepared(
    app: Flask, prepare: Callable[[Flask, User], None]
) -> None:
    user = prepared(app)
    prepare(app, user)
    assert isinstance(resolve(app), ProveAccount)
    with app.app_context():
        loaded = users.find(user.id)
        assert loaded
        assert not loaded.email_verified


def test_no_more_than_twenty(app: Flask, user: User) -> None:
    for _ in range(identities.MOST - 1):
        linked(app, user, OTHER.issuer, OTHER.id)
    with app.app_context(), audit.dry_run():
        identities.link(audit.USER, user, CORP, DANA)
        db.session.commit()
        with pytest.raises(LinkRefused, match="maximum number"):
            identities.link(audit.USER, user, CORP, replace(DANA, subject="2"))


def unlink(app: Flask, user: User, identity_id: UUID) -> None:
    with app.app_context(), audit.dry_run():
        loaded = users.lock(user.id)
        assert loaded
        identities.unlink(audit.USER, loaded, identity_id)
        db.session.commit()


@pytest.mark.parametrize("is_configured", [True, False])
def test_an_identity_of_no_provider_is_no_way_in(app: Flask, is_configured: bool) -> None:
    user = make_user(app, password=None)
    removed = linked(app, user)
    linked(app, user, OTHER.issuer, OTHER.id)
    if is_configured:
        unlink(app, user, removed)
        return
    app.extensions["sso.upstreams"] = Upstreams([CORP])
    with pytest.raises(LinkRefused, match="only way to sign in"):
        unlink(app, user, removed)


def test_without_the_last_passkey_there_must_be_another_way_in(app: Flask) -> None:
    user = make_user(app, password=None)
    with app.app_context():
        first, second = (
            Passkey(user_id=user.id, credential_id=name, public_key="x", name=name, sign_count=0)
            for name in ("a", "b")
        )
        db.session.add_all([first, second])
        db.session.commit()
        assert identities.has_other_way_in(user, passkey=first.id)
        db.session.delete(second)
        db.session.commit()
        assert not identities.has_other_way_in(user, passkey=first.id)
        assert identities.has_other_way_in(user)


@pytest.mark.parametrize("by_operator", ["update", "disable", ""])
def test_who_the_operator_disables_too_is_not_let_in_by_the_directory(
    app: Flask, user: User, clock: Clock, by_operator: str
) -> None:
    assert isinstance(resolve(app), SignIn)
    with app.app_context():
        identity = stored.of_user(user.id)[0]
        identities.disable_user(audit.SYSTEM, CORP, identity, "expired")
        clock.move(minutes=1)
        if by_operator == "update":
            accounts.update(audit.Actor("olga"), user.id, disabled=True)
        elif by_operator:
            accounts.disable(audit.Actor("olga"), db.session.get_one(User, user.id))
        db.session.commit()
    with app.app_context():
        identities.enable_user(audit.USER, CORP, DANA)
        db.session.commit()
        after = users.find(user.id)
        assert after
        assert (after.disabled_at is not None) == bool(by_operator)


@pytest.mark.parametrize(
    ("subject", "sid", "ended"),
    [
        (None, "s1", ["s1"]),
        ("1", "s1", [None, "s1"]),  # the provider names the person: it may be any of theirs
        ("1", "s3", [None]),
        ("1", None, [None, "s1", "s2"]),
        (None, "s3", []),
        ("2", "s1", []),
        ("2", None, []),
    ],
)
def test_which_sessions_a_provider_ends(
    app: Flask, user: User, subject: str | None, sid: str | None, ended: list[str | None]
) -> None:
    sids: list[str | None] = [None, "s1", "s2"]
    for _ in sids:
        Browser(app).sign_in()
    assert isinstance(resolve(app), SignIn)
    with app.app_context():
        (identity,) = stored.of_user(user.id)
        sessions = dict(zip(db.session.scalars(select(BrowserSession.id)), sids, strict=True))
        for session_id, name in sessions.items():
            sign_in = UpstreamSession(identity_id=identity.id, sid=name, amr="fed")
            stored.add_session(sign_in)
            assert stored.bind(sign_in, session_id)
        count = identities.end_sessions(audit.SYSTEM, CORP.issuer, subject, sid)
        over = select(BrowserSession.id).where(BrowserSession.ended_at.is_not(None))
        names = [sessions[session_id] for session_id in db.session.scalars(over)]
        assert sorted(names, key=str) == sorted(ended, key=str)
        assert count == len(ended)


def test_what_the_directory_ended_does_not_come_back(
    app: Flask, user: User, browser: Browser
) -> None:
    """Not even what outlives sessions, once the person is let in again."""
    scope = "openid offline_access"
    client = make_client(app, scope=scope)
    tokens = client.exchange(browser.approve(client, scope=scope).code).get_json()
    assert isinstance(resolve(app), SignIn)
    with app.app_context():
        identities.disable_user(audit.SYSTEM, CORP, stored.of_user(user.id)[0], "expired")
        db.session.commit()
        identities.enable_user(audit.USER, CORP, DANA)
        db.session.commit()
        after = users.find(user.id)
        assert after
        assert after.disabled_at is None
    assert client.refresh(tokens["refresh_token"]).status_code == 400


def test_an_address_that_is_not_verified_there_proves_nothing(app: Flask, user: User) -> None:
    assert isinstance(resolve(app, replace(DANA, email_verified=False)), ProveAccount)
    with app.app_context():
        assert not stored.of_user(user.id)


@pytest.mark.parametrize(
    ("provisioned", "name"),
    [({"user_name": "dana"}, "Dana"), ({"external_id": "x"}, "Dana"), ({}, "New Name")],
)
def test_what_was_provisioned_goes_before_the_word_of_the_directory(
    app: Flask, user: User, provisioned: dict[str, str], name: str
) -> None:
    directory = LdapProvider(
        id="corp", type="ldap", name="Corp", directory="openldap", servers=(), base="dc=x"
    )
    change(app, user, name="Dana", password_hash=None, **provisioned)
    with app.app_context():
        loaded = users.find(user.id)
        assert loaded
        found = UpstreamIdentity("ldap:corp", "1", None, name="New Name")
        identities.take_over_profile(audit.SYSTEM, directory, loaded, found)
        assert loaded.name == name


@pytest.mark.parametrize("is_last", [True, False])
def test_the_last_administrator_keeps_that_group_alone(
    app: Flask, user: User, is_last: bool
) -> None:
    """The provider takes the others away, as from everybody."""
    admins = "sso-administrators"
    if not is_last:
        make_user(app, "ada@example.com", groups=[admins])
    corp = replace(CORP, groups={"Admins": admins, "Staff": "staff", "Other": "other"})
    change(app, user, groups=[admins, "staff", "own"])
    there = replace(DANA, groups=frozenset({"Other"}))
    with app.app_context():
        loaded = users.find(user.id)
        assert loaded
        identities.take_over_profile(audit.SYSTEM, corp, loaded, there)
        assert loaded.groups == [*([admins] if is_last else []), "own", "other"]


def test_groups_that_are_left_make_room_for_others(
    app: Flask, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those beyond what a user may have are not joined."""
    monkeypatch.setattr(checks, "MAX_GROUPS", 3)
    corp = replace(CORP, groups={"Old": "old", "A": "a", "B": "b", "C": "c"})
    change(app, user, groups=["own", "too", "old"])
    there = UpstreamIdentity(CORP.issuer, "1", None, groups=frozenset({"A", "B", "Unknown"}))
    with app.app_context():
        loaded = users.find(user.id)
        assert loaded
        identities.take_over_profile(audit.SYSTEM, corp, loaded, there)
        assert loaded.groups == ["own", "too", "a"]
        nothing = replace(there, groups=None)
        identities.take_over_profile(audit.SYSTEM, corp, loaded, nothing)
        assert loaded.groups == ["own", "too", "a"]
        identities.take_over_profile(audit.SYSTEM, corp, loaded, replace(there, groups=frozenset()))
        assert loaded.groups == ["own", "too"]


@pytest.mark.parametrize(
    ("subject", "sid", "ended"),
    [
        (None, "s1", ["s1"]),
        ("1", "s1", [None, "s1"]),  # as of sessions: it may be any of theirs
        ("1", "s3", [None]),
        ("1", None, [None, "s1", "s2"]),
        (None, "s3", []),
        ("2", "s1", []),
        ("2", None, []),
    ],
)
def test_what_a_provider_ends_while_the_second_factor_is_awaited(
    app: Flask, user: User, subject: str | None, sid: str | None, ended: list[str | None]
) -> None:
    """It can begin no session any more."""
    assert isinstance(resolve(app), SignIn)
    with app.app_context():
        (identity,) = stored.of_user(user.id)
        waiting = {}
        for name in (None, "s1", "s2"):
            sign_in = UpstreamSession(identity_id=identity.id, sid=name, amr="fed")
            stored.add_session(sign_in)
            waiting[sign_in.id] = name
        identities.end_sessions(audit.SYSTEM, CORP.issuer, subject, sid)
        db.session.expire_all()
        gone = [
            name
            for sign_in_id, name in waiting.items()
            if stored.unused_session(sign_in_id, user.id) is None
        ]
        assert sorted(gone, key=str) == sorted(ended, key=str)
