"""Access tokens for APIs (RFC 8707): chosen, limited to one audience, and taken away."""

import json
from typing import Any

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import ISSUER, Browser, RelyingParty, claims_of
from tests.support.factories import change_api, make_api, make_client, make_user
from tests.support.proofs import DPoP
from tests.test_architecture import PACKAGE

DOCS, MAPS = "https://docs.example", "https://maps.example/v1"
OFFLINE = "openid profile email offline_access"


@pytest.fixture
def docs(app: Flask) -> str:
    return make_api(app, DOCS)


@pytest.fixture
def maps(app: Flask) -> str:
    return make_api(app, MAPS, name="Maps", scopes={"read": "See maps"}, access_token_lifetime=300)


@pytest.fixture
def client(app: Flask, docs: str, maps: str) -> RelyingParty:
    """May read and change documents, and see maps."""
    return make_client(app, scope=OFFLINE, apis=[DOCS, f"{MAPS}=read"])


def tokens_of(browser: Browser, client: RelyingParty, **more: Any) -> dict[str, Any]:
    answer = client.exchange(browser.approve(client, **more).code)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.get_json()
    return found


def access(tokens: dict[str, Any]) -> tuple[str, str | None]:
    """The audience and the scope of an access token, which the response agrees with."""
    claims = claims_of(tokens["access_token"])
    assert tokens["scope"] == claims.get("scope", "")
    return claims["aud"], claims.get("scope")


def error_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.get_json()["error"]


def test_a_token_is_for_the_api_that_is_named(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = tokens_of(browser, client, resource=DOCS, scope="openid read write")
    assert access(tokens) == (DOCS, "read write")
    claims = claims_of(tokens["access_token"])
    assert claims["sub"] == str(user.id)
    assert claims["iss"] == ISSUER
    assert "groups" not in claims
    assert claims_of(tokens["id_token"])["aud"] == client.client_id
    assert client.userinfo(tokens["access_token"]).status_code == 401


def test_without_a_resource_nothing_changes(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = tokens_of(browser, client)
    assert access(tokens) == (ISSUER, "openid profile email")
    assert client.userinfo(tokens["access_token"]).status_code == 200
    named = tokens_of(browser, client, resource=ISSUER)
    assert access(named) == (ISSUER, "openid profile email")


def test_without_a_scope_all_registered_ones_are_granted(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = tokens_of(browser, client, resource=[MAPS, DOCS], scope=None)
    assert access(tokens) == (MAPS, "read")
    docs = client.refresh(tokens["refresh_token"], resource=DOCS).get_json()
    assert access(docs) == (DOCS, "read write")


def test_a_scope_of_several_apis_is_granted_at_each(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    page = browser.approve(client, resource=[DOCS, MAPS], scope="openid read")
    tokens = client.exchange(page.code, resource=MAPS).get_json()
    assert access(tokens) == (MAPS, "read")
    assert tokens["expires_in"] == 300
    claims = claims_of(tokens["access_token"])
    assert claims["exp"] - claims["iat"] == 300


def test_an_api_without_its_scopes_is_an_audience(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = tokens_of(browser, client, resource=DOCS, scope="openid")
    assert access(tokens) == (DOCS, None)


@pytest.mark.parametrize(
    ("resource", "scope", "error"),
    [
        ("https://other.example", "openid", "invalid_target"),
        (f"{DOCS}/", "openid", None),
        ("HTTPS://DOCS.example", "openid", None),
        (f"{DOCS}/v1", "openid", "invalid_target"),
        (f"{DOCS}#read", "openid", "invalid_target"),
        (f"{DOCS}:443", "openid", "invalid_target"),
        (f"{DOCS}?x", "openid", "invalid_target"),
        ("https://someone@docs.example", "openid", "invalid_target"),
        (f"{MAPS}/", "openid", "invalid_target"),
        ("https://maps.example/V1", "openid", "invalid_target"),
        ("https://maps.example", "openid", "invalid_target"),
        ("docs.example", "openid", "invalid_target"),
        ("\u2603", "openid", "invalid_target"),
        ([DOCS, "https://other.example"], "openid", "invalid_target"),
        (DOCS, "nothing", "invalid_scope"),
        ([f"https://a{number}.example" for number in range(11)], "openid", "invalid_target"),
    ],
)
def test_what_may_be_named(
    browser: Browser,
    client: RelyingParty,
    user: User,
    resource: Any,
    scope: str,
    error: str | None,
) -> None:
    page = browser.approve(client, resource=resource, scope=scope)
    assert page.error == error
    if error:
        assert client.exchange("x").status_code == 400


def test_an_error_names_the_resource(browser: Browser, client: RelyingParty, user: User) -> None:
    page = browser.authorize(client, resource="https://other.example/x")
    assert "https://other.example/x" in page.parameters["error_description"]
    page = browser.authorize(client, resource='https://other.example/"<x>')
    assert '"' not in page.parameters["error_description"]


def test_a_thousand_resources_are_an_error(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    page = browser.authorize(client, resource=[f"https://a{i}.example" for i in range(1000)])
    assert page.status == 400  # before the redirect URI is read


@pytest.mark.parametrize("way", ["exchange", "refresh"])
def test_a_token_request_names_one_of_the_approved(
    browser: Browser, client: RelyingParty, user: User, way: str
) -> None:
    code = browser.approve(client, resource=DOCS, scope="openid read").code
    credential = code
    if way == "refresh":
        credential = client.exchange(code).get_json()["refresh_token"]
    send = getattr(client, way)
    for resource in (MAPS, "https://other.example", f"{DOCS}/x", "\u2603"):
        assert error_of(send(credential, resource=resource)) == (400, "invalid_target")
    assert error_of(send(credential, resource=[DOCS, DOCS])) == (400, "invalid_request")
    assert access(send(credential, resource=f"{DOCS}/").get_json()) == (DOCS, "read")


@pytest.mark.parametrize("is_bound", [False, True])
def test_a_token_for_an_api_at_userinfo(
    browser: Browser, client: RelyingParty, user: User, is_bound: bool
) -> None:
    """It is not for this server, whether it is bound to a key or not."""
    key = DPoP()
    page = browser.approve(client, resource=DOCS, scope="openid read")
    token = client.exchange(page.code, key.header() if is_bound else None).get_json()
    text = token["access_token"]
    refused = key.userinfo(client, text) if is_bound else client.userinfo(text)
    assert error_of(refused) == (401, "invalid_token")
    assert DOCS in refused.get_json()["error_description"]


def test_a_token_for_this_server_needs_its_scopes(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = tokens_of(browser, client, resource=DOCS, scope="openid email read")
    mine = client.refresh(tokens["refresh_token"], resource=ISSUER).get_json()
    assert access(mine) == (ISSUER, "openid email")
    assert client.userinfo(mine["access_token"]).status_code == 200
    without = tokens_of(browser, client, resource=DOCS, scope="read")
    assert "id_token" not in without
    refused = client.refresh(without["refresh_token"], resource=ISSUER)
    assert error_of(refused) == (400, "invalid_target")


def test_refresh_narrows_the_scope_at_one_api(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = tokens_of(browser, client, resource=[DOCS, MAPS], scope="openid read write")
    secret = tokens["refresh_token"]
    narrow = client.refresh(secret, scope="write").get_json()
    assert access(narrow) == (DOCS, "write")
    assert "id_token" not in narrow
    secret = narrow["refresh_token"]
    # `write` is no scope of the maps.
    refused = client.refresh(secret, resource=MAPS, scope="write")
    assert error_of(refused) == (400, "invalid_scope")
    whole = client.refresh(secret).get_json()
    assert access(whole) == (DOCS, "read write")
    assert "id_token" in whole
    # Those of this server may be named beside it, and stand alone in a token for this server.
    both = client.refresh(whole["refresh_token"], scope="openid write").get_json()
    assert access(both) == (DOCS, "write")
    assert "id_token" in both
    secret = both["refresh_token"]
    assert error_of(client.refresh(secret, resource=ISSUER, scope="read")) == (400, "invalid_scope")
    mine = client.refresh(secret, resource=ISSUER, scope="openid").get_json()
    assert access(mine) == (ISSUER, "openid")


def test_a_default_api_is_for_requests_that_name_none(
    app: Flask, browser: Browser, docs: str, user: User
) -> None:
    client = make_client(app, apis=[f"{DOCS}=read"], default_api=DOCS)
    tokens = tokens_of(browser, client, scope="openid read write")
    assert access(tokens) == (DOCS, "read")
    assert access(tokens_of(browser, client, resource=ISSUER)) == (ISSUER, "openid profile email")


@pytest.mark.parametrize("way", ["pushed", "resource twice"])
def test_pushed_requests_name_resources(
    browser: Browser, client: RelyingParty, user: User, way: str
) -> None:
    resource = DOCS if way == "pushed" else [DOCS, MAPS]
    answer = client.push(resource=resource, scope="openid read").get_json()
    query = {"client_id": client.client_id, "request_uri": answer["request_uri"]}
    browser.open_authorize(query)
    browser.sign_in()
    tokens = client.exchange(browser.allow().code).get_json()
    assert access(tokens) == (DOCS, "read")
    refused = client.push(resource="https://other.example")
    assert error_of(refused) == (400, "invalid_target")


def test_the_page_describes_what_is_asked_for(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    change_api(app, DOCS, translations={"de": {"read": "Dokumente lesen"}})
    page = browser.authorize(client, resource=[DOCS, MAPS], scope="openid read write")
    page = browser.sign_in()
    for text in ("Documents", "docs.example", "Read documents", "Change documents", "See maps"):
        assert text in page.html
    page = browser.open(page.url, headers={"Accept-Language": "de"})
    assert "Dokumente lesen" in page.html
    assert "Change documents" in page.html


def test_consent_is_remembered_for_each_api_and_scope(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens_of(browser, client, resource=DOCS, scope="openid read")
    assert browser.authorize(client, resource=DOCS, scope="openid read").code
    page = browser.authorize(client, resource=MAPS, scope="openid read")
    assert "See maps" in page.html
    assert "Read documents" not in page.html
    browser.allow()
    page = browser.authorize(client, resource=[DOCS, MAPS], scope="openid read write")
    assert page.fields["api_scope"] == f"{DOCS}#write"
    for text in ("Read documents", "See maps"):  # among what it already has
        assert text in page.html


def test_an_unticked_scope_is_not_given(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.authorize(client, resource=DOCS, scope="openid read write")
    page = browser.sign_in()
    assert page.fields["api_scope"] == [f"{DOCS}#read", f"{DOCS}#write"]
    page.fields["api_scope"] = [f"{DOCS}#write"]
    tokens = client.exchange(browser.allow().code).get_json()
    assert access(tokens) == (DOCS, "write")
    again = tokens_of(browser, client, resource=DOCS, scope="openid read write")
    assert access(again) == (DOCS, "write")


def test_without_its_first_api_a_request_is_refused(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    """The client would send tokens for something else to this API."""
    browser.authorize(client, resource=[DOCS, MAPS], scope="openid read write")
    page = browser.sign_in()
    page.fields["api_scope"] = f"{MAPS}#read"
    page = browser.allow()
    assert page.error == "access_denied"
    assert DOCS in page.parameters["error_description"]


def test_without_its_second_api_a_request_is_granted(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    browser.authorize(client, resource=[DOCS, MAPS], scope="openid read")
    page = browser.sign_in()
    page.fields["api_scope"] = f"{DOCS}#read"
    tokens = client.exchange(browser.allow().code).get_json()
    assert access(tokens) == (DOCS, "read")
    refused = client.refresh(tokens["refresh_token"], resource=MAPS)
    assert error_of(refused) == (400, "invalid_target")


def test_approvals_of_an_earlier_api_do_not_come_back(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """An API that is registered again with the identifier is another one."""
    tokens = tokens_of(browser, client, resource=DOCS, scope="openid read")
    waiting = browser.authorize(client, resource=DOCS, scope="openid read").code
    change_api(app, DOCS, deleted=True)
    clock.move(seconds=1)
    make_api(app, DOCS)
    update = ("client", "update", client.client_id, "--add-api", DOCS)
    assert app.test_cli_runner().invoke(args=update).exit_code == 0
    assert error_of(client.refresh(tokens["refresh_token"])) == (400, "invalid_target")
    assert error_of(client.exchange(waiting)) == (400, "invalid_target")
    assert client.introspect(tokens["access_token"]).get_json() == {"active": False}
    page = browser.authorize(client, resource=DOCS, scope="openid read")
    assert page.fields["api_scope"] == f"{DOCS}#read"  # asked again


def test_tokens_of_an_earlier_api_do_not_come_back_for_those_whom_nobody_asks(
    app: Flask, clock: Clock, browser: Browser, user: User
) -> None:
    make_api(app, DOCS)
    client = make_client(app, first_party=True, scope="openid profile", apis=[DOCS])
    tokens = tokens_of(browser, client, resource=DOCS, scope="openid read")
    change_api(app, DOCS, deleted=True)
    clock.move(seconds=1)
    make_api(app, DOCS)
    update = ("client", "update", client.client_id, "--add-api", DOCS)
    assert app.test_cli_runner().invoke(args=update).exit_code == 0
    assert client.introspect(tokens["access_token"]).get_json() == {"active": False}
    assert client.introspect(tokens["refresh_token"]).get_json()["scope"] == "openid"
    tokens = tokens_of(browser, client, resource=DOCS, scope="openid read")
    assert client.introspect(tokens["access_token"]).get_json()["scope"] == "read"
    assert client.introspect(tokens["refresh_token"]).get_json()["scope"] == "openid read"


def narrow(app: Flask, client: RelyingParty, user: User, how: str) -> None:
    commands = {
        "client": ("client", "update", client.client_id, "--remove-api", DOCS),
        "group": ("user", "update", user.email, "--remove-group", "staff"),
        "consent": None,
    }
    if how == "scope":
        change_api(app, DOCS, scopes={"write": "Change documents"})
    elif how == "disabled":
        change_api(app, DOCS, disabled=True)
    elif how == "deleted":
        change_api(app, DOCS, deleted=True)
    else:
        command = commands[how]
        assert command is not None
        result = app.test_cli_runner().invoke(args=command)
        assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("how", ["scope", "disabled", "deleted", "client", "group"])
def test_what_is_withdrawn_is_gone_at_the_next_request(
    app: Flask, browser: Browser, docs: str, maps: str, how: str
) -> None:
    user = make_user(app, groups=["staff"])
    change_api(app, DOCS, groups=["staff"])
    client = make_client(app, scope=OFFLINE, apis=[DOCS, MAPS])
    tokens = tokens_of(browser, client, resource=[DOCS, MAPS], scope="openid read")
    assert access(tokens) == (DOCS, "read")
    waiting = browser.authorize(client, resource=[DOCS, MAPS], scope="openid read").code
    narrow(app, client, user, how)
    secret = tokens["refresh_token"]
    for answer in (client.refresh(secret), client.refresh(secret, resource=DOCS)):
        assert error_of(answer) == (400, "invalid_target")
    assert error_of(client.exchange(waiting)) == (400, "invalid_target")
    assert client.introspect(tokens["access_token"]).get_json() == {"active": False}
    # What is left goes on: the refresh token was not used up.
    assert access(client.refresh(secret, resource=MAPS).get_json()) == (MAPS, "read")


def test_a_registration_with_an_api_that_was_deleted_does_not_come_back(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    change_api(app, DOCS, deleted=True)
    make_api(app, DOCS)
    page = browser.authorize(client, resource=DOCS)
    assert page.error == "invalid_target"


def test_only_members_of_its_groups_use_an_api(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    change_api(app, DOCS, groups=["staff"])
    page = browser.approve(client, resource=DOCS, scope="openid read")
    assert page.status == 403
    assert "Documents" in page.html
    silent = browser.authorize(client, resource=DOCS, prompt="none")
    assert silent.error == "access_denied"
    assert DOCS in silent.parameters["error_description"]
    assert browser.approve(client, resource=MAPS, scope="openid read").code


def test_groups_are_in_the_tokens_of_an_api_that_wants_them(
    app: Flask, browser: Browser, client: RelyingParty
) -> None:
    make_user(app, groups=["staff", "readers"])
    change_api(app, DOCS, includes_groups=True)
    tokens = tokens_of(browser, client, resource=[DOCS, MAPS], scope="openid read")
    assert claims_of(tokens["access_token"])["groups"] == ["staff", "readers"]
    maps = client.refresh(tokens["refresh_token"], resource=MAPS).get_json()
    assert "groups" not in claims_of(maps["access_token"])


def test_a_grant_ends_with_its_session_without_offline_access(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    ends = tokens_of(browser, client, resource=DOCS, scope="openid read")
    stays = tokens_of(browser, client, resource=DOCS, scope="openid read offline_access")
    assert access(stays) == (DOCS, "read")
    browser.open("/api/auth/sign-out")
    browser.submit()
    assert error_of(client.refresh(ends["refresh_token"])) == (400, "invalid_grant")
    assert access(client.refresh(stays["refresh_token"]).get_json()) == (DOCS, "read")


def test_the_account_page_tells_what_an_application_may_do(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens_of(browser, client, resource=[DOCS, MAPS], scope="openid read")
    page = browser.open("/api/auth/account")
    for text in ("Documents: Read documents", "Maps: See maps"):
        assert text in page.html
    assert "#read" not in page.html


def test_tokens_without_a_resource_have_no_new_member(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    claims = claims_of(tokens_of(browser, client)["access_token"])
    assert list(claims) == [
        *("iss", "aud", "sub", "client_id", "jti", "scope", "iat", "exp", "auth_time"),
    ]


def test_no_template_marks_names_of_apis_as_safe() -> None:
    """Names and descriptions are the operator's; what is shown of a request is a stranger's."""
    for name in ("consent.html", "forbidden.html", "account.html"):
        assert "|safe" not in (PACKAGE / "templates" / name).read_text()


def test_claims_go_on_beside_resources(browser: Browser, client: RelyingParty, user: User) -> None:
    claims = json.dumps({"id_token": {"email": None}})
    tokens = tokens_of(browser, client, resource=DOCS, scope="openid read", claims=claims)
    assert claims_of(tokens["id_token"])["email"] == user.email


def test_introspection_tells_audience_and_scope(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = tokens_of(browser, client, resource=[DOCS, MAPS], scope="openid read write")
    members = client.introspect(tokens["access_token"]).get_json()
    assert (members["aud"], members["scope"]) == (DOCS, "read write")
    members = client.introspect(tokens["refresh_token"]).get_json()
    assert (members.get("aud"), members["scope"]) == (None, "openid read write")
    change_api(app, DOCS, scopes={"write": "Change documents"})
    members = client.introspect(tokens["access_token"]).get_json()
    assert members["scope"] == "write"
    bare = tokens_of(browser, client, resource=MAPS, scope="openid")
    members = client.introspect(bare["access_token"]).get_json()
    assert (members["active"], members["aud"], members["scope"]) == (True, MAPS, "")
