"""The result of a check: one line, and a hint."""

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
    """One line of the report. Pages show `seen`, `hint` and `party` by the filter `said`.

    `party`: who has to act, where several are involved.
    """

    name: str
    status: Status
    seen: str
    hint: str | None = None
    party: str | None = None


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
    """Return a message about one of several places that a check looks at."""
    return Message("%(where)s: %(what)s", where=where, what=what)


def run(command: str) -> Message:
    """Return the hint to run a command."""
    return Message("run: %(command)s", command=command)


def answered(url: str, status: int) -> Message:
    """Return the message about an unexpected status."""
    return Message("%(url)s answers %(status)s", url=url, status=status)


def guarded(name: str, check: Callable[[], Findings]) -> Iterator[Finding]:
    """Run a check. Report an exception as a finding without its text, which may hold secrets."""
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
