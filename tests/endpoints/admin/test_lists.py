"""Lists of administration: emails, API tokens, refused requests and deliveries of webhooks. Their
filters, pages, files, and what is done with several entries at once.
"""

import csv
import io
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask

from sso import audit, clock
from sso.audit import Actor
from sso.errors import NotAllowed
from sso.extensions import db
from sso.flow.permissions import ROLES
from sso.models import Mail, Refusal, User, WebhookDelivery
from sso.services import api_tokens, authentication, webhooks
from sso.store import keys, sessions, users
from sso.store import webhooks as stored_webhooks
from sso.store.lists import PAGE
from tests.conftest import Clock
from tests.support.actors import ORIGIN, Browser
from tests.support.administration import ADMIN, ADMINS, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.events import events
from tests.support.factories import make_client, make_user

pytestmark = pytest.mark.slow

FORMULA = "=cmd|calc"


@pytest.fixture
def ada(app: Flask) -> StaffBrowser:
    return sign_in_staff(app)


def in_database(app: Flask, make: Callable[[], Any]) -> Any:
    with app.app_context():
        made = make()
        db.session.commit()
        return made


def token(app: Flask, name: str = "Payroll") -> UUID:
    def make() -> UUID:
        return api_tokens.create(audit.operator(), name, ["scim:read"], timedelta(days=30))[0].id

    return UUID(str(in_database(app, make)))


def mail(app: Flask, address: str, **values: Any) -> UUID:
    def make() -> UUID:
        row = Mail(kind="reset", address=address, **values)
        db.session.add(row)
        db.session.flush()
        row.next_attempt_at = None
        return row.id

    usual: dict[str, Any] = {"attempts": 7, "last_fault": FORMULA}
    values = {**usual, **values}
    return UUID(str(in_database(app, make)))


def refusal(app: Flask, number: int = 0) -> str:
    def make() -> str:
        row = Refusal(
            request_id=f"aaaa-{number:04}", at=clock.now() - timedelta(seconds=number), bucket=0,
            name="authorization_refused", endpoint="authorize", details="{}",
        )  # fmt: skip
        db.session.add(row)
        return row.request_id

    return str(in_database(app, make))


def exported(browser: StaffBrowser, path: str, query: str = "") -> list[dict[str, str]]:
    text = browser.open(f"{ADMIN}/{path}/export?{query}").html
    return list(csv.DictReader(io.StringIO(text)))


def walked(browser: StaffBrowser, url: str) -> list[str]:
    """The pages of a list, by the link to the next one."""
    pages = []
    while url:
        page = browser.open(url)
        assert page.status == 200
        pages.append(page.html)
        link = re.search(r'rel="next" href="([^"]*)"', page.html)
        url = ORIGIN + link[1].replace("&amp;", "&") if link else ""
    return pages


def test_tokens_are_filtered_and_exported(app: Flask, ada: StaffBrowser) -> None:
    ids = {name: token(app, name) for name in ("Payroll", FORMULA, "100%", "Old")}

    def age() -> None:
        row = keys.find_api_token(ids["Old"])
        assert row
        row.expires_at = clock.now() - timedelta(seconds=1)
        api_tokens.revoke(audit.operator(), ids["100%"])

    in_database(app, age)
    expected = {
        "": {"Payroll", FORMULA, "100%", "Old"}, "state=valid": {"Payroll", FORMULA},
        "state=expired": {"Old"}, "state=revoked": {"100%"}, "q=PAY": {"Payroll"},
        "q=%25": {"100%"}, "q=_": set(), "q=pay&state=revoked": set(), "state=x&q=old": {"Old"},
    }  # fmt: skip
    for query, found in expected.items():
        html = ada.open(f"{ADMIN}/api-tokens?{query}").html
        assert f"Entries: {len(found)}" in html
        rows = exported(ada, "api-tokens", query)
        assert {row["name"].removeprefix("'") for row in rows} == found, query
    assert "'" + FORMULA in {row["name"] for row in exported(ada, "api-tokens")}
    assert "sso_api_" not in ada.open(f"{ADMIN}/api-tokens/export").html
    assert any(row["what"] == "API tokens as csv" for row in events(app, "exported"))


def test_several_tokens_are_revoked(app: Flask, ada: StaffBrowser) -> None:
    ids = [token(app, name) for name in ("a", "b", "c")]
    ada.open(f"{ADMIN}/api-tokens?q=&state=valid")
    page = ada.send(do="revoke", item=[str(each) for each in ids[:2]])
    assert "Entries that this applies to: 2" in page.html
    assert states(app, ids) == ["valid"] * 3
    page = ada.send(item=[str(each) for each in ids[:2]])
    assert "The changes were saved for the entries that you chose." in page.html
    assert "state=valid" in page.url
    assert states(app, ids) == ["revoked", "revoked", "valid"]
    # What does not apply any more is left out.
    ada.open(f"{ADMIN}/api-tokens")
    assert "Entries that this applies to: 1" in ada.send(
        do="revoke", item=[str(each) for each in ids]
    ).html  # fmt: skip
    assert len(events(app, "api_token_revoked")) == 2


def states(app: Flask, ids: list[UUID]) -> list[str]:
    def read() -> list[str]:
        rows = {row.id: row for row in keys.every_api_token()}
        return [rows[each].state for each in ids]

    return [str(state) for state in in_database(app, read)]


def test_emails_are_exported_as_they_are_filtered(app: Flask, ada: StaffBrowser) -> None:
    mail(app, "dana@example.com", details={"session": "secret"})
    in_database(app, lambda: db.session.add(Mail(kind="reset", address="new@example.com")))
    rows = exported(ada, "emails", "state=failed")
    assert [(row["to"], row["state"], row["last_fault"]) for row in rows] == [
        ("dana@example.com", "given up", "'" + FORMULA)
    ]
    assert [row["to"] for row in exported(ada, "emails", "q=new@example.com")] == [
        "new@example.com"
    ]
    assert "secret" not in ada.open(f"{ADMIN}/emails/export").html


@pytest.mark.parametrize(("do", "event"), [("resend", "mail_resent"), ("delete", "mail_deleted")])
def test_several_emails_are_sent_again_or_deleted(
    app: Flask, ada: StaffBrowser, do: str, event: str
) -> None:
    ids = [str(mail(app, f"{name}@example.com")) for name in "abc"]
    ada.open(f"{ADMIN}/emails?state=failed")
    page = ada.send(do=do, item=ids[:2])
    assert "a@example.com" in page.html
    assert "c@example.com" not in page.html
    page = ada.send(item=ids[:2])
    assert "The changes were saved for the entries that you chose." in page.html
    assert "a@example.com" not in page.html.split("<tbody>")[-1]
    assert "c@example.com" in page.html
    assert len(events(app, event)) == 2


@pytest.mark.parametrize("path", ["emails", "api-tokens"])
def test_odd_choices_change_nothing(app: Flask, ada: StaffBrowser, path: str) -> None:
    ids = [str(mail(app, "a@example.com")), str(token(app))]
    for chosen in ([], ["x"], ["\0"], [str(uuid4())], ["x" * 5000]):
        ada.open(f"{ADMIN}/{path}")
        page = ada.send(do="revoke" if path == "api-tokens" else "delete", item=chosen)
        assert page.status == 200
        assert "Choose at least one entry." in page.html
    ada.open(f"{ADMIN}/{path}")
    assert ada.send(do="drop", item=ids).status == 200
    # More than a page of them are never changed by one request.
    task = "revoke" if path == "api-tokens" else "delete"
    ada.open(f"{ADMIN}/{path}")
    assert "Choose at least one entry." in ada.send(do=task, item=["x"] * PAGE + ids).html
    assert states(app, [UUID(ids[1])]) == ["valid"]


def test_refusals_have_pages_and_a_file(app: Flask, ada: StaffBrowser) -> None:
    ids = [refusal(app, number) for number in range(PAGE + 1)]
    pages = walked(ada, f"{ADMIN}/refusals")
    assert len(pages) == 2
    assert f"Entries: {PAGE + 1}" in pages[0]
    listed = [each for page in pages for each in re.findall(r'q=(aaaa-\d{4})"', page)]
    assert listed == ids
    rows = exported(ada, "refusals")
    assert [row["id"] for row in rows] == ids
    client_id = make_client(app).client_id
    assert exported(ada, "refusals", f"client={client_id}") == []
    assert "No request was refused." in ada.open(f"{ADMIN}/refusals?client={client_id}").html
    for client in ("unknown", "%00", "%C3%A9"):
        for path in ("refusals", "refusals/export"):
            assert ada.open(f"{ADMIN}/{path}?client={client}").status == 404


def deliveries(app: Flask, count: int) -> tuple[UUID, list[UUID]]:
    """A webhook and its deliveries, oldest first: the first one arrived, the others did not."""

    def make() -> tuple[UUID, list[UUID]]:
        webhook, _ = webhooks.create(audit.operator(), "https://a.example/hook", ["user_created"])
        made = []
        for number in range(count):
            row = WebhookDelivery(
                webhook_id=webhook.id, event="user_created", body="{}", attempts=number,
            )  # fmt: skip
            db.session.add(row)
            db.session.flush()
            row.next_attempt_at = None
            row.delivered_at = clock.now() if number == 0 else None
            made.append(row.id)
        return webhook.id, made

    webhook_id, ids = in_database(app, make)
    return UUID(str(webhook_id)), ids


def test_deliveries_are_filtered_and_several_tried_again(app: Flask, ada: StaffBrowser) -> None:
    webhook_id, ids = deliveries(app, 3)
    url = f"{ADMIN}/webhook?id={webhook_id}"
    for state, count in (("", 3), ("delivered", 1), ("failed", 2), ("waiting", 0), ("x", 3)):
        html = ada.open(f"{url}&state={state}").html
        assert f"Entries: {count}" in html, state
        rows = exported(ada, "webhook", f"id={webhook_id}&state={state}")
        assert len(rows) == count
    ada.open(f"{url}&state=failed")
    page = ada.send(do="retry", item=[str(each) for each in ids])
    assert "Entries that this applies to: 2" in page.html
    page = ada.send(item=[str(each) for each in ids])
    assert page.url.partition("?")[0] == f"{ADMIN}/webhook"
    assert "state=failed" in page.url

    def waiting() -> list[bool]:
        rows = [stored_webhooks.find_delivery(each) for each in ids]
        return [row is not None and row.next_attempt_at is not None for row in rows]

    assert in_database(app, waiting) == [False, True, True]


def test_deliveries_of_another_webhook_are_not_tried_again(app: Flask, ada: StaffBrowser) -> None:
    assert ada.open(f"{ADMIN}/webhook/export?id={uuid4()}").status == 404
    assert ada.open(f"{ADMIN}/webhook/export?id=x").status == 404


def test_none_of_it_is_for_the_helpdesk(app: Flask) -> None:
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    chosen = str(token(app))
    for path in ("emails", "api-tokens", "refusals", "webhook"):
        assert hal.open(f"{ADMIN}/{path}/export").status == 404
        data = {"do": "revoke", "item": chosen, "is_confirmed": "1"}
        assert hal.open(f"{ADMIN}/{path}", "POST", data=data).status in (404, 405)
    assert states(app, [UUID(chosen)]) == ["valid"]


def session_ids(app: Flask, user: User) -> list[str]:
    with app.app_context():
        return [str(session.id) for session in sessions.of_user(user.id)]


@pytest.mark.parametrize("group", [ADMINS, HELPDESK])
def test_sessions_of_a_person_are_ended_one_by_one(app: Flask, clock: Clock, group: str) -> None:
    staff = sign_in_staff(app, group=group)
    dana, erin = make_user(app), make_user(app, "erin@example.com")
    for email in (dana.email, dana.email, dana.email, erin.email):
        Browser(app).sign_in(email)
    first, second, third = session_ids(app, dana)
    (other,) = session_ids(app, erin)
    staff.open(f"{ADMIN}/person?id={dana.id}")
    page = staff.send(do="end", item=[first, second, other])
    assert "Entries that this applies to: 2" in page.html
    assert len(session_ids(app, dana)) == 3
    page = staff.send(item=[first, second, other])
    assert page.url.startswith(f"{ADMIN}/person?")
    assert "The sessions were ended." in page.html
    assert session_ids(app, dana) == [third]
    assert session_ids(app, erin) == [other]
    ended = events(app, "session_ended")
    assert {(row["sid"], row["reason"]) for row in ended} == {
        (first, "operator"), (second, "operator")
    }  # fmt: skip
    assert {row["operator"] for row in ended} == {"ada@example.com"}


def test_the_helpdesk_ends_no_session_of_an_administrator(app: Flask, clock: Clock) -> None:
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    ada = make_user(app, groups=[ADMINS])
    Browser(app).sign_in(ada.email)
    (session,) = session_ids(app, ada)
    page = hal.open(f"{ADMIN}/person?id={ada.id}")
    assert 'class="pick"' not in page.html
    hal.open(f"{ADMIN}/person?id={ada.id}")
    for is_confirmed in ("", "1"):
        hal.send(do="end", item=session, is_confirmed=is_confirmed)
    assert session_ids(app, ada) == [session]
    with app.app_context():
        user = users.find(ada.id)
        assert user
        with pytest.raises(NotAllowed):
            authentication.end_some(
                Actor("hal", permissions=ROLES["helpdesk"]), user, [UUID(session)]
            )


@pytest.mark.parametrize("path", ["emails", "api-tokens", "refusals", "webhook"])
def test_lists_are_read_from_either_end(app: Flask, ada: StaffBrowser, path: str) -> None:
    """Their pages and files have the same order."""
    names = [f"e{number:02}@example.com" for number in range(PAGE + 2)]
    query, column = "", {"emails": "to", "api-tokens": "name", "refusals": "id", "webhook": "id"}
    if path == "webhook":
        webhook_id, ids = deliveries(app, PAGE + 2)
        query, names = f"id={webhook_id}&", [str(each) for each in ids]
    for number, name in enumerate(names):
        if path == "emails":
            mail(app, name)
        elif path == "api-tokens":
            token(app, name)
        elif path == "refusals":
            names[number] = refusal(app, PAGE + 2 - number)
    for sort, expected in (("", names[::-1]), ("oldest", names)):
        pages = walked(ada, f"{ADMIN}/{path}?{query}sort={sort}")
        assert len(pages) == 2, sort
        html = "".join(pages)
        places = [html.index(name) for name in expected]
        assert places == sorted(places), sort
        rows = exported(ada, path, f"{query}sort={sort}")
        listed = [row[column[path]] for row in rows]
        assert [each for each in listed if each in expected] == expected, sort  # and mails to Ada
        assert f'<option value="{sort}" selected>' in html


def test_tokens_are_sorted_by_name_and_end(app: Flask, ada: StaffBrowser) -> None:
    ids = [token(app, name) for name in ("b", "c", "a")]

    def age() -> None:
        for days, each in enumerate(ids):
            row = keys.find_api_token(each)
            assert row
            row.expires_at += timedelta(days=(2, 1, 3)[days])

    in_database(app, age)
    assert [row["name"] for row in exported(ada, "api-tokens", "sort=name")] == ["a", "b", "c"]
    assert [row["name"] for row in exported(ada, "api-tokens", "sort=expires")] == ["c", "b", "a"]
    assert ada.open(f"{ADMIN}/api-tokens?sort=name&page=x").status == 200
