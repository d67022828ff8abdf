"""Overview, groups, audit trail and keys in the administration."""

import csv
import io
import json
import re
from pathlib import Path
from uuid import uuid4

import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from sso import audit
from sso.audit import event_titles, rows, writer
from sso.audit.events import Event
from sso.checkup.finding import Findings, warning
from sso.crypto import keys
from sso.endpoints.admin import audit_trail, overview
from sso.extensions import db
from sso.models import AuditEvent, Group, KeyState, User
from sso.ratelimit import limiting
from sso.store import clients, named_groups, users
from sso.store import keys as stored_keys
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.administration import ADMIN, ADMINS, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.factories import make_client, make_user
from tests.support.second_factors import code_of

pytestmark = pytest.mark.slow

MARKUP = "\"'><script>alert(1)</script>{{7*7}}"


@pytest.fixture
def ada(app: Flask, clock: Clock) -> StaffBrowser:
    return sign_in_staff(app)


def group_named(app: Flask, name: str) -> Group | None:
    with app.app_context():
        return named_groups.find_by_name(name)


def groups_of(app: Flask, user: User) -> list[str]:
    with app.app_context():
        found = users.find(user.id)
        assert found
        return found.groups


def test_the_overview(app: Flask, ada: StaffBrowser, clock: Clock) -> None:
    make_user(app)
    Browser(app).sign_in(password="wrong password")
    clock.move(days=1)
    browser = Browser(app)
    browser.sign_in()
    other = sign_in_staff(app, "bob@example.com")
    writer.flush(app)
    page = other.open(ADMIN)
    assert "<td>1</td><td>1</td>" in page.html  # yesterday: Ada, and Dana's wrong password
    assert "<td>2</td><td>0</td>" in page.html  # today
    assert "<strong>Worker</strong>:" in page.html  # none has run
    for what in ("Emails", "Logout tokens", "Webhooks", "Worker", "Signing keys",
                 "Database schema"):  # fmt: skip
        assert f"<dt>{what}</dt>" in page.html
    for number, what in ((3, "People"), (2, "With a second factor"), (1, "Groups")):
        assert f"<strong>{number}</strong><span>{what}</span>" in page.html
    assert "<svg" in page.html
    assert "style=" not in page.html
    assert other.open(f"{ADMIN}?days=90").html.count('<tr><th scope="row">20') == 90
    with app.app_context():
        db.session.execute(db.text("DELETE FROM audit_events"))
        db.session.commit()
    assert "<td>1</td><td>1</td>" in other.open(ADMIN).html  # kept for a minute


def test_all_checks(app: Flask, ada: StaffBrowser) -> None:
    instance = Path(app.instance_path)
    mode = instance.stat().st_mode
    instance.chmod(0o777)
    try:
        assert f"chmod 755 {instance}" in ada.open(ADMIN).html
    finally:
        instance.chmod(mode)
    german = ada.open(ADMIN, headers={"Accept-Language": "de"}).html
    assert "<strong>Worker</strong>: es lief noch nie einer" in german
    page = ada.open(f"{ADMIN}/checks")
    names = re.findall(r'<th scope="row"[^>]*>([^<]+)</th>', page.html)
    shown = "database schema keys worker webhooks redis mail tls discovery directories providers"
    for name in (*shown.split(), "secret key", "templates"):
        assert names.count(overview.LABELS[name]) == 1, name
    assert "none has ever run" in page.html
    assert "flask doctor" in page.html
    ada.open(f"{ADMIN}/checks", headers={"Accept-Language": "de"})
    assert '<th scope="row">Dateirechte</th>' in ada.page.html
    assert "es lief noch nie einer: keine E-Mail, kein Logout-Token" in ada.page.html
    assert "starten: <bdi>flask worker</bdi>" in ada.page.html
    assert not re.search('lang="en"[^>]*>(?!chmod)', ada.page.html)


def test_a_sign_in_where_the_server_cannot_call_itself(app: Flask, ada: StaffBrowser) -> None:
    """It is not tried; nor more often than the limit allows."""
    ada.open(f"{ADMIN}/checks")
    for _ in range(limiting.TEST_SIGN_IN.account or 0):
        page = ada.send()
        assert "a server that handles one request at a time cannot call itself" in page.html
    assert ada.send().status == 429
    writer.flush(app)
    with app.app_context():
        told = rows.newest(names=["user_created"], limit=9)
        assert [one.user_id for one in told if "doctor" in one.fields] == []


def test_a_certificate_that_ends_soon(app: Flask, ada: StaffBrowser, clock: Clock) -> None:
    """Asked for once an hour."""
    asked: list[str] = []

    def ends_soon() -> Findings:
        asked.append("tls")
        yield warning("tls", "the certificate expires in 3 days", "renew it")

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(overview._EACH_HOUR, "tls", ends_soon)
        for _ in range(2):
            assert "expires in 3 days" in ada.open(ADMIN).html
    clock.move(minutes=61)
    ada.open(ADMIN)
    assert "expires in 3 days" not in ada.submit(code=code_of(ada.secret)).html
    assert asked == ["tls"]


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), max_size=30))
def test_bars_stay_in_the_picture(values: list[tuple[int, int]]) -> None:
    top, bars = overview.bars(values)
    assert top >= max((max(pair) for pair in values), default=0)
    assert len(bars) == 2 * len(values)
    for bar in bars:
        assert 0 <= bar.y <= overview.HEIGHT
        assert abs(bar.y + bar.height - overview.HEIGHT) < 0.2
        assert 0 <= bar.x <= overview.WIDTH - bar.width + 0.2


def test_groups(app: Flask, ada: StaffBrowser) -> None:
    dana = make_user(app)
    ada.open(f"{ADMIN}/groups")
    page = ada.submit(name="board")
    assert "The group was created." in page.html
    made = group_named(app, "board")
    assert made
    url = page.url
    make_client(app, name="Minutes", groups=["board"])
    assert "Minutes" in ada.open(url).html
    assert "They are in the group now." in ada.submit(email="DANA@example.com").html
    assert groups_of(app, dana) == ["board"]
    ada.open(url)
    assert "There is no person" in ada.submit(email="nobody@example.com").html
    ada.open(f"{ADMIN}/group/remove?id={made.id}&user={dana.id}")
    assert "Access of applications" in ada.page.html
    assert "no longer in the group" in ada.submit().html
    assert groups_of(app, dana) == []
    ada.open(f"{ADMIN}/groups?q=boa")
    assert "board" in ada.page.html
    ada.submit(name="board")
    assert "already" in ada.page.html
    assert ada.submit(name="a,b").html.count('class="fault"') == 1
    ada.open(f"{ADMIN}/group/delete?id={made.id}")
    assert "The group was deleted." in ada.submit().html
    assert group_named(app, "board") is None


def test_two_administrators_who_edit_the_same_group(app: Flask, ada: StaffBrowser) -> None:
    bob, dana = sign_in_staff(app, "bob@example.com"), make_user(app)
    client = make_client(app, groups=["board"])
    ada.open(f"{ADMIN}/groups")
    ada.submit(name="board")
    made = group_named(app, "board")
    assert made
    query = f"id={made.id}"
    ada.open(f"{ADMIN}/group?{query}")
    ada.submit(email=dana.email)
    for one in (ada, bob):
        assert one.open(f"{ADMIN}/group/rename?{query}").fields["name"] == "board"
    assert "The changes were saved." in bob.submit(name="council").html
    with app.app_context():
        found = clients.find(client.client_id)
        assert found
        assert found.groups == groups_of(app, dana) == ["council"]
    page = ada.submit(name="committee")
    assert page.status == 409
    assert "<bdi>board</bdi></td>" in page.html
    assert "<bdi>council</bdi></td>" in page.html
    assert page.fields["name"] == "committee"
    assert groups_of(app, dana) == ["council"]
    assert "The changes were saved." in ada.submit().html
    assert groups_of(app, dana) == ["committee"]
    ada.open(f"{ADMIN}/group/rename?{query}")
    assert "already" in ada.submit(name=ADMINS).html
    assert ada.submit(name="a,b").html.count('class="fault"') == 1
    bob.open(f"{ADMIN}/group/delete?{query}")
    make_user(app, "new@example.com", groups=[])
    ada.open(f"{ADMIN}/group?{query}")
    ada.submit(email="new@example.com")
    assert "Nothing was deleted." in bob.submit().html
    assert group_named(app, "committee")
    assert "The group was deleted." in bob.submit().html


def test_the_reason_why_a_person_cannot_join_a_group(app: Flask, ada: StaffBrowser) -> None:
    user = make_user(app)
    with app.app_context():
        users.lock_any(user.id).groups = [f"g{n}" for n in range(1000)]  # type: ignore[union-attr]
        db.session.commit()
    ada.open(f"{ADMIN}/groups")
    ada.submit(name="board")
    page = ada.submit(email=user.email)
    assert "is in 1000 groups already" in re.sub(r"</?bdi>", "", page.html)
    assert "There is no person" not in page.html


def test_api_tokens(app: Flask, ada: StaffBrowser, clock: Clock) -> None:
    assert "There is no API token yet." in ada.open(f"{ADMIN}/api-tokens").html
    ada.open(f"{ADMIN}/api-token/new")
    page = ada.send(name=MARKUP, scopes=["scim:read", "clients:read"], days="30")
    assert page.status == 200
    secret = re.search(r">(sso_api_[^<]+)</code>", page.html)
    assert secret, page.html
    with app.test_client() as program:
        sent = {"Authorization": f"Bearer {secret[1]}"}
        path = f"{BASE}/scim/v2/Users"
        assert program.get(path, headers=sent, base_url=ORIGIN).status_code == 200
        assert program.post(path, headers=sent, base_url=ORIGIN, json={}).status_code == 403
        page = ada.open(f"{ADMIN}/api-tokens")
        assert secret[1] not in page.html
        assert "<script>" not in page.html
        assert "127.0.0.1" in page.html
        assert "ada@example.com</bdi></a></td>" in page.html
        found = re.search(r'href="([^"]*revoke[^"]*)"', page.html)
        assert found
        ada.open(found[1])
        assert "The token was revoked." in ada.submit().html
        assert program.get(path, headers=sent, base_url=ORIGIN).status_code == 401
    assert ada.open(found[1]).status == 404
    with app.app_context():
        named = db.session.scalars(select(AuditEvent).where(AuditEvent.name.like("api_token_%")))
        assert {"api_token_created", "api_token_revoked"} <= {
            one.name for one in named if json.loads(one.fields).get("operator") == "ada@example.com"
        }
    for values in ({"name": " ", "scopes": "scim:read"}, {"name": "x"}, {"days": "0"},
                   {"name": "x", "scopes": "everything"}, {"name": "x", "scopes": "scim:invite"},
                   {"name": "x", "scopes": "scim:read", "days": "99999"}):  # fmt: skip
        ada.open(f"{ADMIN}/api-token/new")
        assert "Nothing was changed." in ada.send(**values).html, values
    with app.app_context():
        assert len(stored_keys.every_api_token()) == 1


def test_the_group_of_administrators_cannot_be_emptied(app: Flask, ada: StaffBrowser) -> None:
    admins = group_named(app, ADMINS)
    assert admins
    with app.app_context():
        me = users.find_by_email("ada@example.com")
        assert me
    for path in (f"delete?id={admins.id}", f"remove?id={admins.id}&user={me.id}"):
        ada.open(f"{ADMIN}/group/{path}")
        assert ada.submit().status == 403
    assert groups_of(app, me) == [ADMINS]


def test_the_audit_trail(app: Flask, ada: StaffBrowser, clock: Clock) -> None:
    dana = make_user(app)
    browser = Browser(app)
    browser.http.environ_base["HTTP_USER_AGENT"] = "=HYPERLINK(1)"
    browser.sign_in()
    ada.open(f"{ADMIN}/person/act?id={dana.id}&do=sign-out")
    ada.submit()
    page = ada.open(f"{ADMIN}/audit?who=dana@example.com")
    assert page.html.count('<th role="rowheader" scope="row">') == 2
    assert "ada@example.com" in page.html
    page = ada.open(
        f"{ADMIN}/audit?who={dana.id}&event=signed_in&since=2026-11-21&until=2026-11-21"
    )
    assert page.html.count('<th role="rowheader" scope="row">') == 1
    assert (
        ada.open(f"{ADMIN}/audit?until=2026-11-20").html.count('<th role="rowheader" scope="row">')
        == 0
    )
    page = ada.open(f"{ADMIN}/audit/export?kind=jsonl&who=dana@example.com")
    lines = [json.loads(line) for line in page.html.splitlines()]
    assert [one["event"] for one in lines] == ["session_ended", "signed_in"]
    assert page.headers["Content-Disposition"] == "attachment; filename=audit.jsonl"
    text = ada.open(f"{ADMIN}/audit/export?kind=csv&event=signed_in&who={dana.id}").html
    table = list(csv.DictReader(io.StringIO(text)))
    assert table[0]["browser"] == "'=HYPERLINK(1)"
    (newest, *_) = [json.loads(line) for line in ada.open(
        f"{ADMIN}/audit/export?kind=jsonl&event=exported").html.splitlines()]  # fmt: skip
    assert newest["fields"]["operator"] == "ada@example.com"
    assert ada.open(f"{ADMIN}/audit/export?kind=exe").status == 404


def test_pages_of_the_audit_trail(app: Flask, ada: StaffBrowser, clock: Clock) -> None:
    make_user(app)
    for _ in range(6):
        for _ in range(10):
            Browser(app).sign_in(password="wrong password")
        clock.move(hours=1)
    first = ada.open(f"{ADMIN}/audit?event=sign_in_failed")
    total = first.html.count('<th role="rowheader" scope="row">')
    assert 'rel="prev"' not in first.html
    if 'rel="next"' in first.html:
        assert total == 50
    exported = ada.open(f"{ADMIN}/audit/export?kind=jsonl&event=sign_in_failed").html.splitlines()
    assert len(exported) >= total


def test_keys(app: Flask, ada: StaffBrowser) -> None:
    page = ada.open(f"{ADMIN}/keys")
    assert page.html.count('<th scope="row" class="cut">') == 2 * len(keys.ALGORITHMS)
    ada.open(f"{ADMIN}/keys/rotate")
    assert "The keys were rotated." in ada.submit().html
    ada.open(f"{ADMIN}/keys/rotate")
    assert "too young" in ada.submit().html
    with app.app_context():
        kinds = {state: next(k.kid for k in stored_keys.every_signing_key() if k.state == state)
                 for state in KeyState}  # fmt: skip
    assert ada.open(f"{ADMIN}/keys/retire?kid={kinds[KeyState.ACTIVE]}").status == 404
    assert ada.open(f"{ADMIN}/keys/retire?kid=x").status == 404
    for state in (KeyState.NEXT, KeyState.RETIRED):
        ada.open(f"{ADMIN}/keys/retire?kid={kinds[state]}")
        assert "was retired" in ada.submit().html


def test_markup_is_text(app: Flask, ada: StaffBrowser) -> None:
    make_user(app, name=MARKUP, groups=[MARKUP])
    browser = Browser(app)
    browser.http.environ_base["HTTP_USER_AGENT"] = MARKUP
    browser.sign_in()
    made = group_named(app, MARKUP)
    assert made
    for path in ("", "/groups", f"/group?id={made.id}", "/audit", "/keys"):
        page = ada.open(f"{ADMIN}{path}")
        assert page.status == 200
        assert "<script>" not in page.html


@pytest.mark.parametrize("bad", ["", "x", "%00", "%ff", "a" * 8000])
def test_bad_values(app: Flask, ada: StaffBrowser, bad: str) -> None:
    for path in ("group?id=", "group/delete?id=", "group/remove?id=", "keys/retire?kid=",
                 "group/rename?id=", "group/member?id=", "api-token/revoke?id="):  # fmt: skip
        assert ada.open(f"{ADMIN}/{path}{bad}").status == 404
    for name in ("who", "client", "event", "since", "until", "page"):
        assert ada.open(f"{ADMIN}/audit?{name}={bad}").status == 200
    for path in ("groups", "api-tokens"):
        assert ada.open(f"{ADMIN}/{path}?q={bad}&page={bad}").status == 200


def test_none_of_it_is_for_the_helpdesk(app: Flask, clock: Clock) -> None:
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    assert hal.open(ADMIN).status == 200
    for path in (
        "api-tokens",
        "api-token/new",
        "checks",
        "groups",
        "audit",
        "audit/export?kind=csv",
        "keys",
        "keys/rotate",
        "applications",
    ):
        assert hal.open(f"{ADMIN}/{path}").status == 404
        assert f'/admin/{path.partition("?")[0]}"' not in hal.open(ADMIN).html


def test_each_event_has_a_name_for_people() -> None:
    """Limits are named after what is limited."""
    plain = {one for one in Event if not one.endswith("_limited")}
    assert set(event_titles.TITLES) == plain
    assert len(set(event_titles.TITLES.values())) == len(plain)


def test_the_documentation_explains_each_event() -> None:
    text = (Path(__file__).parents[3] / "docs/reference/events.md").read_text()
    assert set(event_titles.TITLES) <= set(re.findall(r"`([a-z_]+)`", text))


CHANGES = {
    "groups": {"before": ["a", "b"], "after": ["b", "c"], "added": ["c"], "removed": ["a"]},
    "name": {"before": "Dana", "after": "<b>Dana</b>"},
    "email_verified": {"before": False, "after": True},
    "claims": {"before": {"nickname": "D", "gender": "x"},
               "after": {"gender": "x", "zoneinfo": "Z"}},
    "scope": {"added": [], "removed": ["openid"]},
    "home_url": {"before": None, "after": "https://a.example/?b=c"},
    "old": {"before": 1}, "odd": 5, "odder": {"x": 1},
}  # fmt: skip


def test_changes_are_shown_as_a_difference(app: Flask, ada: StaffBrowser, clock: Clock) -> None:
    with app.app_context():
        audit.event(Event.USER_CHANGED, user=uuid4(), changes=CHANGES, what="two things")
        audit.event(Event.EMAILED_CODE_LIMITED, user=uuid4())
        audit.event(Event.SCOPE_DROPPED_LIMITED)
    writer.flush(app)
    page = ada.open(f"{ADMIN}/audit")
    found = page.html.partition('<tbody role="rowgroup">')[2].split("</tr>")
    (row,) = [one for one in found if "two things" in one]
    text = re.sub(r"<del>(.*?)</del>", r"[-\1]", re.sub(r"<ins>(.*?)</ins>", r"[+\1]", row))
    text = " ".join(re.sub(r"<[^>]*>", "", text).split())
    for difference in (
        "groups [-a] [+c]", "name [-Dana] [+&lt;b&gt;Dana&lt;/b&gt;]",
        "email_verified [-no] [+yes]",
        "claims.nickname [-D]", "claims.zoneinfo [+Z]", "scope [-openid]", "old [-1]", "odd 5",
        "home_url [+https://a.example/?b=c]", 'odder {&#34;x&#34;: 1}',
    ):  # fmt: skip
        assert difference in text, (difference, text)
    assert "claims.gender" not in text
    assert "before" not in text
    assert "Account changed by an operator user_changed" in text
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", text)
    assert "Limit reached: emailed_code" in page.html
    assert "Limit reached: Unregistered scopes ignored" in page.html
    exported = ada.open(f"{ADMIN}/audit/export?kind=jsonl&event=user_changed").html
    assert json.loads(exported.splitlines()[0])["fields"]["changes"] == CHANGES


def test_a_field_that_changes_its_type_is_shown(app: Flask) -> None:
    for before, after in (({"x": 1}, "text"), ("text", {"x": 1})):
        (detail,) = audit_trail._differences("claims", {"before": before, "after": after})
        assert {*detail.removed, *detail.added} == {'{"x": 1}', "text"}


def test_several_people_are_added_to_a_group(app: Flask, ada: StaffBrowser) -> None:
    people = [make_user(app, f"user{number}@example.com") for number in range(3)]
    ada.open(f"{ADMIN}/groups")
    ada.submit(name="staff")
    missing = ada.submit(email="user0@example.com\nnobody@example.com").html
    alert = missing.partition('role="alert">')[2].partition("</p>")[0]
    assert "There is no person with the email address" in alert
    assert "nobody@example.com" in alert
    assert "user0" not in alert
    assert groups_of(app, people[0]) == []  # all of them or none
    assert ada.submit(email="user0@example.com, not an address").html.count('class="fault"') == 1
    ada.submit(email="user0@example.com, USER1@example.com;\nuser2@example.com")
    assert [groups_of(app, one) for one in people] == [["staff"]] * 3
    assert '<td data-label="Members">3</td>' in ada.open(f"{ADMIN}/groups").html


def test_an_end_of_a_membership(app: Flask, ada: StaffBrowser) -> None:
    dana, erin = make_user(app), make_user(app, "erin@example.com", groups=["board"])
    board = group_named(app, "board")
    assert board
    ada.open(f"{ADMIN}/group?id={board.id}")
    assert "in the past" in ada.submit(email=dana.email, ends_at="2020-01-01T00:00").html
    assert groups_of(app, dana) == []
    ada.submit(email=dana.email, ends_at="2026-12-31T18:00")
    page = ada.open(f"{ADMIN}/group?id={board.id}")
    assert page.html.count("December 31, 2026") == 1
    assert "December 31, 2026" in ada.open(f"{ADMIN}/person?id={dana.id}").html
    link = f"{ADMIN}/group/member?id={board.id}&user="
    assert ada.open(f"{link}{dana.id}").fields["ends_at"] == "2026-12-31T18:00"
    assert "The changes were saved." in ada.submit(ends_at="").html
    assert "December 31, 2026" not in ada.open(f"{ADMIN}/group?id={board.id}").html
    ada.open(f"{link}{erin.id}")
    for text, fault in (("2020-01-01T00:00", "in the past"), ("x", "Enter a date")):
        assert fault in ada.submit(ends_at=text).html
    assert "The changes were saved." in ada.submit(ends_at="2026-12-31T18:00:05").html
    assert ada.open(f"{link}{erin.id}").fields["ends_at"] == "2026-12-31T18:00:05"
    stranger = make_user(app, "new@example.com")
    for user in (stranger.id, "x", ""):
        assert ada.open(f"{link}{user}").status == 404


def test_an_end_of_a_secret(app: Flask, ada: StaffBrowser) -> None:
    client = make_client(app)
    link = f"{ADMIN}/application/secret-end?id={client.client_id}"
    ada.open(link)
    for text, fault in (("2020-01-01T00:00", "in the past"), ("x", "Enter a date")):
        assert fault in ada.submit(ends_at=text).html
    assert "The application was changed." in ada.submit(ends_at="2026-12-31T18:00").html
    shown = f"{ADMIN}/application?id={client.client_id}"
    assert "December 31, 2026" in ada.open(shown).html
    assert ada.open(link).fields["ends_at"] == "2026-12-31T18:00"
    ada.submit(ends_at="")
    assert "December 31, 2026" not in ada.open(shown).html
    ada.open(f"{ADMIN}/application/secret?id={client.client_id}")
    assert "in the past" in ada.submit(ends_at="2020-01-01T00:00").html
    assert ada.submit(ends_at="2026-12-31T18:00").status == 200
    assert "December 31, 2026" in ada.open(shown).html
    assert ada.open(f"{ADMIN}/application/secret-end?id=x").status == 404
