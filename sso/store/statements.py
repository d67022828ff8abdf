"""How a statement that writes is executed."""

from typing import Any, cast

from sqlalchemy import CursorResult, Delete, Update

from sso.extensions import db


def write(statement: Update | Delete) -> int:
    """Execute an UPDATE or DELETE and return how many rows it changed.

    Objects in the session are left as they are: read them again if they matter.
    """
    result = db.session.execute(statement, execution_options={"synchronize_session": False})
    return cast(CursorResult[Any], result).rowcount
