"""The attacker wants into an application behind a proxy: unseen, or as somebody else."""

from collections.abc import Callable
from urllib.parse import parse_qsl, quote, urlencode

import pytest
from flask import Flask
from sqlalchemy import select

from sso.extensions import db
from sso.flow import scopes
from sso.models import Grant, User
from tests.support.actors import BASE, ISSUER, ORIGIN, Browser
from tests.support.factories import make_api, make_client, make_user
from tests.support.proofs import DPoP
from tests.support.proxied import IDENTITY, WIKI, Proxied, make_proxied


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_TRUSTED_PROXIES="1")


@pytest.fixture
def wiki(app: Flask) -> Proxied:
    return Proxied(app, make_proxied(app, public_paths=["/health", "/static/*"]))


FORGED = {
    "another host": {"X-Forwarded-Host": "evil.example"},
    "its own and another": {"X-Forwarded-Host": "wiki.example.com, evil.example"},
    "a port": {"X-Forwarded-Host": "wiki.example.com:8443"},
    "a user": {"X-Forwarded-Host": "wiki.example.com@evil.example"},
    "a path": {"X-Forwarded-Host": "wiki.example.com/evil"},
    "plain http": {"X-Forwarded-Proto": "http"},
    "no scheme": {"X-Forwarded-Proto": "javascript"},
    "no method": {"X-Forwarded-Method": ""},
    "two methods": {"X-Forwarded-Method": "GET,POST"},
    "no path": {"X-Forwarded-Uri": ""},
    "a whole URL": {"X-Forwarded-Uri": "https://evil.example/"},
    "a long path": {"X-Forwarded-Uri": "/" + "x" * 8000},
}


@pytest.mark.parametrize("headers", FORGED.values(), ids=FORGED.keys())
def test_forged_headers(
    wiki: Proxied, browser: Browser, user: User, headers: dict[str, str]
) -> None:
    wiki.sign_in(browser)
    answer = wiki.ask("/", headers)
    assert answer.status_code == 400
    assert [answer.headers[name] for name in IDENTITY] == [""] * 5
    assert "Location" not in answer.headers
    assert not answer.headers.getlist("Set-Cookie")


def test_headers_that_no_proxy_sent(make_app: Callable[..., Flask]) -> None:
    app = make_app()
    answer = Proxied(app, make_proxied(app)).ask()
    assert answer.status_code == 400
    assert "SSO_TRUSTED_PROXIES" in answer.get_json()["error_description"]


@pytest.mark.parametrize("name", ["rd", "redirect_uri", "return_to", "resume"])
def test_a_page_elsewhere(wiki: Proxied, browser: Browser, user: User, name: str) -> None:
    """No parameter says where to return to, and the path cannot become a host."""
    sent = wiki.ask("/", path=f"?{name}=https://evil.example/")
    assert wiki.ask(wiki.callback(browser, sent)).headers["Location"] == f"{WIKI}/"
    for uri in ("//evil.example/", "/\\evil.example", "/.sso/callback?x"):
        answer = wiki.ask(uri)
        if answer.status_code == 303:
            place = wiki.ask(wiki.callback(browser, answer)).headers
            assert place.get("Location", WIKI).startswith(WIKI)


NEARLY = [
    "/health/", "/health/../admin", "/static/../admin", "/static/%2e%2e/admin",
    "/static/..%2fadmin", "/static/..;/admin", "/static/a%5c..%5cadmin", "/static", "/static/\\x",
    "/static//admin", "/static/./x",
    "/%68ealth", "/HEALTH", "//health", "/static/a%00",
]  # fmt: skip


@pytest.mark.parametrize("uri", NEARLY)
def test_a_path_that_looks_public(wiki: Proxied, uri: str) -> None:
    assert wiki.ask(uri).status_code == 303


def test_the_cookie_of_somebody_else(wiki: Proxied, browser: Browser, user: User) -> None:
    """It is signed, and belongs to one application at one host."""
    wiki.sign_in(browser)
    other = Proxied(wiki.app, make_proxied(wiki.app, name="Other"))
    other.cookies |= wiki.cookies
    assert other.ask().status_code == 303
    name = "sso-session"
    signed = wiki.cookies[name]
    for forged in (signed[:-2], "x" + signed, signed + "x", "", "." * 5000, signed.split(".")[0]):
        wiki.cookies[name] = forged
        assert wiki.ask().status_code == 303


def test_a_sign_in_of_the_attacker(app: Flask, wiki: Proxied, browser: Browser, user: User) -> None:
    """The victim is sent to the attacker's authorization response, to work in his account."""
    make_user(app, "eve@example.com")
    attacker, theirs = Proxied(app, wiki.client_id), Browser(app)
    sent = attacker.ask()
    theirs.open(sent.headers["Location"])
    way = theirs.sign_in("eve@example.com").url.removeprefix(WIKI)
    for victim in (Proxied(app, wiki.client_id), wiki):
        if victim is wiki:
            victim.ask()  # has a secret of its own
        answer = victim.ask(way)
        assert answer.status_code == 400
        assert "sso-session" not in victim.cookies
    assert attacker.ask(way).status_code == 303  # nobody has used it up
    assert attacker.ask().status_code == 200


def test_a_planted_session(app: Flask, wiki: Proxied, browser: Browser, user: User) -> None:
    """The victim begins with the attacker's cookies: the sign-in replaces the ticket, and the
    attacker's remains his own. The secret alone, which both know now, opens nothing."""
    make_user(app, "eve@example.com")
    attacker, theirs = Proxied(app, wiki.client_id), Browser(app)
    way = attacker.ask().headers["Location"]
    theirs.open(way)
    attacker.ask(theirs.sign_in("eve@example.com").url.removeprefix(WIKI))
    planted = dict(attacker.cookies)
    wiki.cookies |= {"sso-browser": planted["sso-browser"]}
    wiki.sign_in(browser)
    assert wiki.cookies["sso-session"] != planted["sso-session"]
    assert wiki.ask().headers["Remote-Email"] == user.email
    assert attacker.ask().headers["Remote-Email"] == "eve@example.com"
    attacker.cookies = {"sso-browser": wiki.cookies["sso-browser"]}
    assert attacker.ask().status_code == 303


@pytest.mark.parametrize("prefix", ["", "__host-", "__Secure-", "_Host-", "__Host--"])
def test_cookies_of_a_neighbour(
    make_app: Callable[..., Flask], wiki: Proxied, browser: Browser, user: User, prefix: str
) -> None:
    """Another host of the domain sets cookies for all of it, but none with the prefix."""
    settings = {"SSO_TRUSTED_PROXIES": "1", "SSO_BASE_URL": f"https://sso.example.com{BASE}"}
    wiki.sign_in(browser)
    own = wiki.cookies
    planted = {f"{prefix}{name}": value for name, value in own.items()}
    safe = Proxied(make_app(**settings), wiki.client_id)
    safe.cookies = {f"__Host-{name}": value for name, value in own.items()}
    assert safe.ask().headers["Remote-Email"] == user.email
    safe.cookies = planted | safe.cookies
    safe.cookies |= {f"{prefix}sso-session": "planted", f"{prefix}sso-browser": "x" * 43}
    assert safe.ask().headers["Remote-Email"] == user.email
    safe.cookies = dict(planted)
    answer = safe.ask()
    assert answer.status_code == 303
    assert safe.cookies["__Host-sso-browser"] not in planted.values()


def test_a_stolen_code(wiki: Proxied, browser: Browser, user: User) -> None:
    """The attacker has the victim's response, and an attempt of his own."""
    way = wiki.callback(browser, wiki.ask())
    attacker = Proxied(wiki.app, wiki.client_id)
    state = attacker.ask().headers["Location"].partition("state=")[2].partition("&")[0]
    code = way.partition("code=")[2].partition("&")[0]
    issuer = way.partition("iss=")[2].partition("&")[0]
    assert attacker.ask(way).status_code == 400
    assert attacker.ask(f"/.sso/callback?code={code}&state={state}&iss={issuer}").status_code == 400
    assert attacker.ask().status_code == 303


def test_a_response_that_names_another_issuer(wiki: Proxied, browser: Browser, user: User) -> None:
    """Or none (RFC 9207), or that comes by another method. None of these uses the code up."""
    way = wiki.callback(browser, wiki.ask())
    path, _, query = way.partition("?")
    rest = urlencode([pair for pair in parse_qsl(query) if pair[0] != "iss"])
    for issuer in ("", "&iss=", f"&iss={quote(ISSUER)}/", f"&iss={quote('https://other.example')}"):
        assert wiki.ask(f"{path}?{rest}{issuer}").status_code == 400
    for method in ("HEAD", "POST"):
        assert wiki.ask(way, method=method).status_code == 400
    assert "sso-session" not in wiki.cookies
    assert wiki.ask(way).status_code == 303


RESPONSES = [
    "", "?code=x", "?state=x&code=x", "?state=x&state=y", "?code=%00&state=%ff", "?" + "a=b&" * 200,
]  # fmt: skip


@pytest.mark.parametrize("query", RESPONSES)
def test_made_up_responses(wiki: Proxied, query: str) -> None:
    wiki.ask()
    assert wiki.ask(f"/.sso/callback{query}").status_code == 400


def test_a_response_is_used_once(wiki: Proxied, browser: Browser, user: User) -> None:
    """Also by its own browser; the session that it gave stays."""
    way = wiki.callback(browser, wiki.ask())
    assert wiki.ask(way, method="HEAD").status_code == 400
    assert wiki.ask(way, method="POST").status_code == 400
    assert wiki.ask(way).status_code == 303
    assert wiki.ask(way).status_code == 400
    assert wiki.ask().status_code == 200


def test_another_state_of_the_same_browser(wiki: Proxied, browser: Browser, user: User) -> None:
    """Each attempt has a verifier of its own."""
    way, other = wiki.callback(browser, wiki.ask("/a")), wiki.ask("/b").headers["Location"]
    state = other.partition("state=")[2].partition("&")[0]
    before = way.partition("state=")[2].partition("&")[0]
    assert wiki.ask(way.replace(before, state)).status_code == 400


DOCS = "https://docs.example.com"


def test_a_response_at_another_host_of_the_application(
    app: Flask, browser: Browser, user: User
) -> None:
    """Though it has the browser's cookies; and the response is not used up."""
    wiki = Proxied(app, make_proxied(app, proxy_urls=[WIKI, DOCS]))
    way = wiki.callback(browser, wiki.ask())
    assert Proxied(app, wiki.client_id, DOCS, dict(wiki.cookies)).ask(way).status_code == 400
    assert wiki.ask(way).status_code == 303


@pytest.mark.parametrize("changed", [{}, {"redirect_uri": f"{DOCS}/.sso/callback"}, {"nonce": "x"}])
def test_a_request_that_was_changed_on_the_way(
    app: Flask, browser: Browser, user: User, changed: dict[str, str]
) -> None:
    """With the right state and challenge, in the right browser."""
    wiki = Proxied(app, make_proxied(app, proxy_urls=[WIKI, DOCS]))
    query = dict(parse_qsl(wiki.ask().headers["Location"].partition("?")[2]))
    browser.open_authorize(query | changed)
    way = browser.sign_in().url.partition("example.com")[2]
    assert way.startswith("/.sso/callback?")
    assert wiki.ask(way).status_code == (400 if changed else 303)


def test_offline_access_outlives_no_session(app: Flask, browser: Browser, user: User) -> None:
    """The person added it to the request."""
    wiki = Proxied(app, make_proxied(app, scope="openid offline_access"))
    query = dict(parse_qsl(wiki.ask().headers["Location"].partition("?")[2]))
    browser.open_authorize(query | {"scope": "openid offline_access", "prompt": "consent"})
    browser.sign_in()
    browser.submit(decision="allow", scope_offline_access="1")
    assert wiki.ask(browser.page.url.removeprefix(WIKI)).status_code == 303
    assert wiki.ask().status_code == 200
    with app.app_context():
        assert scopes.is_offline(db.session.scalars(select(Grant.scope)).one())
    browser.open(f"{BASE}/sign-out")
    browser.submit(decision="sign_out")
    assert wiki.ask().status_code == 303


def test_a_request_that_was_not_made_here(
    app: Flask, wiki: Proxied, browser: Browser, user: User
) -> None:
    """A code for a public client is worth nothing without our verifier, nor with the plain one."""
    wiki.ask()
    for challenge in ({}, {"code_challenge": "x" * 43, "code_challenge_method": "S256"}):
        query = {
            "response_type": "code", "client_id": wiki.client_id, "state": "s", "scope": "openid",
            "redirect_uri": f"{WIKI}/.sso/callback", **challenge,
        }  # fmt: skip
        page = browser.open_authorize(query)
        if "password" in page.fields:
            page = browser.sign_in()
        assert wiki.ask(page.url.removeprefix(WIKI)).status_code == 400


def test_tokens_for_others(app: Flask, browser: Browser, user: User) -> None:
    """Neither for another API, nor a person's who is not in the group, nor one that is bound."""
    wiki = Proxied(app, make_proxied(app, groups=["staff"]))
    make_api(app, WIKI)
    make_api(app, "https://docs.example")
    reader = make_client(app, apis=[WIKI, "https://docs.example"], first_party=True)
    for resource in (WIKI, "https://docs.example"):
        page = browser.approve(reader, resource=resource, scope="openid read")
        token = reader.exchange(page.code).get_json()["access_token"]
        for sent in (token, token[:-2], "x.y.z", ""):
            headers = {"Authorization": f"Bearer {sent}", "Sec-Fetch-Mode": "cors"}
            assert wiki.ask("/", headers).status_code == 401
    make_user(app, "ann@example.com", groups=["staff"])
    member = Browser(app)
    member.authorize(reader, resource=WIKI, scope="openid read")
    token = reader.exchange(member.sign_in("ann@example.com").code).get_json()["access_token"]
    headers = {"Authorization": f"Bearer {token}", "Sec-Fetch-Mode": "cors"}
    assert wiki.ask("/", headers).status_code == 200


def test_a_token_that_is_bound_to_a_key(app: Flask, browser: Browser, user: User) -> None:
    """The proxy passes no proof on, so a stolen one would be as good as any other."""
    wiki = Proxied(app, make_proxied(app))
    reader = make_client(app, apis=[make_api(app, WIKI)], first_party=True)
    page = browser.approve(reader, resource=WIKI, scope="openid read")
    answer = reader.exchange(page.code, DPoP().header())
    assert answer.get_json()["token_type"] == "DPoP"
    token = answer.get_json()["access_token"]
    for scheme in ("Bearer", "DPoP"):
        headers = {"Authorization": f"{scheme} {token}", "Sec-Fetch-Mode": "cors"}
        answer = wiki.ask("/", headers)
        assert (answer.status_code, answer.headers["Remote-User"]) == (401, "")


def test_another_kind_of_client(app: Flask, browser: Browser, user: User) -> None:
    """An ordinary client's grant does not open a proxy's application."""
    plain = make_client(app, public=True, redirect_uris=[f"{WIKI}/.sso/callback"])
    answer = Proxied(app, plain.client_id).ask()
    assert answer.status_code == 400
    assert Proxied(app, "unknown").ask().status_code == 400
    assert app.test_client().get(f"{BASE}/forward-auth/%00", base_url=ORIGIN).status_code == 400


HOSTILE = ("a%00b", "%ff%fe", "%C0%80", "x" * 5000, "%0d%0aX: y", "{{7*7}}")


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_that_no_database_takes(wiki: Proxied, text: str) -> None:
    """Of the client, the path, the callback, the token and the cookies: an error, and no fault."""
    for answer in (
        wiki.ask(client_id=text),
        wiki.ask(path=f"/{text}"),
        wiki.ask(f"/.sso/callback?state={text}&code={text}&iss={ISSUER}"),
        wiki.ask(f"/.sso/callback?error={text}&state={text}&iss={text}"),
        wiki.ask("/", {"Authorization": f"Bearer {text}", "Sec-Fetch-Mode": "cors"}),
        wiki.ask("/", {"Authorization": f"Bearer {text}\u00ff", "Sec-Fetch-Mode": "cors"}),
        wiki.ask("/", {"Cookie": f"sso-session={text}; sso-browser={text}"}),
        wiki.ask("/", {"X-Forwarded-Host": f"{text}.example"}),
        wiki.ask("/", {"X-Forwarded-Proto": text, "X-Forwarded-Method": text}),
        wiki.ask(f"/{text}", {"Referer": text}, method="POST"),
    ):
        assert answer.status_code < 500, answer.request.path
