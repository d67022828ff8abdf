"""RP-Initiated Logout 1.0."""

import html
import shlex
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from flask import Flask

from sso import context
from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty, claims_of
from tests.support.explaining import Explain
from tests.support.factories import make_client, make_user

BYE = "https://books.example/bye?x=1"
END = f"{ORIGIN}{BASE}/oauth2/end-session"
FORM = "application/x-www-form-urlencoded"
ODD = "a b&c=d#e%20f+é\n\"<'>"


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app, post_logout_redirect_uris=[BYE])


def signed_in(browser: Browser) -> bool:
    return browser.open(f"{ORIGIN}{BASE}/account").path.endswith("/account")


def end(browser: Browser, **parameters: str) -> None:
    browser.open(f"{END}?{urlencode(parameters)}")


def send(browser: Browser, method: str, query: str = "", **parameters: str) -> Page:
    """A logout request by a link, or by a form of the client's page."""
    if method == "GET":
        return browser.open(f"{END}?{urlencode(parameters)}")
    return browser.open(END + query, method="POST", data=parameters)


def signed(app: Flask, claims: dict[str, Any]) -> str:
    """An identity token with these claims, signed by the server."""
    with app.app_context():
        return context.key_ring().sign(claims, alg="RS256", typ="JWT")


def test_with_a_hint_of_this_session(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    clock.move(days=2)  # an expired hint counts
    end(browser, id_token_hint=tokens["id_token"], post_logout_redirect_uri=BYE, state="a b")
    assert browser.page.url == BYE + "&state=a%20b"
    assert not signed_in(browser)
    assert client.userinfo(tokens["access_token"]).status_code == 401


def test_without_a_hint_it_asks(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.approve(client)
    end(browser, client_id=client.client_id, post_logout_redirect_uri=BYE, state="s1")
    assert browser.page.status == 200
    assert ("decision", "sign_out") in browser.page.buttons
    assert "Books" in browser.page.html
    assert "mistake" not in browser.page.html
    question = browser.page
    browser.submit(decision="stay")
    assert browser.page.path.endswith("/account")
    assert signed_in(browser)
    browser.page = question
    browser.submit(decision="sign_out")
    assert browser.page.url == BYE + "&state=s1"
    assert not signed_in(browser)


@pytest.mark.parametrize("client_id", ["books", "ook", "Books2", "books2 "])
def test_with_a_hint_of_another_client(
    app: Flask, browser: Browser, user: User, client_id: str
) -> None:
    """However much the names have in common."""
    client = make_client(app, client_id="books2", post_logout_redirect_uris=[BYE])
    if client_id.isalnum():
        make_client(app, client_id=client_id, name="Other", post_logout_redirect_uris=[BYE])
    tokens = client.exchange(browser.approve(client).code).get_json()
    hint = tokens["id_token"]
    end(browser, id_token_hint=hint, client_id=client_id, post_logout_redirect_uri=BYE)
    assert browser.page.is_at_server
    assert signed_in(browser)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_both_methods_alike(app: Flask, client: RelyingParty, user: User, method: str) -> None:
    """A form in a client's page: its body counts as the query does, question and all."""
    for hinted in (True, False):
        browser = Browser(app)
        hint = client.exchange(browser.approve(client).code).get_json()["id_token"]
        named = {"id_token_hint": hint} if hinted else {"client_id": client.client_id}
        send(browser, method, **named, post_logout_redirect_uri=BYE, state=ODD)
        if not hinted:
            assert ("decision", "sign_out") in browser.page.buttons
            browser.submit(decision="sign_out")
        assert browser.page.url.startswith(BYE + "&state=")
        assert browser.page.parameters["state"] == ODD
        assert not signed_in(browser)


def test_parameters_of_query_and_body(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.approve(client)
    send(
        browser,
        "POST",
        f"?client_id={client.client_id}",
        post_logout_redirect_uri=BYE,
        decision="sign_out",  # of no form of ours
    )
    assert ("decision", "sign_out") in browser.page.buttons
    assert browser.submit(decision="sign_out").url == BYE


def test_a_state_that_is_not_utf_8(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.approve(client)
    named = urlencode({"client_id": client.client_id, "post_logout_redirect_uri": BYE})
    body = named + "&state=%FF+%00%0A"
    browser.open(END, method="POST", data=body, content_type=FORM)
    browser.submit(decision="sign_out")
    assert browser.page.url == BYE + "&state=%FF%20%00%0A"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (f"&state=a&state=b&client_id={'x' * 20}", "repeated"),
        ("&client_id=" + "x" * 4097, "longer than 4096"),
        ("&client_id=a%00b", "control characters"),
        ("&client_id=%FF", "not UTF-8"),
    ],
)
def test_parameters_that_cannot_be_read(
    browser: Browser, user: User, method: str, more: str, words: str
) -> None:
    browser.sign_in()
    query = "logout_hint=dana" + more
    if method == "GET":
        page = browser.open(f"{END}?{query}")
    else:
        page = browser.open(END, method="POST", data=query, content_type=FORM)
    assert page.status == 400
    assert words in page.html
    # The person may sign out all the same.
    browser.submit(decision="sign_out")
    assert browser.page.status == 200
    assert not signed_in(browser)


def test_a_request_too_long_for_a_url(browser: Browser, user: User) -> None:
    browser.sign_in()
    body = urlencode({f"p{number}": "x" * 1000 for number in range(9)})
    page = browser.open(END, method="POST", data=body, content_type=FORM)
    assert (page.status, "too long" in page.html) == (400, True)
    assert signed_in(browser)


@pytest.mark.parametrize("hinted", [True, False])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unregistered_address(
    browser: Browser,
    client: RelyingParty,
    user: User,
    explain: Explain,
    method: str,
    hinted: bool,
) -> None:
    """The page says what is wrong; what was sent, and how to register it, is for operators."""
    hint = client.exchange(browser.approve(client).code).get_json()["id_token"]
    named = {"id_token_hint": hint} if hinted else {"client_id": client.client_id}
    wrong = "https://books.example/it's/bye"
    page = send(browser, method, **named, post_logout_redirect_uri=wrong, state="s")
    assert page.status == 400
    assert "Books wants to send you to an address that is not registered for it." in page.html
    assert "does not match any registered one exactly." in html.unescape(page.html)
    assert f"Received: {wrong}" in html.unescape(page.html)
    assert client.client_id not in page.html
    command = shlex.join(
        ["flask", "client", "update", client.client_id, "--add-post-logout-redirect-uri", wrong]
    )
    assert command not in html.unescape(page.html)
    assert f"\n  {command}\n" in explain(page)
    assert '<a class="button" href="https://books.example/">Back to Books</a>' in page.html
    # Nothing ends before the person confirms.
    assert signed_in(browser)
    browser.page = page
    page = browser.submit(decision="sign_out")
    assert page.is_at_server
    assert (page.status, "You are signed out" in page.html) == (200, True)
    assert "Back to Books" in page.html
    assert not signed_in(browser)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("http://books.example/", "plain http"),
        ("https://books.example/\u202eevil", "characters that"),
        ("https://books.example/" + "x" * 3000, "A part of it is not kept here."),
        ("javascript:alert(1)", "runs or reads"),
        ("<script>alert(1)</script>", "characters that"),
    ],
)
def test_an_address_that_cannot_be_registered(
    browser: Browser, client: RelyingParty, user: User, explain: Explain, uri: str, reason: str
) -> None:
    browser.approve(client)
    page = send(browser, "GET", client_id=client.client_id, post_logout_redirect_uri=uri)
    assert page.status == 400
    assert "<script" not in page.html
    text = explain(page)
    assert "What it sends cannot be registered: " in text or "is not kept here" in text
    assert reason in text
    assert "--add-post-logout" not in text
    assert "\u202e" not in text


def test_the_error_is_in_the_log(
    browser: Browser, client: RelyingParty, user: User, caplog: pytest.LogCaptureFixture
) -> None:
    browser.approve(client)
    page = send(browser, "GET", client_id=client.client_id, post_logout_redirect_uri=BYE + "2")
    lines = [r.getMessage() for r in caplog.records if r.name == "sso.errors"]
    (line,) = lines
    error_id = line.split()[2].rstrip(":")
    assert f">{error_id}</code>" in page.html
    (access,) = [r for r in caplog.records if r.name == "sso.access" and hasattr(r, "error")]
    assert access.client == client.client_id  # type: ignore[attr-defined]


HINTS = (
    "of another session",
    "of another user",
    "of an unknown client",
    "another subject",
    "another issuer",
)


@pytest.mark.parametrize("kind", HINTS)
def test_a_hint_that_does_not_name_this_session(
    app: Flask, browser: Browser, client: RelyingParty, user: User, kind: str
) -> None:
    here = client.exchange(browser.approve(client).code).get_json()["id_token"]
    other = Browser(app)
    if kind == "of another session":
        hint = client.exchange(other.approve(client).code).get_json()["id_token"]
    elif kind == "of another user":
        make_user(app, "erin@example.com", name="Erin")
        other.sign_in("erin@example.com")
        hint = client.exchange(other.approve(client).code).get_json()["id_token"]
    else:
        claims = claims_of(here)
        claims |= {
            "of an unknown client": {"aud": "nobody"},
            "another subject": {"sub": str(uuid4())},
            "another issuer": {"iss": "https://before.example"},  # the base URL was changed
        }[kind]
        hint = signed(app, claims)
    end(browser, id_token_hint=hint, post_logout_redirect_uri=BYE)
    assert ("decision", "sign_out") in browser.page.buttons
    is_refused = kind in ("of an unknown client", "another issuer")
    assert browser.page.status == (400 if is_refused else 200)
    assert signed_in(browser)
    end(browser, id_token_hint=here, post_logout_redirect_uri=BYE)  # the near miss
    assert browser.page.url == BYE


def test_a_hint_made_like_ours(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    """The twin of the ones above: what `signed` makes is taken, if it names this session."""
    here = client.exchange(browser.approve(client).code).get_json()["id_token"]
    end(browser, id_token_hint=signed(app, claims_of(here)), post_logout_redirect_uri=BYE)
    assert browser.page.url == BYE


@pytest.mark.parametrize("client_id", ["of another client", "nobody"])
def test_a_hint_of_another_client(
    app: Flask, browser: Browser, client: RelyingParty, user: User, client_id: str
) -> None:
    other = make_client(app, name="Mail", post_logout_redirect_uris=[BYE])
    hint = client.exchange(browser.approve(client).code).get_json()["id_token"]
    named = other.client_id if client_id == "of another client" else client_id
    end(browser, id_token_hint=hint, client_id=named, post_logout_redirect_uri=BYE)
    assert browser.page.status == 400
    assert ("decision", "sign_out") in browser.page.buttons
    question = browser.page
    assert signed_in(browser)
    browser.page = question
    assert browser.submit(decision="sign_out").is_at_server  # an error never redirects (§4)
    assert not signed_in(browser)


def test_an_address_of_another_client(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    other = make_client(app, name="Mail", post_logout_redirect_uris=["https://mail.example/"])
    hint = client.exchange(browser.approve(client).code).get_json()["id_token"]
    for named in ({"client_id": client.client_id}, {"id_token_hint": hint}):
        page = send(browser, "GET", **named, post_logout_redirect_uri="https://mail.example/")
        assert page.status == 400
    page = send(
        browser, "GET", client_id=other.client_id, post_logout_redirect_uri="https://mail.example/"
    )
    assert page.status == 200


@pytest.mark.parametrize("disabled", [True, False])
def test_an_unknown_client(
    app: Flask, browser: Browser, client: RelyingParty, user: User, disabled: bool
) -> None:
    browser.approve(client)
    named = "nobody"
    if disabled:
        app.test_cli_runner().invoke(args=["client", "disable", client.client_id])
        named = client.client_id
    for more in ({}, {"post_logout_redirect_uri": BYE}):
        page = send(browser, "GET", client_id=named, **more)
        assert page.status == 400
        assert "registered and enabled" in page.html
        assert ("decision", "sign_out") in page.buttons
        assert "Books" not in page.html


def test_an_address_of_no_client(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.approve(client)
    page = send(browser, "GET", post_logout_redirect_uri=BYE)
    assert page.status == 400
    assert "needs an id_token_hint or a client_id" in page.html
    assert browser.submit(decision="sign_out").is_at_server
    assert not signed_in(browser)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nobody_is_signed_in(app: Flask, client: RelyingParty, user: User, method: str) -> None:
    earlier = Browser(app)
    hint = client.exchange(earlier.approve(client).code).get_json()["id_token"]
    for named in ({"client_id": client.client_id}, {"id_token_hint": hint}):
        browser = Browser(app)
        page = send(browser, method, **named, post_logout_redirect_uri=BYE, state="s")
        assert page.url == BYE + "&state=s"
        page = send(browser, method, **named, post_logout_redirect_uri=BYE + "2")
        assert page.is_at_server
        assert page.status == 400
        assert "that is not registered for it" in page.html
        assert 'href="https://books.example/"' in page.html
        page = send(browser, method, **named)
        assert (page.status, 'href="https://books.example/"' in page.html) == (200, True)
    assert signed_in(earlier)


def test_two_tabs_that_confirm(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.approve(client)
    for state in ("one", "two"):
        end(browser, client_id=client.client_id, post_logout_redirect_uri=BYE, state=state)
    second = browser.page
    browser.submit(decision="sign_out")
    browser.page = second
    assert browser.submit(decision="sign_out").url == BYE + "&state=two"


@pytest.mark.parametrize("uri", ["com.example.books:/callback", "http://127.0.0.1/callback"])
def test_a_client_without_a_site_of_its_own(
    app: Flask, browser: Browser, user: User, uri: str
) -> None:
    client = make_client(app, redirect_uris=[uri], public=True)
    browser.sign_in()
    page = send(browser, "GET", client_id=client.client_id, post_logout_redirect_uri=BYE)
    assert page.status == 400
    assert "Back to" not in page.html


@pytest.mark.parametrize("is_first", [True, False])
def test_a_client_with_a_site_among_other_addresses(
    app: Flask, browser: Browser, user: User, is_first: bool
) -> None:
    uris = ["https://books.example/callback", "com.example.books:/callback"]
    client = make_client(app, redirect_uris=uris if is_first else uris[::-1], public=True)
    browser.sign_in()
    page = send(browser, "GET", client_id=client.client_id, post_logout_redirect_uri=BYE)
    assert page.status == 400
    assert "Back to" in page.html
    assert 'href="https://books.example/"' in page.html


@pytest.mark.parametrize(
    "more",
    [
        {"post_logout_redirect_uri": "https://evil.example/"},
        {"post_logout_redirect_uri": BYE + "2"},
        {"post_logout_redirect_uri": BYE, "client_id": "nobody"},
    ],
)
def test_an_unregistered_address_never_redirects(
    browser: Browser, client: RelyingParty, user: User, more: dict[str, str]
) -> None:
    hint = client.exchange(browser.approve(client).code).get_json()["id_token"]
    end(browser, id_token_hint=hint, **more)
    assert browser.page.is_at_server


@pytest.mark.parametrize("kind", ["tampered", "access token", "garbage"])
def test_a_bad_hint_never_redirects(
    browser: Browser, client: RelyingParty, user: User, kind: str
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    hints = {"tampered": tokens["id_token"][:-4] + "AAAA", "access token": tokens["access_token"]}
    end(browser, id_token_hint=hints.get(kind, kind), post_logout_redirect_uri=BYE)
    assert browser.page.is_at_server
    assert browser.page.status == 400
    assert signed_in(browser)


def test_nobody_signed_in(browser: Browser) -> None:
    end(browser)
    assert browser.page.status == 200
