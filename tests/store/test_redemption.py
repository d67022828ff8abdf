"""What is redeemed and what it is redeemed for: both, or neither."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import Connection, func, select, update

from sso import clock, database
from sso.crypto import secrets
from sso.extensions import db
from sso.models import Grant, Token, User
from sso.services import transaction
from sso.store import redemption, tokens
from sso.store.redemption import NewToken
from tests.support.actors import Browser, RelyingParty
from tests.support.factories import new_token

LATER = timedelta(hours=1)
Redeem = Callable[[Connection, NewToken], bool]


@pytest.fixture(params=["code", "refresh token", "refresh token that stays"])
def redeem(
    request: pytest.FixtureRequest, browser: Browser, client: RelyingParty, user: User
) -> Redeem:
    code, client_id = browser.approve(client).code, client.client_id
    if request.param == "code":
        return lambda on, new: redemption.redeem_code(on, secrets.digest(code), client_id, new)
    digest = secrets.digest(client.exchange(code).get_json()["refresh_token"])
    stays = request.param != "refresh token"
    return lambda on, new: tokens.redeem_refresh(
        on, digest, client_id, new, new.issued_at + LATER if stays else None
    )


def only_grant() -> UUID:
    return db.session.scalars(select(Grant.id)).one()


def stored() -> int:
    return db.session.scalar(select(func.count()).select_from(Token)) or 0


def test_every_value_is_stored(app: Flask, redeem: Redeem) -> None:
    with app.app_context():
        new = replace(
            new_token(only_grant()),
            access_digest="of the access token",
            scope="openid email",
            is_narrowed=True,
            dpop_jkt="of a key",
            expires_at=clock.now() + LATER,
            refresh_digest="of the refresh token",
            refresh_expires_at=clock.now() + 2 * LATER,
        )
        with transaction.begin() as changes:
            assert redeem(changes.connection, new)
            changes.commit()
        row = db.session.get_one(Token, new.jti)
        assert {name: getattr(row, name) for name in vars(new)} == vars(new)
        assert (row.revoked_at, row.refresh_used_at) == (None, None)


def test_what_cannot_be_redeemed_stores_nothing(app: Flask, redeem: Redeem) -> None:
    with app.app_context():
        before, new = stored(), new_token(only_grant())
        db.session.execute(update(Grant).values(ended_at=clock.now()))
        db.session.commit()
        with transaction.begin() as changes:
            assert not redeem(changes.connection, new)
            changes.commit()
        assert stored() == before


def test_what_is_not_stored_is_not_redeemed(app: Flask, redeem: Redeem) -> None:
    with app.app_context():
        before, new = stored(), new_token(only_grant())
        of_none = replace(new, grant_id=UUID(int=0))
        with pytest.raises(Exception, match=r"(?i)foreign key"), database.connection() as on:
            redeem(on, of_none)
        with transaction.begin() as changes:
            assert redeem(changes.connection, new)
            changes.commit()
        assert stored() == before + 1
