"""People in the administration: found, invited, edited, and what is done to them."""

import json
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select

from sso.config.upstream.file import Upstreams
from sso.endpoints.admin.people import ACTIONS
from sso.extensions import db
from sso.flow.permissions import CHANGE_PEOPLE
from sso.models import AuditEvent, Mail, UpstreamSession, User
from sso.services import importing
from sso.store import identities, outbox, sessions, users
from tests.conftest import Clock
from tests.support.actors import ORIGIN, Browser
from tests.support.administration import (
    ADMIN,
    ADMINS,
    HELPDESK,
    StaffBrowser,
    link_identity,
    sign_in_staff,
)
from tests.support.factories import make_user
from tests.support.second_factors import enrol_totp, is_signed_in
from tests.support.upstreams import provider

pytestmark = pytest.mark.slow

BCRYPT = "$2b$04$abcdefghijklmnopqrstuuNPZHlfHGmXSMSQDMPFCmYW3YSWFW1/a"  # of some password
MARKUP = "\"'><script>alert(1)</script>{{7*7}}"


@pytest.fixture
def ada(app: Flask, clock: Clock) -> StaffBrowser:
    return sign_in_staff(app)


@pytest.fixture
def dana(app: Flask) -> User:
    return make_user(app)


def row(app: Flask, user: User) -> User | None:
    with app.app_context():
        return users.find(user.id)


def newest(app: Flask) -> tuple[str, dict[str, Any]]:
    with app.app_context():
        found = db.session.scalars(
            select(AuditEvent)
            .where(AuditEvent.name.startswith("user_") | AuditEvent.name.endswith("_reset")
                   | AuditEvent.name.endswith("_asked"))
            .order_by(AuditEvent.at.desc())
        ).first()  # fmt: skip
        assert found
        return found.name, {"user": found.user_id, **json.loads(found.fields)}


def mails(app: Flask) -> list[str]:
    with app.app_context():
        return list(db.session.scalars(select(Mail.kind)))


def act(browser: Browser, user: User, name: str) -> Any:
    page = browser.open(f"{ADMIN}/person/act?id={user.id}&do={name}")
    return browser.submit() if page.status == 200 else page


def test_disable_enable_delete(app: Flask, ada: StaffBrowser, dana: User, browser: Browser) -> None:
    browser.sign_in()
    page = ada.open(f"{ADMIN}/person/act?id={dana.id}&do=disable")
    assert "All sessions of this person" in page.html
    assert "offline access" in page.html
    page = ada.submit()
    assert (page.path, page.status) == (ADMIN.removeprefix(ORIGIN) + "/person", 200)
    assert "The account was disabled." in page.html
    assert not is_signed_in(browser)
    name, fields = newest(app)
    assert (name, fields["user"], fields["operator"]) == (
        "user_disabled", str(dana.id), "ada@example.com")  # fmt: skip
    with app.app_context():
        me = users.find_by_email("ada@example.com")
        assert me
        assert fields["operator_id"] == str(me.id)
    assert act(ada, dana, "disable").status == 404  # it is done already
    assert "The account was enabled." in act(ada, dana, "enable").html
    assert "The account was deleted." in act(ada, dana, "delete").html
    assert row(app, dana) is None
    assert ada.open(f"{ADMIN}/person?id={dana.id}").status == 404


def test_factors_and_sessions(app: Flask, ada: StaffBrowser, dana: User, browser: Browser) -> None:
    browser.sign_in()
    enrol_totp(browser)
    assert "The second factors were removed." in act(ada, dana, "factors").html
    assert newest(app)[0] == "factors_reset"
    assert not is_signed_in(browser)
    browser.sign_in()
    assert "All sessions were ended." in act(ada, dana, "sign-out").html
    assert not is_signed_in(browser)


def test_what_is_empty_has_one_line(app: Flask, ada: StaffBrowser, dana: User) -> None:
    titles = ("Second factors", "Sessions", "Applications with access", "Emails of the last days")
    html = ada.open(f"{ADMIN}/person?id={dana.id}").html
    for title in titles:
        assert f"<dt>{title}</dt>" in html
        assert f"<h2>{title}</h2>" not in html
    Browser(app).sign_in()
    html = ada.open(f"{ADMIN}/person?id={dana.id}").html
    assert "<dt>Sessions</dt>" not in html
    assert "<h2>Sessions</h2>" in html


def test_mails(app: Flask, ada: StaffBrowser, dana: User) -> None:
    act(ada, dana, "password")
    new = make_user(app, "new@example.com", password=None, email_verified=False)
    act(ada, new, "invite")
    act(ada, new, "verify")
    assert {"reset", "invite", "verify"} <= set(mails(app))
    assert newest(app)[1]["user"] == str(new.id)
    assert act(ada, new, "password").status == 404
    assert act(ada, dana, "invite").status == 404


def test_a_mail_that_is_not_sent(app: Flask, ada: StaffBrowser, dana: User) -> None:
    for _ in range(outbox.MOST_MAILS_AN_HOUR):
        assert "The email will be sent." in act(ada, dana, "password").html
    assert "No email is sent" in act(ada, dana, "password").html
    assert mails(app).count("reset") == outbox.MOST_MAILS_AN_HOUR
    ada.open(f"{ADMIN}/person/invite")
    assert "no invitation is sent" in ada.submit(email="x@host.invalid", name="Nowhere").html


def test_inviting(app: Flask, ada: StaffBrowser) -> None:
    ada.open(f"{ADMIN}/person/invite")
    page = ada.submit(
        email=" New@Example.com ", name=" New Person ", groups="staff\n\n wiki \nstaff"
    )
    assert "The account was created" in page.html
    with app.app_context():
        found = users.find_by_email("new@example.com")
        assert found
        assert (found.name, found.groups) == ("New Person", ["staff", "wiki"])
    assert newest(app)[0] == "user_invited"
    ada.open(f"{ADMIN}/person/invite")
    page = ada.submit(email="new@example.com", name="Else")
    assert "there is already a user" in page.html
    page = ada.submit(email="x", name="\n", groups="a,b")
    assert page.html.count('class="fault"') == 3


def edit(browser: Browser, user: User, **values: str) -> Any:
    browser.open(f"{ADMIN}/person/edit?id={user.id}")
    return browser.submit(**text_areas(browser), **values)


def text_areas(browser: Browser) -> dict[str, str]:
    """What the test's browser, which knows no textarea, would leave out."""
    seen = json.loads(browser.page.fields["seen"])
    address = seen["claims"].get("address")
    return {
        "groups": "\n".join(seen["groups"]),
        "claim_address": json.dumps(address) if address else "",
    }


def test_editing(app: Flask, ada: StaffBrowser, dana: User) -> None:
    ada.open(f"{ADMIN}/person/edit?id={dana.id}")
    page = ada.submit(
        name="Dana Else", groups="staff", claim_given_name="Dana",
        claim_address='{"locality": "Delft"}',
    )  # fmt: skip
    assert "The changes were saved." in page.html
    found = row(app, dana)
    assert found
    assert (found.name, found.groups) == ("Dana Else", ["staff"])
    assert found.claims == {"given_name": "Dana", "address": {"locality": "Delft"}}
    assert found.email_verified
    name, fields = newest(app)
    assert name == "user_changed"
    assert set(fields["changes"]) == {"name", "groups", "claims"}
    page = edit(ada, dana, claim_given_name="", email="dana@else.example")
    found = row(app, dana)
    assert found
    assert (found.email, found.claims) == (
        "dana@else.example", {"address": {"locality": "Delft"}})  # fmt: skip
    assert {"verify", "email_changed"} <= set(mails(app))


@pytest.mark.parametrize(
    ("field", "value"),
    [("claim_address", "[1]"), ("claim_address", "{" * 900), ("claim_locale", "\x00x"),
     ("email", "nobody"), ("name", " "), ("groups", "a, b"), ("seen", "["), ("seen", "{}")],
)  # fmt: skip
def test_what_cannot_be_saved(
    app: Flask, ada: StaffBrowser, dana: User, field: str, value: str
) -> None:
    page = edit(ada, dana, **{field: value}) if field not in ("groups", "claim_address") else None
    if page is None:
        ada.open(f"{ADMIN}/person/edit?id={dana.id}")
        page = ada.submit(**{**text_areas(ada), field: value})
    assert page.status == 200
    assert ("Nothing was changed" in page.html) == (field != "seen")
    found = row(app, dana)
    assert found
    assert (found.name, found.email, found.claims) == (dana.name, dana.email, {})


def test_two_administrators_who_edit_the_same_person(
    app: Flask, ada: StaffBrowser, dana: User
) -> None:
    bob = sign_in_staff(app, "bob@example.com")
    for one in (ada, bob):
        one.open(f"{ADMIN}/person/edit?id={dana.id}")
    areas = text_areas(ada)
    bob.submit(**{**areas, "groups": "staff"}, name="By Bob", claim_nickname="D")
    page = ada.submit(**areas, claim_given_name="By Ada", name="By Ada")
    assert page.status == 409
    for text in ("Someone else has changed this", "<bdi>Dana Demo</bdi>", "<bdi>By Bob</bdi>"):
        assert text in page.html
    # Mine is kept in the fields, theirs where I changed nothing.
    assert page.fields["name"] == "By Ada"
    assert page.fields["claim_given_name"] == "By Ada"
    assert page.fields["claim_nickname"] == "D"
    assert ">\nstaff</textarea>" in page.html
    found = row(app, dana)
    assert found
    assert found.name == "By Bob"
    assert "The changes were saved." in ada.submit(groups="staff", claim_address="").html
    found = row(app, dana)
    assert found
    assert (found.name, found.groups) == ("By Ada", ["staff"])
    assert found.claims == {"given_name": "By Ada", "nickname": "D"}


def test_nobody_removes_the_last_administrator(app: Flask, ada: StaffBrowser) -> None:
    with app.app_context():
        me = users.find_by_email("ada@example.com")
        assert me
    for name in ("disable", "delete"):
        page = act(ada, me, name)
        assert page.status == 403
        assert "your own administrator rights" in page.html
    ada.open(f"{ADMIN}/person/edit?id={me.id}")
    assert ada.submit(groups="", claim_address="").status == 403
    found = row(app, me)
    assert found
    assert (found.groups, found.disabled_at) == ([ADMINS], None)


def test_the_helpdesk(app: Flask, clock: Clock, dana: User) -> None:
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    admin = make_user(app, "ada@example.com", groups=[ADMINS])
    with app.app_context():
        me = users.find_by_email("hal@example.com")
        assert me
    note = "Only administrators can change administrators"
    assert note in hal.open(f"{ADMIN}/person?id={admin.id}").html
    assert note not in hal.open(f"{ADMIN}/person?id={dana.id}").html
    for name, action in ACTIONS.items():
        for other in (admin, me):
            assert act(hal, other, name).status == 404
        if action.needs != CHANGE_PEOPLE:
            assert act(hal, dana, name).status == 404
    assert act(hal, dana, "sign-out").status == 200
    assert hal.open(f"{ADMIN}/person/edit?id={me.id}").status == 404
    hal.open(f"{ADMIN}/person/invite")
    assert 'name="groups"' not in hal.page.html
    hal.submit(email="new@example.com", name="New", groups=ADMINS)
    with app.app_context():
        found = users.find_by_email("new@example.com")
        assert found
        assert found.groups == []


def test_a_former_administrator_with_an_open_tab(app: Flask, ada: StaffBrowser, dana: User) -> None:
    ada.open(f"{ADMIN}/person/act?id={dana.id}&do=delete")
    with app.app_context():
        me = users.find_by_email("ada@example.com")
        assert me
        me.groups = []
        db.session.commit()
    assert ada.submit().status == 404
    assert row(app, dana)


def test_markup_is_text(app: Flask, ada: StaffBrowser) -> None:
    made = make_user(
        app,
        name=MARKUP,
        groups=[MARKUP],
        claims={"nickname": MARKUP, "address": {"locality": MARKUP}},
    )
    texts = dict.fromkeys(("issuer", "subject", "email"), MARKUP)
    linked = link_identity(app, made, provider=MARKUP[:32], **texts)
    browser = Browser(app)
    browser.http.environ_base["HTTP_USER_AGENT"] = MARKUP
    browser.sign_in()
    browser.sign_in(password=MARKUP)
    where = quote(MARKUP)
    for path in ("people", f"people?q={where}&group={where}", f"person?id={made.id}",
                 f"person/edit?id={made.id}", f"person/act?id={made.id}&do=delete",
                 f"person/unlink?id={made.id}&identity={linked}"):  # fmt: skip
        page = ada.open(f"{ADMIN}/{path}")
        assert page.status == 200
        assert "<script>" not in page.html
        assert "alert(1)" in page.html
        assert "{{7*7}}" in page.html


def test_ids_that_are_none(app: Flask, ada: StaffBrowser, dana: User) -> None:
    linked = link_identity(app, dana)
    for bad in ("", "x", str(UUID(int=7)), "\0", "%ff", "a" * 9000, "../..", "1 OR 1=1"):
        for path in ("person?id=", "person/edit?id=", "person/act?do=delete&id=",
                     f"person/unlink?identity={linked}&id=",
                     f"person/unlink?id={dana.id}&identity="):  # fmt: skip
            assert ada.open(f"{ADMIN}/{path}{quote(bad)}").status == 404
        for path in ("people?page=", "people?q=a&names=", "people?state=", "people?group="):
            assert ada.open(f"{ADMIN}/{path}{quote(bad)}").status == 200


def found_by(browser: Browser, query: str) -> list[str]:
    html = browser.open(f"{ADMIN}/people?{query}").html
    return re.findall(r'<a href="[^"]*/admin/person\?id=[^"]*">([^<]*)</a></span></th>', html)


def test_text_anywhere_is_looked_for_among_the_first(
    app: Flask, ada: StaffBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an index of trigrams, and only by the page; the export reads all people."""
    for email in ("books@example.com", "cole@example.com", "dana@example.com"):
        make_user(app, email)
    note = "Only the first {} people in the order of their emails were looked through."
    for most, emails in ((4, ["cole@example.com"]), (3, ["cole@example.com"]), (2, [])):
        monkeypatch.setattr(users, "MOST_FOR_A_PAGE", most)
        assert found_by(ada, "q=ole%40&anywhere=1") == emails
        html = ada.open(f"{ADMIN}/people?q=ole%40&anywhere=1").html
        assert (note.format(most) in html) == (most < 4)
        assert found_by(ada, "q=dana%40") == ["dana@example.com"]
        assert "were looked through" not in ada.open(f"{ADMIN}/people?q=dana").html
        assert "were looked through" not in ada.open(f"{ADMIN}/people?anywhere=1").html
        exported = ada.open(f"{ADMIN}/people/export?kind=csv&q=ana%40&anywhere=1")
        assert "dana@example.com" in exported.html


def test_searching(app: Flask, ada: StaffBrowser) -> None:
    make_user(app, "zoe@example.com", name="Zoë Müller", groups=["a,b"[:1]])
    off = make_user(app, "off@example.com", name="Émile", disabled=True)
    make_user(app, "new@example.com", name="zoe2", password=None, email_verified=False)
    everyone = ["ada@example.com", "new@example.com", "off@example.com", "zoe@example.com"]
    assert found_by(ada, "") == everyone
    assert found_by(ada, "q=ZO") == ["zoe@example.com", "new@example.com"]
    assert found_by(ada, "q=zoe+mu") == ["zoe@example.com"]
    assert found_by(ada, "q=emi") == ["off@example.com"]
    assert found_by(ada, "q=muller") == []
    assert found_by(ada, "q=muller&anywhere=1") == ["zoe@example.com"]
    assert found_by(ada, "q=%25&anywhere=1") == []
    assert found_by(ada, "state=disabled") == ["off@example.com"]
    assert found_by(ada, "state=invited") == ["new@example.com"]
    assert found_by(ada, "state=unverified&q=n") == ["new@example.com"]
    assert found_by(ada, "group=a") == ["zoe@example.com"]
    assert found_by(ada, f"group={ADMINS}&q=z") == []
    # A state narrows a group, too.
    make_user(app, "old@example.com", name="Old", groups=["a"], disabled=True)
    assert found_by(ada, "group=a") == ["old@example.com", "zoe@example.com"]
    assert found_by(ada, "group=a&state=disabled") == ["old@example.com"]
    assert found_by(ada, "group=a&state=disabled&q=z") == []
    assert ada.open(f"{ADMIN}/people?q={off.id}").path.endswith("/admin/person")


def test_a_person_who_is_deleted_meanwhile(
    app: Flask, ada: StaffBrowser, dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the page has found them, before the service locks them."""
    monkeypatch.setattr(users, "lock_any", lambda _: None)
    for name in ("disable", "delete"):
        assert act(ada, dana, name).status == 404
    ada.open(f"{ADMIN}/person/edit?id={dana.id}")
    assert ada.submit(name="Else", groups="", claim_address="").status == 404


def test_a_mistake_in_a_service_is_no_404(
    ada: StaffBrowser, dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`KeyError` is a `LookupError`."""
    monkeypatch.setattr(users, "lock_any", {}.__getitem__)
    assert act(ada, dana, "disable").status == 500


def test_a_seen_value_of_another_type_counts_as_unreadable(ada: StaffBrowser, dana: User) -> None:
    for name, value in (("groups", 5), ("claims", None), ("email", [])):
        ada.open(f"{ADMIN}/person/edit?id={dana.id}")
        areas = text_areas(ada)
        seen = json.dumps({**json.loads(ada.page.fields["seen"]), name: value})
        page = ada.submit(**areas, seen=seen, name=f"By {name}")
        assert "The changes were saved." in page.html


def test_an_imported_password(app: Flask, ada: StaffBrowser, dana: User) -> None:
    page = ada.open(f"{ADMIN}/person?id={dana.id}")
    assert "imported" not in page.html
    with app.app_context():
        found = users.lock_any(dana.id)
        assert found
        found.password_hash = importing.accept_hash(BCRYPT)
        db.session.commit()
    assert "<dd>imported; replaced at the next sign-in</dd>" in ada.open(page.url).html


def unlink(browser: Browser, user: User, identity: UUID) -> Any:
    return browser.open(f"{ADMIN}/person/unlink?id={user.id}&identity={identity}")


def test_connected_accounts(app: Flask, ada: StaffBrowser, dana: User, clock: Clock) -> None:
    app.extensions["sso.upstreams"] = Upstreams([provider()])
    gone, linked = link_identity(app, dana, provider="gone"), link_identity(app, dana, subject="s1")
    browser = Browser(app)
    browser.sign_in()
    with app.app_context():
        session = UpstreamSession(identity_id=linked, amr="fed")
        session.session_id = sessions.of_user(dana.id)[0].id
        identities.add_session(session)
        users.lock_any(dana.id).password_hash = None  # type: ignore[union-attr]
        db.session.commit()
    html = ada.open(f"{ADMIN}/person?id={dana.id}").html
    for text in ("Connected accounts", "<bdi>Corp</bdi>", ">s1</code>", "not available"):
        assert text in html
    assert "trusted" not in unlink(ada, dana, gone).html
    assert "only way to sign in" not in ada.page.html
    assert "only way to sign in" in unlink(ada, dana, linked).html
    assert "the provider is trusted" in ada.page.html
    assert "The connected account was removed." in ada.submit().html
    assert not is_signed_in(browser)
    assert mails(app).count("identity_removed") == 1
    with app.app_context():
        assert [one.id for one in identities.of_user(dana.id)] == [gone]
        event = db.session.scalars(
            select(AuditEvent).where(AuditEvent.name == "identity_unlinked")
        ).one()
        assert json.loads(event.fields)["operator"] == "ada@example.com"
        assert event.user_id == str(dana.id)
    assert unlink(ada, dana, linked).status == 404


def test_it_becomes_the_last_way_in_meanwhile(app: Flask, ada: StaffBrowser, dana: User) -> None:
    app.extensions["sso.upstreams"] = Upstreams([provider(trust_email=False)])
    linked = link_identity(app, dana)
    assert "only way to sign in" not in unlink(ada, dana, linked).html
    with app.app_context():
        users.lock_any(dana.id).password_hash = None  # type: ignore[union-attr]
        db.session.commit()
    page = ada.submit()
    assert "Nothing was deleted." in page.html
    assert "only way to sign in" in page.html
    with app.app_context():
        assert identities.of_user(dana.id)
    assert "The connected account was removed." in ada.submit().html


def test_connected_accounts_of_others(app: Flask, ada: StaffBrowser, dana: User) -> None:
    other = make_user(app, "erin@example.com")
    theirs, known = link_identity(app, other), link_identity(app, dana)
    assert unlink(ada, dana, theirs).status == 404
    url = unlink(ada, dana, known).url
    token = ada.page.fields["csrf_token"]
    url = url.replace(str(known), str(theirs))
    assert ada.open(url, "POST", data={"csrf_token": token}).status == 404
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    assert "Connected accounts" in hal.open(f"{ADMIN}/person?id={dana.id}").html
    assert "person/unlink" not in hal.page.html
    assert unlink(hal, dana, known).status == 404
    with app.app_context():
        assert identities.of_user(other.id)
        assert identities.of_user(dana.id)


def test_people_do_not_see_where_administrators_are(
    app: Flask, ada: StaffBrowser, dana: User, browser: Browser
) -> None:
    ada.http.environ_base["REMOTE_ADDR"] = "192.0.2.77"
    ada.http.environ_base["HTTP_USER_AGENT"] = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"
    ada.open(f"{ADMIN}/person/edit?id={dana.id}")
    ada.submit(name="Dana Else", groups="", claim_address="")
    browser.sign_in()
    page = browser.open(f"{ORIGIN}/api/auth/account/activity")
    assert "by an operator" in page.html
    assert "192.0.2.77" not in page.html
    assert "Firefox" not in page.html


def test_an_end(app: Flask, ada: StaffBrowser, dana: User) -> None:
    page = edit(ada, dana, ends_at="2026-12-31T18:00")
    assert "The changes were saved." in page.html
    assert "December 31, 2026" in ada.open(f"{ADMIN}/person?id={dana.id}").html
    found = row(app, dana)
    assert found
    assert found.ends_at == datetime(2026, 12, 31, 18, tzinfo=UTC)
    assert newest(app)[1]["changes"]["ends_at"]["after"] == "2026-12-31T18:00:00Z"
    assert 'value="2026-12-31T18:00"' in ada.open(f"{ADMIN}/person/edit?id={dana.id}").html
    for text, fault in (("2020-01-01T00:00", "is in the past"), ("soon", "Enter a date")):
        assert fault in edit(ada, dana, ends_at=text).html
    edit(ada, dana, name="Else")
    found = row(app, dana)
    assert found
    assert found.ends_at == datetime(2026, 12, 31, 18, tzinfo=UTC)
    edit(ada, dana, ends_at="")
    found = row(app, dana)
    assert found
    assert found.ends_at is None
