"""Groups with members: what renaming and deleting one does to users and clients."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import select

from sso import audit
from sso.errors import NotAllowed
from sso.extensions import db
from sso.models import Client, Grant, Group, User
from sso.services import accounts, clients, group_editing
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store import apis, groups, named_groups
from tests.support.actors import Browser
from tests.support.events import events
from tests.support.factories import make_api, make_client, make_user

OLGA = audit.Actor("olga")


def group(name: str) -> Group:
    found = named_groups.find_by_name(name)
    assert found is not None
    db.session.refresh(found)
    return found


def test_a_group_outlives_its_last_member(app: Flask) -> None:
    dana = make_user(app, groups=["staff"])
    with app.app_context():
        before = group("staff").version
        accounts.update(OLGA, dana.id, memberships=ListEdit(removed=("staff",)))
        db.session.commit()
        assert group("staff").version == before + 1
        assert groups.all_members("staff") == []


def test_each_change_of_members_is_a_new_version(app: Flask) -> None:
    """Otherwise somebody who read the group before would undo it without a warning (If-Match)."""
    ids = [make_user(app, f"{name}@example.com").id for name in "de"]
    cases: list[tuple[dict[str, Any], bool]] = [
        ({"added": ids[:1]}, True),
        ({"added": ids[:1]}, False),  # is there already
        ({"removed": ids[1:]}, False),
        ({"whole": ids}, True),
        ({"whole": ids[1:]}, True),
        ({"removed": ids[1:]}, True),
    ]
    with app.app_context():
        made = group_editing.create(OLGA, "staff")
        for change, is_new in cases:
            before = group("staff").version
            group_editing.change(OLGA, made.id, **change)
            db.session.commit()
            assert (group("staff").version > before) is is_new, change


def test_renamed_for_members_and_clients(app: Flask) -> None:
    dana, erin = (make_user(app, f"{name}@example.com", groups=[name, "staff"]) for name in "de")
    books = make_client(app, groups=["staff", "other"])
    with app.app_context():
        versions = {one.id: one.version for one in groups.users([dana.id, erin.id])}
        found = group("staff")
        group_editing.change(OLGA, found.id, name="Büro Nord")
        db.session.commit()
        client = db.session.get(Client, books.client_id)
        assert client is not None
        assert client.groups == ["other", "Büro Nord"]
        for one in groups.users([dana.id, erin.id]):
            assert one.groups[-1] == "Büro Nord"
            assert "staff" not in one.groups
            assert one.version == versions[one.id] + 1
        assert named_groups.find_by_name("staff") is None
    (event,) = events(app, "group_changed")
    assert event["changes"]["name"] == {"before": "staff", "after": "Büro Nord"}
    assert len(events(app, "user_changed")) == 2


def test_renamed_for_apis(app: Flask) -> None:
    make_user(app, groups=["staff"])
    identifier = make_api(app, groups=["staff", "other"])
    client = make_client(app, apis=[identifier])
    with app.app_context():
        row = db.session.get(Client, client.client_id)
        assert row is not None
        before = row.updated_at
        group_editing.change(OLGA, group("staff").id, name="Büro Nord")
        db.session.commit()
        api = apis.find(identifier)
        assert api is not None
        assert api.groups == ["other", "Büro Nord"]
        db.session.refresh(row)
        assert row.updated_at > before  # so that its requests read the API again
    assert [event["what"] for event in events(app, "api_changed")] == ["groups"]


def test_renamed_everywhere_at_once(app: Flask) -> None:
    """For several clients and APIs, in their groups and in their roles."""
    make_user(app, groups=["staff"])
    needed = {"groups": ["staff", "other"], "roles": ["editor=staff", "reader=other"]}
    identifiers = [make_api(app, f"https://{n}.example", name=n, **needed) for n in ("a", "b")]
    ids = [make_client(app, name=n, **needed).client_id for n in ("c", "d")]
    only_roles = make_client(app, name="e", roles=["editor=staff"]).client_id
    with app.app_context():
        group_editing.change(OLGA, group("staff").id, name="crew")
        db.session.commit()
        for holder in (*map(apis.find, identifiers), *(db.session.get(Client, one) for one in ids)):
            assert holder is not None
            assert holder.groups == ["other", "crew"]
            assert sorted(holder.roles) == ["editor=crew", "reader=other"]
        last = db.session.get(Client, only_roles)
        assert last is not None
        assert (last.groups, last.roles) == ([], ["editor=crew"])


@pytest.mark.parametrize("groups_of_user", [["a"], ["b"], ["c"], ["b", "c"], []])
def test_a_client_that_is_for_other_groups_from_now_on(
    app: Flask, groups_of_user: list[str]
) -> None:
    """Who is in any of them keeps what was granted."""
    make_user(app, groups=groups_of_user)
    client = make_client(app, scope="openid offline_access")
    page = Browser(app).approve(client, scope="openid offline_access")
    refresh_token = client.exchange(page.code).get_json()["refresh_token"]
    with app.app_context():
        clients.change(OLGA, client.client_id, {"groups": ["a", "b"]})
        db.session.commit()
        live = db.session.scalars(select(Grant.ended_at)).one() is None
    assert live is bool({"a", "b"} & {*groups_of_user})
    assert (client.refresh(refresh_token).status_code == 200) is live


def test_another_name_is_refused_if_it_is_taken(app: Flask) -> None:
    make_user(app, groups=["staff", "other"])
    with app.app_context():
        for name, words in (("other", "already a group"), ("a, b", "comma"), (" ", "empty")):
            with pytest.raises(Invalid, match=words):
                group_editing.change(OLGA, group("staff").id, name=name)
            db.session.rollback()
        with pytest.raises(Invalid, match="already a group"):
            group_editing.create(OLGA, "staff")


def test_who_is_in_it_is_replaced(app: Flask) -> None:
    people = [make_user(app, f"{name}@example.com") for name in "abc"]
    with app.app_context():
        made = group_editing.create(OLGA, "staff", members=[one.id for one in people[:2]])
        group_editing.change(OLGA, made.id, whole=[one.id for one in people[1:]])
        db.session.commit()
        found = {one.id for one in groups.all_members("staff")}
        assert found == {one.id for one in people[1:]}
        version = group("staff").version
        group_editing.change(OLGA, made.id, whole=found)
        db.session.commit()
        assert group("staff").version == version  # nothing changed
        with pytest.raises(Invalid, match="there is no user"):
            group_editing.change(OLGA, made.id, added=[uuid4()])


def test_a_client_that_requires_a_deleted_group_lets_nobody_in(app: Flask) -> None:
    dana = make_user(app, groups=["staff"])
    books = make_client(app, groups=["staff"])
    with app.app_context():
        group_editing.delete(OLGA, group("staff").id)
        db.session.commit()
        client, user = db.session.get(Client, books.client_id), db.session.get(User, dana.id)
        assert client is not None
        assert user is not None
        assert user.groups == []
        assert not client.admits(user.groups)


def test_no_other_group_goes_with_one(app: Flask) -> None:
    dana = make_user(app, groups=["staff", "board"])
    with app.app_context():
        before = group("board").version
        group_editing.delete(OLGA, group("staff").id)
        db.session.commit()
        assert group("board").version == before
        assert named_groups.find_by_name("staff") is None
        assert groups.all_members("staff") == []
        assert [one.id for one in groups.all_members("board")] == [dana.id]
        with pytest.raises(LookupError):
            group_editing.delete(OLGA, uuid4())


def test_a_group_that_a_client_requires_is_there(app: Flask) -> None:
    books = make_client(app, groups=["staff"])
    with app.app_context():
        assert group("staff").version == 1
        clients.change(OLGA, books.client_id, {"groups": ["other"]})
        db.session.commit()
        assert named_groups.names() == {"staff", "other"}


def test_a_token_without_the_scope_names_no_group_after_the_staff(app: Flask) -> None:
    """Whoever is put into it later would administer."""
    token = audit.Actor("API token", changes_staff=False)
    with app.app_context():
        empty = group_editing.create(OLGA, "empty")
        db.session.commit()
        for name in ("sso-administrators", "sso-helpdesk"):
            with pytest.raises(NotAllowed):
                group_editing.change(token, empty.id, name=name)
            db.session.rollback()
            with pytest.raises(NotAllowed):
                group_editing.create(token, name)
            db.session.rollback()
            staff = group_editing.create(OLGA, name)
            for act in (
                lambda staff=staff: group_editing.delete(token, staff.id),
                lambda staff=staff: group_editing.change(token, staff.id, name="else"),
                lambda staff=staff: group_editing.change(
                    token, staff.id, provisioned={"external_id": "7"}
                ),
            ):
                with pytest.raises(NotAllowed):
                    act()
            db.session.commit()
        group_editing.change(token, empty.id, name="staff")
        assert group("staff").id == empty.id


def test_in_how_many_groups_a_member_may_be(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_editing, "MOST_GROUPS", 3)
    few = make_user(app, "few@example.com", groups=["a", "b"])
    full = make_user(app, "full@example.com", groups=["a", "b", "c"])
    with app.app_context():
        staff = group_editing.create(OLGA, "staff", members=[few.id])
        with pytest.raises(Invalid, match="in 3 groups already"):
            group_editing.change(OLGA, staff.id, added=[full.id])
        # Whoever is in it already joins nothing.
        group_editing.change(OLGA, group("c").id, added=[full.id])
        group_editing.change(OLGA, group("c").id, removed=[full.id])
        group_editing.change(OLGA, staff.id, added=[full.id])
        assert len(groups.all_members("staff")) == 2


def test_how_many_members_are_added_at_once(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_editing, "MOST_MEMBERS", 2)
    ids = [make_user(app, f"{name}@example.com").id for name in "abc"]
    with app.app_context():
        with pytest.raises(Invalid, match="more than 2 members"):
            group_editing.create(OLGA, "crew", members=ids)
        staff = group_editing.create(OLGA, "staff", members=ids[:2])
        group_editing.change(OLGA, staff.id, added=ids[2:])
        assert len(groups.all_members("staff")) == 3
        group_editing.change(OLGA, staff.id, removed=ids)
        assert groups.all_members("staff") == []


LEAVING: dict[str, Callable[[User, Group], Any]] = {
    "the person": lambda user, staff: accounts.update(
        OLGA, user.id, memberships=ListEdit(removed=("staff",))
    ),
    "the person, who joins another": lambda user, staff: accounts.update(
        OLGA, user.id, memberships=ListEdit(added=("other",), removed=("staff",))
    ),
    "the group": lambda user, staff: group_editing.change(OLGA, staff.id, removed=[user.id]),
    "the group as a whole": lambda user, staff: group_editing.change(OLGA, staff.id, whole=[]),
    "the group at its end": lambda user, staff: group_editing.delete(OLGA, staff.id),
}


@pytest.mark.parametrize("how", LEAVING)
def test_who_leaves_the_group_of_a_client_loses_it(app: Flask, browser: Browser, how: str) -> None:
    """Whichever side is edited; the other clients, and the other members, keep what they have."""
    dana = make_user(app, groups=["staff"])
    make_user(app, "erin@example.com", groups=["staff"])
    books, wiki = make_client(app, groups=["staff"]), make_client(app)
    erin = Browser(app)
    erin.sign_in("erin@example.com")
    for each in (browser, erin):
        for client in (books, wiki):
            each.approve(client)
    with app.app_context():
        LEAVING[how](dana, group("staff"))
        db.session.flush()
        rows = db.session.execute(
            select(Grant.user_id, Grant.client_id).where(Grant.ended_at.is_not(None))
        ).all()
        ended = {(user_id == dana.id, client_id == books.client_id) for user_id, client_id in rows}
        everybody = "whole" in how or "end" in how
        assert ended == ({(True, True), (False, True)} if everybody else {(True, True)})
