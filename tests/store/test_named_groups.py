"""What was there before groups had rows of their own."""

import json
from uuid import UUID

from flask import Flask
from sqlalchemy import select, text

from sso.database import dialects
from sso.extensions import db
from sso.models import User
from sso.store import groups, migrations, named_groups, users
from sso.store.groups import NewGroups
from tests.support.factories import make_client, make_user


def test_groups_of_users_and_clients_get_rows(own_tables: Flask) -> None:
    app = own_tables
    dana = make_user(app, groups=["staff", "a \"b\" 'c'"])
    make_client(app, groups=["readers"])
    with app.app_context():
        migrations.downgrade("0014")
        migrations.upgrade()
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


def test_sqlite_finds_members_whoever_writes(own_tables: Flask) -> None:
    """By triggers, which a migration that makes the table of users again would lose."""
    with own_tables.app_context():
        if dialects.is_postgresql():
            return
        kept = select(*groups.MEMBERSHIPS.c)

        def members() -> list[tuple[str, str]]:
            return sorted((row.name, row.email) for row in db.session.execute(kept))

        one, two = UUID(int=1), UUID(int=2)
        db.session.add_all(
            [
                User(id=one, email="a@example.com", name="A", groups=["staff", "staff", 'ä "q"']),
                User(id=two, email="b@example.com", name="B"),
            ]
        )
        db.session.flush()
        assert members() == [("staff", "a@example.com"), ('ä "q"', "a@example.com")]
        groups.replace_groups(
            {
                one: NewGroups(["staff"], {}, {}),
                two: NewGroups(["staff", "board"], {}, {}),
            }
        )
        db.session.execute(text("UPDATE users SET email = 'c@example.com' WHERE name = 'B'"))
        now = [("board", "c@example.com"), ("staff", "a@example.com"), ("staff", "c@example.com")]
        assert members() == now
        db.session.execute(text("UPDATE users SET name = 'C', email = email, groups = groups"))
        assert members() == now
        db.session.commit()
        migrations.downgrade("0021")
        migrations.upgrade()
        assert members() == now
        assert {row.user_id for row in db.session.execute(kept)} == {one, two}
        db.session.execute(text("DELETE FROM users WHERE email = 'a@example.com'"))
        assert members() == [("board", "c@example.com"), ("staff", "c@example.com")]


def test_sqlite_reads_no_table_from_end_to_end(app: Flask) -> None:
    with app.app_context():
        if dialects.is_postgresql():
            return
        listed = users.in_group("staff")[1]
        for found, index in (
            (listed, "SEARCH memberships"),
            (users.in_group("staff", "a")[1], "SEARCH memberships"),
            (listed.order_by(groups.MEMBERSHIPS.c.email).limit(50), "SEARCH memberships"),
            (select(User).where(groups.has_member("staff")), "SEARCH memberships"),
            (users.with_email("a").where(groups.has_member("x", among_few=True)), "SEARCH users"),
            (users.with_name("a").where(groups.has_member("x", among_few=True)), "ix_users_name"),
            (users.containing("a").with_only_columns(User.email), "COVERING INDEX ix_users_search"),
        ):
            compiled = found.compile(db.engine, compile_kwargs={"literal_binds": True})
            plan = str(db.session.execute(text(f"EXPLAIN QUERY PLAN {compiled}")).all())
            assert index in plan, plan
            assert "SCAN users" not in plan.replace("SCAN users USING COVERING INDEX", ""), plan
