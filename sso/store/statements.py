"""How a statement that writes is executed."""

from typing import Any, cast

from sqlalchemy import CursorResult, Delete, Update, text

from sso.extensions import db


def without_time_limit() -> None:
    """For the rest of this transaction, a statement may take as long as its many rows need."""
    if db.engine.dialect.name == "postgresql":
        db.session.execute(text("SET LOCAL statement_timeout = 0"))


def write(statement: Update | Delete) -> int:
    """Execute an UPDATE or DELETE and return how many rows it changed.

    Objects in the session are left as they are: read them again if they matter.
    """
    result = db.session.execute(statement, execution_options={"synchronize_session": False})
    return cast(CursorResult[Any], result).rowcount
