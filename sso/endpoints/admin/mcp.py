"""Views of MCP servers, and of the domains whose agents may use them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar
from urllib.parse import urlsplit

from flask import abort, request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import context
from sso.checkup import mcp_client
from sso.checkup.finding import Finding, Status, guarded
from sso.checkup.mcp_client import Player
from sso.checkup.mcp_server import Server
from sso.config import urls
from sso.config.agent_catalog import CATALOG
from sso.endpoints.admin import access, admin_page, exports, overview, several
from sso.endpoints.admin import apis as admin_apis
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.forms import DomainForm, McpCheckForm, McpServerForm, SelectionForm
from sso.endpoints.admin.several import Several
from sso.extensions import db
from sso.i18n import N_
from sso.i18n.message import Message
from sso.mcp import configurations, protected_resources
from sso.models import AgentDomain, Api, Client
from sso.models.clients import ALLOWED, BLOCKED
from sso.process import concurrency
from sso.process.program import COMMAND
from sso.services import agents, api_values, client_documents, mcp_servers
from sso.services.checks import Invalid
from sso.store import apis as stored_apis
from sso.store import clients, users
from sso.web import routing

SECTION = "mcp_servers"
T = TypeVar("T", AgentDomain, Api)
_POLICIES = {
    agents.OFF: N_("No agent is admitted: SSO_CLIENT_DOCUMENTS is off."),
    agents.LISTED: N_("Agents of the allowed domains may ask people for access."),
    agents.ANY: N_("Agents of all domains that are not blocked may ask people for access."),
}
STATUSES = {ALLOWED: N_("allowed"), BLOCKED: N_("blocked")}
DOMAIN: Resource[AgentDomain] = Resource(
    section=SECTION,
    query=lambda row: {"domain": row.domain},
    find=lambda: _domain(request.args.get("domain", "")),
    title=lambda row: row.domain,
    variables=lambda row: {"domain": row.domain},
    actions={
        "allow": Action(
            label=N_("Allow"),
            question=N_("Agents with a document at %(domain)s may ask people for access."),
            done=N_("The domain was allowed."),
            run=lambda actor, row: agents.allow(actor, row.domain),
            applies=lambda row: row.status != ALLOWED,
        ),
        "block": Action(
            label=N_("Block"),
            question=N_(
                "Agents of %(domain)s and of the domains below it are disabled, and their tokens "
                "end at once."
            ),
            done=N_("The domain was blocked, and its agents were disabled."),
            run=lambda actor, row: agents.block(actor, row.domain),
            applies=lambda row: row.status != BLOCKED and not row.has_port,
            is_danger=True,
        ),
        "remove": Action(
            label=N_("Remove"),
            question=N_(
                "Nothing is decided about %(domain)s any more. If only listed domains are allowed, "
                "its agents are disabled."
            ),
            done=N_("The decision about the domain was removed."),
            run=lambda actor, row: agents.remove(actor, row.domain),
        ),
    },
    results={"added": N_("The MCP server was registered."), several.DONE: several.SAVED},
)
_SEVERAL = Several(
    resource=DOMAIN,
    tasks=("allow", "block", "remove"),
    find=lambda ids: [row for row in agents.domains() if row.domain in ids],
    line=lambda row: (row.domain, row.domain, gettext(STATUSES[row.status])),
)
_NEWEST = "newest"
ORDERS = {"": (N_("Name"), None), _NEWEST: (N_("Newest first"), None)}
_DOMAIN_COLUMNS = ("domain", "state", "since")


def _domain(name: str) -> AgentDomain:
    return next((row for row in agents.domains() if row.domain == name), None) or abort(404)


def _filters() -> dict[str, str]:
    """Return the filters in the URL; they are those of both lists."""
    return admin_page.chosen(q=admin_page.searched(), sort=admin_page.choice("sort", ORDERS))


def _in_order(rows: list[T], filters: Mapping[str, str]) -> list[T]:
    """Sort rows that are in the order of their names."""
    if filters.get("sort") != _NEWEST:
        return rows
    return sorted(rows, key=lambda row: row.created_at, reverse=True)


def _servers(filters: Mapping[str, str]) -> list[Api]:
    apis_with_text = stored_apis.having(filters.get("q", ""))
    return _in_order([api for api in apis_with_text if api.agents], filters)


def _domains(filters: Mapping[str, str]) -> list[AgentDomain]:
    text = filters.get("q", "").casefold()
    return _in_order([row for row in agents.domains() if text in row.domain], filters)


def registered() -> Response:
    """List the MCP servers and the domains. A POST decides about a domain that is not listed yet,
    or about several that are.
    """
    form, selection, filters = DomainForm(), SelectionForm(), _filters()
    if response := _SEVERAL.act(selection, filters):
        return response
    with Refusal() as refusal:
        if form.validate_on_submit():
            decision = form.decision.data
            if decision not in ("allow", "block"):
                abort(400)
            decide_about = agents.allow if decision == "allow" else agents.block
            decide_about(access.staff().actor, form.domain.data or "")
            return admin_page.done(SECTION, decision)
    servers, server_pages, server_total = admin_page.numbered(_servers(filters))
    domains, domain_pages, domain_total = admin_page.numbered(_domains(filters), "d")
    return admin_page.form_page(
        "admin/mcp_servers.html",
        SECTION,
        form,
        refusal,
        done=DOMAIN.done_texts,
        servers=servers,
        server_pages=server_pages,
        server_total=server_total,
        domains=[(row, DOMAIN.buttons(row, "mcp_domain")) for row in domains],
        domain_pages=domain_pages,
        domain_total=domain_total,
        statuses=STATUSES,
        filters=filters,
        orders=ORDERS,
        tasks=_SEVERAL.labels,
        export_url=admin_page.url("mcp_servers_export", **filters),
        domains_export_url=admin_page.url("mcp_domains_export", **filters),
        policy=_POLICIES[context.settings().client_documents],
        catalog=CATALOG,
    )


def export() -> Response:
    """Export the MCP servers that the search selects, as CSV."""
    filters = _filters()
    rows = exports.whole(lambda: _servers(filters))
    return exports.send_table("MCP servers", admin_apis.EXPORTED, map(admin_apis.line, rows))


def export_domains() -> Response:
    """Export the domains that the search selects, as CSV."""
    filters = _filters()
    rows = exports.whole(lambda: _domains(filters))
    lines = ((row.domain, row.status, exports.moment(row.created_at)) for row in rows)
    return exports.send_table("domains", _DOMAIN_COLUMNS, lines)


def decide() -> Response:
    """Ask, then allow, block or remove a domain that was decided about before."""
    return DOMAIN.act()


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
    api = stored_apis.with_id(api_id) if is_clean else None
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
        done=DOMAIN.done_texts,
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
