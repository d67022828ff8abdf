"""Each page of administration opens with one of the permissions that its route names."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from sso.endpoints.routes import ROUTES
from sso.flow.permissions import ROLES, STAFF, Permission
from sso.store import named_groups, provisioning, users
from sso.web import routing
from sso.web.routing import ADMIN, Route
from tests.conftest import Clock
from tests.endpoints.admin.test_access import queries
from tests.support.actors import BASE, ORIGIN
from tests.support.administration import HELPDESK, StaffBrowser, sign_in_staff
from tests.support.factories import make_user

pytestmark = pytest.mark.slow

PAGES = [route for route in ROUTES if route.blueprint == ADMIN]
LINKS = re.compile(rf'(?:href|action)="({BASE}/admin[^"?]*)')
PEOPLE = (Permission.SUPPORT_PEOPLE, Permission.WRITE_PEOPLE)
HEADERS = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the pages that let somebody in."""
    names: list[str] = []
    admit = routing.admit

    def record(visitor: object) -> None:
        route = routing.current()
        assert route
        names.append(route.name)
        admit(visitor)

    monkeypatch.setattr(routing, "admit", record)
    return names


def answers(
    browser: StaffBrowser, about: Mapping[str, Any]
) -> Iterator[tuple[Route, str, TestResponse]]:
    """Ask for every page with every method that it takes. `about`: the query of each page."""
    for route in PAGES:
        for method in route.methods:
            path = route.path.format(base=BASE)
            headers = HEADERS if method == "POST" else {}
            answer = browser.http.open(
                path, method=method, base_url=ORIGIN, headers=headers, query_string=about.get(path)
            )
            assert answer.status_code < 500, (method, path)
            yield route, method, answer


def walk(browser: StaffBrowser, about: Mapping[str, Any] = {}) -> set[str]:
    """Ask for every page; return the pages that they link to."""
    links: set[str] = set()
    for _, _, answer in answers(browser, about):
        if answer.status_code == 200:
            links.update(LINKS.findall(answer.text))
    return links


def pages_of(held: Iterable[Permission]) -> set[str]:
    return {route.name for route in PAGES if set(held).intersection(route.needs)}


def test_every_page_needs_a_permission() -> None:
    assert all(route.needs for route in PAGES)
    assert not [route for route in ROUTES if route.needs and route.blueprint != ADMIN]
    assert [route.name for route in PAGES if route.needs == STAFF] == ["overview"]


def test_administrators_open_every_page(app: Flask, clock: Clock, admitted: list[str]) -> None:
    walk(sign_in_staff(app))
    assert set(admitted) == {route.name for route in PAGES}


def test_the_helpdesk_opens_its_pages(app: Flask, clock: Clock, admitted: list[str]) -> None:
    walk(sign_in_staff(app, group=HELPDESK))
    assert set(admitted) == pages_of(ROLES["helpdesk"])
    assert set(admitted) == {"overview", "people", "person", "person_act", "invite",
                             "person_attributes", "person_picture"}  # fmt: skip


def test_each_permission_opens_its_pages(
    app: Flask, clock: Clock, admitted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, about = sign_in_staff(app, group=HELPDESK), queries(app, "wiki")
    dead: dict[str, set[str]] = {}
    for permission in Permission:
        admitted.clear()
        # Those who change people also see them.
        held = {permission, Permission.READ_PEOPLE} if permission in PEOPLE else {permission}
        monkeypatch.setitem(ROLES, "helpdesk", frozenset(held))
        links = walk(browser, about)
        assert set(admitted) == pages_of(held), permission
        allowed = {route.path.format(base=BASE) for route in PAGES if route.name in admitted}
        dead[permission] = links - allowed
    assert not any(dead.values()), dead


def test_nobody_else_opens_any(app: Flask, clock: Clock, admitted: list[str]) -> None:
    walk(sign_in_staff(app, group="staff"))
    assert admitted == []


def test_a_role_of_the_operator_in_the_browser(
    app: Flask, clock: Clock, admitted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the setting, and without it in the next request."""
    settings = app.extensions["sso.settings"]
    roles = replace(settings, admin_roles="auditors=audit, teams=groups people-read")
    monkeypatch.setitem(app.extensions, "sso.settings", roles)
    browser = sign_in_staff(app, group="auditors")
    assert f'href="{BASE}/admin"' in browser.open(f"{ORIGIN}{BASE}/account").html
    walk(browser)
    assert set(admitted) == pages_of({Permission.AUDIT})
    admitted.clear()
    walk(sign_in_staff(app, "tina@example.com", "teams"))
    assert set(admitted) == pages_of({Permission.GROUPS, Permission.READ_PEOPLE})
    admitted.clear()
    monkeypatch.setitem(app.extensions, "sso.settings", settings)
    walk(browser)
    assert admitted == []


def test_a_refused_change_of_permissions_says_why(
    app: Flask, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = replace(app.extensions["sso.settings"], admin_roles="teams=groups")
    monkeypatch.setitem(app.extensions, "sso.settings", roles)
    make_user(app, "ada@example.com", groups=["sso-administrators"])
    browser = sign_in_staff(app, "tina@example.com", "teams")
    with app.app_context():
        group = named_groups.find_by_name("sso-administrators")
        assert group
    browser.open(f"{ORIGIN}{BASE}/admin/group?id={group.id}")
    page = browser.send(email="tina@example.com")
    assert page.status == 403
    assert "no more permissions in the administration than you have" in page.html
    with app.app_context():
        tina = users.find_by_email("tina@example.com")
        assert tina
        assert tina.groups == ["teams"]


@pytest.mark.parametrize(
    ("permission", "offered"),
    [
        ("people-read", []),
        ("people-support", ["sign-out", "invite"]),
        ("people-write", ["disable", "enable", "sign-out", "invite"]),
        ("people-read groups", ["add", "remove"]),
        ("people-write groups", ["disable", "enable", "sign-out", "invite", "add", "remove"]),
    ],
)
def test_what_is_offered_for_several_people(
    app: Flask, clock: Clock, monkeypatch: pytest.MonkeyPatch, permission: str, offered: list[str]
) -> None:
    """No more than what the services allow, and nothing with those who have more permissions."""
    settings = replace(app.extensions["sso.settings"], admin_roles=f"hr={permission}")
    monkeypatch.setitem(app.extensions, "sso.settings", settings)
    dana = make_user(app, "dana@example.com", groups=["team"])
    ada = make_user(app, "ada@example.com", groups=["sso-administrators"])
    browser = sign_in_staff(app, "hr@example.com", "hr")
    page = browser.open(f"{ORIGIN}{BASE}/admin/people")
    select = page.html.partition('id="do"')[2].partition("</select>")[0]
    assert re.findall(r'<option value="([^"]+)"', select) == offered
    for task in ("disable", "add", "sign-out"):
        for user in (dana, ada):
            browser.open(f"{ORIGIN}{BASE}/admin/people")
            fields = {**browser.page.fields, "do": task, "group": "team", "is_confirmed": "1"}
            fields |= {"person": str(user.id), "item": str(user.id)}
            done = browser.open(browser.page.url, "POST", data=fields)
            assert done.status in (200, 403)
            if task not in offered:
                assert "The changes were saved" not in done.html, (task, user.email)
    with app.app_context():
        now = users.find(ada.id)
        assert now
        assert (now.disabled_at, now.groups) == (None, ["sso-administrators"])


@pytest.mark.parametrize(
    ("permission", "may_see"), [("applications", False), ("applications people-read", True)]
)
def test_who_sees_the_people_of_an_application(
    app: Flask, clock: Clock, monkeypatch: pytest.MonkeyPatch, permission: str, may_see: bool
) -> None:
    about = queries(app, "Xaver")
    roles = replace(app.extensions["sso.settings"], admin_roles=f"wiki={permission}")
    monkeypatch.setitem(app.extensions, "sso.settings", roles)
    browser = sign_in_staff(app, "wim@example.com", "wiki")
    client_id = about[f"{BASE}/admin/application"]["id"]
    with app.app_context():
        (sent,) = provisioning.newest(client_id, 1)
    page = browser.open(f"{ORIGIN}{BASE}/admin/application/provisioning?id={client_id}")
    assert page.status == 200
    listed = page.html.partition("<main")[2].partition("<table")[2]
    assert ("Xaver" in listed) is may_see
    assert ("you also need the permission people-read" in page.html) is not may_see
    retry = f"{ORIGIN}{BASE}/admin/application/provisioning/retry?id={sent.id}"
    assert browser.open(retry).status == (200 if may_see else 404)


@pytest.mark.parametrize(
    ("permission", "text"),
    [
        ("groups", "For this you need the permission"),
        ("people-write", "There is no person"),
    ],
)
def test_a_refusal_names_the_permission(
    app: Flask, clock: Clock, monkeypatch: pytest.MonkeyPatch, permission: str, text: str
) -> None:
    """Somebody with groups alone sends a field that the form does not show."""
    roles = replace(app.extensions["sso.settings"], admin_roles=f"hr={permission} groups")
    monkeypatch.setitem(app.extensions, "sso.settings", roles)
    dana = make_user(app, groups=["team"])
    browser = sign_in_staff(app, "hr@example.com", "hr")
    with app.app_context():
        group = named_groups.find_by_name("team")
        assert group
    browser.open(f"{ORIGIN}{BASE}/admin/group?id={group.id}")
    email = dana.email if permission == "groups" else "nobody@example.com"
    page = browser.send(email=email, ends_at="2099-01-01T00:00")
    assert text in page.html
    assert ("people-write" in page.html) is (permission == "groups")
    assert "Only administrators can do this" not in page.html
