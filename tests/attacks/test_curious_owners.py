"""The owner of a group wants to know who has an account, and which groups there are, beyond it.

It ends at the same answer, with the same statements, for what is there and for what is not. To add
somebody is the one way to find out, and it is in the audit trail (`tests/endpoints/admin`).
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest
from flask import Flask

from sso.audit import Actor
from sso.config import picture_files
from sso.endpoints.routes import ROUTES
from sso.extensions import db
from sso.flow.permissions import Permission
from sso.models import Group, User
from sso.services import accounts, group_editing, group_owners, pictures
from sso.store import named_groups, users
from sso.web.routing import ADMIN as BLUEPRINT
from tests.conftest import Clock, Statements
from tests.endpoints.test_pictures import photo
from tests.support.actors import BASE, ORIGIN
from tests.support.administration import ADMIN, ADMINS, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.factories import make_user

OLGA = Actor("olga")
# Also error IDs, and the page's own URL, encoded for the choice of the language.
CHANGING = re.compile(
    r'name="csrf_token"[^>]*>|[0-9a-z]{4}-[0-9a-z]{4}(?=</code>)|value="L2Fw[^"]*"'
)
HEADERS = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}
Count = Callable[[], AbstractContextManager[Statements]]


class Subject(NamedTuple):
    """A person or a group, with what the owner could have guessed about it."""

    id: UUID
    email: str
    name: str


class Request(NamedTuple):
    method: str
    path: str
    values: dict[str, str]


def subject_of(thing: User | Group) -> Subject:
    return Subject(thing.id, thing.email if isinstance(thing, User) else thing.name, thing.name)


NOBODY = Subject(uuid4(), "nobody@example.com", "Erin Else")
NOTHING = Subject(uuid4(), "nothing", "nothing")


@pytest.fixture
def team(app: Flask) -> UUID:
    """A group with a member."""
    make_user(app, "dana@example.com", name="Dana Demo", groups=["team"])
    with app.app_context():
        group = named_groups.find_by_name("team")
        assert group
        return group.id


@pytest.fixture
def owner(app: Flask, clock: Clock, team: UUID) -> StaffBrowser:
    browser = sign_in_staff(app, "lead@example.com", "")
    with app.app_context():
        lead = users.find_by_email("lead@example.com")
        assert lead
        group_owners.change(OLGA, team, added=[lead.id])
        db.session.commit()
    return browser


OUTSIDERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "of another group": {"groups": ["other"]},
    "helpdesk": {"groups": [HELPDESK]},
    "administrator": {"groups": [ADMINS]},
    "disabled": {"disabled": True},
    "without a password": {"password": None, "is_invited": True},
    "with a picture": {},
    "owner of another group": {"groups": ["other"]},
}


def outsider(app: Flask, kind: str) -> Subject:
    user = make_user(app, "erin@example.com", name=NOBODY.name, **OUTSIDERS[kind])
    with app.app_context():
        if kind == "with a picture":
            pictures.change(OLGA, user.id, picture_files.read(photo()))
        if kind.startswith("owner"):
            group = named_groups.find_by_name("other")
            assert group
            group_owners.change(OLGA, group.id, added=[user.id])
        db.session.commit()
        return subject_of(users.find(user.id) or user)


def requests(subject: Subject, team: UUID, *, everywhere: bool) -> Iterator[Request]:
    """Yield requests about the subject, and about it in the group: to the pages that owners reach,
    or to all of administration, which sends them away.
    """
    words = dict.fromkeys(
        ("q", "who", "email", "name", "actor", "text", "person", "item", "group", "state"),
        subject.email,
    )
    known = {**words, "user": str(subject.id), "do": "remove", "kind": "csv", "after": subject.name}
    for route in ROUTES:
        path, is_open = route.path.format(base=BASE), Permission.OWN_GROUPS in route.needs
        if is_open or (everywhere and route.blueprint == BLUEPRINT):
            yield Request("GET", path, {**known, "id": str(subject.id)})
        if is_open:
            inside = {**known, "id": str(team), "email": "", "name": ""}
            yield Request("GET", path, inside)
            yield Request("POST", path, inside)
            yield Request("POST", path, {**known, "id": str(subject.id), "name": ""})
    yield Request("GET", f"{BASE}/picture/{subject.id}", {})
    # A form that is refused, before anybody is added.
    for name, email in (("", subject.email), ("a\nb", subject.email), ("x" * 300, subject.email)):
        yield Request(
            "POST", f"{BASE}/admin/group", {"id": str(team), "email": email, "name": name}
        )


def answers(
    browser: StaffBrowser,
    subject: Subject,
    team: UUID,
    statements: Count,
    *,
    everywhere: bool = False,
) -> dict[str, object]:
    """Return status, page and statements of the answer to each request."""
    browser.open(f"{ADMIN}/group?id={team}")
    token = browser.page.fields["csrf_token"]
    heard: dict[str, object] = {}
    for number, (method, path, values) in enumerate(requests(subject, team, everywhere=everywhere)):
        with statements() as executed:
            answer = browser.http.open(
                path,
                method=method,
                base_url=ORIGIN,
                query_string=values,
                data={**values, "csrf_token": token} if method == "POST" else None,
                headers=HEADERS if method == "POST" else {},
            )
        text = CHANGING.sub("", f"{answer.status_code} {answer.location} {answer.text}")
        for index, secret in enumerate((str(subject.id), subject.email, subject.name)):
            text = text.replace(secret, f"<{index}>").replace(secret.replace("@", "%40"), "<1>")
        heard[f"{number} {method} {path.replace(str(subject.id), '')}"] = (text, list(executed))
    return heard


def differences(one: dict[str, object], other: dict[str, object]) -> list[str]:
    assert one.keys() == other.keys()
    return [request for request in one if one[request] != other[request]]


@pytest.mark.parametrize("kind", OUTSIDERS)
def test_people_outside_are_no_different_from_nobody(
    app: Flask, owner: StaffBrowser, team: UUID, statements: Count, kind: str
) -> None:
    erin, everywhere = outsider(app, kind), kind == "with a picture"
    answers(owner, NOBODY, team, statements)  # fills caches
    there, nowhere = (
        answers(owner, who, team, statements, everywhere=everywhere) for who in (erin, NOBODY)
    )
    assert differences(there, nowhere) == []
    assert not everywhere or len(there) > 80


def test_other_groups_are_no_different_from_none(
    app: Flask, owner: StaffBrowser, team: UUID, statements: Count
) -> None:
    with app.app_context():
        group = subject_of(group_editing.create(OLGA, "secret"))
        db.session.commit()
    answers(owner, NOTHING, team, statements)
    there, nowhere = (answers(owner, what, team, statements) for what in (group, NOTHING))
    assert differences(there, nowhere) == []


def test_a_member_is_different(
    app: Flask, owner: StaffBrowser, team: UUID, statements: Count
) -> None:
    """So the comparison sees a difference where there is one."""
    with app.app_context():
        dana = users.find_by_email("dana@example.com")
        assert dana
        member = subject_of(dana)
    answers(owner, NOBODY, team, statements)
    there, nowhere = (answers(owner, who, team, statements) for who in (member, NOBODY))
    paths = {request.split()[2] for request in differences(there, nowhere)}
    assert f"{BASE}/admin/group/remove" in paths


def test_adding_somebody_is_answered_alike_and_recorded(
    app: Flask, owner: StaffBrowser, team: UUID
) -> None:
    erin = outsider(app, "plain")
    pages = []
    for who in (erin, NOBODY):
        owner.open(f"{ADMIN}/group?id={team}")
        page = owner.send(email=who.email, name=NOBODY.name)
        with app.app_context():
            user = users.find_by_email(who.email)
            assert user
            text = page.html.replace(str(user.id), "").replace(who.email, "")
            pages.append((page.status, page.url, CHANGING.sub("", text)))
            group_owners.remove_member(OLGA, team, user.id)
            db.session.commit()
            accounts.delete(OLGA, user)
            db.session.commit()
    assert pages[0] == pages[1]
