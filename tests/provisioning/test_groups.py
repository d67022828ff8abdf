"""Groups at a real receiver, with the people who are in them."""

from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import User
from sso.provisioning.receiver import Receiver
from sso.services import accounts, group_editing
from sso.services.changes import ListEdit
from sso.store import named_groups
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
