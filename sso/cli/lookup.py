"""The one user or client that an operator means."""

from collections.abc import Callable
from typing import Protocol, TypeVar
from uuid import UUID

from sso.cli.commands import Failure
from sso.process.program import COMMAND
from sso.store.lists import MOST_MATCHES, Match

T = TypeVar("T")


def only(
    match: Match[T], text: str, describe: Callable[[T], str], whole: str, *, exactly: bool
) -> T | None:
    """The one that matches, or `None`. Raises `Failure` if there are several.

    `exactly`: the command cannot be undone or gives rights, so only a `whole` identifier will do.
    A name or a prefix could have meant another one yesterday, and people choose their own.
    """
    words = [describe(one) for one in match.found[:MOST_MATCHES]]
    if len(words) > 1:
        listed = ", ".join(words) + (", …" if len(match.found) > MOST_MATCHES else "")
        raise Failure(f"{text} fits several: {listed}; give {whole} in full")
    if words and exactly and not match.is_exact:
        raise Failure(f"{text} fits {words[0]}; this command needs {whole} in full")
    return match.found[0] if words else None


class _WithId(Protocol):
    @property
    def id(self) -> UUID: ...


R = TypeVar("R", bound=_WithId)


def by_id(
    kind: str, match: Match[R], text: str, name_of: Callable[[R], str], *, exactly: bool
) -> R:
    """The one row whose ID or name fits; see `only`. Raises `Failure`, also if there is none."""
    found = only(match, text, lambda one: f"{one.id} ({name_of(one)})", "the ID", exactly=exactly)
    if found is None:
        raise unknown(kind, text)
    return found


def unknown(kind: str, text: str) -> Failure:
    return Failure(f"there is no {kind} {text}; see: {COMMAND} {kind} list")
