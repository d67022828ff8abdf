"""`flask mcp`: MCP servers, and the domains whose agents may use them."""

import json
from typing import Any

import click

from sso import audit, context
from sso.cli.apis import find_api, view
from sso.cli.commands import Failure, Group, confirm, json_option, unknown, yes_option
from sso.cli.output import iso, print_json, print_line, print_record, print_table
from sso.config import agent_catalog
from sso.config.agent_catalog import CATALOG
from sso.extensions import db
from sso.mcp import configurations, protected_resources
from sso.mcp.configurations import CONFIGURATIONS
from sso.models import Api
from sso.process.program import COMMAND
from sso.services import agents, api_values, apis, groups, mcp_servers

group = Group("mcp", help="MCP servers, and the agents that may use them.")
_NAMES = "NAME is one of " + ", ".join(entry.name for entry in CATALOG) + "."
_PORTS = "DOMAIN means its port 443; name another one, as in example.com:8443. "
_only_option = click.option(
    "--for",
    "only",
    type=click.Choice([each.name for each in CONFIGURATIONS]),
    help="Print the ready lines for this software alone.",
)


@group.command("add")
@click.argument("url", metavar="URL")
@click.option("--name", help="The name that users see; by default the host name.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="NAME=DESCRIPTION",
    help="A scope, with the description that users see. May be repeated.",
)
@click.option(
    "--group",
    "group_names",
    multiple=True,
    metavar="NAME",
    help="Only members of one of these groups may connect agents. May be repeated.",
)
@_only_option
@json_option
def add(
    url: str,
    name: str | None,
    scopes: tuple[str, ...],
    group_names: tuple[str, ...],
    only: str | None,
    as_json: bool,
) -> None:
    """Protect an MCP server: register it as an API, and print what it needs."""
    parsed = api_values.parsed_entries("scopes", scopes)
    api = mcp_servers.add(audit.operator(), url, name=name, scopes=parsed, groups=group_names)
    db.session.commit()
    _print(api, as_json, only)
    if not as_json:
        for note in groups.without_members(api.groups):
            print_line(note)


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the MCP servers, and the domains that were allowed or blocked."""
    servers, domains = mcp_servers.every(), agents.domains()
    if as_json:
        print_json(
            {
                "servers": [view(api) for api in servers],
                "domains": [
                    {"domain": row.domain, "status": row.status, "since": iso(row.created_at)}
                    for row in domains
                ],
                "well_known": [
                    {
                        "name": entry.name,
                        "label": entry.label,
                        "kind": entry.kind,
                        "domain": entry.domain,
                        "document": entry.document,
                        "source": entry.source,
                    }
                    for entry in CATALOG
                ],
                "client_documents": context.settings().client_documents,
            }
        )
        return
    print_table(
        ("URL", "NAME", "SCOPES", "GROUPS", "DISABLED"),
        [
            (
                *(api.identifier, api.name, " ".join(api.scopes), ", ".join(api.groups)),
                api.disabled,
            )
            for api in servers
        ],
    )
    print_line()
    print_table(
        ("DOMAIN", "STATUS", "SINCE"),
        [(row.domain, row.status, row.created_at) for row in domains],
    )
    print_line()
    statuses = {row.domain: row.status for row in domains}
    print_table(
        ("WELL-KNOWN AGENT", "WHAT IT IS", "DOCUMENT", "ITS DOMAIN IS"),
        [
            (entry.name, entry.kind, entry.document, statuses.get(entry.domain, "not decided"))
            for entry in CATALOG
        ],
    )
    print_line()
    print_line(_policy())


@group.command("show")
@click.argument("url", metavar="URL")
@_only_option
@json_option
def show(url: str, only: str | None, as_json: bool) -> None:
    """Print what an MCP server needs: its metadata, and ready lines for its software."""
    _print(find_api(url), as_json, only)


@group.command("allow", epilog=_PORTS + _NAMES)
@click.argument("domain", metavar="DOMAIN|NAME")
@json_option
def allow(domain: str, as_json: bool) -> None:
    """Allow the agents of a domain, with SSO_CLIENT_DOCUMENTS=listed."""
    domain = agents.allow(audit.operator(), domain)
    db.session.commit()
    if as_json:
        print_json({"domain": domain, "status": "allowed"})
        return
    print_line(f"Agents with a document at {domain} may ask people for access.")
    if labels := agent_catalog.labels_at(domain):
        print_line(f"Among them: {', '.join(labels)}.")
    if context.settings().client_documents != agents.LISTED:
        print_line(_policy())


@group.command("block", epilog="All ports of DOMAIN are blocked. " + _NAMES)
@click.argument("domain", metavar="DOMAIN|NAME")
@json_option
def block(domain: str, as_json: bool) -> None:
    """Block the agents of a domain and those below it; their tokens end at once."""
    domain, client_ids = agents.block(audit.operator(), domain)
    db.session.commit()
    if as_json:
        print_json({"domain": domain, "status": "blocked", "disabled": client_ids})
        return
    print_line(f"Blocked {domain}. Agents that were disabled: {len(client_ids)}.")
    for client_id in client_ids:
        print_line(client_id)


@group.command("remove")
@click.argument("server_or_domain", metavar="URL|DOMAIN|NAME")
@yes_option
@json_option
def remove(server_or_domain: str, yes: bool, as_json: bool) -> None:
    """Delete an MCP server with its scopes, or forget the decision about a domain."""
    if "://" in server_or_domain or server_or_domain.startswith("api-"):
        api = find_api(server_or_domain, exactly=True)
        identifier = api.identifier
        confirm(f"Delete the MCP server {api.name} ({identifier})?", yes)
        try:
            apis.delete(audit.operator(), api.api_id)
        except LookupError:  # deleted at this moment
            raise unknown("api", server_or_domain) from None
        removed = {"identifier": identifier}
    else:
        try:
            removed = {"domain": agents.remove(audit.operator(), server_or_domain)}
        except LookupError:
            raise Failure(
                f"nothing was decided about {server_or_domain}; see: {COMMAND} mcp list"
            ) from None
    db.session.commit()
    if as_json:
        print_json({**removed, "deleted": True})
    else:
        [name] = removed.values()
        print_line(f"Removed {name}.")


def _policy() -> str:
    """Return which agents may come, as the settings say."""
    policy = context.settings().client_documents
    if policy == agents.OFF:
        return (
            "SSO_CLIENT_DOCUMENTS is off: no agent is admitted. Set it to listed, and restart the "
            "server."
        )
    if policy == agents.ANY:
        return "SSO_CLIENT_DOCUMENTS is any: agents of all domains that are not blocked may come."
    return "SSO_CLIENT_DOCUMENTS is listed: only agents of the allowed domains may come."


def _print(api: Api, as_json: bool, only: str | None) -> None:
    settings = context.settings()
    document = protected_resources.document(api, settings.issuer)
    offered = [each for each in configurations.offered(api) if only in (None, each.name)]
    texts = {each.name: configurations.written(each, api, settings) for each in offered}
    url = configurations.document_url(api, settings)
    if as_json:
        place = protected_resources.metadata_url(api.identifier)
        metadata = {"url": place, "document": document, "published_here": url}
        print_json({**view(api), "metadata": metadata, "configurations": texts})
        return
    fields: dict[str, Any] = {**view(api), "scopes": api_values.entries_of("scopes", api.scopes)}
    if only is None:
        names = ("api_id", "identifier", "name", "scopes", "groups")
        print_record((name, fields[name]) for name in names)
        print_line()
        _heading(
            f"Protected resource metadata, at {protected_resources.metadata_url(api.identifier)}"
        )
        for line in json.dumps(document, indent=2).splitlines():
            print_line(line)
        print_line(f"This server publishes it, too, at {url}.")
        print_line()
    for each in offered:
        if only is None:
            _heading(each.label)
        for line in texts[each.name].splitlines():
            print_line(line)
        if only is None:
            print_line()
    if only is None:
        print_line(_policy())
        print_line(f"Check it, when it runs: {COMMAND} doctor --mcp {api.identifier}")


def _heading(text: str) -> None:
    print_line(f"== {text}")
