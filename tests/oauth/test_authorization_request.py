"""Pushed authorization requests (RFC 9126)."""

import json
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso.extensions import db
from sso.flow.refusals import Reason
from sso.jobs import worker
from sso.jobs.upkeep import purge
from sso.models import PushedRequest, User
from sso.oauth import authorization_request
from sso.ratelimit import limiting
from sso.store import redemption
from sso.web.parameters import FORM
from tests.conftest import Clock
from tests.support.actors import Browser, Page, RelyingParty, pkce
from tests.support.events import events
from tests.support.factories import make_client

URI = authorization_request.PREFIX


def bring(browser: Browser, client: RelyingParty, uri: str, **more: str) -> Page:
    """Be sent to the authorization endpoint with a request URI, and nothing else."""
    query = {"client_id": client.client_id, "request_uri": uri, **more}
    return browser.open_authorize(query)


def count(app: Flask) -> int:
    with app.app_context():
        return int(db.session.scalar(select(func.count()).select_from(PushedRequest)) or 0)


def test_a_pushed_request_becomes_a_code(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    verifier, challenge = pkce()
    answer = client.push(
        state="of the push", code_challenge=challenge, code_challenge_method="S256"
    )
    assert answer.status_code == 201
    assert answer.headers["Cache-Control"] == "no-store"
    body = answer.get_json()
    assert body["expires_in"] == 60
    assert body["request_uri"].startswith(URI)
    bring(browser, client, body["request_uri"])
    browser.sign_in()
    page = browser.allow()
    assert page.parameters.keys() == {"code", "state", "iss"}
    assert page.parameters["state"] == "of the push"
    assert client.exchange(page.code, code_verifier=verifier).status_code == 200
    assert all("of+the+push" not in one.request.url for one in browser.history)


def test_only_the_digest_of_the_secret_is_stored(app: Flask, client: RelyingParty) -> None:
    uri = client.push().get_json()["request_uri"]
    with app.app_context():
        row = db.session.scalars(select(PushedRequest)).one()
        assert uri.removeprefix(URI) not in repr(vars(row))
        assert client.client_secret not in row.parameters


def test_what_was_changed_after_pushing_does_not_count(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    uri = client.push(scope="openid").get_json()["request_uri"]
    bring(
        browser,
        client,
        uri,
        scope="openid email",
        state="other",
        redirect_uri="https://evil.example/",
        prompt="none",
        code_challenge="x",
        request="x",
    )
    browser.sign_in()
    page = browser.allow()
    assert page.url.startswith(client.redirect_uri)
    assert page.parameters["state"] == "st4te"
    assert client.exchange(page.code).get_json()["scope"] == "openid"


def test_it_works_once(browser: Browser, client: RelyingParty, user: User) -> None:
    uri = client.push().get_json()["request_uri"]
    # Loading the page, also twice, does not use it up (FAPI 2.0 §5.3.2.2).
    bring(browser, client, uri)
    bring(browser, client, uri)
    browser.sign_in()
    assert browser.allow().code
    again = bring(browser, client, uri)
    assert again.status == 400
    assert "invalid_request_uri" in again.html
    assert "https://books.example/" in again.html  # by the back button: the way on
    assert "settings of the application" not in again.html


def test_two_tabs_finish_the_same_request_once(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    uri = client.push(prompt="consent").get_json()["request_uri"]
    bring(browser, client, uri)
    browser.sign_in()
    waiting = browser.page
    assert browser.allow().code
    second = browser.open(waiting.url)
    assert second.status == 400
    assert "https://books.example/" in second.html  # the way back
    assert "code=" not in second.url


def test_a_refusal_uses_it_up(browser: Browser, client: RelyingParty, user: User) -> None:
    uri = client.push().get_json()["request_uri"]
    bring(browser, client, uri)
    browser.sign_in()
    assert browser.deny().error == "access_denied"
    assert bring(browser, client, uri).status == 400


def test_it_lives_a_minute_and_then_waits_for_the_user(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    first, late = (client.push().get_json()["request_uri"] for _ in range(2))
    clock.move(seconds=59)
    bring(browser, client, first)
    clock.move(seconds=2)
    assert "invalid_request_uri" in bring(Browser(client.app), client, late).html
    clock.move(minutes=50)
    browser.sign_in()
    assert browser.allow().code


def test_it_does_not_wait_for_ever(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    bring(browser, client, client.push().get_json()["request_uri"])
    clock.move(seconds=redemption.PUSHED_WAITS.total_seconds() + 61)
    page = browser.sign_in()
    assert page.status == 400
    assert "https://books.example/" in page.html


@pytest.mark.parametrize("seconds", [-1, 0, 1])
@pytest.mark.parametrize("state", ["pushed", "at a page", "at a page of another version"])
def test_what_it_lives_and_waits_to_the_second(clock: Clock, state: str, seconds: int) -> None:
    """A page of another version, or after another redirect, has noted no moment."""
    expires_at = clock.time + redemption.PUSHED_LIFETIME
    waits_until = clock.time + redemption.PUSHED_WAITS if state == "at a page" else None
    pushed = redemption.Pushed("client", "{}", expires_at, waits_until, None)
    end, reason = expires_at, Reason.EXPIRED
    if state != "pushed":
        end, reason = waits_until or end + redemption.PUSHED_LIFETIME, Reason.WAITED_TOO_LONG
    now = end + timedelta(seconds=seconds)
    refusal = pushed.refusal("client", now, is_waiting=state != "pushed")
    assert refusal == (None if seconds < 0 else reason)


def test_no_page_of_ours_prolongs_the_wait(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """The hour begins with the first page: else whoever keeps reloading keeps the row for ever."""
    bring(browser, client, client.push().get_json()["request_uri"])
    clock.move(minutes=50)
    assert browser.sign_in().status == 200  # the consent page, an answer of the dispatcher again
    clock.move(minutes=9)
    browser.open(browser.page.url)
    clock.move(minutes=2)
    page = browser.allow()
    assert page.status == 400
    assert page.is_at_server


def test_of_another_client(app: Flask, browser: Browser, client: RelyingParty, user: User) -> None:
    uri = client.push().get_json()["request_uri"]
    other = make_client(app, name="Other")
    refused = bring(browser, other, uri)
    assert refused.status == 400
    assert "invalid_request_uri" in refused.html
    assert events(app, "authorization_refused")[-1]["reason"] == "issued to another client"
    assert bring(browser, client, uri).status == 200  # its own client can go on


def test_unknown_request_uris(browser: Browser, client: RelyingParty) -> None:
    for secret in ("", "x", "\0", "é" * 3000, "sso_par_" + "A" * 43):
        page = bring(browser, client, URI + secret)
        assert page.status == 400
        assert "invalid_request_uri" in page.html


def test_a_request_uri_from_elsewhere(browser: Browser, client: RelyingParty) -> None:
    page = browser.authorize(client, request_uri="https://books.example/request.jwt")
    assert page.error == "request_uri_not_supported"


def test_without_client_id(browser: Browser, client: RelyingParty) -> None:
    uri = client.push().get_json()["request_uri"]
    assert browser.open_authorize({"request_uri": uri}).status == 400


def test_by_basic_the_body_need_not_name_the_client(client: RelyingParty) -> None:
    form = client.parameters()
    del form["client_id"]
    assert client.post("/oauth2/par", form, headers=client.basic()).status_code == 201


def test_a_public_client(app: Flask, browser: Browser, user: User) -> None:
    public = make_client(app, public=True, redirect_uris=["https://spa.example/cb"])
    uri = public.push().get_json()["request_uri"]
    bring(browser, public, uri)
    browser.sign_in()
    assert public.exchange(browser.allow().code).status_code == 200


def test_state_comes_back_to_the_letter(browser: Browser, client: RelyingParty, user: User) -> None:
    state = "ü&=+%\n'\"\x00 日本"
    uri = client.push(state=state).get_json()["request_uri"]
    bring(browser, client, uri)
    browser.sign_in()
    assert browser.allow().parameters["state"] == state


BAD: dict[str, tuple[dict[str, str | None], str]] = {
    "request_uri": ({"request_uri": URI + "x"}, "invalid_request"),
    "request_uri from elsewhere": ({"request_uri": "https://a.example"}, "invalid_request"),
    "no redirect_uri": ({"redirect_uri": None}, "invalid_request"),
    "other redirect_uri": ({"redirect_uri": "https://evil.example/"}, "invalid_request"),
    "NUL in redirect_uri": ({"redirect_uri": "https://books.example/\0"}, "invalid_request"),
    "no response_type": ({"response_type": None}, "invalid_request"),
    "token": ({"response_type": "token"}, "unsupported_response_type"),
    "no state": ({"state": None}, "invalid_request"),
    "scope": ({"scope": "unknown"}, "invalid_scope"),
    "plain": ({"code_challenge": "x" * 43, "code_challenge_method": "plain"}, "invalid_request"),
    "challenge": ({"code_challenge": "x", "code_challenge_method": "S256"}, "invalid_request"),
    "prompt": ({"prompt": "never"}, "invalid_request"),
    "max_age": ({"max_age": "-1"}, "invalid_request"),
    "claims": ({"claims": "{"}, "invalid_request"),
    "hint": ({"id_token_hint": "a.b.c"}, "invalid_request"),
    "registration": ({"registration": "{}"}, "registration_not_supported"),
    "NUL in nonce": ({"nonce": "\0"}, "invalid_request"),
    "long nonce": ({"nonce": "x" * 5000}, "invalid_request"),
    "long state": ({"state": "x" * 12_000}, "invalid_request"),
}


def test_bad_input(app: Flask, client: RelyingParty) -> None:
    for name, (more, error) in BAD.items():
        answer = client.push(**more)
        assert answer.status_code == (413 if name == "long state" else 400), name
        assert answer.get_json()["error"] == error, name
        assert answer.get_json()["error_description"], name
        assert "Location" not in answer.headers, name
    assert count(app) == 0
    assert len(events(app, "pushed_request_refused")) == len(BAD)


def test_nothing_is_repeated(client: RelyingParty) -> None:
    form = client.parameters(nonce="n") | client.credentials()
    for name in ("scope", "client_id", "client_secret", "redirect_uri", "nonce", "state"):
        body = urlencode([*form.items(), (name, form[name])])
        answer = client.post("/oauth2/par", body, content_type=FORM)
        assert answer.get_json()["error"] == "invalid_request", name


def test_the_client_is_authenticated(app: Flask, client: RelyingParty) -> None:
    for more in ({"client_secret": "wrong"}, {"client_secret": None}, {"client_id": "unknown"}):
        answer = client.push(**more)
        assert answer.status_code == 401
        assert answer.get_json()["error"] == "invalid_client"
    assert client.post("/oauth2/par?state=x", client.parameters()).status_code == 400
    json_body = client.post("/oauth2/par", json.dumps({}), content_type="application/json")
    assert json_body.get_json()["error"] == "invalid_request"
    assert count(app) == 0


def test_the_server_says_so(app: Flask) -> None:
    document = app.test_client().get("/api/auth/.well-known/openid-configuration").get_json()
    assert document["pushed_authorization_request_endpoint"].endswith("/oauth2/par")
    assert document["require_pushed_authorization_requests"] is False
    assert document["request_uri_parameter_supported"] is False


def test_a_flood_by_one_client_is_bounded(
    app: Flask, client: RelyingParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = limiting.Flooding("pushed_request", account=3, ip_address=1000)
    monkeypatch.setattr(limiting, "PUSHED_REQUEST", few)
    answers = [client.push() for _ in range(5)]
    assert [one.status_code for one in answers] == [201, 201, 201, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert make_client(app, name="Other").push().status_code == 201


def test_a_flood_in_the_name_of_a_public_client_stops_only_its_sender(
    app: Flask, client: RelyingParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone can name a public client, so what is counted is the address, not the client."""
    few = replace(limiting.PUSHED_BY_ANYONE, ip_address=3)
    monkeypatch.setattr(limiting, "PUSHED_BY_ANYONE", few)
    public = make_client(app, name="Public", public=True, redirect_uris=["https://spa.example/cb"])
    answers = [public.push() for _ in range(5)]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    other = make_client(app, name="Other", public=True, redirect_uris=["https://other.example/"])
    assert other.push().status_code == 429
    assert client.push().status_code == 201  # a confidential one has its own budget
    form = public.parameters() | public.credentials()
    elsewhere = {"REMOTE_ADDR": "198.51.100.7"}
    assert public.post("/oauth2/par", form, environ_base=elsewhere).status_code == 201
    assert few.account is None


def test_they_are_purged(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    used = client.push().get_json()["request_uri"]
    bring(browser, client, used)
    browser.sign_in()
    browser.allow()
    with app.app_context():
        (left,) = db.session.scalars(select(PushedRequest.parameters))
    assert json.loads(left) == {"redirect_uri": client.redirect_uri}
    client.push()
    bring(Browser(app), client, client.push().get_json()["request_uri"])
    clock.move(minutes=3)
    with app.app_context():
        job = next(one for one in worker.JOBS if one.seconds == 60)
        assert [job.run(), job.run()] == [2, 0]  # one user is still at the sign-in
    clock.time += redemption.PUSHED_WAITS + timedelta(minutes=2)
    with app.app_context():
        assert purge()["pushed_requests"] == 1
    assert count(app) == 0


def test_a_client_that_has_to_push(app: Flask, browser: Browser, user: User) -> None:
    client = make_client(app, require_pushed_authorization_requests=True)
    refused = browser.authorize(client)
    assert (refused.error, refused.is_at_server) == ("invalid_request", False)
    bring(browser, client, client.push().get_json()["request_uri"])
    browser.sign_in()
    assert browser.allow().code
