"""Names of groups: warnings for operators about groups without members or clients."""

from collections.abc import Iterable
from difflib import get_close_matches
from shlex import quote

from sso.models import User
from sso.process.program import COMMAND
from sso.services import roles
from sso.store import apis, clients, groups


def without_members(names: Iterable[str]) -> list[str]:
    """Warn about groups without members: their clients admit nobody."""
    names = list(names)
    existing = groups.with_members() if names else set()
    return [
        f"Nobody is in the group {name}"
        + _similar(name, existing, f": {COMMAND} user update WHO --add-group {quote(name)}")
        for name in names
        if name not in existing
    ]


def not_known(names: Iterable[str], user: User) -> list[str]:
    """Warn about groups that no client and no API requires and that no other user is in."""
    names = list(names)
    if not names:
        return []
    existing = groups.with_members(except_of=user.id)
    existing.update(*(client.named_groups for client in clients.every()))
    existing.update(*(api.named_groups for api in apis.every()))
    existing.update(roles.groups_with_permissions())
    return [
        f"No application requires the group {name}, and no other user is in it"
        f"{_similar(name, existing)}"
        for name in names
        if name not in existing
    ]


def _similar(name: str, existing: Iterable[str], otherwise: str = ".") -> str:
    matches = get_close_matches(name, sorted(set(existing) - {name}), n=1)
    return f"; did you mean {matches[0]}?" if matches else otherwise
