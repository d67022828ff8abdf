"""Views of MCP servers, and of the domains whose agents may use them."""

import json
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from flask import abort, request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import context
from sso.audit import Actor
from sso.checkup import mcp_client
from sso.checkup.finding import Finding, Status, guarded
from sso.checkup.mcp_client import Player
from sso.checkup.mcp_server import Server
from sso.config import urls
from sso.config.agent_catalog import CATALOG
from sso.endpoints.admin import access, admin_page, overview
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.forms import ConfirmForm, DomainForm, McpCheckForm, McpServerForm
from sso.extensions import db
from sso.i18n import N_
from sso.i18n.message import Message
from sso.mcp import configurations, protected_resources
from sso.models import Api, Client
from sso.process import concurrency
from sso.process.program import COMMAND
from sso.services import agents, api_values, client_documents, mcp_servers
from sso.services.checks import Invalid
from sso.store import apis, clients, users
from sso.web import routing

SECTION = "mcp_servers"
_DONE = {
    "added": N_("The MCP server was registered."),
    "allow": N_("The domain was allowed."),
    "block": N_("The domain was blocked, and its agents were disabled."),
    "remove": N_("The decision about the domain was removed."),
}
_POLICIES = {
    agents.OFF: N_("No agent is admitted: SSO_CLIENT_DOCUMENTS is off."),
    agents.LISTED: N_("Agents of the allowed domains may ask people for access."),
    agents.ANY: N_("Agents of all domains that are not blocked may ask people for access."),
}
_DECISIONS: dict[str, tuple[str, str, Callable[[Actor, str], object]]] = {
    "allow": (N_("Allow"), N_("Agents with a document at %(domain)s may ask people for access."),
              agents.allow),
    "block": (N_("Block"), N_("Agents of %(domain)s and of the domains below it are disabled, "
                              "and their tokens end at once."), agents.block),
    "remove": (N_("Remove"), N_("Nothing is decided about %(domain)s any more. If only listed "
                                "domains are allowed, its agents are disabled."), agents.remove),
}  # fmt: skip


def registered() -> Response:
    """List the MCP servers and the domains; decide about a domain that is not listed yet."""
    form = DomainForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            decision = form.decision.data
            if decision not in ("allow", "block"):
                abort(400)
            domain = form.domain.data or ""
            _DECISIONS[decision][2](access.staff().actor, domain)
            return admin_page.done(SECTION, decision)
    return admin_page.form_page(
        "admin/mcp_servers.html",
        SECTION,
        form,
        refusal,
        done=_DONE,
        servers=mcp_servers.every(),
        domains=agents.domains(),
        policy=_POLICIES[context.settings().client_documents],
        catalog=CATALOG,
    )


def decide() -> Response:
    """Allow, block or remove a domain that was decided about before, after a question."""
    domain, name = request.args.get("domain", ""), request.args.get("do", "")
    row = next((row for row in agents.domains() if row.domain == domain), None) or abort(404)
    label, question, decision = _DECISIONS.get(name) or abort(404)
    form = ConfirmForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            decision(access.staff().actor, row.domain)
            return admin_page.done(SECTION, name)
    return admin_page.render(
        "admin/ask.html",
        SECTION,
        form=form,
        title=f"{gettext(label)} · {row.domain}",
        question=gettext(question, domain=row.domain),
        button=gettext(label),
        back=admin_page.url(SECTION),
        ends=(),
        is_danger=name == "block",
        errors=refusal.errors,
        warnings=(),
    )


def new() -> Response:
    """Register an MCP server."""
    form = McpServerForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            api = mcp_servers.add(
                access.staff().actor,
                (form.url.data or "").strip(),
                name=(form.name.data or "").strip() or None,
                scopes=api_values.parsed_entries("scopes", _lines(form.scopes.data)),
                groups=_lines(form.groups.data),
            )
            return admin_page.done("mcp_server", "added", id=api.api_id)
    return admin_page.form_page("admin/mcp_server_new.html", SECTION, form, refusal)


def _lines(text: str | None) -> list[str]:
    return [line.strip() for line in (text or "").splitlines() if line.strip()]


def _server() -> Api:
    """Return the MCP server that the URL names; 404 if there is none."""
    api_id = request.args.get("id", "")
    is_clean = api_id.isascii() and api_id.isprintable()
    api = apis.with_id(api_id) if is_clean else None
    return api if api is not None and configurations.offered(api) else abort(404)


def mcp_server() -> Response:
    """Show what an MCP server needs, and check it: a POST plays a client of it."""
    api, form = _server(), McpCheckForm()
    findings: list[Finding] = []
    with Refusal() as refusal:
        if form.validate_on_submit():
            routing.spend(access.staff().user.email)
            findings = _checked(api, form)
            api = _server()  # no transaction was open meanwhile
    settings = context.settings()
    return admin_page.form_page(
        "admin/mcp_server.html",
        SECTION,
        form,
        refusal,
        done=_DONE,
        api=api,
        metadata_url=protected_resources.metadata_url(api.identifier),
        document_url=configurations.document_url(api, settings),
        document=json.dumps(protected_resources.document(api, settings.issuer), indent=2),
        texts=[
            (each.label, configurations.written(each, api, settings))
            for each in configurations.offered(api)
        ],
        findings=findings,
        fault=next((each for each in findings if each.status is Status.WRONG), None),
        labels=overview.LABELS,
        statuses=overview.STATUSES,
        command=f"{COMMAND} doctor --mcp {api.identifier}",
    )


_CHECK = "client"  # of a finding about the check itself


def is_local() -> bool:
    """Return whether this server is for this machine alone, as in development."""
    return urls.is_loopback(urlsplit(context.settings().base_url).hostname)


def _checked(api: Api, form: McpCheckForm) -> list[Finding]:
    """Play a client. Raises `Invalid` if there is no such person or application.

    Private addresses are called only by a server on this machine, for development: otherwise
    administrators could look around in the network of the server.
    """
    email, client_id = (form.email.data or "").strip(), (form.client_id.data or "").strip()
    user = users.find_by_email(email) if email else None
    client: Client | str | None = client_id or None
    if client_id and not client_documents.is_url(client_id):
        client = clients.find(client_id) if client_id.isprintable() else None
    if email and user is None:
        raise Invalid([Message("there is no user %(name)s", name=email)])
    if client_id and client is None:
        raise Invalid([Message("there is no application %(name)s", name=client_id)])
    player = Player.of(client, user)
    server = Server(api.identifier, allows_private=is_local())
    actor = replace(access.staff().actor, by="doctor")
    if isinstance(client, Client):
        db.session.expunge(client)
    db.session.rollback()
    with concurrency.slot_released():
        return list(guarded(_CHECK, lambda: mcp_client.check(actor, server, player, "mcp-page")))
