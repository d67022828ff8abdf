"""Groups at a real receiver, with the people who are in them."""

from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.jobs import scim_drift
from sso.models import Client, User
from sso.provisioning.receiver import Receiver
from sso.services import accounts, group_editing, provisioning
from sso.services.changes import ListEdit
from sso.store import named_groups
from sso.store import provisioning as stored
from tests.conftest import Clock
from tests.support.factories import make_user
from tests.support.scim_receivers import (
    TOKEN,
    Answer,
    Hostile,
    InMemory,
    Request,
    answer,
    change,
    connect,
    people_of,
    receiver_of,
    work,
)

pytestmark = pytest.mark.slow

DANA, ERIN = "dana@example.com", "erin@example.com"


def update(app: Flask, user: User, **fields: Any) -> None:
    with app.app_context():
        accounts.update(audit.SYSTEM, user.id, **fields)
        db.session.commit()


def rename(app: Flask, old: str, new: str) -> None:
    with app.app_context():
        group = named_groups.find_by_name(old)
        assert group
        group_editing.change(audit.SYSTEM, group.id, name=new)
        db.session.commit()


def work_all(app: Flask) -> None:
    while work(app):
        pass


def test_the_life_of_a_group(app: Flask, there: InMemory) -> None:
    dana = make_user(app, groups=["staff", "writers", "others"])
    erin = make_user(app, ERIN, groups=["staff"])
    client_id = connect(app, there.url, roles=["editor=writers"])
    work_all(app)
    assert there.groups == {}
    change(app, client_id, scim_groups=True)
    work_all(app)
    assert there.groups == {"staff": {DANA, ERIN}, "writers": {DANA}}
    update(app, erin, memberships=ListEdit(added=("writers",)))
    update(app, dana, memberships=ListEdit(removed=("writers",)))
    work_all(app)
    assert there.groups == {"staff": {DANA, ERIN}, "writers": {ERIN}}
    rename(app, "writers", "authors")
    work_all(app)
    assert there.groups == {"staff": {DANA, ERIN}, "authors": {ERIN}}
    update(app, erin, disabled=True)
    work_all(app)
    assert there.groups == {"staff": {DANA}, "authors": set()}
    assert there.users[ERIN]["active"] is False
    before = len(there.requests)
    change(app, client_id, scim_attributes=[])
    change(app, client_id, scim_delete=True)
    work_all(app)
    # Erin, who is deactivated there, is deleted from now on, and nothing else changes.
    assert [line.split()[0] for line in there.requests[before:]] == ["DELETE"]
    change(app, client_id, roles=[])
    work_all(app)
    assert there.groups == {"staff": {DANA}}


def test_a_group_that_is_no_longer_of_the_application(app: Flask, there: InMemory) -> None:
    """It stays there, without the people whom this server added."""
    make_user(app, groups=["staff", "writers"])
    client_id = connect(app, there.url, roles=["editor=writers"], scim_groups=True)
    work_all(app)
    change(app, client_id, roles=[])
    work_all(app)
    assert there.groups == {"staff": {DANA}, "writers": set()}
    change(app, client_id, roles=["editor=writers"])
    work_all(app)
    assert there.groups == {"staff": {DANA}, "writers": {DANA}}


def test_groups_and_members_of_others_stay(app: Flask, there: InMemory) -> None:
    make_user(app, groups=["staff"])
    receiver = Receiver(there.url, TOKEN)
    guest = receiver.create({"userName": "guest", "externalId": "1", "active": True})
    staff = receiver.create_group({"displayName": "staff"})
    other = receiver.create_group({"displayName": "other"})
    assert guest
    assert receiver.add_member(staff, guest)
    assert receiver.add_member(other, guest)
    client_id = connect(app, there.url, scim_groups=True)
    work_all(app)
    assert there.groups == {"staff": {DANA, "guest"}, "other": {"guest"}}
    assert people_of(app, client_id)[DANA].sent_groups == [staff]


def test_a_group_that_is_gone_there_is_created_again(app: Flask, there: InMemory) -> None:
    make_user(app, groups=["staff"])
    client_id = connect(app, there.url, scim_groups=True)
    work_all(app)
    sent = people_of(app, client_id)[DANA].sent_groups
    assert sent
    Receiver(there.url, TOKEN).delete_group(sent[0])
    make_user(app, ERIN, groups=["staff"])
    work_all(app)
    assert there.groups == {"staff": {DANA, ERIN}}


def test_a_receiver_without_groups(app: Flask, clock: Clock) -> None:
    """People are sent nevertheless."""
    make_user(app, groups=["staff"])

    def reply(request: Request) -> Answer:
        if "/Groups" in request.path:
            return answer(404)
        return answer(201, {"id": "7"})

    hostile = Hostile(reply)
    with hostile.listening() as url:
        client_id = connect(app, url, scim_groups=True)
        work(app)
        rows = people_of(app, client_id)
        assert rows[DANA].is_active
        assert rows[DANA].last_fault is None


@pytest.mark.parametrize("found", [{"id": 7}, {"id": ""}, {"id": "x" * 256}, {}])
def test_groups_without_a_usable_id(app: Flask, found: dict[str, Any]) -> None:
    make_user(app, groups=["staff"])
    account = {"displayName": "staff", **found}
    hostile = Hostile(
        lambda request: (
            answer(200, {"totalResults": 1, "Resources": [account]})
            if request.method == "GET"
            else answer(201, {"id": "7"})
        )
    )
    with hostile.listening() as url:
        client_id = connect(app, url, scim_groups=True)
        work(app)
        assert people_of(app, client_id)[DANA].is_active
        assert not [line for line in hostile.lines if line.startswith("PATCH")]


def compared(app: Flask, client_id: str) -> set[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """What differs, which is repaired."""
    with app.app_context():
        receiver = stored.find(client_id)
        assert receiver
        drifts = scim_drift.compare(db.session.get_one(Client, client_id), receiver)
        scim_drift.repair(audit.SYSTEM, client_id, drifts)
        db.session.commit()
    return {(row.name, row.kind, tuple(row.fields), tuple(row.members)) for row in drifts}


def test_differences_of_groups_are_repaired(app: Flask, there: InMemory) -> None:
    make_user(app, groups=["staff", "writers"])
    make_user(app, ERIN, groups=["staff"])
    client_id = connect(app, there.url, roles=["editor=writers"], scim_groups=True)
    work_all(app)
    assert compared(app, client_id) == set()
    receiver = Receiver(there.url, TOKEN)
    ids = {row["displayName"]: row["id"] for row in receiver.every_group()}
    dana, erin = (there.users[name]["id"] for name in (DANA, ERIN))
    guest = receiver.create({"userName": "guest", "externalId": "1", "active": True})
    assert guest
    receiver.remove_member(ids["staff"], dana)
    receiver.add_member(ids["staff"], guest)
    receiver.add_member(ids["writers"], erin)
    receiver.rename_group(ids["writers"], "authors")
    before = len(there.requests)
    assert compared(app, client_id) == {
        ("staff", "different", (), (DANA,)),
        ("writers", "different", ("displayName",), ()),
        ("writers", "added there", (), (ERIN,)),
        ("guest", "unknown here", (), ()),
    }
    assert {line.split()[0] for line in there.requests[before:]} == {"GET"}
    work_all(app)
    assert there.groups == {"staff": {DANA, ERIN, "guest"}, "writers": {DANA, ERIN}}
    assert {row[1] for row in compared(app, client_id)} == {"added there", "unknown here"}
    receiver.delete_group(ids["staff"])
    assert ("staff", "missing", (), ()) in compared(app, client_id)
    work_all(app)
    assert there.groups["staff"] == {DANA, ERIN}


def test_a_repair_forgets_no_membership(app: Flask, there: InMemory) -> None:
    """Who left a group here a moment before a repair is removed from it there."""
    dana = make_user(app, groups=["staff", "writers"])
    client_id = connect(app, there.url, roles=["editor=writers"], scim_groups=True)
    work_all(app)
    update(app, dana, memberships=ListEdit(removed=("writers",)))
    with app.app_context():
        provisioning.repair(audit.SYSTEM, client_id, [dana.id])
        db.session.commit()
    work_all(app)
    assert there.groups == {"staff": {DANA}, "writers": set()}


@pytest.mark.parametrize("status", [500, 503])
def test_groups_that_fail_there(app: Flask, clock: Clock, status: int) -> None:
    """An error of groups alone does not count as one of the whole service."""
    for name in (DANA, ERIN):
        make_user(app, name, groups=["staff"])

    def reply(request: Request) -> Answer:
        if request.method == "GET":
            return answer(200, {"totalResults": 0, "Resources": []})
        if "/Groups" in request.path:
            return answer(201, {"id": "7"}) if request.method == "POST" else answer(status)
        name = request.body.get("userName") if request.body else None
        return answer(201, {"id": name or request.path.rpartition("/")[2]})

    hostile = Hostile(reply)
    with hostile.listening() as url:
        client_id = connect(app, url, scim_groups=True)
        work(app)
        rows = people_of(app, client_id)
        assert [row.is_active for row in rows.values()] == [True, True]
        assert rows[DANA if rows[DANA].last_fault else ERIN].last_fault == (
            f"groups: it answered {status}"
        )
        is_failing = receiver_of(app, client_id).failing_since is not None
        assert is_failing == (status == 503)


@pytest.mark.parametrize("content", [b"x" * 1_100_000, b"[]", b'{"members": 7}', b"nothing"])
def test_members_that_cannot_be_read(app: Flask, content: bytes) -> None:
    """People and other groups are compared nevertheless."""
    make_user(app, groups=["staff"])
    lists = {
        "Users": {"totalResults": 1, "Resources": [{"id": "1", "userName": DANA}]},
        "Groups": {"totalResults": 1, "Resources": [{"id": "2", "displayName": "staff"}]},
    }

    def reply(request: Request) -> Answer:
        noun = request.path.partition("?")[0].rpartition("/")[2]
        if request.method == "GET":
            return answer(200, lists.get(noun, content))
        return answer(201, {"id": "1" if noun == "Users" else "2"})

    hostile = Hostile(reply)
    with hostile.listening() as url:
        client_id = connect(app, url, scim_groups=True)
        work_all(app)
        ((name, kind, *_),) = compared(app, client_id)
    assert name == "staff"
    assert kind in ("not compared", "different")
