"""Receivers that are slow, broken or hostile: what they can do, and what they cannot."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.jobs import scim_drift
from sso.models import Client, User
from sso.provisioning import receiver as calls
from sso.services import accounts
from sso.store import provisioning as stored
from tests.conftest import Clock
from tests.support.factories import make_user
from tests.support.scim_receivers import (
    Answer,
    Hostile,
    Request,
    answer,
    connect,
    people_of,
    receiver_of,
    work,
)

pytestmark = pytest.mark.slow

DANA, ERIN = "dana@example.com", "erin@example.com"


def disable(app: Flask, user: User) -> None:
    with app.app_context():
        accounts.update(audit.SYSTEM, user.id, disabled=True)
        db.session.commit()


def rename(app: Flask, user: User, name: str) -> None:
    with app.app_context():
        accounts.update(audit.SYSTEM, user.id, name=name)
        db.session.commit()


def kind(request: Request) -> Answer:
    """Answers as it should."""
    if request.method == "GET":
        return answer(200, {"totalResults": 0, "Resources": []})
    if request.method == "DELETE":
        return answer(204)
    name = request.body.get("userName", "")
    return answer(201 if request.method == "POST" else 200, {"id": f"id-{name}"})


def first(*answers: Answer) -> Callable[[Request], Answer]:
    """Give these answers, then as `kind` does."""
    rest = list(answers)
    return lambda request: rest.pop(0) if rest else kind(request)


ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
METADATA = "http://169.254.169.254/latest/meta-data/"


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (answer(302, Location=METADATA), "it answered 302; redirects are not followed"),
        (answer(307, Location=METADATA), "it answered 307; redirects are not followed"),
        (answer(200, b"x" * 2_000_000), "it answered more than 1048576 bytes"),
        (answer(401), "it answered 401"),
        (answer(500, {"schemas": [], "detail": "no\nline"}), "it answered 500"),
        (answer(503, b"<html>"), "it answered 503"),
    ],
)
def test_a_receiver_that_fails(app: Flask, clock: Clock, reply: Answer, fault: str) -> None:
    """It is tried once, and again after a pause; then all is sent."""
    make_user(app, groups=["staff"])
    make_user(app, ERIN, groups=["staff"])
    hostile = Hostile(lambda _: reply)
    with hostile.listening() as url:
        client_id = connect(app, url)
        assert work(app) == 1
        assert work(app) == 0
        # After 500 the account may be there already, and is looked for.
        sent = [line for line in hostile.lines if "?" not in line]
        assert sent == ["POST /scim/v2/Users"]
        receiver = receiver_of(app, client_id)
        assert (receiver.last_fault, receiver.failures) == (fault, 1)
        clock.move(seconds=5)
        assert work(app) == 1
        assert receiver_of(app, client_id).failures == 2
        hostile.reply = kind
        clock.move(seconds=11)
        work(app)
        work(app)
        assert {row.is_active for row in people_of(app, client_id).values()} == {True}
        assert receiver_of(app, client_id).failing_since is None


def test_a_slow_receiver(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SECONDS", 0.3)
    make_user(app, groups=["staff"])
    hostile = Hostile(kind, seconds=1)
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        fault = receiver_of(app, client_id).last_fault or ""
        assert "took longer than 0.3 s" in fault


@pytest.mark.parametrize(
    ("asked", "seconds"), [("600", 600), ("1", 5), ("soon", 5), ("99999999", 3600), ("-1", 5)]
)
def test_it_may_ask_for_a_pause(app: Flask, clock: Clock, asked: str, seconds: int) -> None:
    make_user(app, groups=["staff"])
    hostile = Hostile(first(answer(429, Retry_After=asked)))
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        clock.move(seconds=seconds - 1)
        assert work(app) == 0
        clock.move(seconds=1)
        assert work(app) == 1
        assert people_of(app, client_id)[DANA].is_active


def test_the_id_of_somebody_else(app: Flask) -> None:
    """Else a change of one person would be made to another one there."""
    make_user(app, groups=["staff"])
    make_user(app, ERIN, groups=["staff"])
    hostile = Hostile(lambda request: answer(201, {"id": "7"}))
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        rows = people_of(app, client_id)
        assert sorted(row.remote_id or "" for row in rows.values()) == ["", "7"]
        (refused,) = [row for row in rows.values() if row.remote_id is None]
        assert refused.last_fault == "it answered with the id of somebody else"


def test_an_answer_about_somebody_else(app: Flask) -> None:
    dana = make_user(app, groups=["staff"])
    hostile = Hostile(first(answer(201, {"id": "7"}), answer(200, {"id": "8"})))
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        rename(app, dana, "Dana Duck")
        work(app)
        row = people_of(app, client_id)[DANA]
        assert (row.remote_id, row.last_fault) == ("7", "it answered with the id of somebody else")


@pytest.mark.parametrize("remote_id", ["", "x" * 256, 7, None, [], "..", "."])
def test_ids_that_are_none(app: Flask, remote_id: object) -> None:
    dana = make_user(app, groups=["staff"])
    hostile = Hostile(lambda _: answer(201, {"id": remote_id}))
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        rename(app, dana, "Dana Duck")
        work(app)
        assert people_of(app, client_id)[DANA].last_fault
        assert set(hostile.lines) == {"POST /scim/v2/Users"}


def test_an_id_cannot_lead_elsewhere(app: Flask) -> None:
    dana = make_user(app, groups=["staff"])
    hostile = Hostile(first(answer(201, {"id": "../../admin?x=1#y"})))
    with hostile.listening() as url:
        connect(app, url)
        work(app)
        disable(app, dana)
        work(app)
        assert hostile.lines[-1] == "PATCH /scim/v2/Users/..%2F..%2Fadmin%3Fx=1%23y"


ACCOUNT = {"id": "7", "userName": DANA}


@pytest.mark.parametrize(
    ("accounts_there", "remote_id", "fault"),
    [
        ([ACCOUNT], "7", None),
        ([{**ACCOUNT, "userName": DANA.upper()}], "7", None),
        # It ignores the filter.
        ([{"id": "1", "userName": "x"}, {"id": "2"}, ACCOUNT], "7", None),
        ([{"id": "1", "userName": "x"}], None, "it has this user already, but does not find it"),
        ([], None, "it has this user already, but does not find it"),
        ([{**ACCOUNT, "externalId": "other"}], None,
         "its user of this name has another externalId"),
        ([ACCOUNT, {**ACCOUNT, "id": "8"}], None, "it has several users with this userName"),
        ("x", None, "its list is none as RFC 7644 has it"),
        ([7, None, ACCOUNT], "7", None),
    ],
)  # fmt: skip
def test_an_account_is_there_already(
    app: Flask, accounts_there: Any, remote_id: str | None, fault: str | None
) -> None:
    make_user(app, groups=["staff"])

    def reply(request: Request) -> Answer:
        match request.method:
            case "POST":
                return answer(409, {"schemas": [], "scimType": "uniqueness"})
            case "GET":
                return answer(200, {"totalResults": 1, "Resources": accounts_there})
        return answer(200, {"id": request.path.rpartition("/")[2]})

    hostile = Hostile(reply)
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        row = people_of(app, client_id)[DANA]
        assert (row.remote_id, row.last_fault) == (remote_id, fault)
        changed = [line for line in hostile.lines if line.startswith("PUT")]
        assert changed == (["PUT /scim/v2/Users/7"] if remote_id else [])


BROKEN = [b"{", b"[]", b'"x"', b"null", b"\xff", b"[" * 100_000, b'{"id": 1e999}', b""]


@pytest.mark.parametrize("body", BROKEN)
def test_an_answer_that_cannot_be_read(app: Flask, clock: Clock, body: bytes) -> None:
    make_user(app, groups=["staff"])
    hostile = Hostile(first(answer(201, body)))
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        assert people_of(app, client_id)[DANA].last_fault
        clock.move(seconds=5)
        work(app)
        assert people_of(app, client_id)[DANA].is_active


def test_a_refused_person_delays_nobody_and_is_given_up(app: Flask, clock: Clock) -> None:
    make_user(app, groups=["staff"])
    make_user(app, ERIN, groups=["staff"])

    def reply(request: Request) -> Answer:
        if request.body["userName"] == DANA:
            return answer(400, {"schemas": [ERROR], "status": "400", "detail": "no such title"})
        return kind(request)

    hostile = Hostile(reply)
    with hostile.listening() as url:
        client_id = connect(app, url)
        assert work(app) == 2
        rows = people_of(app, client_id)
        assert rows[ERIN].is_active
        assert rows[DANA].last_fault == "it answered 400: no such title"
        assert receiver_of(app, client_id).failing_since is None
        for _ in range(200):
            clock.move(minutes=30)
            if not work(app):
                break
        row = people_of(app, client_id)[DANA]
        assert (row.next_attempt_at, row.is_active) == (None, False)
        assert clock.now() - row.created_at >= timedelta(days=3)


def test_a_person_on_whom_it_breaks_delays_the_others_once(app: Flask, clock: Clock) -> None:
    make_user(app, groups=["staff"])
    make_user(app, ERIN, groups=["staff"])
    hostile = Hostile(
        lambda request: answer(500) if request.body["userName"] == DANA else kind(request)
    )
    with hostile.listening() as url:
        client_id = connect(app, url)
        for _ in range(6):
            work(app)
            clock.move(seconds=6)
        assert people_of(app, client_id)[ERIN].is_active


def test_lost_access_is_never_given_up(app: Flask, clock: Clock) -> None:
    dana = make_user(app, groups=["staff"])
    hostile = Hostile(kind)
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        hostile.reply = lambda _: answer(403)
        disable(app, dana)
        work(app)
        for _ in range(150):
            clock.move(minutes=31)
            work(app)
        assert people_of(app, client_id)[DANA].next_attempt_at
        hostile.reply = kind
        clock.move(minutes=31)
        work(app)
        assert not people_of(app, client_id)[DANA].is_active


def test_lost_access_is_sent_first(app: Flask) -> None:
    """Before hundreds of others who wait."""
    dana = make_user(app, groups=["staff"])
    hostile = Hostile(kind)
    with hostile.listening() as url:
        connect(app, url)
        work(app)
        for number in range(10):
            make_user(app, f"p{number}@example.com", groups=["staff"], password=None)
        disable(app, dana)
        work(app)
        assert hostile.got[1].method == "PATCH"


@pytest.mark.parametrize("status", [400, 405, 501])
def test_a_receiver_without_patch(app: Flask, status: int) -> None:
    dana = make_user(app, groups=["staff"])
    hostile = Hostile(
        lambda request: answer(status) if request.method == "PATCH" else kind(request)
    )
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        disable(app, dana)
        hostile.reply = first(answer(status))
        work(app)
        assert [request.method for request in hostile.got] == ["POST", "PATCH", "PUT"]
        assert hostile.got[-1].body["active"] is False
        assert not people_of(app, client_id)[DANA].is_active


def test_an_account_whose_creation_was_not_confirmed(app: Flask, clock: Clock) -> None:
    """The answer was lost, and then the person was disabled."""
    dana = make_user(app, groups=["staff"])
    hostile = Hostile(first(answer(201, b"")))
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        disable(app, dana)
        found = {"id": "7", "userName": DANA, "externalId": str(dana.id)}
        hostile.reply = first(answer(200, {"totalResults": 1, "Resources": [found]}), answer(204))
        work(app)
        assert hostile.lines[-1] == "PATCH /scim/v2/Users/7"
        assert not people_of(app, client_id)[DANA].is_active


def test_the_token_is_sent_and_is_nowhere_else(app: Flask) -> None:
    make_user(app, groups=["staff"])
    hostile = Hostile(kind)
    with hostile.listening() as url:
        client_id = connect(app, url, token="s3cret~token")
        work(app)
        assert hostile.got[0].headers["Authorization"] == "Bearer s3cret~token"
        assert "s3cret" not in str(receiver_of(app, client_id).sealed_token)
        connect(app, url, token=None)
        work(app)
        assert "Authorization" not in hostile.got[-1].headers


ESCAPED = {"half a character": rb"\ud800", "NUL": rb"a\u0000b", "a line feed": rb"a\nb"}


@pytest.mark.parametrize("what", ESCAPED)
def test_an_id_that_no_database_stores(app: Flask, what: str) -> None:
    """It is a fault like any other: the next attempt waits, and others have their turn."""
    make_user(app, groups=["staff"])
    make_user(app, ERIN, groups=["staff"])
    hostile = Hostile(first(answer(201, b'{"id": "%s"}' % ESCAPED[what])))
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        rows = people_of(app, client_id)
        assert [row.is_active for row in rows.values()].count(True) == 1
        (refused,) = [row for row in rows.values() if not row.is_active]
        fault = "the id in its answer is not printable"
        assert (refused.last_fault, refused.attempts) == (fault, 1)


def test_an_answer_that_is_nested_too_deeply(app: Flask) -> None:
    make_user(app, groups=["staff"])
    hostile = Hostile(lambda _: answer(201, b'{"id":' + b"[" * 200_000))
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        assert people_of(app, client_id)[DANA].attempts == 1
        assert "as RFC 7644 has it" in (people_of(app, client_id)[DANA].last_fault or "")


def test_a_list_with_ids_of_other_types(app: Flask) -> None:
    """Ids are compared as text; a page that comes again ends the list."""
    make_user(app, groups=["staff"])
    rows = [{"id": id_, "externalId": id_, "userName": id_} for id_ in (["a"], {"b": 1}, 7, None)]
    hostile = Hostile(lambda _: answer(200, {"totalResults": 10**9, "Resources": rows}))
    with hostile.listening() as url:
        client_id = connect(app, url)
        with app.app_context():
            client, receiver = db.session.get(Client, client_id), stored.find(client_id)
            assert client
            assert receiver
            kinds = [drift.kind for drift in scim_drift.compare(client, receiver)]
        assert kinds == [scim_drift.MISSING, *[scim_drift.UNKNOWN] * 4]
        assert len(hostile.lines) == 2
