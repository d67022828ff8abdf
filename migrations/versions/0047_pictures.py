"""Pictures of people

Only additions: the version before runs on this schema, and shows no pictures.

Revision ID: 0047
Revises: 0046
Create Date: 2026-11-29 18:40:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "user_pictures",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=43), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
            name=op.f("fk_user_pictures_user_id_users"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_user_pictures")),
        sa.UniqueConstraint("name", name=op.f("uq_user_pictures_name")),
    )


def downgrade():
    op.drop_table("user_pictures")
