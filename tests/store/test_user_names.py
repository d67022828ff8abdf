"""User names of provisioning clients on SQLite, whatever it knows about its tables."""

import pytest
from flask import Flask
from sqlalchemy import select, text

from sso.extensions import db
from sso.models import User
from sso.store import scim_resources
from tests.support.factories import make_user


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("is_analysed", [False, True])
def test_a_user_name_needs_indexes_only(app: Flask, is_analysed: bool) -> None:
    for number in range(30):
        make_user(app, f"user{number}@example.com")
    with app.app_context():
        if is_analysed:
            db.session.execute(text("ANALYZE"))
            # Hardly anybody has a user name of their own.
            of_names = "UPDATE sqlite_stat1 SET stat = '100000 100000' WHERE idx LIKE '%user_name'"
            of_others = "UPDATE sqlite_stat1 SET stat = '100000 1' WHERE idx LIKE '%users_email'"
            db.session.execute(text(of_names))
            db.session.execute(text(of_others))
            db.session.execute(text("ANALYZE sqlite_schema"))
        statement = select(User).where(scim_resources.has_user_name("user7@example.com")).limit(1)
        compiled = statement.compile(db.engine, compile_kwargs={"literal_binds": True})
        plan = db.session.execute(text(f"EXPLAIN QUERY PLAN {compiled}")).all()
        assert not [row.detail for row in plan if row.detail.startswith("SCAN users")], plan
        user = scim_resources.find_by_user_name("User7@example.com")
        assert user
        assert user.email == "user7@example.com"
        user.user_name = "seven"
        db.session.flush()
        assert scim_resources.find_by_user_name("user7@example.com") is None
        assert scim_resources.find_by_user_name("SEVEN") is user
