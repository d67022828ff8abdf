"""Rules for clients of this server's own APIs: who may change them, and what they may have."""

from collections.abc import Collection, Iterator, Mapping

from sso import context
from sso.audit import Actor
from sso.config.client_fields import CLIENT_CREDENTIALS
from sso.flow import own_apis, resources
from sso.flow.resources import Api
from sso.i18n.message import Message
from sso.models.clients import api_entry
from sso.services import api_tokens
from sso.services.checks import Invalid

_BY_COMMANDS = Message(
    "a client for an API of this server itself is registered and changed only by commands"
)


def every() -> Mapping[str, Api]:
    """Return the APIs of this server by identifier."""
    return own_apis.every(context.settings().base_url)


def require_operator(actor: Actor, entries: Collection[str]) -> None:
    """Raise `Invalid` unless an entry for an API of this server comes from the command line.

    The rights of such a client would not end with those of the administrator or program that
    changed it.
    """
    is_at_command_line = not (actor.user_id or actor.token or actor.service)
    if not is_at_command_line and any(_identifier(text) in every() for text in entries):
        raise Invalid([_BY_COMMANDS])


def _identifier(entry: str) -> str:
    return resources.normalized(api_entry(entry.strip())[0])


def client_errors(
    named: Mapping[str, Collection[str] | None], grant_types: Collection[str]
) -> Iterator[Message]:
    """Yield why a client cannot have these APIs of this server.

    Only services can, with named scopes. `named` has the scopes of each API of the client.
    """
    for identifier in named.keys() & every().keys():
        scopes = set(named[identifier] or ())
        if set(grant_types) != {CLIENT_CREDENTIALS}:
            yield Message(
                "the API %(identifier)s is for clients whose only grant type is %(grant)s",
                identifier=identifier,
                grant=CLIENT_CREDENTIALS,
            )
        if not scopes:
            yield Message(
                "name the scopes of the API %(identifier)s; known: %(known)s",
                identifier=identifier,
                known=", ".join(every()[identifier].scopes),
            )
        for scope, needed in api_tokens.NEEDED.items():
            if scope in scopes and needed not in scopes:
                yield Message("the scope %(scope)s needs %(needed)s", scope=scope, needed=needed)
