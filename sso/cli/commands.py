"""What all commands share: the options, confirmation, and errors as one line with exit code 1."""

import sys
from typing import Any

import click
from flask.cli import AppGroup
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from sso import audit
from sso.cli.output import harmless
from sso.database import schema
from sso.errors import OperatorError
from sso.extensions import db

# SQLSTATE of PostgreSQL: undefined table, undefined column.
_NO_TABLE, _NO_COLUMN = "42P01", "42703"

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON value, for scripts."
)
yes_option = click.option("--yes", is_flag=True, help="Don't ask whether it is meant.")


class Failure(click.ClickException):
    """The command could not do it: one line on standard error, exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(harmless(message))


class Command(click.Command):
    """A command that fails with a line instead of a traceback, and leaves nothing half done."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with audit.acting_as(audit.system_user()):
                return super().invoke(ctx)
        except OperatorError as error:
            db.session.rollback()
            raise Failure(str(error)) from None
        except SQLAlchemyError as error:
            db.session.rollback()
            raise Failure(_database_words(error)) from None
        except UnicodeEncodeError:
            db.session.rollback()
            raise Failure("an argument is not valid UTF-8") from None


class Group(AppGroup):
    """A group of such commands."""

    command_class = Command


def confirm(question: str, yes: bool) -> None:
    """Ask before something is destroyed; without a terminal, `--yes` has to say it."""
    if yes:
        return
    if not sys.stdin or not sys.stdin.isatty():
        raise Failure("this cannot be undone; add --yes to do it without being asked")
    if not click.confirm(harmless(question), err=True):
        raise Failure("nothing was changed")


def _database_words(error: SQLAlchemyError) -> str:
    """A database error in words for an operator; never the statement, which holds values."""
    origin = getattr(error, "orig", None)
    state, text = getattr(origin, "sqlstate", None), str(origin or "")
    if state == _NO_TABLE or "no such table" in text:
        return _schema_words()
    if state == _NO_COLUMN or "no such column" in text or "has no column named" in text:
        return _schema_words()
    if isinstance(error, IntegrityError):
        return "another process changed the same thing at this moment; try again"
    reason = (text or type(error).__name__).strip().splitlines()[0]
    return f"the database cannot be used: {reason}"


def _schema_words() -> str:
    found = schema.revision(db.session.connection())
    db.session.rollback()
    if found is None:
        return "the database has no tables yet; run: flask db upgrade"
    return (
        f"the database is older than this program: its schema is {found}, not {schema.newest()}; "
        "run: flask db upgrade"
    )
