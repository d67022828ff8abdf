"""The attacker wants in by a mailed code: guesses it, is told it, or asks for one that is not due.

It ends at five tries, at the browser that asked, and at accounts for which one factor is too few.
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import clock as sso_clock
from sso.checkup import components
from sso.checkup.finding import Status
from sso.config.upstream.file import Upstreams
from sso.crypto import mail_codes
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import BrowserSession, Identity, Mail, MailToken, User
from sso.process import http_call
from sso.ratelimit import limiting
from tests.attacks.test_reset_link import DIRECTORY
from tests.conftest import Clock, Statements
from tests.store.test_races import at_once
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty, claims_of
from tests.support.events import events
from tests.support.factories import make_client, make_user
from tests.support.mailbox import Mailbox, text_of
from tests.support.second_factors import CODE, confirm_by_code, enrol_totp, is_signed_in
from tests.support.upstreams import Internet, Upstream, provider

pytestmark = pytest.mark.slow

PAGE = f"{ORIGIN}{BASE}/sign-in/code"
DANA = "dana@example.com"


@pytest.fixture(autouse=True)
def allowed(app: Flask) -> None:
    app.extensions["sso.settings"] = replace(app.extensions["sso.settings"], mail_codes="on")


def ask(browser: Browser, email: str = DANA, **more: str) -> Page:
    if "email" not in browser.page.fields:
        browser.open(f"{PAGE}?change=1")
    return browser.submit(email=email, **more)


def code_in(mailbox: Mailbox) -> str:
    (mail,) = [mail for mail in mailbox.read() if "sign-in code" in mail["Subject"]]
    (code,) = set(CODE.findall(text_of(mail)))
    return str(code)


def sessions(app: Flask) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(BrowserSession)) or 0


def forget_limits(app: Flask) -> None:
    app.extensions["sso.limits"]._local.counters.clear()


def test_the_whole_way(app: Flask, client: RelyingParty, user: User, mailbox: Mailbox) -> None:
    """From an application and back, as one factor, without another word about a password."""
    browser = Browser(app)
    page = browser.authorize(client, scope="openid", acr_values="1")
    assert 'formaction="/api/auth/sign-in/code?resume=' in page.html
    browser.open(page.url.replace("/sign-in?", "/sign-in/code?"))
    page = ask(browser, "Dana@Example.com ", remember="1")
    assert re.search(rf"If \S*{DANA}\S* has an account", page.html)
    code = code_in(mailbox)
    browser.submit(code=code)
    code = (browser.allow() if browser.page.is_at_server else browser.page).code
    claims = claims_of(client.exchange(code).get_json()["id_token"])
    assert (claims["amr"], claims["acr"]) == (["otp"], "1")
    assert mailbox.subjects() == [(DANA, "New sign-in to your account")]
    (signed_in,) = events(app, "signed_in")
    assert signed_in["amr"] == "otp"
    assert len(events(app, "sign_in_code_asked")) == 1
    with app.app_context():
        assert db.session.scalars(select(BrowserSession.remembered)).all() == [True]
    again = Browser(app)
    again.http = browser.http
    ask(again)  # a known browser: no notice
    again.submit(code=code_in(mailbox))
    assert mailbox.subjects() == []


def test_it_is_off_by_default(app: Flask, user: User) -> None:
    app.extensions["sso.settings"] = replace(app.extensions["sso.settings"], mail_codes="off")
    browser = Browser(app)
    assert "by email" not in browser.open(f"{ORIGIN}{BASE}/sign-in").html
    assert browser.open(PAGE).status == 404


def test_a_code_of_another_browser(app: Flask, user: User, mailbox: Mailbox) -> None:
    """It was forwarded, or told on the phone: it does nothing elsewhere, and still works here."""
    owner, thief = Browser(app), Browser(app)
    ask(owner)
    code = code_in(mailbox)
    assert "code" not in thief.open(PAGE).fields
    ask(thief)
    mailbox.read()
    assert "requested in another browser" in thief.submit(code=code).html
    assert not is_signed_in(thief)
    owner.submit(code=code)
    assert is_signed_in(owner)


def test_a_mail_says_not_to_share_it(app: Flask, user: User, mailbox: Mailbox) -> None:
    page = ask(Browser(app))
    assert "Do not share it." in page.html
    (mail,) = mailbox.read()
    for kind in ("plain", "html"):
        text = " ".join(text_of(mail, kind).split())
        assert "only in the browser that requested it. Do not share it" in text
    assert "?token=" not in text_of(mail)


def test_codes_guessed(app: Flask, user: User, mailbox: Mailbox) -> None:
    """Five tries, whatever counts rates; then the right one is wrong, too."""
    browser = Browser(app)
    ask(browser)
    code = code_in(mailbox)
    for _ in range(mail_codes.TRIES):
        assert "The code is wrong" in browser.submit(code="00000000").html
        forget_limits(app)
    assert "The code is wrong" in browser.submit(code=code).html
    assert sessions(app) == 0
    failed = events(app, "sign_in_failed")
    assert {event["method"] for event in failed} == {"email_code"}
    assert len(failed) == mail_codes.TRIES + 1
    assert code not in str(failed)
    browser.submit(action="send")  # another one
    browser.submit(code=code_in(mailbox))
    assert is_signed_in(browser)


def test_the_last_try_counts(app: Flask, user: User, mailbox: Mailbox) -> None:
    browser = Browser(app)
    ask(browser)
    code = code_in(mailbox)
    for _ in range(mail_codes.TRIES - 1):
        browser.submit(code="00000000")
    browser.submit(code=code)
    assert is_signed_in(browser)


def test_codes_guessed_in_many_browsers(app: Flask, user: User, mailbox: Mailbox) -> None:
    """Guesses of one network at one account are slowed down, whichever code they are for."""
    statuses = []
    for _ in range(3):
        browser = Browser(app)
        ask(browser)
        statuses += [browser.submit(code="00000000").status for _ in range(mail_codes.TRIES)]
    assert statuses.count(429) >= 3
    assert sessions(app) == 0


def test_guesses_before_the_mail(app: Flask, user: User, mailbox: Mailbox) -> None:
    """Until the worker has written it, no code fits, whatever stands in the row."""
    browser = Browser(app)
    ask(browser)
    for typed in ("", "0", "00000000", "x" * 4000, "sha256:"):
        browser.submit(code=typed)
        forget_limits(app)
    assert sessions(app) == 0
    code = code_in_mail_or_none(mailbox)
    browser.submit(code=code or "00000000")
    assert sessions(app) == 0  # the tries are used up


def code_in_mail_or_none(mailbox: Mailbox) -> str | None:
    found = [CODE.search(text_of(mail)) for mail in mailbox.read()]
    return next((match[0] for match in found if match), None)


@pytest.mark.parametrize("typed", ["right", "wrong"])
def test_at_the_same_instant(  # with TEST_DATABASE=postgresql, too
    app: Flask, user: User, mailbox: Mailbox, typed: str
) -> None:
    """Two tabs send the code twice: one is signed in. Ten guesses at once: five are counted."""
    browser = Browser(app)
    page = ask(browser)
    code = code_in(mailbox) if typed == "right" else "00000000"
    cookies = dict(browser.http._cookies or {})
    forms = {"csrf_token": page.fields["csrf_token"], "code": code}

    def send() -> int:
        tab = app.test_client()
        assert tab._cookies is not None
        tab._cookies.update(cookies)
        return tab.post(f"{BASE}/sign-in/code", data=forms, base_url=ORIGIN).status_code

    statuses = at_once(8, send)
    assert statuses.count(303) == (typed == "right")
    assert sessions(app) == (typed == "right")
    with app.app_context():
        failures = db.session.scalar(select(MailToken.failures)) or 0
        assert failures <= mail_codes.TRIES


def test_only_digests_are_stored(app: Flask, user: User, mailbox: Mailbox) -> None:
    browser = Browser(app)
    ask(browser)
    code = code_in(mailbox)
    with app.app_context():
        rows = [
            str({key: value for key, value in vars(row).items() if key[0] != "_"})
            for model in (MailToken, Mail)
            for row in db.session.scalars(select(model))
        ]
    assert rows
    for plain in (code, code.replace("-", "")):
        assert not any(plain in row for row in rows)
        assert not any(plain in cookie.value for cookie in browser.http._cookies.values())  # type: ignore[union-attr]


@pytest.mark.parametrize(("seconds", "works"), [(599, True), (600, False), (601, False)])
def test_ten_minutes(
    app: Flask, user: User, mailbox: Mailbox, clock: Clock, seconds: int, works: bool
) -> None:
    browser = Browser(app)
    ask(browser)
    code = code_in(mailbox)
    clock.move(seconds=seconds)
    browser.submit(code=code)
    assert sessions(app) == works


@pytest.mark.parametrize(("seconds", "mailed"), [(3599, 1), (3600, 0)])
def test_a_mail_that_is_late(
    app: Flask, user: User, mailbox: Mailbox, clock: Clock, seconds: int, mailed: int
) -> None:
    """An hour after the question nobody sits at the page any more."""
    ask(Browser(app))
    clock.move(seconds=seconds)
    assert len(mailbox.read()) == mailed


def test_an_older_code(app: Flask, user: User, mailbox: Mailbox) -> None:
    browser = Browser(app)
    ask(browser)
    older = code_in(mailbox)
    browser.submit(action="send")
    newer = code_in(mailbox)
    browser.submit(code=older)
    assert sessions(app) == 0
    browser.submit(code=newer)
    assert sessions(app) == 1


def test_an_older_request_in_another_tab(app: Flask, user: User, mailbox: Mailbox) -> None:
    """Only the newest request of a browser gets a mail if both wait."""
    browser = Browser(app)
    ask(browser)
    browser.submit(action="send")
    assert len(mailbox.read()) == 1


def test_a_code_twice(app: Flask, user: User, mailbox: Mailbox) -> None:
    browser = Browser(app)
    ask(browser)
    code = code_in(mailbox)
    before = dict(browser.http._cookies or {})
    browser.submit(code=code)
    assert sessions(app) == 1
    copy = Browser(app)
    assert copy.http._cookies is not None
    copy.http._cookies.update(before)
    copy.open(PAGE)
    copy.submit(code=code)
    assert sessions(app) == 1


def new_password(app: Flask, user: User) -> None:
    app.test_cli_runner().invoke(
        args=["user", "set-password", user.email], input="some other long words\n" * 2
    )
    with app.app_context():
        db.session.get_one(User, user.id).password_hash = "changed"
        db.session.commit()


def run(*arguments: str) -> Callable[[Flask, User], None]:
    def change(app: Flask, user: User) -> None:
        result = app.test_cli_runner().invoke(args=[*arguments])
        assert result.exit_code == 0, result.output

    return change


def end(app: Flask, user: User) -> None:
    with app.app_context():
        db.session.get_one(User, user.id).ends_at = sso_clock.now()
        db.session.commit()


def add_factor(app: Flask, user: User) -> None:
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, smtp_url=None)
    browser = Browser(app)
    browser.sign_in()
    enrol_totp(browser)
    app.extensions["sso.settings"] = settings


CHANGES = {
    "a new password": new_password,
    "disabled": run("user", "disable", DANA),
    "at its end": end,
    "another address": run("user", "update", DANA, "--email", "erin@example.com"),
    "an administrator": run("user", "update", DANA, "--add-group", "sso-administrators"),
    "of the helpdesk": run("user", "update", DANA, "--add-group", "sso-helpdesk"),
    "of a custom role": run("user", "update", DANA, "--add-group", "auditors"),
    "a second factor": add_factor,
}


@pytest.fixture
def with_roles(app: Flask) -> None:
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, admin_roles="auditors=audit")


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_while_the_code_is_under_way(
    app: Flask, user: User, mailbox: Mailbox, with_roles: None, change: str
) -> None:
    browser = Browser(app)
    ask(browser)
    code = code_in(mailbox)
    CHANGES[change](app, user)
    before = sessions(app)
    assert "The code is wrong" in browser.submit(code=code).html
    assert sessions(app) == before


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "a new password"])
def test_those_who_get_no_code(
    app: Flask, user: User, mailbox: Mailbox, with_roles: None, change: str
) -> None:
    """Who needs more than one factor is told so, by mail alone; who has no account gets none."""
    CHANGES[change](app, user)
    mailbox.read()
    browser = Browser(app)
    ask(browser)
    subjects = [subject for _, subject in mailbox.subjects()]
    silent = change in ("disabled", "at its end", "another address")
    assert subjects == ([] if silent else ["How to sign in to 127.0.0.1:5000"])
    browser.submit(code="00000000")
    assert sessions(app) == (change == "a second factor")  # the one in which it was added


def test_a_person_of_a_directory(app: Flask, user: User, mailbox: Mailbox) -> None:
    app.extensions["sso.upstreams"] = Upstreams((DIRECTORY,))
    with app.app_context():
        dana = db.session.get_one(User, user.id)
        dana.password_hash = None
        db.session.add(
            Identity(user_id=dana.id, provider=DIRECTORY.id, issuer="ldap://x", subject="1")
        )
        db.session.commit()
    ask(Browser(app))
    assert mailbox.subjects() == [(DANA, "How to sign in to 127.0.0.1:5000")]


def test_someone_without_password_and_verified_address(app: Flask, mailbox: Mailbox) -> None:
    """As after a reset: the mailbox is the proof, and verifies the address."""
    erin = make_user(app, "erin@example.com", email_verified=False)
    with app.app_context():
        db.session.get_one(User, erin.id).password_hash = None
        db.session.commit()
    mailbox.read()
    browser = Browser(app)
    ask(browser, "erin@example.com")
    browser.submit(code=code_in(mailbox))
    assert is_signed_in(browser)
    with app.app_context():
        assert db.session.get_one(User, erin.id).email_verified
    assert len(events(app, "email_verified")) == 1


def test_an_account_that_a_stranger_made_before(app: Flask, mailbox: Mailbox) -> None:
    """With a password of the stranger's, at a server that confirmed no addresses: imported."""
    erin = make_user(app, "erin@example.com", email_verified=False)
    stranger, owner = Browser(app), Browser(app)
    stranger.sign_in(email="erin@example.com")
    ask(owner, "erin@example.com")
    mails = list(map(text_of, mailbox.read()))
    assert not any(map(CODE.search, mails))
    (link,) = [link for text in mails for link in re.findall(r"http\S+/new-password\?\S+", text)]
    owner.open(link)
    owner.submit(new_password="a quiet blue harbour")
    assert not is_signed_in(stranger)
    with app.app_context():
        assert db.session.get_one(User, erin.id).email_verified
    owner.open(f"{PAGE}?change=1")
    ask(owner, "erin@example.com")
    owner.submit(code=code_in(mailbox))
    assert is_signed_in(owner)


Watched = Callable[[], AbstractContextManager[Statements]]


def outcome(browser: Browser, statements: Watched, **form: str) -> tuple[Any, ...]:
    """All that a stranger can tell from an answer."""
    browser.history.clear()
    with statements() as run:
        page = browser.submit(**form)
    # Tokens of forms are random.
    shown = re.sub("<[^>]*>", "", page.html.partition("</main>")[0])
    answers = [
        (answer.status_code, [line.split("=")[0] for line in answer.headers.getlist("Set-Cookie")])
        for answer in browser.history
    ]
    return re.sub(r"\w+@example.com", "…", shown), answers, list(run), run.commits


def test_nobody_learns_who_has_an_account(
    app: Flask, user: User, mailbox: Mailbox, statements: Watched
) -> None:
    """The same page, cookies and statements, when a code is requested and when one is typed."""
    for name in ("admin", "gone", "two"):
        make_user(app, f"{name}@example.com")
    run("user", "update", "admin@example.com", "--add-group", "sso-administrators")(app, user)
    run("user", "disable", "gone@example.com")(app, user)
    asked, typed = [], []
    for name in ("dana", "admin", "gone", "two", "nobody"):
        email, browser = f"{name}@example.com", Browser(app)
        browser.open(PAGE)
        asked.append(outcome(browser, statements, email=email))
        mailbox.read()
        typed.append(outcome(browser, statements, code="00000000"))
    assert asked == [asked[0]] * len(asked)
    assert typed == [typed[0]] * len(typed)
    assert not any("FROM users" in statement for *_, run, _ in asked for statement in run)


def test_nobody_learns_it_by_waiting(
    app: Flask, user: User, mailbox: Mailbox, clock: Clock
) -> None:
    """The purge deletes a token that got a code before one that got none."""
    asked = {}
    for name in ("dana", "nobody"):
        asked[name] = Browser(app)
        ask(asked[name], f"{name}@example.com")
    mailbox.read()
    for seconds in (0, 24 * 3600 + 15 * 60, 20 * 60, 40 * 60):
        clock.move(seconds=seconds)
        with app.app_context():
            upkeep.purge()
        fields = [{*browser.open(PAGE).fields} for browser in asked.values()]
        assert fields[0] == fields[1], seconds


def test_an_application_that_requires_two_factors(app: Flask, user: User, mailbox: Mailbox) -> None:
    browser, client = Browser(app), make_client(app, require_mfa=True)
    page = browser.authorize(client)
    assert "sign-in/code" not in page.html
    assert browser.open(page.url.replace("/sign-in?", "/sign-in/code?")).path.endswith("/sign-in")
    # Signed in before by a code, one has to set a second factor up first.
    ask(Browser(app))
    other = Browser(app)
    mailbox.read()
    ask(other)
    other.submit(code=code_in(mailbox))
    assert other.authorize(client).path.endswith("/account/factors")


def test_the_first_factor_still_needs_its_own_code(
    app: Flask, user: User, mailbox: Mailbox
) -> None:
    browser = Browser(app)
    ask(browser)
    browser.submit(code=code_in(mailbox))
    assert browser.open(f"{BASE}/account/factors/totp").path.endswith("/factors/code")
    assert confirm_by_code(browser, mailbox).path.endswith("/account/factors")


def test_a_sign_in_again(
    app: Flask, client: RelyingParty, user: User, mailbox: Mailbox, clock: Clock
) -> None:
    """`prompt=login` is satisfied by a code that was typed for it, in the session that goes on."""
    browser = Browser(app)
    browser.approve(client)
    clock.move(seconds=60)
    page = browser.authorize(client, prompt="login")
    browser.open(page.url.replace("/sign-in?", "/sign-in/code?"))
    assert browser.page.fields["email"] == DANA
    mailbox.read()
    ask(browser)
    page = browser.submit(code=code_in(mailbox))
    assert page.code
    assert sessions(app) == 1
    claims = claims_of(client.exchange(page.code).get_json()["id_token"])
    assert claims["amr"] == ["otp"]


def test_an_address_of_a_provider_leads_there(
    app: Flask, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    corp = Upstream()
    monkeypatch.setattr(http_call, "call", Internet(corp).call)
    app.extensions["sso.upstreams"] = Upstreams((provider(domains=("example.com",)),))
    assert not ask(Browser(app)).is_at_server
    browser = Browser(app)
    browser.open(f"{PAGE}?local=1")
    assert "has an account" in ask(browser, "other@elsewhere.example").html


def test_a_planted_session_is_renewed(app: Flask, user: User, mailbox: Mailbox) -> None:
    browser = Browser(app)
    browser.sign_in()
    before = dict(browser.http._cookies or {})
    mailbox.read()
    ask(browser)
    browser.submit(code=code_in(mailbox))
    copy = Browser(app)
    assert copy.http._cookies is not None
    copy.http._cookies.update(before)
    assert not is_signed_in(copy)
    assert is_signed_in(browser)


def test_a_mailbox_is_not_filled(app: Flask, user: User, mailbox: Mailbox) -> None:
    for _ in range(8):
        assert "has an account" in ask(Browser(app)).html
    assert len(mailbox.read()) == 5


def test_requests_of_one_network(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    route = next(
        r for r in app.extensions["sso.routes"].by_path.values() if r.name == "sign_in_code"
    )
    tight = replace(route, flooding=limiting.Flooding("sign_in_code_request", None, 2))
    monkeypatch.setitem(app.extensions["sso.routes"].by_path, route.path.format(base=BASE), tight)
    statuses = [ask(Browser(app), f"a{number}@example.com").status for number in range(3)]
    assert statuses == [200, 200, 429]
    assert len(events(app, "sign_in_code_request_limited")) == 1


@pytest.mark.parametrize(
    "email", ["", "no address", "a\0b@example.com", "x" * 400 + "@example.com"]
)
def test_no_address(app: Flask, email: str) -> None:
    page = ask(Browser(app), email)
    assert page.status == 200
    assert 'role="alert"' in page.html
    with app.app_context():
        assert db.session.scalar(select(func.count()).select_from(MailToken)) == 0


def test_a_code_after_the_purge(app: Flask, user: User, mailbox: Mailbox, clock: Clock) -> None:
    browser = Browser(app)
    ask(browser)
    code = code_in(mailbox)
    for delay in (timedelta(minutes=11), timedelta(days=2)):
        clock.move(seconds=int(delay.total_seconds()))
        with app.app_context():
            upkeep.purge()
        browser.open(PAGE)
        if "code" in browser.page.fields:
            browser.submit(code=code)
        forget_limits(app)
        assert sessions(app) == 0
    assert "email" in browser.page.fields  # asks for the address once more


@pytest.mark.parametrize(
    ("mail_codes", "smtp_url", "statuses"),
    [
        ("on", None, [Status.WARNING]),
        ("off", None, [Status.SKIPPED]),
        ("on", "smtp://127.0.0.1:25", []),
    ],
)
def test_codes_that_nobody_mails_are_shown(
    app: Flask, mail_codes: str, smtp_url: str | None, statuses: list[Status]
) -> None:
    before = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(before, mail_codes=mail_codes, smtp_url=smtp_url)
    with app.app_context():
        assert [row.status for row in components.no_mail_server()] == statuses
    app.extensions["sso.settings"] = before
