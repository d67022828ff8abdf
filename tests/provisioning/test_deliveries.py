"""What was sent, in administration and at the command line: each delivery with its tries."""

import json
from dataclasses import replace

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import audit
from sso.audit import writer
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import ScimDelivery
from sso.services import accounts
from sso.store import scim_deliveries
from tests.conftest import Clock
from tests.support.administration import ADMIN, sign_in_staff
from tests.support.factories import make_user
from tests.support.scim_receivers import (
    Answer,
    Hostile,
    InMemory,
    Request,
    answer,
    change,
    connect,
    work,
)

pytestmark = pytest.mark.slow

DANA, ERIN = "dana@example.com", "erin@example.com"
PAGE = f"{ADMIN}/application/provisioning/deliveries"
Row = tuple[str, str, str | None, int | None, int]


def rows(app: Flask, client_id: str, text: str = "") -> list[Row]:
    """What is listed, oldest first."""
    with app.app_context():
        return [
            (row.kind, row.name, row.action, row.status, row.attempts)
            for row in reversed(scim_deliveries.newest(client_id, text, 100))
        ]


def test_each_delivery_is_listed(app: Flask, clock: Clock, there: InMemory) -> None:
    dana = make_user(app, groups=["staff"])
    client_id = connect(app, there.url)
    work(app)
    with app.app_context():
        accounts.update(audit.SYSTEM, dana.id, name="Dana Duck")
        db.session.commit()
    work(app)
    with app.app_context():
        accounts.update(audit.SYSTEM, dana.id, disabled=True)
        db.session.commit()
    work(app)
    change(app, client_id, scim_attributes=[])  # everybody is looked at; nothing is sent
    work(app)
    assert rows(app, client_id) == [
        ("user", DANA, "created", 201, 1),
        ("user", DANA, "changed", 200, 1),
        ("user", DANA, "deactivated", 204, 1),
    ]


def test_tries_of_a_change_are_one_row(app: Flask, clock: Clock) -> None:
    """So a service that is away for days leaves no more rows than people changed."""
    dana = make_user(app, groups=["staff"])
    status = 400

    def reply(request: Request) -> Answer:
        return answer(404) if "Schemas" in request.path else answer(status, {"id": "7"})

    hostile = Hostile(reply)
    with hostile.listening() as url:
        client_id = connect(app, url)
        for _ in range(3):
            work(app)
            clock.move(minutes=5)
        assert rows(app, client_id) == [("user", DANA, None, 400, 3)]
        status = 201
        work(app)
        assert rows(app, client_id) == [("user", DANA, "created", 201, 4)]
        status = 503
        with app.app_context():
            accounts.update(audit.SYSTEM, dana.id, disabled=True)
            db.session.commit()
        work(app)
        assert rows(app, client_id)[1:] == [("user", DANA, None, 503, 1)]
    clock.move(hours=1)
    work(app)  # nobody answers
    assert rows(app, client_id)[1:] == [("user", DANA, None, None, 2)]


def test_they_are_kept_for_seven_days(app: Flask, clock: Clock, there: InMemory) -> None:
    make_user(app, groups=["staff"])
    client_id = connect(app, there.url)
    work(app)
    with app.app_context():
        clock.move(days=7, seconds=-2)
        upkeep.purge()
        assert db.session.scalar(select(func.count()).select_from(ScimDelivery)) == 1
        clock.move(seconds=4)
        upkeep.purge()
        assert db.session.scalar(select(func.count()).select_from(ScimDelivery)) == 0
    assert rows(app, client_id) == []
    change(app, client_id, scim_url=None)


def test_the_page(app: Flask, clock: Clock) -> None:
    dana = make_user(app, groups=["staff"])
    make_user(app, ERIN, groups=["staff"])

    def reply(request: Request) -> Answer:
        if request.method == "GET":
            return answer(200, {"totalResults": 0, "Resources": []})
        if "/Groups" in request.path:
            return answer(201, {"id": "9"})
        schemas = ["urn:ietf:params:scim:api:messages:2.0:Error"]
        fault = {"schemas": schemas, "detail": "<i>no</i>", "status": "403"}
        is_dana = request.body["userName"] == DANA
        return answer(422, fault) if is_dana else answer(201, {"id": "7"})

    hostile = Hostile(reply)
    with hostile.listening() as url:
        client_id = connect(app, url, scim_groups=True)
        work(app)
        staff = sign_in_staff(app)
        people = staff.open(f"{PAGE.removesuffix('/deliveries')}?id={client_id}").html
        assert f"provisioning/deliveries?id={client_id}" in people
        page = staff.open(f"{PAGE}?id={client_id}").html
        assert {DANA, ERIN} <= set(page.replace("<", ">").split(">"))
        assert "&lt;i&gt;no&lt;/i&gt;" in page
        assert "<i>no" not in page
        for query, is_dana, is_erin in (
            ("q=DANA@", True, False),
            (f"q={dana.id}", True, False),
            ("state=failed", True, False),
            ("state=done", False, True),
            ("q=%25", False, False),
            ("q=nobody", False, False),
            ("state=nonsense", True, True),
        ):
            page = staff.open(f"{PAGE}?id={client_id}&{query}").html
            assert (f">{DANA}<" in page, f">{ERIN}<" in page) == (is_dana, is_erin), query
        before = rows(app, client_id, DANA)
        page = staff.open(f"{PAGE}?id={client_id}&q=dana").html
        retry = page.partition("provisioning/retry?id=")[2].partition('"')[0]
        staff.open(f"{ADMIN}/application/provisioning/retry?id={retry}")
        assert "sent again now" in staff.submit().html
        work(app)
        # It is a delivery of its own.
        assert rows(app, client_id, DANA) == [*before, ("user", DANA, None, 422, 1)]
    assert staff.open(f"{PAGE}?id=nothing").status == 404


def test_who_may_not_see_people_sees_none(
    app: Flask, clock: Clock, there: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_user(app, groups=["staff"])
    client_id = connect(app, there.url)
    work(app)
    roles = replace(app.extensions["sso.settings"], admin_roles="wiki=applications")
    monkeypatch.setitem(app.extensions, "sso.settings", roles)
    staff = sign_in_staff(app, "wim@example.com", "wiki")
    page = staff.open(f"{PAGE}?id={client_id}&q=dana")
    assert page.status == 200
    assert DANA not in page.html
    assert "you also need the permission people-read" in page.html


def test_the_command(app: Flask, there: InMemory) -> None:
    dana = make_user(app, groups=["staff"])
    make_user(app, ERIN, groups=["staff"])
    client_id = connect(app, there.url)
    work(app)
    writer.flush(app)

    def run(*arguments: str) -> str:
        command = ["scim", "deliveries", client_id, *arguments]
        return app.test_cli_runner().invoke(args=command).stdout

    assert DANA in run()
    assert DANA not in run("--person", "erin")
    (row,) = json.loads(run("--person", str(dana.id), "--json"))
    assert (row["name"], row["done"], row["status"], row["error"]) == (DANA, "created", 201, None)
