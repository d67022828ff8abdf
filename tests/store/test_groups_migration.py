"""What was there before groups had rows of their own."""

import json

from flask import Flask
from sqlalchemy import text

from sso.extensions import db
from sso.store import groups, migrating, named_groups
from tests.support.factories import make_client, make_user


def test_groups_of_users_and_clients_get_rows(own_tables: Flask) -> None:
    app = own_tables
    dana = make_user(app, groups=["staff", "a \"b\" 'c'"])
    make_client(app, groups=["readers"])
    with app.app_context():
        migrating.downgrade("0014")
        migrating.upgrade()
        assert named_groups.names() == {"staff", "a \"b\" 'c'", "readers"}
        assert [one.id for one in groups.all_members("staff")] == [dana.id]
        assert db.session.scalar(text("SELECT version FROM users")) == 1


def test_postgresql_finds_members_by_an_index(app: Flask) -> None:
    with app.app_context():
        if db.engine.dialect.name != "postgresql":
            return
        db.session.execute(
            text(
                "INSERT INTO users (id, email, name, claims, groups, created_at, updated_at)"
                " SELECT gen_random_uuid(), 'u' || n, 'x', '{}', json_build_array('g' || n % 500),"
                " now(), now() FROM generate_series(1, 5000) AS n"
            )
        )
        db.session.execute(text("ANALYZE users"))
        found = db.session.execute(
            text(
                "EXPLAIN (FORMAT JSON) SELECT id FROM users"
                " WHERE users.groups::jsonb @> jsonb_build_array(CAST(:name AS text))"
            ),
            {"name": "g7"},
        ).scalar()
        assert "ix_users_groups" in json.dumps(found)
        assert len(groups.all_members("g7")) == 10
