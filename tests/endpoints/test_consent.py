"""The consent page: the very values, boxes to untick, asked for what is new alone."""

import re

import pytest
from flask import Flask

from sso.extensions import db
from sso.models import User
from sso.store import clients, grants
from tests.support.actors import Browser, Page, RelyingParty, claims_of
from tests.support.events import events
from tests.support.factories import make_api, make_client, make_user


def plain(page: Page) -> str:
    """The page's text without the marks around names."""
    return re.sub(r"</?bdi>", "", page.html)


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app, scope="openid profile email groups offline_access")


@pytest.fixture
def user(app: Flask) -> User:
    return make_user(app, groups=["readers", "writers"])


def scope_of(client: RelyingParty, code: str) -> set[str]:
    return set(client.exchange(code).get_json()["scope"].split())


def test_it_shows_the_very_values(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.authorize(client, scope="openid profile email groups")
    page = browser.sign_in()
    for value in ("Dana Demo", "dana@example.com", "readers, writers"):
        assert value in page.html
    assert 'name="scope_email"' in page.html
    assert 'name="scope_openid"' not in page.html  # what makes it a sign-in stays


DOCS = "https://docs.example"


@pytest.mark.parametrize("includes_groups", [True, False])
def test_it_says_that_an_api_learns_the_groups(
    app: Flask, browser: Browser, user: User, includes_groups: bool
) -> None:
    """Its tokens carry them, though nobody asked for the scope."""
    make_api(app, DOCS, includes_groups=includes_groups)
    client = make_client(app, apis=[DOCS])
    browser.authorize(client, resource=DOCS, scope="openid read")
    page = browser.sign_in()
    text = "also learns which groups you are in: "
    assert (text in plain(page)) == ("readers, writers" in plain(page)) == includes_groups
    token = client.exchange(browser.allow().code).get_json()["access_token"]
    assert claims_of(token).get("groups") == (["readers", "writers"] if includes_groups else None)


def test_all_scopes_are_in_the_audit_trail(app: Flask, browser: Browser, user: User) -> None:
    """They may be long, and the next question is what exactly the person allowed."""
    scopes = {f"{'x' * 50}:{number}": "Do things" for number in range(20)}
    make_api(app, DOCS, scopes=scopes)
    client = make_client(app, apis=[DOCS])
    assert browser.approve(client, resource=DOCS, scope=" ".join(scopes)).code
    (event,) = events(app, "consent_given")
    assert event["scope"].split() == sorted(f"{DOCS}#{scope}" for scope in scopes)


def test_an_unticked_scope_is_not_given(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.authorize(client, claims='{"id_token": {"email": null}}')
    page = browser.sign_in()
    del page.fields["scope_email"]
    tokens = client.exchange(browser.allow().code).get_json()
    assert set(tokens["scope"].split()) == {"openid", "profile"}
    assert "email" not in client.userinfo(tokens["access_token"]).get_json()
    assert "email" not in claims_of(tokens["id_token"])
    # It is remembered: the next request is answered without a page, and without the scope.
    assert scope_of(client, browser.authorize(client).code) == {"openid", "profile"}


def test_prompt_consent_lets_the_mind_be_changed(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    browser.authorize(client)
    del browser.sign_in().fields["scope_email"]
    browser.allow()
    page = browser.authorize(client, prompt="consent")
    assert "scope_email" not in page.fields  # unticked still
    assert "scope_profile" in page.fields
    code = browser.submit(decision="allow", scope_email="1").code
    assert scope_of(client, code) == {"openid", "profile", "email"}
    assert scope_of(client, browser.authorize(client).code) == {"openid", "profile", "email"}


@pytest.mark.parametrize("decision", ["", "ALLOW", "allow ", "yes"])
def test_nothing_but_allow_approves(
    browser: Browser, client: RelyingParty, user: User, decision: str
) -> None:
    browser.authorize(client)
    browser.sign_in()
    page = browser.submit(decision=decision)
    assert page.error == "access_denied"
    assert "code" not in page.parameters


def test_it_asks_for_what_is_new_alone(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.approve(client, scope="openid profile")
    page = browser.authorize(client, scope="openid profile email")
    assert "scope_email" in page.fields
    assert "scope_profile" not in page.fields
    assert "Your name and profile" in page.html  # what it has already is said
    assert scope_of(client, browser.allow().code) == {"openid", "profile", "email"}


def test_a_form_without_boxes_allows_all(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    """The form has two buttons; who posts no more than them means what they say."""
    browser.authorize(client)
    page = browser.sign_in()
    page.fields = {"csrf_token": page.fields["csrf_token"]}
    assert scope_of(client, browser.allow().code) == {"openid", "profile", "email"}


def test_nothing_left_is_a_refusal(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.authorize(client, scope="email")
    del browser.sign_in().fields["scope_email"]
    assert browser.allow().error == "access_denied"
    assert browser.authorize(client, scope="email").error == "access_denied"


def test_nobody_unticks_openid_or_ticks_more(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    browser.authorize(client, scope="openid email")
    browser.sign_in()
    code = browser.submit(
        decision="allow", offered="openid email groups", scope_groups="1", scope_email="1"
    ).code
    assert scope_of(client, code) == {"openid", "email"}
    with app.app_context():
        given = grants.find_consent(user.id, client.client_id)
        assert given is not None
        assert given.scope.split() == ["email", "openid"]


def test_openid_is_allowed_with_whatever_the_form_offers(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    """It has no box, and without it nothing would be left to sign in with."""
    browser.authorize(client, scope="openid email")
    browser.sign_in()
    code = browser.submit(decision="allow", offered="email", scope_email="1").code
    assert scope_of(client, code) == {"openid", "email"}


def test_nothing_is_allowed_that_was_not_on_the_page(
    app: Flask, browser: Browser, user: User
) -> None:
    client = make_client(app, scope="openid email")
    browser.authorize(client, scope="openid email phone groups")
    browser.sign_in()
    assert "phone number" not in browser.page.html
    with app.app_context():  # meanwhile the operator registers more
        row = clients.find(client.client_id)
        assert row is not None
        row.set_client_metadata({**row.client_metadata, "scope": "openid email phone groups"})
        db.session.commit()
    browser.allow()
    with app.app_context():
        given = grants.find_consent(user.id, client.client_id)
        assert given is not None
        assert "phone" not in given.scope.split()


def test_consent_in_another_tab_is_not_consent_to_more(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    """`prompt=consent` in two tabs: the answer to one page is no answer to the other."""
    browser.approve(client, scope="openid")
    more = browser.authorize(client, scope="openid profile groups", prompt="consent")
    assert "scope_groups" in more.fields
    browser.authorize(client, scope="openid email", prompt="consent")
    assert scope_of(client, browser.allow().code) == {"openid", "email"}
    page = browser.open(more.url)  # back to the first tab
    assert "scope_groups" in page.fields, page.url
    assert scope_of(client, browser.allow().code) == {"openid", "profile", "groups"}


def test_what_prompt_consent_did_not_show_is_asked_about(
    app: Flask, browser: Browser, user: User
) -> None:
    client = make_client(app, scope="openid email")
    browser.authorize(client, scope="openid email groups", prompt="consent")
    browser.sign_in()
    with app.app_context():  # meanwhile the operator registers more
        row = clients.find(client.client_id)
        assert row is not None
        row.set_client_metadata({**row.client_metadata, "scope": "openid email groups"})
        db.session.commit()
    page = browser.allow()
    assert "scope_groups" in page.fields, page.url
    assert "scope_email" not in page.fields
    assert scope_of(client, browser.allow().code) == {"openid", "email", "groups"}


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("https://books.example:8443/callback", "books.example:8443"),
        ("com.example.books://oauth.example/back", "com.example.books"),
    ],
)
def test_it_says_where_the_answer_goes(
    app: Flask, browser: Browser, user: User, uri: str, name: str
) -> None:
    """The host of a custom scheme is nobody's: it would be mistaken for a site."""
    browser.authorize(make_client(app, redirect_uris=[uri], public=True))
    page = browser.sign_in()
    assert f"<strong>{name}</strong>" in plain(page)
    assert "oauth.example" not in page.html


def test_openid_has_a_line_only_if_nothing_else_is_asked_for(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    line = "Confirmation that it is you"
    browser.authorize(client, scope="openid email")
    assert line not in browser.sign_in().html
    page = browser.authorize(client, scope="openid")
    assert line in page.html
    assert str(user.id) not in page.html
    assert "checkbox" not in page.html
    assert scope_of(client, browser.allow().code) == {"openid"}


def test_an_unticked_scope_of_an_api_stays_so(app: Flask, browser: Browser, user: User) -> None:
    make_api(app, DOCS)
    client = make_client(app, apis=[DOCS])
    asked = {"resource": DOCS, "scope": "openid read write"}
    browser.authorize(client, **asked)
    browser.sign_in()
    tokens = client.exchange(
        browser.submit(decision="allow", api_scope=[f"{DOCS}#read"]).code
    ).get_json()
    assert claims_of(tokens["access_token"])["scope"] == "read"
    token = client.exchange(browser.authorize(client, **asked).code).get_json()["access_token"]
    assert claims_of(token)["scope"] == "read"
    page = browser.authorize(client, prompt="consent", **asked)
    assert page.html.count('name="api_scope"') == 2
    assert page.fields["api_scope"] == f"{DOCS}#read"
    token = client.exchange(browser.allow().code).get_json()["access_token"]
    assert claims_of(token)["scope"] == "read"
