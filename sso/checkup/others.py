"""Checks of the identity providers, and of the directories, server by server."""

import secrets
from http.client import HTTPException

from sso import clock, context
from sso.checkup.finding import Finding, Findings, at, ok, skipped, warning, wrong
from sso.checkup.reach import RENEW
from sso.config.upstream.ldap import LdapProvider
from sso.config.upstream.oidc import (
    GitHubProvider,
    GoogleProvider,
    MicrosoftProvider,
    OidcProvider,
    WebProvider,
)
from sso.config.upstream.provider import Provider
from sso.flow.attributes import text_of
from sso.i18n import N_
from sso.i18n.message import Message, Quote
from sso.ldap.account_state import State
from sso.ldap.connection import Refused, Server, Unavailable
from sso.ldap.directory import NotAllowed
from sso.services import attributes
from sso.upstream import ldap, oidc
from sso.upstream.identity import UpstreamRefused, UpstreamUnavailable
from sso.upstream.remote_cache import RemoteUnavailable, is_private

PROVIDERS = "providers"
_TROUBLE = (RemoteUnavailable, UpstreamUnavailable, OSError, HTTPException, ValueError)


def providers() -> Findings:
    """Check that each provider answers, has keys, and knows this server."""
    web_providers = [
        provider for provider in context.upstreams() if isinstance(provider, WebProvider)
    ]
    if not web_providers:
        yield skipped(PROVIDERS, Message("SSO_UPSTREAM_FILE names none"))
    for provider in web_providers:
        yield from _web_provider(provider)


def one_provider(provider: Provider, account: str = "") -> Findings:
    """Check one provider or directory, and look up an account in a directory."""
    if isinstance(provider, LdapProvider):
        yield from _directory(provider)
        if account.strip():
            yield from _looked_up(provider, account)
    elif isinstance(provider, WebProvider):
        yield from _web_provider(provider)


def _web_provider(provider: WebProvider) -> Findings:
    if provider.sign_up and not provider.domains and _is_for_everyone(provider):
        sign_up = Message("everyone with an account there signs up")
        hint = Message("set domains, unless that is what you want")
        yield warning(PROVIDERS, at(provider.id, sign_up), hint)
    try:
        message = _examined_provider(provider)
    except _TROUBLE as error:
        hint = Message(
            "check its keys in SSO_UPSTREAM_FILE, and the firewall; no HTTP proxy is used"
        )
        if is_private(error):
            hint = Message("set allow_private_addresses = true, if it is in your own network")
        yield wrong(PROVIDERS, at(provider.id, _text_of(error)), hint)
    except UpstreamRefused as error:
        hint = Message("check client_id, client_secret and redirect URI")
        yield warning(PROVIDERS, at(provider.id, _text_of(error)), hint)
    else:
        yield ok(PROVIDERS, at(provider.id, message))
        if isinstance(provider, OidcProvider) and _cannot_be_rechecked(provider):
            message = Message("recheck has no refresh token to ask with")
            hint = Message('add "offline_access" to scope, or remove recheck')
            yield warning(PROVIDERS, at(provider.id, message), hint)
        # Whether the attributes are defined, whatever the provider says.
        _, errors = attributes.of_provider(dict.fromkeys(provider.attributes.values()))
        for reason in errors:
            yield warning(PROVIDERS, at(provider.id, reason), _WRITER)


_LONGEST = 500  # characters of the values of an account
_WRITER = Message(
    "its value is left out: define the attribute with this type and the writer upstream, or "
    "correct attributes in SSO_UPSTREAM_FILE"
)


def _examined_provider(provider: WebProvider) -> Message:
    if isinstance(provider, GitHubProvider):
        oidc.github_client(provider).examine()
        return Message("answers")
    assert isinstance(provider, OidcProvider)
    client = oidc.oidc_client(provider)
    count = client.discovered.examine()
    try:  # a code that nobody was given: who we are is checked first
        at = f"{context.settings().base_url}/sign-in/callback/{provider.id}"
        client.complete(at, secrets.token_urlsafe(), secrets.token_urlsafe(48), "none")
    except UpstreamRefused as error:
        if error.error != "invalid_grant":
            raise
    return Message("answers, with %(count)s keys, and knows client_id and secret", count=count)


def _text_of(error: Exception) -> str:
    """Return the text of an error: a `Message` if it was written here."""
    text = error.args[0] if error.args else ""
    return text if isinstance(text, Message) else str(error)[:200]


def _cannot_be_rechecked(provider: OidcProvider) -> bool:
    if not provider.recheck or isinstance(provider, GoogleProvider):
        return False
    metadata = oidc.oidc_client(provider).metadata()
    return "offline_access" not in provider.scope and metadata.introspection_endpoint is None


def _is_for_everyone(provider: WebProvider) -> bool:
    if isinstance(provider, GoogleProvider):
        return provider.hosted_domain is None
    if isinstance(provider, MicrosoftProvider):
        return provider.tenant in provider.MANY
    return isinstance(provider, GitHubProvider)


DIRECTORIES = "directories"


def directories() -> Findings:
    """Check that each server has a valid certificate and shows people to the service account."""
    ldap_providers = [
        provider for provider in context.upstreams() if isinstance(provider, LdapProvider)
    ]
    if not ldap_providers:
        yield skipped(DIRECTORIES, Message("SSO_UPSTREAM_FILE names none"))
    for provider in ldap_providers:
        yield from _directory(provider)


def _directory(provider: LdapProvider) -> Findings:
    for server in provider.client.servers:
        yield _examined_directory(provider, server)


def _examined_directory(provider: LdapProvider, server: Server) -> Finding:
    where = f"{provider.id}: {server}"
    try:
        ends, people = provider.client.examine(server)
    except Unavailable as error:
        hint = Message("check servers and ca_file, and the firewall")
        return wrong(DIRECTORIES, at(where, Quote(error.args[0])), hint)
    except Refused as error:
        hint = Message("check bind_dn, its password, and base")
        return wrong(DIRECTORIES, at(where, Quote(error.args[0])), hint)
    if not people:
        hint = Message("check base and user_filter, and what the service account may read")
        return wrong(DIRECTORIES, at(where, Message("nobody is found")), hint)
    left = (ends - clock.now()).days if ends else None
    if left is not None and left < RENEW.days:
        message = Message("the certificate ends in %(days)s days", days=left)
        return warning(DIRECTORIES, at(where, message), Message("renew it"))
    if left is None:
        return ok(DIRECTORIES, Message("%(where)s answers", where=where))
    message = Message("%(where)s answers; certificate for %(days)s days", where=where, days=left)
    return ok(DIRECTORIES, message)


ACCOUNT = "account"
_STATES = {
    State.DISABLED: N_("the account is disabled there"),
    State.EXPIRED: N_("the account has expired there"),
    State.LOCKED: N_("the account is locked there"),
    State.MUST_CHANGE: N_("the password must be changed there"),
}


def _looked_up(provider: LdapProvider, account: str) -> Findings:
    """Look up an account as the service account sees it. Its password is not needed."""
    try:
        person = provider.client.find_person(account, clock.now())
    except (Unavailable, Refused) as error:
        hint = Message("check what the service account may read")
        yield wrong(ACCOUNT, at(account, Quote(error.args[0])), hint)
        return
    except NotAllowed:
        hint = Message("use a name that is unique, or narrow user_filter")
        yield wrong(ACCOUNT, at(account, Message("several people have this name")), hint)
        return
    if person is None:
        hint = Message("check the name, and base, user_filter and login_attributes")
        yield wrong(ACCOUNT, at(account, Message("nobody has this name")), hint)
        return
    yield ok(ACCOUNT, at(account, Quote(person.dn)))
    if state := person.barred or (State.MUST_CHANGE if person.must_change_password else None):
        hint = Message("change it in the directory; until then nobody signs in with it")
        yield warning(ACCOUNT, at(account, Message(_STATES.get(state, state))), hint)
    if not person.email:
        hint = Message("people without an email address get no account here")
        yield warning(ACCOUNT, at(account, Message("it has no email address")), hint)
    elif not person.has_own_email and not person.barred:
        hint = Message("the address is not trusted until it is unique in the directory")
        yield warning(ACCOUNT, at(account, Message("other people have its email address")), hint)
    else:
        yield ok(ACCOUNT, at(account, Message("email: %(email)s", email=person.email)))
    if provider.groups:
        names = ", ".join(
            sorted({provider.groups[each] for each in provider.mapped(person.groups)})
        )
        message = Message("groups here: %(groups)s", groups=names or "-")
        yield ok(ACCOUNT, at(account, message))
    if stated := ldap.attributes_of(provider, person):
        fit, errors = attributes.of_provider(stated)
        texts = (f"{name}={text_of(value)}" for name, value in fit.items() if value is not None)
        values = ", ".join(texts)[:_LONGEST]
        message = Message("attributes here: %(values)s", values=values or "-")
        yield ok(ACCOUNT, at(account, message))
        for reason in errors:
            yield warning(ACCOUNT, at(account, reason), _WRITER)
