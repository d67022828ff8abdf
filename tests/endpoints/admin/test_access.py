"""Who gets to the pages of administration, and what everyone else sees."""

import html
import re
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from flask import Flask
from sqlalchemy import func, select, update
from werkzeug.test import TestResponse

from sso import audit
from sso.clock import now
from sso.config import urls
from sso.config.upstream.file import Upstreams
from sso.config.upstream.oidc import OidcProvider
from sso.endpoints.admin import access
from sso.endpoints.admin.overview import LABELS
from sso.endpoints.admin.people import ACTIONS
from sso.endpoints.routes import ROUTES
from sso.extensions import db
from sso.flow.permissions import CHANGE_PEOPLE, ROLES
from sso.flow.profile_claims import CLAIMS
from sso.models import (
    Api,
    AuditEvent,
    BrowserSession,
    Client,
    Identity,
    Mail,
    User,
    WebhookDelivery,
)
from sso.services import agents, api_tokens, attributes, group_owners, webhooks
from sso.store import apis, keys, named_groups, provisioning, users
from sso.web.headers import SCRIPT_POLICY
from sso.web.routing import ADMIN as BLUEPRINT
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.administration import (
    ADMIN,
    ADMINS,
    HELPDESK,
    StaffBrowser,
    link_identity,
    sign_in_staff,
)
from tests.support.factories import PASSWORD, make_api, make_attribute, make_client, make_user
from tests.support.second_factors import code_of, enrol_totp

pytestmark = pytest.mark.slow

HELPDESK_ROLE = ROLES["helpdesk"]
PAGES = [route for route in ROUTES if route.blueprint == BLUEPRINT]
PATHS = [route.path.format(base=BASE) for route in PAGES]
# The id, and where the form of the languages leads back to.
OF_REQUEST = re.compile(r'<code dir="ltr">[^<]*</code>|name="(?:csrf_token|back)" value="[^"]*"')


def told(answer: TestResponse) -> tuple[Any, ...]:
    """All of an answer but what names its request."""
    naming = ("X-Request-ID", "Set-Cookie", "Content-Length")
    headers = [one for one in answer.headers if one[0] not in naming]
    return answer.status_code, headers, OF_REQUEST.sub("", answer.get_data(as_text=True))


def ask(browser: Browser, path: str, method: str = "GET", **more: Any) -> TestResponse:
    return browser.http.open(path, method=method, base_url=ORIGIN, **more)


def is_enabled(app: Flask, user: User) -> bool:
    with app.app_context():
        found = users.find(user.id)
        assert found
        return found.disabled_at is None


def test_every_page_below_admin_is_an_admin_page(app: Flask) -> None:
    below = [one for one in ROUTES if one.path.startswith("{base}/admin")]
    assert below == PAGES
    assert all(route.has_csrf and not route.cors and not route.max_age for route in PAGES)
    for rule in app.url_map.iter_rules():
        is_below = rule.rule == f"{BASE}/admin" or rule.rule.startswith(f"{BASE}/admin/")
        assert is_below == rule.endpoint.startswith("admin."), rule


def outsiders(app: Flask, clock: Clock) -> dict[str, Browser]:
    member = Browser(app)
    make_user(app, "dana@example.com", groups=["staff", "sso-administrators2"])
    member.sign_in()
    enrol_totp(member)
    former = sign_in_staff(app, "former@example.com")
    with app.app_context():
        found = users.find_by_email("former@example.com")
        assert found
        found.groups = []
        db.session.commit()
    return {"member": member, "former": former}


def test_signed_in_outsiders_get_what_an_unknown_page_gives(app: Flask, clock: Clock) -> None:
    for who, browser in outsiders(app, clock).items():
        others = ("HEAD", "PUT", "OPTIONS", "DELETE") if who == "member" else ()
        for method in ("GET", "POST", *others):
            unknown = told(ask(browser, f"{BASE}/nowhere", method))
            assert unknown[0] == 404
            near = (f"{BASE}//admin", f"{BASE}/admin/", f"{BASE}/admin/unknown")
            for path in (*PATHS, *near):
                assert told(ask(browser, path, method)) == unknown, (who, method, path)


def where_to(answer: TestResponse) -> dict[str, str]:
    """The parameters of the sign-in page that an answer redirects to."""
    assert answer.status_code == 303
    url = urlsplit(answer.headers["Location"])
    assert (url.scheme, url.netloc, url.path) == ("", "", f"{BASE}/sign-in")
    return dict(parse_qsl(url.query))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_visitors_are_sent_to_sign_in_from_every_page(browser: Browser, method: str) -> None:
    for path in PATHS:
        at = f"{path}?id=a%26b&q=%C3%A9"
        assert where_to(ask(browser, at, method)) == {"back": "admin", "at": at}


def test_visitors_get_404_where_there_is_no_page(browser: Browser) -> None:
    for path in (f"{BASE}//admin", f"{BASE}/admin/", f"{BASE}/admin/unknown", f"{BASE}/adminx"):
        assert ask(browser, path).status_code == 404
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        assert ask(browser, f"{BASE}/admin/people", method).status_code == 404
    assert ask(browser, f"{BASE}/admin/person", "POST").status_code == 404  # it takes no form


def test_a_visitor_signs_in_and_comes_back(app: Flask, clock: Clock) -> None:
    browser = sign_in_staff(app)
    secret = browser.secret
    browser = StaffBrowser(app)
    page = browser.open(f"{ADMIN}/people?q=ad%26a&state=disabled")
    assert page.path.endswith("/sign-in")
    clock.move(minutes=1)
    page = browser.submit(email="ada@example.com", password=PASSWORD)
    assert page.path.endswith("/second-factor")
    page = browser.submit(code=code_of(secret))
    assert page.url == f"{ADMIN}/people?q=ad%26a&state=disabled"
    assert page.status == 200


def test_a_visitor_without_the_role_comes_back_to_a_404(app: Flask, browser: Browser) -> None:
    make_user(app)
    browser.open(f"{ADMIN}/people")
    page = browser.submit(email="dana@example.com", password=PASSWORD)
    assert (page.path, page.status) == (f"{BASE}/admin/people", 404)


def test_a_form_of_a_visitor_is_not_replayed(app: Flask, clock: Clock) -> None:
    """The session ended while the form was open; after the sign-in it is an empty form again."""
    ada, dana = sign_in_staff(app), make_user(app)
    ada.open(f"{ADMIN}/person/act?id={dana.id}&do=disable")
    url, fields, path = ada.page.url, ada.page.fields, ada.page.url.removeprefix(ORIGIN)
    visitor = StaffBrowser(app)
    answer = ask(visitor, path, "POST", data=fields, headers={"Origin": ORIGIN})
    assert where_to(answer) == {"back": "admin", "at": path}
    clock.move(minutes=1)
    visitor.open(answer.headers["Location"])
    visitor.submit(email="ada@example.com", password=PASSWORD)
    page = visitor.submit(code=code_of(ada.secret))
    assert (page.url, page.status) == (url, 200)
    assert is_enabled(app, dana)
    for headers in ({}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = ask(visitor.__class__(app), path, "POST", data=fields, headers=headers)
        assert answer.status_code == 404


def test_a_long_way_back_is_cut_to_the_page(browser: Browser) -> None:
    path = f"{BASE}/admin/people"
    room = 1000 - len(f"{path}?q=")
    for length, at in ((room, f"{path}?q={'x' * room}"), (room + 1, path)):
        assert where_to(ask(browser, f"{path}?q={'x' * length}"))["at"] == at


def test_the_404_costs_what_another_one_costs(app: Flask, clock: Clock, statements: Any) -> None:
    for who, browser in outsiders(app, clock).items():
        seen = []
        for path in (f"{BASE}/nowhere", f"{BASE}/admin"):
            with statements() as run:
                ask(browser, path)
            seen.append(list(run))
        assert seen[0] == seen[1], who


def test_the_helpdesk_gets_the_pages_that_are_for_it(app: Flask, clock: Clock) -> None:
    browser = sign_in_staff(app, group=HELPDESK)
    unknown = told(ask(browser, f"{BASE}/nowhere"))
    for route, path in zip(PAGES, PATHS, strict=True):
        for method in ("GET", "POST"):
            if HELPDESK_ROLE.isdisjoint(route.needs):
                headers = {"Origin": ORIGIN} if method == "POST" else {}
                assert told(ask(browser, path, method, headers=headers)) == unknown
    assert browser.open(ADMIN).status == 200


# What docs/how-to/administer.md promises the helpdesk: each heading and fact of its pages.
PEOPLE = {
    "Administration", "People", "Invite a person", "Ada Admin", "By email", "By name",
    "Second factors", "Connected accounts", "Sessions", "Applications with access",
    "Recent activity", "This ends", "Dangerous actions", "Attributes of Dana", "Attributes",
    # The profile.
    "Email", "ID", "Groups", "Password", "Created", "Last active",
    *(claim.title for claim in CLAIMS.values()),
}  # fmt: skip
# Those of an event's details are names of its fields, in code.
HEADINGS = re.compile(r"<(h1|h2|dt)\b[^>]*>(?!<code)(.*?)</\1>", re.DOTALL)
LINKS = re.compile(rf'(?:href|action)="({BASE}/admin[^"]*)"')


def test_the_helpdesk_sees_people_and_nothing_else(app: Flask, clock: Clock) -> None:
    """Each page that is open to it, by every link, with a warning that administrators see."""
    ada, hal = sign_in_staff(app), sign_in_staff(app, "hal@example.com", HELPDESK)
    dana = make_user(app, name="Dana", groups=["staff"], claims={"nickname": "Dee"})
    link_identity(app, dana)
    make_client(app)
    make_attribute(app, "floor", writers=["helpdesk"])
    assert "What needs attention" in ada.open(ADMIN).html  # there is no mail server
    waiting, seen = {f"{BASE}/admin", f"{BASE}/admin/people?q=d"}, set[str]()
    waiting |= {f"{BASE}/admin/person/act?id={dana.id}&do={name}" for name in ACTIONS}
    labels = [label for label in LABELS.values() if label != "Account"]  # a common word
    forbidden = (*labels, "Emails", "Logout tokens", "Webhooks", "Worker", 'alert"')
    forbidden = (*forbidden, "Database schema", "Signing keys", "API tokens", "Audit trail")
    while waiting:
        path = waiting.pop()
        seen.add(path)
        answer = ask(hal, path)
        is_offered = "/act?" not in path or ACTIONS[path.partition("do=")[2]].needs == CHANGE_PEOPLE
        if not is_offered or path.endswith(("do=invite", "do=verify")):  # Dana needs neither
            assert answer.status_code == 404, path
            continue
        assert answer.status_code == 200, path
        text = answer.text
        headings = {re.sub("<[^>]*>", "", one[1]).strip() for one in HEADINGS.findall(text)}
        actions = [one.label for one in ACTIONS.values() if one.needs == CHANGE_PEOPLE]
        more = {one for one in headings if one.partition(" · ")[0] in actions or one == "Dana"}
        assert headings - more <= PEOPLE, path
        body = text.partition("<main")[2]
        assert not [one for one in forbidden if one in body], path
        waiting |= {html.unescape(one) for one in LINKS.findall(text)} - seen
        assert len(seen) < 100
    pages = {path.partition("?")[0] for path in seen}
    assert pages == {
        path
        for route, path in zip(PAGES, PATHS, strict=True)
        if not HELPDESK_ROLE.isdisjoint(route.needs)
    }


def test_the_documentation_names_what_the_helpdesk_sees() -> None:
    text = (Path(__file__).parents[3] / "docs/how-to/administer.md").read_text()
    section = text.partition("## The helpdesk")[2].partition("## ")[0].lower()
    for one in ("Second factors", "Connected accounts", "Sessions", "Applications with access",
                "Recent activity", "Groups", "profile", "overview"):  # fmt: skip
        assert one.lower() in section, one


def test_what_an_admin_page_says_to_browsers(app: Flask, clock: Clock) -> None:
    browser = sign_in_staff(app)
    page = browser.open(ADMIN)
    assert page.status == 200
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    assert page.headers["Content-Security-Policy"] == SCRIPT_POLICY
    assert page.headers["Referrer-Policy"] == "same-origin"


def test_a_factor_is_asked_for_every_15_minutes_and_leads_back(app: Flask, clock: Clock) -> None:
    browser = sign_in_staff(app)
    clock.move(minutes=14)
    assert browser.open(f"{ADMIN}/people?q=ada").path.endswith("/admin/people")
    clock.move(minutes=2)
    assert browser.open(f"{ADMIN}/people?q=ada").path.endswith("/second-factor")
    page = browser.submit(code=code_of(browser.secret))
    assert page.url == f"{ADMIN}/people?q=ada"


def test_someone_without_a_factor_is_led_to_set_one_up(app: Flask, clock: Clock) -> None:
    make_user(app, "ada@example.com", groups=[ADMINS])
    browser = StaffBrowser(app)
    browser.sign_in("ada@example.com")
    sent = ask(browser, f"{ADMIN}/person/invite", "POST", headers={"Origin": ORIGIN})
    assert (sent.status_code, sent.location.partition("?")[0]) == (303, f"{BASE}/account/factors")
    page = browser.open(f"{ADMIN}/people?q=ada")
    assert page.path.endswith("/account/factors")
    assert "Administration requires a second factor" in page.html
    enrol_totp(browser, page.url.replace("/factors?", "/factors/totp?"))
    assert f'href="{BASE}/admin/people?q=ada"' in browser.page.html


def test_after_a_long_time_the_sign_in_comes_first(app: Flask, clock: Clock) -> None:
    make_user(app, "ada@example.com", groups=[ADMINS])
    browser = StaffBrowser(app)
    browser.sign_in("ada@example.com")
    clock.move(minutes=6)
    page = browser.open(f"{ADMIN}/people")
    browser.open(page.url.replace("/account/factors?", "/sign-in?back=factors&"))
    assert "password" in browser.page.fields
    page = browser.submit(email="ada@example.com", password=PASSWORD)
    assert page.path.endswith("/account/factors")
    assert "at=" in page.url


@pytest.mark.parametrize(
    "at",
    ["https://evil.example/", "//evil.example", f"{BASE}/account", "/x\r\nSet-Cookie: a=b", "\\x"],
)
def test_the_way_back_leads_to_admin_pages_alone(app: Flask, clock: Clock, at: str) -> None:
    browser = sign_in_staff(app)
    answer = ask(browser, f"{BASE}/second-factor", query_string={"back": "admin", "at": at})
    assert answer.headers["Location"] == f"{BASE}/admin"


ELSEWHERE = [
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
]


@pytest.mark.parametrize("headers", ELSEWHERE, ids=["image", "frame", "fetch"])
def test_other_sites_load_no_page(app: Flask, clock: Clock, headers: dict[str, str]) -> None:
    browser = sign_in_staff(app)
    assert ask(browser, PATHS[0], headers=headers).status_code == 404


def test_other_sites_may_link(app: Flask, clock: Clock) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    answer = ask(sign_in_staff(app), PATHS[0], headers={**link, "Sec-Fetch-Dest": "document"})
    assert answer.status_code == 200


def test_the_account_links_to_it(app: Flask, clock: Clock, browser: Browser) -> None:
    link = f'href="{BASE}/admin"'
    assert link in sign_in_staff(app).open(f"{ORIGIN}{BASE}/account").html
    helper = sign_in_staff(app, "hal@example.com", HELPDESK)
    assert link in helper.open(f"{ORIGIN}{BASE}/account").html
    make_user(app)
    browser.sign_in()
    assert link not in browser.open(f"{ORIGIN}{BASE}/account").html


ACTS = [route.path.format(base=BASE) for route in PAGES if "POST" in route.methods]


@pytest.fixture
def ada(app: Flask, clock: Clock) -> StaffBrowser:
    return sign_in_staff(app)


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "null"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "same-site"},
     {"Sec-Fetch-Site": "cross-site", "Origin": ORIGIN}, {"Sec-Fetch-Site": "none"}],
)  # fmt: skip
def test_only_our_own_pages_send_forms(ada: StaffBrowser, headers: dict[str, str]) -> None:
    token = ada.open(f"{ORIGIN}{BASE}/account").fields["csrf_token"]
    for path in ACTS:
        form = {"csrf_token": token}
        assert ask(ada, path, "POST", data=form, headers=headers).status_code == 404


def queries(app: Flask, name: str) -> dict[str, dict[str, Any]]:
    """What each page is about, by its path: a person, an application, … of this name."""
    dana = make_user(app, name=name, groups=[name])
    identifier = make_api(app, name=name, scopes={"read": name}, groups=[name])
    client = make_client(
        app, name=name, apis=[identifier], scim_url="https://wiki.example/", scim_everyone=True
    )
    with app.app_context():
        provisioning.mark_due(client.client_id, {dana.id: name})
        (account,) = provisioning.newest(client.client_id, 1)
        group = named_groups.find_by_name(name)
        token, _ = api_tokens.create(audit.operator(), name, ["scim:read"])
        agents.allow(audit.operator(), "agent.example")
        attributes.define(audit.operator(), {"name": "costcenter", "title": name})
        webhook, _ = webhooks.create(audit.operator(), "https://hooks.example/", ["signed_in"])
        mail = Mail(kind="reset", address=f"{name[:5]}@example.com")
        delivery = WebhookDelivery(webhook_id=webhook.id, event="signed_in", body="{}")
        db.session.add_all([mail, delivery])
        db.session.flush()
        delivery.next_attempt_at = None
        db.session.commit()
        event_id = db.session.scalars(select(AuditEvent.id).limit(1)).one()
        assert group
        group_owners.change(audit.operator(), group.id, added=[dana.id])
        db.session.commit()
        api = apis.find(identifier)
        assert api
        ids = {"person": dana.id, "application": client.client_id, "group": group.id,
               "api-token": token.id, "api": api.api_id,
               "mcp-server": api.api_id, "provider": "corp", "webhook": webhook.id,
               "email": mail.id, "audit": event_id, "webhook/retry": delivery.id,
               "application/provisioning/retry": account.id}  # fmt: skip
        kid = next(one.kid for one in keys.every_signing_key() if one.state == "next")
    actions = {"person": "delete", "application": "delete", "api": "delete", "mcp-servers": "block",
               "webhook": "delete", "email": "delete", "emails": "retry"}  # fmt: skip
    more = {"user": dana.id, "domain": "agent.example", "kid": kid, "preset": "grafana",
            "name": "costcenter",
            "identity": link_identity(app, dana, email=name, subject=name)}  # fmt: skip
    return {
        path: {"id": ids.get(tail, ids.get(what, "")), "do": actions.get(what, ""), **more}
        for path in PATHS
        for tail in [path.removeprefix(f"{BASE}/admin").removeprefix("/")]
        for what in [tail.split("/")[0]]
    }


@pytest.fixture
def corp(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider, whose page tests it only after the form was checked."""
    provider = OidcProvider(
        id="corp", type="oidc", name="Corp", issuer="https://corp.example", client_id="us",
        client_secret="x",
    )  # fmt: skip
    monkeypatch.setitem(app.extensions, "sso.upstreams", Upstreams((provider,)))


@pytest.mark.usefixtures("corp")
def test_markup_is_text_on_every_page(app: Flask, ada: StaffBrowser) -> None:
    markup = "\"'><script>alert(1)</script>{{7*7}}"
    ada.http.environ_base["HTTP_USER_AGENT"] = markup
    asked, shown = queries(app, markup), 0
    for path in PATHS:
        answer = ask(ada, path, query_string=asked[path])
        answer.get_data()  # a file that is not read to its end would keep its context
        if path.endswith(("/setup", "/export")):  # of a preset; a file
            assert answer.status_code == 404 or answer.mimetype == "text/csv"
            continue
        assert answer.status_code == 200, path
        assert "<script>" not in answer.text, path
        assert "{{7*7}}" in answer.text or "7*7" not in answer.text, path
        shown += "alert(1)" in answer.text
    assert shown >= 20


@pytest.mark.usefixtures("corp")
def test_every_form_needs_its_token(app: Flask, ada: StaffBrowser) -> None:
    """Without it, or with one from before a step-up, the form is shown again and does nothing."""
    asked = queries(app, "wiki")

    def happened() -> tuple[Any, ...]:
        with app.app_context():
            return tuple(db.session.scalar(select(func.count()).select_from(model))
                         for model in (Api, AuditEvent, Mail, User, Client, Identity))  # fmt: skip

    before, seen = happened(), 0
    typed = {"name": "Typed", "email": "typed@example.com", "client_name": "Typed", "scopes": "x"}
    for path in ACTS:
        for form in ({}, {"csrf_token": "wrong"}):
            answer = ask(
                ada,
                path,
                "POST",
                query_string=asked[path],
                data=typed | form,
                headers={"Origin": ORIGIN},
            )
            assert answer.status_code == 200, path
            assert "Nothing was changed yet." in answer.text
            seen += "Typed" in answer.text
            # Without a file a logo is removed, and the browser does not send it again.
            assert path != f"{BASE}/admin/application/logo" or " required>" in answer.text
    assert happened() == before
    assert seen >= 10


def test_a_form_that_arrives_slowly(app: Flask, ada: StaffBrowser) -> None:
    """When the last byte has come, its sender is no administrator any more."""
    dana = make_user(app)
    ada.open(f"{ADMIN}/person/act?id={dana.id}&do=disable")

    class Slow(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            with app.test_request_context():
                found = users.find_by_email("ada@example.com")
                assert found
                found.groups = []
                db.session.commit()
            return super().read(size)

    body = urlencode(ada.page.fields).encode()
    answer = ask(
        ada, ada.page.url.removeprefix(ORIGIN), "POST", input_stream=Slow(body),
        content_length=len(body), content_type="application/x-www-form-urlencoded",
        headers={"Origin": ORIGIN},
    )  # fmt: skip
    assert answer.status_code == 404
    assert is_enabled(app, dana)


def test_a_role_that_is_lost_after_the_first_look(
    app: Flask, ada: StaffBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The origin of the form is compared between the two looks at the session."""
    dana = make_user(app)
    ada.open(f"{ADMIN}/person/act?id={dana.id}&do=disable")
    compare = urls.origin

    def lose(url: str) -> str | None:
        with app.app_context():
            db.session.execute(
                update(User).where(User.email == "ada@example.com").values(groups=[])
            )
            db.session.commit()
        return compare(url)

    monkeypatch.setattr(urls, "origin", lose)
    answer = ask(
        ada, ada.page.url.removeprefix(ORIGIN), "POST", data=ada.page.fields,
        headers={"Origin": ORIGIN},
    )  # fmt: skip
    assert answer.status_code == 404
    assert is_enabled(app, dana)


def test_a_factor_that_is_too_old_does_nothing(app: Flask, ada: StaffBrowser, clock: Clock) -> None:
    dana = make_user(app)
    ada.open(f"{ADMIN}/person/act?id={dana.id}&do=disable")
    url = ada.page.url
    clock.move(minutes=16)
    assert "Two-step verification" in ada.submit().html
    assert ada.page.headers["Referrer-Policy"] == "same-origin"
    assert dana.email not in ada.page.html
    assert is_enabled(app, dana)
    page = ada.submit(code=code_of(ada.secret))
    assert (page.url, page.status) == (url, 200)
    assert "The account was disabled." in ada.submit().html


def test_a_factor_that_another_tab_has_shown_meanwhile(
    app: Flask, ada: StaffBrowser, clock: Clock
) -> None:
    """The form that waits is only shown again: it is not the one that was sent."""
    dana = make_user(app)
    ada.open(f"{ADMIN}/person/act?id={dana.id}&do=disable")
    clock.move(minutes=16)
    waiting = ada.submit()
    assert "Two-step verification" in waiting.html
    with app.app_context():
        db.session.execute(update(BrowserSession).values(second_factor_at=now()))
        db.session.commit()
    page = ada.submit(code="000000")
    assert page.url == f"{ADMIN}/person/act?id={dana.id}&do=disable"
    assert "Nothing was changed yet." in page.html
    assert is_enabled(app, dana)


def test_what_was_typed_survives_the_second_factor(
    app: Flask, ada: StaffBrowser, clock: Clock
) -> None:
    dana = make_user(app)
    ada.open(f"{ADMIN}/person/edit?id={dana.id}")
    clock.move(minutes=16)
    typed = {"name": "Zoë <b>&\"'", "groups": "staff\r\nwiki", "email": "nobody"}
    ada.send(**typed)
    assert "wrong" in ada.submit(code="000000").html
    page = ada.submit(code=code_of(ada.secret))
    assert page.url == f"{ADMIN}/person/edit?id={dana.id}"
    assert "Nothing was changed yet." in page.html
    assert page.fields["name"] == typed["name"]
    assert "staff\r\nwiki</textarea>" in page.html
    assert ada.send().status == 200
    with app.app_context():
        found = users.find(dana.id)
        assert found
        assert (found.name, found.groups) == ("Dana Demo", [])
    assert "The changes were saved." in ada.send(email=dana.email).html


def test_what_stands_for_a_typed_form_is_only_text(
    app: Flask, ada: StaffBrowser, clock: Clock
) -> None:
    clock.move(minutes=16)
    ada.open(f"{ADMIN}/people")
    path = f"{BASE}/second-factor?back=admin&at="
    for at, unsent, status in (
        (f"{BASE}/admin/person/invite", "[", 307),
        (f"{BASE}/admin/keys", "[]", 303),  # takes no form
        (f"{BASE}/account", "[]", 303),
        ("https://evil.example/", "[]", 303),
    ):
        clock.move(minutes=16)
        token = ada.open(f"{ORIGIN}{path}{at}").fields["csrf_token"]
        form = {"csrf_token": token, "code": code_of(ada.secret), "unsent": unsent}
        answer = ask(ada, path + at, "POST", data=form, headers={"Origin": ORIGIN})
        assert answer.status_code == status
        assert answer.headers["Location"].startswith(f"{BASE}/admin")
    for unsent in ("[", "[1]", '[["name"]]', '{"name": 1}', "[" * 5000, '[["name", {}]]', ""):
        page = ada.open(f"{ADMIN}/person/invite", "POST", data={"unsent": unsent})
        assert page.status == 200


def test_a_form_that_is_too_long_to_be_kept(app: Flask, ada: StaffBrowser, clock: Clock) -> None:
    ada.open(f"{ADMIN}/person/invite")
    clock.move(minutes=16)
    page = ada.send(name='"' * 85_000)
    assert page.status == 200
    assert len(page.html) < 20_000
    assert ada.submit(code=code_of(ada.secret)).path.endswith("/person/invite")


def test_a_page_that_nobody_was_admitted_to_is_closed(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the check of who may open the page ever be left out."""
    browser = sign_in_staff(app)
    checks = app.before_request_funcs[None]
    others = [check for check in checks if check.__module__ != access.__name__]
    assert len(others) == len(checks) - 1
    assert browser.open(f"{ADMIN}/people").status == 200
    monkeypatch.setitem(app.before_request_funcs, None, others)
    assert browser.open(f"{ADMIN}/people").status == 404
