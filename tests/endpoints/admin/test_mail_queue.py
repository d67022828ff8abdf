"""The queue of mails: what is listed, sent again and deleted, and what is never shown."""

import json
import re
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import delete, select

from sso import clock
from sso.audit import writer
from sso.extensions import db
from sso.models import AuditEvent, Mail
from sso.store import outbox
from sso.store.lists import PAGE
from tests.support.actors import ORIGIN
from tests.support.administration import ADMIN, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.factories import make_user

pytestmark = pytest.mark.slow

LIST = f"{ADMIN}/emails"


@pytest.fixture
def ada(app: Flask) -> StaffBrowser:
    browser = sign_in_staff(app)
    with app.app_context():
        db.session.execute(delete(Mail))  # about her new factor
        db.session.commit()
    return browser


def queue(app: Flask, address: str, *, again: int | None = 0, **values: Any) -> UUID:
    """A mail that is due in so many seconds, or given up."""
    with app.app_context():
        mail = Mail(kind="reset", address=address, **values)
        db.session.add(mail)
        db.session.flush()
        due = None if again is None else clock.now() + timedelta(seconds=again)
        mail.next_attempt_at = due
        db.session.commit()
        return mail.id


def failed(app: Flask, address: str = "dana@example.com") -> UUID:
    return queue(app, address, again=None, attempts=7, last_fault="SMTPServerDisconnected")


def stored(app: Flask, mail_id: UUID) -> Mail | None:
    with app.app_context():
        return db.session.get(Mail, mail_id)


def listed(html: str) -> list[str]:
    return re.findall(r'<th scope="row">(?:<a [^>]*>)?<bdi>([^<]*)</bdi>', html)


def events(app: Flask, name: str) -> list[dict[str, Any]]:
    writer.flush(app)
    with app.app_context():
        rows = db.session.scalars(select(AuditEvent).where(AuditEvent.name == name))
        return [json.loads(row.fields) for row in rows]


def test_what_waits_or_failed_is_listed(app: Flask, ada: StaffBrowser) -> None:
    dana = make_user(app)
    details = {"session": "secret-session", "bond": "secret-bond"}
    queue(app, "new@example.com", details=details)
    queue(app, dana.email, again=600, attempts=2, last_fault="SMTPDataError 451", user_id=dana.id)
    failed(app, "\"'><script>@example.com")
    queue(app, "sent@example.com", again=None, attempts=1, delivered_at=clock.now())
    queue(app, "nobody@example.com", again=None, attempts=1)  # without a recipient
    page = ada.open(LIST)
    assert sorted(listed(page.html)) == [
        "&#34;&#39;&gt;&lt;script&gt;@example.com", dana.email, "new@example.com"
    ]  # fmt: skip
    for text in ("Entries: 3", "Set a new password", "SMTPDataError 451", "given up",
                 "retrying", f"person?id={dana.id}"):  # fmt: skip
        assert text in page.html
    assert not re.search("secret-|token=|<script>@", page.html)
    assert listed(ada.open(f"{LIST}?state=waiting&q=NEW@example.com").html) == ["new@example.com"]
    assert listed(ada.open(f"{LIST}?state=failed&q=new@example.com").html) == []
    assert len(listed(ada.open(f"{LIST}?state=failed").html)) == 1
    for query in ("state=x", "q=%00", "q=" + "a" * 900, "page=x", "q='--", "state=%ff"):
        assert ada.open(f"{LIST}?{query}").status == 200, query
    for path in ("email/act?do=resend&id=", "email/act?do=x&id=", "email/act?id="):
        for bad in ("", "x", "%00", str(uuid4())):
            assert ada.open(f"{ADMIN}/{path}{bad}").status == 404


def test_a_failed_mail_is_sent_again(app: Flask, ada: StaffBrowser) -> None:
    mail_id = failed(app)
    assert "Send all failed emails again" in ada.open(LIST).html
    ada.open(f"{ADMIN}/email/act?id={mail_id}&do=resend")
    assert "The email will be sent." in ada.submit().html
    with app.app_context():
        (claimed,) = outbox.MAILS.claim(9, clock.now() + outbox.MAILS.lease, Mail.id == mail_id)
        assert claimed.attempts == 8
        db.session.commit()
    # A worker sends it at this moment: another attempt would send it twice.
    assert ada.open(f"{ADMIN}/email/act?id={mail_id}&do=resend").status == 404
    assert "do=resend" not in ada.open(LIST).html
    (event,) = events(app, "mail_resent")
    assert event["operator"] == "ada@example.com"
    assert event["fault"] == "SMTPServerDisconnected"


def test_all_failed_mails_are_sent_again(app: Flask, ada: StaffBrowser) -> None:
    ids = [failed(app), failed(app, "erin@example.com")]
    later = queue(app, "finn@example.com", again=3600, attempts=3, last_fault="x")
    ada.open(f"{LIST}/failed")
    assert "The emails will be sent." in ada.submit().html
    for mail_id in ids:
        mail = stored(app, mail_id)
        assert mail is not None
        assert mail.next_attempt_at is not None
    mail = stored(app, later)
    assert mail is not None
    assert mail.next_attempt_at is not None
    assert mail.next_attempt_at > clock.now() + timedelta(minutes=50)
    ada.open(f"{LIST}/failed")
    ada.submit()  # there is none any more
    assert [event["count"] for event in events(app, "mail_resent")] == ["2"]


def test_what_changed_meanwhile(app: Flask, ada: StaffBrowser) -> None:
    hurried, sent = (queue(app, f"{n}@example.com", again=600, attempts=1) for n in "ab")
    for mail_id, values, status in (
        (hurried, {"next_attempt_at": clock.now()}, 404),
        (sent, {"next_attempt_at": None, "delivered_at": clock.now()}, 404),
    ):
        ada.open(f"{ADMIN}/email/act?id={mail_id}&do=resend")
        with app.app_context():
            mail = db.session.get(Mail, mail_id)
            assert mail
            for name, value in values.items():
                setattr(mail, name, value)
            db.session.commit()
        assert ada.submit().status == status
    assert ada.open(f"{ADMIN}/email/act?id={sent}&do=delete").status == 404
    assert events(app, "mail_resent") == []


def test_a_mail_is_deleted(app: Flask, ada: StaffBrowser) -> None:
    mail_id = queue(app, "dana@example.com")
    ada.open(f"{ADMIN}/email/act?id={mail_id}&do=delete")
    assert "The email was deleted." in ada.submit().html
    assert stored(app, mail_id) is None
    (event,) = events(app, "mail_deleted")
    assert event["mail"] == str(mail_id)
    assert "dana@example.com" not in event.values()
    assert ada.open(f"{ADMIN}/email/act?id={mail_id}&do=delete").status == 404


def test_pages_cost_the_same_wherever_they_are(
    app: Flask, ada: StaffBrowser, statements: Any
) -> None:
    for number in range(2 * PAGE + 1):
        queue(app, f"m{number}@example.com")
    url, addresses, counts = LIST, [], []
    while url:
        with statements() as run:
            html = ada.open(url).html
        counts.append(len(run))
        addresses += listed(html)
        link = re.search(r'rel="next" href="([^"]*)"', html)
        url = ORIGIN + link[1].replace("&amp;", "&") if link else ""
    assert len(set(addresses)) == len(addresses) == 2 * PAGE + 1
    assert len(counts) == 3
    assert len(set(counts)) == 1


def test_it_is_not_for_the_helpdesk(app: Flask) -> None:
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    mail_id = failed(app)
    for path in ("emails", "emails/failed", f"email/act?id={mail_id}&do=delete"):
        assert hal.open(f"{ADMIN}/{path}").status == 404
        assert hal.open(f"{ADMIN}/{path}", "POST", data={}).status == 404
