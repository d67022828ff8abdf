"""People at a real receiver: created, changed and deactivated, no more often than needed."""

from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import User
from sso.services import accounts, clients, group_editing, provisioning
from sso.services.changes import ListEdit
from sso.store import named_groups
from sso.store import provisioning as stored
from tests.support.factories import make_attribute, make_user
from tests.support.scim_receivers import (
    InMemory,
    change,
    connect,
    in_memory,
    people_of,
    receiver_of,
    work,
)

pytestmark = pytest.mark.slow

DANA = "dana@example.com"


def update(app: Flask, user: User, **fields: Any) -> None:
    with app.app_context():
        accounts.update(audit.SYSTEM, user.id, **fields)
        db.session.commit()


def join(*groups: str) -> ListEdit:
    return ListEdit(added=groups)


def test_the_life_of_an_account(app: Flask, there: InMemory) -> None:
    dana = make_user(app, groups=["staff"], claims={"given_name": "Dana", "locale": "de"})
    make_user(app, "erin@example.com", groups=["guests"])
    client_id = connect(app, there.url)
    assert work(app) == 1
    account = there.users[DANA]
    assert list(there.users) == [DANA]
    assert account["externalId"] == str(dana.id)
    assert account["displayName"] == account["name"]["formatted"] == "Dana Demo"
    assert (account["name"]["givenName"], account["locale"]) == ("Dana", "de")
    assert [email["value"] for email in account["emails"]] == [DANA]
    assert account["active"] is True
    update(app, dana, name="Dana Duck", email="duck@example.com")
    assert work(app) == 1
    changed = there.users["duck@example.com"]
    assert (changed["id"], changed["displayName"]) == (account["id"], "Dana Duck")
    update(app, dana, disabled=True)
    assert work(app) == 1
    assert there.users["duck@example.com"]["active"] is False
    update(app, dana, disabled=False)
    assert work(app) == 1
    assert there.users["duck@example.com"]["active"] is True
    with app.app_context():
        accounts.delete(audit.SYSTEM, db.session.get_one(User, dana.id))
        db.session.commit()
    assert work(app) == 1
    assert there.users["duck@example.com"]["active"] is False
    assert work(app) == 0
    assert receiver_of(app, client_id).failing_since is None


def test_nothing_is_sent_that_is_there_already(app: Flask, there: InMemory) -> None:
    dana = make_user(app, groups=["staff"])
    client_id = connect(app, there.url)
    work(app)
    before = len(there.requests)
    update(app, dana, memberships=join("readers"))  # which the receiver does not get
    assert work(app) == 1
    with app.app_context():
        clients.change(audit.SYSTEM, client_id, {"client_name": "Novels"})
        db.session.commit()
    assert work(app) == 0
    change(app, client_id, scim_delete=True)  # everybody is looked at again
    assert work(app) == 1
    assert len(there.requests) == before


def test_two_changes_are_sent_once_as_the_last_state(app: Flask, there: InMemory) -> None:
    dana = make_user(app, groups=["staff"])
    connect(app, there.url)
    work(app)
    before = len(there.requests)
    update(app, dana, name="First")
    update(app, dana, name="Second")
    work(app)
    assert there.users[DANA]["displayName"] == "Second"
    assert len(there.requests) == before + 1


def test_who_loses_the_group_is_deactivated(app: Flask, there: InMemory) -> None:
    dana = make_user(app, groups=["staff"])
    make_user(app, "erin@example.com", groups=["staff"])
    connect(app, there.url)
    work(app)
    update(app, dana, memberships=ListEdit(removed=("staff",)))
    assert work(app) == 1
    assert {name: row["active"] for name, row in there.users.items()} == {
        DANA: False,
        "erin@example.com": True,
    }
    with app.app_context():
        group = named_groups.find_by_name("staff")
        assert group
        group_editing.change(audit.SYSTEM, group.id, name="crew")
        db.session.commit()
    work(app)
    assert there.users["erin@example.com"]["active"] is True
    with app.app_context():
        group_editing.delete(audit.SYSTEM, group.id)
        db.session.commit()
    work(app)
    assert there.users["erin@example.com"]["active"] is False


@pytest.mark.parametrize("is_disabled", [True, False])
def test_who_loses_access_can_be_deleted(app: Flask, there: InMemory, is_disabled: bool) -> None:
    dana = make_user(app, groups=["staff"])
    client_id = connect(app, there.url, scim_delete=True)
    work(app)
    if is_disabled:
        update(app, dana, disabled=True)
    else:
        with app.app_context():
            accounts.delete(audit.SYSTEM, db.session.get_one(User, dana.id))
            db.session.commit()
    work(app)
    assert there.users == {}
    assert people_of(app, client_id) == {}
    if is_disabled:
        update(app, dana, disabled=False)
        work(app)
        assert there.users[DANA]["active"] is True


def test_other_requirements_of_the_application(app: Flask, there: InMemory) -> None:
    make_user(app, groups=["staff"])
    make_user(app, "erin@example.com", groups=["crew"])
    client_id = connect(app, there.url)
    work(app)
    change(app, client_id, groups=["crew"])
    work(app)
    assert {name: row["active"] for name, row in there.users.items()} == {
        DANA: False,
        "erin@example.com": True,
    }
    change(app, client_id, groups=[], scim_everyone=True)
    work(app)
    assert [row["active"] for row in there.users.values()] == [True, True]


def test_a_person_who_was_never_there(app: Flask, there: InMemory) -> None:
    """Not created to be deactivated."""
    dana = make_user(app, groups=["staff"])
    client_id = connect(app, there.url)
    update(app, dana, disabled=True)
    make_user(app, "erin@example.com")
    work(app)
    assert there.users == {}
    assert people_of(app, client_id) == {}


def test_attributes_of_the_operator(app: Flask, there: InMemory) -> None:
    make_attribute(app, "job")
    make_attribute(app, "floor", "number")
    entries = [
        "title=attribute:job", "name.familyName=constant:Demo", "department=attribute:floor",
        "userType=attribute:missing,job",
    ]  # fmt: skip
    make_attribute(app, "missing")
    dana = make_user(app, groups=["staff"], attributes={"job": "Nurse", "floor": 3})
    connect(app, there.url, scim_attributes=entries)
    work(app)
    enterprise = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
    account = there.users[DANA]
    assert (account["title"], account["userType"]) == ("Nurse", "Nurse")
    assert account["name"]["familyName"] == "Demo"
    assert account[enterprise]["department"] == "3"
    update(app, dana, attributes={"job": None})
    work(app)
    assert "title" not in there.users[DANA]


def test_an_account_of_this_name_is_adopted(app: Flask, there: InMemory) -> None:
    dana = make_user(app, groups=["staff"])
    with in_memory() as other:
        connect(app, there.url)
        work(app)
        account = there.users[DANA]
        # The same receiver, of which nothing is known any more.
        second = connect(app, there.url, name="Second")
        work(app)
        assert list(there.users) == [DANA]
        assert people_of(app, second)[DANA].remote_id == account["id"]
        assert people_of(app, second)[DANA].last_action == "adopted"
        # Another one: nothing of the first is used there.
        change(app, second, scim_url=other.url)
        with app.app_context():
            assert receiver_of(app, second).sealed_token is None
            provisioning.set_token(audit.SYSTEM, second, "a-token")
            db.session.commit()
        work(app)
        assert other.users[DANA]["externalId"] == str(dana.id)


def test_an_account_that_is_gone_there_is_created_again(app: Flask, there: InMemory) -> None:
    dana = make_user(app, groups=["staff"])
    client_id = connect(app, there.url)
    work(app)
    first = there.users[DANA]["id"]
    there.storage.__init__()  # type: ignore[misc]  # the receiver forgets all
    update(app, dana, name="Dana Duck")
    work(app)
    assert there.users[DANA]["id"] != first
    assert people_of(app, client_id)[DANA].remote_id == there.users[DANA]["id"]
    there.storage.__init__()  # type: ignore[misc]
    update(app, dana, disabled=True)
    work(app)
    assert there.users == {}


def test_a_disabled_application_waits(app: Flask, there: InMemory) -> None:
    dana = make_user(app, groups=["staff"])
    client_id = connect(app, there.url)
    work(app)
    change(app, client_id, disabled=True)
    update(app, dana, name="Dana Duck")
    assert work(app) == 0
    change(app, client_id, disabled=False)
    assert work(app) == 1
    assert there.users[DANA]["displayName"] == "Dana Duck"


def test_without_a_receiver_nothing_is_noted(app: Flask, there: InMemory) -> None:
    dana = make_user(app, groups=["staff"])
    client_id = connect(app, there.url)
    work(app)
    change(app, client_id, scim_url=None)
    update(app, dana, name="Dana Duck")
    with app.app_context():
        assert stored.take_changes() == []
    assert work(app) == 0
    assert there.users[DANA]["displayName"] == "Dana Demo"
