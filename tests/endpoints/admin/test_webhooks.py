"""Webhooks in administration: created, changed, tested, delivered again, disabled, deleted."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask

from sso import audit, clock, context
from sso.audit.events import WEBHOOK_EVENTS
from sso.extensions import db
from sso.models import Webhook, WebhookDelivery
from sso.services import webhooks
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store.lists import PAGE
from tests.endpoints.admin.test_lists import exported
from tests.jobs.test_webhook_delivery import Receiver, deliver
from tests.support.actors import ORIGIN
from tests.support.administration import ADMIN, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.events import events
from tests.support.factories import make_user
from tests.support.processes import free_port

pytestmark = pytest.mark.slow

URL = "https://hooks.example/sso?a=1"


@pytest.fixture
def ada(app: Flask) -> StaffBrowser:
    return sign_in_staff(app)


def add(app: Flask, url: str = URL, *names: str) -> UUID:
    with app.app_context():
        webhook, _ = webhooks.create(audit.SYSTEM, url, names or ("user_changed",))
        db.session.commit()
        return webhook.id


def find(app: Flask, webhook_id: UUID) -> Webhook | None:
    with app.app_context():
        return db.session.get(Webhook, webhook_id)


def test_one_is_created_and_its_secret_shown_once(app: Flask, ada: StaffBrowser) -> None:
    assert "There is no webhook yet." in ada.open(f"{ADMIN}/webhooks").html
    page = ada.open(f"{ADMIN}/webhook/new")
    assert all(f'value="{event}"' in page.html for event in WEBHOOK_EVENTS)
    page = ada.send(url=URL, events=["user_deleted", "signed_in"])
    secret = re.search("whsec_[A-Za-z0-9+/=]+", page.html)
    assert secret, page.html
    listed = ada.open(f"{ADMIN}/webhooks").html
    link = re.search(r'href="([^"]*admin/webhook\?id=[^"]*)"', listed)
    assert link
    html = ada.open(ORIGIN + link[1]).html
    assert "hooks.example/sso?a=1" in html
    assert "user_deleted" in html
    assert "whsec_" not in listed + html
    (event,) = events(app, "webhook_created")
    assert event["operator"] == "ada@example.com"


@pytest.mark.parametrize(
    ("url", "names", "reason"),
    [
        ("http://hooks.example/", ["signed_in"], "it is not https"),
        ("https://169.254.169.254/", ["signed_in"], "address that is never called"),
        ("https://a.example/<script>", ["signed_in"], "characters that a URL may not have"),
        ("https://a.example/#x", ["signed_in"], "it has a fragment"),
        ("", ["signed_in"], "Enter a URL."),
        ("https://" + "x" * 3000, ["signed_in"], "too long"),
        (URL, [], "Choose at least one."),
        (URL, ["sign_in_failed"], 'class="fault"'),
    ],
)
def test_what_is_refused(
    app: Flask, ada: StaffBrowser, url: str, names: list[str], reason: str
) -> None:
    webhook_id = add(app)
    for path in ("webhook/new", f"webhook/edit?id={webhook_id}"):
        ada.open(f"{ADMIN}/{path}")
        page = ada.send(url=url, events=names)
        assert page.status == 200
        assert reason in page.html, path
        assert "Nothing was changed." in page.html
    assert events(app, "webhook_created", "webhook_changed")[1:] == []


def test_there_are_only_so_many(app: Flask, ada: StaffBrowser) -> None:
    add(app)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webhooks, "MOST", 1)
        assert "/webhook/new" not in ada.open(f"{ADMIN}/webhooks").html
        ada.open(f"{ADMIN}/webhook/new")
        assert "there are 1 webhooks already" in ada.send(url=URL, events=["signed_in"]).html


def test_two_administrators_who_edit_the_same_webhook(app: Flask, ada: StaffBrowser) -> None:
    webhook_id = add(app, URL, "signed_in", "user_deleted")
    ada.open(f"{ADMIN}/webhook/edit?id={webhook_id}")
    with app.app_context():
        webhooks.change(audit.SYSTEM, webhook_id, events=ListEdit(added=("user_created",)))
        db.session.commit()
    page = ada.send(url=f"{URL}&b=2")
    assert page.status == 409
    assert "user_created" in page.html
    assert "The changes were saved." in ada.send().html
    webhook = find(app, webhook_id)
    assert webhook
    assert webhook.url == f"{URL}&b=2"
    assert webhook.events == ["signed_in", "user_created", "user_deleted"]
    ada.open(f"{ADMIN}/webhook/edit?id={webhook_id}")
    with app.app_context():
        webhooks.delete(audit.SYSTEM, webhook_id)
        db.session.commit()
    assert ada.send(url=URL).status == 404


def test_disabled_enabled_deleted(app: Flask, ada: StaffBrowser) -> None:
    webhook_id = add(app)
    act = f"{ADMIN}/webhook/act?id={webhook_id}&do="
    assert ada.open(f"{act}enable").status == 404
    for action, text in (("disable", "was disabled"), ("enable", "was enabled"),
                         ("delete", "was deleted")):  # fmt: skip
        ada.open(f"{act}{action}")
        assert f"The webhook {text}." in ada.submit().html
    assert find(app, webhook_id) is None
    names = ("webhook_disabled", "webhook_enabled", "webhook_deleted")
    assert [event["operator"] for event in events(app, *names)] == ["ada@example.com"] * 3


def test_a_test_event_tells_the_status_alone(app: Flask, ada: StaffBrowser) -> None:
    """The answer may be any page in the network of the server."""
    receiver = Receiver(200, b"inner secrets")
    with receiver.listening() as url:
        ada.open(f"{ADMIN}/webhook/test?id={add(app, url)}")
        page = ada.submit()
        assert "it answered 200" in page.html, page.html
        receiver.status = 500
        refused = ada.submit()
    assert "it answered 500, which is not 2xx" in refused.html
    assert "inner secrets" not in page.html + refused.html
    assert len(receiver.got) == 2
    ada.open(f"{ADMIN}/webhook/test?id={add(app, f'http://127.0.0.1:{free_port()}/')}")
    assert "ConnectionRefusedError" in ada.submit().html
    told = events(app, "webhook_tested")
    assert [event.get("status") for event in told] == ["200", "500", None]
    assert {event["operator"] for event in told} == {"ada@example.com"}


def test_a_delivery_is_tried_again(app: Flask, ada: StaffBrowser) -> None:
    receiver = Receiver(503)
    with receiver.listening() as url:
        webhook_id = add(app, url, "user_created")
        with app.app_context():
            delivery = WebhookDelivery(webhook_id=webhook_id, event="user_created", body="{}")
            delivery.next_attempt_at = clock.now()
            db.session.add(delivery)
            db.session.commit()
            delivery_id = delivery.id
        deliver(app)
        html = ada.open(f"{ADMIN}/webhook?id={webhook_id}").html
        assert "it answered 503" in html
        retry = f"{ADMIN}/webhook/retry?id={delivery_id}"
        assert ada.open(retry).status == 404  # it is about to be tried
        with app.app_context():
            stored = db.session.get_one(WebhookDelivery, delivery_id)
            stored.next_attempt_at = None
            db.session.get_one(Webhook, webhook_id).retry_at = clock.now() + timedelta(hours=1)
            db.session.commit()
        ada.open(retry)
        receiver.status = 204
        assert "The delivery is tried again now." in ada.submit().html
        assert deliver(app) == 1
    assert len(receiver.got) == 2
    assert "delivered" in ada.open(f"{ADMIN}/webhook?id={webhook_id}").html
    assert ada.open(retry).status == 404
    (event,) = events(app, "webhook_retried")
    assert (event["delivery"], event["operator"]) == (str(delivery_id), "ada@example.com")


def test_a_delivery_of_a_webhook_that_was_disabled_meanwhile(app: Flask, ada: StaffBrowser) -> None:
    webhook_id = add(app)
    with app.app_context():
        delivery = WebhookDelivery(webhook_id=webhook_id, event="signed_in", body="{}", attempts=1)
        db.session.add(delivery)
        db.session.flush()
        delivery.next_attempt_at = None
        db.session.commit()
        delivery_id = delivery.id
    ada.open(f"{ADMIN}/webhook/retry?id={delivery_id}")
    with app.app_context():
        webhooks.disable(audit.SYSTEM, webhook_id)
        db.session.commit()
    assert "The webhook is disabled." in ada.submit().html
    assert "webhook/retry" not in ada.open(f"{ADMIN}/webhook?id={webhook_id}").html


def test_pages_of_deliveries_cost_the_same(app: Flask, ada: StaffBrowser, statements: Any) -> None:
    webhook_id = add(app, "https://hooks.example/%3Cb%3E")
    with app.app_context():
        for _ in range(2 * PAGE + 1):
            db.session.add(WebhookDelivery(webhook_id=webhook_id, event="signed_in", body="{}"))
        db.session.commit()
    url, total, counts = f"{ADMIN}/webhook?id={webhook_id}", 0, []
    while url:
        with statements() as run:
            html = ada.open(url).html
        counts.append(len(run))
        total += html.count('<th scope="row">')
        link = re.search(r'rel="next" href="([^"]*)"', html)
        url = ORIGIN + link[1].replace("&amp;", "&") if link else ""
    assert (total, len(counts), len(set(counts))) == (2 * PAGE + 1, 3, 1)


def test_ids_that_are_none_and_the_helpdesk(app: Flask, ada: StaffBrowser) -> None:
    paths = ("webhook?id=", "webhook/edit?id=", "webhook/test?id=", "webhook/retry?id=",
             "webhook/act?do=delete&id=")  # fmt: skip
    for bad in ("", "x", "%00", "a" * 900, str(uuid4())):
        for path in paths:
            assert ada.open(f"{ADMIN}/{path}{bad}").status == 404
    webhook_id = add(app)
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    for path in ("webhooks", "webhook/new", *(f"{path}{webhook_id}" for path in paths)):
        assert hal.open(f"{ADMIN}/{path}").status == 404
        assert hal.open(f"{ADMIN}/{path}", "POST", data={}).status == 404
    assert find(app, webhook_id)


def test_only_commands_reach_programs_on_the_machine_of_a_server(app: Flask) -> None:
    """An administrator in a browser is not the operator of the machine."""
    dana = make_user(app)
    with app.app_context():
        public = replace(context.settings(), base_url="https://id.example/api/auth")
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(app.extensions, "sso.settings", public)
            administrator = audit.Actor("ada", user_id=dana.id)
            with pytest.raises(Invalid, match="http is for commands"):
                webhooks.create(administrator, "http://127.0.0.1:9090/", ["signed_in"])
            assert webhooks.create(audit.SYSTEM, "http://127.0.0.1:9090/", ["signed_in"])


def test_the_list_is_filtered_sorted_and_exported(app: Flask, ada: StaffBrowser) -> None:
    ids = {name: add(app, f"https://{name}.example/") for name in ("zeta", "beta", "alpha")}
    with app.app_context():
        webhooks.disable(audit.SYSTEM, ids["beta"])
        row = db.session.get(Webhook, ids["alpha"])
        assert row
        row.failing_since = clock.now()
        disabled = db.session.get(Webhook, ids["beta"])
        assert disabled
        disabled.failing_since = clock.now()  # it is disabled all the same
        db.session.commit()
    expected = {
        "": ["zeta", "beta", "alpha"], "sort=url": ["alpha", "beta", "zeta"],
        "sort=x&state=x": ["zeta", "beta", "alpha"], "state=active": ["zeta"],
        "state=failing": ["alpha"], "state=disabled": ["beta"], "q=ETA&sort=url": ["beta", "zeta"],
        "q=nothing": [], "q=%25": [], "n=9": ["zeta", "beta", "alpha"],
    }  # fmt: skip
    for query, names in expected.items():
        html = ada.open(f"{ADMIN}/webhooks?{query}").html
        assert f"Entries: {len(names)}" in html, query
        places = [html.index(f">https://{name}.example/<") for name in names]
        assert places == sorted(places), query
        rows = exported(ada, "webhooks", query)
        assert [row["url"] for row in rows] == [f"https://{name}.example/" for name in names]
    assert [row["state"] for row in exported(ada, "webhooks")] == ["active", "disabled", "failing"]
    assert "whsec" not in ada.open(f"{ADMIN}/webhooks/export").html
    assert any(row["what"] == "webhooks as csv" for row in events(app, "exported"))


def test_several_are_disabled_at_once(app: Flask, ada: StaffBrowser) -> None:
    ids = [str(add(app, f"https://{name}.example/")) for name in "abc"]
    ada.open(f"{ADMIN}/webhooks?sort=url")
    page = ada.send(do="disable", item=[ids[0], ids[1], str(uuid4()), "x"])
    assert "Entries that this applies to: 2" in page.html
    page = ada.send(item=ids[:2])
    assert "sort=url" in page.url
    rows = [find(app, UUID(each)) for each in ids]
    assert [bool(row and row.disabled_at) for row in rows] == [True, True, False]
    ada.open(f"{ADMIN}/webhooks")
    assert "Entries that this applies to: 2" in ada.send(do="enable", item=ids).html
