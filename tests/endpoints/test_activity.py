"""The page of one's own recent security events."""

from flask import Flask

from sso.audit import writer
from sso.models import User
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import PASSWORD, make_user

ACTIVITY = f"{ORIGIN}{BASE}/account/activity"


def test_people_see_what_happened_in_their_name(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    make_user(app, "erin@example.com")
    Browser(app).sign_in("erin@example.com", "wrong wrong wrong")
    assert Browser(app).sign_in(password="wrong wrong wrong").status == 200
    browser.approve(client)
    app.test_cli_runner().invoke(args=["user", "update", user.email, "--name", "Dana"])
    writer.flush(app)
    assert 'href="/api/auth/account/activity"' in browser.open(f"{BASE}/account").html
    page = browser.open(ACTIVITY)
    words = (
        "Sign-in failed: wrong password",
        "Signed in",
        "Access allowed",
        "Account changed by an operator",
    )
    assert [page.html.count(one) for one in words] == [1] * len(words)
    assert "Books" in page.html
    assert "127.0.0.1" in page.html
    assert page.html.index("Account changed") < page.html.index("Signed in")  # newest first


def test_it_asks_to_sign_in(app: Flask) -> None:
    assert Browser(app).open(ACTIVITY).path.endswith("/sign-in")


def test_somebody_elses_events_are_not_there(app: Flask, browser: Browser, user: User) -> None:
    make_user(app, "erin@example.com")
    Browser(app).sign_in("erin@example.com", PASSWORD)
    browser.sign_in()
    assert browser.open(ACTIVITY).html.count("Signed in") == 1
