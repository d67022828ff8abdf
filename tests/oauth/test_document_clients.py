"""Clients that a metadata document identifies: read, asked about, admitted, kept up to date."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import audit
from sso.extensions import db
from sso.models import AuditEvent, Client, User
from sso.oauth import document_clients
from sso.services import agents
from tests.conftest import Clock
from tests.support.actors import BASE, Browser, claims_of
from tests.support.agents import AGENT, DOCUMENT, Hosts, agent, answer, hosts
from tests.support.factories import change_api, make_api, make_client, make_user

__all__ = ["hosts"]

DOCS = "https://docs.example"


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_CLIENT_DOCUMENTS="any")


def clients_in(app: Flask) -> list[str]:
    with app.app_context():
        return list(db.session.scalars(select(Client.client_id)))


def events_in(app: Flask) -> list[str]:
    with app.app_context():
        return list(db.session.scalars(select(AuditEvent.name).order_by(AuditEvent.id)))


def test_an_agent_gets_tokens_for_an_api(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    docs, party = make_api(app, DOCS, agents=True), agent(app)
    page = browser.approve(party, resource=docs, scope="openid read offline_access")
    tokens = party.exchange(page.code).get_json()
    claims = claims_of(tokens["access_token"])
    assert (claims["aud"], claims["client_id"], claims["scope"]) == (docs, AGENT, "read")
    assert claims_of(tokens["id_token"])["aud"] == AGENT
    again = party.refresh(tokens["refresh_token"])
    assert again.status_code == 200, again.text
    assert hosts.asked == [AGENT]  # once, for all steps


def test_an_agent_needs_no_state(app: Flask, browser: Browser, user: User, hosts: Hosts) -> None:
    docs, party = make_api(app, DOCS, agents=True), agent(app)
    page = browser.approve(party, resource=docs, scope="openid read", state=None)
    assert page.parameters.keys() == {"code", "iss"}
    assert party.exchange(page.code).status_code == 200
    without = agent(app)
    without.verifier = None
    page = browser.authorize(without, resource=docs, state=None)
    assert (page.status, "code_challenge" in page.html) == (400, True)


def test_nothing_is_stored_before_a_person_allows_it(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    make_api(app, DOCS, agents=True)
    browser.authorize(agent(app), resource=DOCS)
    assert clients_in(app) == []
    browser.sign_in()
    assert ("decision", "allow") in browser.page.buttons
    assert clients_in(app) == []
    assert browser.deny().error == "access_denied"
    assert clients_in(app) == []
    browser.approve(agent(app), resource=DOCS)
    assert clients_in(app) == [AGENT]
    assert events_in(app).count("agent_admitted") == 1


def test_the_only_api_for_agents_is_the_default(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    make_api(app, "https://closed.example")
    docs, party = make_api(app, DOCS, agents=True), agent(app)
    tokens = party.exchange(browser.approve(party, scope="read").code).get_json()
    assert claims_of(tokens["access_token"])["aud"] == docs
    make_api(app, "https://second.example", agents=True)
    tokens = party.exchange(browser.approve(party, scope="openid email").code).get_json()
    assert claims_of(tokens["access_token"])["aud"] != docs


def test_an_api_that_is_closed_to_agents_is_unknown_to_them(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    docs, party = make_api(app, DOCS, agents=True), agent(app)
    page = browser.approve(party, resource=docs, scope="openid read offline_access")
    tokens = party.exchange(page.code).get_json()
    change_api(app, docs, agents=False)
    page = browser.authorize(party, resource=docs)
    assert (page.status, "invalid_target" in page.html) == (400, True)
    assert party.refresh(tokens["refresh_token"], resource=docs).get_json()["error"] == (
        "invalid_target"
    )


def test_people_are_asked_each_time(app: Flask, browser: Browser, user: User, hosts: Hosts) -> None:
    browser.approve(agent(app))
    page = browser.authorize(agent(app))
    assert ("decision", "allow") in page.buttons
    with app.app_context():
        client = db.session.get(Client, AGENT)
        assert client is not None
        client.first_party = True
        db.session.commit()
    assert ("decision", "allow") in browser.authorize(agent(app)).buttons
    assert "consent_required" in browser.authorize(agent(app), prompt="none").html


def test_a_changed_document_counts_when_it_is_read_again(
    app: Flask, browser: Browser, user: User, hosts: Hosts, clock: Clock
) -> None:
    browser.approve(agent(app))
    hosts.publish(client_name="Renamed Agent", redirect_uris=["https://agent.example/new"])
    clock.move(minutes=4, seconds=59)
    assert "Renamed" not in browser.authorize(agent(app)).html
    clock.move(seconds=2)
    browser.authorize(agent(app))  # the old one serves while the new one is read
    new = agent(app, uri="https://agent.example/new")
    for _ in range(50):
        if "Renamed Agent" in browser.authorize(new).html:
            break
    else:
        raise AssertionError(browser.page.html)
    assert browser.authorize(agent(app)).status == 400
    browser.authorize(new)
    assert browser.allow().url.startswith("https://agent.example/new")
    with app.app_context():
        client = db.session.get(Client, AGENT)
        assert client is not None
        assert client.name == "Renamed Agent"


def test_the_last_copy_serves_for_a_day(
    app: Flask, browser: Browser, user: User, hosts: Hosts, clock: Clock
) -> None:
    browser.approve(agent(app))
    hosts.replies[AGENT] = ConnectionRefusedError()
    clock.move(hours=23, minutes=59)
    assert ("decision", "allow") in browser.authorize(agent(app)).buttons
    clock.move(minutes=2)
    page = browser.authorize(agent(app))
    assert page.status == 400
    assert "its host cannot be reached" in page.html


@pytest.mark.parametrize(
    ("reply", "is_away"),
    [
        (ConnectionRefusedError(), True), (TimeoutError(), True), (answer({}, 503), True),
        (answer({}, 429), True), (answer({}, 404), False), (answer({}, 410), False),
        (answer({"client_id": "https://another.example"}), False),
    ],
)  # fmt: skip
def test_what_was_stored_serves_only_while_the_host_is_away(
    app: Flask, browser: Browser, user: User, hosts: Hosts, clock: Clock, reply: Any, is_away: bool
) -> None:
    """A document that was withdrawn or replaced is no host that is away."""
    browser.approve(agent(app))
    document_clients.init_app(app)  # a process that has read nothing yet
    hosts.replies[AGENT] = reply
    page = browser.authorize(agent(app))
    assert (page.status, ("decision", "allow") in page.buttons) == (
        (200, True) if is_away else (400, False)
    )
    clock.move(days=1, seconds=1)
    assert browser.authorize(agent(app)).status == 400


@pytest.mark.parametrize(
    ("control", "seconds"),
    [
        ("max-age=60", 300), ("max-age=3600", 3600), ("no-store, max-age=3600", 300),
        ("public, max-age=9999999", 86400), ("max-age=soon", 300), (None, 300),
    ],
)  # fmt: skip
def test_the_headers_decide_within_bounds(
    app: Flask, browser: Browser, hosts: Hosts, clock: Clock, control: str | None, seconds: int
) -> None:
    headers: dict[str, Any] = {"cache_control": control} if control else {}
    hosts.replies[AGENT] = answer(DOCUMENT, **headers)
    browser.authorize(agent(app))
    clock.move(seconds=seconds - 2)
    browser.authorize(agent(app))
    assert len(hosts.asked) == 1
    clock.move(seconds=3)
    browser.authorize(agent(app))
    for _ in range(200):
        if len(hosts.asked) == 2:
            break
        browser.http.get("/healthz")
    assert len(hosts.asked) == 2


@pytest.mark.parametrize("policy", ["off", "listed", "any"])
def test_the_policy(
    make_app: Callable[..., Flask], browser_of: Callable[[Flask], Browser], hosts: Hosts,
    policy: str,
) -> None:  # fmt: skip
    app = make_app(SSO_CLIENT_DOCUMENTS=policy)
    browser = browser_of(app)
    metadata = app.test_client().get(f"{BASE}/.well-known/openid-configuration").get_json()
    assert ("client_id_metadata_document_supported" in metadata) == (policy != "off")
    page = browser.authorize(agent(app))
    assert (page.status == 400) == (policy != "any")
    assert len(hosts.asked) == (policy == "any")  # nobody is asked in vain
    if policy == "listed":
        with app.app_context():
            assert agents.allow(audit.SYSTEM, " Agent.Example ") == "agent.example"
            db.session.commit()
        assert browser.authorize(agent(app)).status == 200
        hosts.publish("https://sub.agent.example/client.json")
        assert browser.authorize(agent(app, "https://sub.agent.example/client.json")).status == 400


@pytest.fixture
def browser_of() -> Callable[[Flask], Browser]:
    return Browser


def test_a_blocked_domain_ends_what_its_agents_have(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    below = "https://sub.agent.example/client.json"
    near = "https://notagent.example/client.json"
    parties = {}
    for url in (AGENT, below, near):
        hosts.publish(url, redirect_uris=["http://127.0.0.1/callback"])
        parties[url] = agent(app, url)
    tokens = {
        url: party.exchange(browser.approve(party).code).get_json()
        for url, party in parties.items()
    }
    with app.app_context():
        domain, ended = agents.block(audit.SYSTEM, "agent.example")
        db.session.commit()
    assert (domain, ended) == ("agent.example", sorted([AGENT, below]))
    for url, party in parties.items():
        status = party.userinfo(tokens[url]["access_token"]).status_code
        assert status == (200 if url == near else 401)
        page = browser.authorize(party)
        assert (page.status == 400) == (url != near)
    with app.app_context():
        agents.remove(audit.SYSTEM, "agent.example")
        db.session.commit()
    assert browser.authorize(parties[AGENT]).status == 400  # it stays disabled
    with app.app_context(), pytest.raises(LookupError):
        agents.remove(audit.SYSTEM, "agent.example")


def test_a_domain_that_is_not_listed_any_more(make_app: Callable[..., Flask], hosts: Hosts) -> None:
    app = make_app(SSO_CLIENT_DOCUMENTS="listed")
    make_user(app)
    browser, party = Browser(app), agent(app)
    with app.app_context():
        agents.allow(audit.SYSTEM, "agent.example")
        db.session.commit()
    tokens = party.exchange(browser.approve(party).code).get_json()
    with app.app_context():
        agents.remove(audit.SYSTEM, "agent.example")
        db.session.commit()
    assert party.userinfo(tokens["access_token"]).status_code == 401


def test_what_operators_decided_stays(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    browser.approve(agent(app))
    with app.app_context():
        client = db.session.get(Client, AGENT)
        assert client is not None
        client.set_client_metadata({**client.client_metadata, "groups": ["staff"]})
        db.session.commit()
    assert browser.authorize(agent(app)).status == 403
    with app.app_context():
        agents.admit(audit.USER, AGENT, {**client.client_metadata, "client_name": "Other"})
        db.session.commit()
        client = db.session.get(Client, AGENT)
        assert client is not None
        assert client.groups == ["staff"]


def test_others_are_not_touched(app: Flask, browser: Browser, user: User, hosts: Hosts) -> None:
    client = make_client(app)
    browser.approve(client)
    assert hosts.asked == []
    with app.app_context():
        assert db.session.scalar(select(func.count()).select_from(Client)) == 1


def test_access_of_an_agent_with_a_long_url_is_withdrawn(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    url = f"https://agent.example/{'x' * 160}/client.json"
    hosts.publish(url)
    party = agent(app, url)
    tokens = party.exchange(browser.approve(party).code).get_json()
    page = browser.open(
        f"{BASE}/account/confirm?{urlencode({'action': 'withdraw', 'client': url})}"
    )
    assert "agent.example" in page.html
    assert "Helpful Agent" not in page.html  # nobody has verified the name
    browser.submit(action="withdraw")
    assert party.userinfo(tokens["access_token"]).status_code == 401
    with app.app_context():
        withdrawn = select(AuditEvent.client_id).where(AuditEvent.name == "consent_withdrawn")
        assert db.session.scalar(withdrawn) == url
