"""The account's page of second factors: adding, naming, removing."""

import html
import json
import re
from collections.abc import Callable
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from sso.extensions import db
from sso.mfa import passkey_names, passkeys
from sso.models import Mail, Passkey, RecoveryCode, TotpSecret, User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page
from tests.support.authenticator import Authenticator, options_of
from tests.support.events import events
from tests.support.factories import PASSWORD, make_user
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


@pytest.mark.parametrize(
    ("base", "origin"),
    [
        ("https://localhost:443", "https://localhost"),
        ("https://localhost:80", "https://localhost:80"),
        ("http://localhost:80", "http://localhost"),
        ("http://localhost:443", "http://localhost:443"),
    ],
)
def test_a_base_url_with_a_port(make_app: Callable[..., Flask], base: str, origin: str) -> None:
    """Browsers leave the scheme's default port out of the origin, and no other."""
    app = make_app(SSO_BASE_URL=f"{base}{BASE}")
    make_user(app)
    browser, key = Browser(app), Authenticator(origin=origin)
    browser.sign_in()
    assert len(codes_of(enrol_passkey(browser, key))) == 10
    other = Browser(app)
    other.open(f"{ORIGIN}{BASE}/sign-in")
    sign_in_by_passkey(other, key)
    assert is_signed_in(other)


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


LINUX = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 "
KEEPASS = "fdb141b2-5d84-443e-8a35-4698c205a502"


def add_passkey(browser: Browser, user_agent: str, aaguid: str = "") -> None:
    """As the page sends it: nobody types a name."""
    browser.http.environ_base["HTTP_USER_AGENT"] = user_agent
    key = Authenticator()
    key.aaguid = UUID(aaguid).bytes if aaguid else key.aaguid
    assert "Name of the passkey" not in browser.open(FACTORS).html.partition("add_passkey")[2]
    browser.submit(action="add_passkey", credential=key.create(options_of(browser.page)))


def names(browser: Browser) -> list[str]:
    found = re.findall(r"<strong><bdi><span>([^<]*)</span>", browser.open(FACTORS).html)
    return [html.unescape(one) for one in found]


def test_a_passkey_is_named_after_what_made_it(signed_in: Browser) -> None:
    add_passkey(signed_in, LINUX, KEEPASS)
    add_passkey(signed_in, LINUX, "00000000-0000-0000-0000-000000000000")
    add_passkey(signed_in, LINUX, "01234567-0123-0123-0123-0123456789ab")  # unknown
    add_passkey(signed_in, LINUX, KEEPASS)
    add_passkey(signed_in, LINUX)
    add_passkey(signed_in, "")
    add_passkey(signed_in, "<script>" * 500)
    assert names(signed_in) == [
        "KeePassXC", "Chrome on Linux", "Chrome on Linux 2", "KeePassXC 2", "Chrome on Linux 3",
        "Passkey", "Passkey 2",
    ]  # fmt: skip


def test_there_are_so_many_passkeys_and_no_more(
    app: Flask, signed_in: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passkeys, "MOST", 2)
    add_passkey(signed_in, LINUX)
    first_tab = signed_in.open(FACTORS)
    add_passkey(signed_in, LINUX)
    key = Authenticator()
    form = {
        **first_tab.fields,
        "csrf_token": signed_in.open(FACTORS).fields["csrf_token"],
        "action": "add_passkey",
        "credential": key.create(options_of(first_tab)),
    }
    page = signed_in.open(FACTORS, method="POST", data=form)
    assert "maximum number of passkeys" in page.html
    assert count(app, Passkey) == 2


def rename(browser: Browser, name: str, which: int = 0) -> Page:
    """In the list, whose forms come before the one that adds a passkey."""
    passkey = re.findall(r'name="passkey" value="([^"]*)"', browser.open(FACTORS).html)[which]
    return browser.submit(action="rename_passkey", passkey=passkey, name=name)


@pytest.mark.parametrize(
    ("name", "becomes"),
    [("<b>&", "<b>&"), ("x" * 99, "x" * 60), (" a\u202eb\n  c\0", "ab c"), ("Büro 💻", "Büro 💻"),
     ("Chrome on Linux", "Chrome on Linux"), ("KEEPASSXC", "KEEPASSXC 2")],
)  # fmt: skip
def test_renaming_a_passkey(app: Flask, signed_in: Browser, name: str, becomes: str) -> None:
    add_passkey(signed_in, LINUX)
    add_passkey(signed_in, LINUX, KEEPASS)
    rename(signed_in, name)
    assert names(signed_in) == [becomes, "KeePassXC"]
    told = events(app, "factor_renamed")
    if becomes == "Chrome on Linux":
        assert told == []
    else:
        changes = {"name": {"before": "Chrome on Linux", "after": becomes}}
        assert [(one["kind"], one["changes"]) for one in told] == [("passkey", changes)]


@pytest.mark.parametrize("name", ["", "  ", "\u200b\u202e", "\n"])
def test_a_passkey_needs_some_name(signed_in: Browser, name: str) -> None:
    add_passkey(signed_in, LINUX)
    assert "Enter a name for the passkey." in rename(signed_in, name).html
    assert names(signed_in) == ["Chrome on Linux"]


def test_a_number_stays_within_the_length() -> None:
    taken = ["x" * 60]
    for number in range(2, 12):
        taken.append(passkey_names.distinct("X" * 60, taken))
        assert taken[-1].endswith(f" {number}")
        assert len(taken[-1]) == 60


def test_nobody_renames_a_strangers_passkey(app: Flask, signed_in: Browser) -> None:
    add_passkey(signed_in, LINUX)
    (passkey,) = re.findall(r'name="passkey" value="([^"]*)"', signed_in.open(FACTORS).html)
    make_user(app, "mallory@example.com", name="Mallory")
    mallory = Browser(app)
    mallory.sign_in("mallory@example.com")
    add_passkey(mallory, LINUX)
    mallory.open(FACTORS)
    page = mallory.submit(action="rename_passkey", passkey=passkey, name="mine")
    assert "already removed" in page.html
    mallory.open(FACTORS)
    form = {**mallory.page.fields, "csrf_token": "x", "action": "rename_passkey", "name": "mine"}
    own = re.findall(r'name="passkey" value="([^"]*)"', mallory.page.html)[0]
    mallory.open(FACTORS, method="POST", data={**form, "passkey": own})
    assert names(mallory) == names(signed_in) == ["Chrome on Linux"]


def test_renaming_needs_a_fresh_sign_in(clock: Clock, signed_in: Browser) -> None:
    add_passkey(signed_in, LINUX)
    page = signed_in.open(FACTORS)
    clock.move(minutes=6)
    signed_in.page = page
    assert signed_in.submit(action="rename_passkey", name="x").path.endswith("/sign-in")
    assert "rename_passkey" not in signed_in.open(FACTORS).html
    assert names(signed_in) == ["Chrome on Linux"]


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


def test_the_last_factor_is_called_so(app: Flask, signed_in: Browser) -> None:
    def question(action: str) -> str:
        listed = signed_in.open(FACTORS).html
        (link,) = re.findall(rf'href="([^"]*action={action}[^"]*)"', listed)
        return signed_in.open(html.unescape(link)).html

    text = "your only second factor"
    enrol_passkey(signed_in, Authenticator())
    assert text in question("remove_passkey")
    enrol_totp(signed_in)
    assert text not in question("remove_passkey")
    assert text not in question("remove_totp")
    signed_in.submit(action="remove_totp")
    with app.app_context():
        db.session.execute(update(User).values(password_hash=None))
        db.session.commit()
    assert text not in question("remove_passkey")  # there is no password that would be enough


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
    assert "Passkey" in shown
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
        ("factor_added", "Passkey"),
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
