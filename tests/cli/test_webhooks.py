"""`flask webhook`: registered, shown without the secret, changed, tested, deleted."""

import json
from typing import Any

import pytest
from click.testing import Result
from flask import Flask
from sqlalchemy import select
from standardwebhooks import Webhook as Verifier

from sso.audit import writer
from sso.extensions import db
from sso.models import Webhook
from sso.store import webhooks as stored
from tests.jobs.test_webhook_delivery import Receiver, deliver
from tests.support.events import events
from tests.support.processes import free_port

URL = "https://hooks.example/sso?tenant=1"


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str) -> Result:
        writer.flush(app)
        return app.test_cli_runner().invoke(args=["webhook", *arguments])

    return invoke


def create(run: Any, url: str = URL, *names: str) -> dict[str, Any]:
    options = [word for name in names or ("signed_in",) for word in ("--event", name)]
    made = run("create", "--url", url, *options, "--json")
    assert made.exit_code == 0, made.stderr
    shown: dict[str, Any] = json.loads(made.stdout)
    return shown


def parsed(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_secret_is_shown_once(app: Flask, run: Any) -> None:
    made = create(run, URL, "user_deleted", "signed_in", "signed_in")
    secret = made.pop("secret")
    assert secret.startswith("whsec_")
    Verifier(secret)
    assert made["events"] == ["signed_in", "user_deleted"]
    assert parsed(run("list", "--json")) == [{**made, "waiting": 0}]
    for arguments in (("list",), ("deliveries", made["id"]), ("update", made["id"], "--url", URL)):
        shown = run(*arguments)
        assert shown.exit_code == 0
        assert secret not in shown.stdout + shown.stderr
    with app.app_context():
        (row,) = stored.every()
        assert secret not in json.dumps({key: str(value) for key, value in vars(row).items()})
    other = run("create", "--url", URL, "--event", "signed_in")
    assert "whsec_" in other.stdout
    assert secret not in other.stdout


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://hooks.example/", "it is not https"),
        ("http://10.0.0.1/", "it is not https"),
        ("http://localhost.example/", "it is not https"),
        ("ftp://hooks.example/", "it is not https"),
        ("https://user:password@hooks.example/", "it carries a user name"),
        ("https://hooks.example/#part", "it has a fragment"),
        ("https://hooks.example/ sp ace", "it has characters"),
        ("https://" + "x" * 3000, "it is longer than"),
        ("https://169.254.169.254/", "an address that is never called"),
        ("https://[fe80::1]/", "an address that is never called"),
        ("https://[fe80::1%25eth0]/", "an address that is never called"),
        ("https://[fd00:ec2::254]/", "an address that is never called"),
        ("https://[fd20:ce::254]/", "an address that is never called"),
        ("https://100.100.100.200:8443/x", "an address that is never called"),
        ("https://0xa9fea9fe/", "an address that is never called"),
        ("https://2852039166/", "an address that is never called"),
        ("https://[::ffff:169.254.169.254]/", "an address that is never called"),
        ("https://0.0.0.0/", "an address that is never called"),
        ("https:///", "it has no host"),
        ("hooks.example", "it is not absolute"),
        ("", "it is not absolute"),
    ],
)
def test_urls_that_are_refused(app: Flask, run: Any, url: str, reason: str) -> None:
    made = run("create", "--url", url, "--event", "signed_in")
    assert (made.exit_code, made.stdout) == (1, "")
    assert reason in made.stderr
    assert len(made.stderr.splitlines()) == 1
    assert events(app, "webhook_created") == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/x", "http://[::1]/", "https://10.0.0.1/"])
def test_urls_that_are_taken(run: Any, url: str) -> None:
    assert create(run, url)["url"] == url


def test_unknown_events(run: Any) -> None:
    for name in ("signed_inn", "tokens_issued", "sign_in_failed", ""):
        made = run("create", "--url", URL, "--event", name)
        assert made.exit_code == 2
        assert "unknown events" in made.stderr
        assert "known: api_changed," in made.stderr
    made = create(run)
    for option in ("--add-event", "--set-events"):
        changed = run("update", made["id"], option, "signed_inn")
        assert changed.exit_code == 2
        assert "unknown events: 'signed_inn'" in changed.stderr
    assert run("update", made["id"], "--remove-event", "of_another_version").exit_code == 0
    link_local = run("update", made["id"], "--url", "https://169.254.169.254/")
    assert link_local.exit_code == 1
    assert "an address that is never called" in link_local.stderr
    assert run("create", "--url", URL).exit_code == 2


def test_an_update(app: Flask, run: Any) -> None:
    made = create(run)
    changed = parsed(run("update", made["id"][:6], "--add-event", "user_deleted", "--json"))
    assert changed["events"] == ["signed_in", "user_deleted"]
    assert changed["changes"]["events"]["added"] == ["user_deleted"]
    assert (
        "url: https://hooks.example/sso?tenant=1 -> https://other.example/"
        in run("update", URL, "--url", "https://other.example/").stdout
    )
    nothing = run("update", made["id"], "--remove-event", "user_created")
    assert "user_created is not there" in nothing.stderr
    assert run("update", made["id"]).exit_code == 2
    none_left = run("update", made["id"], "--set-events", "")
    assert none_left.exit_code == 1
    assert "there is no event" in none_left.stderr
    assert len(events(app, "webhook_changed")) == 2


def test_disabled_enabled_deleted(app: Flask, run: Any) -> None:
    made = create(run)
    for name in ("disable", "delete"):
        refused = run(name, made["id"][:6], *(["--yes"] if name == "delete" else []))
        assert refused.exit_code == 1
        assert "the ID in full" in refused.stderr
    assert parsed(run("disable", made["id"], "--json"))["disabled"] is True
    assert "disabled" in run("list").stdout
    assert parsed(run("enable", made["id"][:6], "--json"))["disabled"] is False
    assert run("delete", made["id"]).exit_code == 1  # asks
    deleted = parsed(run("delete", made["id"], "--yes", "--json"))
    assert deleted == {"id": made["id"], "deleted": True}
    missing = run("enable", made["id"])
    assert missing.exit_code == 1
    assert "flask webhook list" in missing.stderr
    names = ("webhook_disabled", "webhook_enabled", "webhook_deleted")
    assert len(events(app, *names)) == 3


def test_a_test_event(run: Any) -> None:
    receiver = Receiver(200, b"thanks \x1b[31m\xff")
    with receiver.listening() as url:
        made = create(run, url)
        shown = run("test", made["id"])
        assert shown.exit_code == 0
        assert "answered 200" in shown.stdout
        assert "thanks \\x1b[31m" in shown.stdout
        (message,) = receiver.messages(made["secret"])
        assert message["type"] == "ping"
        assert message["data"] == {"webhook": made["id"]}
        receiver.status, receiver.body = 500, b"x" * 100_000
        failed = run("test", made["id"], "--json")
        assert failed.exit_code == 1
        answer = json.loads(failed.stdout)
        assert (answer["status"], len(answer["body"])) == (500, 2000)
        assert "500 is not 2xx" in failed.stderr


def test_a_test_event_that_nobody_takes(run: Any) -> None:
    made = create(run, f"http://127.0.0.1:{free_port()}/")
    failed = run("test", made["id"])
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert "ConnectionRefusedError" in failed.stderr


def test_deliveries_are_listed(app: Flask, run: Any) -> None:
    receiver = Receiver(503)
    with receiver.listening() as url:
        made = create(run, url, "user_invited")
        app.test_cli_runner().invoke(
            args=["user", "invite", "--email", "e@example.com", "--name", "E"]
        )
        assert parsed(run("list", "--json"))[0]["waiting"] == 1
        deliver(app)
    (row,) = parsed(run("deliveries", made["id"], "--json"))
    assert (row["event"], row["state"], row["status"]) == ("user_invited", "waiting", 503)
    assert row["error"] == "it answered 503"
    assert row["attempts"] == 1
    assert row["next_attempt_at"]
    assert "it answered 503" in run("deliveries", made["id"]).stdout
    assert "failing since" in run("list").stdout


def test_a_delivery_is_tried_again(app: Flask, run: Any) -> None:
    receiver = Receiver(410)  # gone: it is given up, and the webhook disabled
    with receiver.listening() as url:
        made = create(run, url, "user_invited")
        app.test_cli_runner().invoke(
            args=["user", "invite", "--email", "e@example.com", "--name", "E"]
        )
        deliver(app)
        (row,) = parsed(run("deliveries", made["id"], "--json"))
        assert (row["state"], run("retry", row["id"]).exit_code) == ("given up", 1)
        run("enable", made["id"])
        receiver.status = 204
        assert parsed(run("retry", row["id"], "--json"))["state"] == "waiting"
        assert deliver(app) == 1
    (row,) = parsed(run("deliveries", made["id"], "--json"))
    assert row["state"] == "delivered"
    again = run("retry", row["id"])
    assert (again.exit_code, "It was delivered" in again.stderr) == (1, True)
    assert "there is no delivery" in run("retry", made["id"]).stderr
    assert run("retry", "x").exit_code == 2
    assert len(events(app, "webhook_retried")) == 1


def test_what_a_later_rule_refuses_blocks_no_other_change(app: Flask, run: Any) -> None:
    id_ = create(run)["id"]
    with app.app_context():
        webhook = db.session.scalars(select(Webhook)).one()
        webhook.url, webhook.events = "https://[fe80::1]/x", ["signed_in", "no_more"]
        db.session.commit()
    done = run("update", id_, "--add-event", "signed_up")
    assert done.exit_code == 0, done.stderr
    assert run("update", id_, "--url", "https://[fe80::1]/y").exit_code != 0
    assert run("update", id_, "--add-event", "never").exit_code != 0
    with app.app_context():
        webhook = db.session.scalars(select(Webhook)).one()
        assert webhook.url == "https://[fe80::1]/x"
        assert set(webhook.events) == {"signed_in", "signed_up"}
