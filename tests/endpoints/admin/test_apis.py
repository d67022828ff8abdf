"""APIs are registered, changed and deleted in the browser."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from flask import Flask

from sso.crypto import secrets
from sso.extensions import db
from sso.models import Api
from sso.services import apis as services
from sso.store import apis, clients
from tests.conftest import Clock, Statements
from tests.support.actors import BASE, ORIGIN, Page
from tests.support.administration import ADMIN, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.events import events
from tests.support.factories import change_api, make_api, make_client

pytestmark = pytest.mark.slow

MARKUP, DOCS = "<script>alert(1)</script>", "https://docs.example"


@pytest.fixture
def staff(app: Flask, clock: Clock) -> StaffBrowser:
    return sign_in_staff(app)


def find(app: Flask, identifier: str = DOCS) -> Api:
    with app.app_context():
        api = apis.find(identifier)
        assert api is not None
        db.session.expunge(api)
        return api


def secret_in(page: Page) -> str:
    match = re.search(r"Secret</dt><dd><code dir=\"ltr\">([^<]+)</code>", page.html)
    return match[1] if match else ""


def test_an_api_is_registered(app: Flask, staff: StaffBrowser) -> None:
    staff.open(f"{ADMIN}/api/new")
    done = staff.send(
        identifier="https://Docs.example/",
        name="Documents",
        scopes="read=Read documents\r\nwrite = Change documents\r\n",
        translations="de:read=Dokumente lesen",
        groups="writers",
        roles="editor=writers\r\nowner = all staff\r\n",
        roles_shape="object",
        access_token_lifetime="300",
        includes_groups="y",
        introspection="y",
    )
    assert "The API is registered." in done.html
    api = find(app)
    assert (api.name, api.groups, api.access_token_lifetime) == ("Documents", ["writers"], 300)
    assert api.scopes == {"read": "Read documents", "write": "Change documents"}
    assert api.translations == {"de": {"read": "Dokumente lesen"}}
    assert api.includes_groups
    assert (api.roles, api.roles_shape) == (["editor=writers", "owner=all staff"], "object")
    assert secrets.matches(secret_in(done), api.secret_digest or "")
    assert not secret_in(staff.open(f"{ADMIN}/api?id={api.api_id}"))
    (event,) = events(app, "api_created")
    assert event["operator"] == "ada@example.com"


def test_what_is_wrong_is_said_at_once_and_nothing_is_lost(app: Flask, staff: StaffBrowser) -> None:
    staff.open(f"{ADMIN}/api/new")
    answer = staff.send(
        identifier="http://docs.example", name=MARKUP * 20, scopes="read\nopenid=x",
        translations="read=x", access_token_lifetime="soon",
    )  # fmt: skip
    assert answer.status == 200
    assert answer.html.count("<li>") >= 6
    assert MARKUP not in answer.html
    assert "read\nopenid=x" in answer.html
    with app.app_context():
        assert apis.every() == []


def test_the_page_shows_everything(app: Flask, staff: StaffBrowser) -> None:
    make_api(app, translations={"de": {"read": "Lesen"}}, groups=["writers"])
    client = make_client(app, name="Shop", apis=[f"{DOCS}=read"], default_api=DOCS)
    change_api(app, DOCS, access_token_lifetime=120)
    api = find(app)
    html = staff.open(f"{ADMIN}/api?id={api.api_id}").html
    for text in ("Documents", DOCS, "Read documents", "Lesen", "writers", "120", "Shop", "default"):
        assert text in html
    html = staff.open(f"{ADMIN}/application?id={client.client_id}").html
    assert f'<a href="{BASE}/admin/api?id={api.api_id}"><bdi>Documents: read</bdi></a>' in html


def test_lists_are_searched(app: Flask, staff: StaffBrowser) -> None:
    make_api(app)
    make_api(app, "https://maps.example", name="Maps", scopes={"see": "See"}, disabled=True)
    assert "disabled" in staff.open(f"{ADMIN}/apis").html
    for text in ("MAP", "see"):
        html = staff.open(f"{ADMIN}/apis?q={text}").html
        assert "https://maps.example" in html
        assert DOCS not in html
    assert "No API was found." in staff.open(f"{ADMIN}/apis?q=nothing").html


def test_an_api_is_edited(app: Flask, staff: StaffBrowser) -> None:
    make_api(app, translations={"de": {"write": "Ändern"}}, access_token_lifetime=300)
    api = find(app)
    staff.open(f"{ADMIN}/api/edit?id={api.api_id}")
    assert 'name="identifier"' not in staff.page.html
    done = staff.send(
        scopes="read=Read", translations="de:read=Lesen", access_token_lifetime="", groups="a\nb"
    )
    assert "The API was changed." in done.html
    api = find(app)
    assert (api.scopes, api.translations) == ({"read": "Read"}, {"de": {"read": "Lesen"}})
    assert (api.groups, api.access_token_lifetime) == (["a", "b"], None)
    assert [event["what"] for event in events(app, "api_changed")] == [
        "scopes translations groups access_token_lifetime"
    ]
    assert "What was changed lately" in done.html
    assert "access_token_lifetime" in done.html
    staff.open(f"{ADMIN}/api/edit?id={api.api_id}")
    assert "the name is empty" in staff.send(name=" ").html


def test_what_somebody_else_changed_is_shown_first(app: Flask, staff: StaffBrowser) -> None:
    make_api(app)
    api = find(app)
    staff.open(f"{ADMIN}/api/edit?id={api.api_id}")
    change_api(app, DOCS, scopes={"read": "Read them", "print": "Print"})
    answer = staff.send(name="Papers", scopes="read=Mine")
    assert answer.status == 409
    assert "<bdi>Read documents</bdi>" in answer.html
    assert "<bdi>Read them</bdi>" in answer.html
    assert find(app).name == "Documents"
    assert "The API was changed." in staff.send(scopes="read=Mine").html
    assert find(app).name == "Papers"


def test_secrets_come_and_go(app: Flask, staff: StaffBrowser) -> None:
    make_api(app)
    api = find(app)
    staff.open(f"{ADMIN}/api/secret?id={api.api_id}")
    secret = secret_in(staff.send())
    assert secrets.matches(secret, find(app).secret_digest or "")
    staff.open(f"{ADMIN}/api/secret?id={api.api_id}")
    assert "Its secret until now" in staff.page.html
    assert secret_in(staff.send()) not in ("", secret)
    staff.open(f"{ADMIN}/api/act?id={api.api_id}&do=forget")
    assert "The secret was removed." in staff.send().html
    assert find(app).secret_digest is None


def test_an_api_is_disabled_enabled_and_deleted(app: Flask, staff: StaffBrowser) -> None:
    make_api(app)
    client = make_client(app, apis=[DOCS], default_api=DOCS)
    api = find(app)
    for action, sentence in (("disable", "disabled"), ("enable", "enabled"), ("delete", "deleted")):
        staff.open(f"{ADMIN}/api/act?id={api.api_id}&do={action}")
        assert f"The API was {sentence}." in staff.send().html
    with app.app_context():
        assert apis.every() == []
        row = clients.find(client.client_id)
        assert row is not None
        assert (row.apis, row.default_api) == ({}, None)
    assert staff.http.get(f"{BASE}/admin/api?id={api.api_id}", base_url=ORIGIN).status_code == 404


def test_a_service_and_a_device_are_registered_by_hand(app: Flask, staff: StaffBrowser) -> None:
    make_api(app)
    staff.open(f"{ADMIN}/application/by-hand")
    assert DOCS in staff.page.html  # among those that are registered
    done = staff.send(
        client_name="Nightly", redirect_uris="", grant_types=["client_credentials"],
        apis=f"{DOCS}=read", default_api=DOCS,
    )  # fmt: skip
    assert "The application is registered." in done.html
    with app.app_context():
        (client,) = clients.every()
        assert client.client_metadata["grant_types"] == ["client_credentials"]
        assert client.apis == {DOCS: ("read",)}
    page = staff.open(f"{ADMIN}/application?id={client.client_id}").html
    assert "It gets tokens for itself, without a person" in page
    staff.open(f"{ADMIN}/application/edit?id={client.client_id}")
    answer = staff.send(apis=f"{DOCS}=purge\nhttps://nothing.example", default_api="urn:x:y")
    assert "is not among its APIs" in answer.html
    assert "has no scope <bdi>purge</bdi>" in answer.html
    assert "there is no API" in answer.html


def test_a_form_of_another_version_says_so(app: Flask, staff: StaffBrowser) -> None:
    """A value of `seen` that this server did not write is as none."""
    make_api(app)
    api = find(app)
    for seen in ("{", "[]", '{"name": 7}', "null"):
        staff.open(f"{ADMIN}/api/edit?id={api.api_id}")
        assert staff.send(seen=seen, name="Papers").status == 200


@pytest.mark.parametrize("api_id", ["", "nothing", "%00", "é", "x" * 5000])
def test_there_is_no_such_api(
    staff: StaffBrowser,
    statements: Callable[[], AbstractContextManager[Statements]],
    api_id: str,
) -> None:
    for path in ("api", "api/edit", "api/secret", "api/act"):
        url = f"{BASE}/admin/{path}?id={api_id}"
        with statements() as ran:
            assert staff.http.get(url, base_url=ORIGIN).status_code == 404
        # PostgreSQL takes no NUL.
        assert api_id != "%00" or not [text for text in ran if "FROM apis" in text]


def test_the_helpdesk_sees_no_apis(app: Flask, clock: Clock) -> None:
    make_api(app)
    api = find(app)
    staff = sign_in_staff(app, group=HELPDESK)
    for path in ("apis", "api/new", f"api?id={api.api_id}", f"api/edit?id={api.api_id}"):
        url = f"{BASE}/admin/{path}"
        assert staff.http.get(url, base_url=ORIGIN).status_code in (403, 404)
    with app.app_context():
        assert services.described(api)["name"] == "Documents"
