"""The list of all live sessions in administration."""

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import text

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.models import BrowserSession, Grant, User
from sso.store import sessions
from sso.store.lists import PAGE
from tests.conftest import Clock
from tests.endpoints.admin.test_lists import exported, session_ids, walked
from tests.support.actors import Browser
from tests.support.administration import ADMIN, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.events import events
from tests.support.factories import make_client, make_user

pytestmark = pytest.mark.slow

LIST = f"{ADMIN}/sessions"


@pytest.fixture
def ada(app: Flask) -> StaffBrowser:
    return sign_in_staff(app)


def add(app: Flask, user: User, number: int = 0, **values: Any) -> str:
    """A session of a user, which began this many seconds ago."""
    with app.app_context():
        now = clock.now()
        began = now - timedelta(seconds=number)
        usual: dict[str, Any] = {
            "digest": f"{user.id}{number}", "user_id": user.id, "auth_time": began, "amr": "pwd",
            "acr": "1", "address": "192.0.2.1", "created_at": began, "last_seen_at": began,
            "expires_at": now + timedelta(hours=1),
        }  # fmt: skip
        row = BrowserSession(**usual | values)
        db.session.add(row)
        db.session.commit()
        return str(row.id)


def test_the_list_has_the_sessions_of_everyone(app: Flask, ada: StaffBrowser) -> None:
    client = make_client(app, name="Books")
    make_user(app)
    dana = Browser(app)
    dana.authorize(client)
    dana.sign_in()
    dana.allow()
    dana.authorize(client)  # the same application again
    html = ada.open(LIST).html
    assert "Entries: 2" in html
    assert html.count("this browser") == 1
    rows = {row["email"]: row for row in exported(ada, "sessions")}
    assert set(rows) == {"ada@example.com", "dana@example.com"}
    assert rows["dana@example.com"]["applications"] == "1"
    assert rows["ada@example.com"]["applications"] == "0"
    with app.app_context():
        for grant in db.session.scalars(db.select(Grant)):
            grant.ended_at = clock.now()
        db.session.commit()
    rows = {row["email"]: row for row in exported(ada, "sessions")}
    assert rows["dana@example.com"]["applications"] == "0"
    assert any(row["what"] == "sessions as csv" for row in events(app, "exported"))


def test_only_live_sessions_are_listed(app: Flask, ada: StaffBrowser, clock: Clock) -> None:
    clock.stand_still()
    now = clock.now()
    states: dict[str, dict[str, Any]] = {
        "live": {"expires_at": now + timedelta(seconds=1)},
        "expired": {"expires_at": now},
        "ended": {"ended_at": now},
    }
    for name, values in states.items():
        add(app, make_user(app, f"{name}@example.com"), **values)
    emails = {row["email"] for row in exported(ada, "sessions")}
    assert emails == {"ada@example.com", "live@example.com"}


def test_they_are_filtered_by_a_person(app: Flask, ada: StaffBrowser) -> None:
    user_id = make_user(app).id
    for _ in range(2):
        Browser(app).sign_in()
    expected = {
        "q=dana@example.com": 2, "q=%20DANA@example.com": 2, f"q={user_id}": 2, "q=": 3,
        "q=dana@example": 0, "q=nobody@example.com": 0, "q=%00": 3, "q=x": 0, "sort=x": 3,
        f"q={'a' * 5000}": 0, "q=00000000-0000-0000-0000-000000000000": 0, "page=x": 3,
    }  # fmt: skip
    for query, count in expected.items():
        page = ada.open(f"{LIST}?{query}")
        assert page.status == 200
        assert f"Entries: {count}" in page.html, query
        if "page" not in query:
            assert len(exported(ada, "sessions", query)) == count, query


@pytest.mark.parametrize("sort", ["", "oldest"])
def test_each_is_on_one_page_in_its_order(app: Flask, ada: StaffBrowser, sort: str) -> None:
    user = make_user(app)
    ids = [add(app, user, number) for number in range(PAGE + 3)]
    pages = walked(ada, f"{LIST}?q=dana@example.com&sort={sort}")
    assert len(pages) == 2
    html = "".join(pages)
    places = [html.index(f'value="{each}"') for each in ids]
    assert places == sorted(places, reverse=bool(sort))
    assert all(html.count(f'value="{each}"') == 1 for each in ids)
    rows = exported(ada, "sessions", f"q=dana@example.com&sort={sort}")
    moments = [row["signed_in"] for row in rows]
    assert moments == sorted(moments, reverse=not sort)


def test_sessions_of_several_people_are_ended_at_once(app: Flask, ada: StaffBrowser) -> None:
    dana, erin = make_user(app), make_user(app, "erin@example.com")
    for email in (dana.email, dana.email, erin.email):
        Browser(app).sign_in(email)
    first, second = session_ids(app, dana)
    (other,) = session_ids(app, erin)
    ada.open(f"{LIST}?sort=oldest")
    page = ada.send(do="end", item=[first, other, "x"])
    assert "Entries that this applies to: 2" in page.html
    assert "erin@example.com" in page.html
    assert len(session_ids(app, dana)) == 2
    page = ada.send(item=[first, other])
    assert "The sessions were ended." in page.html
    assert "sort=oldest" in page.url
    assert session_ids(app, dana) == [second]
    assert session_ids(app, erin) == []
    ended = events(app, "session_ended")
    assert {(row["sid"], row["reason"], row["operator"]) for row in ended} == {
        (first, "operator", "ada@example.com"), (other, "operator", "ada@example.com")
    }  # fmt: skip
    ada.open(LIST)
    assert "Choose at least one session." in ada.send(do="end", item=[first]).html


def test_the_helpdesk_does_not_see_it(app: Flask) -> None:
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    assert hal.open(LIST).status in (403, 404)
    assert hal.open(f"{LIST}/export").status in (403, 404)
    assert "admin/sessions" not in hal.open(f"{ADMIN}/people").html


def test_sqlite_reads_the_list_in_the_order_of_an_index(app: Flask) -> None:
    with app.app_context():
        if dialects.is_postgresql():
            return  # its plans are in tests/store/test_plans.py
        order = sessions.NEWEST_FIRST
        for columns in (order, order.reversed):
            listed = sessions.live().order_by(
                *(each.desc() if columns.is_descending else each for each in columns.columns)
            )
            compiled = listed.limit(50).compile(db.engine, compile_kwargs={"literal_binds": True})
            plan = str(db.session.execute(text(f"EXPLAIN QUERY PLAN {compiled}")).all())
            assert "ix_browser_sessions_live" in plan, plan
            assert "TEMP B-TREE" not in plan, plan
