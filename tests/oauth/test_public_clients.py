"""Public clients (RFC 6749 §2.1): native, single-page and command-line applications."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select, update

from sso.extensions import db
from sso.models import Client, User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, claims_of
from tests.support.factories import make_client

LOOPBACK, APP, SPA = "http://127.0.0.1/cb", "com.example.app:/cb", "https://app.example/cb"


@pytest.fixture(params=[LOOPBACK, APP, SPA], ids=["loopback", "own scheme", "https"])
def public(app: Flask, request: pytest.FixtureRequest) -> RelyingParty:
    bye = ["com.example.app:///bye" if request.param == APP else f"{request.param}/bye"]
    return make_client(
        app, redirect_uris=[request.param], post_logout_redirect_uris=bye, public=True
    )


def test_the_whole_flow(browser: Browser, public: RelyingParty, user: User) -> None:
    page = browser.approve(public)
    assert page.url.startswith(public.redirect_uri + "?code=")
    assert (page.parameters["state"], page.parameters["iss"]) == ("st4te", ORIGIN + BASE)
    tokens = public.exchange(page.code).get_json()
    assert claims_of(tokens["id_token"])["aud"] == public.client_id
    profile = public.userinfo(tokens["access_token"]).get_json()
    assert (profile["sub"], profile["email"]) == (str(user.id), "dana@example.com")
    renewed = public.refresh(tokens["refresh_token"]).get_json()
    assert renewed["refresh_token"] != tokens["refresh_token"]
    assert public.revoke(renewed["refresh_token"]).status_code == 200
    assert public.userinfo(renewed["access_token"]).status_code == 401
    assert public.refresh(renewed["refresh_token"]).get_json()["error"] == "invalid_grant"


def test_signing_out(app: Flask, browser: Browser, public: RelyingParty, user: User) -> None:
    tokens = public.exchange(browser.approve(public).code).get_json()
    bye = public.redirect_uri + "/bye" if public.redirect_uri != APP else "com.example.app:///bye"
    asked = {
        "id_token_hint": tokens["id_token"], "post_logout_redirect_uri": bye, "state": "s"
    }  # fmt: skip
    answer = browser.http.get(f"{BASE}/oauth2/end-session", query_string=asked, base_url=ORIGIN)
    assert answer.headers["Location"] == f"{bye}?state=s"
    assert public.refresh(tokens["refresh_token"]).status_code == 400


def test_an_access_token_is_revoked_alone(
    browser: Browser, public: RelyingParty, user: User
) -> None:
    tokens = public.exchange(browser.approve(public).code).get_json()
    for _ in range(2):
        assert public.revoke(tokens["access_token"]).status_code == 200
    assert public.userinfo(tokens["access_token"]).status_code == 401
    assert public.refresh(tokens["refresh_token"]).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_any_port_of_loopback(app: Flask, browser: Browser, user: User, host: str) -> None:
    """RFC 8252 §7.3: a native application listens where the system lets it."""
    uri, bye = f"http://{host}:8000/cb?x=1", f"http://{host}/bye"
    public = make_client(app, redirect_uris=[uri], post_logout_redirect_uris=[bye], public=True)
    for port in (":8000", ":49152", ":18000", ""):
        public.redirect_uri = f"http://{host}{port}/cb?x=1"
        page = browser.approve(public)
        assert page.url.startswith(public.redirect_uri + "&code=")
        tokens = public.exchange(page.code, redirect_uri=public.redirect_uri).get_json()
        assert tokens["token_type"] == "Bearer"
    asked = {
        "id_token_hint": tokens["id_token"],
        "post_logout_redirect_uri": f"http://{host}:49152/bye",
    }
    page = browser.open(f"{ORIGIN}{BASE}/oauth2/end-session", query_string=asked)
    assert page.url == f"http://{host}:49152/bye"


def test_the_code_is_bound_to_the_port(app: Flask, browser: Browser, user: User) -> None:
    public = make_client(app, redirect_uris=[LOOPBACK], public=True)
    code = browser.approve(public, redirect_uri="http://127.0.0.1:50000/cb").code
    for wrong in (LOOPBACK, "http://127.0.0.1:50001/cb"):
        assert public.exchange(code, redirect_uri=wrong).get_json()["error"] == "invalid_grant"
    assert public.exchange(code, redirect_uri="http://127.0.0.1:50000/cb").status_code == 200


def test_the_challenge_is_required(browser: Browser, public: RelyingParty, user: User) -> None:
    page = browser.authorize(public, code_challenge=None, code_challenge_method=None)
    assert page.url.startswith(public.redirect_uri)
    assert page.error == "invalid_request"
    assert "code_challenge" in page.parameters["error_description"]


@pytest.mark.parametrize("first_party", [False, True])
@pytest.mark.parametrize("uri", [LOOPBACK, APP])
def test_a_native_redirect_asks_each_time(
    app: Flask, browser: Browser, user: User, uri: str, first_party: bool
) -> None:
    """RFC 8252 §8.6: another program may pose as this one."""
    public = make_client(app, redirect_uris=[uri], first_party=first_party, public=True)
    for _ in range(2):
        assert ("decision", "allow") in _signed_in(browser, public).buttons
        assert browser.allow().code
        assert browser.authorize(public, prompt="none").error == "consent_required"


def test_an_https_redirect_remembers(app: Flask, browser: Browser, user: User) -> None:
    public = make_client(app, redirect_uris=[SPA], public=True)
    assert ("decision", "allow") in _signed_in(browser, public).buttons
    browser.allow()
    assert browser.authorize(public).code
    assert browser.authorize(public, prompt="none").code
    first = make_client(app, redirect_uris=[SPA], first_party=True, public=True)
    assert browser.authorize(first, prompt="none").code


@pytest.mark.parametrize("uris", [(SPA, LOOPBACK), (LOOPBACK, SPA), (SPA, APP), (APP, SPA)])
def test_of_several_redirect_uris_the_one_in_the_request_decides(
    app: Flask, browser: Browser, user: User, uris: tuple[str, str]
) -> None:
    public = make_client(app, redirect_uris=list(uris), public=True)
    for uri in (*uris, *reversed(uris)):
        page = _signed_in(browser, public) if uri == uris[0] else None
        page = browser.authorize(public, redirect_uri=uri)
        is_native = uri != SPA
        if ("decision", "allow") in page.buttons:
            assert ("an application on this device" in page.html) == is_native
            page = browser.allow()
        assert page.url.startswith(uri + "?code=")
        page = browser.authorize(public, redirect_uri=uri, prompt="none")
        assert page.error == ("consent_required" if is_native else None)


def _signed_in(browser: Browser, public: RelyingParty) -> Any:
    page = browser.authorize(public)
    return browser.sign_in() if "password" in page.fields else page


def test_the_page_says_that_a_program_asks(app: Flask, browser: Browser, user: User) -> None:
    for uri, shown in ((APP, "com.example.app"), ("http://127.0.0.1:8000/cb", "127.0.0.1:8000")):
        page = _signed_in(browser, make_client(app, redirect_uris=[uri], public=True))
        assert f"<strong><bdi>{shown}</bdi></strong>" in page.html
        assert "an application on this device" in page.html
    page = _signed_in(browser, make_client(app, redirect_uris=[SPA], public=True))
    assert "on this device" not in page.html


def test_refresh_is_strict(
    clock: Clock, browser: Browser, public: RelyingParty, user: User
) -> None:
    """Without a leeway: nothing but the token says who uses it (RFC 9700 §4.14.2)."""
    first = public.exchange(browser.approve(public).code).get_json()
    second = public.refresh(first["refresh_token"]).get_json()
    assert public.userinfo(second["access_token"]).status_code == 200
    again = public.refresh(first["refresh_token"])
    assert again.get_json()["error"] == "invalid_grant"
    assert public.userinfo(second["access_token"]).status_code == 401
    assert public.refresh(second["refresh_token"]).status_code == 400


def test_a_name_without_a_colon_is_no_basic_credential(public: RelyingParty) -> None:
    """RFC 7617 §2: without the colon, it is not known where the secret would begin."""
    encoded = base64.b64encode(public.client_id.encode()).decode()
    answer = public.post(
        "/oauth2/revoke", {"token": "t"}, headers={"Authorization": f"Basic {encoded}"}
    )
    assert answer.status_code == 401
    assert "can't be decoded" in answer.get_json()["error_description"]


def test_a_public_client_needs_pkce_whatever_its_row_says(
    app: Flask, browser: Browser, public: RelyingParty
) -> None:
    """No command can say so; SQL can."""
    with app.app_context():
        db.session.execute(update(Client).values(require_pkce=False))
        db.session.commit()
    page = browser.authorize(public, code_challenge=None, code_challenge_method=None)
    assert page.error == "invalid_request"


@pytest.mark.parametrize("secret", ["x", " "])
def test_a_secret_that_a_public_client_does_not_have(public: RelyingParty, secret: str) -> None:
    """Whichever way it comes. An empty one is none."""
    form = {"token": "t"}
    answers = [
        public.post("/oauth2/revoke", form, headers=public.basic(secret)),
        public.post("/oauth2/revoke", {**form, "client_id": public.client_id,
                                       "client_secret": secret}),
    ]  # fmt: skip
    for answer in answers:
        assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
    encoded = base64.b64encode(f"{public.client_id}:".encode()).decode()
    empty = public.post("/oauth2/revoke", form, headers={"Authorization": f"Basic {encoded}"})
    assert empty.status_code == 200


def test_a_code_without_a_challenge_is_of_no_use_once_the_client_is_public(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    code = browser.approve(client).code
    with app.app_context():
        row = db.session.scalars(select(Client).where(Client.client_id == client.client_id)).one()
        row.set_client_metadata({**row.client_metadata, "token_endpoint_auth_method": "none"})
        row.secret_digest = ""
        db.session.commit()
    answer = replace(client, client_secret="").exchange(code)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_grant")
    assert "without PKCE" in answer.get_json()["error_description"]
