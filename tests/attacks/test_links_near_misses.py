"""A mailed link that nearly works: of another purpose, too old, or of what is no longer so."""

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import User
from sso.services import credentials, mail_links
from sso.services.mail_links import make
from sso.store import users
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD, make_user

PURPOSES = ("verify", "change_email", "reset", "invite", "sign_up")
PAGES = {
    "verify-email": {"verify", "change_email"},
    "new-password": {"reset", "invite"},
    "complete-sign-up": {"sign_up"},
}
NEW = "another long password"


def link(app: Flask, purpose: str, user: User | None, address: str = "dana@example.com") -> str:
    """The secret of a fresh link."""
    with app.app_context():
        owner = users.find(user.id) if user else None
        _, url = make(purpose, address, owner)
        db.session.commit()
    return url.partition("?token=")[2]


@pytest.fixture
def app(make_app: object) -> Flask:
    app: Flask = make_app(SSO_SIGN_UP="open")  # type: ignore[operator]
    return app


def test_the_secret_of_a_browser_is_no_link(app: Flask, browser: Browser, user: User) -> None:
    """What stays in the cookie after a reset would otherwise reset the password again."""
    browser.sign_in()
    with app.app_context():
        lives, owner = mail_links.LIFETIME, users.find(user.id)
        secret = mail_links.make_secret(mail_links.LINK_USED, user.email, owner, lives)[1]
        db.session.commit()
        assert mail_links.find(secret, *PURPOSES, mail_links.ENROLMENT) is None
        assert mail_links.find(secret, mail_links.LINK_USED)


@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize("page", PAGES)
def test_each_is_for_its_own_page(
    app: Flask, browser: Browser, user: User, purpose: str, page: str
) -> None:
    browser.sign_in()
    secret = link(app, purpose, None if purpose == "sign_up" else user, "x@example.com")
    found = browser.open(f"{ORIGIN}{BASE}/{page}?token={secret}")
    assert (found.status == 200) is (purpose in PAGES[page])
    if found.status != 200:
        assert found.status == 410


@pytest.mark.parametrize(("minutes", "good"), [(59, True), (61, False)])
@pytest.mark.parametrize("page", PAGES)
def test_for_an_hour(
    app: Flask, clock: Clock, browser: Browser, user: User, page: str, minutes: int, good: bool
) -> None:
    """Invitations may have a lifetime of their own."""
    purpose = {"verify-email": "verify", "new-password": "reset"}.get(page, "sign_up")
    if purpose == "sign_up":
        secret = link(app, purpose, None, "new@example.com")
    else:
        secret = link(app, purpose, user)
    url = f"{ORIGIN}{BASE}/{page}?token={secret}"
    form = browser.open(url)
    assert form.status == 200
    clock.move(minutes=minutes)
    assert browser.open(url).status == (200 if good else 410)
    browser.page = form  # it was open meanwhile
    sent = browser.submit(new_password=NEW, name="Dana")
    assert (sent.status == 200) is good


CHANGES = ("password", "address", "nothing", "name")


@pytest.mark.parametrize("purpose", ["verify", "reset"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["before it is opened", "before the button"])
def test_bound_to_the_account_as_it_was(
    app: Flask, clock: Clock, browser: Browser, user: User, purpose: str, change: str, when: str
) -> None:
    secret = link(app, purpose, user)
    page = "verify-email" if purpose == "verify" else "new-password"
    url = f"{ORIGIN}{BASE}/{page}?token={secret}"
    form = browser.open(url)
    with app.app_context():
        row = users.find(user.id)
        assert row
        if change == "password":
            row.password_hash = "another"
        elif change == "address":
            row.email = "dana@elsewhere.example"
        elif change == "name":
            row.name = "Dana Other"
        db.session.commit()
    good = change in ("nothing", "name")
    if when == "before it is opened":
        assert (browser.open(url).status == 200) is good
    else:
        browser.page = form
        assert (browser.submit(new_password=NEW).status == 200) is good
    with app.app_context():
        row = users.find(user.id)
        assert row
        assert (row.password_hash == "another") is (change == "password")


@pytest.mark.parametrize("purpose", ["verify", "reset", "sign_up"])
def test_each_works_once(app: Flask, clock: Clock, user: User, purpose: str) -> None:
    secret = link(app, purpose, None if purpose == "sign_up" else user, "new@example.com")
    page = next(page for page, purposes in PAGES.items() if purpose in purposes)
    url = f"{ORIGIN}{BASE}/{page}?token={secret}"
    first, second = Browser(app), Browser(app)
    first.open(url)
    second.open(url)
    assert first.submit(new_password=NEW, name="Dana").status == 200
    assert second.submit(new_password="yet another password", name="Eve").status == 410
    assert second.open(url).status == 410
    email = "new@example.com" if purpose == "sign_up" else "dana@example.com"
    with app.app_context():
        found = users.find_by_email(email) or users.find(user.id)
        assert found
        assert found.name != "Eve"
    assert not Browser(app).sign_in(email, "yet another password").path.endswith("/account")


def test_one_persons_link_leaves_anothers(app: Flask, clock: Clock, user: User) -> None:
    erin = make_user(app, "erin@example.com", name="Erin")
    mine, theirs = link(app, "reset", user), link(app, "reset", erin, "erin@example.com")
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/new-password?token={mine}")
    browser.submit(new_password=NEW)
    assert Browser(app).open(f"{ORIGIN}{BASE}/new-password?token={theirs}").status == 200
    assert Browser(app).sign_in("erin@example.com", PASSWORD).path.endswith("/account")


ENDED = (mail_links.CHANGE_EMAIL, mail_links.ENROLMENT, mail_links.LINK_USED)


@pytest.mark.parametrize("purpose", [*ENDED, mail_links.RESET, mail_links.VERIFY])
def test_what_a_reset_of_the_factors_ends(app: Flask, user: User, purpose: str) -> None:
    """Each would lead to a first factor, or to a mailbox for its code. Of others, nothing ends."""
    people = user, make_user(app, "erin@example.com", name="Erin")
    with app.app_context():
        owners = [users.find(one.id) for one in people]
        lives, links = mail_links.LIFETIME, []
        for owner in owners:
            assert owner
            links.append(mail_links.make_secret(purpose, owner.email, owner, lives)[1])
        assert owners[0]
        credentials.reset_factors(audit.SYSTEM, owners[0])
        db.session.commit()
        live = [mail_links.find(secret, purpose) is not None for secret in links]
        assert live == [purpose not in ENDED, True]


@pytest.mark.parametrize("secret", ["", "x", "sso_ml_", "sso_ml_" + "x" * 5000, "\x00", "%00", "é"])
def test_rubbish(browser: Browser, secret: str) -> None:
    for page in PAGES:
        found = browser.open(f"{BASE}/{page}", query_string={"token": secret})
        assert found.status == 410


def test_what_is_appended_makes_another_secret(
    app: Flask, browser: Browser, clock: Clock, user: User
) -> None:
    secret = link(app, "reset", user)
    for wrong in (secret + "x", secret[:-1], secret.upper(), " " + secret):
        assert browser.open(f"{ORIGIN}{BASE}/new-password?token={wrong}").status == 410
    assert browser.open(f"{ORIGIN}{BASE}/new-password?token={secret}").status == 200
