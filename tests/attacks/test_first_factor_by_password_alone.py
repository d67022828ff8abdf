"""The attacker has the password of somebody without factors, and enrols his own.

It ends at a code in a mail that he does not read, and at a link that he was not given.
"""

from collections.abc import Callable
from datetime import timedelta

import flask
import pytest
from flask import Flask
from sqlalchemy import func, select, update

from sso import audit
from sso import clock as sso_clock
from sso.crypto import mail_codes
from sso.endpoints import browser_session
from sso.extensions import db
from sso.mfa import policy
from sso.mfa.policy import Proof
from sso.models import (
    BrowserSession,
    Identity,
    Mail,
    MailToken,
    Passkey,
    TotpSecret,
    UpstreamSession,
    User,
)
from sso.services import accounts, credentials, mail_links, second_factors
from sso.store import users
from tests.attacks.conftest import Watch, reset_link
from tests.conftest import Clock
from tests.store.test_races import at_once
from tests.support.actors import BASE, ORIGIN, Browser, Page
from tests.support.authenticator import Authenticator, options_of
from tests.support.events import events
from tests.support.factories import PASSWORD, make_client, make_user
from tests.support.mailbox import Mailbox, MailServer, link_in, text_of
from tests.support.second_factors import (
    ASK,
    CODE,
    FACTORS,
    ask_for_code,
    code_of,
    confirm_by_code,
    enrol_totp,
    is_signed_in,
    scan,
)

pytestmark = pytest.mark.slow

CODE_PAGE = f"{FACTORS}/code"


def enrolled(app: Flask) -> int:
    with app.app_context():
        counts = [select(func.count()).select_from(table) for table in (Passkey, TotpSecret)]
        return sum(db.session.scalar(one) or 0 for one in counts)


def allowed(app: Flask) -> int:
    """In how many sessions the first factor may be added."""
    with app.app_context():
        which = BrowserSession.enrolment_allowed_at.is_not(None)
        return db.session.scalar(select(func.count()).where(which)) or 0


def type_in(browser: Browser, code: str) -> Page:
    """Type a code into the form of one's own page, open or not."""
    if not browser.page.path.endswith("/code"):
        browser.open(CODE_PAGE)
    return browser.submit(code=code)


@pytest.fixture
def thief(app: Flask, user: User, mailbox: Mailbox) -> Browser:
    browser = Browser(app)
    browser.sign_in()
    return browser


@pytest.mark.parametrize("on_the_way", ["require_mfa", "acr_values", "account"])
def test_the_pages_lead_to_the_code(app: Flask, thief: Browser, on_the_way: str) -> None:
    if on_the_way == "account":
        page = thief.open(FACTORS)
    else:
        essential = '{"id_token": {"acr": {"essential": true, "value": "2"}}}'
        client = make_client(app, require_mfa=on_the_way == "require_mfa")
        page = thief.authorize(client, claims=essential)
    assert page.path.endswith("/account/factors")
    assert "confirm your email address" in page.html
    assert "/factors/totp" not in page.html
    assert thief.open(page.url.replace("/factors", "/factors/totp")).path.endswith("/factors/code")
    assert enrolled(app) == 0


def test_a_passkey_posted_past_the_page(
    make_app: Callable[..., Flask], smtp: MailServer, user: User
) -> None:
    app = make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}", SSO_SMTP_URL=smtp.url)
    mailbox, thief, key = Mailbox(app, smtp), Browser(app), Authenticator()
    thief.sign_in()
    confirm_by_code(thief, mailbox)
    options = options_of(thief.open(FACTORS))
    fields = dict(thief.page.fields)
    with app.app_context():  # the options of an allowed session, which is so no more
        db.session.execute(update(BrowserSession).values(enrolment_allowed_at=None))
        db.session.commit()
    form = {**fields, "action": "add_passkey", "credential": key.create(options)}
    assert thief.open(FACTORS, method="POST", data=form).path.endswith("/factors/code")
    assert enrolled(app) == 0
    confirm_by_code(thief, mailbox)  # and the near miss
    assert thief.open(FACTORS, method="POST", data=form).path.endswith("/account/factors")
    assert enrolled(app) == 1


def test_a_set_up_page_posted_when_nothing_allows_it_any_more(
    app: Flask, thief: Browser, mailbox: Mailbox
) -> None:
    confirm_by_code(thief, mailbox)
    page = thief.open(f"{FACTORS}/totp")
    with app.app_context():
        db.session.execute(update(BrowserSession).values(enrolment_allowed_at=None))
        db.session.commit()
    thief.submit(code=code_of(scan(page)))
    assert enrolled(app) == 0


def test_the_owner_reads_the_mail(app: Flask, user: User, thief: Browser, mailbox: Mailbox) -> None:
    """What it says, and that it is enough."""
    owner = Browser(app)
    owner.sign_in()
    mailbox.read()
    owner.open(CODE_PAGE)
    assert 'autocomplete="one-time-code"' not in owner.page.html
    assert "We sent a code to dana@example.com" in owner.submit(action="send").html
    (mail,) = mailbox.read()
    words = " ".join(text_of(mail).split())
    assert mail["Subject"] == "Your confirmation code for 127.0.0.1:5000"
    assert "Do not share it" in words
    assert "/forgotten-password" in words
    (code,) = set(CODE.findall(words))
    page = owner.submit(code=f" {code.replace('-', ' ')} ")
    assert page.path.endswith("/account/factors")
    assert "/factors/totp" in page.html
    assert len(codes_of_totp(owner)) == 10
    told = events(app, "enrolment_code_asked", "enrolment_allowed")
    assert [one["name"] for one in told] == ["enrolment_code_asked", "enrolment_allowed"]
    assert {one["user"] for one in told} == {str(user.id)}
    assert code not in str(told)
    assert not is_signed_in(thief)


def codes_of_totp(browser: Browser) -> list[str]:
    return enrol_totp(browser)[1]


def test_on_the_way_to_an_application(app: Flask, user: User, mailbox: Mailbox) -> None:
    """The request that waits is not lost on the way through the code."""
    client, dana = make_client(app, require_mfa=True), Browser(app)
    dana.authorize(client)
    page = dana.sign_in()
    page = dana.open(page.url.replace("/factors", "/factors/code"))
    mailbox.read()
    dana.submit(action="send")
    (mail,) = mailbox.read()
    page = dana.submit(code=CODE.findall(text_of(mail))[0])
    assert page.path.endswith("/account/factors")
    assert "Books" in page.html
    page = dana.open(page.url.replace("/factors", "/factors/totp"))
    page = dana.submit(code=code_of(scan(page)))
    onward = page.html.split('class="button primary" href="')[1].split('"')[0]
    dana.open(onward)
    assert "code" in dana.allow().parameters


def test_the_code_of_the_owners_session(
    app: Flask, user: User, thief: Browser, mailbox: Mailbox
) -> None:
    """Read over the shoulder, or told to a caller: it is worth nothing in another session."""
    owner = Browser(app)
    owner.sign_in()
    code = ask_for_code(owner, mailbox)
    ask_for_code(thief, mailbox)
    assert 'role="alert"' in type_in(thief, code).html
    assert allowed(app) == 0
    assert owner.submit(code=code).path.endswith("/account/factors")
    assert allowed(app) == 1


def test_the_code_of_another_user(app: Flask, thief: Browser, mailbox: Mailbox) -> None:
    make_user(app, "mallory@example.com", name="Mallory")
    mallory = Browser(app)
    mallory.sign_in("mallory@example.com")
    code = ask_for_code(mallory, mailbox)
    ask_for_code(thief, mailbox)
    assert 'role="alert"' in type_in(thief, code).html
    assert allowed(app) == 0


def test_a_code_works_once(app: Flask, thief: Browser, mailbox: Mailbox) -> None:
    code = ask_for_code(thief, mailbox)
    page = thief.page
    assert thief.submit(code=code).path.endswith("/account/factors")
    with app.app_context():
        db.session.execute(update(BrowserSession).values(enrolment_allowed_at=None))
        db.session.commit()
    thief.page = page
    assert 'role="alert"' in thief.submit(code=code).html
    assert allowed(app) == 0


def test_a_newer_code_ends_the_one_before(app: Flask, thief: Browser, mailbox: Mailbox) -> None:
    first = ask_for_code(thief, mailbox)
    second = ask_for_code(thief, mailbox)
    assert 'role="alert"' in thief.submit(code=first).html
    assert thief.submit(code=second).path.endswith("/account/factors")


@pytest.mark.parametrize(("minutes", "works"), [(9, True), (11, False)])
def test_a_code_lives_ten_minutes(
    app: Flask, user: User, clock: Clock, mailbox: Mailbox, minutes: int, works: bool
) -> None:
    dana = Browser(app)
    dana.sign_in()
    code = ask_for_code(dana, mailbox)
    clock.move(minutes=minutes)
    assert dana.submit(code=code).path.endswith("/account/factors") is works
    assert allowed(app) == works


@pytest.mark.parametrize(("minutes", "works"), [(14, True), (16, False)])
def test_what_it_allows_lasts_fifteen_minutes(
    app: Flask, user: User, clock: Clock, mailbox: Mailbox, minutes: int, works: bool
) -> None:
    dana = Browser(app)
    dana.sign_in()
    confirm_by_code(dana, mailbox)
    clock.move(minutes=minutes)
    assert dana.open(f"{FACTORS}/totp").path.endswith("/totp") is works


def test_it_allows_the_first_factor_alone(
    app: Flask, user: User, clock: Clock, mailbox: Mailbox
) -> None:
    """What comes after it needs a fresh sign-in, however lately the code was typed."""
    dana = Browser(app)
    dana.sign_in()
    confirm_by_code(dana, mailbox)
    enrol_totp(dana)
    page = dana.open(f"{ASK}new_codes")
    clock.move(minutes=6)
    for action in ("remove_totp", "new_codes", "add_passkey"):
        dana.page = page
        assert dana.submit(action=action).path.endswith("/sign-in")
    assert enrolled(app) == 1


def test_a_code_needs_a_fresh_sign_in(
    app: Flask, user: User, clock: Clock, mailbox: Mailbox
) -> None:
    """A browser left open, with the mailbox open beside it."""
    dana = Browser(app)
    dana.sign_in()
    mailbox.read()
    dana.open(CODE_PAGE)
    clock.move(minutes=6)
    assert dana.submit(action="send").path.endswith("/sign-in")
    assert mailbox.read() == []
    assert dana.submit(password=PASSWORD).path.endswith("/factors/code")


@pytest.mark.parametrize("change", ["password", "email"])
def test_a_code_dies_with_what_it_was_sent_for(
    app: Flask, user: User, thief: Browser, mailbox: Mailbox, change: str
) -> None:
    """Changed in the code's own session, which goes on; also before the mail was sent."""
    code = ask_for_code(thief, mailbox)
    waiting = thief.page
    thief.open(CODE_PAGE)
    thief.submit(action="send")  # not delivered yet
    with app.app_context():
        values = {"email": "new@example.com"} if change == "email" else {"password_hash": "x"}
        db.session.execute(update(User).values(**values))
        db.session.commit()
    assert mailbox.read() == []
    thief.page = waiting
    assert 'role="alert"' in thief.submit(code=code).html
    assert allowed(app) == 0


def test_the_address_is_changed_first(
    app: Flask, user: User, clock: Clock, mailbox: Mailbox
) -> None:
    """The password is enough to lead the account's mail elsewhere; the owner has a week."""
    thief = Browser(app)
    thief.sign_in()
    thief.open(f"{ORIGIN}{BASE}/account/email")
    mailbox.read()
    thief.submit(email="thief@evil.example", password=PASSWORD)
    (mail,) = [one for one in mailbox.read() if "thief@evil.example" in one["To"]]
    thief.open(link_in(mail))
    thief.submit()
    mailbox.read()
    page = thief.open(CODE_PAGE)
    assert "less than 7 days ago" in page.html
    assert 'value="send"' not in page.html
    thief.submit(action="send")
    assert mailbox.read() == []
    clock.move(days=6, hours=23)
    thief.sign_in("thief@evil.example")
    assert 'value="send"' not in thief.open(CODE_PAGE).html
    clock.move(hours=2)
    thief.open(f"{ORIGIN}{BASE}/sign-in?back=factors")
    thief.sign_in("thief@evil.example")
    assert 'value="send"' in thief.open(CODE_PAGE).html


def test_an_operators_change_of_the_address_settles_at_once(
    app: Flask, user: User, mailbox: Mailbox
) -> None:
    """Also when it takes a thief's change back."""
    with app.app_context():
        db.session.execute(update(User).values(email_changed_at=sso_clock.now()))
        db.session.commit()
    arguments = ["user", "update", user.email, "--email", "new@example.com"]
    assert app.test_cli_runner().invoke(args=arguments).exit_code == 0
    dana = Browser(app)
    dana.sign_in("new@example.com")
    assert confirm_by_code(dana, mailbox).path.endswith("/account/factors")


def test_codes_guessed_in_one_session(app: Flask, thief: Browser, mailbox: Mailbox) -> None:
    """Five tries of a code, whatever counts rates (each process may count for itself)."""
    code = ask_for_code(thief, mailbox)
    for _ in range(mail_codes.TRIES):
        type_in(thief, "00000000")
        app.extensions["sso.limits"]._local.counters.clear()
    assert 'role="alert"' in type_in(thief, code).html
    assert allowed(app) == 0
    told = events(app, "enrolment_code_failed")
    assert len(told) == mail_codes.TRIES + 1
    assert code not in str(told)


def test_the_last_try_counts(app: Flask, thief: Browser, mailbox: Mailbox) -> None:
    code = ask_for_code(thief, mailbox)
    for _ in range(mail_codes.TRIES - 1):
        type_in(thief, "00000000")
    assert type_in(thief, code).path.endswith("/account/factors")


def test_codes_guessed_at_the_same_instant(app: Flask, thief: Browser, mailbox: Mailbox) -> None:
    ask_for_code(thief, mailbox)
    with app.app_context():
        session = db.session.scalar(select(BrowserSession))
        owner = db.session.scalar(select(User))
        assert session is not None
        assert owner is not None
        session_id, user_id = session.id, owner.id

    def guess() -> bool:
        with app.app_context():
            user = db.session.get(User, user_id)
            assert user is not None
            right = second_factors.accept_emailed_code(audit.SYSTEM, user, session_id, "00000000")
            db.session.commit()
            return right

    assert not any(at_once(10, guess))
    with app.app_context():
        assert db.session.scalar(select(MailToken.failures)) == mail_codes.TRIES


def test_codes_guessed_in_many_sessions(
    app: Flask, user: User, mailbox: Mailbox, watch: Watch
) -> None:
    """Each session has a code of its own, and each browser is known by now."""
    tried = 0
    for _ in range(12):
        watch.now += 2
        thief = Browser(app)
        thief.sign_in()
        thief.open(CODE_PAGE)
        thief.submit(action="send")
        mailbox.read()
        for _ in range(6):
            if type_in(thief, "00000000").status == 429:
                break
            tried += 1
    assert tried <= 11, f"{tried} guesses in half a minute"


def test_a_hundred_codes_asked_for(app: Flask, thief: Browser, mailbox: Mailbox) -> None:
    mailbox.read()
    thief.open(CODE_PAGE)
    for _ in range(100):
        thief.submit(action="send")
    assert len(mailbox.read()) == 5
    assert len(events(app, "enrolment_code_asked")) == 5


def test_who_asked_too_often_is_told(app: Flask, thief: Browser, mailbox: Mailbox) -> None:
    thief.open(CODE_PAGE)
    pages = [thief.submit(action="send").html for _ in range(6)]
    assert ["requested many codes" in page for page in pages] == [False] * 5 + [True]


def test_nothing_in_the_database_gives_the_code(
    app: Flask, thief: Browser, mailbox: Mailbox
) -> None:
    code = ask_for_code(thief, mailbox).replace("-", "")
    with app.app_context():
        token = db.session.scalar(select(MailToken))
        assert token is not None
        assert code not in str(vars(token))
        assert code not in str([vars(one) for one in db.session.scalars(select(Mail))])
        assert token.digest.startswith("hmac-sha256:")


@pytest.mark.parametrize("code", ["", "1234567", "x" * 500, "1234-5678\0", "①②③④⑤⑥⑦⑧", "١٢٣٤٥٦٧٨"])
def test_codes_that_are_none(app: Flask, thief: Browser, mailbox: Mailbox, code: str) -> None:
    ask_for_code(thief, mailbox)
    page = thief.submit(code=code)
    assert page.status == 200
    assert 'role="alert"' in page.html


def test_arabic_digits(app: Flask, thief: Browser, mailbox: Mailbox) -> None:
    code = ask_for_code(thief, mailbox)
    arabic = code.translate({ord("0") + n: chr(0x660 + n) for n in range(10)})
    assert thief.submit(code=arabic).path.endswith("/account/factors")


def test_with_a_factor_there_is_no_code(app: Flask, thief: Browser, mailbox: Mailbox) -> None:
    """The mailbox takes the place of the first factor alone, never of a second one."""
    owner = Browser(app)
    owner.sign_in()
    confirm_by_code(owner, mailbox)
    enrol_totp(owner)
    thief.sign_in()
    assert thief.page.path.endswith("/second-factor")
    assert thief.open(CODE_PAGE).path.endswith("/sign-in")
    form = {**thief.page.fields, "action": "send"}
    mailbox.read()
    thief.open(CODE_PAGE, method="POST", data=form)
    assert mailbox.read() == []
    assert owner.open(CODE_PAGE).path.endswith("/account/factors")


def test_another_app_in_place_of_the_old_one(app: Flask, user: User, mailbox: Mailbox) -> None:
    """Who has just shown a factor and takes it away needs no mail to set up the next."""
    dana = Browser(app)
    dana.sign_in()
    confirm_by_code(dana, mailbox)
    enrol_totp(dana)
    dana.open(f"{ASK}remove_totp")
    dana.submit(action="remove_totp")
    assert len(codes_of_totp(dana)) == 10


def test_without_a_mail_server_it_is_as_before(app: Flask, user: User) -> None:
    dana = Browser(app)
    dana.sign_in()
    assert dana.open(CODE_PAGE).path.endswith("/account/factors")
    assert len(codes_of_totp(dana)) == 10


def link_for(app: Flask, who: str, *options: str) -> str:
    made = app.test_cli_runner().invoke(args=["user", "enrolment-link", who, *options])
    assert made.exit_code == 0, made.output
    link = made.stdout.strip()
    assert link.startswith(f"{ORIGIN}{BASE}/account/factors/link?token=")
    return str(link)


def test_an_operators_link(app: Flask, user: User, thief: Browser) -> None:
    link = link_for(app, user.email)
    page = thief.open(link)  # opening changes nothing
    assert allowed(app) == 0
    assert page.status == 200
    assert thief.submit().path.endswith("/account/factors")
    assert allowed(app) == 1
    assert thief.open(link).status == 410
    assert len(codes_of_totp(thief)) == 10
    told = events(app, "enrolment_link_made", "enrolment_allowed")
    assert [one["name"] for one in told] == ["enrolment_link_made", "enrolment_allowed"]
    assert told[0]["operator"]
    assert told[1]["method"] == "link"
    token = link.partition("token=")[2]
    assert token not in str(told)


def test_a_link_alone_is_nothing(app: Flask, user: User, mailbox: Mailbox) -> None:
    """Without the password; with the session of somebody else; with an old one."""
    link = link_for(app, user.email)
    stranger = Browser(app)
    assert stranger.open(link).status == 403
    make_user(app, "mallory@example.com", name="Mallory")
    stranger.sign_in("mallory@example.com")
    assert stranger.open(link).status == 403
    form = {**stranger.open(FACTORS + "/code").fields}
    stranger.open(link, method="POST", data=form)
    assert allowed(app) == 0


def test_a_link_needs_a_fresh_sign_in(
    app: Flask, user: User, clock: Clock, mailbox: Mailbox
) -> None:
    dana = Browser(app)
    dana.sign_in()
    link = link_for(app, user.email, "--hours", "2")
    clock.move(minutes=6)
    assert dana.open(link).status == 403
    dana.open(f"{ORIGIN}{BASE}/sign-in?back=factors")
    dana.sign_in()
    assert dana.open(link).status == 200


@pytest.mark.parametrize(
    ("hours", "minutes", "works"), [(1, 59, True), (1, 61, False), (2, 61, True)]
)
def test_how_long_a_link_lives(
    app: Flask, user: User, clock: Clock, mailbox: Mailbox, hours: int, minutes: int, works: bool
) -> None:
    link = link_for(app, user.email, "--hours", str(hours))
    clock.move(minutes=minutes)
    dana = Browser(app)
    dana.sign_in()
    assert dana.open(link).status == (200 if works else 410)


def test_one_link_used_twice_at_the_same_instant(app: Flask, user: User, mailbox: Mailbox) -> None:
    link, browsers = link_for(app, user.email), [Browser(app), Browser(app)]
    for browser in browsers:
        browser.sign_in()
        browser.open(link)
    waiting = list(browsers)
    at_once(2, lambda: waiting.pop().submit())
    assert allowed(app) == 1


@pytest.mark.parametrize("state", ["factor", "disabled"])
def test_no_link_for_whom_it_would_not_help(app: Flask, user: User, state: str) -> None:
    if state == "factor":
        dana = Browser(app)
        dana.sign_in()
        enrol_totp(dana)
    else:
        app.test_cli_runner().invoke(args=["user", "disable", user.email])
    made = app.test_cli_runner().invoke(args=["user", "enrolment-link", user.email])
    assert made.exit_code == 1
    assert made.stdout == ""


def test_a_reset_link_is_no_enrolment_link(
    app: Flask, user: User, thief: Browser, mailbox: Mailbox
) -> None:
    mailbox.read()
    link = reset_link(app, user.email, mailbox)
    token = link.partition("token=")[2]
    assert thief.open(f"{FACTORS}/link?token={token}").status == 410
    other = link_for(app, user.email).partition("token=")[2]
    assert thief.open(f"{ORIGIN}{BASE}/new-password?token={other}").status == 410


# A password that was set by a mailed link: the link counts for ten minutes, in that browser.

NEW = "another long password"


def link_to(app: Flask, way: str, email: str, mailbox: Mailbox) -> tuple[Browser, str]:
    """A browser that asked for it, and the link in the mail."""
    mailbox.read()
    browser = Browser(app)
    if way == "reset":
        return browser, reset_link(app, email, mailbox)
    if way == "sign-up":
        browser.open(f"{ORIGIN}{BASE}/sign-up")
        browser.submit(email=email)
    else:
        invited = ["user", "invite", "--email", email, "--name", "Nia"]
        assert app.test_cli_runner().invoke(args=invited).exit_code == 0
    return browser, mailbox.link(email)


def set_password(browser: Browser, link: str) -> Page:
    """Follow a link, and go on as far as the sign-in."""
    browser.open(link)
    more = {"name": "Nia"} if "complete-sign-up" in link else {}
    return browser.submit(new_password=NEW, **more)


@pytest.fixture
def by_link(make_app: Callable[..., Flask], smtp: MailServer) -> tuple[Flask, Mailbox]:
    app = make_app(SSO_SMTP_URL=smtp.url, SSO_SIGN_UP="open")
    return app, Mailbox(app, smtp)


WAYS = {"reset": "dana@example.com", "sign-up": "nia@example.com", "invitation": "nia@example.com"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("has_asked", [True, False], ids=["that asked", "another"])
def test_a_link_that_set_the_password_is_enough(
    by_link: tuple[Flask, Mailbox], way: str, has_asked: bool
) -> None:
    """In the browser that asked for it, or in another one that opened it."""
    app, mailbox = by_link
    make_user(app)
    email = WAYS[way]
    browser, link = link_to(app, way, email, mailbox)
    browser = browser if has_asked else Browser(app)
    page = set_password(browser, link)
    if not (way == "sign-up" and has_asked):
        assert page.path.endswith("/sign-in")
        browser.submit(email=email, password=NEW)
    assert allowed(app) == 1
    mailbox.read()
    assert "/factors/totp" in browser.open(FACTORS).html  # no page about a code before it
    assert len(codes_of_totp(browser)) == 10
    assert not [one for one in mailbox.read() if "code" in one["Subject"]]
    (told,) = events(app, "enrolment_allowed")
    assert told["method"] == "password_link"
    with app.app_context():
        assert "link_used" not in str(db.session.scalars(select(MailToken.purpose)
                                      .where(MailToken.used_at.is_(None))).all())  # fmt: skip


@pytest.mark.parametrize(("seconds", "works"), [(-1, True), (0, False), (1, False)])
@pytest.mark.parametrize("when", ["before the sign-in", "after the sign-in"])
def test_the_link_counts_for_ten_minutes(
    app: Flask, user: User, clock: Clock, mailbox: Mailbox, when: str, seconds: int, works: bool
) -> None:
    dana, link = link_to(app, "reset", user.email, mailbox)
    dana.open(link)
    clock.stand_still()
    dana.submit(new_password=NEW)
    used_at = clock.time
    if when == "before the sign-in":
        clock.time = used_at + timedelta(minutes=10, seconds=seconds)
    dana.submit(email=user.email, password=NEW)
    assert is_signed_in(dana)
    clock.time = used_at + timedelta(minutes=10, seconds=seconds)
    assert dana.open(f"{FACTORS}/totp").path.endswith("/totp") is works
    assert allowed(app) == (works or when == "after the sign-in")


def test_the_link_helps_no_other_session(app: Flask, user: User, mailbox: Mailbox) -> None:
    """Of the same user, signed in by the new password elsewhere before and after."""
    dana, link = link_to(app, "reset", user.email, mailbox)
    set_password(dana, link)
    for _ in range(2):
        thief = Browser(app)
        thief.sign_in(password=NEW)
        assert thief.open(f"{FACTORS}/totp").path.endswith("/factors/code")
        assert allowed(app) == dana.page.path.endswith("/account")
        dana.submit(email=user.email, password=NEW)
    assert allowed(app) == 1
    dana.open(f"{ORIGIN}{BASE}/sign-out")  # it was used up: the next session needs a code
    dana.submit()
    dana.sign_in(password=NEW)
    assert dana.open(f"{FACTORS}/totp").path.endswith("/factors/code")


@pytest.mark.parametrize(
    "proof", [policy.of_upstream("otp", False), policy.of_passkey_alone(False)], ids=str
)
def test_the_link_helps_no_other_way_to_sign_in(app: Flask, user: User, proof: Proof) -> None:
    """Whoever signs in at a provider, or with a passkey, has not shown the new password."""
    with app.test_request_context(f"{BASE}/sign-in"):
        owner = users.find(user.id)
        assert owner is not None
        browser_session.remember_link(owner)
        assert "link_used" in flask.session
        session = browser_session.begin(owner, proof)
        assert session.enrolment_allowed_at is None
        db.session.commit()
    assert allowed(app) == 0


def test_the_link_helps_no_sign_in_at_a_provider(app: Flask, user: User) -> None:
    """Also if the provider says that a password was typed there: it is another one."""
    with app.test_request_context(f"{BASE}/sign-in"):
        owner = users.find(user.id)
        assert owner is not None
        identity = Identity(
            user_id=owner.id, provider="corp", issuer="https://corp.example", subject="dana"
        )
        db.session.add(identity)
        db.session.flush()
        upstream = UpstreamSession(identity_id=identity.id, amr="pwd")
        db.session.add(upstream)
        browser_session.remember_link(owner)
        proof = policy.of_upstream("pwd", False)
        session = browser_session.begin(owner, proof, upstream=upstream)
        assert session.enrolment_allowed_at is None
        db.session.commit()
    assert allowed(app) == 0


def test_the_link_helps_no_other_user(app: Flask, user: User, mailbox: Mailbox) -> None:
    """Who signs in with a password alone, in the browser in which the owner used the link."""
    make_user(app, "mallory@example.com", name="Mallory")
    browser, link = link_to(app, "reset", user.email, mailbox)
    set_password(browser, link)
    browser.submit(email="mallory@example.com", password=PASSWORD)
    assert browser.open(f"{FACTORS}/totp").path.endswith("/factors/code")
    assert allowed(app) == 0
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit()
    browser.sign_in(password=NEW)  # and then the owner: the proof is gone
    assert allowed(app) == 0


def test_opening_the_link_is_not_enough(app: Flask, user: User, mailbox: Mailbox) -> None:
    """Nor is a link that only confirms the address."""
    browser, link = link_to(app, "reset", user.email, mailbox)
    browser.open(link)
    browser.sign_in()
    assert browser.open(f"{FACTORS}/totp").path.endswith("/factors/code")
    with app.app_context():
        db.session.execute(update(User).values(email_verified=False))
        db.session.commit()
    command = ["user", "update", user.email, "--email", "new@example.com"]
    assert app.test_cli_runner().invoke(args=command).exit_code == 0
    (mail,) = [one for one in mailbox.read() if "verify-email" in text_of(one)]
    browser = Browser(app)
    browser.sign_in("new@example.com")
    browser.open(link_in(mail))
    browser.submit()
    assert allowed(app) == 0


@pytest.mark.parametrize("when", ["before the sign-in", "after the sign-in"])
@pytest.mark.parametrize("who", ["user", "operator"])
def test_the_link_dies_with_the_address(
    app: Flask, user: User, mailbox: Mailbox, who: str, when: str
) -> None:
    dana, link = link_to(app, "reset", user.email, mailbox)
    set_password(dana, link)
    if when == "after the sign-in":
        dana.submit(email=user.email, password=NEW)
        assert allowed(app) == 1
    with app.app_context():
        owner = db.session.get(User, user.id)
        assert owner is not None
        if who == "user":
            credentials.change_email(audit.USER, owner, "new@example.com")
        else:
            accounts.update(audit.operator(), owner.id, email="new@example.com")
        db.session.commit()
    if when == "before the sign-in":
        dana.submit(email="new@example.com", password=NEW)
        assert is_signed_in(dana)
    assert allowed(app) == 0
    assert dana.open(f"{FACTORS}/totp").path.endswith("/factors/code")


def test_a_code_dies_with_the_address_after_it_was_accepted(
    app: Flask, user: User, mailbox: Mailbox
) -> None:
    dana = Browser(app)
    dana.sign_in()
    confirm_by_code(dana, mailbox)
    assert allowed(app) == 1
    with app.app_context():
        owner = db.session.get(User, user.id)
        assert owner is not None
        credentials.change_email(audit.USER, owner, "new@example.com")
        db.session.commit()
    assert allowed(app) == 0


def test_a_link_to_an_address_that_a_thief_has_changed(
    app: Flask, user: User, clock: Clock, mailbox: Mailbox
) -> None:
    """The password leads the account's mail to the thief, who then asks for a link there."""
    with app.app_context():
        owner = db.session.get(User, user.id)
        assert owner is not None
        credentials.change_email(audit.USER, owner, "thief@evil.example")
        db.session.commit()
    thief, link = link_to(app, "reset", "thief@evil.example", mailbox)
    set_password(thief, link)
    thief.submit(email="thief@evil.example", password=NEW)
    assert "less than 7 days ago" in thief.open(f"{FACTORS}/totp").html
    assert allowed(app) == 0


def test_a_link_for_somebody_who_has_a_factor(app: Flask, user: User, mailbox: Mailbox) -> None:
    """A forgotten password opens no second factor, even if an operator removes the old one."""
    owner = Browser(app)
    owner.sign_in()
    confirm_by_code(owner, mailbox)
    enrol_totp(owner)
    thief, link = link_to(app, "reset", user.email, mailbox)
    set_password(thief, link)
    assert thief.submit(email=user.email, password=NEW).path.endswith("/second-factor")
    assert thief.open(FACTORS).path.endswith("/sign-in")
    reset = app.test_cli_runner().invoke(args=["user", "reset-factors", user.email])
    assert reset.exit_code == 0
    thief.sign_in(password=NEW)
    assert is_signed_in(thief)
    assert thief.open(f"{FACTORS}/totp").path.endswith("/factors/code")


def test_a_factor_that_was_added_meanwhile_ends_it(
    app: Flask, user: User, mailbox: Mailbox
) -> None:
    """And it does not come back when an operator removes that factor within the ten minutes."""
    other, link = link_to(app, "reset", user.email, mailbox)
    set_password(other, link)
    owner = Browser(app)
    owner.sign_in(password=NEW)
    confirm_by_code(owner, mailbox)
    enrol_totp(owner)
    reset = app.test_cli_runner().invoke(args=["user", "reset-factors", user.email])
    assert reset.exit_code == 0
    other.submit(email=user.email, password=NEW)
    assert is_signed_in(other)
    assert other.open(f"{FACTORS}/totp").path.endswith("/factors/code")


def test_it_allows_the_first_factor_alone_also_by_a_link(
    app: Flask, user: User, clock: Clock, mailbox: Mailbox
) -> None:
    dana, link = link_to(app, "reset", user.email, mailbox)
    set_password(dana, link)
    dana.submit(email=user.email, password=NEW)
    enrol_totp(dana)
    page = dana.open(f"{ASK}new_codes")
    clock.move(minutes=6)
    for action in ("remove_totp", "new_codes", "add_passkey"):
        dana.page = page
        assert dana.submit(action=action).path.endswith("/sign-in")


def test_a_copy_of_the_cookie_counts_once(app: Flask, user: User, mailbox: Mailbox) -> None:
    dana, link = link_to(app, "reset", user.email, mailbox)
    set_password(dana, link)
    copies = []
    for _ in range(4):
        copy = Browser(app)
        for cookie in (dana.http._cookies or {}).values():
            copy.http.set_cookie(cookie.key, cookie.decoded_value, path=cookie.path,
                                 domain=cookie.domain)  # fmt: skip
        copy.page = dana.page
        copies.append(copy)
    for copy in copies:
        copy.submit(email=user.email, password=NEW)
    assert all(is_signed_in(copy) for copy in copies)
    assert allowed(app) == 1


LINKS = [mail_links.CHANGE_EMAIL, mail_links.ENROLMENT, mail_links.LINK_USED]


@pytest.mark.parametrize("purpose", LINKS)
def test_the_first_factor_ends_what_was_asked_for_before(
    app: Flask, user: User, mailbox: Mailbox, purpose: str
) -> None:
    """A link that the thief had asked for would change the address, or allow a factor of his."""
    owner = Browser(app)
    owner.sign_in()
    confirm_by_code(owner, mailbox)

    def make() -> str:
        with app.app_context():
            person = db.session.get(User, user.id)
            email, lives = "x@example.org", timedelta(hours=1)
            secret = mail_links.make_secret(purpose, email, person, lives)[1]
            db.session.commit()
        return secret

    def is_live(secret: str) -> bool:
        with app.app_context():
            return mail_links.find(secret, purpose) is not None

    before = make()
    assert is_live(before)
    enrol_totp(owner)
    assert not is_live(before)
    assert is_live(make())
