"""The schema and all tables at once: migrate a database, and copy every row to another.

Flask-Migrate is bound to the application when it is needed. A copy is generic over the metadata, so
that a table added later is included.
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
from sso.models import Heartbeat, SigningKey, Webhook
from sso.store import groups

_migrate = Migrate(directory=str(schema.FOLDER), render_as_batch=True)


def bind(app: Flask) -> None:
    """Give the application Flask-Migrate's settings; `flask db` stays ours."""
    models.load_all()  # Alembic compares them all
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
    """Exit unless the application's database has the tables of the models."""
    bind(current_app)
    flask_migrate.check()


def make_tables(engine: Engine, revision: str = "head") -> None:
    """Create the schema of this revision in another, empty database."""
    bind(current_app)
    config = current_app.extensions["migrate"].migrate.get_config()
    config.attributes["engine"] = engine
    command.upgrade(config, revision)


models.load_all()

# What `flask db upgrade` and a worker write by themselves.
_OF_NEW_DATABASES = (SigningKey, Heartbeat)
_VERSION = "alembic_version"
BATCH = 1000  # rows in memory at a time


def has_tables(connection: Connection) -> bool:
    return bool(inspect(connection).get_table_names())


def tables(connection: Connection, target: Connection) -> MetaData:
    """Read the tables of a database with an older schema from the database itself.

    `target`: a new database with this schema; tables that it lacks are another program's.
    """
    names = {*inspect(target).get_table_names()} - {_VERSION, groups.MEMBERSHIPS.name}
    older = MetaData()
    older.reflect(connection, only=lambda name, _: name in names)
    for table in older.tables.values():
        ours = Base.metadata.tables.get(table.name)
        for column in table.columns:
            if ours is not None and column.name in ours.columns:
                column.type = ours.columns[column.name].type
            elif isinstance(generic := column.type.as_generic(), DateTime):
                column.type = UtcDateTime()
            else:
                column.type = generic
    return older


def occupied(connection: Connection, metadata: MetaData = Base.metadata) -> list[str]:
    """The tables that hold rows; a migrated database has its first signing keys and no more."""
    of_new = {model.__tablename__ for model in _OF_NEW_DATABASES}
    return [
        table.name
        for table in metadata.sorted_tables
        if table.name not in of_new
        and connection.execute(select(1).select_from(table).limit(1)).first()
    ]


def forget_first_rows(connection: Connection, metadata: MetaData = Base.metadata) -> None:
    """Those that a new database has without anybody having used it."""
    for model in _OF_NEW_DATABASES:
        if (table := metadata.tables.get(model.__tablename__)) is not None:
            connection.execute(delete(table))


def sealed_keys(connection: Connection) -> list[Any]:
    """The rows of signing_keys."""
    return list(connection.execute(select(SigningKey.__table__)))


def sealed_webhook_secrets(connection: Connection) -> list[str]:
    return list(connection.scalars(select(Webhook.sealed_secret)))


def copy(
    source: Connection,
    target: Connection,
    metadata: MetaData = Base.metadata,
    report: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Copy every row; tells how many of each table. The target's tables are there and empty.

    `report` gets the number of rows that were copied since its last call, and of all.
    """
    counts, total = {}, 0
    if report:
        count = select(func.count())
        total = sum(source.scalar(count.select_from(t)) or 0 for t in metadata.sorted_tables)
    for table in metadata.sorted_tables:
        columns = list(table.columns)
        statement = insert(table).values(
            {c.key: bindparam(f"v{n}", type_=_kept(c)) for n, c in enumerate(columns)}
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


def _kept(column: Column[Any]) -> Any:
    """The type that writes what was read; NULL and JSON's null are one and the same to Python."""
    is_json = isinstance(column.type, JSON)
    return JSON(none_as_null=True) if is_json and column.nullable else column.type


def _continue_numbering(target: Connection, column: Column[int] | None) -> None:
    """PostgreSQL counts on by itself, from where we say."""
    if column is None or not dialects.is_postgresql(target):
        return
    sequence = func.pg_get_serial_sequence(column.table.name, column.name)
    following = select(func.coalesce(func.max(column), 0) + 1).scalar_subquery()
    target.execute(select(func.setval(sequence, following, False)))
