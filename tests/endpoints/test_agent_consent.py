"""What people are asked before an agent gets access, and what their answer gives."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import Client, Consent, User
from sso.oauth import document_clients
from sso.process import http_call
from sso.services import agents
from tests.support.actors import Browser, Page, RelyingParty, claims_of
from tests.support.agents import AGENT, CALLBACK, Hosts, agent, hosts
from tests.support.factories import make_api, make_client

__all__ = ["hosts"]

DOCS, MAIL = "https://docs.example", "https://mail.example"
WEB = "https://agent.example/callback"
ASKED = {"resource": DOCS, "scope": "openid email read offline_access"}


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    app = make_app(SSO_CLIENT_DOCUMENTS="any", SSO_OPEN_REGISTRATION="true")
    make_api(app, DOCS, agents=True)
    make_api(app, MAIL, agents=True)
    return app


def text_of(page: Page) -> str:
    """The text of a page in one line."""
    html = re.sub(r"</?bdi[^>]*>", "", page.html.partition("</h1>")[2])
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def heading(page: Page) -> str:
    match = re.search(r"<h1[^>]*>(.*?)</h1>", page.html)
    assert match
    return re.sub(r"<[^>]+>", "", match[1])


def asked(browser: Browser, party: RelyingParty, **more: Any) -> Page:
    """The page of consent, after a sign-in if there is none."""
    page = browser.authorize(party, **{**ASKED, **more})
    return browser.sign_in() if "password" in page.fields else page


def tokens_of(browser: Browser, party: RelyingParty, duration: str, **more: Any) -> dict[str, Any]:
    asked(browser, party, **more)
    page = browser.submit(decision="allow", duration=duration)
    tokens: dict[str, Any] = party.exchange(page.code).get_json()
    return tokens


def test_the_domain_comes_first_and_the_name_is_a_claim(
    browser: Browser, user: User, hosts: Hosts
) -> None:
    page = asked(browser, agent(browser.http.application, uri=WEB))
    assert heading(page) == "agent.example requests access to your account"
    text = text_of(page)
    assert "Only this domain is verified." in text
    assert "Name that it gives itself, not verified Helpful Agent" in text
    assert "Access goes to agent.example" in text
    assert "program on this device" not in text
    assert "If you allow it, agent.example will receive:" in text
    assert 'name="scope_offline_access"' not in page.html  # the duration stands for it


@pytest.mark.parametrize("uri", [CALLBACK, "http://[::1]:9/callback", "com.example.agent:/back"])
def test_it_says_that_the_agent_runs_on_this_device(
    app: Flask, browser: Browser, user: User, hosts: Hosts, uri: str
) -> None:
    uris = ["http://127.0.0.1/callback", "http://[::1]/callback", "com.example.agent:/back"]
    hosts.publish(redirect_uris=uris)
    text = text_of(asked(browser, agent(app, uri=uri)))
    assert "a program on this device (" in text
    assert "is verified" not in text
    assert "Any program on this device can pretend to be agent.example." in text


def test_an_application_that_registered_itself_has_nothing_verified(
    app: Flask, browser: Browser, user: User
) -> None:
    body = {"client_name": "Claude", "redirect_uris": ["https://claude.ai/api/mcp/auth_callback"]}
    client = app.test_client().post("/api/auth/oauth2/register", json=body).get_json()
    party = agent(app, client["client_id"], body["redirect_uris"][0])
    page = asked(browser, party)
    assert heading(page) == "An unverified application requests access to your account"
    text = text_of(page)
    assert "Nothing about it is verified." in text
    assert "Name that it gives itself, not verified Claude" in text
    assert "verified." not in text.replace("Nothing about it is verified.", "")


def test_the_sign_in_page_names_the_domain(app: Flask, browser: Browser, hosts: Hosts) -> None:
    hosts.publish(client_name="Your Bank")
    page = browser.authorize(agent(app), **ASKED)
    assert "agent.example" in page.html
    assert "Your Bank" not in page.html


def test_access_for_once_has_no_refresh_token(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    party = agent(app)
    tokens = tokens_of(browser, party, "once")
    assert "refresh_token" not in tokens
    claims = claims_of(tokens["access_token"])
    assert (claims["aud"], claims["scope"]) == (DOCS, "read")
    assert "id_token" in tokens
    with app.app_context():
        assert "offline_access" not in db.session.query(Consent).one().scope.split()


@pytest.mark.parametrize("answer", [{}, {"duration": ""}, {"duration": "forever"}])
def test_only_the_right_word_lasts(
    app: Flask, browser: Browser, user: User, hosts: Hosts, answer: dict[str, str]
) -> None:
    party = agent(app)
    page = asked(browser, party)
    page.fields.pop("duration")
    tokens = party.exchange(browser.submit(decision="allow", **answer).code).get_json()
    assert "refresh_token" not in tokens


def test_access_until_its_end_is_renewed_after_sign_out(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    party = agent(app)
    tokens = tokens_of(browser, party, "lasting")
    browser.open("http://localhost/api/auth/sign-out")
    browser.submit()
    assert party.refresh(tokens["refresh_token"]).status_code == 200


def test_once_takes_nothing_from_what_was_allowed_before(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    party = agent(app)
    lasting = tokens_of(browser, party, "lasting")
    assert "refresh_token" not in tokens_of(browser, party, "once")
    renewed = party.refresh(lasting["refresh_token"])
    assert renewed.status_code == 200, renewed.text
    with app.app_context():
        consent = db.session.query(Consent).one()
        assert "offline_access" in consent.scope.split()
        assert consent.declined == ""


def test_once_does_not_become_lasting_later(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    party = agent(app)
    assert "refresh_token" not in tokens_of(browser, party, "once")
    page = asked(browser, party)
    assert ("decision", "allow") in page.buttons
    assert "code" not in browser.authorize(party, prompt="none", **ASKED).parameters


def test_it_says_how_long_once_is(
    make_app: Callable[..., Flask], browser: Browser, user: User, hosts: Hosts, app: Flask
) -> None:
    assert "For 1 hour at most." in text_of(asked(browser, agent(app))).replace("\xa0", " ")
    make_api(app, "https://slow.example", agents=True, access_token_lifetime=7200)
    page = asked(browser, agent(app), resource="https://slow.example", scope="read")
    assert "For 2 hours at most." in text_of(page).replace("\xa0", " ")


def test_it_says_what_ends_access_that_is_not_offline(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    text = text_of(asked(browser, agent(app), scope="openid read"))
    assert "Until you sign out here" in text
    assert "while you are signed out" not in text
    assert "while you are signed out" in text_of(asked(browser, agent(app)))


def test_applications_of_operators_are_asked_about_as_before(
    app: Flask, browser: Browser, user: User
) -> None:
    party = make_client(app, scope="openid email offline_access")
    browser.authorize(party, scope="openid email offline_access")
    page = browser.sign_in()
    assert "duration" not in page.fields
    assert "scope_offline_access" in page.fields
    tokens = party.exchange(browser.submit(decision="allow", duration="once").code).get_json()
    assert "refresh_token" in tokens


def test_each_api_has_its_own_words(app: Flask, browser: Browser, user: User, hosts: Hosts) -> None:
    page = asked(browser, agent(app), resource=[DOCS, MAIL], scope="read")
    text = text_of(page)
    assert text.count("agent.example will be able to:") == 2
    assert "docs.example" in text
    assert "mail.example" in text


def test_the_agent_of_one_domain_is_not_that_of_another(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    assert tokens_of(browser, agent(app), "lasting")
    other = "https://other.example/client.json"
    hosts.publish(other, client_name="Helpful Agent", redirect_uris=["http://127.0.0.1/callback"])
    page = asked(browser, agent(app, other))
    assert heading(page) == "other.example requests access to your account"
    assert AGENT not in page.html


def test_a_domain_that_is_blocked_while_the_answer_is_handled(
    app: Flask, browser: Browser, user: User, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document is read before the transaction that stores the agent."""
    party = agent(app)
    asked(browser, party)
    document_clients.init_app(app)  # another process: it waits until it has read the document

    def block_meanwhile(*arguments: Any, **options: Any) -> Any:
        with app.app_context():
            agents.block(audit.SYSTEM, "agent.example")
            db.session.commit()
        return hosts.call(*arguments, **options)

    monkeypatch.setattr(http_call, "call", block_meanwhile)
    page = browser.submit(decision="allow", duration="lasting")
    assert [answer.status_code for answer in browser.history[-2:]] == [303, 400]
    assert "blocked" in page.html
    with app.app_context():
        assert db.session.query(Consent).all() == []
        assert db.session.query(Client).all() == []
