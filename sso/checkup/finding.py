"""What a check found: one line, and a hint."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy.exc import SQLAlchemyError


class Status(StrEnum):
    """A `WARNING` works but deserves attention; only `WRONG` makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

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


def guarded(name: str, check: Callable[[], Findings]) -> Iterator[Finding]:
    """The findings of a check. An exception in the check is a finding too, without its text,
    which may hold what was sent, and that holds secrets.
    """
    try:
        yield from check()
    except SQLAlchemyError as error:
        yield wrong(
            name,
            f"the database refused ({type(error).__name__})",
            "fix what is wrong with the database and its schema first",
        )
    except Exception as error:
        yield wrong(
            name, f"the check itself failed ({type(error).__name__})", "check the server's log"
        )
