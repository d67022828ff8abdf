"""The identifiers of deleted APIs, whose scopes may still be in consents

Only an addition: the version before runs on this schema. Identifiers in consents that belong to no
API are collected once.

Revision ID: 0029
Revises: 0028
Create Date: 2026-11-28 13:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade():
    former = op.create_table(
        "former_apis",
        sa.Column("identifier", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("identifier", name=op.f("pk_former_apis")),
    )
    connection = op.get_bind()
    rows = connection.execute(
        sa.text(
            "SELECT scope, declined FROM consents WHERE scope LIKE '%#%' OR declined LIKE '%#%'"
        )
    )
    identifiers = {
        name.partition("#")[0]
        for row in rows
        for text in row
        for name in text.split()
        if "#" in name
    }
    existing = set(connection.execute(sa.text("SELECT identifier FROM apis")).scalars())
    if gone := sorted(identifiers - existing):
        op.bulk_insert(former, [{"identifier": identifier} for identifier in gone])


def downgrade():
    op.drop_table("former_apis")
