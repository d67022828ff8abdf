"""The differences between the statements and locks of SQLite and PostgreSQL.

SQLite lets one transaction write at a time, so it needs no advisory locks. `sso.database` and
`postgresql` open the connections.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlalchemy import (
    JSON,
    Boolean,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Integer,
    Select,
    SQLColumnExpression,
    String,
    UnaryExpression,
    and_,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
    true,
    tuple_,
    update,
)
from sqlalchemy import cast as type_cast
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import custom_op
from sqlalchemy.sql.selectable import NamedFromClause

from sso.extensions import Base, db
from sso.process import program

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql
else:  # a command that lists users takes 60 ms longer with them
    postgresql = program.late_module("sqlalchemy.dialects.postgresql")


Row = TypeVar("Row", bound=Base)


def is_postgresql(connection: Connection | Engine | None = None) -> bool:
    """Return whether a connection or engine, by default that of the session, is PostgreSQL's."""
    return (connection or db.engine).dialect.name == "postgresql"


def insert(table: type[Base] | FromClause, dialect: str | None = None) -> "sqlite.Insert":
    """Return an INSERT that can name what to do on a conflict, for the session's database."""
    module: Any = {"postgresql": postgresql, "sqlite": sqlite}[dialect or db.engine.dialect.name]
    statement: sqlite.Insert = module.insert(table)  # PostgreSQL's has the same methods
    return statement


def has_key(column: InstrumentedAttribute[Any], key: str) -> ColumnElement[bool]:
    """Return the condition that the object in a JSON column has this key: letters, digits, `_`."""
    if is_postgresql():
        return func.jsonb_exists(type_cast(column, postgresql.JSONB), key)
    return func.json_type(column, f'$."{key}"').is_not(None)


def without_key(column: InstrumentedAttribute[Any], key: str) -> ColumnElement[Any]:
    """Return the object in a JSON column without this key: letters, digits, `_`."""
    if is_postgresql():
        return type_cast(type_cast(column, postgresql.JSONB).op("-")(literal(key)), JSON)
    return func.json_remove(column, f'$."{key}"')


def insert_or_ignore(table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows that do not exist yet; several transactions may do so at once."""
    db.session.execute(insert(table).values(rows).on_conflict_do_nothing())


def lock(
    model: type[Row], keep: InstrumentedAttribute[Any], *conditions: ColumnElement[bool]
) -> Row | None:
    """Lock a row until the transaction ends, and return it as it is now, or `None`."""
    row: Row | None = db.session.scalar(locking(model, keep, *conditions))
    return row


def locking(
    model: type[Base], keep: InstrumentedAttribute[Any], *conditions: ColumnElement[bool]
) -> Any:
    """Return the statement of `lock`, to be built once.

    It sets the column `keep`, and those that change with each update, to their own values: SQLite
    has no FOR UPDATE.
    """
    columns = [keep, *(column for column in model.__table__.c if column.onupdate is not None)]
    unchanged = {column: column for column in columns}
    statement: Any = update(model).where(*conditions).values(unchanged)
    statement = statement.returning(model)
    return statement.execution_options(populate_existing=True, synchronize_session=False)


LOCK_KIND = 0x73736F  # "sso": the first half of the keys of this server's advisory locks


def exclusive_lock(*key: Any) -> None:
    """Take an advisory lock until the transaction ends, in the order of the requests for it."""
    if is_postgresql():
        db.session.execute(select(func.pg_advisory_xact_lock(*key)))


class shared_client_lock(FunctionElement[bool]):  # named as SQLAlchemy names functions
    """Take the shared lock of the client with this id; always true."""

    type = Boolean()
    inherit_cache = True


@compiles(shared_client_lock)
def _without_lock(_element: shared_client_lock, _compiler: SQLCompiler, **_: Any) -> str:
    return "1 = 1"


@compiles(shared_client_lock, "postgresql")
def _with_lock(element: shared_client_lock, compiler: SQLCompiler, **more: Any) -> str:
    client_id = compiler.process(element.clauses, **more)
    return f"pg_advisory_xact_lock_shared({LOCK_KIND}, hashtext({client_id})) IS NOT NULL"


def exclusive_client_lock(client_id: str) -> None:
    """Wait for the client's approvals under way; later ones wait until this transaction ends."""
    exclusive_lock(LOCK_KIND, func.hashtext(client_id))


def exclusive_client_locks(in_order: Select[Any]) -> None:
    """Do the same as `exclusive_client_lock` for the clients whose ids are selected, in order."""
    if is_postgresql():
        ids = in_order.subquery("ids")
        lock = func.pg_advisory_xact_lock(LOCK_KIND, func.hashtext(ids.c[0]))
        db.session.execute(select(func.count(lock)))


_AFTER_ALL = "\U0010ffff"  # the last character: no text has it


def begins(column: SQLColumnExpression[str], text: str) -> ColumnElement[bool]:
    """Return the condition that a column begins with this text, byte by byte; an index answers it.

    On PostgreSQL, the index needs text_pattern_ops.
    """
    low, high = ("~>=~", "~<~") if is_postgresql() else (">=", "<")
    if not text:
        return true()
    is_after: ColumnElement[bool] = column.op(low, is_comparison=True)(text)
    return is_after & column.op(high, is_comparison=True)(text + _AFTER_ALL)


def is_beyond(
    columns: Sequence[Any], values: Sequence[Any], *, descending: bool
) -> ColumnElement[bool]:
    """Return the condition that a row comes after these values.

    The first column is ordered by `order_of_beginnings`. On SQLite it is the only one: others
    would need another condition there.
    """
    column, value = columns[0], values[0]
    if not is_postgresql():
        return cast(ColumnElement[bool], column < value if descending else column > value)
    beyond, or_at = ("~<~", "~<=~") if descending else ("~>~", "~>=~")
    is_first_beyond = column.op(beyond, is_comparison=True)(value)
    if len(columns) == 1:
        return cast(ColumnElement[bool], is_first_beyond)
    rest, places = tuple_(*columns[1:]), tuple_(*values[1:])
    is_rest_beyond = rest < places if descending else rest > places
    # The first condition is the one that the index answers.
    is_there = column.op(or_at, is_comparison=True)(value)
    return and_(is_there, or_(is_first_beyond, is_rest_beyond))


def decisive(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition, to be answered by an index before others about the same column.

    SQLite uses one bound of a column in each direction, and else takes the first: a page in the
    middle of a range would be read from the beginning of the range.
    """
    if is_postgresql():
        return condition
    # `unlikely`, 1 in 16, counts no more than the two bounds of a range. As an integer: SQLAlchemy
    # would compare a Boolean with 1, which no index answers.
    return func.likelihood(condition, literal_column("0.0001"), type_=Integer)


def order_of_beginnings(
    column: SQLColumnExpression[str], *, descending: bool
) -> UnaryExpression[str]:
    """Return the order of the index that answers `begins`: byte by byte, whatever the collation."""
    if not is_postgresql():
        return column.desc() if descending else column.asc()
    operator = custom_op[Any]("USING ~>~" if descending else "USING ~<~")
    return UnaryExpression(cast(ColumnElement[str], column), modifier=operator)


def code_point_order(column: SQLColumnExpression[str]) -> SQLColumnExpression[str]:
    """Return what orders rows as Python sorts texts, whatever the collation of the database."""
    return column.collate("C") if is_postgresql() else column


def json_values(
    column: SQLColumnExpression[Any], name: str
) -> tuple[NamedFromClause, ColumnElement[str]]:
    """Return the elements of a column's JSON lists as a table, and its column of texts."""
    function = func.json_array_elements_text if is_postgresql() else func.json_each
    values = function(column).table_valued("value", name=name, joins_implicitly=True)
    return values, values.c.value.cast(String)


def set_lock_timeout(connection: Connection, timeout: str) -> None:
    """Limit how long this transaction waits for a lock; only PostgreSQL locks single rows."""
    if is_postgresql(connection):
        connection.execute(text(f"SET LOCAL lock_timeout = '{timeout}'"))


def without_time_limit() -> None:
    """Let each statement of this transaction take as long as its many rows need."""
    if is_postgresql():
        db.session.execute(text("SET LOCAL statement_timeout = 0"))
