"""A command that changes a client gets its turn, however many codes are asked for meanwhile."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest
from click.testing import Result
from flask import Flask
from sqlalchemy import select, text

from sso import audit
from sso.cli import apply
from sso.database.postgresql import LIMITS
from sso.extensions import db
from sso.models import PushedRequest
from sso.services import clients, revocation
from sso.store import approvals, outbox
from sso.store import clients as stored_clients
from tests.support.actors import Browser, RelyingParty
from tests.support.factories import make_client, make_user

WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
COMMANDS = (
    ["client", "disable"],
    ["client", "enable"],
    ["client", "rotate-secret"],
    ["client", "update", "--set-groups", "staff"],
    ["client", "delete", "--yes"],
)


# SQLite has one writer at a time.
pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


class Doors:
    """Holds requests that have locked all that they need, each until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._let_go: list[Event] = []
        self._state, self._add = Lock(), approvals.add
        monkeypatch.setattr(approvals, "add", self._hold)

    def _hold(self, *given: Any, **columns: Any) -> bool:
        # In a transaction, as when more is written for the request.
        is_stored = self._add(*given, **{**columns, "is_last": False})
        event = Event()
        with self._state:
            self._let_go.append(event)
        event.wait(4)
        return is_stored

    @property
    def entered(self) -> int:
        return len(self._let_go)

    def let_go(self, number: int) -> None:
        self._let_go[number].set()

    def open(self) -> None:
        for event in self._let_go:
            event.set()


def until_somebody_waits(app: Flask, count: int = 1) -> None:
    deadline = time.monotonic() + 3
    with app.app_context():
        while time.monotonic() < deadline:
            with db.engine.connect() as connection:
                if (connection.scalar(text(WAITING)) or 0) >= count:
                    return
            time.sleep(0.02)


def until(count: int, doors: Doors) -> None:
    deadline = time.monotonic() + 3
    while doors.entered < count and time.monotonic() < deadline:
        time.sleep(0.02)


def asked(pool: ThreadPoolExecutor, app: Flask, client: RelyingParty, email: str) -> Future[Any]:
    make_user(app, email)
    browser = Browser(app)
    browser.sign_in(email)
    return pool.submit(browser.authorize, client)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[1])
def test_a_command_waits_for_those_before_it_alone(
    app: Flask, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    client = make_client(app, first_party=True)
    doors = Doors(monkeypatch)
    first = asked(pool, app, client, "first@example.com")
    until(1, doors)
    run = app.test_cli_runner().invoke
    done = pool.submit(run, args=[*command[:2], client.client_id, *command[2:]])
    until_somebody_waits(app)
    second = asked(pool, app, client, "second@example.com")
    until_somebody_waits(app, 2)
    assert doors.entered == 1, "the second one did not wait for the command"
    doors.let_go(0)
    assert done.result(3).exit_code == 0
    until(2, doors)
    doors.open()
    assert first.result(5).code
    assert second.result(5).status < 500


def test_a_file_locks_clients_before_users(
    app: Flask, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It deletes the client last of all. Nobody may have locked that, and wait for the user."""
    client, other = make_client(app, first_party=True), make_client(app, name="Other")
    make_user(app, "dana@example.com")
    browser = Browser(app)
    browser.sign_in("dana@example.com")
    file = tmp_path / "all.toml"
    file.write_text(
        f'format = 1\n[[clients]]\nclient_id = "{other.client_id}"\n'
        '[[users]]\nemail = "dana@example.com"\nname = "Dana D."\n'
    )
    asking, lock = [], apply.lock_everything

    def lock_and_be_asked(work: apply.Work) -> None:
        lock(work)
        asking.append(pool.submit(browser.authorize, client))
        until_somebody_waits(app)

    monkeypatch.setattr(apply, "lock_everything", lock_and_be_asked)
    result = app.test_cli_runner().invoke(args=["apply", str(file), "--prune", "--yes"])
    assert result.exit_code == 0, result.output
    assert asking[0].result(5).status < 500


def test_a_deletion_waits_for_who_refers_to_the_client(
    app: Flask, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who ends a grant owes a logout token first: a row that refers to the client."""
    uris = {"backchannel_logout_uri": "https://books.example/out"}
    client = make_client(app, first_party=True, **uris)
    user = make_user(app, "dana@example.com")
    browser = Browser(app)
    browser.sign_in("dana@example.com")
    assert browser.authorize(client).code
    run, owe = app.test_cli_runner().invoke, outbox.enqueue_logouts
    deleting: list[Future[Result]] = []

    def owe_and_wait(*meant: Any) -> None:
        owe(*meant)
        if not deleting:
            deleting.append(pool.submit(run, args=["client", "delete", client.client_id, "--yes"]))
            until_somebody_waits(app)

    monkeypatch.setattr(outbox, "enqueue_logouts", owe_and_wait)
    with app.app_context():
        revocation.everything_of_user(user.id, "user_disabled")
        db.session.commit()
    assert deleting[0].result(5).exit_code == 0


def signed_in(app: Flask, email: str, *at: RelyingParty) -> Browser:
    """A browser in which the user is signed in, and has given each client a grant."""
    make_user(app, email)
    browser = Browser(app)
    browser.sign_in(email)
    for client in at:
        assert browser.authorize(client).code
    return browser


def signed_out_while(
    app: Flask,
    browser: Browser,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
) -> Result:
    """The command, begun when the sign-out has ended the session, but not yet its grants."""
    run, owe = app.test_cli_runner().invoke, outbox.enqueue_logouts
    running: list[Future[Result]] = []

    def wait_and_owe(*meant: Any) -> None:
        if not running:
            running.append(pool.submit(run, args=command))
            until_somebody_waits(app)
        owe(*meant)

    monkeypatch.setattr(outbox, "enqueue_logouts", wait_and_owe)
    browser.open("/api/auth/sign-out")
    browser.submit(decision="sign_out")
    assert browser.page.status == 200
    return running[0].result(5)


@pytest.mark.parametrize("is_named", [True, False])
def test_a_file_that_locks_out_a_client_and_its_user(
    app: Flask,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    is_named: bool,
) -> None:
    """Disabled or, if the file does not name them, deleted."""
    uris = {"backchannel_logout_uri": "https://books.example/out"}
    client = make_client(app, first_party=True, **uris)
    browser = signed_in(app, "dana@example.com", client)
    client_id = client.client_id if is_named else make_client(app).client_id
    if not is_named:
        make_user(app, "erin@example.com")
    email = "dana@example.com" if is_named else "erin@example.com"
    file = tmp_path / "all.toml"
    file.write_text(
        f'format = 1\n[[clients]]\nclient_id = "{client_id}"\ndisabled = true\n'
        f'[[users]]\nemail = "{email}"\ndisabled = true\n'
    )
    command = ["apply", str(file), "--prune", "--yes"]
    result = signed_out_while(app, browser, pool, monkeypatch, command)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("order", [1, -1])
def test_a_file_that_locks_out_two_clients(
    app: Flask,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    order: int,
) -> None:
    """A user whom the file does not name has grants at both, and signs out."""
    both = [make_client(app, first_party=True) for _ in range(2)]
    browser = signed_in(app, "dana@example.com", *both)
    file = tmp_path / "all.toml"
    file.write_text(
        "format = 1\n"
        + "".join(
            f'[[clients]]\nclient_id = "{one.client_id}"\ndisabled = true\n'
            for one in both[::order]
        )
    )
    calls: list[str] = []
    asking: list[Future[Any]] = []
    change = clients.change

    def change_and_wait(actor: Any, client_id: str, *given: Any, **more: Any) -> Any:
        done = change(actor, client_id, *given, **more)
        calls.append(client_id)
        if len(calls) == 1:
            asking.append(pool.submit(browser.submit, decision="sign_out"))
            until_somebody_waits(app)
        return done

    browser.open("/api/auth/sign-out")
    monkeypatch.setattr(clients, "change", change_and_wait)
    result = app.test_cli_runner().invoke(args=["apply", str(file)])
    assert result.exit_code == 0, result.output
    asking[0].result(5)
    assert browser.page.status == 200


def test_all_grants_of_a_client_may_take_longer(app: Flask) -> None:
    client = make_client(app)
    with app.app_context():
        shown = []
        for _ in range(2):
            shown.append(db.session.scalar(text("SHOW statement_timeout")))
            clients.disable(audit.SYSTEM, client.client_id)
            shown.append(db.session.scalar(text("SHOW statement_timeout")))
            db.session.commit()
    assert shown == [LIMITS["statement_timeout"], "0"] * 2


def test_what_a_deleted_client_pushed_is_gone(app: Flask) -> None:
    """A later client of the same ID must not use it."""
    books, other = make_client(app, client_id="books"), make_client(app, name="Other")
    assert [client.push().status_code for client in (books, other)] == [201, 201]
    with app.app_context():
        clients.delete(audit.SYSTEM, "books")
        db.session.commit()
        left = db.session.scalars(select(PushedRequest.client_id)).all()
        assert left == [other.client_id]


def test_the_origin_of_a_disabled_client_is_nobodys(app: Flask) -> None:
    public = make_client(app, public=True)
    with app.app_context():
        on = db.session.connection()
        assert stored_clients.is_origin_of_any(on, "https://books.example")
        clients.disable(audit.SYSTEM, public.client_id)
        db.session.flush()
        assert not stored_clients.is_origin_of_any(on, "https://books.example")
        clients.enable(audit.SYSTEM, public.client_id)
        db.session.flush()
        assert stored_clients.is_origin_of_any(on, "https://books.example")
