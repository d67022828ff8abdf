"""A stranger publishes a client metadata document: what it cannot do."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import audit
from sso.extensions import db
from sso.models import Client, PushedRequest, User
from sso.process.http_call import ForbiddenPeer
from sso.ratelimit import limiting
from sso.services import agents, client_documents
from tests.conftest import Clock
from tests.support.actors import BASE, Browser, RelyingParty
from tests.support.agents import AGENT, DOCUMENT, Hosts, agent, answer, hosts

__all__ = ["hosts"]


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_CLIENT_DOCUMENTS="any")


@pytest.mark.parametrize(
    "url",
    [
        "https://agent.example", "https://agent.example/", "http://agent.example/c",
        "https://Agent.example/c", "https://agent.example:443/c", "https://agent.example:0/c",
        "https://agent.example:99999/c", "https://agent.example/a/../c", "https://agent.example/./c",
        "https://agent.example//c", "https://agent.example/c?x=1", "https://agent.example/c#x",
        "https://dana@agent.example/c", "https://127.0.0.1/c", "https://[::1]/c",
        "https://2130706433/c", "https://localhost/c", "https://agent.example/%2e%2e/c",
        "https://agent.example/c\n", "https://\u0430gent.example/c", "https://agent.example\\@x/c",
        "https://agent..example/c", "https://-agent.example/c",
        "https://agent.example/" + "c" * 240,
        "https://agent.example/c d", "https:///c", "https://.example/c", "https://169.254.169.254/c",
    ],
)  # fmt: skip
def test_urls_with_another_spelling_or_meaning(
    app: Flask, browser: Browser, hosts: Hosts, url: str
) -> None:
    page = browser.authorize(agent(app, url))
    assert page.status == 400
    assert hosts.asked == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"client_id": "https://agent.example/other"}, "is not the URL"),
        ({"client_id": None}, "is not the URL"),
        ({"client_id": [AGENT]}, "is not the URL"),
        ({"client_secret": "s"}, "client_secret"),
        ({"token_endpoint_auth_method": "client_secret_post"}, "neither none nor"),
        ({"token_endpoint_auth_method": ["none"]}, "neither none nor"),
        ({"token_endpoint_auth_method": "private_key_jwt"}, "neither jwks_uri nor jwks"),
        ({"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "https://10.0.0.1/k"},
         "private address"),
        ({"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [{"kty": "oct"}]}},
         "key"),
        ({"grant_types": ["client_credentials"]}, "authorization_code"),
        ({"grant_types": "authorization_code"}, "authorization_code"),
        ({"response_types": ["token"]}, "code"),
        ({"redirect_uris": []}, "redirect_uris"),
        ({"redirect_uris": None}, "redirect_uris"),
        ({"redirect_uris": [7]}, "redirect_uris"),
        ({"redirect_uris": ["https://bank.example/callback"]}, "another domain"),
        ({"redirect_uris": ["https://notagent.example/callback"]}, "another domain"),
        ({"redirect_uris": ["https://agent.example.evil.example/"]}, "another domain"),
        ({"redirect_uris": ["http://agent.example/callback"]}, "plain http"),
        ({"redirect_uris": ["javascript:alert(1)"]}, "scheme"),
        ({"redirect_uris": ["https://agent.example/*"]}, "wildcard"),
        ({"redirect_uris": ["https://10.0.0.1/callback"]}, "another domain"),
        ({"redirect_uris": [f"https://agent.example/{n}" for n in range(21)]}, "more than 20"),
        ({"redirect_uris": ["https://agent.example/\ud800"]}, "characters"),
        ({"client_name": 7}, "client_name"),
        ({"client_name": "\ud800"}, "name"),
        ({"client_name": "x\u202egpj.exe"}, "name"),
        ({"client_name": "x" * 5000 + "\u202e"}, "name"),
        ({"client_name": ""}, "name"),
        ({"scope": 7}, "scope"),
    ],
)  # fmt: skip
def test_documents_that_register_too_much(
    app: Flask, browser: Browser, hosts: Hosts, changes: dict[str, Any], words: str
) -> None:
    fields = {name: value for name, value in {**DOCUMENT, **changes}.items() if value is not None}
    hosts.replies[AGENT] = answer(json.dumps(fields).encode())
    page = browser.authorize(agent(app))
    assert page.status == 400
    assert words in page.html


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (answer(DOCUMENT, 404), "answered 404"),
        (answer(DOCUMENT, 302, location="https://agent.example/other"), "answered 302"),
        (answer(DOCUMENT, kind="text/html"), "Content-Type"),
        (answer(DOCUMENT, kind="application/jsonp"), "Content-Type"),
        (answer(json.dumps(DOCUMENT).encode().ljust(10 * 1024 + 1)), "longer than"),
        (answer(b"[" * 10_000), "not JSON"),
        (answer(b"\xff"), "not JSON"),
        (answer([]), "not a JSON object"),
        (ForbiddenPeer("private"), "private address"),
        (TimeoutError(), "in time"),
        (OSError(), "cannot be reached"),
        (ValueError(), "cannot be reached"),
    ],
)
def test_answers_that_are_no_document(
    app: Flask, browser: Browser, hosts: Hosts, reply: Any, words: str
) -> None:
    hosts.replies[AGENT] = reply
    page = browser.authorize(agent(app))
    assert page.status == 400
    assert words in page.html
    with app.app_context():
        assert db.session.scalars(select(Client)).all() == []


def test_as_long_as_a_document_may_be(app: Flask, browser: Browser, hosts: Hosts) -> None:
    hosts.replies[AGENT] = answer(json.dumps(DOCUMENT).encode().ljust(10 * 1024))
    assert browser.authorize(agent(app)).status == 200


def test_a_redirect_uri_at_another_domain_is_not_registered(
    app: Flask, browser: Browser, hosts: Hosts
) -> None:
    foreign = "https://bank.example/callback"
    hosts.publish(redirect_uris=[foreign, "https://agent.example/callback"])
    assert browser.authorize(agent(app, uri=foreign)).status == 400
    assert browser.authorize(agent(app, uri="https://agent.example/callback")).status == 200


def test_an_open_redirect(app: Flask, browser: Browser, user: User, hosts: Hosts) -> None:
    """Nothing of a stranger's document leads away before a person has decided."""
    party = agent(app, uri="https://agent.example/callback")
    for more in ({"prompt": "none"}, {"response_type": "token"}, {"scope": "nothing"}):
        page = browser.authorize(party, **more)
        assert page.is_at_server, page.url
    browser.sign_in()
    assert browser.authorize(party, prompt="none").is_at_server
    browser.authorize(party)
    assert browser.deny().url.startswith("https://agent.example/callback?error=access_denied")


def test_a_thousand_urls(app: Flask, browser: Browser, hosts: Hosts) -> None:
    for number in range(70):
        url = f"https://h{number}.example/client.json"
        hosts.publish(url, redirect_uris=["http://127.0.0.1/callback"])
        browser.authorize(agent(app, url))
    assert len(hosts.asked) == 60
    assert browser.page.status == 429
    # Those that a person has allowed are read all the same.


def test_a_thousand_urls_that_are_pushed(app: Flask, hosts: Hosts) -> None:
    """A pushed request is stored: few of clients that no person has allowed, short as they live."""
    answers = []
    for number in range(62):
        url = f"https://h{number}.example/client.json"
        hosts.publish(url, redirect_uris=["http://127.0.0.1/callback"])
        answers.append(agent(app, url).push())
    assert [answer.status_code for answer in answers] == [*[201] * 60, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert len(hosts.asked) == 60
    with app.app_context():
        assert db.session.scalars(select(Client)).all() == []
        assert db.session.scalar(select(func.count()).select_from(PushedRequest)) == 60


def test_one_url_that_is_pushed_a_thousand_times(
    app: Flask, browser: Browser, user: User, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its document is read once, yet each request counts, for the network and for the domain."""
    few = replace(limiting.CLIENT_DOCUMENT, account=6, ip_address=4)
    monkeypatch.setattr(limiting, "CLIENT_DOCUMENT", few)

    def push(network: str, party: RelyingParty) -> int:
        form = party.parameters() | party.credentials()
        environ = {"REMOTE_ADDR": network}
        return party.post("/oauth2/par", form, environ_overrides=environ).status_code

    party = agent(app)
    ports = [agent(app, f"https://agent.example:{number}/c") for number in (81, 82)]
    for each in ports:
        hosts.publish(each.client_id)
    assert [push("192.0.2.1", party) for _ in range(5)] == [201, 201, 201, 201, 429]
    # The domain has two left, at whichever port.
    assert [push("198.51.100.1", each) for each in (*ports, party)] == [201, 201, 429]
    assert hosts.asked.count(AGENT) == 1
    browser.approve(party)
    assert push("198.51.100.1", party) == 201  # allowed by a person: not by strangers' leave


def test_one_domain_from_many_networks(
    app: Flask, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documents of a domain are read so often at most, however many networks ask for them."""
    few = replace(limiting.CLIENT_DOCUMENT, account=30)
    monkeypatch.setattr(limiting, "CLIENT_DOCUMENT", few)
    http, status = app.test_client(), 0
    for number in range(32):
        query = urlencode(agent(app, f"https://agent.example/{number}").parameters())
        network = {"REMOTE_ADDR": f"{11 + number}.0.0.1"}
        answer = http.get(f"{BASE}/oauth2/authorize?{query}", environ_overrides=network)
        status = answer.status_code
    assert status == 429
    assert len(hosts.asked) == 30


def test_strangers_do_not_use_up_the_readings_of_an_allowed_agent(
    app: Flask, browser: Browser, user: User, hosts: Hosts, clock: Clock
) -> None:
    browser.approve(agent(app))
    for number in range(70):
        browser.authorize(agent(app, f"https://agent.example/{number}"))
    assert browser.page.status == 429
    clock.move(minutes=6)
    assert browser.authorize(agent(app)).status == 200


def test_a_blocked_domain_between_question_and_answer(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    browser.authorize(agent(app))
    browser.sign_in()
    with app.app_context():
        agents.block(audit.SYSTEM, "agent.example")
        db.session.commit()
    page = browser.allow()
    assert page.status == 400
    with app.app_context():
        assert db.session.scalars(select(Client)).all() == []


def test_the_client_of_another_kind_keeps_its_registration(app: Flask) -> None:
    with app.app_context():
        draft = client_documents.registered(AGENT, dict(DOCUMENT))
        assert (draft.registration, draft.secret_digest, draft.is_public) == ("document", "", True)
        assert draft.require_pkce
        assert not draft.first_party


def test_a_long_name_is_cut(app: Flask, browser: Browser, user: User, hosts: Hosts) -> None:
    names = {
        "x" * 60: "x" * 60,
        "x" * 61: "x" * 59 + "…",
        "é" * 2000: "é" * 59 + "…",
        "x" * 58 + " " + "y" * 9: "x" * 58 + "…",
    }
    with app.app_context():
        for name, display in names.items():
            client = client_documents.registered(AGENT, {**DOCUMENT, "client_name": name})
            assert client.client_metadata["client_name"] == display
    hosts.publish(client_name="x" * 61)
    browser.authorize(agent(app))
    page = browser.sign_in()
    assert f"<bdi>{'x' * 59}…</bdi>" in page.html
    assert "x" * 60 not in page.html
