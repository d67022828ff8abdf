"""Names of groups: what an operator is told about those without members or clients."""

from collections.abc import Iterable
from difflib import get_close_matches
from shlex import quote

from sso import context
from sso.models import User
from sso.process.program import COMMAND
from sso.store import clients, groups


def without_members(names: Iterable[str]) -> list[str]:
    """A sentence about each of these groups that nobody is in: its client lets nobody in."""
    wanted = list(names)
    known = groups.with_members() if wanted else set()
    return [
        f"Nobody is in the group {name}"
        + _similar(name, known, f": {COMMAND} user update WHO --add-group {quote(name)}")
        for name in wanted
        if name not in known
    ]


def not_known(names: Iterable[str], user: User) -> list[str]:
    """A sentence about each of these groups that no client requires and no other user is in."""
    wanted = list(names)
    if not wanted:
        return []
    known = groups.with_members(except_of=user.id)
    known.update(name for client in clients.every() for name in client.groups)
    known.update((context.settings().admin_group, context.settings().helpdesk_group))
    return [
        f"No application requires the group {name}, and no other user is in it"
        f"{_similar(name, known)}"
        for name in wanted
        if name not in known
    ]


def _similar(name: str, known: Iterable[str], otherwise: str = ".") -> str:
    found = get_close_matches(name, sorted(set(known) - {name}), n=1)
    return f"; did you mean {found[0]}?" if found else otherwise
