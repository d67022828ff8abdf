"""The list of applications: filters, order, pages, export, and acting on several at once. Exports
of groups and APIs.
"""

import csv
import io
import re
from typing import Any

import pytest
from flask import Flask

from sso.audit import operator
from sso.config.client_fields import AUTHORIZATION_CODE, CLIENT_CREDENTIALS, DEVICE_CODE
from sso.endpoints.admin import applications_list
from sso.extensions import db
from sso.models import Client
from sso.models.clients import OPEN
from sso.services import group_editing
from sso.store import clients
from sso.store.lists import PAGE
from tests.conftest import Clock
from tests.support.actors import ORIGIN, Browser
from tests.support.administration import ADMIN, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.factories import make_api, make_client, make_user
from tests.support.statements import watched

pytestmark = pytest.mark.slow


@pytest.fixture
def ada(app: Flask) -> StaffBrowser:
    return sign_in_staff(app)


def names(html: str) -> list[str]:
    titles = re.findall(r'<th scope="row"><a [^>]*><bdi>([^<]*)</bdi></a>', html)
    return ["agent" if name == "an unverified application" else name for name in titles]


def listed(browser: StaffBrowser, query: str = "") -> list[str]:
    return names(browser.open(f"{ADMIN}/applications?{query}").html)


def exported(browser: StaffBrowser, what: str, query: str = "") -> list[dict[str, str]]:
    text = browser.open(f"{ADMIN}/{what}/export?{query}").html
    return list(csv.DictReader(io.StringIO(text)))


def state_of(app: Flask, client_id: str) -> str:
    with app.app_context():
        client = clients.find(client_id)
        assert client
        return "disabled" if client.disabled_at else "enabled"


KINDS: dict[str, dict[str, Any]] = {
    "web": {"grant_types": [AUTHORIZATION_CODE]},
    "public": {"grant_types": [AUTHORIZATION_CODE], "token_endpoint_auth_method": "none"},
    "device": {"grant_types": [DEVICE_CODE], "token_endpoint_auth_method": "none"},
    "service": {"grant_types": [CLIENT_CREDENTIALS]},
    "proxy": {"grant_types": [AUTHORIZATION_CODE], "proxy_urls": ["https://a.example"]},
    "saml": {"saml_entity_id": "urn:x", "token_endpoint_auth_method": "none"},
}


@pytest.fixture
def of_each_kind(app: Flask, clock: Clock) -> dict[str, str]:
    """The client ids of a client of each kind, by its name, which is the kind's."""
    made = {}
    for kind in applications_list.KINDS:
        client = make_client(app, name=kind, groups=["staff"] if kind == "web" else ())
        made[kind] = client.client_id
        with app.app_context():
            row = clients.find(client.client_id)
            assert row
            kept = {k: v for k, v in row.client_metadata.items() if k != "grant_types"}
            row.set_client_metadata(kept | KINDS.get(kind, {}))
            row.registration = OPEN if kind == "agent" else None
            db.session.commit()
    return made


def test_every_kind_is_a_filter(ada: StaffBrowser, of_each_kind: dict[str, str]) -> None:
    kinds = list(applications_list.KINDS)
    assert listed(ada) == kinds[::-1]
    by_name = [name for name in listed(ada, "sort=name") if name != "agent"]
    assert by_name == sorted(set(kinds) - {"agent"})
    assert listed(ada, "kind=nonsense&sort=nonsense&state=nonsense") == kinds[::-1]
    for kind in kinds:
        assert listed(ada, f"kind={kind}") == [kind]
        assert [row["kind"] for row in exported(ada, "applications", f"kind={kind}")] == [kind]
    assert listed(ada, "group=staff") == ["web"]
    assert listed(ada, "group=staff&kind=saml") == []
    assert listed(ada, "q=SERVICE&sort=name") == ["service"]


@pytest.mark.parametrize("more", ["", "&sort=name", "&kind=web", "&q=web"])
def test_states(ada: StaffBrowser, app: Flask, of_each_kind: dict[str, str], more: str) -> None:
    ada.open(f"{ADMIN}/application/act?id={of_each_kind['web']}&do=disable")
    ada.send()
    assert listed(ada, f"state=disabled{more}") == ["web"]
    assert "web" not in listed(ada, f"state=enabled{more}")
    rows = exported(ada, "applications", f"state=disabled{more}")
    assert [(row["name"], row["state"], row["groups"]) for row in rows] == [
        ("web", "disabled", "staff")
    ]


@pytest.mark.parametrize("query", ["", "sort=name", "q=app", "state=enabled"])
def test_totals_and_pages(app: Flask, ada: StaffBrowser, query: str) -> None:
    expected = {f"app {number:03}" for number in range(2 * PAGE + 1)}
    for name in sorted(expected):
        make_client(app, name=name)
    html = ada.open(f"{ADMIN}/applications?{query}").html
    assert f"Entries: {2 * PAGE + 1}" in html
    listed_names = names(html)
    for number in (2, 3):
        link = re.search(r'rel="next" href="([^"]*)"', html)
        assert link
        html = ada.open(ORIGIN + link[1].replace("&amp;", "&")).html
        assert f"page {number} of 3" in html
        listed_names += names(html)
    assert len(listed_names) == len(set(listed_names))
    assert set(listed_names) == expected
    assert 'rel="next"' not in html
    assert 'rel="prev"' in html
    for strange in ("n=0", "n=x", "n=99999", "n=-1", "page=bad"):
        assert ada.open(f"{ADMIN}/applications?{query}&{strange}").status == 200
    for option in ("endpoint=x", "_scheme=javascript", "_method=DELETE", "_anchor=x"):
        page = ada.open(f"{ADMIN}/applications?{query}&{option}")  # they are options of url_for
        assert page.status == 200
        assert option not in page.html.split('rel="next"')[1].split(">")[0]
    assert len(exported(ada, "applications", query)) == 2 * PAGE + 1


def choose(browser: StaffBrowser, do: str, *client_ids: str) -> str:
    """Choose applications in the list, confirm, and return the page that follows."""
    browser.open(f"{ADMIN}/applications?sort=name")
    page = browser.send(do=do, application=list(client_ids))
    assert page.status == 200, page.html
    return browser.send(application=list(client_ids)).html


def test_several_at_once(app: Flask, ada: StaffBrowser) -> None:
    ids = [make_client(app, name=name).client_id for name in ("a", "b", "c")]
    ada.open(f"{ADMIN}/applications")
    page = ada.send(do="disable", application=ids[:2])
    assert "Applications that this applies to: 2" in page.html
    assert {state_of(app, one) for one in ids} == {"enabled"}  # nobody has confirmed it
    assert "The changes were saved" in choose(ada, "disable", *ids[:2])
    assert [state_of(app, one) for one in ids] == ["disabled", "disabled", "enabled"]
    choose(ada, "enable", *ids)
    assert {state_of(app, one) for one in ids} == {"enabled"}


def test_all_are_locked_before_the_first_loses_its_grants(app: Flask, ada: StaffBrowser) -> None:
    """Everybody locks grants after clients: in another order, two transactions would wait for each
    other.
    """
    made = [make_client(app, name=name) for name in ("a", "b")]
    make_user(app)
    for client in made:
        Browser(app).approve(client)
    ids = sorted(client.client_id for client in made)
    ran: list[tuple[str, str]] = []
    with app.app_context():
        engine = db.engine
    ada.open(f"{ADMIN}/applications")
    ada.send(do="disable", application=ids)
    with watched(engine, lambda statement, values: ran.append((statement, repr(values)))):
        ada.send(application=ids)
    ends = next(place for place, (text, _) in enumerate(ran) if "UPDATE grants" in text)
    alone = [values for _, values in ran[:ends] if sum(one in values for one in ids) == 1]
    assert all(any(one in values for values in alone) for one in ids)
    assert [state_of(app, one) for one in ids] == ["disabled", "disabled"]


def test_odd_choices(app: Flask, ada: StaffBrowser) -> None:
    client_id = make_client(app).client_id
    for chosen in ([], ["unknown"], ["\0", "\u00e9", "x" * 5000]):
        ada.open(f"{ADMIN}/applications")
        page = ada.send(do="disable", application=chosen)
        assert page.status == 200
        assert "Choose at least one application." in page.html
    ada.open(f"{ADMIN}/applications")
    page = ada.send(do="delete", application=[client_id])
    assert page.status == 200
    with app.app_context():
        assert clients.find(client_id)
    # More than a page of them are never locked by one request.
    page = ada.send(do="disable", application=["unknown"] * PAGE + [client_id])
    assert "Choose at least one application." in page.html


def test_exports_run_nothing_and_are_recorded(app: Flask, ada: StaffBrowser) -> None:
    make_client(app, name="=cmd|calc")
    make_api(app, "https://docs.example.com", name="+1", scopes={"read": "Read"})
    with app.app_context():
        for name in ("@staff", "owners"):
            group_editing.create(operator(), name)
        db.session.commit()
    assert [row["name"] for row in exported(ada, "applications")] == ["'=cmd|calc"]
    assert [row["name"] for row in exported(ada, "apis", "q=docs")] == ["'+1"]
    assert exported(ada, "apis", "q=nothing") == []
    assert {row["name"] for row in exported(ada, "groups")} >= {"'@staff", "owners"}
    assert [row["name"] for row in exported(ada, "groups", "q=own")] == ["owners"]
    trail = ada.open(f"{ADMIN}/audit?event=exported").html
    for what in ("applications", "APIs", "groups"):
        assert f"{what} as csv" in trail
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    for what in ("applications", "apis", "groups"):
        assert hal.open(f"{ADMIN}/{what}/export").status == 404


def test_kinds_of_all_clients_have_a_title(app: Flask) -> None:
    client = Client(client_id="x", registration=None)
    client.set_client_metadata({"client_name": "x"})
    assert applications_list.kind_of(client) in applications_list.KINDS
