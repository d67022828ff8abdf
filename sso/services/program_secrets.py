"""Secrets of programs that end soon: API tokens and clients' secrets.

The checks compare their ends with the clock; here those are told who can replace them in time.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from sso import audit, clock, context
from sso.audit import Actor
from sso.flow import moments
from sso.models import User
from sso.services import notifications
from sso.store import clients, keys, users

MOST_TOLD = 20  # administrators


@audit.acting
def announce_ends(actor: Actor) -> int:
    """Tell of secrets that end soon, each once; return their number, of a batch.

    The owner of an API token is told, and administrators of those without one and of clients.
    """
    now = clock.now()
    until = now + moments.NOTICE
    of_owner: dict[UUID, list[str]] = {}
    others: list[str] = []
    tokens, ending = keys.ending_api_tokens(now, until), clients.with_ending_secrets(now, until)
    for token in tokens:
        if keys.note_announced(token):
            names = of_owner.setdefault(token.owner_id, []) if token.owner_id else others
            names.append(_line(token.name, token.expires_at))
    for owner_id, names in of_owner.items():
        if owner := users.find(owner_id):
            notifications.api_tokens_end(owner, names)
    _tell(notifications.api_tokens_end, others)
    _tell(
        notifications.client_secrets_end,
        [
            _line(client.name, client.secret_expires_at)
            for client in ending
            if clients.note_secret_announced(client)
        ],
    )
    return len(tokens) + len(ending)


def _line(name: str, end: datetime | None) -> str:
    return f"{name} ({end:%Y-%m-%d %H:%M} UTC)" if end else name


def _tell(notify: Callable[[User, Sequence[str]], None], names: Sequence[str]) -> None:
    group = context.settings().admin_group
    for administrator in users.administrators(group, MOST_TOLD) if names else ():
        notify(administrator, names)
