"""`flask explain` about agents: every refusal by a real request, and the command that fixes it."""

import shlex
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import User
from sso.services import agents
from tests.explain.test_causes import command_in, run
from tests.support.actors import Browser, RelyingParty
from tests.support.agents import AGENT, DOCUMENT, Hosts, agent, answer, hosts
from tests.support.explaining import Explain
from tests.support.factories import make_api

__all__ = ["hosts"]

DOCS = "https://docs.example"
DOMAIN = AGENT.split("/")[2]


@pytest.fixture
def policy() -> str:
    return "listed"


@pytest.fixture
def app(make_app: Callable[..., Flask], policy: str) -> Flask:
    return make_app(SSO_CLIENT_DOCUMENTS=policy)


def authorize(app: Flask, browser: Browser, **more: str) -> Any:
    browser.authorize(agent(app), resource=DOCS, **more)
    return browser.history[-1]


@pytest.mark.parametrize("policy", ["off"])
def test_documents_are_switched_off(
    app: Flask, browser: Browser, user: User, explain: Explain, hosts: Hosts
) -> None:
    text = explain(authorize(app, browser))
    assert "switched off" in text
    assert "SSO_CLIENT_DOCUMENTS=listed" in text
    assert command_in(text) == f"flask mcp allow {DOMAIN}"


def test_a_domain_that_is_not_allowed(
    app: Flask, browser: Browser, user: User, explain: Explain, hosts: Hosts
) -> None:
    make_api(app, DOCS, agents=True)
    refused = authorize(app, browser)
    text = explain(refused)
    assert "is not among those that are allowed" in text
    command = command_in(text)
    assert command == f"flask mcp allow {DOMAIN}"
    run(app, command)
    assert "could not be used then" in explain(refused)
    assert authorize(app, browser).status_code != 400


def test_another_port_of_an_allowed_domain(
    app: Flask, browser: Browser, user: User, explain: Explain, hosts: Hosts
) -> None:
    url = f"https://{DOMAIN}:8443/client"
    hosts.publish(url)
    run(app, f"flask mcp allow {DOMAIN}")
    browser.authorize(agent(app, url))
    text = explain(browser.history[-1])
    assert f"the domain {DOMAIN}:8443 is not among those that are allowed" in text
    command = command_in(text)
    assert command == f"flask mcp allow {DOMAIN}:8443"
    run(app, command)
    assert browser.authorize(agent(app, url)).status == 200


def test_a_document_with_a_long_url(
    app: Flask, browser: Browser, user: User, explain: Explain, hosts: Hosts
) -> None:
    """Claude's has 49 characters; identifiers of other clients have fewer."""
    url = f"https://{DOMAIN}/{'oauth-client-metadata/' * 7}c"
    run(app, f"flask mcp allow {DOMAIN}")
    hosts.publish(url, redirect_uris=[])
    for refused in (agent(app, url).push(), authorize_at(browser, agent(app, url))):
        text = explain(refused)
        assert "redirect_uris" in text
        assert f"--client {url}." in text
    url += "2"
    hosts.publish(url)
    browser.approve(agent(app, url))
    text = explain(authorize_at(browser, agent(app, url), scope="nothing"))
    assert f"client    {url}\n" in text
    listed = explain.run("--client", url)
    assert DOMAIN in listed


def authorize_at(browser: Browser, party: RelyingParty, **more: str) -> Any:
    browser.authorize(party, **more)
    return browser.history[-1]


def test_a_domain_that_is_blocked(
    app: Flask, browser: Browser, user: User, explain: Explain, hosts: Hosts
) -> None:
    with app.app_context():
        agents.block(audit.SYSTEM, DOMAIN)
        db.session.commit()
    text = explain(authorize(app, browser))
    assert f"the domain {DOMAIN} is blocked" in text
    assert command_in(text) == f"flask mcp remove {DOMAIN}"


@pytest.mark.parametrize("policy", ["any"])
def test_a_document_with_a_fault(
    app: Flask, browser: Browser, user: User, explain: Explain, hosts: Hosts
) -> None:
    hosts.replies[AGENT] = answer({**DOCUMENT, "client_id": f"{AGENT}/other"})
    text = explain(authorize(app, browser))
    assert "its client_id is not the URL that it is at" in text
    assert f"doctor --mcp URL --client {AGENT}" in text
    assert command_in(text) is None


@pytest.mark.parametrize("policy", ["any"])
def test_an_api_that_is_closed_to_agents(
    app: Flask, browser: Browser, user: User, explain: Explain, hosts: Hosts
) -> None:
    make_api(app, "https://maps.example", agents=True)
    browser.approve(agent(app), resource="https://maps.example")
    make_api(app, DOCS)
    refused = authorize(app, browser)
    text = explain(refused)
    assert "such agents may not use the API" in text
    command = command_in(text)
    assert command is not None
    assert shlex.split(command) == ["flask", "mcp", "add", DOCS]
    run(app, command)
    assert "They may use it now" in explain(refused)
