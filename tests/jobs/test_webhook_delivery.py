"""Webhooks: what is sent, signed how, how often, and when a receiver is given up."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest
from click.testing import Result
from flask import Flask
from sqlalchemy import select
from standardwebhooks import Webhook as Verifier

from sso import audit
from sso.audit import webhook_queue, writer
from sso.audit.events import WEBHOOK_EVENTS, Event
from sso.checkup import components
from sso.extensions import db
from sso.i18n.languages import said
from sso.jobs import upkeep, webhook_delivery
from sso.models import User, Webhook, WebhookDelivery
from sso.process import http_call
from sso.services import accounts, clients, webhooks
from sso.services import apis as api_services
from sso.store import apis, users
from sso.store import webhooks as stored
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_client, make_user
from tests.support.processes import free_port
from tests.support.statements import watched

pytestmark = pytest.mark.slow

DOCS = "https://docs.example"


class Receiver:
    """Answers as a test wants, and keeps what it got."""

    def __init__(self, status: int = 204, body: bytes = b"", seconds: float = 0) -> None:
        self.status, self.body, self.seconds = status, body, seconds
        self.got: list[tuple[dict[str, str], str]] = []
        self.endless = False

    @contextmanager
    def listening(self, port: int = 0) -> Iterator[str]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                receiver.got.append((dict(self.headers.items()), body))
                time.sleep(receiver.seconds)
                self.send_response(receiver.status)
                if 300 <= receiver.status < 400:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                try:
                    self.wfile.write(receiver.body)
                    for _ in range(100 if receiver.endless else 0):
                        self.wfile.write(b"x" * 1000)
                        time.sleep(0.05)
                except OSError:
                    pass

            def do_GET(self) -> None:
                receiver.got.append(({"followed": self.path}, ""))

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook?tenant=1"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(10)

    def messages(self, secret: str) -> list[dict[str, Any]]:
        """What a receiver that verifies signatures accepts."""
        return [Verifier(secret).verify(body, headers) for headers, body in self.got]


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str) -> Result:
        writer.flush(app)
        return app.test_cli_runner().invoke(args=arguments)

    return invoke


def add(app: Flask, url: str, *events: str) -> tuple[UUID, str]:
    with app.app_context():
        webhook, secret = webhooks.create(audit.SYSTEM, url, events or ("user_changed",))
        db.session.commit()
        return webhook.id, secret


def deliver(app: Flask) -> int:
    assert writer.flush(app)
    with app.app_context():
        return webhook_delivery.deliver_due()


def rename(app: Flask, user: User, name: str = "Dana") -> None:
    with app.app_context():
        accounts.update(audit.SYSTEM, user.id, name=name)
        db.session.commit()


def rows(app: Flask) -> list[WebhookDelivery]:
    with app.app_context():
        return list(
            db.session.scalars(select(WebhookDelivery).order_by(WebhookDelivery.created_at))
        )


def find(app: Flask, webhook_id: UUID) -> Webhook:
    with app.app_context():
        (found,) = [one for one in stored.every() if one.id == webhook_id]
        return found


def test_what_is_sent_and_how_it_is_signed(app: Flask, user: User) -> None:
    receiver = Receiver()
    with receiver.listening() as url:
        _, secret = add(app, url, *WEBHOOK_EVENTS)
        rename(app, user)
        assert deliver(app) == 1
        assert deliver(app) == 0
    (message,) = receiver.messages(secret)
    headers, _ = receiver.got[0]
    assert headers["Content-Type"] == "application/json"
    assert headers["webhook-id"] == str(rows(app)[0].id)
    assert message.keys() == {"type", "timestamp", "data"}
    assert message["type"] == "user_changed"
    assert message["timestamp"].endswith("Z")
    changed = {"name": {"before": "Dana Demo", "after": "Dana"}}
    assert message["data"] == {
        "sub": str(user.id), "email": user.email, "name": "Dana", "changes": changed
    }  # fmt: skip
    with pytest.raises(Exception, match="No matching signature"):
        Verifier("whsec_" + "A" * 40).verify(receiver.got[0][1], headers)


def test_the_life_of_a_user(app: Flask, run: Any) -> None:
    receiver = Receiver()
    with receiver.listening() as url:
        _, secret = add(app, url, *WEBHOOK_EVENTS)
        run("user", "invite", "--email", "erin@example.com", "--name", "Erin")
        run("user", "update", "erin@example.com", "--email", "new@example.com")
        run("user", "disable", "new@example.com")
        run("user", "enable", "new@example.com")
        with app.app_context():
            found = users.find_by_email("new@example.com")
            assert found
            accounts.update(audit.SYSTEM, found.id, disabled=True)
            db.session.commit()
        run("user", "delete", "new@example.com", "--yes")
        while deliver(app):
            pass
    messages = receiver.messages(secret)
    # An operator's update has a type of its own, and those of what it does; in any order.
    assert [message["type"] for message in messages[:1]] == ["user_invited"]
    assert sorted(message["type"] for message in messages[1:]) == [
        "email_changed", "user_changed", "user_changed", "user_deleted", "user_disabled",
        "user_disabled", "user_enabled",
    ]  # fmt: skip
    data = messages[-1]["data"]
    assert messages[-1]["type"] == "user_deleted"
    assert (data["email"], data["name"]) == ("new@example.com", "Erin")
    assert len({message["data"]["sub"] for message in messages}) == 1


def test_the_life_of_an_application_and_an_api(app: Flask, run: Any) -> None:
    receiver = Receiver()
    with receiver.listening() as url:
        _, secret = add(app, url, *WEBHOOK_EVENTS)
        run("api", "create", "--identifier", DOCS, "--name", "Documents", "--scope", "read=Read",
            "--introspection")  # fmt: skip
        uri = "https://books.example/callback"
        made = run("client", "create", "--name", "Books", "--redirect-uri", uri, "--json")
        client_id, client_secret = (
            json.loads(made.stdout)[name] for name in ("client_id", "client_secret")
        )
        run("client", "update", client_id, "--add-api", f"{DOCS}=read")
        run("client", "rotate-secret", client_id)
        run("client", "disable", client_id)
        run("client", "enable", client_id)
        with app.app_context():
            clients.change(audit.SYSTEM, client_id, {"disabled": True})
            api = apis.find(DOCS)
            assert api
            api_services.change(audit.SYSTEM, api.api_id, {"disabled": True})
            db.session.commit()
        run("api", "enable", DOCS)
        run("api", "rotate-secret", DOCS)
        run("client", "delete", client_id, "--yes")
        run("api", "delete", DOCS, "--yes")
        while deliver(app):
            pass
    messages = receiver.messages(secret)
    assert sorted(message["type"] for message in messages) == [
        "api_changed", "api_created", "api_deleted", "api_disabled", "api_enabled",
        "api_secret_rotated", "client_changed", "client_changed", "client_created",
        "client_deleted", "client_disabled", "client_disabled", "client_enabled",
        "client_secret_rotated",
    ]  # fmt: skip
    for message in messages:
        name, value = ("api", DOCS) if "api" in message["type"] else ("client_id", client_id)
        assert message["data"][name] == value
    (added,) = [one["data"]["changes"] for one in messages if "apis" in str(one["data"])]
    assert added["apis"]["added"] == [f"{DOCS}=read"]
    assert client_secret not in json.dumps(receiver.got)


def test_a_sign_in_and_a_consent(
    app: Flask, user: User, browser: Browser, client: RelyingParty
) -> None:
    receiver = Receiver()
    with receiver.listening() as url:
        _, secret = add(app, url, "signed_in", "consent_given", "session_ended", "token_revoked")
        tokens = client.exchange(browser.approve(client).code).get_json()
        client.revoke(tokens["refresh_token"])
        browser.open(f"{ORIGIN}{BASE}/sign-out")
        browser.submit(decision="sign_out")
        while deliver(app):
            pass
    messages = receiver.messages(secret)
    assert [message["type"] for message in messages] == [
        "signed_in", "consent_given", "token_revoked", "session_ended",
    ]  # fmt: skip
    assert messages[1]["data"]["client_id"] == client.client_id
    assert messages[0]["data"]["sid"] == messages[3]["data"]["sid"]
    said = json.dumps(receiver.got)
    for private in (*tokens.values(), "Werkzeug", secret):
        assert str(private) not in said or private in ("Bearer", 3600, tokens["scope"])


def test_a_statement_names_so_many_users_only(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database takes no more than 32,766 values; one commit may change more users."""
    monkeypatch.setattr(webhook_queue, "_AT_ONCE", 2)
    users = [make_user(app, f"person{number}@example.com") for number in range(5)]
    with app.app_context():
        webhooks.create(audit.SYSTEM, "https://siem.example/hook", ["user_changed"])
        for user in users:
            audit.event(Event.USER_CHANGED, user=user.id)
        db.session.commit()
        bodies = [json.loads(row.body) for row in db.session.scalars(select(WebhookDelivery))]
    emails = {body["data"].get("email") for body in bodies}
    assert emails == {user.email for user in users}


def test_what_is_rolled_back_is_not_sent(app: Flask, user: User) -> None:
    add(app, "https://hooks.example/", "user_changed")
    with app.app_context():
        accounts.update(audit.SYSTEM, user.id, name="Nobody")
        db.session.rollback()
    with app.app_context():
        accounts.update(audit.SYSTEM, user.id, name="Nobody")
    assert writer.flush(app)
    assert rows(app) == []


def test_hot_paths_pay_nothing(
    app: Flask, user: User, browser: Browser, client: RelyingParty
) -> None:
    add(app, "https://hooks.example/", *WEBHOOK_EVENTS)
    tokens = client.exchange(browser.approve(client).code).get_json()
    with app.app_context():
        engine = db.engine
    statements: list[str] = []
    with watched(engine, lambda statement, _: statements.append(statement)):
        browser.authorize(client)
        tokens = client.refresh(tokens["refresh_token"]).get_json()
        client.userinfo(tokens["access_token"])
    assert len(statements) > 3
    assert not [one for one in statements if "webhook" in one]


@pytest.mark.parametrize(
    ("status", "error"),
    [(500, "it answered 500"), (404, "it answered 404"),
     (302, "it answered 302; redirects are not followed")],
)  # fmt: skip
def test_a_receiver_that_fails_is_tried_again(
    app: Flask, user: User, clock: Clock, status: int, error: str
) -> None:
    receiver = Receiver(status)
    with receiver.listening() as url:
        id_, _ = add(app, url)
        for name in ("One", "Two"):
            rename(app, user, name)
        assert deliver(app) == 2
        assert len(receiver.got) == 1  # the other one is put back
        assert [row.attempts for row in rows(app)] == [1, 0]
        assert (rows(app)[0].last_status, rows(app)[0].last_fault) == (status, error)
        assert find(app, id_).failing_since is not None
        assert deliver(app) == 0
        clock.move(seconds=6)
        assert deliver(app) == 1  # one at a time
        receiver.status = 200
        clock.move(minutes=1)
        while deliver(app):
            clock.move(minutes=1)
    assert all(row.delivered_at for row in rows(app))
    assert find(app, id_).failing_since is None
    names = [json.loads(body)["data"]["changes"]["name"]["after"] for _, body in receiver.got]
    assert set(names) == {"One", "Two"}
    id_of_first = str(rows(app)[0].id)
    first = [headers for headers, _ in receiver.got if headers["webhook-id"] == id_of_first]
    assert len(first) >= 2
    assert len({headers["webhook-timestamp"] for headers in first}) == len(first)


def in_german(app: Flask, text: str) -> str:
    with app.test_request_context(headers={"Accept-Language": "de"}):
        return said(text)


def test_a_receiver_that_is_down_for_days_is_disabled(
    app: Flask, user: User, clock: Clock, caplog: pytest.LogCaptureFixture, run: Any
) -> None:
    url = f"http://127.0.0.1:{free_port()}/hook"
    id_, _ = add(app, url)
    rename(app, user)
    began, attempts = clock.time, 0
    for _ in range(300):
        attempts += deliver(app)
        if find(app, id_).disabled_at:
            break
        clock.move(minutes=30)
        if attempts == 100:
            rename(app, user, "Later")
    assert (clock.time - began).days == 3
    assert 100 < attempts < 200
    found = find(app, id_)
    assert found.disabled_reason
    assert found.disabled_reason.startswith("failing since")
    assert f"webhook {id_} ({url}) is disabled" in caplog.text
    (event,) = json.loads(run("audit", "list", "--event", "webhook_disabled", "--json").stdout)
    assert event["fields"]["webhook"] == str(id_)
    with app.app_context():
        (finding,) = components.webhooks()
    assert finding.status == "warning"
    assert "disabled, failing since" in finding.seen
    assert "abgeschaltet, schlägt seit" in in_german(app, finding.seen)
    rename(app, user, "Unheard")  # nothing is queued for it
    clock.move(hours=1)
    deliver(app)
    assert [row.next_attempt_at for row in rows(app)] == [None, None]
    assert run("webhook", "enable", str(id_)).exit_code == 0
    rename(app, user, "Heard")
    assert rows(app)[-1].next_attempt_at is not None
    clock.move(days=9)
    with app.app_context():
        assert upkeep.purge()["webhook_deliveries"] == 2
    assert len(rows(app)) == 1  # still due


def test_a_receiver_that_is_gone_is_disabled_at_once(app: Flask, user: User) -> None:
    receiver = Receiver(410)
    with receiver.listening() as url:
        id_, _ = add(app, url)
        rename(app, user)
        rename(app, user, "Two")
        assert deliver(app) == 2
        assert find(app, id_).disabled_reason == "it answered 410"
        deliver(app)
    assert len(receiver.got) == 1
    with app.app_context():
        (finding,) = components.webhooks()
    assert "abgeschaltet, es antwortete mit" in in_german(app, finding.seen)
    assert [row.next_attempt_at for row in rows(app)] == [None, None]
    assert [row.last_fault for row in rows(app)] == ["it answered 410", "the webhook is disabled"]


@pytest.mark.parametrize("how", ["enable", "change the URL"])
def test_what_failed_before_does_not_count_after_it_is_enabled(
    app: Flask, user: User, clock: Clock, how: str
) -> None:
    """Neither the failures, nor since when, nor the pause before the next attempt."""
    receiver = Receiver(500)
    with receiver.listening() as url:
        id_, _ = add(app, url)
        with app.app_context():
            webhook = db.session.get_one(Webhook, id_)
            webhook.failing_since, webhook.failures = clock.now() - timedelta(days=9), 500
            webhook.retry_at = clock.now() + timedelta(days=1)
            if how == "enable":
                webhooks.disable(audit.SYSTEM, id_, "failing since then")
                webhooks.enable(audit.SYSTEM, id_)
            else:
                webhooks.change(audit.SYSTEM, id_, url=url + "&new=1")
            db.session.commit()
        assert (find(app, id_).failing_since, find(app, id_).retry_at) == (None, None)
        rename(app, user)
        assert deliver(app) == 1
        assert len(receiver.got) == 1
    webhook = find(app, id_)
    assert (webhook.disabled_at, webhook.disabled_reason, webhook.failures) == (None, None, 1)


@pytest.mark.parametrize(
    ("since", "failures", "is_disabled"),
    [
        (webhook_delivery.DISABLED_AFTER, 19, True),
        (webhook_delivery.DISABLED_AFTER, 18, False),
        (webhook_delivery.DISABLED_AFTER - timedelta(seconds=1), 500, False),
    ],
)
def test_when_a_webhook_is_disabled(
    app: Flask, user: User, clock: Clock, since: timedelta, failures: int, is_disabled: bool
) -> None:
    """With the twentieth failure, three days after the first one."""
    clock.stand_still()
    with Receiver(500).listening() as url:
        id_, _ = add(app, url)
        with app.app_context():
            webhook = db.session.get_one(Webhook, id_)
            webhook.failing_since, webhook.failures = clock.now() - since, failures
            db.session.commit()
        rename(app, user)
        assert deliver(app) == 1
    assert (find(app, id_).disabled_at is not None) == is_disabled
    assert find(app, id_).failures == failures + 1


def test_a_slow_receiver_holds_up_no_other(
    app: Flask, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = http_call.post.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "seconds", 0.5)
    slow, endless, well = Receiver(seconds=3), Receiver(), Receiver()
    endless.endless = True
    with slow.listening() as one, endless.listening() as two, well.listening() as three:
        ids = [add(app, url)[0] for url in (one, two, three)]
        for number in range(5):
            rename(app, user, f"Dana {number}")
        began = time.monotonic()
        deliver(app)
        assert time.monotonic() - began < 2.5
    assert len(well.got) == 5
    assert len(endless.got) == 5  # the status is enough
    assert len(slow.got) == 1
    assert [find(app, id_).failing_since is None for id_ in ids] == [False, True, True]


def test_two_workers_deliver_each_once(app: Flask, user: User) -> None:
    receiver = Receiver(seconds=0.05)
    with receiver.listening() as url:
        _, secret = add(app, url)
        for number in range(12):
            rename(app, user, f"Dana {number}")
        threads = [threading.Thread(target=deliver, args=[app]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        while deliver(app):
            pass
    ids = [headers["webhook-id"] for headers, _ in receiver.got]
    assert len(ids) == len(set(ids)) == 12
    assert len(receiver.messages(secret)) == 12
    assert all(row.delivered_at for row in rows(app))


def test_a_worker_that_dies_leaves_its_deliveries(app: Flask, user: User, clock: Clock) -> None:
    receiver = Receiver()
    with receiver.listening() as url:
        add(app, url)
        rename(app, user)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(webhook_delivery, "_send", lambda *_: exit())
            with pytest.raises(SystemExit):
                deliver(app)
        assert deliver(app) == 0
        clock.move(minutes=1)
        assert deliver(app) == 1
    assert len(receiver.got) == 1


def test_a_webhook_is_deleted_while_it_is_called(app: Flask, user: User) -> None:
    receiver = Receiver(500, seconds=0.5)
    with receiver.listening() as url:
        id_, _ = add(app, url)
        rename(app, user)
        thread = threading.Thread(target=deliver, args=[app])
        thread.start()
        time.sleep(0.2)
        with app.app_context():
            webhooks.delete(audit.SYSTEM, id_)
            db.session.commit()
        thread.join(10)
    assert len(receiver.got) == 1
    assert rows(app) == []
    rename(app, user, "Later")
    assert rows(app) == []


def test_webhooks_come_and_go_while_events_happen(app: Flask, user: User) -> None:
    """No event fails because its webhook is deleted at that moment."""
    errors: list[BaseException] = []
    stop = threading.Event()

    def rename_often() -> None:
        try:
            for number in range(1000):
                if stop.is_set():
                    break
                rename(app, user, f"Dana {number}")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=rename_often)
    thread.start()
    for _ in range(15):
        id_, _ = add(app, "https://hooks.example/")
        time.sleep(0.03)
        with app.app_context():
            webhooks.delete(audit.SYSTEM, id_)
            db.session.commit()
    stop.set()
    thread.join(20)
    assert errors == []
    assert rows(app) == []


def test_the_user_of_the_doctor_is_not_sent(app: Flask) -> None:
    add(app, "https://hooks.example/", *WEBHOOK_EVENTS)
    with app.app_context():
        user = accounts.create(
            audit.SYSTEM, email="doctor-1@sso-doctor.example", name="Doctor", email_verified=True
        )
        db.session.commit()
        accounts.delete(audit.SYSTEM, user)
        db.session.commit()
    assert rows(app) == []
    make_user(app)
    make_client(app)
