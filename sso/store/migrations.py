"""The schema and all tables: migrate a database, and copy every row to another one.

Flask-Migrate is bound to the application when it is needed. A copy reads the metadata, so that it
includes every table.
"""

from collections.abc import Callable
from typing import Any

import flask_migrate
from alembic import command
from flask import Flask, current_app
from flask_migrate import Migrate
from sqlalchemy import (
    JSON,
    Column,
    Connection,
    DateTime,
    Engine,
    MetaData,
    bindparam,
    delete,
    func,
    insert,
    inspect,
    select,
)

from sso import models
from sso.database import dialects, schema
from sso.extensions import Base, UtcDateTime, db
from sso.models import Heartbeat, ScimReceiver, SigningKey, Webhook
from sso.store import groups

_migrate = Migrate(directory=str(schema.FOLDER), render_as_batch=True)


def bind(app: Flask) -> None:
    """Give the application Flask-Migrate's settings, but keep our own `flask db`."""
    models.load_all()  # Alembic compares all tables
    if "migrate" not in app.extensions:
        commands = dict(app.cli.commands)
        _migrate.init_app(app, db)
        app.cli.commands = commands


def upgrade(revision: str = "head") -> None:
    """Bring the application's database forward to this revision."""
    bind(current_app)
    flask_migrate.upgrade(revision=revision)


def downgrade(revision: str) -> None:
    """Bring the application's database back to this revision."""
    bind(current_app)
    flask_migrate.downgrade(revision=revision)


def check() -> None:
    """Exit if the tables of the application's database differ from the models."""
    bind(current_app)
    flask_migrate.check()


def make_tables(engine: Engine, revision: str = "head") -> None:
    """Create the schema of this revision in another, empty database."""
    bind(current_app)
    config = current_app.extensions["migrate"].migrate.get_config()
    config.attributes["engine"] = engine
    command.upgrade(config, revision)


models.load_all()

# The tables that `flask db upgrade` and a worker write to by themselves.
_OF_NEW_DATABASES = (SigningKey, Heartbeat)
_VERSION = "alembic_version"
BATCH = 1000  # rows in memory at a time


def has_tables(connection: Connection) -> bool:
    return bool(inspect(connection).get_table_names())


def tables(connection: Connection, target: Connection) -> MetaData:
    """Return the tables of a database with an older schema, as the database describes them.

    `target`: a new database with this schema; tables that it lacks belong to another program.
    """
    names = {*inspect(target).get_table_names()} - {_VERSION, groups.MEMBERSHIPS.name}
    older = MetaData()
    older.reflect(connection, only=lambda name, _: name in names)
    for table in older.tables.values():
        model = Base.metadata.tables.get(table.name)
        for column in table.columns:
            if model is not None and column.name in model.columns:
                column.type = model.columns[column.name].type
            elif isinstance(generic := column.type.as_generic(), DateTime):
                column.type = UtcDateTime()
            else:
                column.type = generic
    return older


def occupied(connection: Connection, metadata: MetaData = Base.metadata) -> list[str]:
    """Return the tables that have rows, except those that a new database writes by itself."""
    of_new = {model.__tablename__ for model in _OF_NEW_DATABASES}
    return [
        table.name
        for table in metadata.sorted_tables
        if table.name not in of_new
        and connection.execute(select(1).select_from(table).limit(1)).first()
    ]


def forget_first_rows(connection: Connection, metadata: MetaData = Base.metadata) -> None:
    """Delete the rows that a new database has before anybody has used it."""
    for model in _OF_NEW_DATABASES:
        if (table := metadata.tables.get(model.__tablename__)) is not None:
            connection.execute(delete(table))


def signing_keys(connection: Connection) -> list[Any]:
    """Return the rows of all signing keys."""
    return list(connection.execute(select(SigningKey.__table__)))


def encrypted_webhook_secrets(connection: Connection) -> list[str]:
    return list(connection.scalars(select(Webhook.sealed_secret)))


def encrypted_scim_tokens(connection: Connection) -> list[str]:
    has_token = ScimReceiver.sealed_token.is_not(None)
    return list(connection.scalars(select(ScimReceiver.sealed_token).where(has_token)))


def copy(
    source: Connection,
    target: Connection,
    metadata: MetaData = Base.metadata,
    report: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Copy every row, and return the number of rows by table. The target's tables exist and are
    empty.

    `report` is called with the number of rows copied since its last call, and the total.
    """
    counts, total = {}, 0
    if report:
        count = select(func.count())
        total = sum(source.scalar(count.select_from(t)) or 0 for t in metadata.sorted_tables)
    for table in metadata.sorted_tables:
        columns = list(table.columns)
        statement = insert(table).values(
            {c.key: bindparam(f"v{n}", type_=_writing_type(c)) for n, c in enumerate(columns)}
        )
        counts[table.name] = 0
        rows = source.execute(select(*columns), execution_options={"yield_per": BATCH})
        for batch in rows.partitions():
            target.execute(
                statement, [{f"v{n}": value for n, value in enumerate(row)} for row in batch]
            )
            counts[table.name] += len(batch)
            if report:
                report(len(batch), total)
        _continue_numbering(target, table.autoincrement_column)
    return counts


def _writing_type(column: Column[Any]) -> Any:
    """Return the type that writes a column's values as they were read: Python has one `None` for
    NULL and for JSON's null.
    """
    is_json = isinstance(column.type, JSON)
    return JSON(none_as_null=True) if is_json and column.nullable else column.type


def _continue_numbering(target: Connection, column: Column[int] | None) -> None:
    """Set the sequence of an automatic number on PostgreSQL to the next free one."""
    if column is None or not dialects.is_postgresql(target):
        return
    sequence = func.pg_get_serial_sequence(column.table.name, column.name)
    next_number = select(func.coalesce(func.max(column), 0) + 1).scalar_subquery()
    target.execute(select(func.setval(sequence, next_number, False)))
