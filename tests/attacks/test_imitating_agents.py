"""An agent wants to pass for another one: by its name, its domain, or the approval of another."""

import re
import shlex
from collections.abc import Callable

import pytest
from flask import Flask
from sqlalchemy import select

from sso import audit
from sso.extensions import db
from sso.models import Group, User
from sso.services import clients
from sso.services.agent_identity import is_misleading
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, claims_of
from tests.support.administration import ADMIN, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.agents import AGENT, Hosts, agent, hosts
from tests.support.factories import make_api, make_client
from tests.support.mailbox import Mailbox, text_of
from tests.support.services import make_resource_server

__all__ = ["hosts"]

WEB = "https://agent.example/callback"
DOCS = "https://docs.example"


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_CLIENT_DOCUMENTS="any", SSO_OPEN_REGISTRATION="true")


@pytest.mark.parametrize(
    "name",
    [
        "claude.ai", "Claude.AI", "Claude (claude.ai)", "claude\u3002ai", "claude\uff0eai",
        "claude\u2024ai", "\uff43\uff4c\uff41\uff55\uff44\uff45.ai", "accounts.google.com login",
        "https://claude.ai", "agent.example:8443", "agent.example.evil.example", "notagent.example",
        "b\u00fccher.example", "xn--bcher-kva.example",
        "Cl\u0430ude", "\u0421laude", "Goog\u04cfe", "\u039cicrosoft",
        "Claude\u200b", "Cl\u00adaude",
        "\u202eedualC", "Claude\u2066", "Claude \u2705", "Claude \u2714", "\U0001f512 Claude",
        "Claude\ue000", "\u2611\ufe0f Claude", "\ud55c\u0430",
    ],
)  # fmt: skip
def test_names_that_could_be_mistaken(name: str) -> None:
    assert is_misleading(name, "agent.example")
    assert is_misleading(name, None)


@pytest.mark.parametrize(
    "name",
    [
        "Claude Code", "Visual Studio Code", "ChatGPT", "agent.example", "Agent.Example desktop",
        "Caf\u00e9 no. 5", "\u042f\u043d\u0434\u0435\u043a\u0441 Browser",
        "\u30af\u30ed\u30fc\u30c9",
        "\u6771\u4eacAI\u30a2\u30b7\u30b9\u30bf\u30f3\u30c8", "\u0645\u0633\u0627\u0639\u062f",
        "R&D + Ops", "v2.1", "Agent 3.5", "Dr. Agent", "C++", "it's me, the agent", "Stra\u00dfe",
    ],
)  # fmt: skip
def test_names_that_could_not(name: str) -> None:
    assert not is_misleading(name, "agent.example")


@pytest.mark.parametrize("name", ["claude.ai", "Cl\u0430ude", "Claude \u2705", "x. y.ai"])
def test_a_misleading_name_is_on_no_page(
    app: Flask, browser: Browser, user: User, hosts: Hosts, name: str
) -> None:
    hosts.publish(client_name=name)
    seen = [browser.authorize(agent(app, uri=WEB)).html, browser.sign_in().html]
    seen.append(browser.authorize(agent(app, uri="https://agent.example/other")).html)
    assert name not in "".join(seen)
    assert "could be mistaken" in seen[1]
    assert "agent.example" in seen[2]


@pytest.mark.parametrize("name", ["claude.ai", "Claude", None])
def test_another_port_of_a_domain(
    app: Flask, browser: Browser, user: User, hosts: Hosts, mailbox: Mailbox, name: str | None
) -> None:
    """A person with a port of a host is not its owner: nowhere does the domain stand alone."""
    url, uri = "https://claude.ai:8443/client", "http://127.0.0.1/callback"
    hosts.publish(url, client_name=name, redirect_uris=[uri])
    make_api(app, DOCS, agents=True)
    first = browser.authorize(agent(app, url), resource=DOCS, scope="read").html
    consent = browser.sign_in().html
    # A line may break after the dot, not before the port.
    assert '<strong><bdi dir="ltr">claude.<wbr>ai:8443</bdi></strong> requests access' in consent
    browser.allow()
    account = browser.open(f"{ORIGIN}{BASE}/account").html
    ending = browser.open(f"{ORIGIN}{BASE}/account/confirm?action=end_agents").html
    mails = "".join(text_of(mail) for mail in mailbox.read())
    for text in (first, consent, account, ending, mails):
        visible = re.sub(r"<[^>]+>", "", text)
        assert "claude.ai:8443" in visible
        assert "claude.ai" not in visible.replace("claude.ai:8443", "")


def test_a_name_with_markup_and_the_words_of_the_page(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    name = "</dd><h1>Bank</h1> is verified"
    hosts.publish(client_name=name)
    browser.authorize(agent(app, uri=WEB))
    page = browser.sign_in()
    assert page.html.count("<h1") == 1
    assert "<bdi>&lt;/dd&gt;&lt;h1&gt;Bank&lt;/h1&gt; is verified</bdi>" in page.html
    assert "Bank" not in page.html.partition("</h1>")[0]  # neither in the title nor in the heading


def test_who_registers_as_somebody_else(app: Flask, browser: Browser, user: User) -> None:
    """Even the redirect URI of the true one does not make it verified."""
    uri = "https://claude.ai/api/mcp/auth_callback"
    body = {"client_name": "claude.ai", "redirect_uris": [uri], "client_uri": "https://claude.ai",
            "logo_uri": "https://claude.ai/logo.png"}  # fmt: skip
    client = app.test_client().post(f"{BASE}/oauth2/register", json=body).get_json()
    party = agent(app, client["client_id"], uri)
    first = browser.authorize(party).html
    page = browser.sign_in()
    assert "claude.ai" not in first
    assert "An unverified application requests access" in re.sub(r"<[^>]+>", "", page.html)
    assert "logo.png" not in page.html
    assert page.html.count("claude.ai") == 1  # where the answer goes


def test_the_approval_of_another_agent(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    """The same name, the same redirect URI and a URL beside it are no approval."""
    make_api(app, DOCS, agents=True)
    browser.approve(agent(app), resource=DOCS, scope="read")
    for url in (f"{AGENT}/", "https://agent.example/other.json", "https://sub.agent.example/c"):
        hosts.publish(url, redirect_uris=["http://127.0.0.1/callback"])
        page = browser.authorize(agent(app, url), resource=DOCS, scope="read")
        assert ("decision", "allow") in page.buttons
        silent = browser.authorize(agent(app, url), resource=DOCS, scope="read", prompt="none")
        assert "code" not in silent.parameters


def test_the_approval_for_another_api(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    mail = make_api(app, "https://mail.example", agents=True)
    docs, party = make_api(app, DOCS, agents=True), agent(app)
    page = browser.approve(party, resource=docs, scope="read offline_access")
    tokens = party.exchange(page.code).get_json()
    refused = party.refresh(tokens["refresh_token"], resource=mail)
    assert refused.get_json()["error"] == "invalid_target"
    page = browser.authorize(party, resource=[docs, mail], scope="read")
    assert ("decision", "allow") in page.buttons
    assert "mail.example" in page.html


def test_its_token_elsewhere(app: Flask, browser: Browser, user: User, hosts: Hosts) -> None:
    """Userinfo and other APIs do not take it (RFC 8707 §2, RFC 9068 §4)."""
    own = make_resource_server(app, DOCS, agents=True)
    other = make_resource_server(app, "https://mail.example")
    party = agent(app)
    page = browser.approve(party, resource=DOCS, scope="openid invoices:read email")
    token = party.exchange(page.code).get_json()["access_token"]
    assert claims_of(token)["aud"] == DOCS
    assert party.userinfo(token).status_code == 401
    assert other.introspect(token).get_json() == {"active": False}
    assert own.introspect(token).get_json()["client_id"] == AGENT


def test_consent_in_a_frame_or_by_a_forged_form(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    browser.authorize(agent(app))
    page = browser.sign_in()
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    assert page.headers["X-Frame-Options"] == "DENY"
    for token in ("", "wrong"):
        forged = browser.submit(decision="allow", duration="lasting", csrf_token=token)
        assert ("decision", "allow") in forged.buttons
        browser.page = page
    assert browser.allow().code


def test_once_made_lasting_by_the_address(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    """What the user chose is signed with the request."""
    party = agent(app)
    for more in ({"duration": "lasting"}, {"once": ""}, {"once": "0"}, {"done": "None None"}):
        page = browser.authorize(party, **more)
        if "password" in page.fields:
            browser.sign_in()
        page = browser.submit(decision="allow", duration="once")
        assert "refresh_token" not in party.exchange(page.code).get_json()


def test_an_allowed_request_that_is_sent_again(
    app: Flask, browser: Browser, user: User, hosts: Hosts
) -> None:
    """The address after the consent, from the history of the browser, gives no second code."""
    party = agent(app)
    browser.authorize(party)
    browser.sign_in()
    browser.submit(decision="allow", duration="lasting")
    answers = [
        answer for answer in browser.history if "resume=" in answer.headers.get("Location", "")
    ]
    again = browser.open(f"{ORIGIN}{answers[-1].headers['Location'].removeprefix(ORIGIN)}")
    assert ("decision", "allow") in again.buttons


def _open(app: Flask, name: str) -> RelyingParty:
    body = {"client_name": name, "redirect_uris": [WEB]}
    client = app.test_client().post(f"{BASE}/oauth2/register", json=body).get_json()
    return agent(app, client["client_id"], WEB)


def _pages(staff: StaffBrowser, user: User, clients: list[str], group: str | None = None) -> str:
    paths = [f"person?id={user.id}"]
    if group:
        paths += ["", "applications", "refusals", "audit", f"group?id={group}"]
        of_client = ("application?id", "application/edit?id", "application/preview?id",
                     "application/act?do=disable&id", "refusals?client")  # fmt: skip
        paths += [f"{path}={client}" for client in clients for path in of_client]
    pages = {path: staff.open(f"{ADMIN}/{path}".rstrip("/")) for path in paths}
    assert [path for path, page in pages.items() if page.status != 200] == []
    return "".join(page.html for page in pages.values())


@pytest.mark.slow
def test_an_agent_called_as_an_application_of_the_house(
    app: Flask, browser: Browser, user: User, hosts: Hosts, clock: Clock
) -> None:
    """Operators see what is verified first; a name that an agent claims stands nowhere alone."""
    name, misleading = "Payroll", "claude.ai Pro"
    parties = [_open(app, name), _open(app, misleading)]
    for path, claim in (("payroll", name), ("claude", misleading)):
        url = f"https://agent.example/{path}"
        hosts.publish(url, client_name=claim)
        parties.append(agent(app, url, WEB))
    for party in parties:
        browser.approve(party, scope="openid")
        browser.authorize(party, scope="nothing")
    ids = [party.client_id for party in parties]
    with app.app_context():
        for client_id in ids:
            clients.change(audit.SYSTEM, client_id, {"groups": ["staff"]})
        db.session.commit()
        group = str(db.session.scalars(select(Group.id).where(Group.name == "staff")).one())
    pages = _pages(sign_in_staff(app), user, ids, group)
    pages += browser.open(f"{ORIGIN}{BASE}/account/activity").html
    helpdesk = sign_in_staff(app, "hal@example.com", HELPDESK)
    pages += _pages(helpdesk, user, ids)
    visible = " ".join(re.sub(r"<[^>]+>", "", pages).split())
    assert "agent.example agent calls itself Payroll, which is not verified" in visible
    assert "an unverified application agent calls itself Payroll, which is not" in visible
    marked = r"calls itself Payroll, which|Name that it gives itself, not verifiedPayroll"
    assert "Payroll" not in re.sub(marked, "", visible)
    assert "claude.ai" not in visible

    def printed(command: str) -> str:
        return app.test_cli_runner().invoke(args=shlex.split(command)).output

    listed = printed("client list")
    assert "agent.example, calls itself Payroll" in listed
    assert "unverified, calls itself Payroll" in listed
    lines = [listed, printed("explain"), printed("audit list"), printed("group list")]
    lines += [printed(f"preview {client} dana@example.com") for client in ids]
    lines += [printed(f"client show {client}") for client in ids]
    text = re.sub(r"client_name \(not verified\) .*", "", "".join(lines))
    assert "Payroll" not in text.replace("calls itself Payroll", "")
    assert "claude.ai" not in text


def test_the_name_of_an_application_in_a_command(app: Flask, hosts: Hosts) -> None:
    """An agent that claims the same name, or a longer one, does not get in the way."""
    run = app.test_cli_runner().invoke
    _open(app, "Books")
    refused = run(args=["client", "delete", "Books", "--yes"])
    assert refused.exit_code == 1
    assert "Books" in refused.output
    books = make_client(app, name="Books")
    for name in ("Books", "Boo"):
        assert books.client_id in run(args=["client", "show", name]).output
