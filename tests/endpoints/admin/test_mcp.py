"""MCP servers are protected and checked in the browser; domains of agents are decided about."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace

import pytest
from flask import Flask

from sso import audit
from sso.audit import Actor
from sso.checkup import mcp_client
from sso.checkup.finding import ok, warning
from sso.checkup.mcp_client import Player
from sso.checkup.mcp_server import MCP_SERVER, Fault, Server
from sso.endpoints.admin import mcp
from sso.extensions import db
from sso.i18n.message import Message
from sso.models import Api
from sso.services import agents
from sso.store import apis
from sso.store.lists import PAGE
from tests.conftest import Clock, Statements
from tests.endpoints.admin.test_lists import exported
from tests.support.administration import ADMIN, StaffBrowser, sign_in_staff
from tests.support.events import events
from tests.support.factories import make_api, make_client

pytestmark = pytest.mark.slow
URL = "https://mcp.example.com/mcp"
MARKUP = "<script>alert(1)</script>"


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_CLIENT_DOCUMENTS="listed")


@pytest.fixture
def staff(app: Flask, clock: Clock) -> StaffBrowser:
    return sign_in_staff(app)


def find(app: Flask) -> Api:
    with app.app_context():
        api = apis.find(URL)
        assert api is not None
        db.session.expunge(api)
        return api


def domains(app: Flask) -> dict[str, str]:
    with app.app_context():
        return {row.domain: row.status for row in agents.domains()}


def test_a_server_is_protected(app: Flask, staff: StaffBrowser) -> None:
    html = staff.open(f"{ADMIN}/mcp-server/new").html
    assert '<li aria-current="page"><bdi>Protect an MCP server</bdi></li>' in html
    assert html.count(">MCP servers</a>") == 2  # in the navigation and the breadcrumbs
    page = staff.send(url=URL, name=MARKUP, scopes="read=Read your notes", groups="engineers")
    assert "The MCP server was registered." in page.html
    api = find(app)
    assert (api.agents, api.scopes, api.groups) == (
        True, {"read": "Read your notes"}, ["engineers"],
    )  # fmt: skip
    assert MARKUP not in page.html
    assert "https://mcp.example.com/.well-known/oauth-protected-resource/mcp" in page.html
    assert f"/protected-resource/{api.api_id}" in page.html
    for label in ("FastMCP", "TypeScript SDK 2.x", "nginx", "Traefik"):
        assert f">{label}</summary>" in page.html
    listed = staff.open(f"{ADMIN}/mcp-servers")
    assert URL in listed.html
    (event,) = events(app, "api_created")
    assert event["operator"] == "ada@example.com"


def test_what_is_wrong_is_said(app: Flask, staff: StaffBrowser) -> None:
    staff.open(f"{ADMIN}/mcp-server/new")
    page = staff.send(url="http://mcp.example.com", name="Notes")
    assert "is not the URL of an MCP server" in page.html
    assert 'value="Notes"' in page.html
    for query in ("", "?id=api-unknown", "?id=%00", "?id=%F0%9F%99%82"):
        assert staff.open(f"{ADMIN}/mcp-server{query}").status == 404
    make_api(app, "urn:example:api")
    with app.app_context():
        api = apis.find("urn:example:api")
        assert api is not None
        api_id = api.api_id
    assert staff.open(f"{ADMIN}/mcp-server?id={api_id}").status == 404  # no MCP server


def test_domains_are_allowed_blocked_and_forgotten(app: Flask, staff: StaffBrowser) -> None:
    staff.open(f"{ADMIN}/mcp-servers")
    page = staff.send(domain="Claude.example", decision="allow")
    assert "The domain was allowed." in page.html
    assert domains(app) == {"claude.example": "allowed"}
    staff.open(f"{ADMIN}/mcp-servers/domain?domain=claude.example&do=block")
    assert domains(app) == {"claude.example": "allowed"}  # it asks first
    assert "The domain was blocked" in staff.send().html
    assert domains(app) == {"claude.example": "blocked"}
    staff.open(f"{ADMIN}/mcp-servers/domain?domain=claude.example&do=remove")
    assert "The decision about the domain was removed." in staff.send().html
    assert domains(app) == {}
    staff.open(f"{ADMIN}/mcp-servers")
    page = staff.send(domain="claude.example:8443", decision="allow")
    assert '<bdi dir="ltr">claude.example:8443</bdi>' in page.html
    assert "do=block" not in page.html  # a domain is blocked with all ports
    assert "do=remove" in page.html
    staff.open(f"{ADMIN}/mcp-servers")
    page = staff.send(domain="claude.example:8443", decision="block")
    assert "blocked with all its ports: block <bdi>claude.example</bdi>" in page.html
    page = staff.open(f"{ADMIN}/mcp-servers")
    assert "is not a domain" in staff.send(domain="not a domain", decision="allow").html
    staff.open(f"{ADMIN}/mcp-servers")
    assert staff.send(domain="x.example", decision="other").status == 400


def test_a_decision_is_about_one_domain_and_needs_a_question(
    app: Flask, staff: StaffBrowser
) -> None:
    for domain in ("a.example", "b.example"):
        staff.open(f"{ADMIN}/mcp-servers")
        staff.send(domain=domain, decision="allow")
    for decision in ("remove", "other", ""):
        staff.open(f"{ADMIN}/mcp-servers")
        assert staff.send(domain="a.example", decision=decision).status == 400
    asking = f"{ADMIN}/mcp-servers/domain"
    for query in ("domain=c.example&do=block", "domain=b.example&do=other", "domain=b.example",
                  "do=block", "domain=B.example&do=block"):  # fmt: skip
        assert staff.open(f"{asking}?{query}").status == 404, query
    assert staff.open(f"{asking}?domain=b.example&do=allow").status == 404  # it is allowed
    for name, is_danger in (("remove", False), ("block", True)):
        page = staff.open(f"{asking}?domain=b.example&do={name}")
        assert "b.example" in page.html
        assert ('class="primary danger"' in page.html) is is_danger
    staff.send()
    assert domains(app) == {"a.example": "allowed", "b.example": "blocked"}


def test_the_check_names_the_party_at_fault(
    app: Flask, staff: StaffBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_api(app, URL, agents=True)
    played = []

    def check(actor: object, server: Server, player: Player, user_name: str) -> object:
        played.append((server, player))
        yield ok("challenge", Message("it names %(url)s", url=URL))
        yield Fault(MCP_SERVER, Message("it is %(url)s", url=MARKUP), Message("remove it there")
                    ).finding("resource")  # fmt: skip

    monkeypatch.setattr(mcp_client, "check", check)
    monkeypatch.setattr(mcp, "is_local", lambda: False)
    staff.open(f"{ADMIN}/mcp-server?id={find(app).api_id}")
    page = staff.send(email="ada@example.com")
    assert "At fault: the MCP server." in page.html
    assert "remove it there" in page.html
    assert MARKUP not in page.html
    (server, player) = played[0]
    assert (player.email, player.client, player.document) == ("ada@example.com", None, None)
    assert (server.url, server.allows_private) == (URL, False)


def test_the_check_plays_whom_the_form_names(
    app: Flask, staff: StaffBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_api(app, URL, agents=True)
    client = make_client(app)
    document = "https://agent.example/client.json"
    played = []

    def check(actor: Actor, server: Server, player: Player, user_name: str) -> object:
        played.append((actor, server, player))
        assert not db.session.registry().in_transaction()  # while others may answer slowly
        yield ok("challenge", Message("it names %(url)s", url=URL))
        yield warning("audience", "it is late", "look")

    monkeypatch.setattr(mcp_client, "check", check)
    staff.open(f"{ADMIN}/mcp-server?id={find(app).api_id}")
    for client_id in ("", client.client_id, document):
        page = staff.send(email=" ", client_id=client_id)
        assert "A client can connect." in page.html
        assert "At fault" not in page.html
    assert [(player.email, player.document) for _, _, player in played] == [
        (None, None), (None, None), (None, document),
    ]  # fmt: skip
    registered = [player.client and player.client.client_id for _, _, player in played]
    assert registered == [None, client.client_id, None]
    actor, server, _ = played[0]
    assert (actor.operator, actor.by) == ("ada@example.com", "doctor")
    assert server.allows_private  # here, as in development


@pytest.mark.parametrize(
    ("base_url", "is_local"),
    [
        ("http://127.0.0.1:5000/api/auth", True),
        ("http://localhost:5000", True),
        ("http://[::1]:5000", True),
        ("https://id.example.com", False),
        ("https://192.168.1.5", False),
        ("https://localhost.example.com", False),
    ],
)
def test_private_addresses_are_for_development(
    base_url: str, is_local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Flask(__name__)
    app.extensions["sso.settings"] = SimpleNamespace(base_url=base_url)
    with app.app_context():
        assert mcp.is_local() is is_local


def test_an_id_that_no_database_takes(
    app: Flask, staff: StaffBrowser, statements: Callable[[], AbstractContextManager[Statements]]
) -> None:
    make_client(app)
    make_api(app, URL, agents=True)
    for query in ("%00", "api-%00", "\u00fc", "x%0a"):
        with statements() as ran:
            assert staff.open(f"{ADMIN}/mcp-server?id={query}").status == 404
        assert not [text for text in ran if "FROM apis" in text]
    staff.open(f"{ADMIN}/mcp-server?id={find(app).api_id}")
    with statements() as ran:
        assert "there is no application" in staff.send(client_id="x\x1fy").html
    assert not [text for text in ran if "clients.client_id = " in text]


def test_only_apis_for_agents_are_listed(app: Flask, staff: StaffBrowser) -> None:
    make_api(app, "https://docs.example", name="Documents")
    make_api(app, URL, name="Notes", agents=True)
    page = staff.open(f"{ADMIN}/mcp-servers")
    assert URL in page.html
    assert "docs.example" not in page.html


def test_the_check_needs_a_person_and_a_client_that_exist(app: Flask, staff: StaffBrowser) -> None:
    make_api(app, URL, agents=True)
    make_client(app)
    staff.open(f"{ADMIN}/mcp-server?id={find(app).api_id}")
    page = staff.send(email="nobody@example.com")
    assert "there is no user" in page.html
    assert page.html.count("nobody@example.com") == 2
    staff.open(f"{ADMIN}/mcp-server?id={find(app).api_id}")
    assert "there is no application" in staff.send(client_id="unknown").html


def test_the_check_does_not_look_around_in_the_network(
    app: Flask, staff: StaffBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server at a public URL plays no client against private addresses."""
    monkeypatch.setattr(mcp, "is_local", lambda: False)
    identifier = "https://127.0.0.1/mcp"
    make_api(app, identifier, agents=True)
    with app.app_context():
        api = apis.find(identifier)
        assert api is not None
        api_id = api.api_id
    staff.open(f"{ADMIN}/mcp-server?id={api_id}")
    page = staff.send()
    assert "its name leads to a private address" in page.html


def test_several_domains_are_decided_about_at_once(app: Flask, staff: StaffBrowser) -> None:
    with app.app_context():
        for domain in ("a.example", "b.example", "c.example:8443", "d.example"):
            agents.allow(audit.operator(), domain)
        agents.block(audit.operator(), "d.example")
        db.session.commit()
    chosen = ["a.example", "c.example:8443", "d.example", "x.example"]
    staff.open(f"{ADMIN}/mcp-servers?sort=newest")
    page = staff.send(do="block", item=chosen)
    # One has a port, one is blocked already, and one is not in the list.
    assert "Entries that this applies to: 1" in page.html
    assert domains(app)["a.example"] == "allowed"
    page = staff.send(item=chosen)
    assert "sort=newest" in page.url
    assert "The changes were saved for the entries that you chose." in page.html
    assert domains(app) == {
        "a.example": "blocked", "b.example": "allowed", "c.example:8443": "allowed",
        "d.example": "blocked",
    }  # fmt: skip
    assert [row["what"] for row in events(app, "agent_domain_blocked")] == [
        "d.example", "a.example"
    ]  # fmt: skip
    staff.open(f"{ADMIN}/mcp-servers")
    staff.send(do="remove", item=["b.example", "d.example"])
    staff.send(item=["b.example", "d.example"])
    assert set(domains(app)) == {"a.example", "c.example:8443"}
    # The form below decides about one domain, as ever.
    staff.open(f"{ADMIN}/mcp-servers")
    assert staff.send(do="other", item=["a.example"]).status in (200, 400)
    assert domains(app)["a.example"] == "blocked"


def test_both_lists_are_searched_sorted_and_exported(app: Flask, staff: StaffBrowser) -> None:
    for number in range(PAGE + 1):
        with app.app_context():
            agents.allow(audit.operator(), f"d{number:02}.example")
            db.session.commit()
    for name in ("alpha", "zeta"):
        make_api(app, f"https://{name}.example/mcp", name=name, agents=True)
    make_api(app, "urn:example:alpha", name="alpha, no server")
    page = staff.open(f"{ADMIN}/mcp-servers")
    assert "Entries: 2" in page.html
    assert "Entries: 51 · page 1 of 2" in page.html
    assert ">d00.example<" in page.html
    assert ">d50.example<" not in page.html
    page = staff.open(f"{ADMIN}/mcp-servers?d=2&sort=newest")
    assert ">d00.example<" in page.html
    assert ">d50.example<" not in page.html
    assert page.html.index(">zeta<") < page.html.index(">alpha<")
    page = staff.open(f"{ADMIN}/mcp-servers?q=ALPHA")
    assert "Entries: 1" in page.html
    assert "Entries: 0" in page.html
    names = [row["name"] for row in exported(staff, "mcp-servers", "sort=newest")]
    assert names == ["zeta", "alpha"]
    assert [row["name"] for row in exported(staff, "mcp-servers", "q=alpha")] == ["alpha"]
    rows = exported(staff, "mcp-servers/domains", "q=d1")
    assert [row["domain"] for row in rows] == [f"d1{number}.example" for number in range(10)]
    assert {row["state"] for row in rows} == {"allowed"}
    assert {row["what"] for row in events(app, "exported")} == {
        "MCP servers as csv", "domains as csv"
    }  # fmt: skip
