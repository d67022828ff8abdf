"""What ends the access of agents: the table in docs/explanation/revocation.md."""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.services import agents, revocation
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.agents import AGENT, Hosts, agent, answer, hosts
from tests.support.factories import make_client, make_user

__all__ = ["hosts"]
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
OTHER = "https://other.example/client.json"
SCOPE = "openid email offline_access"


class Scene:
    """One person with two agents and an application, which have refresh tokens."""

    def __init__(self, app: Flask, clock: Clock, hosts: Hosts) -> None:
        self.app, self.clock, self.hosts, self.browser = app, clock, hosts, Browser(app)
        hosts.publish(OTHER, redirect_uris=["http://127.0.0.1/callback"])
        parties = {
            "the agent": agent(app),
            "other agents": agent(app, OTHER),
            "applications": make_client(app, scope=SCOPE),
        }
        self.tokens = {name: self._connect(party) for name, party in parties.items()}
        self.parties = parties
        self.expiry = clock.time + timedelta(hours=1)

    def _connect(self, party: RelyingParty) -> dict[str, str]:
        page = self.browser.approve(party, scope=SCOPE)
        tokens: dict[str, str] = party.exchange(page.code).get_json()
        return tokens

    def flask(self, *arguments: str) -> None:
        result = self.app.test_cli_runner().invoke(args=arguments)
        assert result.exit_code == 0, result.stderr

    def account(self, action: str, client: str = "") -> None:
        self.browser.open(f"{ORIGIN}{BASE}/account/confirm?action={action}&client={client}")
        self.browser.submit(action=action)

    def lose_document(self) -> None:
        """Its host answers no more, and the last copy is more than a day old."""
        self.hosts.replies[AGENT] = answer({}, 503)
        self.clock.move(days=1, minutes=1)

    def end_agents_of_another(self) -> None:
        other = make_user(self.app, "robin@example.com", name="Robin")
        with self.app.app_context():
            revocation.withdraw_agents(audit.USER, other.id)
            db.session.commit()

    def measure(self) -> str:
        ended = []
        for name, party in self.parties.items():
            tokens = self.tokens[name]
            is_refused = party.refresh(tokens["refresh_token"]).status_code != 200
            refused = party.userinfo(tokens["access_token"]).status_code == 401
            assert refused == is_refused or self.clock.time > self.expiry
            if is_refused:
                ended.append(name)
        return ", ".join(ended) or "nothing"


CAUSES: dict[str, tuple[Callable[[Scene], object], str]] = {
    "access withdrawn on the account page": (lambda s: s.account("withdraw", AGENT), "the agent"),
    "all agents ended on the account page": (
        lambda s: s.account("end_agents"),
        "the agent, other agents",
    ),
    "domain blocked": (lambda s: s.flask("mcp", "block", "agent.example"), "the agent"),
    "allowed domain removed": (lambda s: s.flask("mcp", "remove", "agent.example"), "the agent"),
    "client disabled": (lambda s: s.flask("client", "disable", AGENT), "the agent"),
    "document unreachable for more than a day": (Scene.lose_document, "nothing"),
    "all agents of another user ended": (Scene.end_agents_of_another, "nothing"),
}


@pytest.fixture
def scene(make_app: Callable[..., Flask], clock: Clock, hosts: Hosts) -> Scene:
    app = make_app(SSO_CLIENT_DOCUMENTS="listed")
    make_user(app)
    with app.app_context():
        for domain in ("agent.example", "other.example"):
            agents.allow(audit.SYSTEM, domain)
        db.session.commit()
    return Scene(app, clock, hosts)


@pytest.mark.parametrize("cause", CAUSES)
def test_it_ends_this_and_nothing_else(scene: Scene, cause: str) -> None:
    act, effect = CAUSES[cause]
    act(scene)
    assert scene.measure() == effect


def test_the_documented_table_is_this_one() -> None:
    text = (ROOT / "docs" / "explanation" / "revocation.md").read_text()
    section = text.partition("\n## Agents\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (?!cause|---)(.+?) \| (.+?) \|$", section, re.MULTILINE))
    assert rows == {cause: effect for cause, (_, effect) in CAUSES.items()}
