"""The list of people: totals, pages, order, columns, export, and acting on several at once."""

import csv
import io
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import update

from sso.audit import operator
from sso.extensions import db
from sso.models import Passkey, RecoveryCode, TotpSecret, User
from sso.services import group_editing
from sso.store import factors, users
from sso.store.lists import PAGE
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.administration import ADMIN, ADMINS, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.factories import make_user

SECOND = timedelta(seconds=1)


@pytest.fixture
def ada(app: Flask) -> StaffBrowser:
    return sign_in_staff(app)


def emails(html: str) -> list[str]:
    return re.findall(r'<a href="[^"]*/admin/person\?id=[^"]*">([^<]*)</a></span></th>', html)


def make_active(app: Flask, email: str, moment: datetime | None) -> None:
    id = make_user(app, email, password=None).id
    with app.app_context():
        db.session.execute(update(User).where(User.id == id).values(last_active_at=moment))
        db.session.commit()


def user(app: Flask, email: str) -> User:
    with app.app_context():
        user = users.find_by_email(email)
        assert user
        return user


def test_totals_and_page_numbers(app: Flask, ada: StaffBrowser) -> None:
    for number in range(2 * PAGE):
        make_user(app, f"user{number:03}@example.com", password=None)
    first = ada.open(f"{ADMIN}/people").html
    assert f"Entries: {2 * PAGE + 1}" in first
    assert "page 1 of 3" in first
    link = re.search(r'rel="next" href="([^"]*)"', first)
    assert link
    second = ada.open(ORIGIN + link[1].replace("&amp;", "&")).html
    assert "page 2 of 3" in second
    assert not set(emails(first)) & set(emails(second))
    for strange in ("n=x", "n=-1", "n=99999999999", "n=\u0663"):
        assert ada.open(f"{ADMIN}/people?page=bad&{strange}").status == 200


def test_order_and_columns_stay_in_the_url(app: Flask, ada: StaffBrowser) -> None:
    make_user(app, "a@example.com", name="Zoe")
    make_user(app, "z@example.com", name="Aaron")
    assert emails(ada.open(f"{ADMIN}/people?sort=name").html)[0] == "z@example.com"
    assert emails(ada.open(f"{ADMIN}/people").html)[0] == "a@example.com"
    html = ada.open(f"{ADMIN}/people?column=id&column=created").html
    heads = re.findall(r'<th scope="col">([^<]*)</th>', html)
    assert heads == ["Email", "Created", "ID"]
    assert ada.open(f"{ADMIN}/people?sort=password_hash&column=password_hash").status == 200


def test_who_was_active_and_who_was_not(app: Flask, clock: Clock, ada: StaffBrowser) -> None:
    clock.stand_still()
    active, inactive = timedelta(days=30), timedelta(days=90)
    ages = {
        "recent": timedelta(0), "just": active, "not": active + SECOND,
        "not-yet": inactive, "old": inactive + SECOND, "older": inactive * 2, "never": None,
    }  # fmt: skip
    for name, age in ages.items():
        make_active(app, f"{name}@example.com", clock.time - age if age is not None else None)
    html = ada.open(f"{ADMIN}/people?state=active&column=active").html
    assert emails(html) == ["recent@example.com", "ada@example.com", "just@example.com"]
    assert "Last active" in html
    html = ada.open(f"{ADMIN}/people?state=inactive").html
    assert emails(html) == ["older@example.com", "old@example.com"]
    assert emails(ada.open(f"{ADMIN}/people?state=inactive&q=older").html) == ["older@example.com"]
    assert "never" in ada.open(f"{ADMIN}/people?q=never&column=active").html
    overview = ada.open(ADMIN).html
    assert re.search(r"<strong>3</strong><span>Active in 30 days", overview)
    lines = rows(ada.open(f"{ADMIN}/people/export?kind=csv&state=inactive").html)
    assert [line["email"] for line in lines] == ["older@example.com", "old@example.com"]
    assert lines[0]["last_active"] == f"{clock.time - inactive * 2:%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize("few", [2000, 0])
def test_who_has_a_second_factor(
    app: Flask, ada: StaffBrowser, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Each once, however many they are; recovery codes alone are none."""
    monkeypatch.setattr(factors, "_FEW", few)
    ids = {name: make_user(app, f"{name}@example.com").id for name in ("app", "key", "code", "no")}
    with app.app_context():
        for number, name in enumerate(("key", "app", "key")):
            db.session.add(Passkey(
                user_id=ids[name], credential_id=str(number), public_key="x", name="Key",
            ))  # fmt: skip
        db.session.add(TotpSecret(user_id=ids["app"], sealed_secret="x", last_step=1))
        db.session.add(RecoveryCode(user_id=ids["code"], digest="x"))
        db.session.commit()
    link = re.search(r'href="([^"]*)"><strong>3</strong><span>With a second', ada.open(ADMIN).html)
    assert link
    html = ada.open(ORIGIN + link[1].replace("&amp;", "&")).html
    assert emails(html) == ["ada@example.com", "app@example.com", "key@example.com"]
    assert "Entries: 3" in html
    assert emails(ada.open(f"{ADMIN}/people?state=factor&q=key").html) == ["key@example.com"]


def test_pages_of_active_people(app: Flask, clock: Clock, ada: StaffBrowser) -> None:
    clock.stand_still()
    for number in range(PAGE):  # all at the same moment
        make_active(app, f"user{number:03}@example.com", clock.time)
    first = ada.open(f"{ADMIN}/people?state=active")
    link = re.search(r'rel="next" href="([^"]*)"', first.html)
    assert link
    second = ada.open(ORIGIN + link[1].replace("&amp;", "&"))
    assert len({*emails(first.html), *emails(second.html)}) == PAGE + 1


def test_people_are_exported_as_filtered_and_run_nothing(app: Flask, ada: StaffBrowser) -> None:
    cells = {"=cmd|calc": "a", " =1+1": "b", "+1": "c", "-1": "d", "@x": "e", "\uff1d1+1": "f"}
    for name, letter in cells.items():
        make_user(app, f"{letter}@evil.example", name=name)
    page = ada.open(f"{ADMIN}/people/export?kind=csv&q=a")
    assert page.headers["Content-Disposition"] == "attachment; filename=people.csv"
    assert [row["email"] for row in rows(page.html)] == ["a@evil.example", "ada@example.com"]
    everyone = rows(ada.open(f"{ADMIN}/people/export?kind=csv").html)
    exported = {row["email"][0]: row["name"] for row in everyone if "evil" in row["email"]}
    assert exported == {letter: f"'{name}" for name, letter in cells.items()}
    assert ada.open(f"{ADMIN}/people/export").status == 404
    assert "people as csv" in ada.open(f"{ADMIN}/audit?event=exported").html


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def choose(browser: StaffBrowser, do: str, *chosen: User, **more: str) -> str:
    """Choose people in the list, confirm, and give the page that follows."""
    ids = [str(one.id) for one in chosen]
    browser.open(f"{ADMIN}/people")
    page = browser.send(do=do, person=ids)
    assert page.status == 200, page.html
    return browser.send(person=ids, **more).html


def test_several_are_disabled_at_once(app: Flask, ada: StaffBrowser) -> None:
    first, second = make_user(app, "a@example.com"), make_user(app, "b@example.com")
    html = choose(ada, "disable", first, second)
    assert "The changes were saved for the people that you chose." in html
    assert all(user(app, one.email).disabled_at for one in (first, second))


def test_all_of_them_or_none(app: Flask, ada: StaffBrowser) -> None:
    """The last administrator cannot be disabled, and so nobody else is."""
    first = make_user(app, "a@example.com")
    choose(ada, "disable", first, user(app, "ada@example.com"))
    assert user(app, first.email).disabled_at is None
    assert user(app, "ada@example.com").disabled_at is None


def test_several_join_and_leave_a_group(app: Flask, ada: StaffBrowser) -> None:
    first, second = make_user(app, "a@example.com"), make_user(app, "b@example.com")
    with app.app_context():
        group_editing.create(operator(), "staff")
        db.session.commit()
    assert "There is no group with this name." in choose(ada, "add", first, group="nobody")
    choose(ada, "add", first, second, group="staff")
    assert [user(app, one.email).groups for one in (first, second)] == [["staff"], ["staff"]]
    choose(ada, "remove", first, group="staff")
    assert user(app, first.email).groups == []


def test_nothing_happens_before_it_is_confirmed(app: Flask, ada: StaffBrowser) -> None:
    dana = make_user(app)
    ada.open(f"{ADMIN}/people")
    page = ada.send(do="disable", person=[str(dana.id)])
    assert "This ends" in page.html
    assert user(app, dana.email).disabled_at is None
    ada.open(f"{ADMIN}/people")
    assert "Choose at least one person." in ada.send(do="disable").html
    for bad in ("", "delete", "password", "unknown"):
        ada.open(f"{ADMIN}/people")
        assert "This ends" not in ada.send(do=bad, person=[str(dana.id)]).html
    ada.open(f"{ADMIN}/people")
    assert ada.send(do="disable", person=["x"]).status == 404
    for strangers, is_chosen in ((PAGE - 1, True), (PAGE, False)):  # at most a page of them
        chosen = [*(str(uuid4()) for _ in range(strangers)), str(dana.id)]
        ada.open(f"{ADMIN}/people")
        html = ada.send(do="disable", person=chosen).html
        assert ("This ends" in html and dana.email in html) == is_chosen


def test_the_helpdesk_changes_neither_groups_nor_staff(app: Flask, ada: StaffBrowser) -> None:
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    dana, boss = make_user(app), user(app, "ada@example.com")
    for task in ("add", "remove", "disable", "enable"):
        hal.open(f"{ADMIN}/people")
        page = hal.send(do=task, person=[str(dana.id)], group=ADMINS, is_confirmed="1")
        assert emails(page.html)  # the list again
        assert user(app, dana.email).groups == []
    assert ada.open(f"{ADMIN}/people").status == 200
    signed_in = Browser(app)
    signed_in.sign_in()
    choose(hal, "sign-out", dana, boss)
    assert signed_in.open(f"{ORIGIN}{BASE}/account").path.endswith("/sign-in")  # hers ended
    assert ada.open(f"{ADMIN}/people").status == 200  # her session lives
    assert hal.open(f"{ADMIN}/people/export?kind=csv").status == 404


def test_ends_are_exported_as_an_import_takes_them(
    app: Flask, ada: StaffBrowser, clock: Clock, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {"ends_at": "2099-01-01", "groups": ["club", "staff", "guests"]}
    make_user(
        app, "erin@example.com", **fields,
        group_ends={"club": "2027-01-31T18:00+01:00", "guests": "2026-11-22"},
    )  # fmt: skip
    clock.move(days=1)  # who is no longer a guest
    exported = rows(ada.open(f"{ADMIN}/people/export?kind=csv&q=erin").html)[0]
    assert exported["ends_at"] == "2099-01-01T00:00:00Z"
    assert exported["group_ends"] == "club=2027-01-31T17:00:00Z"
    file = tmp_path / "people.csv"
    with file.open("w", newline="") as output:
        columns = ["email", "groups", "ends_at", "group_ends"]
        writer = csv.DictWriter(output, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerow({**exported, "email": "copy@example.com"})
    run = app.test_cli_runner().invoke(args=["user", "import", "csv", str(file)])
    assert run.exit_code == 0, run.output
    with app.app_context():
        erin, copy = (users.find_by_email(f"{name}@example.com") for name in ("erin", "copy"))
        assert erin
        assert copy
        assert (copy.groups, copy.ends_at) == (["club", "staff"], erin.ends_at)
        assert copy.group_ends == {"club": "2027-01-31T17:00:00Z"}
