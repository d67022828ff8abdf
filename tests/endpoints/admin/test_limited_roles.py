"""Pages of administration for those whose permissions hold only for some groups and their members.

HR of Paris attacks: nothing about people and groups outside may be seen or changed.
"""

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from sso import clock
from sso.audit import Actor
from sso.extensions import db
from sso.flow import moments
from sso.flow.permissions import LIMITABLE, Permission
from sso.models import User
from sso.services import accounts, group_editing
from sso.store import named_groups, users
from tests.conftest import Clock
from tests.endpoints.admin.test_access import queries
from tests.endpoints.admin.test_permissions import LINKS, PAGES, admitted, answers  # noqa: F401  # fixture
from tests.endpoints.test_pictures import photo
from tests.support.actors import BASE, Page
from tests.support.administration import (
    ADMIN,
    ADMINS,
    HELPDESK,
    StaffBrowser,
    sign_in_staff,
    staff_of,
)
from tests.support.factories import make_user

pytestmark = pytest.mark.slow
MARK = "Outsider"  # in the names of everything outside
CSRF = re.compile(r'name="csrf_token"[^>]*>')


@pytest.fixture(autouse=True)
def settings(app: Flask, clock: Clock) -> Iterator[None]:
    before = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(
        before,
        admin_roles="hr=people-write groups, all-hr=people-write, readers=people-read, "
        "teams=groups, support=people-support",
        admin_role_groups="hr=paris, hr=lyon, readers=paris, teams=paris, support=paris",
    )
    yield
    app.extensions["sso.settings"] = before


@pytest.fixture
def hr(app: Flask) -> StaffBrowser:
    return sign_in_staff(app, "hr@staff.example", "hr")


def groups_of(app: Flask, user: User) -> list[str]:
    with app.app_context():
        current = users.find(user.id)
        assert current
        return current.groups


def walk(browser: StaffBrowser, about: Mapping[str, Any]) -> dict[str, str]:
    """Ask for every page; return the text of each answer, by method and page.

    A redirect counts with its address.
    """
    return {
        f"{method} {route.name}": f"{answer.text} {answer.headers.get('Location')}"
        for route, method, answer in answers(browser, about)
    }


def test_nothing_outside_is_seen(
    app: Flask,
    hr: StaffBrowser,
    admitted: list[str],  # noqa: F811  # the fixture
) -> None:
    about = queries(app, MARK)
    make_user(app, "paula@example.com", name="Paula", groups=["paris"])
    texts = walk(hr, about)
    assert set(admitted) == {route.name for route in PAGES if LIMITABLE.intersection(route.limited)}
    ids = {str(about[f"{BASE}/admin/{what}"]["id"]) for what in ("person", "group")}
    for page, text in texts.items():
        for secret in (MARK, "dana@example.com", *ids):
            assert secret not in text, page
    assert "paula@example.com" in texts["GET people"]


def test_each_permission_with_a_limit_opens_its_pages(
    app: Flask,
    admitted: list[str],  # noqa: F811  # the fixture
) -> None:
    """And they link to no page that does not open."""
    limited = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(limited, admin_role_groups=None)
    about = queries(app, "paris")  # whose group has an owner
    app.extensions["sso.settings"] = limited
    for group, held in (
        ("readers", {Permission.READ_PEOPLE}),
        ("support", {Permission.READ_PEOPLE, Permission.SUPPORT_PEOPLE}),
        ("teams", {Permission.GROUPS}),
        ("hr", {Permission.READ_PEOPLE, Permission.WRITE_PEOPLE, Permission.GROUPS}),
    ):
        browser = sign_in_staff(app, f"{group}@staff.example", group)
        admitted.clear()
        texts = walk(browser, about)
        names = {route.name for route in PAGES if held.intersection(route.limited)}
        assert set(admitted) == names, group
        allowed = {route.path.format(base=BASE) for route in PAGES if route.name in names}
        links = {link for text in texts.values() for link in LINKS.findall(text)}
        assert links <= allowed, group


@pytest.mark.parametrize(
    "query",
    [
        "q=dana", "q=Out", "q=utside&anywhere=1", "group=secret", "group=paris&q=dana",
        "state=disabled", "state=unverified", "sort=name", "q=dana&state=disabled",
        "group=secret&state=disabled", "q=dana@example.com", "q=Dana&group=secret",
    ],
)  # fmt: skip
def test_no_search_finds_others(app: Flask, hr: StaffBrowser, query: str) -> None:
    """Neither on the page, nor by its totals, nor in the export."""
    more: dict[str, Any] = {"groups": ["secret"], "disabled": True, "email_verified": False}
    make_user(app, "dana@example.com", name="Outsider", **more)
    for url in (f"{ADMIN}/people?{query}", f"{ADMIN}/people/export?kind=csv&{query}"):
        page = hr.open(url)
        assert page.status == 200
        assert "dana@example.com</a>" not in page.html
        assert "Outsider" not in page.html
    administrator = sign_in_staff(app)
    html = administrator.open(f"{ADMIN}/people?{query.replace('paris', 'secret')}").html
    assert "dana@example.com" in html


@pytest.mark.parametrize("query", ["q=pau", "q=Pau", "q=aul&anywhere=1", "group=paris", ""])
def test_searches_find_members(app: Flask, hr: StaffBrowser, query: str) -> None:
    make_user(app, "paula@example.com", name="Paula", groups=["paris", "plain"])
    for url in (f"{ADMIN}/people?{query}", f"{ADMIN}/people/export?kind=csv&{query}"):
        assert "paula@example.com" in hr.open(url).html


def test_an_id_leads_to_nobody_outside(app: Flask, hr: StaffBrowser) -> None:
    """The answer is that for an ID that nobody has."""
    dana, paula = make_user(app), make_user(app, "paula@example.com", groups=["lyon"])
    nobody = "6b1c4c3e-0000-4000-8000-000000000000"
    pages = [hr.open(f"{ADMIN}/people?q={id_}") for id_ in (dana.id, nobody)]
    assert [page.status for page in pages] == [200, 200]
    texts = [CSRF.sub("", page.html) for page in pages]
    assert texts[0].replace(str(dana.id), nobody) == texts[1]
    assert hr.open(f"{ADMIN}/people?q={paula.id}").html.count("paula@example.com")


def test_sessions_are_those_of_members(app: Flask, hr: StaffBrowser) -> None:
    for email, names in (("dana@example.com", ["secret"]), ("paula@example.com", ["paris"])):
        make_user(app, email, groups=names)
        StaffBrowser(app).sign_in(email)
    with app.app_context():
        dana = users.find_by_email("dana@example.com")
        assert dana
    for query in "", "q=dana@example.com", f"q={dana.id}", "sort=oldest":
        for url in f"{ADMIN}/sessions?{query}", f"{ADMIN}/sessions/export?{query}":
            text = hr.open(url).html.replace('value="dana@example.com"', "")
            assert "dana@example.com" not in text.replace("q=dana@example.com", ""), url
    assert "paula@example.com" in hr.open(f"{ADMIN}/sessions").html
    everyone = sign_in_staff(app).open(f"{ADMIN}/sessions").html
    session_id = re.findall(r'value="([0-9a-f-]{36})" aria-label="[^"]*dana@', everyone)
    assert session_id
    hr.open(f"{ADMIN}/sessions")
    fields = {**hr.page.fields, "do": "end", "is_confirmed": "1", "item": session_id}
    assert "Choose at least one session." in hr.open(hr.page.url, "POST", data=fields).html
    assert (
        "dana@example.com" in sign_in_staff(app, "eve@example.com").open(f"{ADMIN}/sessions").html
    )


def several(browser: StaffBrowser, task: str, user: User, group: str) -> Page:
    browser.open(f"{ADMIN}/people")
    fields = {**browser.page.fields, "do": task, "group": group, "is_confirmed": "1"}
    return browser.open(browser.page.url, "POST", data={**fields, "person": str(user.id)})


@pytest.mark.parametrize("task", ["disable", "enable", "sign-out", "invite", "add", "remove"])
def test_several_at_once(app: Flask, hr: StaffBrowser, task: str) -> None:
    """Those outside are not there; nor are groups outside for those inside."""
    dana = make_user(app, groups=["secret"])
    paula = make_user(app, "paula@example.com", groups=["paris", "secret"])
    with app.app_context():
        group_editing.create(Actor("olga"), "lyon")
        db.session.commit()
    assert "Choose at least one person." in several(hr, task, dana, "paris").html
    assert groups_of(app, dana) == ["secret"]
    if task in ("add", "remove"):
        for name in "secret", "no such group":
            page = several(hr, task, paula, name)
            assert "There is no group with this name." in page.html
        assert groups_of(app, paula) == ["paris", "secret"]
        page = several(hr, task, paula, "lyon" if task == "add" else "paris")
        assert page.status == 200
        after = ["paris", "secret", "lyon"] if task == "add" else ["secret"]
        assert groups_of(app, paula) == after


@pytest.mark.parametrize(
    ("disabled_by", "visitor", "is_shown"),
    [
        ("hr", "hr", True),
        ("ends", "hr", True),
        ("all-hr", "hr", False),
        (ADMINS, "hr", False),
        ("all-hr", "all-hr", True),
        ("hr", "all-hr", True),
        ("all-hr", ADMINS, True),
    ],
)
def test_the_button_that_enables(
    app: Flask, clock: Clock, disabled_by: str, visitor: str, is_shown: bool
) -> None:
    """It is left out where the service refuses; the form, if it is sent, says so."""
    dana = make_user(app, groups=["paris"])
    browser = sign_in_staff(app, "visitor@staff.example", visitor)
    with app.app_context():
        if disabled_by == "ends":
            end = clock.time + timedelta(seconds=1)
            accounts.update(Actor("olga"), dana.id, ends_at=moments.text_of(end))
        else:
            accounts.disable(staff_of(app, disabled_by), users.find(dana.id) or dana)
        db.session.commit()
    clock.move(seconds=2)
    page = browser.open(f"{ADMIN}/person?id={dana.id}")
    assert ("do=enable" in page.html) is is_shown
    assert ("do=delete" in page.html) is is_shown
    browser.open(f"{ADMIN}/person/edit?id={dana.id}")
    page = browser.send(email="new@example.com")
    assert ("to change its email" in page.html) is not is_shown
    browser.open(f"{ADMIN}/person/act?id={dana.id}&do=enable")
    page = browser.send()
    assert ("Somebody with more permissions than you" in page.html) is not is_shown
    with app.app_context():
        assert (users.find(dana.id) or dana).is_disabled is not is_shown


def test_a_person_whom_others_disabled_is_not_deleted(app: Flask, hr: StaffBrowser) -> None:
    dana = make_user(app, groups=["paris"])
    with app.app_context():
        accounts.disable(staff_of(app, "all-hr"), users.find(dana.id) or dana)
        db.session.commit()
    hr.open(f"{ADMIN}/person/act?id={dana.id}&do=delete")
    assert "Ask an administrator to delete it" in hr.send().html
    with app.app_context():
        assert users.find(dana.id)


def test_the_list_says_whom_the_role_cannot_enable(app: Flask, hr: StaffBrowser) -> None:
    """Their rows are not chosen and say why; without them, the others are enabled."""
    people = {
        name: make_user(app, f"{name}@example.com", name=name.title(), groups=["paris"])
        for name in ("held", "own", "active")
    }
    by = {"held": staff_of(app, "all-hr"), "own": staff_of(app, "hr", "lyon")}
    with app.app_context():
        for name, actor in by.items():
            accounts.disable(actor, users.find(people[name].id) or people[name])
        db.session.commit()
    hr.open(f"{ADMIN}/people")
    ids = [str(user.id) for user in people.values()]
    chosen = {**hr.page.fields, "do": "enable", "person": ids}
    page = hr.open(hr.page.url, "POST", data=chosen)
    rows = dict(re.findall(r'value="([^"]+)"( checked| disabled|)>', page.html))
    states = {name: rows[str(user.id)] for name, user in people.items()}
    assert states == {"held": " disabled", "own": " checked", "active": ""}
    assert page.html.count("Somebody with more permissions than you have disabled this.") == 1
    assert "People whom this applies to: 1" in page.html
    hr.send(person=str(people["own"].id))
    with app.app_context():
        left = {name: (users.find(user.id) or user).is_disabled for name, user in people.items()}
    assert left == {"held": True, "own": False, "active": False}
    # A form that names them anyway is refused as a whole.
    page = hr.open(hr.page.url, "POST", data={**chosen, "is_confirmed": "1"})
    assert page.status == 403
    assert page.html.count("Somebody with more permissions than you have disabled this.") == 1


def test_a_group_page(app: Flask, hr: StaffBrowser) -> None:
    """Members are added by email; somebody outside is no different from nobody."""
    make_user(app)
    paula = make_user(app, "paula@example.com", groups=["paris"])
    with app.app_context():
        lyon = group_editing.create(Actor("olga"), "lyon")
        db.session.commit()
        url = f"{ADMIN}/group?id={lyon.id}"
    page = hr.open(url)
    assert "Rename" not in page.html
    assert "Owners" not in page.html
    answers = []
    for email in "dana@example.com", "zara@example.com":
        hr.open(url)
        answers.append(hr.send(email=email).html.replace(email, "X"))
    assert CSRF.sub("", answers[0]) == CSRF.sub("", answers[1])
    assert "There is no person with the email address" in answers[0]
    hr.open(url)
    assert "They are in the group now." in hr.send(email="paula@example.com").html
    assert groups_of(app, paula) == ["paris", "lyon"]
    html = hr.open(f"{ADMIN}/groups").html
    assert ">lyon<" in html
    assert "New group" not in html


def test_new_people_name_a_group(app: Flask, hr: StaffBrowser) -> None:
    for what in "person/invite", "person/new":
        page = hr.open(f"{ADMIN}/{what}")
        assert "At least one of your groups: lyon, paris" in page.html
        email = f"{what[-3:]}@example.com"
        fields = {"email": email, "name": "New", "password": "another password 1"}
        assert hr.send(**fields).status == 403
        hr.open(f"{ADMIN}/{what}")
        assert hr.send(**fields, groups="secret").status == 403
        hr.open(f"{ADMIN}/{what}")
        assert hr.send(**fields, groups="paris").status == 200
        with app.app_context():
            user = users.find_by_email(email)
            assert user
            assert user.groups == ["paris"]
            assert named_groups.find_by_name("secret") is None


def test_the_helpdesk_writes_about_the_members_alone(app: Flask) -> None:
    """What a page offers about a person is what holds for this one."""
    dana, paula = make_user(app), make_user(app, "paula@example.com", groups=["paris"])
    browser = sign_in_staff(app, "both@staff.example", HELPDESK)
    with app.app_context():
        user = users.find_by_email("both@staff.example")
        assert user
        user.groups = [HELPDESK, "hr"]
        db.session.commit()
    for person, may_write in ((dana, False), (paula, True)):
        html = browser.open(f"{ADMIN}/person?id={person.id}").html
        assert "End all sessions" in html
        for offered in "/admin/person/edit?", "do=disable", "do=delete":
            assert (offered in html) is may_write, offered
        for page in f"person/edit?id={person.id}", f"person/act?id={person.id}&do=delete":
            assert browser.open(f"{ADMIN}/{page}").status == (200 if may_write else 404)


@pytest.mark.parametrize("group", ["hr", "support"])
def test_pictures_of_the_members(app: Flask, group: str) -> None:
    paula, dana = make_user(app, "paula@example.com", groups=["paris"]), make_user(app)
    browser = sign_in_staff(app, f"{group}@staff.example", group)
    form = browser.open(f"{ADMIN}/person/picture?id={paula.id}").fields
    data = {"csrf_token": form["csrf_token"]}
    for person, status in ((paula, 200), (dana, 404)):
        picture = {"picture": (io.BytesIO(photo()), "x.png")}
        page = browser.open(
            f"{ADMIN}/person/picture?id={person.id}",
            "POST",
            data={**data, **picture},
            content_type="multipart/form-data",
        )
        assert page.status == status
    with app.app_context():
        claims = [db.session.get_one(User, person.id).claims for person in (paula, dana)]
    assert ["picture" in each for each in claims] == [True, False]


def test_an_ended_membership_opens_nothing(app: Flask, hr: StaffBrowser) -> None:
    """Also while the worker has not removed it from the row."""
    paula = make_user(app, "paula@example.com", name="Paula", groups=["paris"])
    StaffBrowser(app).sign_in("paula@example.com")
    pages = (
        "people", "people?group=paris", "people?q=paula", "people/export?kind=csv", "sessions",
        "sessions/export", f"person?id={paula.id}",
    )  # fmt: skip
    for page in pages:
        assert "paula@example.com" in hr.open(f"{ADMIN}/{page}").html, page
    with app.app_context():
        user = users.find(paula.id)
        assert user
        user.set_group_ends({"paris": (clock.now() - timedelta(seconds=1)).isoformat()})
        db.session.commit()
    for page in pages:
        html = hr.open(f"{ADMIN}/{page}").html
        assert "paula@example.com" not in html.replace('value="paula"', ""), page


def test_the_role_ends_with_the_setting(
    app: Flask,
    hr: StaffBrowser,
    admitted: list[str],  # noqa: F811  # the fixture
) -> None:
    """Without the role, the next request opens nothing; administrators have no limits."""
    paula = make_user(app, "paula@example.com", groups=["paris"])
    assert hr.open(f"{ADMIN}/person?id={paula.id}").status == 200
    with app.app_context():
        user = users.find_by_email("hr@staff.example")
        assert user
        user.groups = ["hr", ADMINS]
        db.session.commit()
    assert hr.open(f"{ADMIN}/person?id={make_user(app).id}").status == 200
    with app.app_context():
        user = users.find_by_email("hr@staff.example")
        assert user
        user.groups = []
        db.session.commit()
    admitted.clear()
    assert hr.open(f"{ADMIN}/person?id={paula.id}").status == 404
    assert admitted == []
