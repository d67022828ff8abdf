"""Somebody wants a token for an API that it is not theirs to have, or wants to keep one.

It ends at what the registrations of client and API, the groups of the user and the approval say
now: not at names that look the same, and not at what an earlier API of the same name allowed.
"""

import html
import re
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from sso import audit
from sso.extensions import db
from sso.i18n.message import code_of
from sso.models import Client, Consent, User
from sso.services import apis, group_editing
from sso.services.checks import Invalid, Rule
from sso.store import apis as stored_apis
from sso.store import named_groups
from tests.store.test_races import at_once
from tests.support.actors import ISSUER, Browser, RelyingParty, claims_of
from tests.support.events import events
from tests.support.factories import change_api, make_api, make_client, make_user

pytestmark = pytest.mark.slow

DOCS, MAPS = "https://docs.example", "https://maps.example/v1"
OLGA = audit.Actor("olga")


@pytest.fixture
def docs(app: Flask) -> str:
    return make_api(app, DOCS)


@pytest.fixture
def client(app: Flask, docs: str) -> RelyingParty:
    return make_client(app, apis=[DOCS])


def tokens_of(browser: Browser, client: RelyingParty, **more: Any) -> dict[str, Any]:
    answer = client.exchange(browser.approve(client, **more).code)
    assert answer.status_code == 200, answer.text
    tokens: dict[str, Any] = answer.get_json()
    return tokens


def test_a_letter_whose_lower_case_is_another_letter(
    app: Flask, browser: Browser, user: User
) -> None:
    make_api(app, "https://keys.example")
    client = make_client(app, apis=["https://keys.example"])
    kelvin = "https://\u212aeys.example"
    page = browser.approve(client, resource=kelvin, scope="openid read")
    assert page.error == "invalid_target"
    code = browser.approve(client, resource="https://KEYS.example", scope="openid read").code
    assert client.exchange(code, resource=kelvin).get_json()["error"] == "invalid_target"


@pytest.mark.parametrize(
    "scope",
    [f"{DOCS}#write", f"openid {DOCS}#write", f"{DOCS}#", "#write", "openid #write"],
)
def test_a_scope_in_the_form_that_grants_have(
    browser: Browser, client: RelyingParty, user: User, scope: str
) -> None:
    page = browser.approve(client, scope=scope)
    if page.error is None:
        tokens = client.exchange(page.code).get_json()
        assert claims_of(tokens["access_token"])["aud"] == ISSUER
        assert tokens["scope"] == "openid"
    else:
        assert page.error == "invalid_scope"
    tokens = tokens_of(browser, client, resource=DOCS, scope="openid read")
    answer = client.refresh(tokens["refresh_token"], scope=scope)
    assert answer.get_json()["error"] == "invalid_scope"


def test_fields_of_the_page_that_it_did_not_have(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    browser.authorize(client, resource=DOCS, scope="openid read")
    page = browser.sign_in()
    more = f"{DOCS}#write {MAPS}#read email"
    page.fields["offered"] += f" {more}"
    page.fields |= {"api_scope": [f"{DOCS}#read", *more.split()], "scope_email": "1"}
    tokens = client.exchange(browser.allow().code).get_json()
    assert (claims_of(tokens["access_token"])["aud"], tokens["scope"]) == (DOCS, "read")
    page = browser.authorize(client, resource=DOCS, scope="openid email read write")
    assert page.fields["api_scope"] == f"{DOCS}#write"  # nothing of it was remembered
    assert "scope_email" in page.fields


def test_a_name_that_the_group_of_an_api_no_longer_has(app: Flask, browser: Browser) -> None:
    """Whoever gets the old name of a group gets nothing of the API, and its members keep it."""
    make_user(app, groups=["staff"])
    make_api(app, DOCS, groups=["staff", "other"])
    client = make_client(app, apis=[DOCS])
    with app.app_context():
        group = named_groups.find_by_name("staff")
        assert group is not None
        group_editing.change(OLGA, group.id, name="employees")
        db.session.commit()
        api = stored_apis.find(DOCS)
        assert api is not None
        assert api.groups == ["other", "employees"]
    assert browser.approve(client, resource=DOCS, scope="openid read").code
    (event,) = events(app, "api_changed")
    assert event["changes"]["groups"]["after"] == ["other", "employees"]


def test_what_was_decided_about_an_earlier_api_is_forgotten(app: Flask, user: User) -> None:
    """What was allowed, and what was declined; about no other API."""
    make_api(app, DOCS)
    client = make_client(app, apis=[DOCS])
    others = "openid https://docs.example.org#read https://maps.example#"
    with app.app_context():
        ids = {"user_id": user.id, "client_id": client.client_id}
        names = f"{others} {DOCS}#read {DOCS}#"
        db.session.add(Consent(**ids, scope=names, declined=names))
        db.session.commit()
    change_api(app, DOCS, deleted=True)
    make_api(app, DOCS)
    with app.app_context():
        consent = db.session.scalars(select(Consent)).one()
        assert (consent.scope, consent.declined) == (others, others)


def test_an_entry_of_an_earlier_api(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    """A client keeps its entries in a backup, or if it is written while its API is deleted."""
    with app.app_context():
        entries = db.session.get(Client, client.client_id).client_metadata  # type: ignore[union-attr]
    change_api(app, DOCS, deleted=True)
    with app.app_context():
        row = db.session.get(Client, client.client_id)
        assert row is not None
        row.set_client_metadata({**row.client_metadata, "apis": entries["apis"]})
        db.session.commit()
    make_api(app, DOCS, scopes={"read": "Read what belongs to others"})
    assert browser.authorize(client, resource=DOCS).error == "invalid_target"


@pytest.mark.parametrize(
    "identifier",
    ["https://a\0b.example", "https://\ud800.example", "https://\u212aeys.example", f"{ISSUER}/"],
    ids=ascii,
)
def test_an_api_with_a_name_that_cannot_be(app: Flask, identifier: str) -> None:
    with app.app_context(), pytest.raises(Invalid):
        apis.register(OLGA, {"identifier": identifier, "name": "Documents"})


def test_an_api_that_is_registered_twice_at_once(app: Flask) -> None:
    def register() -> str | None:
        with app.app_context():
            try:
                apis.register(OLGA, {"identifier": DOCS, "name": "Documents"})
                db.session.commit()
            except Invalid as error:
                return code_of(error.errors[0])
            return None

    assert sorted(at_once(4, register), key=str) == [None, *[Rule.ALREADY_EXISTS] * 3]


def test_a_page_that_names_an_api_which_anyone_may_use(app: Flask, browser: Browser) -> None:
    make_api(app, DOCS)
    make_api(app, MAPS, groups=["staff"])
    make_user(app)
    client = make_client(app, apis=[DOCS, MAPS])
    browser.authorize(client, resource=[DOCS, MAPS], scope="openid read")
    page = browser.sign_in()
    link = re.search(r'class="button primary" href="([^"]+)"', page.html)
    assert link is not None
    # Meanwhile the user has signed out.
    answer = Browser(app).open(html.unescape(link[1]))
    assert answer.error == "access_denied"
    assert MAPS in answer.parameters["error_description"]


def test_a_secret_that_is_replaced_leaves_a_trace(app: Flask) -> None:
    make_api(app, DOCS, introspection=True)
    with app.app_context():
        api = stored_apis.find(DOCS)
        assert api is not None
        before = api.secret_digest
        api, _, secret = apis.change(OLGA, api.api_id, {}, secret="s" * 43)
        db.session.commit()
        assert (secret, api.secret_digest != before) == ("s" * 43, True)
    (event,) = events(app, "api_secret_rotated")
    assert event["api"] == DOCS


def test_more_scopes_than_the_page_can_send_back(app: Flask, browser: Browser, user: User) -> None:
    """They are refused at once: not with an error page after the user has decided."""
    identifiers = []
    for number in range(10):
        scopes = {f"{'x' * 36}:{index}": "Do things" for index in range(100)}
        identifiers.append(make_api(app, f"https://api{number}.example/v1", scopes=scopes))
    client = make_client(app, apis=identifiers)
    refused = browser.authorize(client, resource=identifiers, scope=None)
    assert refused.error == "invalid_scope"
    # As many as there may be get past the page.
    page = browser.approve(client, resource=identifiers[:6], scope=None)
    tokens = client.exchange(page.code).get_json()
    assert len(tokens["scope"].split()) == 100


def test_a_scope_of_this_server_alone(browser: Browser, client: RelyingParty, user: User) -> None:
    """The token has no scope at the API, and is active as long as the API may be used."""
    tokens = tokens_of(browser, client, resource=DOCS, scope="openid email read")
    tokens = client.refresh(tokens["refresh_token"], scope="openid").get_json()
    assert tokens["scope"] == ""
    members = client.introspect(tokens["access_token"]).get_json()
    assert (members["active"], members["aud"], members["scope"]) == (True, DOCS, "")
    change_api(client.app, DOCS, disabled=True)
    assert client.introspect(tokens["access_token"]).get_json() == {"active": False}


@pytest.mark.parametrize("way", ["exchange", "refresh"])
def test_nothing_but_an_api_that_is_disabled(
    app: Flask, browser: Browser, client: RelyingParty, user: User, way: str
) -> None:
    """The client learns that it is the API: after `invalid_grant` it would forget its token."""
    credential = browser.approve(client, resource=DOCS, scope="read").code
    if way == "refresh":
        credential = client.exchange(credential).get_json()["refresh_token"]
    send = getattr(client, way)
    change_api(app, DOCS, disabled=True)
    for more in ({}, {"resource": DOCS}, {"resource": ISSUER}, {"resource": MAPS}):
        answer = send(credential, **more)
        assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_target")
    change_api(app, DOCS, disabled=False)
    assert send(credential).get_json()["scope"] == "read"


def test_many_clients_of_large_apis(
    app: Flask, browser: Browser, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept in memory of APIs is bounded, however many clients use them."""
    monkeypatch.setattr(stored_apis, "_MOST_CACHED", 300)
    cache: dict[Any, Any] = {}
    monkeypatch.setattr(stored_apis, "_cache", cache)
    make_api(app, DOCS, scopes={f"scope{number}": "Do things" for number in range(100)})
    for _ in range(6):
        client = make_client(app, apis=[DOCS])
        assert browser.approve(client, resource=DOCS, scope="openid scope1").code
        assert 0 < len(cache) <= 3
