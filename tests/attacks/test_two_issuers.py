"""RFC 9207 §4, RFC 9700 §4.4: the attacker wants what is of one issuer to be taken for another's.

One server answers under several issuers (SSO_ISSUER_ALIASES). It ends at the client's own issuer:
nothing that comes from the addresses of an issuer names another one.
"""

import json
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from flask import Flask
from sqlalchemy import select
from werkzeug.test import TestResponse

from sso import clock
from sso.extensions import db
from sso.jobs.logout_delivery import logout_token
from sso.models import Client, User
from sso.store import outbox
from tests.scim.conftest import make_token
from tests.support.actors import (
    BASE,
    ISSUER,
    ORIGIN,
    Browser,
    Page,
    RelyingParty,
    claims_of,
    pkce,
)
from tests.support.devices import make_device
from tests.support.each import each
from tests.support.exchanges import DOCS, MAPS, Chain, exchange
from tests.support.explaining import Explain
from tests.support.factories import make_api, make_client
from tests.support.old_servers import (
    GIT,
    KEYCLOAK,
    STAFF,
    TOGETHER,
    WIKI,
    Application,
    give_issuer,
    visit,
)
from tests.support.proofs import LEFT_OUT, DPoP
from tests.support.signing import ASSERTION_TYPE, make_keyed_client, sign

UNKNOWN = "https://evil.example/realms/main"
ADDRESSES = {
    ISSUER: f"{BASE}/oauth2/token",
    KEYCLOAK: "/realms/main/protocol/openid-connect/token",
    STAFF: "/realms/staff/protocol/openid-connect/token",
    WIKI: "/application/o/token/",
    GIT: "/application/o/token/",
}
FOREIGN = [
    (own, other) for own in ADDRESSES for other in ADDRESSES if ADDRESSES[own] != ADDRESSES[other]
]
OLD = "/realms/main/protocol/openid-connect"


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_ISSUER_ALIASES=TOGETHER)


def of_issuer(app: Flask, issuer: str, client: RelyingParty) -> Application:
    give_issuer(app, client, None if issuer == ISSUER else issuer)
    return Application(app, client, issuer)


def post(client: RelyingParty, path: str, form: dict[str, Any], **more: Any) -> TestResponse:
    sent = {**form, **client.credentials()}
    return client.app.test_client(use_cookies=False).post(path, data=sent, **more)


def is_elsewhere(answer: TestResponse, own: str, other: str) -> bool:
    """Whether it is refused, and says what to do."""
    body = answer.get_json()
    assert (answer.status_code, body["error"]) == (400, "unauthorized_client"), body
    named = {KEYCLOAK, STAFF, WIKI, GIT, ISSUER} & {*body["error_description"].rstrip(".").split()}
    text = body["error_description"]
    return own in text and bool(named or other in text)


def code_of(browser: Browser, client: RelyingParty, **more: Any) -> str:
    """Get a code at this server's own authorization endpoint, where all browsers come."""
    return browser.approve(client, **more).code


@each("own, other", FOREIGN)
def test_a_code_at_another_issuers_token_endpoint(
    app: Flask, user: User, own: str, other: str
) -> None:
    application = of_issuer(app, own, make_client(app))
    client = application.client
    code = code_of(Browser(app), client)
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": client.redirect_uri}
    assert is_elsewhere(post(client, ADDRESSES[other], form), own, other)
    # The code is not used up: its client redeems it where it belongs.
    answer = post(client, ADDRESSES[own], form).get_json()
    assert claims_of(answer["id_token"])["iss"] == claims_of(answer["access_token"])["iss"] == own
    stored = {"grant_type": "refresh_token", "refresh_token": answer["refresh_token"]}
    assert is_elsewhere(post(client, ADDRESSES[other], stored), own, other)
    assert claims_of(post(client, ADDRESSES[own], stored).get_json()["id_token"])["iss"] == own


@each("name", ["ext/par/request", "auth/device", "revoke", "token/introspect", "token"])
def test_every_endpoint_that_authenticates_clients(app: Flask, name: str) -> None:
    client = make_client(app)
    form = {**client.parameters(), "token": "t", "grant_type": "authorization_code", "code": "c"}
    assert is_elsewhere(post(client, f"{OLD}/{name}", form), ISSUER, KEYCLOAK)
    give_issuer(app, client, KEYCLOAK)
    names = {"ext/par/request": "par", "auth/device": "device_authorization",
             "token/introspect": "introspect"}  # fmt: skip
    path = f"{BASE}/oauth2/{names.get(name, name)}"
    assert is_elsewhere(post(client, path, form), KEYCLOAK, ISSUER)


def test_a_wrong_secret_does_not_learn_the_issuer(app: Flask) -> None:
    client = make_client(app)
    client.client_secret = "wrong"
    answer = post(client, f"{OLD}/token", {"grant_type": "authorization_code", "code": "c"})
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")


@each("own", [ISSUER, STAFF, WIKI])
def test_a_browser_at_another_issuers_authorization_endpoint(
    app: Flask, user: User, explain: Explain, own: str
) -> None:
    client = of_issuer(app, own, make_client(app)).client
    browser = Browser(app)
    browser.sign_in()
    query = "&".join(f"{name}={value}" for name, value in client.parameters().items())
    page = visit(browser, f"https://login.example.com{OLD}/auth?{query.replace(' ', '+')}")
    assert page.status == 400
    assert own in page.html
    assert "unauthorized_client" in page.html
    assert client.redirect_uri not in page.html


def test_a_client_of_an_old_issuer_at_the_new_authorization_endpoint(
    app: Flask, user: User
) -> None:
    """Browsers come there from the old one, too: the answer names the client's own issuer."""
    client = of_issuer(app, KEYCLOAK, make_client(app)).client
    for more in ({}, {"scope": "nonsense"}, {"prompt": "none"}):
        browser = Browser(app)
        page = browser.authorize(client, **more)
        page = browser.sign_in() if "password" in page.fields else page
        page = browser.deny() if ("decision", "deny") in page.buttons else page
        assert page.parameters["iss"] == KEYCLOAK
        assert page.error


def test_the_issuer_comes_neither_from_the_host_nor_from_headers(app: Flask) -> None:
    http = app.test_client()
    for path, issuer in ((f"{BASE}/", ISSUER), ("/realms/main/", KEYCLOAK)):
        for host in ("https://login.example.com", "https://authentik.example", UNKNOWN[:20]):
            answer = http.get(
                f"{path}.well-known/openid-configuration",
                base_url=host,
                headers={"X-Forwarded-Host": "evil.example", "X-Forwarded-Prefix": "/realms/staff"},
            )
            assert answer.get_json()["issuer"] == issuer
            assert "evil" not in answer.text


def test_access_tokens_of_a_client_that_was_moved(app: Flask, user: User) -> None:
    """They are of neither issuer any more, and userinfo takes none at another issuer's address."""
    application = of_issuer(app, KEYCLOAK, make_client(app))
    client = application.client
    application.sign_in(Browser(app))
    token = application.session.token["access_token"]
    paths = (f"{OLD}/userinfo", "/application/o/userinfo/", f"{BASE}/oauth2/userinfo",
             OLD.replace("main", "staff") + "/userinfo")  # fmt: skip
    http, headers = app.test_client(), {"Authorization": f"Bearer {token}"}
    for issuer, status in ((KEYCLOAK, 200), (STAFF, 401), (None, 401), (KEYCLOAK, 200)):
        give_issuer(app, client, issuer)
        codes = [http.get(path, headers=headers).status_code for path in paths]
        assert codes == [status, 401, 401, 401]
        own = {None: f"{BASE}/oauth2/introspect", KEYCLOAK: f"{OLD}/token/introspect",
               STAFF: OLD.replace("main", "staff") + "/token/introspect"}  # fmt: skip
        answer = post(client, own[issuer], {"token": token}).get_json()
        assert answer["active"] is (status == 200)
        # Its refresh token belongs to the client, and names no issuer.
        answer = post(client, own[issuer], {"token": application.session.token["refresh_token"]})
        assert answer.get_json()["iss"] == (issuer or ISSUER)


def test_tokens_for_an_api(app: Flask, user: User) -> None:
    """An API that asks by introspection learns the issuer that the token has."""
    api = make_api(app, DOCS)
    secret = app.test_cli_runner().invoke(args=["api", "rotate-secret", DOCS, "--json"])
    api_credentials = json.loads(secret.output)
    client = make_client(app, apis=[api])
    of_issuer(app, KEYCLOAK, client)
    code = code_of(Browser(app), client, resource=api, scope="openid read")
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": client.redirect_uri}
    token = post(client, f"{OLD}/token", form).get_json()["access_token"]
    assert (claims_of(token)["iss"], claims_of(token)["aud"]) == (KEYCLOAK, api)

    def asked(path: str) -> dict[str, Any]:
        asks = {
            "token": token,
            "client_id": api_credentials["api_id"],
            "client_secret": api_credentials["secret"],
        }
        answer: dict[str, Any] = app.test_client().post(path, data=asks).get_json()
        return answer

    for path in (f"{BASE}/oauth2/introspect", f"{OLD}/token/introspect"):
        assert asked(path)["iss"] == KEYCLOAK
        give_issuer(app, client, None)
        assert asked(path) == {"active": False}
        give_issuer(app, client, KEYCLOAK)


def test_an_exchanged_token_is_of_the_exchanging_clients_issuer(app: Flask, user: User) -> None:
    chain = Chain(app, Browser(app))
    answer = exchange(chain.docs, chain.subject, resource=MAPS)
    assert claims_of(answer.get_json()["access_token"])["iss"] == ISSUER
    owner = RelyingParty(app, claims_of(chain.subject)["client_id"], "", "")
    give_issuer(app, owner, KEYCLOAK)
    refused = exchange(chain.docs, chain.subject, resource=MAPS)
    assert (refused.status_code, refused.get_json()["error"]) == (400, "invalid_request")


@each(
    "audience, is_taken",
    [
        (KEYCLOAK, True),
        (f"https://login.example.com{OLD}/token", True),
        ([KEYCLOAK], True),
        (ISSUER, False),
        (f"{ISSUER}/oauth2/token", False),
        (STAFF, False),
        (f"https://evil.example{OLD}/token", False),
        ([KEYCLOAK, ISSUER], False),
    ],
)
def test_a_client_assertion_for_another_issuer(app: Flask, audience: Any, is_taken: bool) -> None:
    bank = make_keyed_client(app)
    give_issuer(app, bank, KEYCLOAK)
    answer = app.test_client().post(
        f"{OLD}/token/introspect",
        data={
            "token": "t",
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": bank.assertion(aud=audience),
        },
    )
    assert answer.status_code == (200 if is_taken else 401), answer.text


@each("issuer", [KEYCLOAK, ISSUER, STAFF])
def test_a_request_object_for_another_issuer(app: Flask, user: User, issuer: str) -> None:
    bank = make_keyed_client(app, request_object_signing_alg="ES256")
    give_issuer(app, bank, KEYCLOAK)
    claims = {**bank.claims(aud=issuer, sub=None), **bank.parameters()}
    query = {"client_id": bank.client_id, "request": sign(claims, typ="oauth-authz-req+jwt")}
    page = Browser(app).open_authorize(query)
    assert ("password" in page.fields) is (issuer == KEYCLOAK)


@each("htu, is_taken", [(None, True), (f"{ISSUER}/oauth2/token", False),
                        ("https://login.example.com/realms/staff/protocol/openid-connect/token",
                         False)])  # fmt: skip
def test_a_dpop_proof_for_another_address(
    app: Flask, user: User, htu: str | None, is_taken: bool
) -> None:
    client, key = make_client(app), DPoP()
    of_issuer(app, KEYCLOAK, client)
    code = code_of(Browser(app), client)
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": client.redirect_uri}
    own = f"https://login.example.com{OLD}"
    headers = {"DPoP": key.proof(htu=htu or f"{own}/token")}
    answer = post(client, f"{OLD}/token", form, headers=headers)
    assert answer.status_code == (200 if is_taken else 400), answer.text
    if is_taken:
        token = answer.get_json()["access_token"]
        statuses = {
            url: app.test_client().get(
                f"{OLD}/userinfo",
                headers={
                    "Authorization": f"DPoP {token}",
                    "DPoP": key.proof("/userinfo", token=token, htu=url, nonce=LEFT_OUT),
                },
            ).status_code
            for url in (f"{own}/userinfo", f"{ISSUER}/oauth2/userinfo")
        }  # fmt: skip
        assert [*statuses.values()] == [200, 401]


def test_hints_of_another_client(app: Flask, user: User) -> None:
    """An identity token is a hint of its own client alone, whatever issuer that had."""
    browser, other = Browser(app), make_client(app)
    application = of_issuer(app, KEYCLOAK, make_client(app))
    application.sign_in(browser)
    hint = application.session.token["id_token"]
    page = browser.authorize(other, id_token_hint=hint)
    assert page.error == "invalid_request"
    assert page.parameters["iss"] == ISSUER
    url = f"{ORIGIN}{BASE}/oauth2/end-session?id_token_hint={hint}&client_id={other.client_id}"
    assert browser.open(url).status == 400
    # The client itself is moved, and still signs its people out with the token that it has.
    give_issuer(app, application.client, None)
    assert browser.authorize(application.client, id_token_hint=hint, prompt="none").code
    page = browser.open(f"{ORIGIN}{BASE}/oauth2/end-session?id_token_hint={hint}")
    assert (page.status, "decision" in str(page.buttons)) == (200, False)


def test_signed_answers_and_logout_tokens(app: Flask, user: User) -> None:
    uri = "https://books.example/logout"
    client = make_client(app, authorization_signed_response_alg="ES256", backchannel_logout_uri=uri)
    of_issuer(app, KEYCLOAK, client)
    browser = Browser(app)
    page: Page = browser.approve(client, response_mode="jwt")
    answer = claims_of(page.parameters["response"])
    assert answer["iss"] == KEYCLOAK
    form = {"grant_type": "authorization_code", "code": answer["code"],
            "redirect_uri": client.redirect_uri}  # fmt: skip
    assert post(client, f"{OLD}/token", form).status_code == 200
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    with app.app_context():
        (delivery,) = outbox.LOGOUTS.claim(1, until=clock.now())
        assert claims_of(logout_token(delivery))["iss"] == KEYCLOAK


def test_a_device(app: Flask, user: User) -> None:
    device = make_device(app)
    give_issuer(app, device, KEYCLOAK)
    assert is_elsewhere(device.ask(), KEYCLOAK, ISSUER)
    answer = post(device, f"{OLD}/auth/device", {"scope": "openid profile"})
    device.codes = answer.get_json()
    assert device.codes["verification_uri"] == f"{ISSUER}/device"
    browser = Browser(app)
    browser.sign_in()
    browser.open(device.codes["verification_uri_complete"])
    while ("decision", "allow") not in browser.page.buttons:
        browser.submit()
    browser.allow()
    form = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code",
            "device_code": device.codes["device_code"]}  # fmt: skip
    assert is_elsewhere(device.poll(), KEYCLOAK, ISSUER)
    assert claims_of(post(device, f"{OLD}/token", form).get_json()["id_token"])["iss"] == KEYCLOAK


@each("issuer, is_taken", [(KEYCLOAK, True), (WIKI, True), (UNKNOWN, False), (ISSUER, False),
                           (f"{KEYCLOAK}/", False), ("x" * 3000, False)])  # fmt: skip
def test_an_issuer_that_the_setting_does_not_name(app: Flask, issuer: str, is_taken: bool) -> None:
    """Those who may register clients cannot make this server sign for another issuer."""
    client = make_client(app)
    runner = app.test_cli_runner()
    arguments = ["client", "update", client.client_id, "--issuer", issuer]
    assert (runner.invoke(args=arguments).exit_code == 0) is is_taken
    token = make_token(app, "clients:read", "clients:write", name=secrets.token_hex(4))
    answer = app.test_client().post(
        f"{BASE}/oauth2/register",
        json={"client_name": "B", "redirect_uris": ["https://b.example/"], "issuer": issuer},
        headers={"Authorization": f"Bearer {token}"},
    )
    assert (answer.status_code == 201) is is_taken, answer.text
    with app.app_context():
        issuers = {row.issuer for row in db.session.scalars(select(Client))}
        assert issuers <= {None, KEYCLOAK, WIKI}


@each("more", [{"proxy_urls": ["https://wiki.example"]}, {"saml_entity_id": "https://s.example"}])
def test_applications_without_tokens_have_no_old_issuer(app: Flask, more: dict[str, Any]) -> None:
    token = make_token(app, "clients:read", "clients:write", name=secrets.token_hex(4))
    body = {"client_name": "B", "issuer": KEYCLOAK, "redirect_uris": [], **more}
    answer = app.test_client().post(
        f"{BASE}/oauth2/register", json=body, headers={"Authorization": f"Bearer {token}"}
    )
    assert answer.status_code == 400
    assert "has no issuer of an earlier server" in answer.get_json()["error_description"]


def test_a_stranger_cannot_choose_an_old_issuer(make_app: Callable[..., Flask]) -> None:
    app = make_app(SSO_ISSUER_ALIASES=TOGETHER, SSO_OPEN_REGISTRATION="true")
    body = {"client_name": "E", "redirect_uris": ["http://127.0.0.1/cb"], "issuer": KEYCLOAK}
    document = app.test_client().post(f"{BASE}/oauth2/register", json=body).get_json()
    with app.app_context():
        row = db.session.get(Client, document["client_id"])
        assert row
        assert row.issuer is None
    # And such a client gets nothing at the old addresses.
    stranger = RelyingParty(app, document["client_id"], "", "http://127.0.0.1/cb", pkce()[0])
    form = {"grant_type": "authorization_code", "code": "c"}
    assert is_elsewhere(post(stranger, f"{OLD}/token", form), ISSUER, KEYCLOAK)


def test_an_api_cannot_be_called_like_an_old_issuer(app: Flask) -> None:
    """Its tokens would open userinfo, or the other way round."""
    for identifier in (KEYCLOAK, f"{KEYCLOAK}/", WIKI, ISSUER):
        with pytest.raises(Exception, match="this server's own"):
            make_api(app, identifier)


def test_the_refusal_is_explained(app: Flask, explain: Explain) -> None:
    client = make_client(app)
    answer = post(client, f"{OLD}/token", {"grant_type": "authorization_code", "code": "c"})
    text = explain(answer)
    assert KEYCLOAK in text
    assert f"client update {client.client_id} --issuer {KEYCLOAK}" in text
    assert urlsplit(KEYCLOAK).netloc in text
