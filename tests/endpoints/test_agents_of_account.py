"""The account page: agents and applications with access, from where, and how to end it."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import User
from sso.services import agents
from tests.conftest import Clock, Statements
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, pkce
from tests.support.agents import AGENT, Hosts, agent, hosts
from tests.support.events import events
from tests.support.factories import make_api, make_client, make_user
from tests.support.mailbox import Mailbox, text_of

__all__ = ["hosts"]

DOCS = "https://docs.example"
Count = Callable[[], AbstractContextManager[Statements]]
ACCOUNT, CONFIRM = f"{ORIGIN}{BASE}/account", f"{ORIGIN}{BASE}/account/confirm"


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_CLIENT_DOCUMENTS="any", SSO_OPEN_REGISTRATION="true")


def connect(browser: Browser, party: RelyingParty) -> dict[str, str]:
    code = browser.approve(party, resource=DOCS, scope="read offline_access").code
    tokens: dict[str, str] = party.exchange(code).get_json()
    return tokens


def registers_itself(app: Flask, name: str = "Claude") -> RelyingParty:
    uri = "http://127.0.0.1/callback"
    with app.app_context():
        fields = {"client_name": name, "redirect_uris": [uri]}
        client_id = agents.register_itself(audit.SYSTEM, fields).client_id
        db.session.commit()
    return RelyingParty(app, client_id, "", uri, pkce()[0])


def row_of(page: str, name: str) -> str:
    rows = re.findall(r"<li><div class=\"row\">.*?</li>", page.partition('id="access"')[2], re.S)
    [row] = [str(row) for row in rows if name in row]
    return row


def test_an_agent_is_named_by_its_domain(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    make_api(app, DOCS, agents=True)
    connect(browser, agent(app))
    row = row_of(browser.open(ACCOUNT).html, "agent.example")
    assert row.index("agent.example") < row.index("calls itself")
    assert "<bdi>Documents: Read documents</bdi>" in row  # also among words from right to left
    assert "Change documents" not in row
    assert "since" in row
    assert "127.0.0.1" in row
    assert "Withdraw access" in row


def test_a_name_that_nobody_verified(app: Flask, browser: Browser, user: User) -> None:
    """It is marked as a claim, and is not there if it could be mistaken for a domain."""
    make_api(app, DOCS, agents=True)
    connect(browser, registers_itself(app, "Claude"))
    row = row_of(browser.open(ACCOUNT).html, "an unverified application")
    assert "calls itself <bdi>Claude</bdi>, which is not verified" in row
    connect(browser, registers_itself(app, "Claude (claude.ai)"))
    assert "claude.ai" not in browser.open(ACCOUNT).html


def test_from_where_it_was_last_used(
    app: Flask, browser: Browser, user: User, hosts: Hosts, clock: Clock
) -> None:
    """That is where its last tokens were requested from."""
    make_api(app, DOCS, agents=True)
    party = agent(app)
    tokens = connect(browser, party)
    clock.move(days=1)
    form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    elsewhere = {"REMOTE_ADDR": "192.0.2.7"}
    party.post("/oauth2/token", form | party.credentials(), environ_overrides=elsewhere)
    row = row_of(browser.open(ACCOUNT).html, "agent.example")
    assert "192.0.2.7" in row
    assert "127.0.0.1" not in row


def test_one_agent_ends(app: Flask, browser: Browser, user: User, hosts: Hosts) -> None:
    """Its identifier is a URL, longer than those of other clients."""
    make_api(app, DOCS, agents=True)
    party = agent(app)
    tokens, other = connect(browser, party), connect(browser, registers_itself(app))
    browser.open(f"{CONFIRM}?action=withdraw&client={AGENT}")
    page = browser.submit(action="withdraw")
    assert "agent.example" not in page.html
    assert party.refresh(tokens["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert "refresh_token" in other
    assert "an unverified application" in page.html


def test_all_agents_end_together(app: Flask, browser: Browser, user: User, hosts: Hosts) -> None:
    """Applications, and the agents of somebody else, keep their access."""
    make_api(app, DOCS, agents=True)
    books, first, second = make_client(app), agent(app), registers_itself(app)
    kept = books.exchange(browser.approve(books).code).get_json()
    ended = [(party, connect(browser, party)) for party in (first, second)]
    make_user(app, "robin@example.com", name="Robin")
    stranger = Browser(app)
    stranger.sign_in("robin@example.com")
    theirs = connect(stranger, second)
    page = browser.open(f"{CONFIRM}?action=end_agents")
    assert "agent.example" in page.html
    page = browser.submit(action="end_agents")
    assert "No agent has access any more." in page.html
    assert "End all agents" not in page.html
    for party, tokens in ended:
        assert party.refresh(tokens["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert books.userinfo(kept["access_token"]).status_code == 200
    assert second.refresh(theirs["refresh_token"]).status_code == 200
    withdrawn = events(app, "consent_withdrawn")
    assert {event["client"] for event in withdrawn} == {first.client_id, second.client_id}
    assert ("decision", "allow") in browser.authorize(first, resource=DOCS).buttons


def test_without_agents(browser: Browser, user: User) -> None:
    browser.sign_in()
    assert "End all agents" not in browser.open(ACCOUNT).html
    assert "end_agents" not in browser.open(f"{CONFIRM}?action=end_agents").html


def test_a_mail_when_it_is_connected_for_the_first_time(
    app: Flask, browser: Browser, user: User, hosts: Hosts, mailbox: Mailbox
) -> None:
    make_api(app, DOCS, agents=True)
    party = agent(app)
    connect(browser, party)
    connect(browser, party)
    connect(browser, make_client(app, apis=[DOCS]))
    mails = [mail for mail in mailbox.read() if "agent" in mail["Subject"].lower()]
    assert len(mails) == 1
    text = text_of(mails[0])
    assert "agent.example" in text
    assert "127.0.0.1" in text


def test_the_pages_statements_are_bounded(
    app: Flask, browser: Browser, user: User, hosts: Hosts, statements: Count
) -> None:
    """More agents and tokens mean no more statements, and the agents' part takes few."""
    make_api(app, DOCS, agents=True)
    connect(browser, agent(app))
    browser.open(ACCOUNT)
    with statements() as before:
        browser.open(ACCOUNT)
    for name in ("One", "Two", "Three"):
        connect(browser, registers_itself(app, name))
    with statements() as after:
        browser.open(ACCOUNT)
    assert len(after) == len(before), after
