"""The members of groups are counted in one statement."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from flask import Flask

from sso import audit
from sso.extensions import db
from sso.services import group_editing
from sso.store import groups
from tests.conftest import Clock, Statements
from tests.support.administration import ADMIN, sign_in_staff
from tests.support.factories import make_user


def test_members_are_counted_up_to_a_bound(app: Flask) -> None:
    for number in range(4):
        make_user(app, f"p{number}@example.com", groups=["all", 'a"b%'] if number < 2 else ["all"])
    with app.app_context():
        group_editing.create(audit.operator(), "nobody")
        db.session.commit()
        names = ["all", 'a"b%', "nobody", "unknown", "a"]
        assert groups.counts(names, 9) == {
            "all": 4, 'a"b%': 2, "nobody": 0, "unknown": 0, "a": 0,
        }  # fmt: skip
        assert groups.counts(["all"], 4) == {"all": 4}
        assert groups.counts(["all"], 3) == {"all": 4}  # more
        assert groups.counts(["all"], 2) == {"all": 3}  # more, and not read to the end
        assert groups.counts([], 9) == {}


def test_a_page_of_groups_takes_as_many_statements_as_one(
    app: Flask,
    clock: Clock,
    statements: Callable[[], AbstractContextManager[Statements]],
) -> None:
    staff = sign_in_staff(app)
    staff.open(f"{ADMIN}/groups")
    with statements() as few:
        staff.open(f"{ADMIN}/groups")
    with app.app_context():
        for number in range(30):
            group_editing.create(audit.operator(), f"group {number}")
        db.session.commit()
    make_user(app, "p@example.com", groups=["group 7"])
    with statements() as many:
        page = staff.open(f"{ADMIN}/groups")
    assert page.html.count(">group ") >= 30
    assert len(many) == len(few)
