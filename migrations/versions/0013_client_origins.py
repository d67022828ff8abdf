"""origins of public clients

Only an addition: the version before runs on this schema.

Revision ID: 0013
Revises: 0012
Create Date: 2026-11-26 09:00:00

"""

import json
import re
from urllib.parse import urlsplit

from alembic import op
import sqlalchemy as sa


revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_LOOPBACK = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::\d+)?")


def upgrade():
    origins = op.create_table(
        "client_origins",
        sa.Column("client_id", sa.String(length=48), nullable=False),
        sa.Column("origin", sa.String(length=2000), nullable=False),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name=op.f("fk_client_origins_client_id_clients"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("client_id", "origin", name=op.f("pk_client_origins")),
    )
    op.create_index(op.f("ix_client_origins_origin"), "client_origins", ["origin"])
    if op.get_context().as_sql:
        return
    clients = sa.table("clients", sa.column("client_id"), sa.column("client_metadata"))
    for client_id, metadata in op.get_bind().execute(sa.select(clients)).all():
        for origin in _origins(json.loads(metadata)):
            op.get_bind().execute(origins.insert().values(client_id=client_id, origin=origin))


def _origins(metadata):
    if metadata.get("token_endpoint_auth_method") != "none":
        return set()
    found = map(_origin, metadata.get("redirect_uris", ()))
    return {origin for origin in found if origin}


def _origin(uri):
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    usual = 443 if parts.scheme == "https" else 80
    origin = f"{parts.scheme}://{host}"
    origin += "" if parts.port in (None, usual) else f":{parts.port}"
    loopback = _LOOPBACK.fullmatch(origin)
    return loopback[1] if loopback else origin


def downgrade():
    op.drop_table("client_origins")
