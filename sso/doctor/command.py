"""`flask doctor` is an entry point, so that it runs even if the settings are invalid."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

import click

from sso import audit, context, create_app
from sso.checkup import components, mcp_client, others, public_url, sign_in
from sso.checkup.finding import Finding, Findings, Status, guarded, ok, skipped, wrong
from sso.checkup.mcp_client import Player
from sso.checkup.mcp_server import Server
from sso.cli.clients import find_client
from sso.cli.commands import Failure, json_option, quiet_terminal
from sso.cli.output import print_json, print_line
from sso.cli.people import find_user
from sso.config import urls
from sso.config.settings import read_settings
from sso.config.upstream.ldap import LdapProvider
from sso.doctor import client_check, proxy_check
from sso.errors import SettingsError
from sso.extensions import db
from sso.flow import resources
from sso.models import Client
from sso.services import client_documents

_WIDTH = 20


@click.command("doctor")
@click.option(
    "--client",
    "client_id",
    metavar="ID",
    help="Check one application instead: its addresses, and a sign-in to it. With --mcp: the "
    "client to play, or the URL of its metadata document.",
)
@click.option(
    "--mcp",
    "mcp_url",
    metavar="URL",
    help="Check an MCP server instead: play a client of it, and name the party at fault.",
)
@click.option(
    "--as",
    "who",
    metavar="WHO",
    help="With --mcp: play a person with the rights of this user.",
)
@click.option(
    "--page",
    metavar="URL",
    help="With --client, behind a proxy: a page of the application that shows who is signed in. "
    "It is opened with forged headers, as a temporary user whom the application may keep.",
)
@click.option(
    "--provider",
    "provider_id",
    metavar="ID",
    help="Check one provider or directory of SSO_UPSTREAM_FILE instead.",
)
@click.option(
    "--account",
    metavar="NAME",
    help="With --provider, for a directory: look up the account with this name or email.",
)
@json_option
def doctor_command(
    client_id: str | None,
    mcp_url: str | None,
    who: str | None,
    page: str | None,
    provider_id: str | None,
    account: str | None,
    as_json: bool,
) -> None:
    """Check this installation through its public URL, and say what to fix.

    Run it with the settings of the server, while the server runs. The temporary user and client
    of its sign-in are deleted at the end.
    """
    if who and not mcp_url:
        raise click.UsageError("--as needs --mcp.")
    if page and (mcp_url or not client_id):
        raise click.UsageError("--page needs --client, and goes without --mcp.")
    if account and not provider_id:
        raise click.UsageError("--account needs --provider.")
    if provider_id and (client_id or mcp_url):
        raise click.UsageError("--provider goes without --client and --mcp.")
    findings = []
    findings_of = examine(os.environ, client_id, mcp_url, who, page, provider_id, account)
    for finding in findings_of:
        findings.append(finding)
        if not as_json:
            _print(finding)
    errors = sum(finding.status is Status.WRONG for finding in findings)
    if as_json:
        print_json({"ok": not errors, "findings": [_as_json(finding) for finding in findings]})
    if errors:
        raise Failure(f"{errors} of {len(findings)} checks failed")


def examine(
    environ: Mapping[str, str],
    client_id: str | None = None,
    mcp_url: str | None = None,
    who: str | None = None,
    page: str | None = None,
    provider_id: str | None = None,
    account: str | None = None,
) -> Iterator[Finding]:
    """Yield the findings in the order to fix them.

    Raises `Failure` for an unknown client or user, and for a page of another application.
    """
    try:
        app = create_app(environ)
    except SettingsError as error:
        for line in error.errors:
            name, _, text = line.partition(": ")
            yield wrong("settings", name, text)
        return
    yield ok("settings", "valid")
    with app.app_context(), audit.acting_as(audit.operator()), quiet_terminal():
        try:
            if provider_id is not None:
                yield from _provider(provider_id, account or "")
            elif mcp_url is not None:
                yield from _mcp(mcp_url, client_id, who)
            elif client_id is None:
                yield from _installation(environ)
            else:
                yield from _connection(client_id, page)
        finally:
            db.session.remove()
            db.engine.dispose()


_Checks = Iterable[tuple[str, Callable[[], Findings]]]


def _installation(environ: Mapping[str, str]) -> Iterator[Finding]:
    reading = read_settings(environ)
    healthy = yield from _run(
        [
            ("file modes", lambda: components.file_modes(environ, reading)),
            ("database", components.database),
            ("pooler", components.pooler),
            ("schema", components.schema),
            ("keys", components.signing_key_life),
            ("secret key", components.secret_key),
            ("imported passwords", components.imported_passwords),
            ("worker", components.worker),
            ("webhooks", components.webhooks),
            ("provisioning", components.provisioning),
            ("templates", components.templates),
            ("redis", components.rate_limits),
            ("mail", components.mail),
            (components.ROLES, components.roles_of_applications),
            (others.DIRECTORIES, others.directories),
            (others.PROVIDERS, others.providers),
            ("tls", public_url.tls),
            ("discovery", public_url.metadata),
            (public_url.ALIASES, public_url.issuer_aliases),
            ("slow bodies", public_url.slow_bodies),
        ]
    )
    yield from _if_possible(
        healthy, sign_in.NAME, lambda: sign_in.code_flow(audit.operator(by="doctor"))
    )


def _connection(client_id: str, page: str | None) -> Iterator[Finding]:
    if not (yield from _run([("database", components.database), ("schema", components.schema)])):
        return
    client = find_client(client_id)
    if page and (urls.strict_url_error(page) or urls.origin(page) not in client.proxy_urls):
        listed = ", ".join(client.proxy_urls) or "none: it is not registered for a proxy"
        raise Failure(f"{page} is not below a URL of this client ({listed})")
    db.session.expunge(client)
    db.session.rollback()  # no transaction waits for somebody else's server
    yield from _run([("client", lambda: client_check.registration(client))])
    is_enabled = client.disabled_at is None
    if client.proxy_urls:
        yield from _if_possible(is_enabled, "proxy", lambda: proxy_check.asks(client))
        yield from _if_possible(is_enabled, "sign-in", lambda: proxy_check.returns(client, page))
        return
    yield from _run(
        [
            ("redirect URI", lambda: client_check.redirect_uris(client)),
            ("post-logout URI", lambda: client_check.post_logout_redirect_uris(client)),
            ("back-channel logout", lambda: client_check.backchannel_logout(client)),
            ("keys", lambda: client_check.keys(client)),
        ]
    )
    yield from _if_possible(is_enabled, "sign-in", lambda: client_check.sign_in(client))


def _provider(provider_id: str, account: str) -> Iterator[Finding]:
    provider = context.upstreams().find(provider_id)
    if provider is None:
        names = ", ".join(each.id for each in context.upstreams()) or "none"
        raise Failure(f"SSO_UPSTREAM_FILE has no provider {provider_id} (it has: {names})")
    is_directory = isinstance(provider, LdapProvider)
    if account and not is_directory:
        raise Failure(f"{provider_id} is no directory: accounts cannot be looked up there")
    name = others.DIRECTORIES if is_directory else others.PROVIDERS
    yield from guarded(name, lambda: others.one_provider(provider, account))


def _mcp(url: str, client_id: str | None, who: str | None) -> Iterator[Finding]:
    """Check an MCP server. The operator may call this machine and the own network."""
    if problem := resources.identifier_error(url) or _not_a_url(url):
        raise Failure(f"{url} is not the URL of an MCP server: {problem}")
    if not (yield from _run([("database", components.database), ("schema", components.schema)])):
        return
    client: Client | str | None = None
    if client_id:
        is_document = client_documents.is_url(client_id)
        client = client_id if is_document else find_client(client_id)
    user = find_user(who) if who else None
    player = Player.of(client, user)
    if isinstance(client, Client):
        db.session.expunge(client)
    db.session.rollback()  # no transaction waits for somebody else's server
    server = Server(resources.normalized(url), allows_private=True)
    yield from guarded(
        "MCP server", lambda: mcp_client.check(audit.operator(by="doctor"), server, player)
    )


def _not_a_url(url: str) -> str | None:
    return None if url.startswith(("https://", "http://")) else "it begins with no https://"


def _run(checks: _Checks) -> Generator[Finding, None, bool]:
    """Yield the findings; return whether people can sign in."""
    healthy = True
    for name, check in checks:
        for finding in guarded(name, check):
            healthy &= finding.status is not Status.WRONG or name in _NOT_NEEDED
            yield finding
    return healthy


def _if_possible(is_possible: bool, name: str, check: Callable[[], Findings]) -> Findings:
    if is_possible:
        yield from guarded(name, check)
    else:
        yield skipped(name, "fix the above first")


# People can sign in even if one of these is wrong.
_NOT_NEEDED = (
    "file modes",
    public_url.ALIASES,
    "slow bodies",
    "redis",
    "mail",
    "worker",
    "webhooks",
    "provisioning",
    "secret key",
    "templates",
    others.DIRECTORIES,
    others.PROVIDERS,
)


def _as_json(finding: Finding) -> dict[str, object]:
    row = {"name": finding.name, "status": finding.status, "seen": finding.seen}
    party = {"party": finding.party} if finding.party else {}
    return {**row, "hint": finding.hint, **party}


def _print(finding: Finding) -> None:
    print_line(f"{finding.status:8} {finding.name:{_WIDTH}} {finding.seen}")
    if finding.party:
        print_line(f"{'':8} {'':{_WIDTH}} at fault: {finding.party}")
    if finding.hint:
        print_line(f"{'':8} {'':{_WIDTH}} fix: {finding.hint}")
