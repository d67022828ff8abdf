"""`flask scim` and the page of administration, with a real receiver."""

import json
from typing import Any, cast

import pytest
from click.testing import Result
from flask import Flask
from sqlalchemy import select

from sso import audit, context
from sso.audit import writer
from sso.checkup import components
from sso.crypto import secrets
from sso.extensions import db
from sso.jobs import upkeep
from sso.metrics import gauges
from sso.models import AuditEvent
from sso.provisioning.receiver import Receiver
from sso.services import accounts
from tests.conftest import Clock
from tests.support.administration import ADMIN, sign_in_staff
from tests.support.factories import make_client, make_user
from tests.support.scim_receivers import (
    Hostile,
    InMemory,
    answer,
    change,
    connect,
    people_of,
    receiver_of,
    work,
)

pytestmark = pytest.mark.slow

DANA, ERIN = "dana@example.com", "erin@example.com"


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        writer.flush(app)
        return app.test_cli_runner().invoke(args=arguments, input=stdin)

    return invoke


def test_from_registration_to_the_first_account(app: Flask, run: Any, there: InMemory) -> None:
    make_user(app, groups=["staff"])
    client_id = make_client(app).client_id
    refused = run("client", "update", client_id, "--scim-url", there.url)
    assert "require a group, or give --scim-everyone" in refused.stderr
    told = run("client", "update", client_id, "--scim-url", there.url, "--add-group", "staff")
    assert told.exit_code == 0, told.stderr
    assert "it answered 401" in run("scim", "test", client_id).stderr
    assert run("scim", "token", client_id, stdin="a-token\n").exit_code == 0
    assert run("scim", "test", client_id).exit_code == 0
    work(app)
    (row,) = json.loads(run("scim", "list", "--json").stdout)
    assert (row["active"], row["waiting"], row["has_token"]) == (1, 0, True)
    assert "ok" in run("scim", "list").stdout
    shown = json.loads(run("scim", "show", client_id, "--json").stdout)
    (person,) = shown["people"]
    assert (person["name"], person["active"], person["last_action"]) == (DANA, True, "created")
    assert DANA in run("scim", "show", client_id).stdout
    assert run("scim", "retry", person["id"]).exit_code == 0
    assert run("scim", "retry", "1" * 32).exit_code == 1
    assert run("scim", "token", client_id, "--remove").exit_code == 0
    assert receiver_of(app, client_id).sealed_token is None
    assert "has no SCIM URL" in run("scim", "plan", make_client(app).client_id).stderr


@pytest.mark.parametrize("text", ["", "two words", "x" * 4001, "ünsafe"])
def test_tokens_that_are_none(app: Flask, run: Any, there: InMemory, text: str) -> None:
    client_id = connect(app, there.url, token=None)
    assert run("scim", "token", client_id, stdin=f"{text}\n").exit_code == 1
    assert receiver_of(app, client_id).sealed_token is None


def test_differences_are_shown_and_repaired(app: Flask, run: Any, there: InMemory) -> None:
    dana = make_user(app, groups=["staff"])
    make_user(app, ERIN, groups=["staff"])
    make_user(app, "finn@example.com", groups=["staff"])
    gone = make_user(app, "gil@example.com", groups=["staff"])
    client_id = connect(app, there.url)
    work(app)
    assert run("scim", "plan", client_id).stdout == "There is no difference.\n"
    with app.app_context():
        accounts.update(audit.SYSTEM, gone.id, disabled=True)
        db.session.commit()
    work(app)
    rows = {row.user_name: row for row in cast(Any, there.storage.resources)}
    rows[DANA].display_name = "Somebody"
    rows[ERIN].active = False
    rows["gil@example.com"].active = True
    receiver = Receiver(there.url, "a-token")
    receiver.delete(rows["finn@example.com"].id)
    receiver.create({"userName": "other@example.com", "externalId": "other", "active": False})
    before = len(there.requests)
    told = run("scim", "plan", client_id, "--json")
    assert told.exit_code == 1
    assert {(row["name"], row["what"]) for row in json.loads(told.stdout)} == {
        (DANA, "different"),
        (ERIN, "inactive"),
        ("finn@example.com", "missing"),
        ("gil@example.com", "still active"),
        ("other@example.com", "unknown here"),
    }
    assert [line.split()[0] for line in there.requests[before:]] == ["GET"]
    told = run("scim", "sync", client_id)
    assert told.exit_code == 0, told.stderr
    assert there.users[DANA]["displayName"] == "Dana Demo"
    assert there.users[ERIN]["active"] is True
    assert there.users["finn@example.com"]["active"] is True
    assert there.users["gil@example.com"]["active"] is False
    assert there.users["other@example.com"]["active"] is False  # left alone
    left = json.loads(run("scim", "plan", client_id, "--json").stdout)
    assert [row["what"] for row in left] == ["unknown here"]
    assert people_of(app, client_id)[DANA].subject_id == dana.id


def test_a_repair_that_is_interrupted_goes_on(app: Flask, clock: Clock, run: Any) -> None:
    """The receiver breaks down in its middle; the worker does the rest."""
    for number in range(8):
        make_user(app, f"p{number}@example.com", groups=["staff"], password=None)
    replies = [answer(200, {"totalResults": 0, "Resources": []})]
    replies += [answer(201, {"id": str(number)}) for number in range(3)]
    hostile = Hostile(lambda _: replies.pop(0) if replies else answer(503))
    with hostile.listening() as url:
        client_id = connect(app, url)
        told = run("scim", "sync", client_id)
        assert "5 people are not sent yet: it answered 503" in told.stderr
        assert len([row for row in people_of(app, client_id).values() if row.is_active]) == 3
        hostile.reply = lambda request: answer(201, {"id": f"id-{request.body['userName']}"})
        clock.move(seconds=10)
        work(app)
        work(app)
        assert all(row.is_active for row in people_of(app, client_id).values())


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://wiki.example/scim", "it is not https"),
        ("https://wiki.example/scim?x=1", "it has a query or a fragment"),
        ("https://169.254.169.254/scim", "never called"),
        ("ftp://wiki.example", "it is not https"),
        ("https://a:b@wiki.example/", "a user name"),
        ("x" * 3000, "longer than"),
    ],
)
def test_urls_that_are_refused(app: Flask, run: Any, url: str, fault: str) -> None:
    client_id = make_client(app, groups=["staff"]).client_id
    assert fault in run("client", "update", client_id, "--scim-url", url).stderr


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("title", "it is not NAME=SOURCE"),
        ("title=groups:x", "it is not NAME=SOURCE"),
        ("title@id_token=constant:x", "it is not NAME=SOURCE"),
        ("active=constant:false", "is none of"),
        ("externalId=constant:1", "is none of"),
        ("title=attribute:nothing", "there is no attribute"),
        ("title=constant:", "the source of the SCIM attribute title is refused"),
    ],
)
def test_attributes_that_are_refused(app: Flask, run: Any, entry: str, fault: str) -> None:
    client_id = make_client(app, groups=["staff"]).client_id
    assert fault in run("client", "update", client_id, "--add-scim-attribute", entry).stderr


def test_an_attribute_that_is_sent_is_not_deleted(app: Flask, run: Any, there: InMemory) -> None:
    assert run("attribute", "define", "job", "--type", "string").exit_code == 0
    connect(app, there.url, scim_attributes=["title=attribute:job"])
    assert run("attribute", "delete", "job", "--yes").exit_code == 1


def test_the_token_follows_the_secret_key_and_not_the_url(app: Flask, there: InMemory) -> None:
    client_id = connect(app, there.url)
    sealed = receiver_of(app, client_id).sealed_token
    assert sealed
    with app.app_context():
        assert secrets.decrypt_scim_token(context.settings().secret_keys, sealed) == "a-token"
        assert upkeep.reencrypt_scim_tokens() == (0, ())
    change(app, client_id, scim_url=f"{there.url}/v2")
    assert receiver_of(app, client_id).sealed_token == sealed
    change(app, client_id, scim_url="https://evil.example/scim")
    assert receiver_of(app, client_id).sealed_token is None


def test_what_operators_see(app: Flask, clock: Clock) -> None:
    """Metrics, doctor, events."""
    make_user(app, groups=["staff"])
    hostile = Hostile(lambda _: answer(503))
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        with app.app_context():
            depths = gauges._outbox_depths()
            assert isinstance(depths, dict)
            assert depths[("scim",)] == 1
            assert [finding.status for finding in components.provisioning()] == ["ok"]
        clock.move(hours=2)
        with app.app_context():
            (finding,) = components.provisioning()
            assert finding.status == "warning"
            assert "failing since" in finding.seen
        hostile.reply = lambda _: answer(201, {"id": "7"})
        work(app)
        writer.flush(app)
        with app.app_context():
            event = db.session.scalars(
                select(AuditEvent).where(AuditEvent.name == "provisioned")
            ).one()
            assert (event.client_id, json.loads(event.fields)["what"]) == (client_id, "created")


def test_the_pages_of_an_administrator(app: Flask, clock: Clock, there: InMemory) -> None:
    make_user(app, groups=["staff"])
    client_id = connect(app, there.url, token=None)
    work(app)
    staff = sign_in_staff(app)
    page = f"{ADMIN}/application/provisioning"
    shown = staff.open(f"{ADMIN}/application?id={client_id}").html
    assert "it answered 401" in shown
    assert f"provisioning?id={client_id}" in shown
    assert "it answered 401" in staff.open(f"{page}?id={client_id}").html
    staff.open(f"{page}/test?id={client_id}")
    assert "it answered 401" in staff.submit().html
    staff.open(f"{page}/token?id={client_id}")
    assert "ASCII" in staff.submit(token="two words").html
    staff.open(f"{page}/token?id={client_id}")
    assert "The token was saved." in staff.submit(token="a-token").html
    staff.open(f"{page}/test?id={client_id}")
    assert "takes the token" in staff.submit().html
    (row,) = people_of(app, client_id).values()
    staff.open(f"{page}/retry?id={row.id}")
    assert "sent again now" in staff.submit().html
    work(app)
    shown = staff.open(f"{page}?id={client_id}&state=there").html
    assert DANA in shown
    assert "created" in shown
    assert DANA not in staff.open(f"{page}?id={client_id}&state=failed").html
    other = make_client(app).client_id
    for path in (page, f"{page}/test", f"{page}/token"):
        assert staff.open(f"{path}?id={other}").status == 404
    assert "Deliveries, token" not in staff.open(f"{ADMIN}/application?id={other}").html
