"""Two provisioning clients at once, on every database."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError, Event, Thread
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.scim.backend import Storage
from sso.services import accounts, group_editing
from sso.services.changes import ListEdit
from sso.store import users
from tests.scim.conftest import GROUP, USER, Provisioner, make_token
from tests.support.factories import make_user


@pytest.fixture
def app(app_on_each: Flask) -> Flask:
    return app_on_each


OLGA = audit.Actor("olga")


def at_once(app: Flask, secret: str, *calls: Callable[[Provisioner], Any]) -> list[Any]:
    """What each call gives; all begin together."""
    barrier, results = Barrier(len(calls)), [None] * len(calls)

    def run(number: int) -> None:
        scim = Provisioner(app, secret)
        barrier.wait(10)
        results[number] = calls[number](scim)

    threads = [Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_of_two_patches_with_an_etag_one_is_refused(app: Flask) -> None:
    secret = make_token(app, "scim:write")
    scim = Provisioner(app, secret)
    for number in range(5):
        made = scim.user(userName=f"u{number}@example.com")
        version, path = made["meta"]["version"], f"/Users/{made['id']}"

        def patch(scim: Provisioner, name: str, path: str = path, version: str = version) -> Any:
            rename = {"op": "replace", "path": "displayName", "value": name}
            return scim.patch(path, rename, If_Match=version).status_code

        found = at_once(app, secret, lambda s: patch(s, "One"), lambda s: patch(s, "Two"))
        assert sorted(found) == [200, 412]
        assert scim.get(path)["displayName"] == ("One", "Two")[found.index(200)]


def test_without_an_etag_no_patch_is_lost(app: Flask) -> None:
    secret = make_token(app, "scim:write")
    scim = Provisioner(app, secret)
    path = f"/Users/{scim.user()['id']}"
    values = {"nickName": "N", "title": "T", "locale": "de", "displayName": "D"}
    calls = [
        lambda s, name=name, value=value: (
            s.patch(path, {"op": "add", "path": name, "value": value}).status_code
        )
        for name, value in values.items()
    ]
    assert at_once(app, secret, *calls) == [200] * 4
    found = scim.get(path)
    assert {name: found.get(name) for name in values} == values


def test_one_of_two_equal_users_and_groups_is_made(app: Flask) -> None:
    secret = make_token(app, "scim:write")
    for path, body in (
        ("/Users", {"schemas": [USER], "userName": "erin@example.com"}),
        ("/Groups", {"schemas": [GROUP], "displayName": "staff"}),
    ):
        calls = [lambda s, path=path, body=body: s("POST", path, body).status_code] * 3
        assert sorted(at_once(app, secret, *calls)) == [201, 409, 409]


def test_one_of_two_users_gets_a_user_name(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have found it free; on SQLite the second waits for the first."""
    secret, both, check = make_token(app, "scim:write"), Barrier(2), Storage._check_free
    scim = Provisioner(app, secret)
    paths = [f"/Users/{scim.user(userName=f'u{number}@example.com')['id']}" for number in range(2)]

    def check_and_wait(storage: Storage, *names: Any) -> None:
        check(storage, *names)
        with suppress(BrokenBarrierError):
            both.wait(1)

    def rename(scim: Provisioner, path: str) -> Any:
        return scim.patch(path, {"op": "replace", "path": "userName", "value": "erin@example.com"})

    monkeypatch.setattr(Storage, "_check_free", check_and_wait)
    answers = at_once(app, secret, *(lambda s, path=path: rename(s, path) for path in paths))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    names = [scim.get(path)["userName"].partition("@")[0] for path in paths]
    assert names in (["erin", "u1"], ["u0", "erin"])


def test_members_that_come_at_once_all_come(app: Flask) -> None:
    secret = make_token(app, "scim:write")
    scim = Provisioner(app, secret)
    path = f"/Groups/{scim.group('staff')['id']}"
    people = [str(make_user(app, f"u{number}@example.com").id) for number in range(4)]

    def add(scim: Provisioner, user: str) -> int:
        value = [{"value": user}]
        return scim.patch(path, {"op": "add", "path": "members", "value": value}).status_code

    calls = [lambda s, user=user: add(s, user) for user in people]
    assert at_once(app, secret, *calls) == [204] * 4
    assert {one["value"] for one in scim.get(path)["members"]} == set(people)


def test_a_group_is_replaced_while_a_newcomer_is_changed(app: Flask) -> None:
    """A PUT locks those whom it brings in before the group, as a change of theirs does."""
    secret = make_token(app, "scim:write")
    scim = Provisioner(app, secret)
    dana, is_locked = make_user(app), Event()
    member = [{"value": str(dana.id)}]
    made = scim.group("board")
    body = {"schemas": [GROUP], "displayName": "board", "members": member}
    mixed = [
        {"op": "replace", "path": "displayName", "value": "council"},
        {"op": "add", "path": "members", "value": member},
    ]

    def user_then_group() -> None:
        with app.app_context():
            users.lock_any(dana.id)
            is_locked.set()
            time.sleep(0.5)  # the other thread has got as far as it gets
            accounts.update(OLGA, dana.id, memberships=ListEdit(added=("board", "staff")))
            db.session.commit()

    def out() -> None:
        with app.app_context():
            accounts.update(OLGA, dana.id, memberships=ListEdit(removed=("board", "council")))
            db.session.commit()

    path = f"/Groups/{made['id']}"
    for write in (
        lambda one: one("PUT", path, body).status_code,
        lambda one: one.patch(path, *mixed).status_code,
    ):
        is_locked.clear()
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(user_then_group)
            assert is_locked.wait(10)
            second = pool.submit(write, Provisioner(app, secret))
            first.result(30)
            assert second.result(30) in (200, 204)
        assert [one["value"] for one in scim.get(path)["members"]] == [str(dana.id)]
        out()


def test_a_group_and_a_member_are_changed_at_once(app: Flask) -> None:
    """Each waits for the other one's commit, and neither for what the other one waits for."""
    dana = make_user(app)
    with app.app_context():
        group_id = group_editing.create(OLGA, "board").id
        db.session.commit()
    is_locked = Event()

    def user_then_group() -> list[str]:
        with app.app_context():
            users.lock_any(dana.id)
            is_locked.set()
            time.sleep(0.5)  # the other thread has got as far as it gets
            edit = ListEdit(added=("board", "staff"))
            user, _ = accounts.update(OLGA, dana.id, memberships=edit)
            db.session.commit()
            return user.groups

    def edit_group(**what: Any) -> None:
        assert is_locked.wait(10)
        with app.app_context():
            group_editing.change(OLGA, group_id, **what)
            db.session.commit()

    for what in ({"added": [dana.id]}, {"whole": [dana.id]}, {"name": "council"}):
        is_locked.clear()
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.submit(user_then_group), pool.submit(edit_group, **what)
            second.result(30)
            assert set(first.result(30)) == {"board", "staff"}
    with app.app_context():
        found = users.find(dana.id)
        assert found
        assert set(found.groups) == {"council", "staff"}
