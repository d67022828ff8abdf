"""What a user loses at once, and whom a logout token tells."""

from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select, update

from sso.extensions import db
from sso.models import BrowserSession, Grant, LogoutDelivery, User
from sso.services import revocation, second_factors
from tests.support.actors import Browser, RelyingParty
from tests.support.factories import make_client, make_user

SCOPE = "openid email offline_access"


@pytest.fixture
def clients(app: Flask) -> dict[str, RelyingParty]:
    return {
        name: make_client(
            app,
            name=name,
            redirect_uris=[f"https://{name}.example/callback"],
            scope=SCOPE,
            backchannel_logout_uri=f"https://{name}.example/out",
        )
        for name in ("here", "there", "former")
    }


def test_all_but_one_session_ends(app: Flask, user: User, clients: dict[str, RelyingParty]) -> None:
    """Also what outlived its session, whose row may be gone."""
    browsers = {name: Browser(app) for name in clients}
    for name, client in clients.items():
        client.exchange(browsers[name].approve(client, scope=SCOPE).code)
    ids = {client.client_id: name for name, client in clients.items()}

    def session_of(name: str) -> UUID | None:
        of_client = Grant.client_id == clients[name].client_id
        return db.session.scalars(select(Grant.session_id).where(of_client)).one()

    with app.app_context():
        former, here = session_of("former"), session_of("here")
        of_former = Grant.client_id == clients["former"].client_id
        db.session.execute(update(Grant).where(of_former).values(session_id=None))
        db.session.execute(
            update(BrowserSession)
            .where(BrowserSession.id == former)
            .values(ended_at=user.created_at)
        )
        db.session.commit()
        revocation.everything_of_user(user.id, "password_changed", here)
        db.session.commit()
        rows = db.session.execute(select(Grant.client_id, Grant.ended_at)).all()
        assert {ids[client_id] for client_id, at in rows if at} == {"there", "former"}
        told = db.session.scalars(select(LogoutDelivery.client_id)).all()
        assert sorted(ids[client_id] for client_id in told) == ["former", "there"]
        live = select(BrowserSession.id).where(BrowserSession.ended_at.is_(None))
        assert db.session.scalars(live).all() == [here]


@pytest.mark.parametrize(
    "name", ["offline_accessories", "no_offline_access", "https://docs.example#offline_access"]
)
def test_a_scope_that_only_looks_like_offline_access(
    app: Flask, user: User, clients: dict[str, RelyingParty], name: str
) -> None:
    """What it gave ends with the session."""
    client = clients["here"]
    client.exchange(Browser(app).approve(client, scope=SCOPE).code)

    def end(scope: str) -> bool:
        db.session.execute(update(Grant).values(scope=scope, ended_at=None))
        db.session.execute(update(BrowserSession).values(ended_at=None))
        revocation.sessions_of_user(user.id, "sign_out")
        return db.session.scalars(select(Grant.ended_at)).one() is not None

    with app.app_context():
        assert end(f"openid {name}")
        assert end(f"{name} openid")
        assert not end(f"{name} offline_access")


def test_everything_ends(app: Flask, user: User, clients: dict[str, RelyingParty]) -> None:
    """Also what outlived its session; and of nobody else."""
    erin = make_user(app, "erin@example.com")
    browsers = {name: Browser(app) for name in clients}
    for name, client in clients.items():
        client.exchange(browsers[name].approve(client, scope=SCOPE).code)
    other = Browser(app)
    other.sign_in(erin.email)
    clients["here"].exchange(other.approve(clients["here"], scope=SCOPE).code)
    with app.app_context():
        of_former = Grant.client_id == clients["former"].client_id
        ended = select(Grant.session_id).where(of_former).scalar_subquery()
        db.session.execute(
            update(BrowserSession)
            .where(BrowserSession.id == ended)
            .values(ended_at=user.created_at)
        )
        db.session.commit()
        revocation.everything_of_user(user.id, "user_disabled")
        db.session.commit()
        told = db.session.execute(select(LogoutDelivery.client_id, LogoutDelivery.sub)).all()
        assert sorted(told) == sorted((c.client_id, str(user.id)) for c in clients.values())
        live = db.session.scalars(select(Grant.user_id).where(Grant.ended_at.is_(None))).all()
        assert live == [erin.id]


def test_what_was_before_the_first_factor_ends(
    app: Flask, user: User, clients: dict[str, RelyingParty]
) -> None:
    """Also what outlives sessions; and a browser that was known is so no longer."""
    browsers = {name: Browser(app) for name in ("here", "there")}
    for name, browser in browsers.items():
        clients[name].exchange(browser.approve(clients[name], scope=SCOPE).code)
    with app.app_context():
        of_here = Grant.client_id == clients["here"].client_id
        here = db.session.scalars(select(Grant.session_id).where(of_here)).one()
        loaded = db.session.get_one(User, user.id)
        version = loaded.device_version
        second_factors.end_what_was_before(loaded, here)
        db.session.expire_all()
        live = select(Grant.client_id).where(Grant.ended_at.is_(None))
        assert db.session.scalars(live).all() == [clients["here"].client_id]
        left = select(BrowserSession.id).where(BrowserSession.ended_at.is_(None))
        assert db.session.scalars(left).all() == [here]
        assert loaded.device_version == version + 1
