"""Shared by commands: options, questions, errors in one line with exit code 1, lookups."""

import logging
import os
import secrets
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from getpass import GetPassWarning
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeVar
from uuid import UUID

import click
from flask.cli import AppGroup
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from sso import audit
from sso.cli.output import harmless, print_line
from sso.database import schema
from sso.errors import OperatorError
from sso.extensions import db
from sso.process.program import COMMAND
from sso.store.lists import MOST_MATCHES, Match

if TYPE_CHECKING:  # only commands about clients load its tables
    from sso.store.client_work import Progress

# SQLSTATE of PostgreSQL: undefined table, undefined column.
_NO_TABLE, _NO_COLUMN = "42P01", "42703"

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON value, for scripts."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
slow_passwords_option = click.option(
    "--slow-passwords",
    is_flag=True,
    help="Accept password hashes that make every wrong password of anybody take more than 1 s.",
)
password_stdin_option = click.option(
    "--password-stdin", is_flag=True, help="Read the password from one line of standard input."
)


class Failure(click.ClickException):
    """The command failed: one line on standard error, exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(harmless(message))


def named_texts(texts: Iterable[str], noun: str) -> dict[str, str]:
    """Return what NAME=VALUE arguments say, by name. Raises `Failure` with every error."""
    values: dict[str, str] = {}
    errors = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            errors.append(f"the {noun} {text!r} is not NAME=VALUE")
        elif name in values:
            errors.append(f"the {noun} {name!r} is given twice")
        else:
            values[name] = value
    if errors:
        raise Failure("; ".join(errors))
    return values


@contextmanager
def quiet_terminal(*, always: bool = False) -> Iterator[None]:
    """Keep audit events out of the output on a terminal; `flask audit list` shows them.

    `always`: keep them out of logs, too, because there are too many.
    """
    level = audit.logger.level
    if always or (sys.stderr and sys.stderr.isatty()):
        audit.logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        audit.logger.setLevel(level)


class Service(click.Command):
    """A command that rolls back and prints one line when it fails, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with audit.acting_as(audit.operator()):
                return super().invoke(ctx)
        except OperatorError as error:
            db.session.rollback()
            raise Failure(str(error)) from None
        except SQLAlchemyError as error:
            db.session.rollback()
            raise Failure(_database_error(error)) from None
        except UnicodeEncodeError:
            db.session.rollback()
            raise Failure("an argument is not valid UTF-8") from None


class Command(Service):
    """A command for people, without log lines in its output."""

    def invoke(self, ctx: click.Context) -> Any:
        with quiet_terminal():
            return super().invoke(ctx)


class Group(AppGroup):
    """A group of such commands."""

    command_class = Command


def confirm(question: str, yes: bool) -> None:
    """Ask before something is destroyed; without a terminal, `--yes` is required."""
    if yes:
        return
    if not sys.stdin or not sys.stdin.isatty():
        raise Failure("this cannot be undone; add --yes to do it without being asked")
    if not click.confirm(harmless(question), err=True):
        raise Failure("nothing was changed")


def ask_password(password_stdin: bool) -> str:
    """Read a password from the terminal, hidden, or from one line of standard input.

    Never from the command line, which every user of the machine can read. Raises `Failure`.
    """
    if password_stdin:
        return _password_line()
    with warnings.catch_warnings():
        # Without a terminal getpass would warn and read the password visibly.
        warnings.simplefilter("error", GetPassWarning)
        try:
            answer = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        except GetPassWarning:
            raise Failure("there is no terminal to ask on; use --password-stdin") from None
    return str(answer)


def _password_line() -> str:
    raw: bytes = sys.stdin.buffer.readline() if sys.stdin else b""
    try:
        # Only the newline is removed: spaces may be part of a password.
        line = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Failure("the password on standard input is not UTF-8") from None
    if not line:
        raise Failure("there is no password on standard input")
    return line


class BrokenReference(OperatorError):
    """The reference cannot be resolved; the message has no value."""


def resolve(reference: str) -> str:
    """Return the value of `env:NAME` or `file:PATH`. Raises `BrokenReference`.

    So secrets stay out of files and arguments.
    """
    kind, _, name = reference.partition(":")
    if kind == "env" and name:
        value = os.environ.get(name, "")
    elif kind == "file" and name:
        try:
            value = Path(name).read_text("utf-8", "surrogateescape").rstrip("\r\n")
        except (OSError, ValueError):
            raise BrokenReference(f"{reference}: the file cannot be read") from None
    else:
        raise BrokenReference("it is neither env:NAME nor file:PATH")
    if not value:
        raise BrokenReference(f"{reference}: it is empty or not there")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BrokenReference(f"{reference}: it is not valid UTF-8") from None
    return value


def _database_error(error: SQLAlchemyError) -> str:
    """Describe a database error for operators, without the statement, which has values."""
    origin = getattr(error, "orig", None)
    state, text = getattr(origin, "sqlstate", None), str(origin or "")
    if state == _NO_TABLE or "no such table" in text:
        return _schema_error()
    if state == _NO_COLUMN or "no such column" in text or "has no column named" in text:
        return _schema_error()
    if isinstance(error, IntegrityError):
        return "another process changed the same thing at this moment; try again"
    reason = (text or type(error).__name__).strip().splitlines()[0]
    return f"the database cannot be used: {reason}"


def _schema_error() -> str:
    revision = schema.revision(db.session.connection())
    db.session.rollback()
    if revision is None:
        return f"the database has no tables yet; run: {COMMAND} db upgrade"
    return (
        f"the database is older than this program: its schema is {revision}, "
        f"not {schema.newest()}; run: {COMMAND} db upgrade"
    )


T = TypeVar("T")


def only(
    match: Match[T], text: str, describe: Callable[[T], str], whole: str, *, exactly: bool
) -> T | None:
    """Return the only match, or `None`. Raises `Failure` if there are several.

    `exactly`: the command cannot be undone or gives rights, so it needs a `whole` identifier. Names
    and prefixes may have matched another row yesterday, and people choose their own names.
    """
    descriptions = [describe(item) for item in match.rows[:MOST_MATCHES]]
    if len(descriptions) > 1:
        names = ", ".join(descriptions) + (", …" if len(match.rows) > MOST_MATCHES else "")
        raise Failure(f"{text} fits several: {names}; give {whole} in full")
    if descriptions and exactly and not match.is_exact:
        raise Failure(f"{text} fits {descriptions[0]}; this command needs {whole} in full")
    return match.rows[0] if descriptions else None


class _WithId(Protocol):
    @property
    def id(self) -> UUID: ...


R = TypeVar("R", bound=_WithId)


def by_id(
    kind: str, match: Match[R], text: str, name_of: Callable[[R], str], *, exactly: bool
) -> R:
    """Return the only row whose ID or name matches. Raises `Failure`; see `only`."""
    item = only(match, text, lambda row: f"{row.id} ({name_of(row)})", "the ID", exactly=exactly)
    if item is None:
        raise unknown(kind, text)
    return item


_WORK = {
    "end": "ending its grants",
    "narrow": "ending the grants of people who may no longer use it",
    "delete": "deleting it with its grants",
}


def print_work(work: "Progress | None") -> None:
    """Print what the worker is still doing after a change of a client, if it is."""
    if work:
        done = "" if work.total is None else f": {work.done:,} of {work.total:,} are done"
        print_line(f"The worker is {_WORK[work.kind]}{done}.")


def unknown(kind: str, text: str) -> Failure:
    return Failure(f"there is no {kind} {text}; see: {COMMAND} {kind} list")


def write_private(path: Path, fill: Callable[[TextIO], object]) -> None:
    """Write the file as a whole or not at all. Only its owner can read it. Raises `Failure`."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                fill(file)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}") from None
