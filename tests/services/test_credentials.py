"""Passwords, addresses and links: who is told, and from when on something counts."""

from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import select

from sso import audit
from sso.errors import OperatorError
from sso.extensions import db
from sso.models import Mail, Passkey, TotpSecret, User
from sso.services import credentials, mail_links
from sso.store import factors
from tests.conftest import Clock


@pytest.mark.parametrize("has_password", [True, False])
@pytest.mark.parametrize("purpose", [mail_links.RESET, mail_links.INVITE])
def test_who_is_told_of_a_new_password(
    app: Flask, user: User, purpose: str, has_password: bool
) -> None:
    """Everybody but those who had none, and were invited to set it."""
    with app.app_context():
        loaded = db.session.get_one(User, user.id)
        if not has_password:
            loaded.password_hash = None
        db.session.flush()
        credentials.reset_password(audit.USER, loaded, "scrypt$new", purpose)
        kinds = db.session.scalars(select(Mail.kind)).all()
        is_told = has_password or purpose == mail_links.RESET
        assert kinds == (["password_changed"] if is_told else [])


def test_each_change_of_the_address_begins_the_days_anew(
    app: Flask, user: User, clock: Clock
) -> None:
    clock.stand_still()
    with app.app_context():
        loaded = db.session.get_one(User, user.id)
        for address in ("first@example.com", "second@example.com"):
            clock.move(days=3)
            credentials.change_email(audit.USER, loaded, address)
            assert loaded.email_changed_at == clock.time


@pytest.mark.parametrize("factor", [None, "passkey", "app"])
def test_a_link_for_the_first_factor_alone(app: Flask, user: User, factor: str | None) -> None:
    with app.app_context():
        loaded = db.session.get_one(User, user.id)
        if factor == "passkey":
            factors.add_passkey(
                Passkey(user_id=user.id, name="x", credential_id="x", public_key="x")
            )
        elif factor == "app":
            factors.add_totp_secret(TotpSecret(user_id=user.id, sealed_secret="x"))
        if factor:
            with pytest.raises(OperatorError, match="has a second factor"):
                credentials.make_enrolment_link(audit.SYSTEM, loaded, timedelta(hours=1))
        else:
            _, link = credentials.make_enrolment_link(audit.SYSTEM, loaded, timedelta(hours=1))
            assert "token=" in link


@pytest.mark.parametrize(
    "purpose",
    [mail_links.VERIFY, mail_links.CHANGE_EMAIL, mail_links.RESET, mail_links.SIGN_UP,
     mail_links.ENROLMENT, mail_links.INVITE],
)  # fmt: skip
def test_how_long_a_link_works(app: Flask, user: User, clock: Clock, purpose: str) -> None:
    clock.stand_still()
    with app.app_context():
        loaded = db.session.get_one(User, user.id)
        lives = timedelta(days=7) if purpose == mail_links.INVITE else timedelta(hours=1)
        token, _ = mail_links.make(purpose, user.email, loaded)
        assert token.expires_at - clock.time == lives
        shorter, _ = mail_links.make(purpose, user.email, loaded, timedelta(minutes=5))
        assert shorter.expires_at - clock.time == timedelta(minutes=5)
