"""The attacker has the password, and stops at the second step, or fails there: the owner learns.

And who finishes signing in is not bothered.
"""

from collections.abc import Callable

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso.extensions import db
from sso.models import Mail, User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.authenticator import Authenticator
from tests.support.events import events
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox, MailServer, text_of
from tests.support.second_factors import (
    ASK,
    code_of,
    codes_of,
    confirm_by_code,
    enrol_passkey,
    enrol_totp,
    sign_in_by_passkey,
)

pytestmark = pytest.mark.slow

SUBJECT = "Someone entered your password but did not finish signing in"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


@pytest.fixture
def owner(app: Flask, user: User, clock: Clock, mailbox: Mailbox) -> Browser:
    """A browser in which the owner, who has an authenticator app, is known."""
    made = Browser(app)
    made.open(f"{ORIGIN}{BASE}/sign-in")
    made.submit(email=user.email, password=PASSWORD, remember="y")
    confirm_by_code(made, mailbox)
    made.secret, _ = enrol_totp(made)  # type: ignore[attr-defined]
    made.open(f"{ORIGIN}{BASE}/sign-out")
    made.submit(decision="sign_out")
    clock.move(minutes=5)
    mailbox.read()
    return made


@pytest.fixture
def thief(app: Flask, owner: Browser) -> Browser:
    made = Browser(app)
    made.http.environ_base.update(HTTP_USER_AGENT=FIREFOX, REMOTE_ADDR="192.0.2.7")
    made.sign_in()
    assert made.page.path.endswith("/second-factor")
    return made


def subjects(mailbox: Mailbox) -> list[str]:
    return [one["Subject"] for one in mailbox.read()]


def test_the_trail_tells_of_the_password(app: Flask, user: User, thief: Browser) -> None:
    (told,) = events(app, "password_accepted")
    assert (told["user"], told["address"]) == (str(user.id), "192.0.2.7")


def test_the_owner_sees_it(app: Flask, owner: Browser, thief: Browser) -> None:
    owner.sign_in()
    owner.submit(code=code_of(owner.secret))  # type: ignore[attr-defined]
    html = owner.open(f"{ORIGIN}{BASE}/account/activity").html
    assert html.count("The password was correct, and the second factor was requested") == 2
    assert "192.0.2.7" in html


def test_a_wrong_password_leaves_no_such_trace(
    app: Flask, owner: Browser, clock: Clock, mailbox: Mailbox
) -> None:
    Browser(app).sign_in(password="wrong wrong wrong")
    clock.move(minutes=11)
    assert events(app, "password_accepted") == []
    assert subjects(mailbox) == []


def test_without_factors_there_is_no_such_step(app: Flask, user: User, mailbox: Mailbox) -> None:
    Browser(app).sign_in()
    assert events(app, "password_accepted") == []
    assert subjects(mailbox) == ["New sign-in to your account"]


@pytest.mark.parametrize("tries", [0, 1, 3])
def test_the_second_step_is_never_done(
    thief: Browser, clock: Clock, mailbox: Mailbox, tries: int
) -> None:
    for _ in range(tries):
        thief.submit(code="000000")
    clock.move(minutes=9)
    assert subjects(mailbox) == []
    clock.move(minutes=2)
    (mail,) = mailbox.read()
    assert mail["Subject"] == SUBJECT
    words = " ".join(text_of(mail).split())
    assert "Firefox on Linux" in words
    assert "192.0.2.7" in words
    assert "/forgotten-password" in words


def test_cancelling_takes_nothing_back(thief: Browser, clock: Clock, mailbox: Mailbox) -> None:
    thief.submit(decision="cancel")
    clock.move(minutes=11)
    assert subjects(mailbox) == [SUBJECT]


def test_who_finishes_gets_no_such_mail(
    app: Flask, owner: Browser, clock: Clock, mailbox: Mailbox
) -> None:
    """In a browser that is new, with a slip on the way, and the password typed twice."""
    new = Browser(app)
    new.sign_in()
    new.submit(code="000000")
    new.sign_in()
    assert new.submit(code=code_of(owner.secret)).path.endswith("/account")  # type: ignore[attr-defined]
    clock.move(minutes=11)
    assert subjects(mailbox) == ["New sign-in to your account"]


def test_who_finishes_elsewhere_takes_nothing_back(
    app: Flask, owner: Browser, thief: Browser, clock: Clock, mailbox: Mailbox
) -> None:
    owner.sign_in()
    owner.submit(code=code_of(owner.secret))  # type: ignore[attr-defined]
    clock.move(minutes=11)
    assert subjects(mailbox) == [SUBJECT]


def test_another_account_that_finishes_takes_nothing_back(
    app: Flask, owner: Browser, thief: Browser, clock: Clock, mailbox: Mailbox
) -> None:
    """The thief signs in as himself in the same browser."""
    make_user(app, "mallory@example.com", name="Mallory")
    mallory = Browser(app)
    mallory.sign_in("mallory@example.com")
    confirm_by_code(mallory, mailbox)
    own, _ = enrol_totp(mallory)
    clock.move(minutes=1)
    thief.sign_in("mallory@example.com")
    thief.submit(code=code_of(own))
    assert thief.page.path.endswith("/account")
    clock.move(minutes=11)
    assert subjects(mailbox).count(SUBJECT) == 1


def test_a_passkey_finishes_it_too(
    make_app: Callable[..., Flask], user: User, clock: Clock, smtp: MailServer
) -> None:
    app = make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}", SSO_SMTP_URL=smtp.url)
    mailbox, key, first = Mailbox(app, smtp), Authenticator(), Browser(app)
    first.sign_in()
    confirm_by_code(first, mailbox)
    enrol_passkey(first, key)
    new = Browser(app)
    new.sign_in()
    new.open(f"{ORIGIN}{BASE}/sign-in")
    assert sign_in_by_passkey(new, key).path.endswith("/account")
    clock.move(minutes=11)
    assert SUBJECT not in subjects(mailbox)


def test_a_known_browser_is_told_of_only_if_the_step_failed(
    owner: Browser, clock: Clock, mailbox: Mailbox
) -> None:
    owner.sign_in()
    clock.move(minutes=11)
    assert subjects(mailbox) == []
    owner.sign_in()
    owner.submit(code="000000")
    clock.move(minutes=11)
    assert subjects(mailbox) == [SUBJECT]
    owner.sign_in()
    owner.submit(code="000000")
    owner.submit(code=code_of(owner.secret))  # type: ignore[attr-defined]
    clock.move(minutes=11)
    assert subjects(mailbox) == []


def test_no_flood_of_mails(app: Flask, owner: Browser, clock: Clock, mailbox: Mailbox) -> None:
    for _ in range(20):
        Browser(app).sign_in()
    clock.move(minutes=11)
    assert subjects(mailbox) == [SUBJECT] * 5


def test_again_after_the_mail_was_sent(thief: Browser, clock: Clock, mailbox: Mailbox) -> None:
    clock.move(minutes=11)
    assert subjects(mailbox) == [SUBJECT]
    thief.sign_in()
    clock.move(minutes=11)
    assert subjects(mailbox) == [SUBJECT]


def test_who_finishes_leaves_no_row(app: Flask, owner: Browser) -> None:
    new = Browser(app)
    new.sign_in()
    new.submit(code=code_of(owner.secret))  # type: ignore[attr-defined]
    with app.app_context():
        which = Mail.kind == "second_step_missing"
        assert db.session.scalar(select(func.count()).where(which)) == 0


def test_recovery_codes_are_told_of(app: Flask, user: User, clock: Clock, mailbox: Mailbox) -> None:
    dana = Browser(app)
    dana.sign_in()
    confirm_by_code(dana, mailbox)
    enrol_totp(dana)
    assert [s for s in subjects(mailbox) if "recovery" in s] == []  # they came with the factor
    dana.open(f"{ASK}new_codes")
    dana.submit(action="new_codes")
    assert subjects(mailbox) == ["New recovery codes were created"]
    dana.open(f"{ASK}new_codes")
    fresh = codes_of(dana.submit(action="new_codes"))
    mailbox.read()
    new = Browser(app)
    new.sign_in()
    new.submit(recovery_code="wrong")
    assert subjects(mailbox) == []
    new.submit(recovery_code=fresh[0])
    mails = {one["Subject"]: one for one in mailbox.read()}
    assert mails.keys() == {"A recovery code was used", "New sign-in to your account"}
    assert "Codes left: 9" in " ".join(text_of(mails["A recovery code was used"]).split())
