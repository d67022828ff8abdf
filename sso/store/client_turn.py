"""Who changes a client gets a turn, however many approvals for it are under way.

An approval locks the client's row FOR SHARE. PostgreSQL lets one such lock in beside another while
an update waits, so that approvals without a gap would keep an operator from disabling the client.
Advisory locks are given in the order in which they were asked for.
"""

from typing import Any

from sqlalchemy import Boolean, ColumnElement, func, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from sso.extensions import db

_KIND = 0x73736F  # "sso": the first half of the key of these advisory locks


class shared(FunctionElement[bool]):  # named as SQLAlchemy names functions
    """True, once nobody is changing the client whose id is given. Nothing is locked before."""

    type = Boolean()
    inherit_cache = True


@compiles(shared)
def _for_others(_element: shared, _compiler: SQLCompiler, **_: Any) -> str:
    return "1 = 1"  # SQLite lets one transaction write at a time


@compiles(shared, "postgresql")
def _for_postgresql(element: shared, compiler: SQLCompiler, **more: Any) -> str:
    client_id = compiler.process(element.clauses, **more)
    return f"pg_advisory_xact_lock_shared({_KIND}, hashtext({client_id})) IS NOT NULL"


def take(client_id: str) -> None:
    """Wait for the approvals that are under way; later ones wait until the transaction ends."""
    if db.engine.dialect.name == "postgresql":
        key: ColumnElement[int] = func.hashtext(client_id)
        db.session.execute(select(func.pg_advisory_xact_lock(_KIND, key)))
