"""The account's page of second factors: adding, naming, removing."""

import json
from collections.abc import Callable

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from sso.extensions import db
from sso.models import Mail, RecoveryCode, TotpSecret, User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.authenticator import Authenticator, options_of
from tests.support.events import events
from tests.support.factories import PASSWORD
from tests.support.second_factors import (
    FACTORS,
    code_of,
    codes_of,
    enrol_passkey,
    enrol_totp,
    is_signed_in,
    remove_passkey,
    scan,
    sign_in_by_passkey,
)


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}")


@pytest.fixture
def signed_in(browser: Browser, user: User) -> Browser:
    browser.sign_in()
    return browser


def flask(app: Flask, *arguments: str) -> str:
    result = app.test_cli_runner().invoke(args=arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def count(app: Flask, table: type) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(table)) or 0


def test_nobody_sees_it_without_signing_in(browser: Browser, user: User) -> None:
    for path in (FACTORS, f"{FACTORS}/totp"):
        assert browser.open(path).path.endswith("/sign-in")
        assert browser.sign_in().path.endswith("/account/factors")
        browser.open(f"{ORIGIN}{BASE}/sign-out")
        browser.submit(decision="sign_out")


def test_the_first_factor_brings_recovery_codes(signed_in: Browser) -> None:
    assert len(codes_of(enrol_passkey(signed_in, Authenticator()))) == 10
    page = enrol_passkey(signed_in, Authenticator())
    assert (codes_of(page), page.path) == ([], f"{BASE}/account/factors")
    assert "Codes left: 10" in page.html


def test_a_wrong_code_keeps_the_secret(signed_in: Browser) -> None:
    secret = scan(signed_in.open(f"{FACTORS}/totp"))
    page = signed_in.submit(code="12")
    assert 'role="alert"' in page.html
    assert scan(page) == secret
    assert len(codes_of(signed_in.submit(code=code_of(secret)))) == 10


def test_a_secret_is_taken_in_its_own_session_alone(
    app: Flask, signed_in: Browser, user: User
) -> None:
    """A secret that somebody else knows, posted into the victim's session."""
    page = signed_in.open(f"{FACTORS}/totp")
    victim = Browser(app)
    victim.sign_in()
    victim.open(f"{FACTORS}/totp")
    victim.submit(setup=page.fields["setup"], code=code_of(scan(page)))
    assert count(app, TotpSecret) == 0


def test_there_is_one_app(app: Flask, signed_in: Browser) -> None:
    page = signed_in.open(f"{FACTORS}/totp")
    enrol_totp(signed_in)
    signed_in.page = page
    assert signed_in.submit(code=code_of(scan(page))).path.endswith("/account/factors")
    assert signed_in.open(f"{FACTORS}/totp").path.endswith("/account/factors")
    assert count(app, TotpSecret) == 1


@pytest.mark.parametrize(
    ("name", "shown"),
    [("<b>&", "&lt;b&gt;&amp;"), ("x" * 99, "x" * 60), (" a\u202eb\n", "ab"), (" ", None)],
)
def test_names_of_passkeys(signed_in: Browser, name: str, shown: str | None) -> None:
    answer = Authenticator().create(options_of(signed_in.open(FACTORS)))
    page = signed_in.submit(action="add_passkey", name=name, credential=answer)
    if shown is None:
        assert 'role="alert"' in page.html
        return
    assert f"<span>{shown}</span>" in signed_in.open(FACTORS).html


def test_removing_the_last_factor_takes_the_codes_too(app: Flask, signed_in: Browser) -> None:
    enrol_totp(signed_in)
    enrol_passkey(signed_in, Authenticator())
    signed_in.open(FACTORS)
    signed_in.submit(action="remove_totp")
    assert count(app, RecoveryCode) == 10
    remove_passkey(signed_in)
    assert count(app, RecoveryCode) == 0
    other = Browser(app)
    assert other.sign_in().path.endswith("/account")
    assert "alert" in signed_in.submit(action="new_codes").html


def test_the_only_way_to_sign_in_stays(app: Flask, signed_in: Browser) -> None:
    key = Authenticator()
    enrol_passkey(signed_in, key)
    with app.app_context():
        db.session.execute(update(User).values(password_hash=None))
        db.session.commit()
    assert "only way to sign in" in remove_passkey(signed_in).html
    other = Browser(app)
    other.open(f"{ORIGIN}{BASE}/sign-in")
    assert sign_in_by_passkey(other, key).path.endswith("/account")


def test_a_fresh_sign_in_is_asked_for(clock: Clock, signed_in: Browser) -> None:
    """And once it was made, the page is there again."""
    secret, _ = enrol_totp(signed_in)
    clock.move(minutes=6)
    page = signed_in.open(FACTORS)
    assert "Confirm it's you" in page.html
    assert "add_passkey" not in page.html
    signed_in.open(f"{ORIGIN}{BASE}/sign-in?back=factors")
    assert signed_in.submit(password=PASSWORD).path.endswith("/second-factor")
    page = signed_in.submit(code=code_of(secret))
    assert page.path.endswith("/account/factors")
    assert "add_passkey" in page.html


def test_a_number_for_an_address(make_app: Callable[..., Flask], user: User) -> None:
    """Browsers refuse passkeys there, so they are not offered."""
    browser = Browser(make_app())
    assert "data-passkey" not in browser.open(f"{ORIGIN}{BASE}/sign-in").html
    browser.sign_in()
    page = browser.open(FACTORS)
    assert "data-passkey" not in page.html
    assert "script-src" not in page.headers["Content-Security-Policy"]
    assert "this server is reached by its IP address" in page.html


def test_scripts_run_where_passkeys_are(signed_in: Browser) -> None:
    policy = signed_in.open(FACTORS).headers["Content-Security-Policy"]
    assert "script-src 'self'; " in policy
    assert "unsafe" not in policy
    totp = signed_in.open(f"{FACTORS}/totp")
    assert "script-src" not in totp.headers["Content-Security-Policy"]
    assert "<svg" in totp.html
    assert "style=" not in totp.html


def test_the_commands(app: Flask, signed_in: Browser, user: User) -> None:
    enrol_totp(signed_in)
    enrol_passkey(signed_in, Authenticator())
    shown = flask(app, "user", "factors", user.email)
    assert "my laptop" in shown
    found = json.loads(flask(app, "user", "factors", str(user.id), "--json"))
    assert [one["kind"] for one in found["factors"]] == ["passkey", "totp"]
    assert found["recovery_codes"] == 10
    done = json.loads(flask(app, "user", "reset-factors", user.email, "--json"))
    assert done["factors_removed"] == 2
    assert "second factors removed: 0." in flask(app, "user", "reset-factors", user.email)
    assert Browser(app).sign_in().path.endswith("/account")
    assert not is_signed_in(signed_in)  # it may be the person who took the factors in


def test_registering_a_client_that_requires_it(app: Flask) -> None:
    options = ("--name", "Vault", "--redirect-uri", "https://vault.example/cb")
    made = json.loads(flask(app, "client", "create", *options, "--require-mfa", "--json"))
    assert made["require_mfa"] is True
    update = ("client", "update", made["client_id"], "--json")
    assert json.loads(flask(app, *update, "--no-require-mfa"))["require_mfa"] is False
    assert json.loads(flask(app, *update, "--require-mfa"))["require_mfa"] is True


def test_deleting_the_user_takes_all(app: Flask, signed_in: Browser, user: User) -> None:
    enrol_totp(signed_in)
    flask(app, "user", "delete", user.email, "--yes")
    assert (count(app, TotpSecret), count(app, RecoveryCode)) == (0, 0)


def test_each_change_is_told_by_mail(app: Flask, signed_in: Browser, user: User) -> None:
    enrol_passkey(signed_in, Authenticator())
    enrol_totp(signed_in)
    signed_in.open(FACTORS)
    signed_in.submit(action="remove_totp")
    flask(app, "user", "reset-factors", user.email)
    with app.app_context():
        owed = [
            (mail.kind, mail.details.get("factor")) for mail in db.session.scalars(select(Mail))
        ]
    assert sorted(one for one in owed if one[0].startswith("factor")) == [
        ("factor_added", "Authenticator app"),
        ("factor_added", "my laptop"),
        ("factor_removed", "All second factors"),
        ("factor_removed", "Authenticator app"),
    ]


def test_reset_factors_is_on_the_trail(app: Flask, signed_in: Browser, user: User) -> None:
    enrol_totp(signed_in)
    flask(app, "user", "reset-factors", user.email)
    (told,) = events(app, "factors_reset")
    assert (told["user"], told["factors"]) == (str(user.id), "1")
    assert told["operator"]


def test_an_operators_link_for_scripts(app: Flask, user: User) -> None:
    made = json.loads(flask(app, "user", "enrolment-link", user.email, "--hours", "3", "--json"))
    assert made["email"] == user.email
    assert "/account/factors/link?token=" in made["link"]
    said = app.test_cli_runner().invoke(args=["user", "enrolment-link", user.email])
    assert "SSO_SMTP_URL is not set" in said.stderr
    for hours in ("0", "169", "x"):
        refused = app.test_cli_runner().invoke(
            args=["user", "enrolment-link", user.email, "--hours", hours]
        )
        assert refused.exit_code == 2
