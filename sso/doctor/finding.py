"""What a check found: one line, and the mend."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy.exc import SQLAlchemyError


class Status(StrEnum):
    """`WARNING` is for what works and should still be looked at; only `WRONG` fails."""

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
    mend: str | None = None


Findings = Iterable[Finding]


def ok(name: str, seen: str) -> Finding:
    return Finding(name, Status.OK, seen)


def warning(name: str, seen: str, mend: str) -> Finding:
    return Finding(name, Status.WARNING, seen, mend)


def wrong(name: str, seen: str, mend: str) -> Finding:
    return Finding(name, Status.WRONG, seen, mend)


def skipped(name: str, seen: str) -> Finding:
    return Finding(name, Status.SKIPPED, seen)


def guarded(name: str, check: Callable[[], Findings]) -> Iterator[Finding]:
    """The findings of a check; a fault in the check is a finding too, without its text.

    The text of an exception may hold what was sent, and what was sent holds secrets.
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
            name, f"the check itself failed ({type(error).__name__})", "look into the server's log"
        )
