"""Pages of administration for those who manage only some applications.

The wiki team attacks: nothing about other applications may be seen or changed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from sso import audit, clock
from sso.audit import Actor
from sso.audit.events import Event
from sso.extensions import db
from sso.flow.permissions import LIMITABLE_TO_APPLICATIONS, Permission
from sso.models import AuditEvent, Refusal
from sso.services import clients
from sso.store import clients as stored_clients
from sso.store import provisioning, refusals, users
from tests.conftest import Clock
from tests.endpoints.admin.test_access import queries
from tests.endpoints.admin.test_permissions import LINKS, PAGES, admitted, answers  # noqa: F401  # fixture
from tests.support.actors import BASE, ORIGIN
from tests.support.administration import ADMIN, StaffBrowser, sign_in_staff, staff_of
from tests.support.factories import make_api, make_client, make_user

pytestmark = pytest.mark.slow
MARK = "Outsider"  # in the names of everything outside
OWN_PAGES = {route.name for route in PAGES if LIMITABLE_TO_APPLICATIONS.intersection(route.limited)}
ROLES = (
    "wiki-team=applications audit, managers=applications, auditors=audit, readers=people-read, "
    "hr=people-read"
)
NAMING = re.compile(
    r'name="csrf_token"[^>]*>|<code dir="ltr">[^<]*</code>|name="back" value="[^"]*"'
)


@pytest.fixture
def wiki(app: Flask, clock: Clock) -> Iterator[str]:
    """The client ID of the application that the wiki team manages."""
    client_id = make_client(app, name="Wiki").client_id
    before = app.extensions["sso.settings"]
    limits = ", ".join(f"{role}={client_id}" for role in ("wiki-team", "managers", "auditors"))
    app.extensions["sso.settings"] = replace(
        before, admin_roles=ROLES, admin_role_applications=limits, admin_role_groups="hr=paris"
    )
    yield client_id
    app.extensions["sso.settings"] = before


@pytest.fixture
def team(app: Flask, wiki: str) -> StaffBrowser:
    return sign_in_staff(app, "wim@staff.example", "wiki-team")


def join(app: Flask, email: str, *groups: str) -> None:
    with app.app_context():
        user = users.find_by_email(email)
        assert user
        user.groups = list(groups)
        db.session.commit()


def refuse(app: Flask, request_id: str, client_id: str | None, details: str = "{}") -> None:
    with app.app_context():
        db.session.add(Refusal(
            request_id=request_id, at=clock.now(), bucket=0, name="authorization_refused",
            endpoint="authorize", details=details, client_id=client_id,
        ))  # fmt: skip
        db.session.commit()


def walk(browser: StaffBrowser, about: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{method} {route.name}": f"{answer.text} {answer.headers.get('Location')}"
        for route, method, answer in answers(browser, about)
    }


def event_of(app: Flask, client_id: str | None, **more: Any) -> str:
    """Record an event about an application; return its ID."""
    with app.app_context():
        audit.event(Event.CODE_ISSUED, client=client_id, **more)
        db.session.commit()
        newest = select(AuditEvent.id).order_by(AuditEvent.at.desc(), AuditEvent.id.desc())
        return str(db.session.scalars(newest.where(AuditEvent.client_id == client_id)).first())


def test_nothing_outside_is_seen(
    app: Flask,
    team: StaffBrowser,
    admitted: list[str],  # noqa: F811  # the fixture
) -> None:
    about = queries(app, MARK)
    client_id = about[f"{BASE}/admin/application"]["id"]
    about[f"{BASE}/admin/audit/event"]["id"] = event_of(app, client_id)
    refuse(app, "aaaa-0001", client_id)
    texts = walk(team, about)
    assert set(admitted) == OWN_PAGES
    for page, text in texts.items():
        for secret in (MARK, client_id, "aaaa-0001", "dana@example.com"):
            assert secret not in text, page
    assert "Wiki" in texts["GET applications"]


def test_each_permission_opens_its_pages(
    app: Flask,
    wiki: str,
    admitted: list[str],  # noqa: F811  # the fixture
) -> None:
    """And they link to no page that does not open."""
    about = queries(app, "plain")
    about = {path: {**query, "id": wiki} for path, query in about.items()}
    about[f"{BASE}/admin/audit/event"]["id"] = event_of(app, wiki)
    refuse(app, "aaaa-0001", wiki)
    for group, held in (
        ("managers", {Permission.APPLICATIONS}),
        ("auditors", {Permission.AUDIT}),
        ("wiki-team", {Permission.APPLICATIONS, Permission.AUDIT}),
    ):
        browser = sign_in_staff(app, f"{group}@staff.example", group)
        admitted.clear()
        texts = walk(browser, about)
        names = {route.name for route in PAGES if held.intersection(route.limited)}
        assert set(admitted) == names, group
        allowed = {route.path.format(base=BASE) for route in PAGES if route.name in names}
        links = {link for text in texts.values() for link in LINKS.findall(text)}
        assert links <= allowed, group


def test_another_application_is_one_that_nobody_has(app: Flask, team: StaffBrowser) -> None:
    """With each method of each page, also for an ID with other characters."""
    outside = make_client(app, name=MARK).client_id
    unknown = "A" * len(outside)
    texts = []
    for client_id in (outside, unknown, "wïki", outside.swapcase(), f" {outside}", ""):
        about = {
            route.path.format(base=BASE): {"id": client_id, "client": client_id, "do": "disable"}
            for route in PAGES
        }
        texts.append([
            (route.name, method, answer.status_code, NAMING.sub("", answer.text))
            for route, method, answer in answers(team, about)
            if "/application/" in route.path or route.path.endswith(("/application", "/refusals"))
        ])  # fmt: skip
        assert {status for _, _, status, _ in texts[-1]} <= {404} or not client_id
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "query",
    ["", "q=outs", "q=outsider", "q=books.example", "kind=web", "state=enabled", "state=disabled",
     "group=secret", "sort=name", "q=OUT&sort=name&kind=web", "n=2", "page=x"],
)  # fmt: skip
def test_no_search_finds_others(app: Flask, team: StaffBrowser, query: str) -> None:
    """Neither on the page, nor by its total, nor in the export."""
    outside = make_client(app, name=MARK, groups=["secret"])
    for url in (f"{ADMIN}/applications?{query}", f"{ADMIN}/applications/export?{query}"):
        page = team.open(url)
        assert page.status == 200
        assert outside.client_id not in page.html
        assert MARK not in page.html
    count = re.search(r"Entries: (\d+)", team.open(f"{ADMIN}/applications?{query}").html)
    assert count
    assert int(count[1]) in (0, 1)
    everything = sign_in_staff(app).open(f"{ADMIN}/applications").html
    assert MARK in everything


def test_several_at_once(app: Flask, team: StaffBrowser, wiki: str) -> None:
    outside = make_client(app, name=MARK).client_id
    for chosen, text in (([outside], "Choose at least one application."), ([outside, wiki], "")):
        team.open(f"{ADMIN}/applications")
        fields = {**team.page.fields, "do": "disable", "application": chosen}
        page = team.open(team.page.url, "POST", data={**fields})
        assert text in page.html
        assert MARK not in page.html
        team.open(f"{ADMIN}/applications")
        fields = {**team.page.fields, "do": "disable", "application": chosen, "is_confirmed": "1"}
        team.open(team.page.url, "POST", data=fields)
    with app.app_context():
        rows = [stored_clients.find(client_id) for client_id in (outside, wiki)]
        assert [row.disabled_at is None for row in rows if row] == [True, False]


def test_the_form_has_only_their_fields(app: Flask, team: StaffBrowser, wiki: str) -> None:
    """What is sent besides is ignored, as if the page did not know it."""
    page = team.open(f"{ADMIN}/application/edit?id={wiki}")
    names = set(re.findall(r'name="([a-z_]+)"', page.html.partition("<main")[2]))
    assert {"client_name", "redirect_uris", "home_url", "jwks"} <= names
    assert not names & {"scope", "groups", "first_party", "grant_types", "apis", "roles"}
    page = team.send(
        client_name="Our wiki", redirect_uris="https://wiki.example/new", scope=["phone"],
        groups="", first_party="y", apis="https://api.example.com", own_claims="x=constant:y",
    )  # fmt: skip
    assert page.status == 200
    assert "The application was changed." in page.html
    with app.app_context():
        client = stored_clients.find(wiki)
        assert client
        after = clients.described(client)
    assert after["client_name"] == "Our wiki"
    assert after["redirect_uris"] == ["https://wiki.example/new"]
    assert "phone" not in after["scope"]
    assert (after["first_party"], after["apis"], after.get("own_claims")) == (False, [], [])
    assert "Register an application" not in team.open(f"{ADMIN}/applications").html
    html = team.open(f"{ADMIN}/application?id={wiki}").html
    assert "Disable the application" in html
    assert "Delete the application" not in html
    assert team.open(f"{ADMIN}/application/act?id={wiki}&do=delete").status == 404


def test_others_see_what_is_changed_meanwhile(app: Flask, team: StaffBrowser, wiki: str) -> None:
    """The form compares its own fields alone."""
    team.open(f"{ADMIN}/application/edit?id={wiki}")
    with app.app_context():
        clients.change(Actor("olga"), wiki, {"groups": ["secret"]})
        db.session.commit()
    assert "The application was changed." in team.send(client_name="Our wiki").html
    team.open(f"{ADMIN}/application/edit?id={wiki}")
    with app.app_context():
        clients.change(Actor("olga"), wiki, {"client_name": "Theirs"})
        db.session.commit()
    page = team.send(client_name="Mine")
    assert (page.status, "Theirs" in page.html) == (409, True)


def test_a_secret(app: Flask, team: StaffBrowser, wiki: str) -> None:
    team.open(f"{ADMIN}/application/secret?id={wiki}")
    assert team.send(hours="24").status == 200
    html = team.open(f"{ADMIN}/application?id={wiki}").html
    assert "End the old secret" in html
    team.open(f"{ADMIN}/application/act?id={wiki}&do=end-old-secret")
    assert "The old secret was ended." in team.send().html
    team.open(f"{ADMIN}/application/secret-end?id={wiki}")
    assert team.send(ends_at="2099-01-01T00:00").status == 200


@pytest.mark.parametrize("taken", ["role", "limit", "account"])
@pytest.mark.parametrize("page", ["edit", "secret", "act?do=disable", "logo"])
def test_a_role_taken_between_page_and_form(
    app: Flask, team: StaffBrowser, wiki: str, taken: str, page: str
) -> None:
    separator = "&" if "?" in page else "?"
    team.open(f"{ADMIN}/application/{page}{separator}id={wiki}")
    with app.app_context():
        client = stored_clients.find(wiki)
        assert client
        before = clients.described(client), client.secret_digest
    if taken == "limit":
        settings = app.extensions["sso.settings"]
        another = "wiki-team=another"
        app.extensions["sso.settings"] = replace(settings, admin_role_applications=another)
    else:
        join(app, "wim@staff.example", *(["managers2"] if taken == "role" else []))
    more = {"client_name": "Mine"} if page == "edit" else {}
    assert team.send(**more).status == 404
    with app.app_context():
        client = stored_clients.find(wiki)
        assert client
        assert (clients.described(client), client.secret_digest) == before


# Refused requests


def test_refusals_are_those_of_their_applications(
    app: Flask, team: StaffBrowser, wiki: str
) -> None:
    outside = make_client(app, name=MARK).client_id
    refuse(app, "aaaa-0001", wiki)
    refuse(app, "aaaa-0002", outside)
    refuse(app, "aaaa-0003", None)
    for url in ("refusals", "refusals?sort=oldest", "refusals/export", f"refusals?client={wiki}"):
        html = team.open(f"{ADMIN}/{url}").html
        assert "aaaa-0001" in html, url
        assert "aaaa-0002" not in html, url
        assert "aaaa-0003" not in html, url
    assert "Entries: 1" in team.open(f"{ADMIN}/refusals").html
    hidden = team.open(f"{ADMIN}/refusals?q=aaaa-0002").html
    unknown = team.open(f"{ADMIN}/refusals?q=bbbb-0002").html
    assert "No refused request has this ID." in hidden
    assert hidden.count("aaaa-0002") == unknown.count("bbbb-0002")
    assert "aaaa-0001" in team.open(f"{ADMIN}/refusals?q=aaaa").html
    assert "aaaa-0002" not in team.open(f"{ADMIN}/refusals?q=aaaa").html
    for url in (f"refusals?client={outside}", f"refusals/export?client={outside}"):
        assert team.open(f"{ADMIN}/{url}").status == 404


def test_an_explanation_names_no_other_application(
    app: Flask, team: StaffBrowser, wiki: str
) -> None:
    """Anyone can send the client ID of the wiki with the redirect URI of the payroll, or an API."""
    make_client(app, name=MARK, redirect_uris=["https://payroll.example/callback"])
    there, visitor = make_api(app, f"https://{MARK.lower()}.example"), StaffBrowser(app)
    mine = "https://books.example/callback&scope=openid&state=abcdefgh&code_challenge_method=S256"
    mine += f"&code_challenge={'x' * 43}"
    for query in (
        "redirect_uri=https://payroll.example/callback",
        f"redirect_uri={mine}&resource={there}",
        f"redirect_uri={mine}&resource=https://elsewhere.example",
    ):
        path = f"{BASE}/oauth2/authorize?client_id={wiki}&response_type=code&{query}"
        visitor.http.get(path)
    refusals.flush(app)
    ada = sign_in_staff(app)
    ids = set(re.findall(r"refusals\?q=([a-z0-9-]+)", ada.open(f"{ADMIN}/refusals").html))
    assert len(ids) == 3
    told = [ada.open(f"{ADMIN}/refusals?q={request_id}").html for request_id in ids]
    hidden = [team.open(f"{ADMIN}/refusals?q={request_id}").html for request_id in ids]
    assert MARK in "".join(told)
    assert MARK not in "".join(hidden)
    assert "is registered here, but not for" in "".join(told)
    causes = [html for html in hidden if "is not registered for an API with this" in html]
    assert len(causes) == 2  # whether there is such an API or not


# The audit trail


@pytest.mark.parametrize("group", ["wiki-team", "auditors"])
def test_events_are_those_of_their_applications(app: Flask, wiki: str, group: str) -> None:
    outside = make_client(app, name=MARK).client_id
    dana = make_user(app, "dana@example.com")
    mine, theirs, nobodys = (
        event_of(app, client_id, user=dana.id, address=address)
        for client_id, address in ((wiki, "192.0.2.1"), (outside, "192.0.2.2"), (None, "192.0.2.3"))
    )
    browser = sign_in_staff(app, f"{group}@staff.example", group)
    for query in (
        "", "who=dana@example.com", f"who={dana.id}", f"client={wiki}", "client=Wiki",
        "event=code_issued", "event=family:applications", "since=2000-01-01", "live=3",
        "event=family:sign-ins&client=Wiki",
    ):  # fmt: skip
        for url in ("audit?", "audit/export?kind=csv&", "audit/export?kind=jsonl&"):
            page = browser.open(f"{ADMIN}/{url}{query}")
            assert page.status == 200
            for secret in (MARK, outside, "192.0.2.2", "192.0.2.3"):
                assert secret not in page.html, (url, query)
            if "family" not in query:
                assert "192.0.2.1" in page.html, (url, query)
    for query in (f"client={outside}", f"client={MARK}", "client=Out", "actor=olga", "who=dan"):
        for url in ("audit?", "audit/export?kind=csv&"):
            html = browser.open(f"{ADMIN}/{url}{query}").html
            assert "192.0.2." not in html, query
    assert browser.open(f"{ADMIN}/audit/event?id={mine}").status == 200
    for event_id in (theirs, nobodys):
        assert browser.open(f"{ADMIN}/audit/event?id={event_id}").status == 404
    assert browser.open(f"{ADMIN}/audit/chain").status == 404


def test_pages_of_events(app: Flask, wiki: str) -> None:
    """Of two applications, each event once, in the order of their times."""
    settings = app.extensions["sso.settings"]
    other = make_client(app, name="Second").client_id
    limits = f"auditors={wiki}, auditors={other}"
    app.extensions["sso.settings"] = replace(settings, admin_role_applications=limits)
    for number in range(120):
        event_of(app, (wiki, other)[number % 2], address=f"192.0.2.{number}")
    browser = sign_in_staff(app, "audrey@staff.example", "auditors")
    url, listed = f"{ADMIN}/audit", list[str]()
    while url:
        html = browser.open(url).html
        listed += re.findall(r"192\.0\.2\.\d+(?=</span>)", html)
        link = re.search(r'rel="next" href="([^"]*)"', html)
        url = ORIGIN + link[1].replace("&amp;", "&") if link else ""
    assert sorted(listed) == sorted(f"192.0.2.{number}" for number in range(120))


# The preview


@pytest.mark.parametrize(
    ("groups", "seen"),
    [
        (["wiki-team"], None),
        (["wiki-team", "hr"], {"paula@example.com"}),
        (["wiki-team", "readers"], {"paula@example.com", "dana@example.com"}),
        (["sso-administrators"], {"paula@example.com", "dana@example.com"}),
    ],
)
def test_the_preview_shows_people_whom_they_see(
    app: Flask, wiki: str, groups: list[str], seen: set[str] | None
) -> None:
    make_user(app, "paula@example.com", name="Paula P", groups=["paris"])
    make_user(app, "dana@example.com", name="Dana D")
    browser = sign_in_staff(app, "pia@staff.example", "wiki-team")
    join(app, "pia@staff.example", *groups)
    offered = "Preview for a person" in browser.open(f"{ADMIN}/application?id={wiki}").html
    assert offered is (seen is not None)
    answers = {}
    for email in ("paula@example.com", "dana@example.com", "nobody@example.com"):
        page = browser.open(f"{ADMIN}/application/preview?id={wiki}&who={email}")
        assert page.status == (404 if seen is None else 200)
        assert ("preferred_username" in page.html or ">sub<" in page.html) is (
            email in (seen or ())
        ), email
        answers[email] = NAMING.sub("", page.html).replace(email, "X")
    if seen is not None and len(seen) == 1:
        assert answers["dana@example.com"] == answers["nobody@example.com"]


def test_who_sees_all_people_sends_nobody_to_another_application(app: Flask, wiki: str) -> None:
    sent = {"scim_url": "https://books.example/scim", "scim_everyone": True}
    outside, user = make_client(app, name=MARK, **sent).client_id, make_user(app)
    browser = sign_in_staff(app, "wim@staff.example", "wiki-team")
    join(app, "wim@staff.example", "wiki-team", "readers")
    with app.app_context():
        clients.change(audit.operator(), wiki, sent)
        for client_id in (wiki, outside):
            provisioning.mark_due(client_id, {user.id: user.email})
        db.session.commit()
        ids = {id_: provisioning.newest(id_, 1)[0].id for id_ in (wiki, outside)}
    for client_id, status in ((wiki, 200), (outside, 404)):
        page = browser.open(
            f"{ORIGIN}{BASE}/admin/application/provisioning/retry?id={ids[client_id]}"
        )
        assert (page.status, user.email in page.html) == (status, status == 200)


def test_an_ended_membership_opens_nothing(app: Flask, team: StaffBrowser, wiki: str) -> None:
    """One second before the end, and one after it, while the worker has not removed it."""
    for seconds, status in ((60, 200), (-1, 404)):
        with app.app_context():
            user = users.find_by_email("wim@staff.example")
            assert user
            at = clock.now() + timedelta(seconds=seconds)
            user.set_group_ends({"wiki-team": at.isoformat()})
            db.session.commit()
        assert team.open(f"{ADMIN}/application?id={wiki}").status == status


def test_the_helpdesk_links_to_no_other_application(app: Flask, team: StaffBrowser) -> None:
    """On the page of a person, as in every list."""
    dana = make_user(app, "dana@example.com")
    outside = make_client(app, name=MARK)
    browser = StaffBrowser(app)
    browser.sign_in("dana@example.com")
    browser.approve(outside)
    join(app, "wim@staff.example", "wiki-team", "readers")
    html = team.open(f"{ADMIN}/person?id={dana.id}").html
    assert MARK in html  # those who see people see what they use
    assert f"application?id={outside.client_id}" not in html


@pytest.mark.parametrize(
    ("disabled_by", "visitor", "is_shown"),
    [
        ("wiki-team", "wiki-team", True),
        (None, "wiki-team", False),  # at the command line
        (None, "sso-administrators", True),
        ("wiki-team", "sso-administrators", True),
    ],
)
def test_the_button_that_enables(
    app: Flask, wiki: str, disabled_by: str | None, visitor: str, is_shown: bool
) -> None:
    """It is left out where the service refuses; the form, if it is sent, says so."""
    browser = sign_in_staff(app, "visitor@staff.example", visitor)
    with app.app_context():
        clients.disable(staff_of(app, disabled_by) if disabled_by else Actor("olga"), wiki)
        db.session.commit()
    page = browser.open(f"{ADMIN}/application?id={wiki}")
    assert page.status == 200
    assert ("do=enable" in page.html) is is_shown
    browser.open(f"{ADMIN}/application/act?id={wiki}&do=enable")
    page = browser.send()
    assert ("Somebody with more permissions than you" in page.html) is not is_shown
    with app.app_context():
        client = stored_clients.find(wiki)
        assert client
        assert (client.disabled_at is not None) is not is_shown
