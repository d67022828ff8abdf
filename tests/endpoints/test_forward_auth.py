"""Forward auth: an application without a sign-in of its own, behind a proxy that asks."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from flask import Flask
from joserfc import jwt
from joserfc.jwk import KeySet
from werkzeug.test import TestResponse

from sso import audit
from sso.extensions import db
from sso.models import User
from sso.services import accounts, clients
from tests.conftest import Clock, Statements
from tests.support.actors import BASE, ISSUER, ORIGIN, Browser, claims_of, header_of
from tests.support.events import events
from tests.support.exchanges import DOCS, Chain, exchange
from tests.support.factories import make_api, make_attribute, make_client, make_user, rotate
from tests.support.proxied import IDENTITY, WIKI, Proxied, make_proxied
from tests.support.statements import watched


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_TRUSTED_PROXIES="1")


@pytest.fixture
def wiki(app: Flask) -> Proxied:
    return Proxied(app, make_proxied(app))


def change(app: Flask, client_id: str, **fields: Any) -> None:
    with app.app_context():
        clients.change(audit.SYSTEM, client_id, fields)
        db.session.commit()


def test_the_whole_way(app: Flask, wiki: Proxied, browser: Browser, user: User) -> None:
    assert wiki.sign_in(browser, "/page?x=1&y=%2F") == f"{WIKI}/page?x=1&y=%2F"
    answer = wiki.ask("/page?x=1")
    assert (answer.status_code, answer.get_data()) == (200, b"")
    assert {name: answer.headers[name] for name in IDENTITY[:4]} == {
        "Remote-User": str(user.id),
        "Remote-Email": "dana@example.com",
        "Remote-Name": "Dana Demo",
        "Remote-Groups": "",
    }
    assertion = answer.headers["X-Sso-Assertion"]
    keys = app.test_client().get(f"{BASE}/oauth2/jwks").get_json()
    claims = jwt.decode(assertion, KeySet.import_key_set(keys), algorithms=["ES256"]).claims
    assert (claims["iss"], claims["aud"], claims["sub"]) == (ORIGIN + BASE, WIKI, str(user.id))
    assert (claims["exp"] - claims["iat"], claims["email"]) == (60, "dana@example.com")
    assert header_of(assertion)["typ"] == "sso-assertion+jwt"
    assert [event["at"] for event in events(app, "proxy_signed_in")] == [WIKI]


def test_a_proxy_is_told_what_is_not_registered(app: Flask, wiki: Proxied) -> None:
    for proxied, fault in (
        (Proxied(app, "nobody"), "No client with this client_id is registered and enabled."),
        (Proxied(app, make_client(app).client_id), "The client is not registered for a proxy."),
        (Proxied(app, wiki.client_id, "https://wiki.example.org"),
         "The client is not registered for https://wiki.example.org."),
    ):  # fmt: skip
        answer = proxied.ask()
        assert (answer.status_code, answer.get_json()["error_description"]) == (400, fault)


def test_the_cookies(make_app: Callable[..., Flask]) -> None:
    """No other host of the domain can set them, and no script reads them."""
    app = make_app(SSO_TRUSTED_PROXIES="1", SSO_BASE_URL="https://sso.example.com/api/auth")
    answer = Proxied(app, make_proxied(app)).ask()
    [cookie] = answer.headers.getlist("Set-Cookie")
    assert cookie.startswith("__Host-sso-browser=")
    for attribute in ("Secure", "HttpOnly", "Path=/", "SameSite=Lax"):
        assert attribute in cookie.split("; ")
    assert "Domain" not in cookie


def test_many_tabs_share_one_cookie(wiki: Proxied, browser: Browser, user: User) -> None:
    first, second = wiki.ask("/one"), wiki.ask("/two")
    assert not second.headers.getlist("Set-Cookie")
    ways = [wiki.callback(browser, sent) for sent in (first, second)]
    assert [wiki.ask(way).headers["Location"] for way in ways] == [f"{WIKI}/one", f"{WIKI}/two"]
    assert wiki.ask().status_code == 200


CALLS = {
    "fetch": {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
    "image": {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    "frame": {"Sec-Fetch-Dest": "iframe"},
    "websocket": {"Sec-Fetch-Mode": "websocket", "Upgrade": "websocket"},
    "event stream": {"Sec-Fetch-Mode": "cors", "Accept": "text/event-stream"},
    "range": {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "video", "Range": "bytes=0-"},
    "old ajax": {"Sec-Fetch-Mode": "", "X-Requested-With": "XMLHttpRequest"},
    "program": {"Sec-Fetch-Mode": "", "Accept": "*/*"},
}


@pytest.mark.parametrize("headers", CALLS.values(), ids=CALLS.keys())
def test_what_is_no_navigation_gets_401(
    wiki: Proxied, browser: Browser, user: User, headers: dict[str, str]
) -> None:
    answer = wiki.ask("/feed", headers)
    assert (answer.status_code, answer.get_json()["error"]) == (401, "login_required")
    assert not answer.headers.getlist("Set-Cookie")
    wiki.sign_in(browser)
    assert wiki.ask("/feed", headers).status_code == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND"])
def test_other_methods(wiki: Proxied, browser: Browser, user: User, method: str) -> None:
    """A CORS preflight has no cookies; Envoy asks with the method itself."""
    preflight = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "PUT"}
    answer = wiki.ask("/", preflight, method=method)
    assert answer.status_code == 401
    assert "Access-Control-Allow-Origin" not in answer.headers
    wiki.sign_in(browser)
    assert wiki.ask("/", method=method).status_code == 200
    assert wiki.ask("/", method=method, path="/a/b?c=d").status_code == 200


def test_a_websocket(wiki: Proxied, browser: Browser, user: User) -> None:
    """Caddy asks with all headers of the handshake."""
    handshake = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Fetch-Mode": "websocket"}
    for headers in (handshake, handshake | {"Sec-Fetch-Mode": ""}):
        assert wiki.ask("/socket", headers).status_code == 401
    wiki.sign_in(browser)
    assert wiki.ask("/socket", handshake).status_code == 200


APPENDED = [
    "/",
    "/a/b?c=d",
    "//a",
    "/a//b/",
    "/../x",
    "/%2e%2e%2fx",
    "/%00",
    "/%ff",
    "/?answer=status",
]


@pytest.mark.parametrize("prefix", ["", "?path="])
@pytest.mark.parametrize("appended", APPENDED)
def test_envoy_appends_what_is_asked_for(
    wiki: Proxied, browser: Browser, user: User, prefix: str, appended: str
) -> None:
    """With the prefix of our preset, no query makes it answer as for nginx."""
    answer = wiki.ask("/page", path=prefix + appended)
    is_for_nginx = prefix + appended == "/?answer=status"
    assert answer.status_code == (401 if is_for_nginx else 303)
    wiki.sign_in(browser)
    assert wiki.ask("/page", path=prefix + appended).status_code == 200


def test_head(wiki: Proxied, browser: Browser, user: User) -> None:
    assert wiki.ask("/page", method="HEAD").status_code == 303
    wiki.sign_in(browser)
    assert wiki.ask("/page", method="HEAD").status_code == 200


def test_nginx_gets_a_status(wiki: Proxied, browser: Browser, user: User) -> None:
    answer = wiki.ask("/page", path="?answer=status")
    assert (answer.status_code, answer.headers.getlist("Set-Cookie")) == (401, [])
    wiki.sign_in(browser)
    assert wiki.ask("/page", path="?answer=status").status_code == 200


@pytest.mark.parametrize(
    ("referrer", "back"),
    [(f"{WIKI}/form?id=7", "/form?id=7"), ("https://evil.example/x", "/"), ("", "/")],
)
def test_a_form_is_not_sent_again(
    wiki: Proxied, browser: Browser, user: User, referrer: str, back: str
) -> None:
    """The person returns to the page with the form, if the application says which it was."""
    sent = wiki.ask("/delete-everything", {"Referer": referrer}, method="POST")
    assert sent.status_code == 303  # the browser goes on with GET
    answer = wiki.ask(wiki.callback(browser, sent))
    assert (answer.status_code, answer.headers["Location"]) == (303, WIKI + back)


def end_session(app: Flask, browser: Browser, wiki: Proxied, user: User) -> None:
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")


def disable_user(app: Flask, browser: Browser, wiki: Proxied, user: User) -> None:
    with app.app_context():
        accounts.disable(audit.SYSTEM, db.session.merge(user))
        db.session.commit()


def lose_group(app: Flask, browser: Browser, wiki: Proxied, user: User) -> None:
    change(app, wiki.client_id, groups=["editors"])


def require_factor(app: Flask, browser: Browser, wiki: Proxied, user: User) -> None:
    change(app, wiki.client_id, require_mfa=True)


def remove_host(app: Flask, browser: Browser, wiki: Proxied, user: User) -> None:
    change(app, wiki.client_id, proxy_urls=["https://other.example.com"])


def disable_client(app: Flask, browser: Browser, wiki: Proxied, user: User) -> None:
    with app.app_context():
        clients.disable(audit.SYSTEM, wiki.client_id)
        db.session.commit()


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (end_session, 303), (disable_user, 303), (lose_group, 303), (require_factor, 303),
        (remove_host, 400), (disable_client, 400),
    ],
)  # fmt: skip
def test_what_shuts_a_person_out(
    app: Flask, wiki: Proxied, browser: Browser, user: User, cause: Callable[..., None], status: int
) -> None:
    """At the next request, whatever the browser still has."""
    wiki.sign_in(browser)
    assert wiki.ask().status_code == 200
    cause(app, browser, wiki, user)
    answer = wiki.ask()
    assert answer.status_code == status
    assert [answer.headers[name] for name in IDENTITY] == [""] * 5


def test_a_host_that_is_removed_during_the_sign_in(
    app: Flask, wiki: Proxied, browser: Browser, user: User
) -> None:
    back = wiki.callback(browser, wiki.ask("/page"))
    remove_host(app, browser, wiki, user)
    answer = wiki.ask(back)
    assert answer.status_code == 400
    assert wiki.cookies.keys() == {"__Host-sso-browser"} or "sso-session" not in str(wiki.cookies)
    assert events(app, "proxy_signed_in") == []
    change(app, wiki.client_id, proxy_urls=[WIKI])
    assert wiki.ask(back).status_code == 303  # the code was not used


def test_a_code_that_is_redeemed_twice_at_once(
    app: Flask, wiki: Proxied, browser: Browser, user: User
) -> None:
    """The second request comes between the first one's look at the code and its use."""
    back = wiki.callback(browser, wiki.ask("/page"))
    other = Proxied(app, wiki.client_id, cookies=dict(wiki.cookies))
    answers: list[TestResponse] = []
    second = Thread(target=lambda: answers.append(other.ask(back)))

    def overtake(statement: str, _: Any) -> None:
        if "UPDATE AUTHORIZATION_CODES" in statement.upper() and not second.ident:
            second.start()
            second.join(5)

    with app.app_context():
        engine = db.engine
    with watched(engine, overtake):
        answers.append(wiki.ask(back))
        second.join()
    assert sorted(answer.status_code for answer in answers) == [303, 400]
    assert sorted([wiki.ask().status_code, other.ask().status_code]) == [200, 303]
    assert len(events(app, "proxy_signed_in")) == 1


def test_a_session_ends_by_itself(
    wiki: Proxied, browser: Browser, user: User, clock: Clock
) -> None:
    wiki.sign_in(browser)
    clock.move(days=15)
    assert wiki.ask().status_code == 303


def test_the_page_about_a_missing_group(app: Flask, browser: Browser, user: User) -> None:
    wiki = Proxied(app, make_proxied(app, groups=["editors"]))
    browser.open(wiki.ask("/page").headers["Location"])
    assert "Wiki" in browser.sign_in().html
    assert browser.page.is_at_server


def test_signing_out_of_the_application(wiki: Proxied, browser: Browser, user: User) -> None:
    wiki.sign_in(browser)
    answer = wiki.ask("/.sso/sign-out")
    assert answer.status_code == 303
    assert wiki.ask().status_code == 303
    browser.open(answer.headers["Location"])
    assert browser.submit(decision="sign_out").url == f"{WIKI}/"
    assert browser.open(wiki.ask().headers["Location"]).fields.keys() >= {"password"}


def test_a_refusal_is_told_on_a_page(app: Flask, browser: Browser, user: User) -> None:
    """Who refuses to share comes back with an error."""
    wiki = Proxied(app, make_proxied(app, first_party=False))
    browser.open(wiki.ask().headers["Location"])
    browser.sign_in()
    way = browser.deny().url.removeprefix(WIKI)
    answer = wiki.ask(way)
    assert (answer.status_code, answer.mimetype) == (403, "text/html")
    page = answer.get_data(as_text=True)
    assert "was not allowed to see who you are" in page
    assert "cookies" not in page
    sent = wiki.ask()
    assert sent.status_code == 303
    state = parse_qs(urlsplit(sent.headers["Location"]).query)["state"][0]
    for error, text in (("temporarily_unavailable", "Wait a few seconds"), (None, "Allow cookies")):
        query = {"state": state, "iss": ISSUER, **({"error": error} if error else {"code": "x"})}
        answer = wiki.ask(f"/.sso/callback?{urlencode(query)}")
        assert answer.status_code == (403 if error else 400)
        page = answer.get_data(as_text=True)
        assert (text in page, "Error ID" in page) == (True, True)


def test_groups(app: Flask, browser: Browser) -> None:
    user = make_user(app, groups=["staff", "wiki"], name="Zoë Ångström")
    wiki = Proxied(app, make_proxied(app, groups=["staff"]))
    wiki.sign_in(browser)
    headers = wiki.ask().headers
    assert headers["Remote-Groups"] == "staff,wiki"
    assert headers["Remote-Name"].encode("latin-1").decode() == "Zoë Ångström"
    assert sorted(claims_of(headers["X-Sso-Assertion"])["groups"]) == ["staff", "wiki"]
    assert headers["Remote-User"] == str(user.id)


def test_own_claims_fit_in_a_header(app: Flask, browser: Browser) -> None:
    """Otherwise nginx would answer 502: it takes 4 or 8 KiB of headers."""
    make_attribute(app, "notes", "list")
    make_user(app, attributes={"notes": [f"{n:03}" + "x" * 150 for n in range(50)]})
    own = ["notes=attribute:notes", "tenant=constant:acme"]
    wiki = Proxied(app, make_proxied(app, own_claims=own))
    wiki.sign_in(browser)
    claims = claims_of(wiki.ask().headers["X-Sso-Assertion"])
    assert "notes" not in claims
    assert claims["tenant"] == "acme"


def test_an_unverified_address_is_no_header(app: Flask, browser: Browser) -> None:
    make_user(app, email_verified=False)
    wiki = Proxied(app, make_proxied(app))
    wiki.sign_in(browser)
    assert wiki.ask().headers["Remote-Email"] == ""


PUBLIC = [("/health", 200), ("/static/a.css", 200), ("/health?x", 200), ("/health/x", 303)]


@pytest.mark.parametrize(("uri", "status"), PUBLIC)
def test_public_paths(app: Flask, uri: str, status: int) -> None:
    wiki = Proxied(app, make_proxied(app, public_paths=["/health", "/static/*"]))
    answer = wiki.ask(uri)
    assert answer.status_code == status
    assert [answer.headers[name] for name in IDENTITY] == [""] * 5


def test_several_hosts(app: Flask, browser: Browser, user: User) -> None:
    """A session at one of them is none at another."""
    docs = "https://docs.example.com"
    client_id = make_proxied(app, proxy_urls=[WIKI, docs])
    wiki, other = Proxied(app, client_id), Proxied(app, client_id, docs)
    wiki.sign_in(browser)
    other.cookies |= wiki.cookies
    assert other.ask().status_code == 303
    assert other.sign_in(browser, "/x") == f"{docs}/x"
    assert other.ask().status_code == 200


@pytest.fixture
def bot(app: Flask) -> str:
    """The access token of a service for the application."""
    make_api(app, WIKI)
    service = make_client(
        app, redirect_uris=[], grant_types=["client_credentials"], apis=[f"{WIKI}=read"]
    )
    form = {"grant_type": "client_credentials", "resource": WIKI, **service.credentials()}
    token: str = service.post("/oauth2/token", form).get_json()["access_token"]
    return token


def test_machines(app: Flask, wiki: Proxied, bot: str) -> None:
    answer = wiki.ask("/api", {"Authorization": f"Bearer {bot}", "Sec-Fetch-Mode": "cors"})
    assert answer.status_code == 200
    subject = claims_of(bot)["sub"]
    assert (answer.headers["Remote-User"], answer.headers["Remote-Email"]) == (subject, "")
    assert claims_of(answer.headers["X-Sso-Assertion"])["scope"] == "read"


@pytest.mark.parametrize("kind", ["own", "exchanged"])
def test_a_persons_token_is_held_to_the_groups_of_the_application(
    app: Flask, wiki: Proxied, browser: Browser, user: User, kind: str
) -> None:
    chain = Chain(app, browser)
    make_api(app, WIKI)
    change(app, chain.docs.client_id, apis=[WIKI])
    change(app, chain.books.client_id, apis=[DOCS, WIKI])
    if kind == "own":
        token = chain.books.exchange(
            browser.approve(chain.books, resource=WIKI, scope="openid read").code
        ).get_json()["access_token"]
    else:
        token = exchange(chain.docs, chain.subject, resource=WIKI).get_json()["access_token"]
    headers = {"Authorization": f"Bearer {token}", "Sec-Fetch-Mode": "cors"}
    assert wiki.ask("/api", headers).headers["Remote-User"] == str(user.id)
    for fields in ({"groups": ["staff"]}, {"groups": [], "require_mfa": True}):
        change(app, wiki.client_id, **fields)
        answer = wiki.ask("/api", headers)
        assert (answer.status_code, answer.headers["Remote-User"]) == (401, "")


def test_a_check_is_one_statement_and_no_write(
    app: Flask,
    wiki: Proxied,
    browser: Browser,
    user: User,
    statements: Callable[[], AbstractContextManager[Statements]],
) -> None:
    wiki.sign_in(browser)
    wiki.ask()
    with statements() as run:
        assert wiki.ask("/page").status_code == 200
    assert len(run) == 1, run
    assert run[0].startswith("SELECT")
    assert not run.commits


def test_the_token_endpoint_refuses_it(
    app: Flask, wiki: Proxied, browser: Browser, user: User
) -> None:
    code = wiki.callback(browser, wiki.ask()).partition("code=")[2].partition("&")[0]
    form = {
        "grant_type": "authorization_code", "code": code, "client_id": wiki.client_id,
        "redirect_uri": f"{WIKI}/.sso/callback", "code_verifier": "x" * 43,
    }  # fmt: skip
    answer = app.test_client().post(f"{BASE}/oauth2/token", data=form)
    assert answer.get_json()["error"] == "unauthorized_client"


def test_an_assertion_serves_a_page_and_no_longer(
    app: Flask, wiki: Proxied, browser: Browser, user: User, clock: Clock
) -> None:
    """It is signed again after 15 seconds, and at once when it would say something else."""

    def assertion() -> str:
        return wiki.ask().headers["X-Sso-Assertion"]

    clock.stand_still()
    clock.move(minutes=1)
    wiki.sign_in(browser)
    clock.move(seconds=15)
    first = assertion()
    issued = int(claims_of(first)["iat"])
    clock.move(seconds=14 - (int(clock.now().timestamp()) - issued))
    assert assertion() == first
    clock.move(seconds=1)
    later = assertion()
    assert (later != first, claims_of(later)["iat"]) == (True, issued + 15)
    with app.app_context():
        account = db.session.get_one(User, user.id)
        accounts.update(audit.SYSTEM, account.id, name="Dana Renamed")
        db.session.commit()
    assert claims_of(assertion())["name"] == "Dana Renamed"
    with app.app_context():
        rotate(app.config["SECRET_KEY"], force=True)
        db.session.commit()
    clock.move(seconds=20)  # until every process knows the key
    assert header_of(assertion())["kid"] != header_of(later)["kid"]


def test_an_assertion_is_not_older_than_its_sign_in(
    wiki: Proxied, browser: Browser, user: User, clock: Clock
) -> None:
    clock.stand_still()
    clock.move(seconds=7)
    wiki.sign_in(browser)
    claims = claims_of(wiki.ask().headers["X-Sso-Assertion"])
    assert claims["iat"] == claims["auth_time"] == int(clock.now().timestamp())
    assert claims["exp"] == claims["iat"] + 60


@pytest.mark.parametrize("path", ["/", "/health"])
def test_an_answer_to_a_proxy_is_no_page(
    app: Flask, browser: Browser, user: User, path: str
) -> None:
    """What pages have would cost a fifth of the request."""
    wiki = Proxied(app, make_proxied(app, public_paths=["/health"]))
    if path == "/":
        wiki.sign_in(browser)
    answer = wiki.ask(path)
    assert (answer.status_code, answer.mimetype) == (200, "text/plain")
    assert "Content-Security-Policy" not in answer.headers
