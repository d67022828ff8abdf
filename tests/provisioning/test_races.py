"""People who change while they are sent, and several workers, on each database."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import ScimChange
from sso.services import accounts, clients
from tests.support.databases import app_on_each  # noqa: F401 (a fixture)
from tests.support.factories import make_user
from tests.support.processes import Server, wait_for
from tests.support.scim_receivers import (
    Answer,
    Hostile,
    Request,
    answer,
    connect,
    in_memory,
    people_of,
    work,
)
from tests.support.statements import watched

pytestmark = pytest.mark.slow

DANA = "dana@example.com"


def kind(request: Request) -> Answer:
    name = (request.body or {}).get("externalId", "")
    return answer(201 if request.method == "POST" else 200, {"id": f"id-{name}"})


def _note(statements: list[str], text: str, _: object) -> None:
    statements.append(text)


def rename(app: Flask, user_id: Any, name: str) -> None:
    with app.app_context():
        accounts.update(audit.SYSTEM, user_id, name=name)
        db.session.commit()


@pytest.fixture
def each(app_on_each: Flask) -> Flask:  # noqa: F811 (the fixture)
    return app_on_each


def test_two_workers(each: Flask) -> None:
    """Nobody is created twice, and only one of them sends at a time."""
    users = [
        make_user(each, f"p{number}@example.com", groups=["staff"], password=None)
        for number in range(12)
    ]
    at_once, most = [0], [0]
    lock = threading.Lock()

    def reply(request: Request) -> Answer:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        sleep(0.02)
        with lock:
            at_once[0] -= 1
        return kind(request)

    hostile = Hostile(reply)
    with hostile.listening() as url:
        client_id = connect(each, url)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda _: work(each), range(6)))
        work(each)
        created = [request.body["externalId"] for request in hostile.got]
        assert sorted(created) == sorted(str(user.id) for user in users)
        assert most == [1]
        assert all(row.is_active for row in people_of(each, client_id).values())


def test_a_change_while_the_person_is_sent(each: Flask) -> None:
    dana = make_user(each, groups=["staff"])
    hostile = Hostile(kind)
    changes = ["Second", "Third"]

    def reply(request: Request) -> Answer:
        if changes:
            rename(each, dana.id, changes.pop(0))
            work_of_another_worker()
        return kind(request)

    def work_of_another_worker() -> None:
        thread = threading.Thread(target=work, args=(each,))
        thread.start()
        thread.join(10)

    hostile.reply = reply
    with hostile.listening() as url:
        client_id = connect(each, url)
        for _ in range(4):
            work(each)
        names = [request.body["displayName"] for request in hostile.got]
        assert names == ["Dana Demo", "Second", "Third"]
        assert people_of(each, client_id)[DANA].next_attempt_at is None


@pytest.mark.parametrize("ending", ["delete", "remove"])
def test_the_client_goes_while_a_person_is_sent(each: Flask, ending: str) -> None:
    make_user(each, groups=["staff"])
    make_user(each, "erin@example.com", groups=["staff"])
    hostile = Hostile(kind)
    with hostile.listening() as url:
        client_id = connect(each, url)

        def reply(request: Request) -> Answer:
            with each.app_context():
                if ending == "delete":
                    clients.delete(audit.SYSTEM, client_id)
                else:
                    clients.change(audit.SYSTEM, client_id, {"scim_url": None})
                db.session.commit()
            hostile.reply = kind
            return kind(request)

        hostile.reply = reply
        work(each)
        assert people_of(each, client_id) == {}
        assert work(each) == 0
        assert len(hostile.got) == 1


def test_what_notes_a_change(each: Flask) -> None:
    """What is not sent is not noted, and without a receiver nothing is."""
    dana = make_user(each, groups=["staff"])

    def noted() -> int:
        with each.app_context():
            count = db.session.query(ScimChange).delete()
            db.session.commit()
            return count

    assert noted() == 0
    connect(each, "https://wiki.example/scim")
    rename(each, dana.id, "Dana Duck")
    assert noted() == 1
    rename(each, dana.id, "Dana Duck")
    assert noted() == 0
    with each.app_context():
        accounts.update(audit.SYSTEM, dana.id, email_verified=False)
        db.session.commit()
    assert noted() == 0
    make_user(each, "erin@example.com")
    assert noted() == 1


def test_a_change_takes_no_statement_more(app: Flask) -> None:
    dana = make_user(app, groups=["staff"])
    counts = []
    for name in ("First", "Second"):
        statements: list[str] = []
        note = partial(_note, statements)
        with app.app_context(), watched(db.engine, note):
            accounts.update(audit.SYSTEM, dana.id, name=name)
            db.session.commit()
        counts.append(len(statements))
        connect(app, "https://wiki.example/scim")
    assert counts[0] == counts[1]


def test_from_disabled_to_gone_there(tmp_path: Path) -> None:
    """With the server and the worker as in production, and this server itself as the receiver."""
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    with Server(tmp_path / "there", workers=1).running() as there, \
            Server(tmp_path / "here", workers=1).running() as here:  # fmt: skip
        token = there.flask("api-token", "create", "--name", "T", "--scope", "scim:write", "--json")
        secret = token.partition('"token": "')[2].partition('"')[0]
        client = here.register("Wiki", "https://wiki.example/cb", "--group", "staff")
        client_id = client["client_id"]
        url = f"{there.base_url}/scim/v2"
        here.flask("client", "update", client_id, "--scim-url", url, "--scim-groups")
        here.flask("scim", "token", client_id, stdin=f"{secret}\n")
        tested = partial(here.try_flask, "scim", "test", client_id)  # it waits for 8 s
        wait_for(lambda: tested().returncode == 0, "the receiver", pause=0.5)
        fields = ("--email", DANA, "--name", "Dana", "--group", "staff", "--password-stdin")
        here.flask("user", "create", *fields, stdin="correct horse battery\n")
        with here.worker():
            wait_for(lambda: DANA in there.flask("user", "list"), "the account", pause=0.5)

            def shown() -> str:
                return there.flask("user", "show", DANA, "--json")

            wait_for(lambda: '"staff"' in shown(), "the group", pause=0.5)
            here.flask("user", "disable", DANA)
            began = monotonic()
            wait_for(lambda: '"disabled": true' in shown(), "the end", pause=0.5)
            assert monotonic() - began < 30


def test_several_people_at_a_real_receiver(each: Flask) -> None:
    with in_memory() as there:
        client_id = connect(each, there.url)
        for number in range(7):
            make_user(each, f"p{number}@example.com", groups=["staff"], password=None)
        work(each)
        assert len(there.users) == 7
        assert len(people_of(each, client_id)) == 7
