"""The attacker has an account, and uses it at what belongs to another.

It ends at whose it is: a link, a recovery code, an authenticator app, a passkey, a consent.
"""

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from sso.extensions import db
from sso.models import BrowserSession, RecoveryCode, TotpSecret, User
from sso.store import factors, users
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import PASSWORD, make_client, make_user
from tests.support.mailbox import Mailbox
from tests.support.second_factors import ASK, code_of, codes_of, enrol_totp, is_signed_in

pytestmark = pytest.mark.slow

MALLORY = "mallory@example.com"
NEW = "dana@elsewhere.example"
EMAIL = f"{ORIGIN}{BASE}/account/email"


@pytest.fixture
def mallory(app: Flask, user: User) -> Browser:
    make_user(app, MALLORY, name="Mallory")
    browser = Browser(app)
    browser.sign_in(MALLORY)
    return browser


def address_of(app: Flask, user: User) -> str:
    with app.app_context():
        found = users.find(user.id)
        assert found
        return found.email


def test_anothers_change_of_address(
    app: Flask, browser: Browser, mallory: Browser, user: User, mailbox: Mailbox
) -> None:
    browser.sign_in()
    mailbox.read()
    browser.open(EMAIL)
    browser.submit(email=NEW, password=PASSWORD)
    link = mailbox.link(NEW)
    form = {"csrf_token": mallory.open(EMAIL).fields["csrf_token"]}
    assert mallory.open(link).status == 403
    assert mallory.open(link, method="POST", data=form).status == 403
    assert address_of(app, user) == user.email
    with app.app_context():
        db.session.execute(update(BrowserSession).values(enrolment_allowed_at=user.created_at))
        db.session.commit()
    browser.open(link)  # it was not used up, either
    browser.submit()
    assert address_of(app, user) == NEW
    with app.app_context():  # others may go on to set up their first factor
        allowed = BrowserSession.enrolment_allowed_at.is_not(None)
        ids = db.session.scalars(select(BrowserSession.user_id).where(allowed)).all()
        assert user.id not in ids
        assert len(ids) == 1


def test_anothers_recovery_code(
    app: Flask, browser: Browser, mallory: Browser, user: User, clock: Clock
) -> None:
    """Typed by who is half way into their own account; and it is not used up by that."""
    browser.sign_in()
    _, codes = enrol_totp(browser)
    mallory.open(f"{ORIGIN}{BASE}/sign-in")
    mallory.sign_in(MALLORY)
    _, own = enrol_totp(mallory)
    half = Browser(app)
    half.sign_in(MALLORY)
    assert half.submit(recovery_code=codes[0]).path.endswith("/second-factor")
    assert not is_signed_in(half)
    victim = Browser(app)
    victim.sign_in()
    assert victim.submit(recovery_code=own[0]).path.endswith("/second-factor")
    victim.submit(recovery_code=codes[0])
    assert is_signed_in(victim)


def test_the_code_of_anothers_app(
    app: Flask, browser: Browser, mallory: Browser, user: User, clock: Clock
) -> None:
    browser.sign_in()
    secret, _ = enrol_totp(browser)
    mallory.open(f"{ORIGIN}{BASE}/sign-in")
    mallory.sign_in(MALLORY)
    own, _ = enrol_totp(mallory)
    clock.move(minutes=1)
    half = Browser(app)
    half.sign_in(MALLORY)
    assert half.submit(code=code_of(secret)).path.endswith("/second-factor")
    # The step that Mallory's app uses up is not used up for anybody else.
    half.submit(code=code_of(own))
    assert is_signed_in(half)
    victim = Browser(app)
    victim.sign_in()
    victim.submit(code=code_of(secret))
    assert is_signed_in(victim)


def test_removing_and_renewing_ones_own_factors_leaves_anothers(
    app: Flask, browser: Browser, mallory: Browser, user: User, clock: Clock
) -> None:
    browser.sign_in()
    _, codes = enrol_totp(browser)
    mallory.open(f"{ORIGIN}{BASE}/sign-in")
    mallory.sign_in(MALLORY)
    enrol_totp(mallory)
    mallory.open(f"{ASK}new_codes")
    assert len(codes_of(mallory.submit(action="new_codes"))) == 10
    mallory.open(f"{ASK}remove_totp")
    mallory.submit(action="remove_totp")
    with app.app_context():
        kept = factors.of_user(user.id)
        assert (kept.totp is not None, kept.recovery_codes) == (True, len(codes))
        rows = [
            db.session.scalar(select(func.count()).select_from(table))
            for table in (TotpSecret, RecoveryCode)
        ]
    assert rows == [1, 10]


def test_an_operator_resets_one_persons_factors(
    app: Flask, browser: Browser, mallory: Browser, user: User, clock: Clock
) -> None:
    browser.sign_in()
    enrol_totp(browser)
    mallory.open(f"{ORIGIN}{BASE}/sign-in")
    mallory.sign_in(MALLORY)
    enrol_totp(mallory)
    done = app.test_cli_runner().invoke(args=["user", "reset-factors", MALLORY])
    assert done.exit_code == 0
    with app.app_context():
        kept = factors.of_user(user.id)
        assert (kept.totp is not None, kept.recovery_codes) == (True, 10)
        gone = users.find_by_email(MALLORY)
        assert gone
        left = factors.of_user(gone.id)
        assert (bool(left), left.recovery_codes) == (False, 0)
        assert not factors.has_any(db.session.connection(), gone.id)
        assert factors.has_any(db.session.connection(), user.id)


def test_anothers_consent(app: Flask, browser: Browser, mallory: Browser, user: User) -> None:
    """What one person allowed is no other's consent, nor another client's."""
    client = make_client(app)
    browser.approve(client)
    assert ("decision", "allow") in mallory.authorize(client).buttons
    other = make_client(app, name="Other", redirect_uris=["https://other.example/"])
    assert ("decision", "allow") in browser.authorize(other).buttons
    # Nor does withdrawing it take more than the one consent away.
    mallory.authorize(client)
    assert mallory.allow().code
    browser.authorize(other)
    browser.allow()
    mallory.open(f"{ORIGIN}{BASE}/account")
    mallory.submit(action="withdraw", client=client.client_id)
    assert browser.authorize(client).parameters.get("code")
    assert browser.authorize(other).parameters.get("code")
    assert ("decision", "allow") in mallory.authorize(client).buttons
    browser.open(f"{ORIGIN}{BASE}/account")
    browser.submit(action="withdraw", client=client.client_id)
    assert browser.authorize(other).parameters.get("code")
    assert ("decision", "allow") in browser.authorize(client).buttons


def test_what_one_consents_to_is_not_written_into_anothers(
    app: Flask, browser: Browser, mallory: Browser, client: RelyingParty, user: User
) -> None:
    browser.approve(client, scope="openid")
    mallory.authorize(client, scope="openid email profile")
    mallory.allow()
    page = browser.authorize(client, scope="openid email profile")
    assert "scope_email" in page.fields


def test_the_pages_list_ones_own_applications_alone(
    app: Flask, browser: Browser, mallory: Browser, user: User
) -> None:
    browser.approve(make_client(app, name="Books"))
    films = make_client(app, name="Films", redirect_uris=["https://films.example/"])
    mallory.authorize(films)
    mallory.allow()
    mine, theirs = (one.open(f"{ORIGIN}{BASE}/account").html for one in (browser, mallory))
    assert ("Books" in mine, "Films" in mine) == (True, False)
    assert ("Books" in theirs, "Films" in theirs) == (False, True)
