"""The audit trail: by actor and family, an event by itself, the chain, and following it."""

import json
import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import delete, update

from sso import audit, clock
from sso.audit import chain, writer
from sso.audit.event_families import FAMILIES
from sso.endpoints.admin import audit_trail
from sso.extensions import db
from sso.models import AuditEvent
from sso.services import accounts
from tests.support.actors import ORIGIN
from tests.support.administration import ADMIN, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.events import events
from tests.support.factories import make_user

pytestmark = pytest.mark.slow

AUDIT = f"{ADMIN}/audit"
SINCE = timedelta(hours=5)


@pytest.fixture
def ada(app: Flask) -> StaffBrowser:
    return sign_in_staff(app)


def names(html: str) -> list[str]:
    return re.findall(r'<code class="quiet" dir="ltr">([a-z_]+)</code>', html)


def add(app: Flask, *rows: tuple[str, dict[str, Any]]) -> None:
    """Events, each a minute after the one before it."""
    with app.app_context():
        for minute, (name, values) in enumerate(rows):
            at = clock.now() - SINCE + timedelta(minutes=minute)
            db.session.add(AuditEvent(at=at, name=name, fields=json.dumps(values)))
        db.session.commit()


def test_what_an_operator_did(app: Flask, ada: StaffBrowser) -> None:
    other = uuid4()
    add(
        app,
        ("user_disabled", {"operator": "ada@example.com", "operator_id": str(other)}),
        ("user_enabled", {"operator": "o%a", "what": "100% of it"}),
        ("group_created", {"what": "ada@example.com"}),
    )
    dana = make_user(app)
    ada.open(f"{ADMIN}/person/act?id={dana.id}&do=sign-out")
    ada.submit()
    writer.flush(app)
    assert "user_disabled" in names(ada.open(f"{AUDIT}?actor=ada@example.com").html)
    assert names(ada.open(f"{AUDIT}?actor=o%25a").html) == ["user_enabled"]
    assert names(ada.open(f"{AUDIT}?actor=o_a").html) == []
    html = ada.open(f"{AUDIT}?actor=ada@example.com&event=family:accounts").html
    assert names(html) == ["user_disabled"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_trail, "_SEARCHED", 1)
        assert "Only the newest 1 events" in ada.open(f"{AUDIT}?actor=o%25a").html


def test_families_are_read_page_by_page(app: Flask, ada: StaffBrowser, statements: Any) -> None:
    kinds = ("user_created", "user_changed", "user_deleted")
    add(app, *((kinds[number % 3], {"n": str(number)}) for number in range(101)))
    add(app, *(("mail_sent", {"n": "9999"}) for _ in range(60)))
    writer.flush(app)
    query = "event=family:accounts"
    url, numbers, counts = f"{AUDIT}?{query}", [], []
    while url:
        with statements() as run:
            html = ada.open(url).html
        counts.append(len(run))
        numbers += re.findall(r"<dd><bdi>(\d+)</bdi>", html)
        link = re.search(r'rel="next" href="([^"]*)"', html)
        url = ORIGIN + link[1].replace("&amp;", "&") if link else ""
    assert numbers == [str(number) for number in reversed(range(101))]
    assert len(set(counts)) == 1
    back = re.search(r'rel="prev" href="([^"]*)"', html)
    assert back
    html = ada.open(ORIGIN + back[1].replace("&amp;", "&")).html
    before = re.findall(r"<dd><bdi>(\d+)</bdi>", html)
    assert len(before) == 50
    assert before == numbers[numbers.index(before[0]) :][:50]
    exported = ada.open(f"{AUDIT}/export?kind=jsonl&{query}").html.splitlines()
    assert [json.loads(line)["fields"]["n"] for line in exported if '"n"' in line] == numbers


def test_an_event_by_itself(app: Flask, ada: StaffBrowser) -> None:
    dana = make_user(app)
    with app.app_context():
        accounts.update(audit.Actor("olga"), dana.id, name="<b>Else</b>")
        db.session.commit()
    writer.flush(app)
    html = ada.open(f"{AUDIT}?event=user_changed").html
    link = re.search(r'href="([^"]*audit/event[^"]*)"', html)
    assert link
    page = ada.open(ORIGIN + link[1])
    assert "<del><bdi>Dana Demo</bdi></del>" in page.html
    assert "<ins><bdi>&lt;b&gt;Else&lt;/b&gt;</bdi></ins>" in page.html
    assert "olga" in page.html
    assert f"person?id={dana.id}" in page.html
    for bad in ("", "x", "%00", str(uuid4())):
        assert ada.open(f"{AUDIT}/event?id={bad}").status == 404


def test_the_chain_is_verified_in_parts(app: Flask, ada: StaffBrowser) -> None:
    add(app, *(("user_changed", {"n": str(number)}) for number in range(10)))
    writer.flush(app)
    with app.app_context():
        while chain.append_to_chain():
            pass
        last = chain.verify().head_number
    assert "This is the end of the chain." in ada.open(f"{AUDIT}/chain?first=5").html
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_trail, "_VERIFIED", 3)
        assert "from number 1 to 3 are unchanged" in ada.open(f"{AUDIT}/chain").html
        page = ada.open(f"{AUDIT}/chain?first=4")
        assert "from number 4 to 6 are unchanged" in page.html
        assert "chain?first=7" in page.html
    for odd in ("from=0", "from=x", f"from={last + 5}", "from=" + "9" * 30, "from=%00"):
        page = ada.open(f"{AUDIT}/chain?{odd}")
        assert page.status == 200
        assert "damaged" not in page.html, odd
    assert events(app, "audit_verification_failed") == []
    with app.app_context():
        changed = update(AuditEvent).where(AuditEvent.number == 5).values(address="192.0.2.9")
        db.session.execute(changed)
        db.session.execute(delete(AuditEvent).where(AuditEvent.number == 8))
        db.session.commit()
    html = ada.open(f"{AUDIT}/chain").html
    assert "event 5 (" in html
    assert "event 8 was removed" in html
    html = ada.open(f"{AUDIT}/chain?first=6").html
    assert "event 8 was removed" in html
    assert "event 5 (" not in html
    assert "event 8 was removed" in ada.open(f"{AUDIT}/chain?first=9").html
    told = events(app, "audit_verification_failed")
    assert [event["operator"] for event in told] == ["ada@example.com"] * 3


def test_the_trail_is_followed_for_a_while(app: Flask, ada: StaffBrowser) -> None:
    page = ada.open(f"{AUDIT}?live=60&event=signed_in")
    assert page.headers["Refresh"] == "10; url=/api/auth/admin/audit?event=signed_in&live=59"
    assert "for 10 more minutes" in page.html
    for odd in ("live=0", "live=x", "live=-1", "live=", "live=99999"):
        assert "Refresh" not in ada.open(f"{AUDIT}?{odd}").headers, odd
    assert "live=59" in ada.open(f"{AUDIT}?live=999").headers["Refresh"]


def test_odd_filters_and_the_helpdesk(app: Flask, ada: StaffBrowser) -> None:
    for code in FAMILIES:
        assert ada.open(f"{AUDIT}?event=family:{code}").status == 200
    for odd in ("event=family:", "event=family:x", "actor=%00", "actor=" + "x" * 900, "who='--",
                "event=family:apis&page=x", "event=family:apis&who=x&client=y"):  # fmt: skip
        assert ada.open(f"{AUDIT}?{odd}").status == 200, odd
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    for path in ("audit/event", "audit/chain", "audit?live=9"):
        assert hal.open(f"{ADMIN}/{path}").status == 404
