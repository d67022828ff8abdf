"""Guards that stand behind another one: each statement refuses by itself.

What a client presents is looked up by one statement and used up by another. Each asks for
everything, so that neither relies on the other.
"""

from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import ColumnElement, delete, select, update

from sso import clock as sso_clock
from sso.crypto import secrets
from sso.extensions import db
from sso.flow import narrowing
from sso.models import BrowserSession, Client, Consent, Grant, Passkey, Token, User
from sso.store import clients, factors, grants, redemption, tokens
from sso.store.grants import LiveGrant
from sso.store.redemption import NewToken
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty
from tests.support.factories import make_client, make_user, new_token

SCOPE = "openid email"
SUCCESSOR = secrets.digest("none that was issued")
OFFLINE = f"{SCOPE} offline_access"


@pytest.fixture
def app(make_app: Any) -> Flask:
    """One database is enough here; test_races.py has both."""
    found: Flask = make_app()
    return found


class Held:
    """A code that is not used and a refresh token that is not, of two grants of one session."""

    def __init__(self, app: Flask) -> None:
        make_user(app)
        self.app, browser = app, Browser(app)
        self.client = make_client(app, scope=OFFLINE)
        self.other = make_client(app, name="Other", scope=SCOPE)
        answer = self.client.exchange(browser.approve(self.client, scope=SCOPE).code)
        self.refresh = secrets.digest(answer.get_json()["refresh_token"])
        self.code = secrets.digest(browser.authorize(self.client, scope=SCOPE).code)
        with app.app_context():
            self.grant: UUID = db.session.scalars(
                select(Token.grant_id).where(Token.refresh_digest == self.refresh)
            ).one()

    def change(self, table: Any, **values: Any) -> None:
        with self.app.app_context():
            db.session.execute(update(table).values(**values))
            db.session.commit()

    def found(self, client: RelyingParty | None = None) -> list[bool]:
        """By each of the statements that look something up: an approval that lives."""
        client_id, now = (client or self.client).client_id, sso_clock.now()
        with self.app.app_context():
            registered = clients.find(client_id)
            assert registered
            on = db.session.connection()
            row, _, of_code = redemption.find_code_with_client(on, client_id, self.code, now)
            row_too, _, of_token = tokens.find_with_client(on, client_id, self.refresh, now)
            # Each by itself: what one does not find must not hide what another one does.
            each = (
                row and of_code,
                row_too and of_token,
                grants.find_live_grant(on, self.grant, client_id),
            )
            found = [_lives(registered, one) for one in each]
            db.session.rollback()
        return found

    def token(self) -> NewToken:
        return new_token(self.grant)

    def goes_offline(self) -> None:
        """What was approved, and is allowed, outlives its session."""
        self.change(Grant, scope=OFFLINE)
        self.change(Consent, scope=OFFLINE)

    def used(self, client: RelyingParty | None = None) -> list[bool]:
        """By each of the statements that use something up; undone at the end."""
        client_id = (client or self.client).client_id
        with self.app.app_context():
            on = db.session.connection()
            found = [
                redemption.redeem_code(on, self.code, client_id, self.token()),
                tokens.redeem_refresh(on, self.refresh, client_id, self.token(), None),
            ]
            db.session.rollback()
        return found


def _lives(client: Client, approval: LiveGrant | None) -> bool:
    if approval is None:
        return False
    return narrowing.allowed(client, approval.user.groups, approval).refusal is None


@pytest.fixture
def held(app: Flask, clock: Clock) -> Held:
    return Held(app)


def test_all_is_well(held: Held) -> None:
    assert (held.found(), held.used()) == ([True] * 3, [True] * 2)


def test_another_client(held: Held) -> None:
    assert (held.found(held.other), held.used(held.other)) == ([False] * 3, [False] * 2)


def test_the_grant_has_ended(held: Held) -> None:
    held.change(Grant, ended_at=sso_clock.now())
    assert (held.found(), held.used()) == ([False] * 3, [False] * 2)


@pytest.mark.parametrize("column", ["ended_at", "expires_at"])
def test_the_session_has_ended(held: Held, column: str) -> None:
    """Without `offline_access`; its grant may not be marked yet."""
    held.change(BrowserSession, **{column: sso_clock.now()})
    assert held.found() == [False] * 3
    held.goes_offline()
    assert held.found() == [True] * 3


def test_the_session_is_purged(held: Held) -> None:
    held.change(Grant, session_id=None)
    assert held.found() == [False] * 3
    held.goes_offline()
    assert held.found() == [True] * 3


@pytest.mark.parametrize("table", [User, Client])
def test_disabled(held: Held, table: Any) -> None:
    held.change(table, disabled_at=sso_clock.now())
    assert held.found() == [False] * 3
    held.change(table, disabled_at=None)
    assert held.found() == [True] * 3


@pytest.mark.parametrize("table", [User, Client])
def test_disabled_with_an_access_token(held: Held, table: Any) -> None:
    def found() -> list[bool]:
        with held.app.app_context():
            jti = db.session.scalars(select(Token.jti)).one()
            return [
                tokens.find_by_jti(jti) is not None,
                tokens.find_access_token(db.session.connection(), jti) is not None,
            ]

    held.change(table, disabled_at=sso_clock.now())
    assert found() == [False] * 2
    held.change(table, disabled_at=None)
    assert found() == [True] * 2


def test_expired(held: Held, clock: Clock) -> None:
    clock.move(seconds=61)
    assert held.used() == [False, True]
    held.change(BrowserSession, expires_at=sso_clock.now())
    clock.move(days=30)
    assert held.used() == [False, False]


def test_once(held: Held) -> None:
    with held.app.app_context():
        on, client_id = db.session.connection(), held.client.client_id
        assert redemption.redeem_code(on, held.code, client_id, held.token())
        assert not redemption.redeem_code(on, held.code, client_id, held.token())
        assert tokens.redeem_refresh(on, held.refresh, client_id, held.token(), None)
        assert not tokens.redeem_refresh(on, held.refresh, client_id, held.token(), None)
        db.session.commit()
        on = db.session.connection()
        assert redemption.find_redeemed_code(on, held.code, client_id)
        assert tokens.find_redeemed_refresh(on, held.refresh, client_id, SUCCESSOR)
        assert not redemption.find_redeemed_code(on, held.code, held.other.client_id)
        assert not tokens.find_redeemed_refresh(on, held.refresh, held.other.client_id, SUCCESSOR)


def test_the_reuse_of_what_has_ended_ends_nothing_more(held: Held) -> None:
    with held.app.app_context():
        on, client_id = db.session.connection(), held.client.client_id
        assert tokens.redeem_refresh(on, held.refresh, client_id, held.token(), None)
        db.session.commit()
    held.change(Grant, ended_at=sso_clock.now())
    with held.app.app_context():
        on = db.session.connection()
        assert tokens.find_redeemed_refresh(on, held.refresh, client_id, SUCCESSOR) is None


def test_what_is_not_used_is_no_reuse(held: Held) -> None:
    with held.app.app_context():
        on, client_id = db.session.connection(), held.client.client_id
        assert redemption.find_redeemed_code(on, held.code, client_id) is None
        assert tokens.find_redeemed_refresh(on, held.refresh, client_id, SUCCESSOR) is None


class Crowd:
    """Beside what is held: tokens of two users at two clients."""

    def __init__(self, app: Flask, held: Held) -> None:
        self.held, self.app = held, app
        self.erin_id = make_user(app, "erin@example.com").id
        dana, erin = Browser(app), Browser(app)
        dana.sign_in()
        erin.sign_in("erin@example.com")
        for browser in (dana, erin):
            for client in (held.client, held.other):
                browser.approve(client, scope=SCOPE)
                client.exchange(browser.page.code)

    def tokens(self) -> list[Token]:
        with self.app.app_context():
            return list(db.session.scalars(select(Token).order_by(Token.issued_at)))


@pytest.fixture
def crowd(app: Flask, held: Held) -> Crowd:
    return Crowd(app, held)


def end_grant(app: Flask, *which: ColumnElement[bool]) -> None:
    with app.app_context():
        db.session.execute(update(Grant).where(*which).values(ended_at=sso_clock.now()))
        db.session.commit()


def test_the_other_grant_has_ended(held: Held) -> None:
    """The code is of one, the refresh token of another."""
    end_grant(held.app, Grant.id != held.grant)
    assert (held.found(), held.used()) == ([False, True, True], [False, True])


def test_the_grant_has_ended_and_the_other_has_not(held: Held) -> None:
    end_grant(held.app, Grant.id == held.grant)
    assert (held.found(), held.used()) == ([True, False, False], [True, False])


def test_one_of_several_users_is_disabled(crowd: Crowd) -> None:
    def disable(*which: ColumnElement[bool]) -> None:
        with crowd.app.app_context():
            db.session.execute(update(User).values(disabled_at=None))
            db.session.execute(update(User).where(*which).values(disabled_at=sso_clock.now()))
            db.session.commit()

    disable(User.id == crowd.erin_id)
    assert crowd.held.found() == [True] * 3
    disable(User.id != crowd.erin_id)
    assert crowd.held.found() == [False] * 3


@pytest.mark.parametrize("whose", ["another user's", "another client's"])
def test_the_consent_of_another(crowd: Crowd, whose: str) -> None:
    client_id = crowd.held.client.client_id

    def consented() -> str | None:
        with crowd.app.app_context():
            found = grants.find_live_grant(db.session.connection(), crowd.held.grant, client_id)
            assert found
            return found.consented

    assert consented()
    is_its = (Consent.user_id != crowd.erin_id) & (Consent.client_id == client_id)
    left = (
        (Consent.user_id == crowd.erin_id) & (Consent.client_id == client_id)
        if whose == "another user's"
        else (Consent.user_id != crowd.erin_id) & (Consent.client_id != client_id)
    )
    with crowd.app.app_context():
        assert db.session.scalar(select(Consent.scope).where(left))
        db.session.execute(delete(Consent).where(is_its))
        db.session.commit()
    assert consented() is None


def test_the_token_of_another(crowd: Crowd) -> None:
    known = crowd.tokens()
    assert len(known) == 5
    with crowd.app.app_context():
        for one in known:
            access, row = (
                tokens.find_access_token(db.session.connection(), one.jti),
                tokens.find_by_jti(one.jti),
            )
            assert access
            assert access.access_digest == one.access_digest
            assert row
            assert row.grant_id == one.grant_id
            tokens.revoke_access(row)
            db.session.commit()
            revoked = select(Token.jti).where(Token.revoked_at.is_not(None))
            assert set(db.session.scalars(revoked)) == {
                earlier.jti for earlier in known[: known.index(one) + 1]
            }


def test_revoked_twice(crowd: Crowd) -> None:
    """It is told since when."""
    one = crowd.tokens()[0]
    moments = []
    for _ in range(2):
        with crowd.app.app_context():
            tokens.revoke_access(one)
            db.session.commit()
        moments.append(crowd.tokens()[0].revoked_at)
    assert moments[0] == moments[1] is not None


def test_the_refresh_token_of_another(crowd: Crowd) -> None:
    client_id = crowd.held.client.client_id
    with crowd.app.app_context():
        on = db.session.connection()
        assert not tokens.redeem_refresh(on, SUCCESSOR, client_id, crowd.held.token(), None)
        assert tokens.redeem_refresh(on, crowd.held.refresh, client_id, crowd.held.token(), None)
        used = select(Token.refresh_digest).where(Token.refresh_used_at.is_not(None))
        assert db.session.scalars(used).all() == [crowd.held.refresh]
        # A successor is of the same grant, and has the digest that is asked for.
        of_others = select(Token.refresh_digest).where(Token.grant_id != crowd.held.grant)
        for successor in (SUCCESSOR, *db.session.scalars(of_others), crowd.held.refresh):
            given = crowd.held.refresh, client_id, successor or ""
            found = tokens.find_redeemed_refresh(on, *given)
            assert found
            assert found.has_successor is (successor == crowd.held.refresh)


def test_the_passkey_of_another_user(app: Flask, user: User) -> None:
    """The page offers one's own alone."""
    other = make_user(app, "erin@example.com")
    with app.app_context():
        key = Passkey(user_id=user.id, name="my laptop", credential_id="x", public_key="x")
        factors.add_passkey(key)
        assert factors.remove_passkey(other.id, key.id) is None
        assert [one.name for one in factors.passkeys_of_user(user.id)] == ["my laptop"]
        assert factors.remove_passkey(user.id, key.id) == "my laptop"
        assert not factors.passkeys_of_user(user.id)


def test_a_pushed_request_is_used_by_one_of_two_answers(app: Flask) -> None:
    """Both have found it unused before; then nothing keeps it waiting for the user either."""
    make_client(app)
    now = sso_clock.now()
    with app.app_context():
        on = db.session.connection()
        client_id = db.session.scalars(select(Client.client_id)).one()
        for digest in ("sha256:1", "sha256:2"):
            redemption.add_pushed(on, digest, client_id, "{}", now)
        used = [redemption.use_pushed(on, "sha256:1", now, "{}") for _ in range(2)]
        assert used == [True, False]
        redemption.let_pushed_wait(on, "sha256:1", now)
        found = redemption.find_pushed(on, "sha256:1")
        assert found
        assert found.waits_until is None
        assert redemption.use_pushed(on, "sha256:2", now, "{}")  # another one
