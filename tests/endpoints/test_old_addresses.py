"""Unchanged applications at the addresses of the server before this one (SSO_ISSUER_ALIASES)."""

from collections.abc import Callable

import pytest
from authlib.oauth2 import rfc8414, rfc9207
from authlib.oidc.discovery import OpenIDProviderMetadata
from flask import Flask

from sso.models import User
from tests.support.actors import BASE, ISSUER, ORIGIN, Browser, claims_of
from tests.support.each import each
from tests.support.factories import make_client
from tests.support.old_servers import (
    GIT,
    ISSUERS,
    KEYCLOAK,
    STAFF,
    TOGETHER,
    WIKI,
    Application,
    give_issuer,
    visit,
)

MakeApp = Callable[..., Flask]
SIGNED_OUT = "https://books.example/signed-out"


def unchanged(app: Flask, issuer: str, **more: object) -> Application:
    client = make_client(app, post_logout_redirect_uris=[SIGNED_OUT], **more)
    give_issuer(app, client, None if issuer == ISSUER else issuer)
    return Application(app, client, issuer)


@each("issuer", ISSUERS)
def test_an_unchanged_application(make_app: MakeApp, user: User, issuer: str) -> None:
    app = make_app(SSO_ISSUER_ALIASES=ISSUERS[issuer])
    browser, application = Browser(app), unchanged(app, issuer)
    application.sign_in(browser)
    access = claims_of(application.session.token["access_token"])
    assert (access["iss"], access["aud"]) == (issuer, issuer)
    assert application.userinfo().json()["sub"] == str(user.id)
    application.refresh()
    assert application.userinfo().json()["email"] == "dana@example.com"
    introspected = application.session.introspect_token(
        application.metadata["introspection_endpoint"],
        token=application.session.token["access_token"],
    ).json()
    assert introspected["active"]
    assert introspected["iss"] == introspected["aud"] == issuer
    if "revocation_endpoint" in application.metadata:
        token = application.session.token["refresh_token"]
        revoked = application.session.revoke_token(
            application.metadata["revocation_endpoint"], token=token
        )
        assert revoked.status_code == 200
        assert application.userinfo().status_code == 401
    if "end_session_endpoint" in application.metadata:
        application.sign_in(browser)
        url = application.sign_out_url(
            post_logout_redirect_uri=SIGNED_OUT, client_id=application.client.client_id, state="s"
        )
        assert visit(browser, url).url == f"{SIGNED_OUT}?state=s"
        assert "password" in browser.authorize(application.client).fields


@each("issuer", ISSUERS)
def test_the_metadata_is_valid_and_every_address_in_it_answers(
    make_app: MakeApp, issuer: str
) -> None:
    app = make_app(SSO_ISSUER_ALIASES=ISSUERS[issuer])
    http, own = app.test_client(), app.test_client().get(f"{BASE}/.well-known/openid-configuration")
    document = unchanged(app, issuer).metadata
    metadata = OpenIDProviderMetadata(document)
    metadata.validate(
        metadata_classes=[rfc8414.AuthorizationServerMetadata, rfc9207.AuthorizationServerMetadata]
    )
    origin = "/".join(issuer.split("/")[:3])
    addresses = {name: url for name, url in document.items() if name.endswith(("endpoint", "uri"))}
    assert len(addresses) >= 7
    for name, url in addresses.items():
        assert url.startswith(f"{origin}/")
        mine = own.get_json()[name].removeprefix(ORIGIN)
        answers = [
            http.options(path, base_url=base)
            for path, base in ((url.removeprefix(origin), origin), (mine, ORIGIN))
        ]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert answers[0].headers["Allow"] == answers[1].headers["Allow"]
    same = {"scopes_supported", "grant_types_supported", "code_challenge_methods_supported"}
    assert {name: document[name] for name in same} == {name: own.get_json()[name] for name in same}
    assert ISSUER not in str(document)


def test_the_inserted_well_known_addresses(make_app: MakeApp) -> None:
    http = make_app(SSO_ISSUER_ALIASES=TOGETHER).test_client()
    for kind in ("oauth-authorization-server", "openid-configuration"):
        for issuer in (KEYCLOAK, WIKI):
            path = "/" + issuer.split("/", 3)[3].removesuffix("/")
            assert http.get(f"/.well-known/{kind}{path}").get_json()["issuer"] == issuer


@each(
    "path, issuer",
    [
        ("/realms/main/account", KEYCLOAK),
        ("/realms/main/account/", KEYCLOAK),
        ("/if/user/", WIKI),
        ("/settings", "https://authelia.example"),
        ("/settings/account", "https://pocket.example"),
    ],
)
def test_the_old_account_page_leads_to_the_new_one(
    make_app: MakeApp, path: str, issuer: str
) -> None:
    http = make_app(SSO_ISSUER_ALIASES=ISSUERS[issuer]).test_client()
    answer = http.get(path, base_url=issuer)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{ISSUER}/account")


def test_a_posted_authorization_request_keeps_its_parameters(make_app: MakeApp) -> None:
    app = make_app(SSO_ISSUER_ALIASES=TOGETHER)
    application = unchanged(app, KEYCLOAK)
    answer = app.test_client().post(
        "/realms/main/protocol/openid-connect/auth?state=a",
        data={"client_id": application.client.client_id, "scope": "openid profil\xe9"},
        base_url="https://login.example.com",
    )
    assert answer.status_code == 303
    assert answer.headers["Location"] == (
        f"{ISSUER}/oauth2/authorize?state=a&client_id={application.client.client_id}"
        "&scope=openid+profil%C3%A9"
    )


@each("length", [10, 100_000])
def test_a_broken_request_to_the_old_authorization_endpoint(make_app: MakeApp, length: int) -> None:
    http = make_app(SSO_ISSUER_ALIASES=TOGETHER).test_client()
    path = "/realms/main/protocol/openid-connect/auth"
    for query in ("client_id=%00", "client_id=%ff", "client_id=a&client_id=b", "x" * length):
        assert http.get(f"{path}?{query}").status_code in (303, 400, 414)
    assert http.post(path, data=b"x" * length, content_type="text/plain").status_code == 400


@each("issuer, other", [(KEYCLOAK, ISSUER), (ISSUER, KEYCLOAK), (KEYCLOAK, STAFF)])
def test_a_client_that_is_moved_goes_on_with_its_tokens(
    make_app: MakeApp, user: User, issuer: str, other: str
) -> None:
    app = make_app(SSO_ISSUER_ALIASES=TOGETHER)
    application = unchanged(app, issuer)
    application.sign_in(Browser(app))
    before, token = application.userinfo().json(), application.session.token
    target = "new" if other == ISSUER else other
    runner = app.test_cli_runner()
    result = runner.invoke(
        args=["client", "update", application.client.client_id, "--issuer", target]
    )
    assert result.exit_code == 0, result.output
    moved = Application(app, application.client, other)
    moved.session.token = token
    # The access token names the old issuer, whose client this no longer is.
    refused = moved.userinfo()
    assert (refused.status_code, refused.json()["error"]) == (401, "invalid_token")
    moved.refresh()
    assert moved.userinfo().json() == before
    again = Application(app, application.client, other)
    assert again.sign_in(Browser(app))["sub"] == before["sub"]


def test_applications_of_authentik_share_endpoints_and_keep_their_issuers(
    make_app: MakeApp, user: User
) -> None:
    app = make_app(SSO_ISSUER_ALIASES=TOGETHER)
    browser, wiki, git = Browser(app), unchanged(app, WIKI), unchanged(app, GIT)
    assert wiki.metadata["token_endpoint"] == git.metadata["token_endpoint"]
    assert wiki.metadata["jwks_uri"] != git.metadata["jwks_uri"]
    assert wiki.sign_in(browser)["iss"] == WIKI
    assert git.sign_in(browser)["iss"] == GIT


def test_nothing_of_it_is_there_without_the_setting(app: Flask, user: User) -> None:
    http, client = app.test_client(), make_client(app)
    give_issuer(app, client, KEYCLOAK)  # the setting named it once
    assert http.get("/realms/main/.well-known/openid-configuration").status_code == 404
    token = client.exchange(Browser(app).approve(client).code).get_json()
    assert claims_of(token["id_token"])["iss"] == ISSUER


@pytest.mark.parametrize("path", ["token", "userinfo", "certs"])
def test_scripts_of_other_origins(make_app: MakeApp, path: str) -> None:
    """As at this server's own addresses: those of public clients (CORS)."""
    app = make_app(SSO_ISSUER_ALIASES=TOGETHER)
    make_client(app, public=True, redirect_uris=["https://spa.example/cb"])
    for origin in ("https://spa.example", "https://evil.example"):
        answer = app.test_client().options(
            f"/realms/main/protocol/openid-connect/{path}", headers={"Origin": origin}
        )
        allowed = answer.headers.get("Access-Control-Allow-Origin")
        assert allowed == ("*" if path == "certs" else "https://spa.example" if "spa" in origin
                           else None)  # fmt: skip
