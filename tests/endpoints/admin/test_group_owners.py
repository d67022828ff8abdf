"""Owners of groups in the browser: their groups and members, and nothing else."""

import re
from uuid import UUID, uuid4

import pytest
from flask import Flask

from sso.audit import Actor
from sso.endpoints.routes import ROUTES
from sso.extensions import db
from sso.flow.permissions import OWNER, ROLES, Permission
from sso.ratelimit import limiting
from sso.services import accounts, group_owners
from sso.store import named_groups, users
from sso.web.routing import ADMIN as BLUEPRINT
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.administration import ADMIN, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.factories import make_api, make_client, make_user
from tests.support.second_factors import code_of

pytestmark = pytest.mark.slow

OLGA = Actor("olga")
LINKS = re.compile(rf'(?:href|action)="({BASE}/admin[^"?]*)')
HEADERS = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}


def group_id(app: Flask, name: str) -> UUID:
    with app.app_context():
        group = named_groups.find_by_name(name)
        assert group
        return group.id


def own(app: Flask, name: str, email: str = "lead@example.com", *, is_over: bool = False) -> None:
    with app.app_context():
        user, group = users.find_by_email(email), named_groups.find_by_name(name)
        assert user
        assert group
        change = {"removed" if is_over else "added": [user.id]}
        group_owners.change(OLGA, group.id, **change)
        db.session.commit()


def groups_of(app: Flask, email: str) -> list[str]:
    with app.app_context():
        user = users.find_by_email(email)
        return user.groups if user else []


@pytest.fixture
def lead(app: Flask, clock: Clock) -> StaffBrowser:
    """The owner of the team, in which Dana is; Erin is in another group."""
    make_user(app, "dana@example.com", name="Dana Demo", groups=["team"])
    make_user(app, "erin@example.com", name="Erin Else", groups=["other"])
    browser = sign_in_staff(app, "lead@example.com", "")
    own(app, "team")
    return browser


def ask(browser: Browser, path: str, method: str = "GET") -> int:
    headers = HEADERS if method == "POST" else {}
    return browser.http.open(path, method=method, base_url=ORIGIN, headers=headers).status_code


def test_an_owner_finds_the_groups_from_the_account(app: Flask, lead: StaffBrowser) -> None:
    page = lead.open(f"{ORIGIN}{BASE}/account")
    assert f'href="{BASE}/admin/groups">Your groups' in page.html
    page = lead.open(f"{ADMIN}/groups")
    assert page.status == 200
    assert ">team<" in page.html
    assert ">other<" not in page.html
    own(app, "team", is_over=True)
    assert "Your groups" not in lead.open(f"{ORIGIN}{BASE}/account").html


def test_an_owner_sees_members_and_nothing_else(app: Flask, lead: StaffBrowser) -> None:
    make_client(app, client_name="Secret wiki", groups=["team"])
    make_api(app, "https://api.example", groups=["team"])
    page = lead.open(f"{ADMIN}/group?id={group_id(app, 'team')}")
    assert page.status == 200
    assert "Dana Demo" in page.html
    for hidden in ("Secret wiki", "api.example", "Erin", "Rename", "Owners", "Delete", "Export"):
        assert hidden not in page.html, hidden
    allowed = {
        route.path.format(base=BASE) for route in ROUTES if Permission.OWN_GROUPS in route.needs
    }
    for url in (page.url, f"{ADMIN}/groups"):
        assert set(LINKS.findall(lead.open(url).html)) <= allowed


def test_an_owner_searches_only_own_groups(app: Flask, lead: StaffBrowser) -> None:
    assert ">other<" not in lead.open(f"{ADMIN}/groups?q=other").html
    assert "No results." in lead.open(f"{ADMIN}/groups?q=other").html
    assert ">team<" in lead.open(f"{ADMIN}/groups?q=TE").html


def test_which_pages_an_owner_opens(app: Flask, lead: StaffBrowser) -> None:
    for route in ROUTES:
        if route.blueprint == BLUEPRINT and Permission.OWN_GROUPS not in route.needs:
            path = route.path.format(base=BASE)
            for method in ("GET", "POST"):
                assert ask(lead, path, method) == 404, (method, path)
    assert ROLES[OWNER] == {Permission.OWN_GROUPS}


@pytest.mark.parametrize("name", ["other", "unknown", "administrators"])
def test_forged_ids(app: Flask, lead: StaffBrowser, name: str) -> None:
    """A group of others looks like one that does not exist."""
    make_user(app, "ada@example.com", groups=["sso-administrators"])
    names = {"other": "other", "administrators": "sso-administrators"}
    id_ = group_id(app, names[name]) if name in names else uuid4()
    for page in ("group", "group/remove", "group/rename", "group/delete", "group/owners"):
        for method in ("GET", "POST"):
            assert ask(lead, f"{BASE}/admin/{page}?id={id_}", method) == 404, (page, method)
    lead.open(f"{ADMIN}/group?id={group_id(app, 'team')}")
    fields = {**lead.page.fields, "email": "lead@example.com", "name": "Lead"}
    assert lead.open(f"{ADMIN}/group?id={id_}", "POST", data=fields).status == 404
    assert groups_of(app, "lead@example.com") == []


def test_the_name_of_a_person_elsewhere_is_not_shown(app: Flask, lead: StaffBrowser) -> None:
    with app.app_context():
        erin = users.find_by_email("erin@example.com")
        assert erin
    for user_id in (erin.id, uuid4()):
        page = lead.open(f"{ADMIN}/group/remove?id={group_id(app, 'team')}&user={user_id}")
        assert page.status == 404
        assert "Erin" not in page.html


def test_an_owner_adds_and_removes_people(app: Flask, lead: StaffBrowser) -> None:
    team = group_id(app, "team")
    for email in ("Erin@example.com", "new@example.com"):
        lead.open(f"{ADMIN}/group?id={team}")
        page = lead.send(email=email, name="New Name")
        assert "The person is in the group now." in page.html
        assert email.lower() in page.html
    assert groups_of(app, "erin@example.com") == ["other", "team"]
    assert groups_of(app, "new@example.com") == ["team"]
    with app.app_context():
        erin = users.find_by_email("erin@example.com")
        assert erin
        assert erin.name == "Erin Else"
    page = lead.open(f"{ADMIN}/group/remove?id={team}&user={erin.id}")
    assert "Erin Else (erin@example.com)" in page.html
    assert "The person is no longer in the group." in lead.send().html
    assert groups_of(app, "erin@example.com") == ["other"]


def test_an_owner_invites_a_bounded_number_of_people(app: Flask, lead: StaffBrowser) -> None:
    team, most = group_id(app, "team"), limiting.OWNER_ADDITION.account
    assert most == 100
    with app.test_request_context():
        for _ in range(most - 1):
            limiting.spend(limiting.OWNER_ADDITION, "lead@example.com")
    for number, status in ((1, 200), (2, 429)):
        lead.open(f"{ADMIN}/group?id={team}")
        assert lead.send(email=f"new{number}@example.com", name="New").status == status
    with app.app_context():
        assert users.find_by_email("new1@example.com")
        assert users.find_by_email("new2@example.com") is None
    assert lead.open(f"{ADMIN}/group?id={team}").status == 200


@pytest.mark.parametrize(
    ("email", "name"),
    [("", "N"), ("no address", "N"), ("x@example.com", ""), ("x" * 300 + "@example.com", "N"),
     ("x@example.com", "N" * 201), ("x@example.com", "a\nb")],
)  # fmt: skip
def test_bad_input(app: Flask, lead: StaffBrowser, email: str, name: str) -> None:
    lead.open(f"{ADMIN}/group?id={group_id(app, 'team')}")
    page = lead.send(email=email, name=name)
    assert page.status == 200
    assert "Nothing was changed" in page.html
    assert groups_of(app, email) == []


@pytest.mark.parametrize("email", ["erin@example.com", "nobody@example.com"])
def test_a_form_without_a_name_does_not_tell_who_exists(
    app: Flask, lead: StaffBrowser, email: str
) -> None:
    lead.open(f"{ADMIN}/group?id={group_id(app, 'team')}")
    page = lead.send(email=email, name="")
    assert "Enter a name on one line." in page.html
    assert "team" not in groups_of(app, email)


def test_a_tab_that_stays_open(app: Flask, lead: StaffBrowser) -> None:
    team = group_id(app, "team")
    lead.open(f"{ADMIN}/group?id={team}")
    own(app, "team", is_over=True)
    assert lead.send(email="erin@example.com", name="Erin").status == 404
    assert groups_of(app, "erin@example.com") == ["other"]
    assert lead.open(f"{ADMIN}/groups").status == 404


def test_a_tab_of_one_of_two_groups(app: Flask, lead: StaffBrowser) -> None:
    """Somebody who owns another group still is let in, but not there."""
    own(app, "other")
    lead.open(f"{ADMIN}/group?id={group_id(app, 'team')}")
    own(app, "team", is_over=True)
    assert lead.send(email="erin@example.com", name="Erin").status == 404
    assert groups_of(app, "erin@example.com") == ["other"]


def test_a_disabled_owner_is_signed_out(app: Flask, lead: StaffBrowser) -> None:
    lead.open(f"{ADMIN}/groups")
    with app.app_context():
        user = users.find_by_email("lead@example.com")
        assert user
        accounts.disable(OLGA, user)
        db.session.commit()
    assert ask(lead, f"{BASE}/admin/groups") == 303  # to sign in
    assert ask(lead, f"{BASE}/admin/groups", "POST") in (303, 404)


def test_a_second_factor_is_needed(app: Flask, lead: StaffBrowser, clock: Clock) -> None:
    clock.move(minutes=14)
    assert lead.open(f"{ADMIN}/groups").path.endswith("/admin/groups")
    clock.move(minutes=2)
    assert lead.open(f"{ADMIN}/groups").path.endswith("/second-factor")
    assert lead.submit(code=code_of(lead.secret)).path.endswith("/admin/groups")


def test_someone_without_a_factor_is_led_to_set_one_up(app: Flask, clock: Clock) -> None:
    make_user(app, "lead@example.com", groups=["team"])
    own(app, "team")
    browser = StaffBrowser(app)
    browser.sign_in("lead@example.com")
    assert browser.open(f"{ADMIN}/groups").path.endswith("/account/factors")


def test_other_sites_send_no_form(app: Flask, lead: StaffBrowser) -> None:
    lead.open(f"{ADMIN}/group?id={group_id(app, 'team')}")
    fields = {**lead.page.fields, "email": "erin@example.com", "name": "Erin"}
    for headers in ({}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        page = lead.open(lead.page.url, "POST", data=fields, headers=headers)
        assert page.status == 404
    assert groups_of(app, "erin@example.com") == ["other"]


def test_members_who_own_nothing_see_no_page(app: Flask, lead: StaffBrowser) -> None:
    browser = sign_in_staff(app, "member@example.com", "team")
    for path in ("groups", f"group?id={group_id(app, 'team')}"):
        for method in ("GET", "POST"):
            assert ask(browser, f"{BASE}/admin/{path}", method) == 404


def test_the_helpdesk_may_own_groups(app: Flask, lead: StaffBrowser) -> None:
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    assert f'href="{BASE}/admin/groups"' not in hal.open(ADMIN).html
    own(app, "other", "hal@example.com")
    assert f'href="{BASE}/admin/groups"' in hal.open(ADMIN).html
    page = hal.open(f"{ADMIN}/groups")
    assert ">other<" in page.html
    assert ">team<" not in page.html
    assert hal.open(f"{ADMIN}/group?id={group_id(app, 'team')}").status == 404
    assert hal.open(f"{ADMIN}/group?id={group_id(app, 'other')}").status == 200
    assert hal.open(f"{ADMIN}/people").status == 200


def test_administrators_choose_the_owners(app: Flask, lead: StaffBrowser) -> None:
    ada, team = sign_in_staff(app), group_id(app, "team")
    page = ada.open(f"{ADMIN}/group?id={team}")
    assert "lead@example.com" in page.html
    ada.open(f"{ADMIN}/group/owners?id={team}")
    page = ada.send(email="dana@example.com\nErin@example.com")
    assert "They own the group now." in page.html
    page = ada.send(email="nobody@example.com")
    assert "There is no person with the email address" in page.html
    with app.app_context():
        owners = {user.email: user.id for user in named_groups.owners(team)}
    assert list(owners) == ["dana@example.com", "erin@example.com", "lead@example.com"]
    path = f"{ADMIN}/group/owner/remove?id={team}&user="
    ada.open(f"{path}{owners['lead@example.com']}")
    assert "The person no longer owns the group." in ada.send().html
    assert lead.open(f"{ADMIN}/groups").status == 404
    assert ada.open(f"{path}{owners['lead@example.com']}").status == 404  # owns it no more
    page = ada.open(f"{ADMIN}/person?id={owners['dana@example.com']}")
    assert re.search(r"Owner of</dt><dd[^>]*>team<", page.html)


def test_a_group_of_the_administration_has_no_owners(app: Flask, lead: StaffBrowser) -> None:
    ada = sign_in_staff(app)
    ada.open(f"{ADMIN}/group/owners?id={group_id(app, 'sso-administrators')}")
    assert "gives rights in the administration" in ada.send(email="lead@example.com").html
