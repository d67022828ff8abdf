"""The directories that people sign in with, server by server."""

from sso import clock, context
from sso.checkup.finding import Finding, Findings, at, ok, skipped, warning, wrong
from sso.checkup.reach import RENEW
from sso.config.upstream.ldap import LdapProvider
from sso.i18n.message import Message, Quote
from sso.ldap.connection import Refused, Server, Unavailable

NAME = "directories"


def directories() -> Findings:
    """Each server has a good certificate, and shows people to the service account."""
    found = [one for one in context.upstreams() if isinstance(one, LdapProvider)]
    if not found:
        yield skipped(NAME, Message("SSO_UPSTREAM_FILE names none"))
    for provider in found:
        for server in provider.client.servers:
            yield _examined(provider, server)


def _examined(provider: LdapProvider, server: Server) -> Finding:
    where = f"{provider.id}: {server}"
    try:
        ends, people = provider.client.examine(server)
    except Unavailable as error:
        hint = Message("check servers and ca_file, and the firewall")
        return wrong(NAME, at(where, Quote(error.args[0])), hint)
    except Refused as error:
        hint = Message("check bind_dn, its password, and base")
        return wrong(NAME, at(where, Quote(error.args[0])), hint)
    if not people:
        hint = Message("check base and user_filter, and what the service account may read")
        return wrong(NAME, at(where, Message("nobody is found")), hint)
    left = (ends - clock.now()).days if ends else None
    if left is not None and left < RENEW.days:
        seen = Message("the certificate ends in %(days)s days", days=left)
        return warning(NAME, at(where, seen), Message("renew it"))
    if left is None:
        return ok(NAME, Message("%(where)s answers", where=where))
    seen = Message("%(where)s answers; certificate for %(days)s days", where=where, days=left)
    return ok(NAME, seen)
