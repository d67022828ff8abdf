"""Pages of long lists: opaque cursors, and every row once."""

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select

from sso.extensions import db
from sso.models import User
from sso.store import users
from sso.store.lists import BadCursor, Order

BY_EMAIL = Order((User.email,))
NEWEST = Order((User.created_at, User.id), is_descending=True)
AGED = {"name": "", "claims": {}, "stored_groups": [], "email_verified": False}
SAME_APP = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(st.datetimes(timezones=st.just(UTC)), st.uuids(), st.booleans())
def test_a_cursor_gives_back_its_place(at: datetime, user_id: UUID, backward: bool) -> None:
    row = SimpleNamespace(created_at=at, id=user_id)
    cursor = NEWEST.cursor(row, backward=backward)
    assert NEWEST.read(cursor) == (backward, (at, user_id))


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_cursor_of_text(email: str) -> None:
    assert BY_EMAIL.read(BY_EMAIL.cursor(SimpleNamespace(email=email))) == (False, (email,))


@given(st.one_of(st.text(), st.text("WyIiXSwx0-_=", max_size=60)))
def test_what_nobody_gave_is_refused_or_read(text: str) -> None:
    for order in (BY_EMAIL, NEWEST):
        try:
            _, values = order.read(text)
        except BadCursor:
            continue
        assert len(values) == len(order.columns)


@pytest.mark.parametrize(
    "cursor",
    ["", "!", "W10", "WzBd", "WzAsIlx1ZDgwMCJd", "WzAsIlx1MDAwMCJd", "WzIsImEiXQ", "W" * 9000],
)
def test_bad_cursors(cursor: str) -> None:
    with pytest.raises(BadCursor):
        BY_EMAIL.read(cursor)


@pytest.fixture
def people(app: Flask) -> Iterator[list[dict[str, Any]]]:
    """People, of whom several were created at the same moment."""
    with app.app_context():
        made = [
            {**AGED, "id": uuid4(), "email": f"{number:02}@example.com",
             "created_at": datetime(2026, 1, 1 + number // 5, tzinfo=UTC)}
            for number in range(23)
        ]  # fmt: skip
        db.session.execute(insert(User), made)
        yield made


@SAME_APP
@given(size=st.integers(1, 30), order=st.sampled_from([BY_EMAIL, NEWEST]))
def test_every_row_once_in_both_directions(
    people: list[dict[str, Any]], size: int, order: Order
) -> None:
    def walk(cursor: str | None, where: str) -> Iterator[list[UUID]]:
        while True:
            found = order.page(select(User), cursor, size)
            yield [one.id for one in found.rows]
            cursor = getattr(found, where)
            if cursor is None:
                return
            last = found
            assert last.rows

    key = (lambda one: one["email"]) if order is BY_EMAIL else None
    wanted = sorted(people, key=key or (lambda one: (one["created_at"], one["id"].hex)))
    ids = [one["id"] for one in (wanted if order is BY_EMAIL else wanted[::-1])]
    forward = list(walk(None, "next"))
    assert [one for page in forward for one in page] == ids
    end = None
    while (page := order.page(select(User), end, size)).next:
        end = page.next
    assert list(walk(end, "previous")) == forward[::-1]


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
def test_names_that_several_have_come_once_in_both_directions(app: Flask) -> None:
    """On PostgreSQL byte by byte, whatever its collation: as in the index of names."""
    names = ["a", "B", "b", "b", "b", "b", "b c", "b-c", "é", "z", "Z", "_", "ß"]
    with app.app_context():
        made = [
            {**AGED, "id": uuid4(), "email": f"{number}@example.com", "name_key": name}
            for number, name in enumerate(names)
        ]
        db.session.execute(insert(User), made)
        expected = sorted((row["name_key"], row["id"]) for row in made)
        people, order = select(User), users.BY_NAME
        for each, in_order in ((order, expected), (order.reversed, expected[::-1])):
            for size in (1, 2, 3, 50):
                page, pages = each.page(people, None, size), []
                pages.append(page)
                while page.next:
                    page = each.page(people, page.next, size)
                    pages.append(page)
                there = [(row.name_key, row.id) for one in pages for row in one.rows]
                assert there == in_order
                back = [page]
                while page.previous:
                    page = each.page(people, page.previous, size)
                    back.insert(0, page)
                assert [(row.name_key, row.id) for one in back for row in one.rows] == in_order


def test_beginnings_come_byte_by_byte(app: Flask) -> None:
    """Whatever the collation of the database; no row is skipped or repeated between pages."""
    names = ["a_b", "a-b", "ab", "a.b", "a'b", "aé", "aß", "a\U0001f600", "az", "a0"]
    emails = [f"{name}@example.com" for name in names]
    with app.app_context():
        db.session.add_all(User(email=email, name="x") for email in emails)
        db.session.flush()
        order, people = users.order_of("a"), users.with_email("a")
        pages = [order.page(people, None, 2)]
        while cursor := pages[-1].next:
            pages.append(order.page(people, cursor, 2))
        forward = [[user.email for user in page.rows] for page in pages]
        assert [email for page in forward for email in page] == sorted(emails, key=str.encode)
        backward = [pages[-1]]
        while cursor := backward[-1].previous:
            backward.append(order.page(people, cursor, 2))
        assert [[user.email for user in page.rows] for page in backward] == forward[::-1]
        assert order.total(people, 100) == len(emails)
