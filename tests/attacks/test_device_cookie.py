"""The attacker has a copy of the cookie by which a browser is known to an account.

It suppresses the mail about a new browser and has tries of its own. It ends at what a person does
who fears a thief: a new password, sign-out everywhere, a word with the operator.
"""

from collections.abc import Callable

import pytest
from argon2 import PasswordHasher
from flask import Flask

from sso.crypto import passwords
from sso.models import User
from sso.ratelimit import limiting
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox
from tests.support.second_factors import code_of, confirm_by_code, enrol_totp

pytestmark = pytest.mark.slow

ACCOUNT, SIGN_IN = f"{ORIGIN}{BASE}/account", f"{ORIGIN}{BASE}/sign-in"
NEW = "another long password"
WRONG = "wrong wrong wrong"
# After the free ones a last one is let in, and is followed by the first pause.
COMMON, OWN = limiting.SIGN_IN.pair.free + 1, 20 + 1
NEW_BROWSER = "New sign-in to your account"


def at(app: Flask, address: str, cookie: str | None = None) -> Browser:
    browser = Browser(app)
    browser.http.environ_base["REMOTE_ADDR"] = address
    if cookie:
        browser.http.set_cookie("sso_known", cookie, domain="127.0.0.1", path=BASE)
    return browser


def device_cookie(browser: Browser) -> str | None:
    found = browser.http.get_cookie("sso_known", "127.0.0.1", BASE)
    return found.value if found else None


def sign_in(browser: Browser, password: str = PASSWORD, email: str = "dana@example.com") -> Page:
    browser.open(SIGN_IN)
    return browser.submit(email=email, password=password)


def tries(browser: Browser) -> int:
    """How many wrong passwords are answered before there is a pause."""
    count = 0
    while sign_in(browser, WRONG).status == 200:
        count += 1
    return count


def sign_out(browser: Browser) -> None:
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")


def account(browser: Browser, **form: str) -> None:
    browser.open(ACCOUNT)
    browser.submit(**form)


def flask(app: Flask, *arguments: str, stdin: str | None = None) -> None:
    result = app.test_cli_runner().invoke(args=arguments, input=stdin)
    assert result.exit_code == 0, result.stderr


def change_password(browser: Browser, *_: object) -> None:
    account(browser, action="change_password", old_password=PASSWORD, new_password=NEW)


def reset_password(browser: Browser, app: Flask, mailbox: Mailbox) -> None:
    elsewhere = at(app, "192.0.2.99")
    elsewhere.open(f"{ORIGIN}{BASE}/forgotten-password")
    elsewhere.submit(email="dana@example.com")
    elsewhere.open(mailbox.link("dana@example.com"))
    elsewhere.submit(new_password=NEW)


def by_operator(*arguments: str, stdin: str | None = None) -> Callable[..., None]:
    def act(browser: Browser, app: Flask, mailbox: Mailbox) -> None:
        flask(app, "user", *arguments, stdin=stdin)

    return act


Cause = tuple[Callable[..., None], str]  # and the password that counts afterwards
DANA = "dana@example.com"
CAUSES: dict[str, Cause] = {
    "password change": (change_password, NEW),
    "password reset": (reset_password, NEW),
    "password by an operator": (
        by_operator("set-password", DANA, "--password-stdin", stdin=NEW + "\n"),
        NEW,
    ),
    "sign-out everywhere": (lambda b, *_: account(b, action="end_all_sessions"), PASSWORD),
    "end of the other sessions": (lambda b, *_: account(b, action="end_other_sessions"), PASSWORD),
    "sign-out by an operator": (by_operator("sign-out", DANA), PASSWORD),
    "factors reset by an operator": (by_operator("reset-factors", DANA), PASSWORD),
}
NO_CAUSES: dict[str, Cause] = {
    "nothing": (lambda *_: None, PASSWORD),
    "sign-out here": (lambda b, *_: sign_out(b), PASSWORD),
    "a wrong password change": (
        lambda b, *_: account(b, action="change_password", old_password="x", new_password=NEW),
        PASSWORD,
    ),
    "another name": (by_operator("update", DANA, "--name", "Dana Other"), PASSWORD),
    "another user's password": (
        by_operator("set-password", "erin@example.com", "--password-stdin", stdin=NEW + "\n"),
        PASSWORD,
    ),
}


@pytest.fixture
def own(app: Flask, user: User, mailbox: Mailbox) -> Browser:
    """The person's browser, which is known and will be remembered."""
    make_user(app, "erin@example.com", name="Erin")
    browser = at(app, "192.0.2.7")
    browser.open(SIGN_IN)
    browser.submit(email=user.email, password=PASSWORD, remember="y")
    assert [subject for _, subject in mailbox.subjects()] == [NEW_BROWSER]
    return browser


@pytest.mark.parametrize("cause", [*CAUSES, *NO_CAUSES])
def test_the_thief_is_seen(app: Flask, own: Browser, mailbox: Mailbox, cause: str) -> None:
    stolen = device_cookie(own)
    act, password = (CAUSES | NO_CAUSES)[cause]
    act(own, app, mailbox)
    mailbox.read()
    thief = at(app, "203.0.113.9", stolen)
    assert sign_in(thief, password).path.endswith("/account")
    told = [subject for _, subject in mailbox.subjects()]
    assert told == ([NEW_BROWSER] if cause in CAUSES else [])


@pytest.mark.parametrize("cause", [*CAUSES, "nothing", "another name"])
def test_the_thief_has_no_tries_of_its_own(
    app: Flask, own: Browser, mailbox: Mailbox, cause: str
) -> None:
    stolen = device_cookie(own)
    act, _ = (CAUSES | NO_CAUSES)[cause]
    act(own, app, mailbox)
    thief = at(app, "203.0.113.9", stolen)
    assert tries(thief) == (COMMON if cause in CAUSES else OWN)
    # The tries were counted for all from this network, or for this browser alone.
    stranger = at(app, "203.0.113.9")
    assert sign_in(stranger, WRONG).status == (429 if cause in CAUSES else 200)


@pytest.mark.parametrize(
    "cause", ["password change", "end of the other sessions", "sign-out everywhere"]
)
def test_the_browser_that_goes_on_stays_known(
    app: Flask, own: Browser, mailbox: Mailbox, cause: str
) -> None:
    act, password = CAUSES[cause]
    act(own, app, mailbox)
    sign_out(own)
    mailbox.read()
    assert sign_in(own, password).path.endswith("/account")
    assert mailbox.read() == []


def test_the_browser_in_which_the_password_was_reset_is_known(
    app: Flask, own: Browser, mailbox: Mailbox
) -> None:
    own.open(f"{ORIGIN}{BASE}/forgotten-password")
    own.submit(email=DANA)
    own.open(mailbox.link(DANA))
    own.submit(new_password=NEW)
    mailbox.read()
    assert sign_in(own, NEW).path.endswith("/account")
    assert mailbox.read() == []


@pytest.mark.parametrize("known", [True, False])
def test_who_has_factors_is_not_shut_out_after_a_reset(
    app: Flask, own: Browser, mailbox: Mailbox, clock: Clock, known: bool
) -> None:
    """Strangers hold the pause of the account, from everywhere."""
    confirm_by_code(own, mailbox)
    secret, _ = enrol_totp(own)
    mailbox.read()
    browser = own if known else at(app, "192.0.2.8")
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email=DANA)
    browser.open(mailbox.link(DANA))
    browser.submit(new_password=NEW)
    for number in range(limiting.SIGN_IN.account.free // 5 + 1):  # type: ignore[union-attr]
        stranger = at(app, f"203.0.113.{number}")
        for _ in range(5):
            sign_in(stranger, WRONG)
    assert sign_in(at(app, "203.0.113.99"), WRONG).status == 429
    mailbox.read()
    assert sign_in(browser, NEW).path.endswith("/second-factor")
    clock.move(minutes=2)
    assert browser.submit(code=code_of(secret)).path.endswith("/account")
    told = [subject for _, subject in mailbox.subjects()]
    assert told == ([] if known else [NEW_BROWSER])
    sign_out(browser)


def test_who_has_the_mailbox_is_known_at_the_password_alone(
    app: Flask, own: Browser, mailbox: Mailbox, clock: Clock
) -> None:
    confirm_by_code(own, mailbox)
    enrol_totp(own)
    mailbox.read()
    thief = at(app, "203.0.113.9")
    thief.open(f"{ORIGIN}{BASE}/forgotten-password")
    thief.submit(email=DANA)
    thief.open(mailbox.link(DANA))
    thief.submit(new_password=NEW)
    mailbox.read()
    assert sign_in(thief, NEW).path.endswith("/second-factor")
    clock.move(minutes=11)
    told = [subject for _, subject in mailbox.subjects()]
    assert told == ["Someone entered your password but did not finish signing in"]
    sign_in(thief, NEW)
    guesses = 0
    while thief.submit(code="000000").status == 200:
        guesses += 1
    assert guesses == limiting.SECOND_FACTOR.pair.free + 1  # not a count of its own


def test_the_first_second_factor(app: Flask, own: Browser, mailbox: Mailbox) -> None:
    """Anyone who has the password and a copy must not have tries of their own at the codes."""
    stolen = device_cookie(own)
    confirm_by_code(own, mailbox)
    enrol_totp(own)
    assert device_cookie(own) != stolen
    assert tries(at(app, "203.0.113.9", stolen)) == COMMON
    assert tries(at(app, "203.0.113.10", device_cookie(own))) == OWN


@pytest.mark.parametrize("remember", [True, False])
@pytest.mark.parametrize("where", ["sign-out", "oauth2/end-session"])
def test_a_browser_that_was_not_to_be_remembered(
    app: Flask, user: User, mailbox: Mailbox, remember: bool, where: str
) -> None:
    """In a library: anyone who comes next is a stranger."""
    browser = at(app, "192.0.2.7")
    browser.open(SIGN_IN)
    browser.submit(email=user.email, password=PASSWORD, **({"remember": "y"} if remember else {}))
    browser.open(f"{ORIGIN}{BASE}/{where}")
    assert device_cookie(browser)
    browser.submit(decision="sign_out")
    assert (device_cookie(browser) is not None) is remember
    mailbox.read()
    sign_in(browser)
    assert len(mailbox.read()) == (0 if remember else 1)


def test_others_stay_known_where_one_is_forgotten(
    app: Flask, own: Browser, mailbox: Mailbox
) -> None:
    sign_out(own)
    sign_in(own, email="erin@example.com")
    sign_out(own)
    mailbox.read()
    sign_in(own)
    assert mailbox.read() == []
    sign_in(own, email="erin@example.com")
    assert [to for to, _ in mailbox.subjects()] == ["erin@example.com"]


def test_a_mere_rehash_forgets_nothing(
    app: Flask, own: Browser, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    stolen = device_cookie(own)
    stronger = PasswordHasher(time_cost=2, memory_cost=16, parallelism=1)
    monkeypatch.setattr(passwords, "hasher", stronger)
    sign_in(at(app, "203.0.113.8", stolen))
    sign_in(at(app, "203.0.113.9", stolen))
    assert mailbox.read() == []


def test_the_limited_learn_nothing_from_a_void_cookie(
    app: Flask, own: Browser, mailbox: Mailbox
) -> None:
    """A void cookie and none: the same answers, whether the account is there or not."""
    stolen = device_cookie(own)
    flask(app, "user", "sign-out", DANA)
    pages = [
        [sign_in(browser, WRONG).status for _ in range(8)]
        for browser in (at(app, "203.0.113.1", stolen), at(app, "203.0.113.2"))
    ]
    assert pages[0] == pages[1]
    flask(app, "user", "delete", DANA, "--yes")
    gone = at(app, "203.0.113.3", stolen)
    assert [sign_in(gone, WRONG).status for _ in range(8)] == pages[1]
