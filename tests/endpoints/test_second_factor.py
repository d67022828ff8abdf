"""The second factor: after a password, to step a session up, and what tokens say of it."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from sso.extensions import db
from sso.mfa import passkeys, policy
from sso.models import BrowserSession, Passkey, User
from sso.ratelimit import limiting
from sso.store import users
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty, claims_of
from tests.support.authenticator import Authenticator, options_of
from tests.support.events import events
from tests.support.factories import make_client
from tests.support.second_factors import (
    FACTORS,
    code_of,
    enrol_passkey,
    enrol_totp,
    is_signed_in,
    scan,
    sign_in_by_passkey,
)

SIGN_IN = f"{ORIGIN}{BASE}/sign-in"
ESSENTIAL = '{"id_token": {"acr": {"essential": true, "value": "2"}}}'


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    """Passkeys need a host with a name."""
    return make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}")


@pytest.fixture
def elsewhere(app: Flask) -> Browser:
    """Another browser."""
    return Browser(app)


@pytest.fixture
def secret(app: Flask, clock: Clock, user: User) -> str:
    """The user has an authenticator app; the code that proved it is a minute old."""
    browser = Browser(app)
    browser.sign_in()
    found, _ = enrol_totp(browser)
    clock.move(seconds=60)
    return found


def identity(client: RelyingParty, page: Page) -> dict[str, Any]:
    return claims_of(client.exchange(page.code).get_json()["id_token"])


def test_a_password_is_followed_by_a_code(browser: Browser, secret: str) -> None:
    page = browser.sign_in()
    assert page.path.endswith("/second-factor")
    page = browser.submit(code="000000")
    assert 'role="alert"' in page.html
    assert browser.submit(code=code_of(secret)).path.endswith("/account")


@pytest.mark.parametrize(("steps", "accepted"), [(-2, False), (-1, True), (1, True), (2, False)])
def test_the_window_is_one_step(
    browser: Browser, secret: str, clock: Clock, steps: int, accepted: bool
) -> None:
    clock.move(minutes=5)
    browser.sign_in()
    code = code_of(secret, steps)
    assert browser.submit(code=f"{code[:3]} {code[3:]}").path.endswith("/account") is accepted


def test_on_the_way_to_an_application(browser: Browser, client: RelyingParty, secret: str) -> None:
    browser.authorize(client, acr_values="2")
    browser.sign_in()
    browser.submit(code=code_of(secret))
    found = identity(client, browser.allow())
    assert found["acr"] == "2"
    assert found["amr"] == ["pwd", "otp", "mfa"]


def test_cancelling_goes_back_to_the_application(
    browser: Browser, client: RelyingParty, secret: str
) -> None:
    browser.authorize(client)
    browser.sign_in()
    assert browser.submit(decision="cancel").error == "access_denied"
    assert not is_signed_in(browser)


def test_half_way_ends_after_ten_minutes(browser: Browser, secret: str, clock: Clock) -> None:
    browser.sign_in()
    clock.move(seconds=601)
    assert browser.submit(code=code_of(secret)).path.endswith("/sign-in")


def test_a_new_password_ends_what_the_old_one_began(
    app: Flask, browser: Browser, secret: str, user: User
) -> None:
    browser.sign_in()
    arguments = ["user", "set-password", user.email, "--password-stdin"]
    run = app.test_cli_runner().invoke(args=arguments, input="quite another password\n")
    assert run.exit_code == 0, run.stderr
    assert browser.submit(code=code_of(secret)).path.endswith("/sign-in")


@pytest.mark.parametrize("command", [["delete", "--yes"], ["disable"]])
def test_so_does_the_end_of_the_account(
    app: Flask, browser: Browser, secret: str, user: User, command: list[str]
) -> None:
    browser.sign_in()
    name, *more = command
    run = app.test_cli_runner().invoke(args=["user", name, user.email, *more])
    assert run.exit_code == 0, run.stderr
    page = browser.submit(code=code_of(secret))
    assert (page.status, page.path) == (200, f"{BASE}/sign-in")


def _flask(app: Flask, *arguments: str) -> None:
    run = app.test_cli_runner().invoke(args=arguments)
    assert run.exit_code == 0, run.stderr


Cause = Callable[[Flask, Browser, User, Clock], None]


def _from_the_account(action: str) -> Cause:
    def act(app: Flask, signed_in: Browser, user: User, clock: Clock) -> None:
        signed_in.open(f"{ORIGIN}{BASE}/account")
        assert "problem" not in signed_in.submit(action=action).url

    return act


def _by_operator(*commands: str) -> Cause:
    def act(app: Flask, signed_in: Browser, user: User, clock: Clock) -> None:
        for command in commands:
            name, *options = command.split()
            _flask(app, "user", name, user.email, *options)

    return act


def _sign_out(app: Flask, signed_in: Browser, user: User, clock: Clock) -> None:
    signed_in.open(f"{ORIGIN}{BASE}/sign-out")
    signed_in.submit(decision="sign_out")


def _end_and_go_on(app: Flask, signed_in: Browser, user: User, clock: Clock) -> None:
    """The account ends, and gets another end before the worker has seen it."""
    for days in (0, 1):
        end = clock.time + timedelta(days=days, seconds=10)
        _flask(app, "user", "update", user.email, "--ends-at", end.isoformat())
        clock.move(seconds=10)


ENDS_WHAT_WAITS: dict[str, tuple[Cause, bool]] = {
    "nothing": (_by_operator(), False),
    "another name": (_by_operator("update --name D"), False),
    "sign-out elsewhere": (_sign_out, False),
    "sign-out everywhere": (_from_the_account("end_all_sessions"), True),
    "sign-out of all others": (_from_the_account("end_other_sessions"), True),
    "sign-out by an operator": (_by_operator("sign-out"), True),
    "disabled and enabled": (_by_operator("disable", "enable"), True),
    "ended and prolonged": (_end_and_go_on, True),
}


@pytest.mark.parametrize("cause", ENDS_WHAT_WAITS)
def test_what_ends_all_sign_ins_ends_those_that_wait(
    app: Flask, browser: Browser, elsewhere: Browser, secret: str, clock: Clock, user: User,
    cause: str,
) -> None:  # fmt: skip
    elsewhere.sign_in()
    elsewhere.submit(code=code_of(secret))
    clock.move(seconds=60)
    assert browser.sign_in().path.endswith("/second-factor")
    act, ends = ENDS_WHAT_WAITS[cause]
    act(app, elsewhere, user, clock)
    page = browser.submit(code=code_of(secret))
    assert page.path == f"{BASE}/{'sign-in' if ends else 'account'}"
    assert is_signed_in(browser) is not ends


def test_what_waits_ends_between_its_check_and_the_lock(app: Flask, user: User) -> None:
    with app.app_context():
        loaded = users.find(user.id)
        assert loaded
        assert policy.lock_pending(loaded)
        statement = update(User).where(User.id == user.id).values(device_version=7)
        db.session.execute(statement, execution_options={"synchronize_session": False})
        assert not policy.lock_pending(loaded)


def test_keep_me_signed_in_survives_the_second_page(browser: Browser, secret: str) -> None:
    browser.open(SIGN_IN)
    browser.submit(email="dana@example.com", password="correct horse battery", remember="1")
    browser.submit(code=code_of(secret))
    assert "Expires=" in browser.history[-2].headers["Set-Cookie"]


def test_a_passkey_alone(browser: Browser, elsewhere: Browser, user: User) -> None:
    browser.sign_in()
    authenticator = Authenticator()
    assert "recovery codes" in enrol_passkey(browser, authenticator).html
    elsewhere.open(SIGN_IN)
    page = sign_in_by_passkey(elsewhere, authenticator)
    assert page.path.endswith("/account")
    assert user.email in page.html


@pytest.mark.parametrize(("synced", "kind"), [(False, "hwk"), (True, "swk")])
def test_what_a_passkey_alone_proves(
    browser: Browser, elsewhere: Browser, client: RelyingParty, user: User, synced: bool, kind: str
) -> None:
    browser.sign_in()
    authenticator = Authenticator(synced=synced)
    enrol_passkey(browser, authenticator)
    elsewhere.authorize(client, claims=ESSENTIAL, max_age="3600")
    sign_in_by_passkey(elsewhere, authenticator)
    found = identity(client, elsewhere.allow())
    assert (found["acr"], found["amr"]) == ("2", [kind, "user", "mfa"])


def test_a_passkey_after_the_password(
    browser: Browser, elsewhere: Browser, client: RelyingParty, user: User
) -> None:
    """A security key without a PIN: not enough alone, enough after a password."""
    browser.sign_in()
    authenticator = Authenticator()
    enrol_passkey(browser, authenticator, verified=False)
    elsewhere.authorize(client, acr_values="2 1")
    assert sign_in_by_passkey(elsewhere, authenticator, verified=False).path.endswith("/sign-in")
    page = elsewhere.sign_in()
    answer = authenticator.get(options_of(page), verified=False, handle="")
    elsewhere.submit(credential=answer)
    found = identity(client, elsewhere.allow())
    assert (found["acr"], found["amr"]) == ("2", ["pwd", "hwk", "user", "mfa"])


def test_a_transport_that_nobody_here_knows(app: Flask, user: User) -> None:
    """Another version may have stored it."""
    key = Passkey(credential_id="eHg", transports="usb telepathy")
    with app.test_request_context():
        options = json.loads(passkeys.ask_as_second(user, [key]).options)
    (allowed,) = options["allowCredentials"]
    assert (allowed["id"], allowed["transports"]) == ("eHg", ["usb"])


def test_a_recovery_code(app: Flask, browser: Browser, elsewhere: Browser, user: User) -> None:
    browser.sign_in()
    _, codes = enrol_totp(browser)
    assert len(set(codes)) == 10
    elsewhere.sign_in()
    assert elsewhere.submit(recovery_code=f" {codes[0].upper()}").path.endswith("/account")
    assert "Codes left: 9" in elsewhere.open(FACTORS).html


@pytest.fixture
def signed_in_before(app: Flask, clock: Clock, user: User) -> tuple[Browser, str]:
    """A session with one factor, of a user who has an app by now (as by `flask restore`)."""
    first = Browser(app)
    first.sign_in()
    secret, _ = enrol_totp(first)
    with app.app_context():
        for session in db.session.query(BrowserSession):
            session.amr, session.acr = "pwd", "1"
        db.session.commit()
    clock.move(seconds=60)
    return first, secret


def test_acr_values_step_a_session_up(
    signed_in_before: tuple[Browser, str], client: RelyingParty
) -> None:
    browser, secret = signed_in_before
    before = identity(client, browser.approve(client, acr_values="1 2"))
    assert before["acr"] == "1"
    page = browser.authorize(client, acr_values="2")
    assert page.path.endswith("/second-factor")
    after = identity(client, browser.submit(code=code_of(secret)))
    assert (after["acr"], after["amr"]) == ("2", ["pwd", "otp", "mfa"])
    assert (after["auth_time"], after["sid"]) == (before["auth_time"], before["sid"])


def test_silently(signed_in_before: tuple[Browser, str], client: RelyingParty) -> None:
    browser, _ = signed_in_before
    browser.approve(client)
    voluntary = browser.authorize(client, prompt="none", acr_values="2")
    assert identity(client, voluntary)["acr"] == "1"
    essential = browser.authorize(client, prompt="none", claims=ESSENTIAL)
    assert essential.error == "interaction_required"


def test_a_voluntary_acr_without_a_factor(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    assert identity(client, browser.approve(client, acr_values="2"))["acr"] == "1"


@pytest.mark.parametrize("by", ["client", "claims"])
def test_who_has_no_factor_sets_one_up_first(
    app: Flask, browser: Browser, user: User, clock: Clock, by: str
) -> None:
    client = make_client(app, require_mfa=by == "client")
    asked = {"claims": ESSENTIAL} if by == "claims" else {"acr_values": "1"}
    browser.authorize(client, **asked)
    page = browser.sign_in()
    assert page.path.endswith("/account/factors")
    assert "Books" in page.html
    totp = page.url.replace("/account/factors", "/account/factors/totp")
    page = browser.open(totp)
    page = browser.submit(code=code_of(scan(page)))
    onward = page.html.split('class="button primary" href="')[1].split('"')[0]
    browser.open(onward)
    found = identity(client, browser.allow())
    assert (found["acr"], found["amr"]) == ("2", ["pwd", "otp", "mfa"])


def test_who_does_not_want_one_goes_back(app: Flask, browser: Browser, user: User) -> None:
    client = make_client(app, require_mfa=True)
    browser.authorize(client)
    browser.sign_in()
    assert browser.submit(action="cancel").error == "access_denied"
    assert browser.authorize(client, prompt="none").error == "interaction_required"


def test_setting_up_late_asks_who_is_there_and_leads_on(
    app: Flask, browser: Browser, user: User, clock: Clock
) -> None:
    client = make_client(app, require_mfa=True)
    browser.sign_in()
    clock.move(minutes=6)
    page = browser.authorize(client)
    assert page.path.endswith("/account/factors")
    page = browser.open(page.url.replace("/account/factors", "/account/factors/totp"))
    assert page.path.endswith("/sign-in")
    page = browser.sign_in()
    assert page.path.endswith("/account/factors")
    page = browser.open(page.url.replace("/account/factors", "/account/factors/totp"))
    browser.submit(code=code_of(scan(page)))
    assert ("decision", "allow") in browser.authorize(client).buttons


def test_an_essential_acr_1_is_met_by_two(
    browser: Browser, client: RelyingParty, secret: str
) -> None:
    one = ESSENTIAL.replace('"2"', '"1"')
    browser.authorize(client, claims=one)
    browser.sign_in()
    browser.submit(code=code_of(secret))
    assert identity(client, browser.allow())["acr"] == "1"


def test_a_recovery_code_that_is_refused_after_all(
    app: Flask, browser: Browser, elsewhere: Browser, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other attempts used up what is free: the code stays unused, and nothing is recorded."""
    browser.sign_in()
    _, codes = enrol_totp(browser)
    elsewhere.sign_in()

    def refuse(_: limiting.Attempt) -> None:
        raise limiting.TooManyAttempts(7)

    with monkeypatch.context() as patch:
        patch.setattr(limiting.Attempt, "passed", refuse)
        assert elsewhere.submit(recovery_code=codes[0]).status == 429
    assert events(app, "recovery_code_used") == []
    elsewhere.open(f"{ORIGIN}{BASE}/second-factor")
    assert elsewhere.submit(recovery_code=codes[0]).path.endswith("/account")
    assert len(events(app, "recovery_code_used")) == 1
