"""`flask explain` about APIs: every refusal by a real request, and the command that fixes it."""

import shlex
from typing import Any

import pytest
from flask import Flask

from sso.models import User
from tests.explain.test_causes import command_in, run
from tests.support.actors import Browser, RelyingParty
from tests.support.explaining import Explain
from tests.support.factories import change_api, make_api, make_client

DOCS, MAPS = "https://docs.example", "https://maps.example/v1"
SCOPE = "openid email read"


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    make_api(app, DOCS)
    make_api(app, MAPS, name="Maps", scopes={"read": "See maps"})
    return make_client(app, scope="openid email offline_access", apis=[DOCS])


def authorize(browser: Browser, client: RelyingParty, resource: Any, **more: str) -> Any:
    browser.authorize(client, resource=resource, scope=SCOPE, **more)
    return browser.history[-1]


def tokens_of(browser: Browser, client: RelyingParty, **more: Any) -> Any:
    return client.exchange(browser.approve(client, scope=SCOPE, **more).code).get_json()


@pytest.mark.parametrize(
    ("resource", "difference"),
    [
        ("http://docs.example", "the scheme is http, not https"),
        (f"{DOCS}/v1", "the path is /v1"),
        ("https://doc.example", "the host is doc.example"),
        (f"{DOCS}:8443", "it has the port 8443"),
    ],
)
def test_a_resource_that_is_nearly_right(
    browser: Browser, client: RelyingParty, user: User, explain: Explain,
    resource: str, difference: str,
) -> None:  # fmt: skip
    text = explain(authorize(browser, client, resource))
    assert difference in text
    assert DOCS in text
    assert "Make the application send the identifier as it is registered." in text
    assert command_in(text) is None


def test_an_api_that_the_client_is_not_registered_for(
    app: Flask, browser: Browser, client: RelyingParty, user: User, explain: Explain
) -> None:
    answer = authorize(browser, client, MAPS)
    text = explain(answer)
    assert f"The API {MAPS} is registered here, but not for Books" in text
    command = command_in(text)
    assert command == f"flask client update {client.client_id} --add-api {MAPS}"
    run(app, command)
    assert "It is registered now." in explain(answer)


def test_the_nearest_api_may_be_one_of_others(
    app: Flask, browser: Browser, user: User, explain: Explain
) -> None:
    make_api(app, MAPS)
    client = make_client(app)
    text = explain(authorize(browser, client, "https://maps.example/V1"))
    assert "the path differs in upper and lower case" in text
    command = command_in(text)
    assert command == f"flask client update {client.client_id} --add-api {MAPS}"


def test_there_is_no_api_at_all(app: Flask, browser: Browser, user: User, explain: Explain) -> None:
    client = make_client(app)
    text = explain(authorize(browser, client, DOCS))
    assert "flask api create --identifier URI --name NAME" in text
    text = explain(authorize(browser, client, "docs.example"))
    assert "cannot identify an API: it is neither an https URL nor a URN" in text


def test_the_second_of_two_is_the_wrong_one(
    browser: Browser, client: RelyingParty, user: User, explain: Explain
) -> None:
    assert f"The API {MAPS} is registered" in explain(authorize(browser, client, [DOCS, MAPS]))


def test_a_disabled_api(
    app: Flask, browser: Browser, client: RelyingParty, user: User, explain: Explain
) -> None:
    change_api(app, DOCS, disabled=True)
    answer = authorize(browser, client, DOCS)
    command = command_in(explain(answer))
    assert command == f"flask api enable {DOCS}"
    run(app, command)
    assert "registered now" in explain(answer)


def test_too_many(browser: Browser, client: RelyingParty, user: User, explain: Explain) -> None:
    text = explain(authorize(browser, client, [f"https://a{n}.example" for n in range(11)]))
    assert "more than 10 resources" in text
    assert "only the APIs that it needs now" in text


def test_a_resource_that_was_not_approved(
    app: Flask, browser: Browser, client: RelyingParty, user: User, explain: Explain
) -> None:
    tokens = tokens_of(browser, client)
    text = explain(client.refresh(tokens["refresh_token"], resource=DOCS))
    assert f"The resource {DOCS} is not among those that the user approved." in text
    assert "in the authorization request, too" in text


def test_at_the_token_endpoint(
    browser: Browser, client: RelyingParty, user: User, explain: Explain
) -> None:
    tokens = tokens_of(browser, client, resource=DOCS)
    text = explain(client.refresh(tokens["refresh_token"], resource=f"{DOCS}/v2"))
    assert "the path is /v2" in text


WITHDRAWN = {
    "client": "is no longer registered for the API",
    "disabled": "is disabled",
    "deleted": "was deleted",
    "group": "dana@example.com is in none of the groups that may use the API",
    "scope": "or its scopes are gone",
}


@pytest.mark.parametrize("how", WITHDRAWN)
def test_what_was_withdrawn(
    app: Flask, browser: Browser, client: RelyingParty, user: User, explain: Explain, how: str
) -> None:
    tokens = tokens_of(browser, client, resource=DOCS)
    if how == "client":
        run(app, f"flask client update {client.client_id} --remove-api {DOCS}")
    else:
        changes: dict[str, dict[str, Any]] = {
            "disabled": {"disabled": True},
            "deleted": {"deleted": True},
            "group": {"groups": ["staff"]},
            "scope": {"scopes": {"write": "Write"}},
        }
        change_api(app, DOCS, **changes[how])
    answer = client.refresh(tokens["refresh_token"])
    assert answer.get_json()["error"] == "invalid_target"
    text = explain(answer)
    assert WITHDRAWN[how] in text
    command = command_in(text)
    assert (command is None) == (how in ("deleted", "scope"))
    if command:
        run(app, command)
        assert client.refresh(tokens["refresh_token"]).status_code == 200


@pytest.mark.parametrize("where", ["page", "silently"])
def test_somebody_who_may_not_use_the_api(
    app: Flask, browser: Browser, client: RelyingParty, user: User, explain: Explain, where: str
) -> None:
    change_api(app, DOCS, groups=["board", "staff"])
    if where == "page":
        browser.authorize(client, resource=DOCS, scope=SCOPE)
        answer = browser.sign_in()
    else:
        browser.sign_in()
        answer = authorize(browser, client, DOCS, prompt="none")
    text = explain(answer)
    assert f"may use the API {DOCS}: board, staff." in text
    command = command_in(text)
    assert command == "flask user update dana@example.com --add-group board"
    assert shlex.split(command)[0] == "flask"
    run(app, command)
    assert "may use it now" in explain(answer)


def test_a_token_for_an_api_at_userinfo(
    browser: Browser, client: RelyingParty, user: User, explain: Explain
) -> None:
    tokens = tokens_of(browser, client, resource=DOCS)
    text = explain(client.userinfo(tokens["access_token"]))
    assert "The access token is for an API; userinfo takes those for this server." in text
    assert "resource=http" in text
