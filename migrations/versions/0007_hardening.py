"""when a second factor was shown, who may add the first one, tries of emailed codes

Only additions, nullable or with defaults: the version before runs on this schema.

Revision ID: 0007
Revises: 0006
Create Date: 2026-11-21 11:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def _time(name):
    return sa.Column(name, sa.DateTime(timezone=True), nullable=True)


def upgrade():
    op.add_column("browser_sessions", _time("second_factor_at"))
    op.add_column("browser_sessions", _time("enrolment_allowed_at"))
    op.add_column("users", _time("email_changed_at"))
    op.add_column(
        "mail_tokens", sa.Column("failures", sa.Integer(), server_default="0", nullable=False)
    )


def downgrade():
    for table, column in (
        ("mail_tokens", "failures"),
        ("users", "email_changed_at"),
        ("browser_sessions", "enrolment_allowed_at"),
        ("browser_sessions", "second_factor_at"),
    ):
        with op.batch_alter_table(table) as batch_op:
            batch_op.drop_column(column)
