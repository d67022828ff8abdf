"""The device authorization grant (RFC 8628): what devices ask for, and what they get."""

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from sso import audit
from sso.config.client_fields import AUTHORIZATION_CODE, DEVICE_CODE
from sso.crypto import user_codes
from sso.extensions import db
from sso.i18n.languages import LANGUAGES
from sso.jobs.upkeep import purge
from sso.metrics.exporter import Counters
from sso.models import Client, DeviceCode, Grant, Refusal, User
from sso.ratelimit import limiting, storage
from sso.services import clients
from sso.store import expired, refusals
from tests.conftest import Clock, Statements
from tests.endpoints.test_statements import ONE_TO_WRITE
from tests.support.actors import BASE, ISSUER, ORIGIN, Browser, claims_of
from tests.support.devices import PAGE, Device, enter, make_device
from tests.support.events import events
from tests.support.explaining import Explain
from tests.support.factories import make_api, make_client, make_user
from tests.support.mailbox import Mailbox, text_of
from tests.support.proofs import DPoP
from tests.support.second_factors import code_of, confirm_by_code, enrol_totp
from tests.support.signing import make_keyed_client

ACCOUNT = f"{ORIGIN}{BASE}/account"
API = "https://api.example.com"


class Time:
    """The clock that limits are counted by."""

    def __init__(self) -> None:
        self.now = 0.0

    def move(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    moving = Time()
    monkeypatch.setattr(storage, "monotonic", lambda: moving.now)
    return moving


@pytest.fixture
def tv(app: Flask) -> Device:
    return make_device(app)


def row(app: Flask) -> DeviceCode:
    with app.app_context():
        return db.session.scalars(select(DeviceCode)).one()


def change(app: Flask, device: Device, **fields: Any) -> None:
    with app.app_context():
        with audit.dry_run():
            clients.change(audit.SYSTEM, device.client_id, fields)
        db.session.commit()


# ---- the request for codes ----


def test_the_codes(app: Flask, tv: Device) -> None:
    answer = tv.ask()
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    codes = answer.get_json()
    assert re.fullmatch("[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}", codes["user_code"])
    assert codes == {
        "device_code": codes["device_code"],
        "user_code": codes["user_code"],
        "verification_uri": f"{ISSUER}/device",
        "verification_uri_complete": f"{ISSUER}/device?user_code={codes['user_code']}",
        "expires_in": 600,
        "interval": 5,
    }
    stored = repr(vars(row(app)))
    letters = codes["user_code"].replace("-", "")
    assert codes["device_code"] not in stored
    assert codes["user_code"] not in stored
    assert letters not in stored
    assert row(app).expires_at - row(app).created_at == timedelta(minutes=10)


def test_the_digest_of_a_user_code_needs_the_secret_key() -> None:
    assert user_codes.digests("one", "BCDFGHJK") != user_codes.digests("other", "BCDFGHJK")
    both = user_codes.digests(("one", "other"), "BCDFGHJK")
    assert both == [
        *user_codes.digests("one", "BCDFGHJK"),
        *user_codes.digests("other", "BCDFGHJK"),
    ]


def test_a_user_code_is_found_after_the_secret_key_was_replaced(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    tv.ask()
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(
        settings, secret_key="n" * 64, secret_key_previous=settings.secret_key
    )
    browser.sign_in()
    assert ("decision", "allow") in enter(browser, tv.user_code).buttons


def test_a_user_code_that_another_device_has_is_drawn_again(
    app: Flask, tv: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(["BCDFGHJK", "BCDFGHJK", "LMNPQRST"])
    monkeypatch.setattr(user_codes, "make", lambda: next(drawn))
    first, second = tv.ask().get_json(), tv.ask().get_json()
    assert (first["user_code"], second["user_code"]) == ("BCDF-GHJK", "LMNP-QRST")
    assert second["verification_uri_complete"].endswith("?user_code=LMNP-QRST")
    monkeypatch.setattr(user_codes, "make", lambda: "BCDFGHJK")
    answer = tv.ask()
    assert (answer.status_code, answer.get_json()["error"]) == (503, "temporarily_unavailable")


def test_confidential_clients_authenticate(app: Flask) -> None:
    device = make_device(app, confidential=True)
    assert device.ask().status_code == 200
    answer = device.ask(client_secret="wrong")
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
    assert device.ask(client_secret=None).status_code == 401
    basic = device.ask(device.basic(), client_id=None, client_secret=None)
    assert basic.status_code == 200


def test_clients_with_a_key(app: Flask, browser: Browser, user: User) -> None:
    bank = make_keyed_client(app, grant_types=[AUTHORIZATION_CODE, DEVICE_CODE])
    endpoint = "/oauth2/device_authorization"
    of_endpoint = bank.assertion(aud=ISSUER + endpoint)
    form = {**bank.credentials(), "client_assertion": of_endpoint, "scope": "openid"}
    assert bank.post(endpoint, form).status_code == 200
    again = bank.post(endpoint, form)  # an assertion counts once
    assert (again.status_code, again.get_json()["error"]) == (401, "invalid_client")
    codes = bank.post(endpoint, {**bank.credentials(), "scope": "openid"}).get_json()
    enter(browser, codes["user_code"])
    browser.allow()
    poll = {"grant_type": DEVICE_CODE, "device_code": codes["device_code"]}
    assert bank.post("/oauth2/token", poll).status_code == 401
    assert bank.post("/oauth2/token", {**poll, **bank.credentials()}).status_code == 200


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"scope": "root"}, "invalid_scope"),
        ({"resource": "https://elsewhere.example"}, "invalid_target"),
        ({"resource": "https://api.example.com/#x"}, "invalid_target"),
        ({"scope": "openid\0"}, "invalid_request"),
        ({"scope": "x" * 5000}, "invalid_request"),
        ({"client_id": "nobody"}, "invalid_client"),
        ({"client_id": None}, "invalid_client"),
    ],
)
def test_what_is_refused(app: Flask, tv: Device, fields: dict[str, Any], error: str) -> None:
    answer = tv.ask(**fields)
    assert answer.get_json()["error"] == error
    assert answer.status_code in (400, 401)
    with app.app_context():
        assert db.session.scalar(select(func.count()).select_from(DeviceCode)) == 0
    (event,) = events(app, "device_authorization_refused", "client_authentication_failed")
    assert event["error"] == error


def test_a_client_without_the_grant(app: Flask, explain: Explain) -> None:
    client = make_client(app, public=True)
    device = Device(app, client.client_id, "", "")
    answer = device.ask()
    assert (answer.status_code, answer.get_json()["error"]) == (400, "unauthorized_client")
    assert "client update" in (text := explain(answer))
    assert "--device" in text
    answer = device.poll(device_code="sso_dc_x")
    assert answer.get_json()["error"] == "unauthorized_client"
    assert "--device" in explain(answer)


def test_resources_may_be_repeated(app: Flask, browser: Browser, user: User) -> None:
    make_api(app, API, scopes={"read": "Read"})
    make_api(app, "https://other.example", scopes={"write": "Write"})
    device = make_device(app, apis=[API, "https://other.example"])
    form = [("client_id", device.client_id), ("scope", "read write")]
    form += [("resource", API), ("resource", "https://other.example")]
    answer = device.post(
        "/oauth2/device_authorization",
        urlencode(form),
        content_type="application/x-www-form-urlencoded",
    )
    device.codes = answer.get_json()
    page = enter(browser, device.user_code)
    assert "api.example.com" in page.html
    assert "other.example" in page.html
    browser.allow()
    tokens = device.poll(resource="https://other.example").get_json()
    claims = claims_of(tokens["access_token"])
    assert (claims["aud"], claims["scope"]) == ("https://other.example", "write")
    assert "id_token" not in tokens


def test_a_default_api(app: Flask, browser: Browser, user: User) -> None:
    make_api(app, API, scopes={"read": "Read"})
    device = make_device(app, apis=[API], default_api=API)
    tokens = device.approve(browser, scope="openid read").get_json()
    assert claims_of(tokens["access_token"])["aud"] == API
    assert tokens["scope"] == "read"


# ---- the page ----


@pytest.mark.parametrize(
    "typed",
    ["{0}{1}", "{0}-{1}", " {0} {1} ", "{0}\u2013{1}", "{0}- {1}\t", "{0}\u200b{1}"],
)
def test_how_a_code_may_be_typed(tv: Device, browser: Browser, user: User, typed: str) -> None:
    tv.ask()
    first, _, second = tv.user_code.partition("-")
    text = typed.format(first, second).replace("\t", " ")
    assert "password" in browser_at_code(browser, text.lower()).fields
    wide = text.translate({ord(letter): ord(letter) + 0xFEE0 for letter in user_codes.ALPHABET})
    assert "password" in browser_at_code(browser, wide).fields


def browser_at_code(browser: Browser, typed: str) -> Any:
    browser.open(PAGE)
    return browser.submit(user_code=typed)


@pytest.mark.parametrize("typed", ["", "BCDF", "BCDF-GHJA", "BCDF-GHJKL", "x" * 5000, "\0", "é"])
def test_what_is_no_code(app: Flask, browser: Browser, user: User, typed: str) -> None:
    page = browser_at_code(browser, typed)
    assert page.status == 200
    assert "This code is wrong or has expired." in page.html


def test_the_whole_way(app: Flask, tv: Device, browser: Browser, user: User) -> None:
    answer = tv.approve(browser)
    assert answer.status_code == 200
    assert "You can close this page; your device continues." in browser.page.html
    tokens = answer.get_json()
    assert tokens["scope"] == "openid profile"
    assert tokens["token_type"] == "Bearer"
    access, identity = claims_of(tokens["access_token"]), claims_of(tokens["id_token"])
    assert access["aud"] == ISSUER
    assert access["sub"] == identity["sub"] == str(user.id)
    assert identity["aud"] == tv.client_id
    assert "nonce" not in identity
    assert tv.userinfo(tokens["access_token"]).get_json()["name"] == "Dana Demo"
    renewed = tv.refresh(tokens["refresh_token"])
    assert renewed.status_code == 200
    (approved,) = events(app, "device_approved")
    assert approved["user"] == str(user.id)
    assert (approved["client"], approved["program"]) == (tv.client_id, "okhttp/4.12.0")
    (issued,) = events(app, "tokens_issued")
    assert issued["grant"] == approved["grant"]


def test_what_the_person_is_shown(tv: Device, browser: Browser, user: User) -> None:
    tv.ask({"User-Agent": '"><script>/1 x'}, scope="openid email")
    html = enter(browser, tv.user_code).html
    assert f">{tv.user_code}</p>" in html
    assert "Sign in to <strong><bdi>Television</bdi></strong> on a device?" in html
    assert "127.0.0.1" in html
    assert "dana@example.com" in html
    assert "asks for such a code by phone, email or chat" in html
    assert "<script>/1" not in html
    assert "Program, as named by the device" not in html


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_pages_in_every_language(
    tv: Device, browser: Browser, user: User, language: str
) -> None:
    browser.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = language
    tv.ask()
    html = browser.open(PAGE).html
    question = enter(browser, tv.user_code).html
    assert f'lang="{language}"' in html
    done = browser.allow().html
    for text, page in (
        ("Code on the device", html),
        ("Compare this code", question),
        ("your device continues", done),
    ):
        assert (text in page) == (language == "en")
    assert f">{tv.user_code}</p>" in question


def test_a_link_only_fills_the_code_in(
    app: Flask, tv: Device, browser: Browser, user: User, statements: Callable[[], Any]
) -> None:
    tv.ask()
    browser.sign_in()
    page = browser.open(tv.codes["verification_uri_complete"])
    assert page.fields["user_code"] == tv.user_code
    assert tv.error() == "authorization_pending"
    assert ("decision", "allow") not in page.buttons
    page = browser.submit()
    assert ("decision", "allow") in page.buttons
    assert tv.error() == "slow_down"
    # Not even looked up, so that links are no way to guess.
    known = browser.open(tv.codes["verification_uri_complete"]).html
    other = browser.open(f"{PAGE}?user_code=BCDF-GHJK").html
    assert known.count("alert") == other.count("alert") == 0
    assert "evil" not in browser.open(f"{PAGE}?user_code=evil").html


@pytest.mark.parametrize("confidential", [False, True])
def test_first_party_applications_ask_too(
    app: Flask, browser: Browser, user: User, confidential: bool
) -> None:
    device = make_device(app, confidential=confidential, first_party=True)
    for _ in range(2):  # and an earlier approval spares nobody the question
        device.ask()
        page = enter(browser, device.user_code)
        assert ("decision", "allow") in page.buttons
        browser.allow()
        assert device.poll().status_code == 200


def test_scopes_can_be_unticked(tv: Device, browser: Browser, user: User) -> None:
    tv.ask(scope="openid profile email")
    page = enter(browser, tv.user_code)
    fields = {name: value for name, value in page.fields.items() if name != "scope_email"}
    browser.open(page.url, method="POST", data={**fields, "decision": "allow"})
    assert tv.poll().get_json()["scope"] == "openid profile"
    tv.ask(scope="openid profile email")
    assert "scope_email" not in enter(browser, tv.user_code).fields  # remembered as unticked


def test_nothing_ticked(app: Flask, browser: Browser, user: User) -> None:
    make_api(app, API, scopes={"read": "Read"})
    device = make_device(app, apis=[API])
    device.ask(scope="read", resource=API)
    page = enter(browser, device.user_code)
    fields = {name: value for name, value in page.fields.items() if name != "api_scope"}
    page = browser.open(page.url, method="POST", data={**fields, "decision": "allow"})
    assert "Tick at least one entry, or cancel." in page.html
    assert device.error() == "authorization_pending"


def test_a_refusal(app: Flask, tv: Device, browser: Browser, user: User) -> None:
    tv.ask()
    enter(browser, tv.user_code)
    assert "The device was refused" in browser.deny().html
    answer = tv.poll().get_json()
    assert answer == {"error": "access_denied", "error_description": "The user refused."}
    assert [event["client"] for event in events(app, "device_denied")] == [tv.client_id]
    with app.app_context():
        assert db.session.scalar(select(func.count()).select_from(Grant)) == 0


@pytest.mark.parametrize("decision", ["", "ALLOW", "allow ", "yes"])
def test_nothing_but_allow_approves(
    app: Flask, tv: Device, browser: Browser, user: User, decision: str
) -> None:
    tv.ask()
    enter(browser, tv.user_code)
    browser.submit(decision=decision)
    assert "access_token" not in tv.poll().get_json()
    with app.app_context():
        assert db.session.scalar(select(func.count()).select_from(Grant)) == 0


def test_a_second_factor_where_the_client_requires_it(
    app: Flask, browser: Browser, user: User, clock: Clock, mailbox: Mailbox
) -> None:
    device = make_device(app, require_mfa=True)
    device.ask()
    page = enter(browser, device.user_code)
    assert page.path.endswith("/account/factors")  # none is set up yet
    other = Browser(app)
    other.sign_in()
    confirm_by_code(other, mailbox)
    secret, _ = enrol_totp(other)
    clock.move(minutes=1)
    browser = Browser(app)
    device.ask()
    page = enter(browser, device.user_code)
    assert page.path.endswith("/second-factor")
    page = browser.submit(code=code_of(secret))
    assert page.path.endswith("/device")
    browser.allow()
    tokens = device.poll().get_json()
    assert "mfa" in claims_of(tokens["id_token"])["amr"]


def test_a_cancelled_second_factor_leaves_the_device_waiting(
    app: Flask, browser: Browser, user: User, clock: Clock, mailbox: Mailbox
) -> None:
    browser.sign_in()
    confirm_by_code(browser, mailbox)
    enrol_totp(browser)
    device = make_device(app)
    device.ask()
    browser = Browser(app)
    enter(browser, device.user_code)
    page = browser.submit(decision="cancel")
    assert page.path.endswith("/device")
    assert "user_code" in page.fields
    assert device.error() == "authorization_pending"


def test_somebody_outside_the_group(
    app: Flask, browser: Browser, user: User, explain: Explain
) -> None:
    device = make_device(app, groups=["staff"])
    device.ask()
    page = enter(browser, device.user_code)
    assert page.status == 403
    assert "is not in a group that may use this application" in page.html
    assert "Back to" not in page.html
    assert "is in none of the groups" in explain(page)
    assert device.error() == "authorization_pending"
    make_user(app, "erin@example.com", groups=["staff"])
    browser.open(re.search(r'class="button" href="([^"]+)"', page.html)[1].replace("&amp;", "&"))  # type: ignore[index]
    browser.submit(email="erin@example.com", password="correct horse battery")
    browser.allow()
    assert device.poll().status_code == 200


def test_somebody_outside_the_group_of_an_api(app: Flask, browser: Browser, user: User) -> None:
    make_api(app, API, scopes={"read": "Read"}, groups=["staff"])
    device = make_device(app, apis=[API])
    device.ask(resource=API)
    page = enter(browser, device.user_code)
    assert page.status == 403
    assert "is not in a group that may use it" in page.html


def test_the_request_of_a_device_has_its_own_page(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    """The dispatcher and the page of consent lead there."""
    tv.ask()
    page = enter(browser, tv.user_code)
    resume = page.parameters["resume"]
    for path in ("oauth2/authorize", "consent", "sign-in"):
        assert browser.open(f"{ORIGIN}{BASE}/{path}?resume={resume}").path.endswith("/device")
    client = make_client(app)
    waiting = browser.authorize(client)
    assert browser.open(f"{PAGE}?resume={waiting.parameters['resume']}").path.endswith("/consent")


# ---- polling ----


def test_nobody_has_answered(app: Flask, tv: Device, time: Time) -> None:
    tv.ask()
    for _ in range(5):
        assert tv.error() == "authorization_pending"
        time.move(5)
    with app.app_context():
        refusals.flush(app)
        assert events(app, "tokens_refused") == []
        assert db.session.scalar(select(func.count()).select_from(Refusal)) == 0


def test_polling_too_fast(app: Flask, tv: Device, time: Time, explain: Explain) -> None:
    tv.ask()
    assert tv.error() == "authorization_pending"
    time.move(3)
    answer = tv.poll()
    assert answer.get_json()["error"] == "slow_down"
    assert row(app).interval == 10
    assert "sooner than its interval allows" in explain(answer)
    time.move(5)  # the interval is longer now
    assert tv.error() == "slow_down"
    assert row(app).interval == 15
    time.move(15)
    assert tv.error() == "authorization_pending"
    time.move(14.2)  # networks do not keep time
    assert tv.error() == "authorization_pending"
    assert row(app).interval == 15


def test_the_interval_has_an_end(
    app: Flask, tv: Device, time: Time, statements: Callable[[], Any]
) -> None:
    tv.ask()
    for _ in range(30):
        tv.poll()
    assert row(app).interval == 60
    assert len(events(app, "tokens_refused")) == 11
    with statements() as seen:
        assert tv.error() == "slow_down"
    assert (len(seen), seen.commits) == (1, 0)


def test_a_poll_is_one_statement(
    tv: Device, time: Time, statements: Callable[[], AbstractContextManager[Statements]]
) -> None:
    tv.ask()
    tv.poll()
    time.move(5)
    with statements() as seen:
        assert tv.error() == "authorization_pending"
    assert (len(seen), seen.commits) == (1, 0)


def test_an_exchange_is_no_more_than_that_of_a_code(
    tv: Device,
    browser: Browser,
    user: User,
    statements: Callable[[], AbstractContextManager[Statements]],
) -> None:
    tv.approve(browser)  # the key ring is read once
    tv.ask()
    enter(browser, tv.user_code)
    browser.allow()
    with statements() as seen:
        assert tv.poll().status_code == 200
    assert (len(seen), seen.commits) == ONE_TO_WRITE


def test_what_is_wrong_with_a_poll(app: Flask, tv: Device) -> None:
    tv.ask()
    assert tv.error(device_code=None) == "invalid_request"
    assert tv.error(device_code="sso_dc_unknown") == "invalid_grant"
    other = make_device(app, name="Other")
    answer = other.poll(device_code=tv.codes["device_code"])
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_grant")
    assert [event.get("reason") for event in events(app, "tokens_refused")][-2:] == [
        "unknown",
        "issued to another client",
    ]
    assert tv.error(client_id="nobody") == "invalid_client"
    assert tv.error() == "authorization_pending"


def test_a_device_code_works_once_and_its_reuse_ends_what_it_gave(
    app: Flask, tv: Device, browser: Browser, user: User, clock: Clock, explain: Explain
) -> None:
    tokens = tv.approve(browser).get_json()
    assert tv.error() == "invalid_grant"  # at once: a double click of a program
    assert tv.userinfo(tokens["access_token"]).status_code == 200
    clock.move(seconds=5)
    answer = tv.poll()
    assert answer.get_json()["error"] == "invalid_grant"
    assert "was used before" in explain(answer)
    assert tv.userinfo(tokens["access_token"]).status_code == 401
    assert tv.refresh(tokens["refresh_token"]).status_code == 400
    assert len(events(app, "code_reused")) == 1
    assert tv.error() == "invalid_grant"


@pytest.mark.parametrize("confidential", [False, True])
def test_without_the_grant_of_refresh_tokens(
    app: Flask, browser: Browser, user: User, confidential: bool
) -> None:
    device = make_device(app, confidential=confidential, grant_types=[DEVICE_CODE])
    tokens = device.approve(browser, scope="openid offline_access").get_json()
    assert "refresh_token" not in tokens
    assert device.userinfo(tokens["access_token"]).status_code == 200


def test_tokens_that_are_bound_to_a_key(app: Flask, browser: Browser, user: User) -> None:
    device, key = make_device(app, dpop_bound_access_tokens=True), DPoP()
    device.ask()
    assert device.error() == "invalid_request"  # without a proof
    answer = device.poll(key.header())
    assert answer.get_json()["error"] == "authorization_pending"
    enter(browser, device.user_code)
    browser.allow()
    proof = key.header()
    answer = device.poll(proof)
    tokens = answer.get_json()
    assert tokens["token_type"] == "DPoP"
    assert claims_of(tokens["access_token"])["cnf"] == {"jkt": key.jkt}
    assert key.userinfo(device, tokens["access_token"]).status_code == 200
    assert device.refresh(tokens["refresh_token"], DPoP().header()).status_code == 400
    assert device.refresh(tokens["refresh_token"], key.header()).status_code == 200


def test_a_client_with_both_grants(app: Flask, browser: Browser, user: User) -> None:
    redirect_uri = "https://tv.example/callback"
    device = make_device(
        app, redirect_uris=[redirect_uri], grant_types=[AUTHORIZATION_CODE, DEVICE_CODE],
        confidential=True,
    )  # fmt: skip
    device.redirect_uri = redirect_uri
    assert device.approve(browser).status_code == 200
    code = browser.authorize(device, scope="openid profile").code
    assert device.exchange(code).status_code == 200


# ---- afterwards ----


def test_introspection_and_revocation(app: Flask, browser: Browser, user: User) -> None:
    device = make_device(app, confidential=True)
    tokens = device.approve(browser).get_json()
    assert device.introspect(tokens["access_token"]).get_json()["active"] is True
    assert device.revoke(tokens["refresh_token"]).status_code == 200
    assert device.introspect(tokens["access_token"]).get_json() == {"active": False}


def test_the_account_page_lists_and_ends_it(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    tokens = tv.approve(browser).get_json()
    html = browser.open(ACCOUNT).html
    assert "on a device since" in html
    assert "okhttp/4.12.0" in html
    assert "A device was signed in" in browser.open(f"{ACCOUNT}/activity").html
    browser.open(f"{ACCOUNT}/confirm?action=withdraw&client={tv.client_id}")
    browser.submit(action="withdraw")
    assert tv.userinfo(tokens["access_token"]).status_code == 401
    assert "on a device since" not in browser.open(ACCOUNT).html


def test_a_mail_tells_the_person(
    app: Flask, tv: Device, browser: Browser, user: User, mailbox: Mailbox
) -> None:
    browser.sign_in()
    mailbox.read()
    tv.approve(browser)
    (mail,) = mailbox.read()
    assert mail["Subject"] == "A device was signed in to your account"
    text = " ".join(text_of(mail).split())
    assert "You allowed Television on a device" in text
    assert "okhttp/4.12.0" in text
    assert f"{ISSUER}/account" in text


def test_sign_out_ends_it_unless_it_is_offline(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    change(app, tv, scope="openid profile offline_access")
    plain = tv.approve(browser).get_json()
    lasting = tv.approve(browser, scope="openid offline_access").get_json()
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(action="sign_out", decision="sign_out")
    assert tv.userinfo(plain["access_token"]).status_code == 401
    assert tv.userinfo(lasting["access_token"]).status_code == 200
    assert tv.refresh(lasting["refresh_token"]).status_code == 200


def test_a_narrower_registration_reaches_a_waiting_device(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    tv.ask(scope="openid profile email")
    change(app, tv, scope="openid profile")
    page = enter(browser, tv.user_code)
    assert "dana@example.com" not in page.fields.get("offered", "")
    assert "email" not in page.fields["offered"]
    browser.allow()
    change(app, tv, scope="openid")
    assert tv.poll().get_json()["scope"] == "openid"


def test_client_show_names_devices(app: Flask, tv: Device, browser: Browser, user: User) -> None:
    tv.approve(browser)
    result = app.test_cli_runner().invoke(args=["client", "show", tv.client_id, "--json"])
    shown = json.loads(result.stdout)
    assert DEVICE_CODE in shown["grant_types"]
    assert [grant["device"] for grant in shown["newest_grants"]] == ["okhttp/4.12.0"]


def test_expired_rows_go(
    app: Flask, tv: Device, browser: Browser, user: User, clock: Clock
) -> None:
    tv.ask()
    tv.approve(browser)
    tv.ask()
    enter(browser, tv.user_code)
    browser.allow()  # and never polled

    def left() -> list[int]:
        with app.app_context():
            purge()
            tables = (DeviceCode, Grant)
            return [db.session.scalar(select(func.count()).select_from(t)) or 0 for t in tables]

    assert left() == [3, 2]
    clock.move(minutes=12)
    assert tv.error() == "expired_token"
    assert left() == [2, 1]  # what was never fetched gave nothing
    clock.move(seconds=expired.KEEP_DEVICES.total_seconds())
    assert left() == [1, 1]  # reuse has something to end
    assert tv.error() == "invalid_grant"
    clock.move(days=60)
    assert left() == [0, 0]


def test_requests_are_limited(app: Flask, tv: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    few = limiting.Flooding("device_request_by_anyone", account=None, ip_address=2)
    monkeypatch.setattr(limiting, "DEVICE_REQUEST_BY_ANYONE", few)
    assert [tv.ask().status_code for _ in range(3)] == [200, 200, 429]
    assert len(events(app, "device_request_by_anyone_limited")) == 1
    confidential = make_device(app, confidential=True)
    assert confidential.ask().status_code == 200


def test_a_disabled_client(app: Flask, tv: Device, browser: Browser, user: User) -> None:
    tv.ask()
    page = enter(browser, tv.user_code)
    with app.app_context():
        db.session.execute(update(Client).values(disabled_at=db.func.now()))
        db.session.commit()
    page = browser.allow()
    assert "This code is wrong or has expired." in page.html
    assert tv.error() == "invalid_client"


def test_polls_are_counted_by_their_outcome() -> None:
    counters = Counters()
    for error in ("authorization_pending", "slow_down", "expired_token", "access_denied", None):
        counters.token_request(DEVICE_CODE, error)
        labels = {"grant": "device_code", "outcome": error or "ok"}
        assert counters.registry.get_sample_value("sso_token_requests_total", labels) == 1


def test_what_is_declined_is_not_approved(
    app: Flask, browser: Browser, user: User, tv: Device
) -> None:
    """Not even if the person allows it elsewhere later: the device was told otherwise."""
    change(app, tv, scope="openid profile email")
    tv.ask(scope="openid profile email")
    enter(browser, tv.user_code)
    browser.submit(decision="allow", scope_email=None)
    with app.app_context():
        scope = db.session.scalars(select(Grant.scope)).one()
        assert set(scope.split()) == {"openid", "profile"}
    assert set(tv.poll().get_json()["scope"].split()) == {"openid", "profile"}
