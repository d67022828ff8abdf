"""The directories that people sign in with, server by server."""

from sso import clock, context
from sso.checkup.finding import Finding, Findings, ok, skipped, warning, wrong
from sso.checkup.reach import RENEW
from sso.config.upstream.ldap import LdapProvider
from sso.ldap.connection import Refused, Server, Unavailable

NAME = "directories"


def directories() -> Findings:
    """Each server has a good certificate, and shows people to the service account."""
    found = [one for one in context.upstreams() if isinstance(one, LdapProvider)]
    if not found:
        yield skipped(NAME, "SSO_UPSTREAM_FILE names none")
    for provider in found:
        for server in provider.client.servers:
            yield _examined(provider, server)


def _examined(provider: LdapProvider, server: Server) -> Finding:
    where = f"{provider.id}: {server}"
    try:
        ends, people = provider.client.examine(server)
    except Unavailable as error:
        return wrong(NAME, f"{where}: {error}", "check servers and ca_file, and the firewall")
    except Refused as error:
        return wrong(NAME, f"{where}: {error}", "check bind_dn, its password, and base")
    if not people:
        hint = "check base and user_filter, and what the service account may read"
        return wrong(NAME, f"{where}: nobody is found", hint)
    left = (ends - clock.now()).days if ends else None
    if left is not None and left < RENEW.days:
        return warning(NAME, f"{where}: the certificate ends in {left} days", "renew it")
    return ok(NAME, f"{where} answers" + (f"; certificate for {left} days" if ends else ""))
