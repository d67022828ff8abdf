"""Single logout: one person's sign-out ends the session here and at service providers."""

import base64
import re
import zlib
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask
from lxml import etree

from sso.extensions import db
from sso.oauth import saml_logout
from sso.saml import sent
from sso.saml.bindings import redirect_signature, verify_redirect
from sso.saml.documents import NAMESPACES, new_id, timestamp
from sso.saml.provider_metadata import certificates
from tests.conftest import Clock
from tests.support.actors import BASE, ISSUER, ORIGIN, Browser
from tests.support.factories import make_client, make_user
from tests.support.saml import (
    ENTITY_ID,
    SLO_URL,
    Answer,
    Pair,
    ServiceProvider,
    make_service_provider,
    pair,
    query,
)
from tests.support.saml import certificates as ours

LOGOUT_URL = "https://wiki.example/saml/slo?x=1"
OTHER_LOGOUT = "https://crm.example/slo"
ACCOUNT = f"{ORIGIN}{BASE}/account"


@pytest.fixture
def wiki(app: Flask, clock: Clock) -> ServiceProvider:
    make_user(app)
    return make_service_provider(
        app, first_party=True, saml_certificates=pair().certificate, saml_logout_url=LOGOUT_URL
    )


@pytest.fixture
def crm(app: Flask, clock: Clock) -> ServiceProvider:
    return make_service_provider(
        app, first_party=True, saml_logout_url=OTHER_LOGOUT,
        saml_entity_id="https://crm.example", saml_acs_urls=["https://crm.example/acs"],
    )  # fmt: skip


def logout_request(answer: Answer, issuer: str = ENTITY_ID, name_id: str = "", **more: str) -> str:
    index = answer.root.find(".//{*}AuthnStatement").get("SessionIndex")
    values = {
        "ID": new_id(),
        "Version": "2.0",
        "IssueInstant": more.pop("at", ""),
        "Destination": SLO_URL,
        **more,
    }
    text = " ".join(f'{name}="{value}"' for name, value in values.items())
    return (
        f'<samlp:LogoutRequest xmlns:samlp="{NAMESPACES["samlp"]}" '
        f'xmlns:saml="{NAMESPACES["saml"]}" {text}><saml:Issuer>{issuer}</saml:Issuer>'
        f"<saml:NameID>{name_id or answer.name_id}</saml:NameID>"
        f"<samlp:SessionIndex>{index}</samlp:SessionIndex></samlp:LogoutRequest>"
    )


def message(app: Flask, url: str) -> Any:
    """The message in a URL, after its signature was verified."""
    raw = urlsplit(url).query.encode()
    name = "SAMLRequest" if b"SAMLRequest=" in raw else "SAMLResponse"
    parts = b"&".join(part for part in raw.split(b"&") if part != b"x=1")
    signature = redirect_signature(parts, name)
    assert signature
    verify_redirect(signature, certificates("".join(ours(app))))
    data = base64.b64decode(parse_qs(raw.decode())[name][0])
    return etree.fromstring(zlib.decompress(data, -15))


def response_to(
    request: Any, issuer: str, code: str = "Success", by: Pair | None = None, to: str = ""
) -> str:
    xml = (
        f'<samlp:LogoutResponse xmlns:samlp="{NAMESPACES["samlp"]}" '
        f'xmlns:saml="{NAMESPACES["saml"]}" ID="{new_id()}" Version="2.0" '
        f'Destination="{SLO_URL}" '
        f'InResponseTo="{to or request.get("ID")}"><saml:Issuer>{issuer}</saml:Issuer>'
        "<samlp:Status>"
        f'<samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:{code}"/></samlp:Status>'
        "</samlp:LogoutResponse>"
    )
    return f"{SLO_URL}?{query(xml, name='SAMLResponse', signed_by=by)}"


def next_of(html: str) -> str:
    match = re.search(r'content="0;url=([^"]*)"', html)
    assert match, html
    return unescape(match[1])


def is_signed_in(browser: Browser) -> bool:
    return "/sign-in" not in browser.open(ACCOUNT).url


def test_a_service_provider_signs_out(app: Flask, clock: Clock, wiki: ServiceProvider) -> None:
    browser = Browser(app)
    answer = wiki.sign_on(browser)
    xml = logout_request(answer, at=timestamp(clock.now()))
    page = browser.open(f"{SLO_URL}?{query(xml, 'back', signed_by=pair())}")
    assert page.url.startswith(LOGOUT_URL + "&SAMLResponse=")
    assert parse_qs(urlsplit(page.url).query)["RelayState"] == ["back"]
    root = message(app, page.url)
    assert root.find(".//{*}StatusCode").get("Value").endswith(":Success")
    assert root.get("InResponseTo") == etree.fromstring(xml).get("ID")
    assert len(root.findall(".//{*}StatusCode")) == 1
    assert not is_signed_in(browser)


@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("is_among_them", [True, False])
def test_a_logout_request_that_names_sessions(
    app: Flask, clock: Clock, wiki: ServiceProvider, others: int, is_among_them: bool
) -> None:
    """All of them are another browser's, or one of them is this one's."""
    browser = Browser(app)
    xml = logout_request(wiki.sign_on(browser), at=timestamp(clock.now()))
    (own,) = re.findall("<samlp:SessionIndex>.*?</samlp:SessionIndex>", xml)
    named = "".join(f"<samlp:SessionIndex>_{n}</samlp:SessionIndex>" for n in range(others))
    xml = xml.replace(own, named + (own if is_among_them else ""))
    browser.open(f"{SLO_URL}?{query(xml, signed_by=pair())}")
    assert is_signed_in(browser) is not is_among_them


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("has_session", [True, False])
def test_a_logout_request_that_names_a_session_of_another_client(
    app: Flask, clock: Clock, with_index: bool, has_session: bool
) -> None:
    """Both know the person by the same NameID; each ends what it began itself."""
    make_user(app, email_verified=True)
    wiki = make_service_provider(
        app, first_party=True, saml_certificates=pair().certificate, saml_name_id="email"
    )
    crm = make_service_provider(
        app, first_party=True, saml_name_id="email", saml_entity_id="https://crm.example",
        saml_acs_urls=["https://crm.example/acs"],
    )  # fmt: skip
    browser = Browser(app)
    theirs = crm.sign_on(browser)
    if has_session:
        assert wiki.sign_on(browser).name_id == theirs.name_id
    xml = logout_request(theirs, at=timestamp(clock.now()))  # of the wiki, with the index of crm
    if not with_index:
        xml = re.sub("<samlp:SessionIndex>.*</samlp:SessionIndex>", "", xml)
    browser.open(f"{SLO_URL}?{query(xml, signed_by=pair())}")
    ends = has_session and not with_index
    assert is_signed_in(browser) is not ends


def test_a_signature_that_nothing_verifies_signs_nobody_out(app: Flask, clock: Clock) -> None:
    """A client without a certificate cannot sign, whatever it sends: the person is asked."""
    make_user(app)
    wiki = make_service_provider(app, first_party=True)
    browser = Browser(app)
    xml = logout_request(wiki.sign_on(browser), at=timestamp(clock.now()))
    page = browser.open(f"{SLO_URL}?{query(xml, signed_by=pair())}")
    assert "sign-out" in page.url
    assert is_signed_in(browser)


@pytest.mark.parametrize(("late", "is_taken"), [(-1, True), (0, False), (1, False)])
def test_when_a_logout_request_ends(
    app: Flask, clock: Clock, wiki: ServiceProvider, late: int, is_taken: bool
) -> None:
    """At its NotOnOrAfter, and the difference that clocks may have."""
    browser = Browser(app)
    answer = wiki.sign_on(browser)
    clock.stand_still()
    ends = timestamp(clock.now() - sent.SKEW - timedelta(seconds=late))
    xml = logout_request(answer, at=timestamp(clock.now()), NotOnOrAfter=ends)
    clock.time = clock.time.replace(microsecond=0)
    page = browser.open(f"{SLO_URL}?{query(xml, signed_by=pair())}")
    assert page.url.startswith(LOGOUT_URL) is is_taken
    assert is_signed_in(browser) is not is_taken


def test_how_long_the_answer_may_take(app: Flask, clock: Clock, wiki: ServiceProvider) -> None:
    """To a service provider that began, after all others were asked."""
    clock.stand_still()
    clock.time = began = clock.time.replace(microsecond=0)
    for late, is_sent in ((-1, True), (0, True), (1, False)):
        clock.time = began
        with app.test_request_context():
            url = saml_logout.finish_url(wiki.client_id, "_1", None)
            clock.time = began + timedelta(minutes=15, seconds=late)
            answer = saml_logout.finish(db.session.connection(), url.partition("finish=")[2])
            assert (answer is not None) is is_sent, late


def test_a_sign_out_reaches_every_service_provider(
    app: Flask, clock: Clock, wiki: ServiceProvider, crm: ServiceProvider
) -> None:
    browser = Browser(app)
    answer = wiki.sign_on(browser)
    other = crm.sign_on(browser)
    xml = logout_request(answer, at=timestamp(clock.now()))
    page = browser.open(f"{SLO_URL}?{query(xml, signed_by=pair())}")
    url = next_of(page.html)
    assert url.startswith(OTHER_LOGOUT)
    asked = message(app, url)
    assert asked.find("{*}NameID").text == other.name_id
    page = browser.open(response_to(asked, "https://crm.example"))
    assert page.url.startswith(LOGOUT_URL)
    assert len(message(app, page.url).findall(".//{*}StatusCode")) == 1
    assert not is_signed_in(browser)


@pytest.mark.parametrize(("code", "to"), [("Responder", ""), ("Success", "_another")])
def test_who_stays_signed_in_is_told_as_partial(
    app: Flask, clock: Clock, wiki: ServiceProvider, crm: ServiceProvider, code: str, to: str
) -> None:
    """Also if the answer is to another request than ours."""
    browser = Browser(app)
    answer = wiki.sign_on(browser)
    crm.sign_on(browser)
    xml = logout_request(answer, at=timestamp(clock.now()))
    page = browser.open(f"{SLO_URL}?{query(xml, signed_by=pair())}")
    asked = message(app, next_of(page.html))
    page = browser.open(response_to(asked, "https://crm.example", code, to=to))
    codes = message(app, page.url).findall(".//{*}StatusCode")
    assert codes[-1].get("Value").endswith(":PartialLogout")


def test_a_sign_out_by_openid_connect_ends_both(
    app: Flask, clock: Clock, wiki: ServiceProvider
) -> None:
    books = make_client(
        app, first_party=True, post_logout_redirect_uris=["https://books.example/bye"]
    )
    browser = Browser(app)
    wiki.sign_on(browser)
    tokens = books.exchange(browser.authorize(books).code).get_json()
    page = browser.open(
        f"{ISSUER}/oauth2/end-session?id_token_hint={tokens['id_token']}"
        "&post_logout_redirect_uri=https://books.example/bye&state=x"
    )
    asked = message(app, next_of(page.html))
    page = browser.open(response_to(asked, ENTITY_ID, by=pair()))
    assert page.url == "https://books.example/bye?state=x"
    assert not is_signed_in(browser)


def test_a_service_provider_without_a_logout_url_signs_out_too(app: Flask, clock: Clock) -> None:
    """There is nowhere to send the answer; the person stays here."""
    make_user(app)
    wiki = make_service_provider(app, first_party=True, saml_certificates=pair().certificate)
    browser = Browser(app)
    xml = logout_request(wiki.sign_on(browser), at=timestamp(clock.now()))
    page = browser.open(f"{SLO_URL}?{query(xml, signed_by=pair())}")
    assert (page.status, page.is_at_server) == (200, True)
    assert not is_signed_in(browser)


def test_the_end_here_is_told_to_openid_connect(
    app: Flask, clock: Clock, wiki: ServiceProvider
) -> None:
    """A session that a service provider ends: its tokens are refused, too."""
    books, browser = make_client(app, first_party=True), Browser(app)
    answer = wiki.sign_on(browser)
    tokens = books.exchange(browser.authorize(books).code).get_json()
    xml = logout_request(answer, at=timestamp(clock.now()))
    browser.open(f"{SLO_URL}?{query(xml, signed_by=pair())}")
    assert books.userinfo(tokens["access_token"]).status_code == 401


def test_nobody_is_signed_out_by_a_link(app: Flask, clock: Clock, wiki: ServiceProvider) -> None:
    """Unsigned, by somebody else, about somebody else, old, or a second time."""
    browser = Browser(app)
    answer = wiki.sign_on(browser)
    now = timestamp(clock.now())
    xml = logout_request(answer, at=now)
    about_another = logout_request(answer, name_id="somebody", at=now)
    for text in (query(xml), query(about_another, signed_by=pair())):
        page = browser.open(f"{SLO_URL}?{text}")
        assert page.path.endswith("/sign-out")
        assert is_signed_in(browser)
    assert browser.open(f"{SLO_URL}?{query(xml, signed_by=pair('other'))}").status == 400
    assert is_signed_in(browser)
    clock.move(minutes=20)
    assert browser.open(f"{SLO_URL}?{query(xml, signed_by=pair())}").status == 400
    assert is_signed_in(browser)


def test_who_is_asked_and_agrees_comes_back(
    app: Flask, clock: Clock, wiki: ServiceProvider
) -> None:
    browser = Browser(app)
    answer = wiki.sign_on(browser)
    browser.open(f"{SLO_URL}?{query(logout_request(answer, at=timestamp(clock.now())), 'x')}")
    page = browser.submit(decision="sign_out")
    if page.is_at_server:  # the service provider itself is signed out, too
        asked = message(app, next_of(page.html))
        page = browser.open(response_to(asked, ENTITY_ID, by=pair()))
    assert page.url.startswith(LOGOUT_URL)
    assert not is_signed_in(browser)


def test_bad_messages(app: Flask, clock: Clock, wiki: ServiceProvider) -> None:
    browser = Browser(app)
    for text in ("", "SAMLRequest=x", "SAMLResponse=x", "SAMLRequest=a&SAMLResponse=b"):
        assert browser.open(f"{SLO_URL}?{text}").status == 400
    assert browser.open(f"{SLO_URL}?finish=x").path.endswith("/sign-out")
    assert browser.open(SLO_URL, method="POST", data={}).status == 405
