"""The authorization endpoint (RFC 6749 §4.1, OIDC Core §3.1.2)."""

import html
import json
import re

import pytest
from flask import Flask

from sso.extensions import db
from sso.models import User
from sso.web import pending_request
from sso.web.pending_request import PendingRequest, sign, verify
from tests.conftest import Clock
from tests.support.actors import BASE, ISSUER, ORIGIN, Browser, Page, RelyingParty, claims_of
from tests.support.factories import make_client, make_user

CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"

# Errors that go to the client's proven address, with `state` and `iss`.
REDIRECTED: dict[str, tuple[dict[str, str | None], str]] = {
    "RFC 6749 §4.1.2.1 response_type missing": ({"response_type": None}, "invalid_request"),
    "RFC 6749 §4.1.2.1 response_type token": (
        {"response_type": "token"}, "unsupported_response_type"),
    "RFC 6749 §4.1.2.1 response_type of two": (
        {"response_type": "code id_token"}, "unsupported_response_type"),
    "RFC 6749 §3.3 no scope can be granted": ({"scope": "nonsense phone"}, "invalid_scope"),
    "RFC 7636 §4.3 plain": (
        {"code_challenge": CHALLENGE, "code_challenge_method": "plain"}, "invalid_request"),
    "RFC 7636 §4.3 no method": ({"code_challenge": CHALLENGE}, "invalid_request"),
    "RFC 7636 §4.3 no challenge": ({"code_challenge_method": "S256"}, "invalid_request"),
    "RFC 7636 §4.2 challenge too short": (
        {"code_challenge": CHALLENGE[1:], "code_challenge_method": "S256"}, "invalid_request"),
    "RFC 7636 §4.2 challenge with a line end": (
        {"code_challenge": CHALLENGE + "\n", "code_challenge_method": "S256"}, "invalid_request"),
    "OIDC Core §3.1.2.1 prompt unknown": ({"prompt": "create"}, "invalid_request"),
    "OIDC Core §3.1.2.1 prompt none and login": ({"prompt": "none login"}, "invalid_request"),
    "OIDC Core §3.1.2.6 prompt none, nobody": ({"prompt": "none"}, "login_required"),
    "OIDC Core §3.1.2.1 max_age no number": ({"max_age": "soon"}, "invalid_request"),
    "OIDC Core §3.1.2.1 max_age negative": ({"max_age": "-1"}, "invalid_request"),
    "OIDC Core §5.5 claims no JSON": ({"claims": "{"}, "invalid_request"),
    "OIDC Core §5.5 claims no object": ({"claims": "[]"}, "invalid_request"),
    "OIDC Core §6.1 request": ({"request": "e30.e30."}, "request_not_supported"),
    "OIDC Core §6.2 request_uri": (
        {"request_uri": "https://books.example/r"}, "request_uri_not_supported"),
    "OIDC Core §7.2.1 registration": ({"registration": "{}"}, "registration_not_supported"),
    "response_mode fragment": ({"response_mode": "fragment"}, "invalid_request"),
    "id_token_hint garbage": ({"id_token_hint": "x.y.z"}, "invalid_request"),
}  # fmt: skip


@pytest.mark.parametrize(("more", "error"), REDIRECTED.values(), ids=REDIRECTED.keys())
def test_errors_for_the_client(
    browser: Browser, client: RelyingParty, more: dict[str, str | None], error: str
) -> None:
    page = browser.authorize(client, state="a b+c%20&ü", **more)
    assert page.url.startswith(client.redirect_uri + "?")
    found = page.parameters
    assert (found["error"], found["state"], found["iss"]) == (error, "a b+c%20&ü", ISSUER)
    assert set(found) == {"error", "error_description", "state", "iss"}
    assert "x.y.z" not in found["error_description"]


def test_state_missing(browser: Browser, client: RelyingParty) -> None:
    page = browser.authorize(client, state=None)
    assert page.error == "invalid_request"
    assert "state" not in page.parameters


# While client or address are not proven, the browser stays here.
PAGES: dict[str, dict[str, str | None]] = {
    "client_id missing": {"client_id": None},
    "client_id unknown": {"client_id": "nobody"},
    "redirect_uri missing": {"redirect_uri": None},
    "redirect_uri of another host": {"redirect_uri": "https://evil.example/"},
    "redirect_uri longer": {"redirect_uri": "https://books.example/callback/x"},
    "redirect_uri with a query": {"redirect_uri": "https://books.example/callback?x=1"},
    "redirect_uri in capitals": {"redirect_uri": "https://BOOKS.example/callback"},
    "redirect_uri with a dot segment": {"redirect_uri": "https://books.example/a/../callback"},
    "redirect_uri and a bad response_type": {
        "redirect_uri": "https://evil.example/", "response_type": "token"},
}  # fmt: skip


@pytest.mark.parametrize("more", PAGES.values(), ids=PAGES.keys())
@pytest.mark.parametrize("signed_in", [False, True])
def test_errors_on_a_page(
    browser: Browser,
    client: RelyingParty,
    user: User,
    more: dict[str, str | None],
    signed_in: bool,
) -> None:
    if signed_in:
        browser.approve(client)
    page = browser.authorize(client, **more)
    assert page.is_at_server
    assert page.status == 400
    assert "evil.example" not in page.html
    assert page.headers["Content-Security-Policy"]


def test_a_disabled_client_is_unknown(app: Flask, browser: Browser, client: RelyingParty) -> None:
    app.test_cli_runner().invoke(args=["client", "disable", client.client_id])
    assert browser.authorize(client).status == 400


def test_a_post_is_answered_with_the_equal_get(
    app: Flask, client: RelyingParty, user: User
) -> None:
    """OIDC Core §3.1.2.1; oidcc-ensure-post-request-succeeds."""
    browser = Browser(app)
    answer = browser.http.post(
        f"{BASE}/oauth2/authorize", data=client.parameters(state="ä&="), base_url=ORIGIN
    )
    assert answer.status_code == 303
    browser.open(answer.headers["Location"])
    browser.sign_in()
    assert browser.allow().parameters["state"] == "ä&="


def test_the_registered_query_is_kept(app: Flask, browser: Browser, user: User) -> None:
    address = "https://books.example/cb?tenant=a%20b&empty=&flag"
    client = make_client(app, redirect_uris=["https://books.example/other", address])
    client.redirect_uri = address
    page = browser.approve(client)
    assert page.url.startswith(address + "&code=")
    assert client.exchange(page.code).status_code == 200


def test_scope_left_out(app: Flask, browser: Browser, user: User) -> None:
    client = make_client(app, scope="openid email")
    tokens = client.exchange(browser.approve(client, scope=None).code).get_json()
    assert tokens["scope"] == "openid email"


def test_prompt_none_with_session_and_consent(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    browser.approve(client, scope="openid")
    assert browser.authorize(client, scope="openid", prompt="none").code
    assert browser.authorize(client, prompt="none").error == "consent_required"
    page = browser.authorize(client, scope="openid", prompt="none", id_token_hint=None)
    assert page.code


def test_prompt_login_asks_once(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    first = claims_of(client.exchange(browser.approve(client).code).get_json()["id_token"])
    clock.move(minutes=5)
    page = browser.authorize(client, prompt="login")
    assert "password" in page.fields
    assert page.fields["email"] == user.email
    clock.move(seconds=5)
    page = browser.sign_in()
    second = claims_of(client.exchange(page.code).get_json()["id_token"])
    assert second["auth_time"] == first["auth_time"] + 305
    assert second["sid"] == first["sid"]


@pytest.mark.parametrize("more", [{"prompt": "login"}, {"max_age": "0"}, {"max_age": "60"}])
def test_the_waiting_request_does_not_stand_for_a_password(
    clock: Clock, browser: Browser, client: RelyingParty, user: User, more: dict[str, str]
) -> None:
    browser.approve(client)
    clock.move(minutes=5)
    page = browser.authorize(client, **more)
    resume = page.url.split("resume=")[1]
    for path in ("oauth2/authorize", "consent", "sign-in"):
        assert "password" in browser.open(f"{ORIGIN}{BASE}/{path}?resume={resume}").fields


def test_max_age(clock: Clock, browser: Browser, client: RelyingParty, user: User) -> None:
    """oidcc-max-age-1, oidcc-max-age-10000."""
    browser.approve(client)
    clock.move(seconds=5)
    assert browser.authorize(client, max_age="10000").code
    assert "password" in browser.authorize(client, max_age="1").fields
    assert browser.authorize(client, max_age="1", prompt="none").error == "login_required"
    browser.authorize(client, max_age="1")
    clock.move(seconds=30)
    assert browser.sign_in().code


def test_select_account(app: Flask, browser: Browser, client: RelyingParty, user: User) -> None:
    make_user(app, "erin@example.com", name="Erin")
    browser.approve(client)
    page = browser.authorize(client, prompt="select_account")
    assert user.email in page.html
    assert browser.submit(decision="continue").code
    browser.authorize(client, prompt="select_account")
    assert "password" in browser.submit(decision="another").fields
    browser.sign_in("erin@example.com")
    tokens = client.exchange(browser.allow().code).get_json()
    assert client.userinfo(tokens["access_token"]).get_json()["name"] == "Erin"


def test_login_hint(browser: Browser, client: RelyingParty) -> None:
    assert browser.authorize(client, login_hint="x@example.com").fields["email"] == "x@example.com"


def test_id_token_hint(app: Flask, browser: Browser, client: RelyingParty, user: User) -> None:
    make_user(app, "erin@example.com", name="Erin")
    hint = client.exchange(browser.approve(client).code).get_json()["id_token"]
    assert browser.authorize(client, prompt="none", id_token_hint=hint).code
    other = Browser(app)
    other.open(f"{ORIGIN}{BASE}/sign-in")
    other.sign_in("erin@example.com")
    page = other.authorize(client, prompt="none", id_token_hint=hint)
    assert page.error == "login_required"
    assert "password" in other.authorize(client, id_token_hint=hint).fields


@pytest.mark.parametrize("first_party", [False, True])
def test_a_hint_of_another_client_names_nobody_here(
    app: Flask, browser: Browser, client: RelyingParty, user: User, first_party: bool
) -> None:
    hint = client.exchange(browser.approve(client).code).get_json()["id_token"]
    other = make_client(app, first_party=first_party)
    page = browser.authorize(other, id_token_hint=hint)
    assert (page.error, page.parameters["error_description"]) == (
        "invalid_request", "The 'id_token_hint' was issued to another client."
    )  # fmt: skip


def test_claims(app: Flask, browser: Browser, user: User) -> None:
    """OIDC Core §5.5; never beyond the registered scope."""
    client = make_client(app, scope="openid email")
    asked = {
        "userinfo": {"email": {"essential": True}, "name": None},
        "id_token": {"email": None, "name": None, "acr": None, "auth_time": {"essential": True}},
    }
    page = browser.approve(client, scope="openid", claims=json.dumps(asked))
    tokens = client.exchange(page.code).get_json()
    profile = client.userinfo(tokens["access_token"]).get_json()
    assert profile["email"] == user.email
    assert "name" not in profile
    identity = claims_of(tokens["id_token"])
    assert (identity["email"], identity["acr"]) == (user.email, "1")
    assert "name" not in identity


def test_acr_values(browser: Browser, client: RelyingParty, user: User) -> None:
    page = browser.approve(client, acr_values="2 1")
    assert claims_of(client.exchange(page.code).get_json()["id_token"])["acr"] == "1"


def test_form_post(browser: Browser, client: RelyingParty, user: User) -> None:
    page = browser.approve(client, response_mode="form_post", state="\"'<&é ")
    assert page.action == client.redirect_uri
    assert set(page.fields) == {"code", "state", "iss"}
    assert page.fields["state"] == "\"'<&é "
    assert client.exchange(page.fields["code"]).status_code == 200
    page = browser.authorize(client, response_mode="form_post", prompt="none", scope="nonsense")
    assert page.fields["error"] == "invalid_scope"


def back_link(page: Page) -> str:
    """The link of the page about a missing group that leads back to the application."""
    (found,) = re.findall(r'<a class="button primary" href="([^"]+)"', page.html)
    return html.unescape(found)


def test_members_only(app: Flask, browser: Browser, user: User) -> None:
    client = make_client(app, groups=["board"])
    browser.authorize(client)
    page = browser.sign_in()
    assert page.status == 403
    assert "Books" in page.html
    told = {
        "error": "access_denied",
        "error_description": "The user is not in a group that may use this client.",
        "state": "st4te",
        "iss": ISSUER,
    }
    assert browser.open(back_link(page)).parameters == told
    assert browser.authorize(client, prompt="none").parameters == told


def test_who_became_a_member_meanwhile_is_not_turned_away(
    app: Flask, browser: Browser, user: User
) -> None:
    client = make_client(app, groups=["board"], first_party=True)
    browser.authorize(client)
    back = back_link(browser.sign_in())
    with app.app_context():
        found = db.session.get(User, user.id)
        assert found
        found.groups = ["board"]
        db.session.commit()
    assert browser.open(back).code


def test_the_users_own_no_is_told_as_such(app: Flask, browser: Browser, user: User) -> None:
    """At a client with groups, too."""
    client = make_client(app, groups=["staff"])
    with app.app_context():
        found = db.session.get(User, user.id)
        assert found
        found.groups = ["staff"]
        db.session.commit()
    browser.authorize(client)
    browser.sign_in()
    assert browser.deny().parameters["error_description"] == "The user refused."


def test_a_way_back_that_an_older_version_sealed(app: Flask) -> None:
    """And one for an older version, which reads four values."""
    with app.test_request_context():
        for denied, turned_away in ((True, False), (False, True), (False, False)):
            asked = PendingRequest({"a": "b"}, denied=denied, turned_away=turned_away)
            sealed = sign(asked)
            read = verify(sealed)
            assert read
            assert (read.denied, read.turned_away) == (denied, turned_away)
            *_, refusal = pending_request._serializer().loads(sealed)
            assert bool(refusal) == (denied or turned_away)


def test_first_party_is_not_asked(app: Flask, browser: Browser, user: User) -> None:
    client = make_client(app, first_party=True)
    browser.authorize(client)
    assert browser.sign_in().code


def test_require_pkce(app: Flask, browser: Browser) -> None:
    client = make_client(app, require_pkce=True)
    assert browser.authorize(client).error == "invalid_request"


def test_the_error_id_of_the_page_stands_in_the_log(
    browser: Browser, client: RelyingParty, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sso")
    page = browser.authorize(client, client_id="nobody")
    ids = re.findall(r"<code dir=\"ltr\">([0-9a-z]{4}-[0-9a-z]{4})</code>", page.html)
    assert ids == [page.headers["X-Request-ID"]]
    assert f"error page {ids[0]}: 400 {BASE}/oauth2/authorize invalid_client" in caplog.text


def test_redirect_addresses_with_odd_but_legal_characters(
    app: Flask, browser: Browser, user: User
) -> None:
    for address in (
        "http://127.0.0.1:49152/cb", "http://[::1]:1/cb;v=1", "https://books.example:8443/~a/(b)'!",
        "https://books.example/cb?x=%20&y=a+b;c", "com.example.app:/cb", "https://books.example",
    ):  # fmt: skip
        client = make_client(app, redirect_uris=[address], public=not address.startswith("http"))
        page = browser.approve(client)
        separator = "&" if "?" in address else "?"
        assert page.url.startswith(f"{address}{separator}code=")
        assert client.exchange(page.code).status_code == 200


def test_the_page_names_the_application_and_what_is_wrong(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    """Nothing of what is registered, of what was sent, and no command: see `flask explain`."""
    page = browser.authorize(client, redirect_uri="https://books.example/elsewhere")
    assert "<h1>Signing in to Books did not work</h1>" in page.html
    assert "Books wants to send you to an address that is not registered for it." in page.html
    assert "does not match any registered one exactly." in page.html
    for secret in ("callback", "elsewhere", client.client_id, "flask", "--add"):
        assert secret not in page.html
    unknown = browser.authorize(client, client_id="nobody").html
    assert "is not registered here, or has been disabled." in unknown
    app.test_cli_runner().invoke(args=["client", "disable", client.client_id])
    disabled = browser.authorize(client).html
    assert "Books" not in disabled


def test_a_step_sends_an_error_to_the_letter(app: Flask, browser: Browser, user: User) -> None:
    """As to `com.app:///cb`, which has no host."""
    client = make_client(app, redirect_uris=["com.app:///cb"], public=True)
    asked = {
        "client_id": client.client_id, "redirect_uri": "com.app:///cb", "response_type": "token",
    }  # fmt: skip
    with app.test_request_context():
        resume = sign(PendingRequest(asked))
    page = browser.open(f"{ORIGIN}{BASE}/sign-in?resume={resume}")
    assert page.url.startswith("com.app:///cb?error=unsupported_response_type&")
