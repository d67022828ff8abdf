"""An index for text anywhere in the email, name or user name of people, on PostgreSQL

It needs the extension pg_trgm, which the owner of a database may create. Where that is not allowed,
or the server does not have it, there is no index: the version before, and this one, run without it.
Neither is it built for very many people, as sign-ins would wait: docs/how-to/postgresql.md has the
statement that builds it meanwhile.

Revision ID: 0053
Revises: 0052
Create Date: 2026-11-29 23:50:00

"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError


revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None

INDEX = "ix_users_trigrams"
COLUMNS = ("email", "name_key", "user_name")
MOST = 100_000  # people; 3 seconds
PASSING = ("55P03", "40P01")  # a lock that could not be had: the migration is tried again


def upgrade():
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    try:
        with connection.begin_nested():
            connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS pg_trgm")
            people = sa.select(sa.text("1")).select_from(sa.text("users")).limit(MOST + 1)
            counted = sa.select(sa.func.count()).select_from(people.subquery())
            if connection.scalar(counted) > MOST:
                return
            columns = ", ".join(f"{column} gin_trgm_ops" for column in COLUMNS)
            connection.exec_driver_sql(
                f"CREATE INDEX IF NOT EXISTS {INDEX} ON users USING gin ({columns})"
            )
    except DBAPIError as error:
        if error.connection_invalidated or getattr(error.orig, "sqlstate", None) in PASSING:
            raise


def downgrade():
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"DROP INDEX IF EXISTS {INDEX}")
