"""Something is taken away in the instant between the decision and the grant.

It ends at one statement that looks again at what the decision was made from, and writes. However
the race ends, nothing is granted of what is gone.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Thread
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import text

from sso.extensions import db
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import PASSWORD, make_client, make_user
from tests.support.saml import make_service_provider
from tests.support.statements import watched

pytestmark = pytest.mark.slow

SCOPE = "openid email offline_access"
NOW_CHANGED = "updated_at = '2001-01-01 00:00:00.000001'"


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app, scope=SCOPE, groups=["staff"])


@pytest.fixture
def dana(app: Flask, client: RelyingParty) -> Browser:
    make_user(app, groups=["staff"])
    browser = Browser(app)
    browser.approve(client, scope=SCOPE)
    return browser


_watching = ExitStack()


@pytest.fixture(autouse=True)
def _unwatched() -> Iterator[None]:
    yield
    _watching.close()


def before_the_grant(
    app: Flask, act: Callable[[], object], statement_of: str = "INSERT INTO GRANTS"
) -> Thread:
    """Let somebody else's request happen once, just before a grant is written.

    `statement_of`: how the first statement of the transaction that writes begins; SQLite lets
    nobody else write after that.
    """
    other = Thread(target=act)

    def note(statement: str, _: Any) -> None:
        if statement_of in statement.upper() and not other.ident:
            other.start()
            other.join(5)

    with app.app_context():
        _watching.enter_context(watched(db.engine, note))
    return other


def flask(app: Flask, *arguments: str, stdin: str | None = None) -> Callable[[], object]:
    def run() -> None:
        result = app.test_cli_runner().invoke(args=arguments, input=stdin)
        assert result.exit_code == 0, result.output

    return run


def page_of(browser: Browser, path: str, **form: str) -> Callable[[], object]:
    page = browser.open(f"{ORIGIN}{BASE}/{path}")
    fields = {**page.fields, **form}
    return lambda: browser.open(f"{ORIGIN}{BASE}/{path}", method="POST", data=fields)


def works(client: RelyingParty, browser: Browser) -> bool:
    """Whether what the browser came back with gives tokens that live."""
    code = browser.page.parameters.get("code")
    if code is None:
        return False
    answer = client.exchange(code)
    if answer.status_code != 200:
        return False
    tokens = answer.get_json()
    refreshed = client.refresh(tokens["refresh_token"])
    if refreshed.status_code != 200:
        return False
    return client.userinfo(refreshed.get_json()["access_token"]).status_code == 200


CAUSES: dict[str, Callable[[Flask, Browser, RelyingParty], Callable[[], object]]] = {
    "group lost": lambda a, *_: flask(a, "user", "update", "dana@example.com", "--set-groups", ""),
    "user disabled": lambda a, *_: flask(a, "user", "disable", "dana@example.com"),
    "user deleted": lambda a, *_: flask(a, "user", "delete", "dana@example.com", "--yes"),
    "password set": lambda a, *_: flask(
        a, "user", "set-password", "dana@example.com", "--password-stdin",
        stdin="a new long password\n",
    ),
    "password changed elsewhere": lambda _a, other, _c: page_of(
        other, "account", action="change_password", old_password=PASSWORD,
        new_password="another long password",
    ),
    "consent withdrawn": lambda _a, other, c: page_of(
        other, "account", action="withdraw", client=c.client_id
    ),
    "client deleted": lambda a, _o, c: flask(a, "client", "delete", c.client_id, "--yes"),
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_nothing_is_granted_of_what_is_gone(
    app: Flask, client: RelyingParty, dana: Browser, cause: str
) -> None:
    elsewhere = Browser(app)
    elsewhere.sign_in()
    act = CAUSES[cause](app, elsewhere, client)
    other = before_the_grant(app, act)
    dana.authorize(client, scope=SCOPE)
    other.join()
    assert not works(client, dana)


@pytest.mark.parametrize("scope", ["openid email", SCOPE])
def test_the_session_ends(app: Flask, client: RelyingParty, dana: Browser, scope: str) -> None:
    """Not even a code is given, nor anything that would outlive the session."""
    elsewhere = Browser(app)
    elsewhere.sign_in()
    act = page_of(elsewhere, "account", action="end_other_sessions")
    other = before_the_grant(app, act)
    dana.authorize(client, scope=scope)
    other.join()
    assert "code" not in dana.page.parameters
    assert not works(client, dana)


def row_alone(app: Flask, statement: str) -> Callable[[], object]:
    """What a statement in the database does, without all that a command does beside."""

    def run() -> None:
        with app.app_context():
            assert db.session.execute(text(statement)).rowcount  # type: ignore[attr-defined]
            db.session.commit()

    return run


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE users SET disabled_at = CURRENT_TIMESTAMP",
        f"UPDATE users SET groups = '[]', {NOW_CHANGED}",
        "UPDATE clients SET disabled_at = CURRENT_TIMESTAMP",
        "UPDATE clients SET client_metadata = REPLACE(client_metadata, 'staff', 'board'), "
        f"{NOW_CHANGED}",
        f"UPDATE consents SET scope = 'openid', {NOW_CHANGED}",
        "UPDATE browser_sessions SET ended_at = CURRENT_TIMESTAMP",
        "DELETE FROM consents",
    ],
)
def test_each_is_looked_at_by_itself(
    app: Flask, client: RelyingParty, dana: Browser, statement: str
) -> None:
    other = before_the_grant(app, row_alone(app, statement))
    dana.authorize(client, scope=SCOPE)
    other.join()
    assert "code" not in dana.page.parameters


def test_a_scope_is_unticked_in_another_tab(
    app: Flask, client: RelyingParty, dana: Browser
) -> None:
    elsewhere = Browser(app)
    elsewhere.authorize(client, scope=SCOPE, prompt="consent")
    page = elsewhere.sign_in()
    fields = {**page.fields, "decision": "allow"}
    del fields["scope_email"]
    url = page.action or page.url
    other = before_the_grant(app, lambda: elsewhere.open(url, method="POST", data=fields))
    dana.authorize(client, scope=SCOPE)
    other.join()
    tokens = client.exchange(dana.page.code).get_json()
    assert set(tokens["scope"].split()) == {"openid", "offline_access"}


@pytest.mark.parametrize(
    "statement",
    [f"UPDATE consents SET scope = 'openid', {NOW_CHANGED}", "DELETE FROM consents"],
)
def test_the_consent_of_a_service_provider(app: Flask, statement: str) -> None:
    """The assertion says nothing that the person no longer allows."""
    make_user(app)
    wiki, browser = make_service_provider(app), Browser(app)
    assert "email" in wiki.sign_on(browser).attributes
    other = before_the_grant(app, row_alone(app, statement), "INSERT INTO USED_ONCE")
    page = wiki.start(browser)
    other.join()
    assert "SAMLResponse" not in page.fields
    assert ("decision", "allow") in page.buttons


def test_what_is_no_reason_holds_up_nobody(app: Flask, client: RelyingParty, dana: Browser) -> None:
    """Another person's change, and another sign-in of one's own."""
    make_user(app, "erin@example.com", name="Erin", groups=["staff"])
    other = before_the_grant(app, flask(app, "user", "disable", "erin@example.com"))
    dana.authorize(client, scope=SCOPE)
    other.join()
    assert works(client, dana)


def test_what_changed_harmlessly_is_decided_anew(
    app: Flask, client: RelyingParty, dana: Browser
) -> None:
    act = flask(app, "user", "update", "dana@example.com", "--name", "Dana Other")
    other = before_the_grant(app, act)
    dana.authorize(client, scope=SCOPE)
    other.join()
    assert works(client, dana)
