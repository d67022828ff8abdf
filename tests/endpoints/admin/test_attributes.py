"""Attributes are defined in administration, and set by those who may; people set their own."""

from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import User
from sso.services import accounts, attributes
from sso.store import attributes as stored
from sso.store import users
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page
from tests.support.administration import ADMIN, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.factories import make_attribute, make_user

pytestmark = pytest.mark.slow

ACCOUNT = f"{ORIGIN}{BASE}/account"
MARKUP = "<script>alert(1)</script>"


@pytest.fixture
def staff(app: Flask, clock: Clock) -> StaffBrowser:
    return sign_in_staff(app)


@pytest.fixture
def helpdesk(app: Flask, clock: Clock) -> StaffBrowser:
    return sign_in_staff(app, "hal@example.com", HELPDESK)


def definition(app: Flask, name: str) -> dict[str, Any] | None:
    with app.app_context():
        row = stored.find(name)
        return attributes.described(row) if row else None


def values(app: Flask, user: User) -> dict[str, Any]:
    with app.app_context():
        row = users.find(user.id)
        assert row is not None
        return row.attributes


def set_values(app: Flask, user: User, **edits: Any) -> None:
    with app.app_context():
        accounts.update(audit.operator(), user.id, attributes=edits)
        db.session.commit()


def test_an_attribute_is_defined_changed_and_deleted(
    app: Flask, staff: StaffBrowser, user: User
) -> None:
    staff.open(f"{ADMIN}/attribute/new")
    done = staff.send(
        name="plan", title=MARKUP, type="choice", choices="gold\r\nsilver", readers=["person"],
        writers=["helpdesk"],
    )  # fmt: skip
    assert "The attribute was defined." in done.html
    assert MARKUP not in done.html
    assert definition(app, "plan") == {
        "name": "plan", "title": MARKUP, "type": "choice", "choices": ["gold", "silver"],
        "readers": ["person"], "writers": ["helpdesk"], "at_sign_up": "no",
    }  # fmt: skip
    staff.open(f"{ADMIN}/attribute?name=plan")
    changed = staff.send(title="Plan", choices="gold", writers=["helpdesk", "administrator"])
    assert "The changes were saved." in changed.html
    after = definition(app, "plan")
    assert after is not None
    assert (after["title"], after["choices"], after["type"]) == ("Plan", ["gold"], "choice")
    set_values(app, user, plan="gold")
    asked = staff.open(f"{ADMIN}/attribute/delete?name=plan&do=delete")
    assert "Values that are deleted: 1" in asked.html
    assert "The attribute was deleted." in staff.send().html
    assert definition(app, "plan") is None
    assert values(app, user) == {}


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({"name": "Plan", "type": "string"}, "small letters"),
        ({"name": "plan", "type": "choice"}, "to choose from"),
        ({"name": "plan", "type": "string", "choices": "x"}, "only an attribute of the type"),
        ({"name": "level", "type": "string"}, "already an attribute"),
    ],
)
def test_a_definition_that_is_refused(
    app: Flask, staff: StaffBrowser, sent: dict[str, str], reason: str
) -> None:
    make_attribute(app, "level")
    staff.open(f"{ADMIN}/attribute/new")
    page = staff.send(**sent)
    assert page.status == 200
    assert reason in page.html
    assert definition(app, "plan") is None


@pytest.mark.parametrize("name", ["gone", "", "%00", "a%F0%9F%92%A9", "x" * 300])
def test_an_unknown_attribute_is_not_there(staff: StaffBrowser, name: str) -> None:
    for page in ("attribute", "attribute/delete"):
        assert staff.open(f"{ADMIN}/{page}?name={name}&do=delete").status == 404


def test_definitions_are_not_for_the_helpdesk(app: Flask, helpdesk: StaffBrowser) -> None:
    make_attribute(app, "level")
    for page in ("attributes", "attribute/new", "attribute?name=level"):
        assert helpdesk.open(f"{ADMIN}/{page}").status == 404
    assert helpdesk.open(f"{ADMIN}/attribute/delete?name=level", "POST").status == 404


@pytest.fixture
def defined(app: Flask) -> None:
    make_attribute(app, "level", "number", title="Level", writers=["administrator", "person"])
    make_attribute(app, "tags", "list")
    make_attribute(app, "ok", "boolean", writers=["helpdesk"], readers=["person"])
    make_attribute(app, "since", "date", readers=["helpdesk"])
    make_attribute(app, "plan", "choice", choices=["gold", "silver"], writers=["person"])
    make_attribute(app, "note", writers=["helpdesk"], title=MARKUP)


@pytest.mark.usefixtures("defined")
def test_an_administrator_sets_values(app: Flask, staff: StaffBrowser, user: User) -> None:
    set_values(app, user, ok=False, note=MARKUP, level=1)
    page = staff.open(f"{ADMIN}/person?id={user.id}")
    assert "Edit attributes" in page.html
    assert MARKUP not in page.html
    form = staff.open(f"{ADMIN}/person/attributes?id={user.id}")
    assert "attribute_note" not in form.html
    done = staff.send(
        attribute_level="2.5", attribute_tags="a\r\n\r\nb, c\r\n", attribute_since="2030-01-31"
    )
    assert "The changes were saved." in done.html
    assert values(app, user) == {
        "ok": False, "note": MARKUP, "level": 2.5, "tags": ["a", "b, c"], "since": "2030-01-31",
    }  # fmt: skip
    html = staff.open(f"{ADMIN}/person?id={user.id}").html
    assert html.count("set by an administrator") == 3
    assert html.count("set at the command line") == 2  # ok and note, as they were
    staff.open(f"{ADMIN}/person/attributes?id={user.id}")
    staff.send(attribute_level="", attribute_tags="")
    assert values(app, user).keys() == {"ok", "note", "since"}


@pytest.mark.usefixtures("defined")
@pytest.mark.parametrize(
    "sent",
    [
        {"attribute_level": "much"},
        {"attribute_level": "9" * 400},
        {"attribute_tags": "x" * 29_000},
        {"attribute_tags": "x\n" * 20_000},
        {"attribute_since": "2030-02-30"},
    ],
    ids=lambda sent: str(sent)[:40],
)
def test_a_wrong_value_is_marked(
    app: Flask, staff: StaffBrowser, user: User, sent: dict[str, str]
) -> None:
    staff.open(f"{ADMIN}/person/attributes?id={user.id}")
    page = staff.send(**sent)
    assert page.status == 200
    assert 'aria-invalid="true"' in page.html or sent["attribute_tags"].startswith("x\n")
    assert values(app, user) in ({}, {"tags": ["x"]})


@pytest.mark.usefixtures("defined")
def test_nobody_sets_what_the_form_lacks(
    app: Flask, staff: StaffBrowser, helpdesk: StaffBrowser, user: User
) -> None:
    for browser in (staff, helpdesk):
        browser.open(f"{ADMIN}/person/attributes?id={user.id}")
        browser.send(attribute_plan="gold", attribute_nope="x")
    assert values(app, user) == {}


@pytest.mark.usefixtures("defined")
def test_what_others_changed_meanwhile_is_shown(
    app: Flask, staff: StaffBrowser, user: User
) -> None:
    staff.open(f"{ADMIN}/person/attributes?id={user.id}")
    set_values(app, user, level=7)
    page = staff.send(attribute_level="8", attribute_tags="x")
    assert page.status == 409
    assert values(app, user) == {"level": 7}
    assert "The changes were saved." in staff.send().html
    assert values(app, user) == {"level": 8, "tags": ["x"]}


@pytest.mark.usefixtures("defined")
def test_the_helpdesk_reads_and_sets_its_own(
    app: Flask, helpdesk: StaffBrowser, user: User
) -> None:
    set_values(app, user, level=77123, since="2030-01-31", tags=["hidden-tag"])
    page = helpdesk.open(f"{ADMIN}/person?id={user.id}")
    assert "2030-01-31" in page.html
    assert "77123" not in page.html
    assert "hidden-tag" not in page.html
    form = helpdesk.open(f"{ADMIN}/person/attributes?id={user.id}")
    assert "attribute_level" not in form.html
    helpdesk.send(attribute_ok="true", attribute_note="called", attribute_level="1")
    assert values(app, user)["ok"] is True
    assert values(app, user)["level"] == 77123
    boss = make_user(app, "boss@example.com", groups=["sso-administrators"])
    url = f"{ADMIN}/person/attributes?id={boss.id}"
    assert helpdesk.open(url).status == 403
    assert helpdesk.open(url, "POST", data={"attribute_ok": "true"}).status == 403


def act(browser: Browser, **sent: str) -> Page:
    browser.open(ACCOUNT)
    return browser.submit(action="change_attributes", **sent)


@pytest.mark.usefixtures("defined")
def test_people_set_their_own(app: Flask, browser: Browser, user: User) -> None:
    set_values(app, user, ok=False, tags=["hidden-tag"], since="2030-01-31")
    browser.sign_in()
    page = browser.open(ACCOUNT)
    assert "<bdi>no</bdi>" in page.html
    assert "hidden-tag" not in page.html
    assert "2030-01-31" not in page.html
    done = act(browser, attribute_level="3", attribute_plan="gold", attribute_tags="x")
    assert "Your details were changed." in done.html
    assert values(app, user) == {
        "ok": False, "tags": ["hidden-tag"], "since": "2030-01-31", "level": 3, "plan": "gold",
    }  # fmt: skip
    refused = act(browser, attribute_level="much", attribute_plan="gold")
    assert "is no number" in refused.html
    assert values(app, user)["level"] == 3
    act(browser, attribute_level="", attribute_plan="gold")
    assert "level" not in values(app, user)
    # Another form of the page leaves the fields as they are.
    other = browser.submit(action="change_name", name="")
    assert '<option value="gold" selected>' in other.html


@pytest.mark.usefixtures("defined")
def test_a_form_of_another_site_changes_nothing(app: Flask, browser: Browser, user: User) -> None:
    browser.sign_in()
    data = {"action": "change_attributes", "attribute_level": "3"}
    browser.open(ACCOUNT, "POST", data=data)
    assert values(app, user) == {}
