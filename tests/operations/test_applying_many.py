"""`flask apply` with thousands of people: few statements, and nobody waits for the database."""

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import NullPool, create_engine, select, text, update
from sqlalchemy.exc import IntegrityError

from sso import clock
from sso.cli import apply as applying
from sso.crypto import passwords
from sso.extensions import db
from sso.models import AuditEvent, Group, Identity, Mail, User
from sso.services.checks import Invalid
from sso.store import password_hashes, users
from tests.support.actors import Browser
from tests.support.factories import PASSWORD, make_client, make_user
from tests.support.statements import watched

Apply = Callable[..., Any]
HASH = "$2b$04$......................7TQ9xFGqhMt4mw2mtGz5Mpr5Ft4VLIi"


def person(number: int, **more: Any) -> dict[str, Any]:
    """A person of the file, with a password of another system."""
    usual = {"email": f"person{number}@example.com", "name": f"Person {number}",
             "email_verified": True, "groups": ["staff", f"team {number % 5}"],
             "claims": {"locale": "nl"}, "password_hash": HASH}  # fmt: skip
    return usual | more


@pytest.fixture
def apply(app: Flask, tmp_path: Path) -> Apply:
    """Apply a file with these people; gives what it prints as JSON."""
    return apply_to(app, tmp_path)


def apply_to(app: Flask, tmp_path: Path) -> Apply:
    def run(people: Iterable[dict[str, Any]], *options: str, code: int = 0, **more: Any) -> Any:
        path = tmp_path / "sso.json"
        path.write_text(json.dumps({"format": 1, "users": list(people), **more}))
        arguments = ["apply", str(path), "--json", *options]
        done = app.test_cli_runner().invoke(args=arguments)
        assert done.exit_code == code, done.output
        return done.stderr if code else json.loads(done.stdout)["changes"]

    return run


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def statements(app: Flask, work: Callable[[], object]) -> list[str]:
    texts: list[str] = []
    with app.app_context():
        engine = db.engine
    with watched(engine, lambda statement, _: texts.append(statement)):
        work()
    return texts


def write_elsewhere(app: Flask) -> float:
    """Write on a connection that waits for nobody; gives the seconds that it took."""
    with app.app_context():
        engine = create_engine(db.engine.url, poolclass=NullPool)
    began = time.monotonic()
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA busy_timeout = 0")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(text("SET LOCAL lock_timeout = '100ms'"))
        # A row that the file has, too.
        connection.execute(update(User.__table__).values(device_version=1))  # type: ignore[arg-type]
    engine.dispose()
    return time.monotonic() - began


@pytest.mark.parametrize("options", [("--plan",), ()])
def test_statements_do_not_grow_with_the_people(
    app: Flask, apply: Apply, options: tuple[str, ...]
) -> None:
    def of(people: list[dict[str, Any]]) -> int:
        return len(statements(app, lambda: apply(people, *options)))

    few_new, many_new = of([person(n) for n in range(10)]), of([person(n) for n in range(10, 310)])
    apply(person(n) for n in range(310))
    few, many = of([person(n) for n in range(10)]), of([person(n) for n in range(310)])
    renamed = [person(n, name="Else", groups=["else"]) for n in range(310)]
    few_changed, many_changed = of(renamed[:10]), of(renamed[10:])
    assert many_new <= few_new + 2
    assert many == few
    assert many_changed <= few_changed + 2


MANY = 1200  # several batches


@pytest.mark.parametrize("kind", ["new", "same", "other"])
def test_others_write_while_it_compares(
    app: Flask, apply: Apply, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    people = [person(n) for n in range(MANY)]
    if kind != "new":
        apply(people)
    if kind == "other":
        people = [one | {"name": "Else"} for one in people]
    find_work, written = applying.find_work, []

    def and_others_write(*given: Any) -> Any:
        written.append(write_elsewhere(app))
        work = find_work(*given)
        written.append(write_elsewhere(app))
        return work

    monkeypatch.setattr(applying, "find_work", and_others_write)
    plan = apply(people, "--plan")
    assert len(plan) == (0 if kind == "same" else MANY)
    assert len(written) == 2
    assert apply(people) == [] or kind != "same"
    assert len(apply(people)) == 0


def test_it_sees_one_moment(app: Flask, apply: Apply, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who is deleted while it reads is there in all of it."""
    apply([person(1), person(2)])
    declared = users.declared

    def and_somebody_goes(*given: Any) -> Any:
        rows = declared(*given)
        engine = create_engine(app.config["SQLALCHEMY_DATABASE_URI"], poolclass=NullPool)
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM users WHERE email = 'person2@example.com'"))
        engine.dispose()
        assert len(rows) == len(declared(*given)) == 2
        return rows

    monkeypatch.setattr(users, "declared", and_somebody_goes)
    assert apply([person(1), person(2)], "--plan") == []


def between(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor, change: Callable[[], object]
) -> None:
    """Do this between the comparison and the lock."""
    lock = applying.lock_everything

    def change_and_lock(work: applying.Work) -> None:
        pool.submit(change).result(10)
        lock(work)

    monkeypatch.setattr(applying, "lock_everything", change_and_lock)


def in_app(app: Flask, change: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        with app.app_context():
            change()
            db.session.commit()

    return run


def rename(email: str, **values: Any) -> Any:
    return db.session.execute(update(User).where(User.email == email).values(**values))


def test_what_changed_meanwhile_is_compared_again(
    app: Flask, apply: Apply, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    apply(person(n) for n in range(4))

    def change() -> None:
        rename("person1@example.com", name="Else", groups=["board"])
        rename("person2@example.com", name="New")
        rename("person3@example.com", name="Meanwhile")

    between(monkeypatch, pool, in_app(app, change))
    done = apply([*(person(n, name="New") for n in range(3)), person(3)])
    changed = {one["name"]: one["fields"] for one in done}
    assert changed["person1@example.com"]["name"] == {"before": "Else", "after": "New"}
    assert changed["person1@example.com"]["groups"]["before"] == ["board"]
    assert "person2@example.com" not in changed
    with app.app_context():
        names = {user.email[:7]: user.name for user in users.every()}
    assert names == {"person0": "New", "person1": "New", "person2": "New", "person3": "Meanwhile"}


def test_who_signs_up_meanwhile_is_changed(
    app: Flask, apply: Apply, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    between(monkeypatch, pool, lambda: make_user(app, "person1@example.com"))
    done = apply([person(1), person(2)])
    assert [one["action"] for one in done] == ["update", "create"]
    assert done[0]["fields"]["name"]["after"] == "Person 1"
    with app.app_context():
        assert password_hashes.foreign_hash_methods() == {"$bcrypt$r=4"}


def test_who_appears_is_locked_before_it_is_compared(
    app: Flask, apply: Apply, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    """What others give somebody in between would be lost, and nothing of it would end."""
    between(monkeypatch, pool, lambda: make_user(app, "person1@example.com"))
    locked: list[Collection[UUID]] = []
    lock_all = users.lock_all

    def note_and_lock(ids: Collection[UUID]) -> None:
        locked.append(ids)
        lock_all(ids)

    monkeypatch.setattr(users, "lock_all", note_and_lock)
    apply([person(1), person(2)])
    with app.app_context():
        found = users.find_by_email("person1@example.com")
    assert found is not None
    assert [*map(set, locked)] == [{found.id}]


def test_who_appears_after_the_lock_stops_it(
    app_on_each: Flask,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pool: ThreadPoolExecutor,
) -> None:
    """On SQLite nobody appears: another one who writes waits, and finds the person there."""
    apply, lock, appearing = apply_to(app_on_each, tmp_path), applying.lock_everything, []

    def lock_and_appear(work: applying.Work) -> None:
        lock(work)
        appearing.append(pool.submit(make_user, app_on_each, "person1@example.com"))
        wait(appearing, 10 if database == "postgresql" else 0.5)

    monkeypatch.setattr(applying, "lock_everything", lock_and_appear)
    if database == "postgresql":
        assert "at this moment; try again" in apply([person(1), person(2)], code=1)
        expected = ["Dana Demo"]
    else:
        apply([person(1), person(2)])
        with pytest.raises((Invalid, IntegrityError)):
            appearing[0].result(20)
        expected = ["Person 1", "Person 2"]
    with app_on_each.app_context():
        assert [user.name for user in users.every()] == expected


FIRST, SECOND = (f"0198a2f4-1111-4222-8333-44445555666{n}" for n in range(2))


@pytest.mark.parametrize(
    "people",
    [
        [person(1), person(2, id=FIRST)],
        [person(1, groups=[]), person(2, id=FIRST, groups=["y"])],
        [person(3, id=SECOND), person(4, id=SECOND.upper())],
        [person(5, email="a@xn--bcher-kva.example"), person(5, email="a@bücher.example")],
    ],
    ids=["email and id", "groups", "new by id", "new by spelling"],
)
def test_one_user_in_two_entries(app: Flask, apply: Apply, people: list[dict[str, Any]]) -> None:
    """Else what only the first one takes away would not end."""
    apply([person(1, id=FIRST)])
    for options in (("--plan",), ()):
        assert "another entry means the same user" in apply(people, *options, code=1)
    with app.app_context():
        assert [user.email for user in users.every()] == ["person1@example.com"]


def test_a_fault_that_appears_meanwhile_undoes_all(
    app: Flask, apply: Apply, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    apply([person(1, id="0198a2f4-1111-4222-8333-444455556666")])
    between(monkeypatch, pool, lambda: make_user(app, "taken@example.com"))
    people = [person(1, id="0198a2f4-1111-4222-8333-444455556666", email="taken@example.com"),
              person(2)]  # fmt: skip
    assert "there is already a user" in apply(people, code=1)
    with app.app_context():
        assert users.find_by_email("person2@example.com") is None
        assert users.find_by_email("person1@example.com") is not None


def test_who_comes_meanwhile_is_not_pruned(
    app: Flask, apply: Apply, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    apply([person(1), person(2)])
    between(monkeypatch, pool, lambda: make_user(app, "late@example.com"))
    assert "somebody else changed" in apply([person(1)], "--prune", "--yes", code=1)
    with app.app_context():
        assert len(users.every()) == 3


def test_addresses_change_hands_in_the_order_of_the_file(app: Flask, apply: Apply) -> None:
    """One takes the address that another one leaves, and a new user that of the first."""
    first, second = (f"0198a2f4-1111-4222-8333-44445555666{n}" for n in range(2))
    apply([person(1, id=first), person(2, id=second)])
    moved = [
        person(2, id=second, email="third@example.com"),
        person(1, id=first, email="person2@example.com"),
        person(1),
    ]
    assert len(apply(moved, "--plan")) == len(apply(moved)) == 3
    with app.app_context():
        emails = {str(user.id): user.email for user in users.every()}
        kinds = db.session.scalars(select(Mail.kind).order_by(Mail.kind)).all()
    assert emails[first] == "person2@example.com"
    assert emails[second] == "third@example.com"
    assert "person1@example.com" in emails.values()
    assert kinds == ["email_changed", "email_changed"]
    assert apply(moved) == []
    backwards = [person(3, id=first, email="third@example.com"), person(3, id=second)]
    assert "there is already a user" in apply(backwards, code=1)


def test_what_many_changes_entail(app: Flask, apply: Apply) -> None:
    client = make_client(app, groups=["staff"])
    people = [person(n) for n in range(4)]
    del people[3]["password_hash"]
    people[2]["email_verified"] = False
    apply(people)
    with app.app_context():
        mails = set(db.session.execute(select(Mail.kind, Mail.address)).all())
        groups = set(db.session.scalars(select(Group.name)))
        versions = dict(db.session.execute(select(Group.name, Group.version)).all())
        names = db.session.scalars(select(User.name_key).order_by(User.name_key)).all()
    assert mails == {("verify", "person2@example.com"), ("invite", "person3@example.com")}
    assert groups == {"staff", *(f"team {n}" for n in range(4))}
    assert names == [f"person {n}" for n in range(4)]
    make_user(app, "dana@example.com", groups=["staff"])
    browser = Browser(app)
    browser.authorize(client)
    browser.sign_in("dana@example.com")
    tokens = client.exchange(browser.allow().code).get_json()
    dana = {"email": "dana@example.com", "groups": []}
    apply([dana, person(1, groups=["Board"]), person(0, disabled=True), {**people[2], "name": "É"}])
    assert client.userinfo(tokens["access_token"]).status_code == 401
    with app.app_context():
        user = users.find_by_email("person2@example.com")
        assert user is not None
        assert (user.name, user.name_key, user.version) == ("É", "e", 2)
        later = dict(db.session.execute(select(Group.name, Group.version)).all())
        events = db.session.scalars(
            select(AuditEvent.name).where(AuditEvent.name == "user_changed")
        ).all()
    assert later["staff"] > versions["staff"]
    assert later["Board"] == 1
    assert len(events) == 4


def test_an_operator_takes_over_what_a_directory_disabled(app: Flask, apply: Apply) -> None:
    """Else the directory would enable the user again."""
    apply([person(1, disabled=True), person(2)])
    with app.app_context():
        for user in users.every():
            user.disabled_at = clock.now()
            db.session.add(
                Identity(user_id=user.id, provider="corp", issuer="ldap:corp", subject=user.email,
                         barred_at=clock.now())
            )  # fmt: skip
        db.session.commit()
    both = [person(1, disabled=True), {"email": "person2@example.com"}]
    assert apply(both, "--plan") == apply(both) == []
    with app.app_context():
        barred = db.session.scalars(select(Identity.subject).where(Identity.barred_at.is_not(None)))
        assert barred.all() == ["person2@example.com"]


def test_somebody_has_to_administer(app: Flask, apply: Apply) -> None:
    with app.app_context():
        admins = app.extensions["sso.settings"].admin_group
    apply([person(1, groups=[admins]), person(2)])
    for people, options in (
        ([person(1, groups=[])], ()),
        ([person(1, groups=[admins], disabled=True)], ()),
        ([person(2)], ("--prune", "--yes")),
    ):
        assert "last administrator" in apply(people, *options, "--plan", code=1)
        assert "last administrator" in apply(people, *options, code=1)
    moved = [person(1, groups=[]), person(2, groups=[admins])]
    assert len(apply(moved)) == 2


def test_where_nobody_administers_others_are_deleted(apply: Apply) -> None:
    """The people are administered by command alone."""
    apply([person(1), person(2)])
    assert len(apply([person(2)], "--prune", "--yes")) == 1


def test_first_passwords_are_hashed_before_anything_is_locked(
    app: Flask, apply: Apply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRST", PASSWORD)
    lock, hash_password = applying.lock_everything, passwords.hash_password
    order: list[str] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            order.append(name)
            return function(*given)

        return call

    monkeypatch.setattr(applying, "lock_everything", noted("lock", lock))
    monkeypatch.setattr(passwords, "hash_password", noted("hash", hash_password))
    people = [{"email": f"p{n}@example.com", "name": "P", "initial_password": "env:FIRST"}
              for n in range(3)]  # fmt: skip
    apply(people, "--plan")
    assert order == []
    apply(people)
    assert order == ["hash"] * 3 + ["lock"]
    assert Browser(app).sign_in("p1@example.com").path.endswith("/account")
