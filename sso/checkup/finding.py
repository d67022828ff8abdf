"""What a check found: one line, and a hint."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy.exc import SQLAlchemyError

from sso.i18n.message import Message


class Status(StrEnum):
    """A `WARNING` works but deserves attention; only `WRONG` makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """One line of the report. Pages show `seen` and `hint` by the filter `said`."""

    name: str
    status: Status
    seen: str
    hint: str | None = None


Findings = Iterable[Finding]


def ok(name: str, seen: str) -> Finding:
    return Finding(name, Status.OK, seen)


def warning(name: str, seen: str, hint: str) -> Finding:
    return Finding(name, Status.WARNING, seen, hint)


def wrong(name: str, seen: str, hint: str) -> Finding:
    return Finding(name, Status.WRONG, seen, hint)


def skipped(name: str, seen: str) -> Finding:
    return Finding(name, Status.SKIPPED, seen)


def at(where: str, what: str) -> Message:
    """One of several things that a check looks at, and what was seen there."""
    return Message("%(where)s: %(what)s", where=where, what=what)


def run(command: str) -> Message:
    """The hint to run a command."""
    return Message("run: %(command)s", command=command)


def answered(url: str, status: int) -> Message:
    """Another status than the expected one."""
    return Message("%(url)s answers %(status)s", url=url, status=status)


def guarded(name: str, check: Callable[[], Findings]) -> Iterator[Finding]:
    """The findings of a check. An exception in the check is a finding too, without its text,
    which may hold what was sent, and that holds secrets.
    """
    try:
        yield from check()
    except SQLAlchemyError as error:
        yield wrong(
            name,
            Message("the database refused (%(reason)s)", reason=type(error).__name__),
            Message("fix what is wrong with the database and its schema first"),
        )
    except Exception as error:
        yield wrong(
            name,
            Message("the check itself failed (%(reason)s)", reason=type(error).__name__),
            Message("check the server's log"),
        )
