"""Agents push their requests (RFC 9126), also before any person has allowed them."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import audit
from sso.extensions import db
from sso.jobs.upkeep import purge
from sso.models import Client, PushedRequest, User
from sso.ratelimit import limiting
from sso.services import agents, clients
from tests.conftest import Clock
from tests.explain.test_causes import command_in
from tests.support.actors import Browser, Page, RelyingParty, pkce
from tests.support.agents import AGENT, CALLBACK, DOCUMENT, Hosts, agent, answer, hosts
from tests.support.explaining import Explain
from tests.support.factories import make_client
from tests.support.signing import EC, ED, KeyedParty, public

__all__ = ["hosts"]


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_CLIENT_DOCUMENTS="any")


def stored(app: Flask) -> tuple[int, int]:
    """How many clients and pushed requests there are."""
    with app.app_context():
        return (
            db.session.scalar(select(func.count()).select_from(Client)) or 0,
            db.session.scalar(select(func.count()).select_from(PushedRequest)) or 0,
        )


def send(browser: Browser, party: RelyingParty) -> Page:
    pushed = party.push()
    assert pushed.status_code == 201, pushed.text
    uri = pushed.get_json()["request_uri"]
    return browser.open_authorize({"client_id": party.client_id, "request_uri": uri})


def keyed(app: Flask, hosts: Hosts) -> KeyedParty:
    hosts.publish(
        token_endpoint_auth_method="private_key_jwt", jwks={"keys": [public(EC)]}
    )  # fmt: skip
    return KeyedParty(app, AGENT, "", CALLBACK, pkce()[0])


def test_the_whole_way(
    app: Flask, browser: Browser, user: User, hosts: Hosts, clock: Clock
) -> None:
    party = agent(app)
    send(browser, party)
    assert stored(app) == (0, 1)  # nobody has been asked yet
    page = browser.sign_in()
    assert "agent.example requests access" in re.sub(r"<[^>]+>", "", page.html)
    assert stored(app) == (0, 1)
    tokens = party.exchange(browser.allow().code).get_json()
    assert party.userinfo(tokens["access_token"]).status_code == 200
    assert stored(app) == (1, 1)
    assert ("decision", "allow") in send(browser, party).buttons  # asked again, and stored by now
    clock.move(days=1)
    with app.app_context():
        assert purge()["pushed_requests"] == 2


def test_with_a_key(app: Flask, browser: Browser, user: User, hosts: Hosts) -> None:
    party = keyed(app, hosts)
    send(browser, party)
    browser.sign_in()
    code = browser.allow().code
    assert party.exchange(code).status_code == 200
    assert ("decision", "allow") in send(browser, party).buttons


@pytest.mark.parametrize("has_key", [False, True])
def test_a_flood_of_agents_stops_only_its_sender(
    app: Flask, hosts: Hosts, monkeypatch: pytest.MonkeyPatch, has_key: bool
) -> None:
    """Anyone can publish a document with a key, so their pushes are counted by address."""
    few = replace(limiting.PUSHED_BY_ANYONE, ip_address=3)
    monkeypatch.setattr(limiting, "PUSHED_BY_ANYONE", few)
    party = keyed(app, hosts) if has_key else agent(app)
    answers = [party.push() for _ in range(4)]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
    assert make_client(app).push().status_code == 201  # a registered one has its own budget
    form = party.parameters() | party.credentials()
    elsewhere = {"REMOTE_ADDR": "198.51.100.7"}
    assert party.post("/oauth2/par", form, environ_base=elsewhere).status_code == 201


def test_with_a_wrong_key_or_none(app: Flask, hosts: Hosts) -> None:
    party = keyed(app, hosts)
    used = party.credentials()
    for _ in range(2):
        again = party.post("/oauth2/par", party.parameters() | used)
    assert again.status_code == 401  # an assertion works once
    party.key, party.alg = ED, "EdDSA"
    for refused in (party.push(), agent(app).push()):
        assert (refused.status_code, refused.get_json()["error"]) == (401, "invalid_client")
    assert stored(app) == (0, 1)


def test_what_its_document_does_not_register(app: Flask, hosts: Hosts) -> None:
    for fields, error in (
        ({"redirect_uri": "https://agent.example/other"}, "invalid_request"),
        ({"client_secret": "secret"}, "invalid_client"),
        ({"code_challenge": None, "code_challenge_method": None}, "invalid_request"),
        ({"request_uri": "https://agent.example/request"}, "invalid_request"),
        ({"request": "x.y.z"}, None),
    ):
        refused = agent(app).push(**fields)
        assert refused.status_code in (400, 401), fields
        assert error in (None, refused.get_json()["error"])
    assert stored(app) == (0, 0)


def test_a_document_that_cannot_be_used(
    app: Flask, hosts: Hosts, user: User, explain: Explain
) -> None:
    hosts.replies[AGENT] = answer({**DOCUMENT, "client_id": f"{AGENT}/other"})
    for party in (agent(app), KeyedParty(app, AGENT, "", CALLBACK, pkce()[0])):
        form = {"client_id": AGENT}
        refused = party.push(**form)
        body = refused.get_json()
        assert (refused.status_code, body["error"]) == (401, "invalid_client")
        assert "its client_id is not the URL that it is at" in body["error_description"]
        assert "its client_id is not the URL that it is at" in explain(refused)
    assert stored(app) == (0, 0)


def test_a_domain_that_is_blocked(
    app: Flask, browser: Browser, user: User, hosts: Hosts, explain: Explain
) -> None:
    """Before and after the request was pushed, and when the person answers."""
    party = agent(app)
    uri = party.push().get_json()["request_uri"]
    send(browser, party)
    browser.sign_in()
    with app.app_context():
        agents.block(audit.SYSTEM, "agent.example")
        db.session.commit()
    assert browser.allow().status == 400
    assert browser.open_authorize({"client_id": AGENT, "request_uri": uri}).status == 400
    read = len(hosts.asked)
    refused = party.push()
    assert "is blocked" in refused.get_json()["error_description"]
    assert command_in(explain(refused)) == "flask mcp remove agent.example"
    assert len(hosts.asked) == read
    assert stored(app)[0] == 0


def test_a_client_that_is_disabled_or_deleted(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    party = agent(app)
    browser.approve(party)
    uri = party.push().get_json()["request_uri"]
    with app.app_context():
        clients.disable(audit.SYSTEM, AGENT)
        db.session.commit()
    assert party.push().get_json()["error"] == "invalid_client"
    assert browser.open_authorize({"client_id": AGENT, "request_uri": uri}).status == 400
    with app.app_context():
        clients.delete(audit.SYSTEM, AGENT)
        db.session.commit()
    assert stored(app) == (0, 0)
    assert browser.open_authorize({"client_id": AGENT, "request_uri": uri}).status == 400
    assert ("decision", "allow") in send(browser, party).buttons  # a new agent: people are asked


def test_what_a_client_pushed_is_of_no_use_to_its_successor(app: Flask, user: User) -> None:
    """An operator registers it again with its ID, and what strangers pushed for it waits."""
    former = make_client(app, public=True)
    uri = former.push().get_json()["request_uri"]
    with app.app_context():
        clients.delete(audit.SYSTEM, former.client_id)
        fields = {"client_name": "Books", "redirect_uris": [former.redirect_uri]}
        clients.register(audit.SYSTEM, fields, client_id=former.client_id)
        db.session.commit()
    query = {"client_id": former.client_id, "request_uri": uri}
    assert Browser(app).open_authorize(query).status == 400


@pytest.mark.parametrize(("name", "words"), [("off", "switched off"), ("listed", "not among")])
def test_what_the_operator_has_not_switched_on(
    make_app: Callable[..., Flask], hosts: Hosts, name: str, words: str
) -> None:
    app = make_app(SSO_CLIENT_DOCUMENTS=name)
    refused = agent(app).push()
    assert (refused.status_code, refused.get_json()["error"]) == (401, "invalid_client")
    assert words in refused.get_json()["error_description"]
    assert hosts.asked == []
    assert stored(app) == (0, 0)
