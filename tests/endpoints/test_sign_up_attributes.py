"""Attributes that people give when they create their account or accept an invitation."""

from dataclasses import replace
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import User
from sso.services import attributes
from sso.services.checks import Invalid
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.administration import sign_in_staff
from tests.support.events import events
from tests.support.mailbox import Mailbox

pytestmark = pytest.mark.slow

NEW = "another long password"
ERIN = "erin@example.com"


def define(app: Flask, name: str, at_sign_up: str, kind: str = "string", **more: Any) -> None:
    with app.app_context():
        attributes.define(
            audit.SYSTEM, {"name": name, "type": kind, "at_sign_up": at_sign_up, **more}
        )
        db.session.commit()


@pytest.fixture
def asked(app: Flask) -> None:
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, sign_up="open")
    define(app, "company", "required", title="Your company")
    define(app, "born", "optional", "date")
    define(app, "plan", "required", "choice", choices=["gold", "silver"])
    define(app, "seats", "optional", "number")
    define(app, "news", "required", "boolean")
    define(app, "cost_center", "no")


@pytest.fixture
def page(app: Flask, asked: None, mailbox: Mailbox) -> Browser:
    """The page behind the link of a sign-up."""
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-up")
    browser.submit(email=ERIN)
    browser.open(mailbox.link(ERIN))
    return browser


def values_of(app: Flask) -> dict[str, Any] | None:
    with app.app_context():
        user = db.session.query(User).filter_by(email=ERIN).one_or_none()
        return user.attributes if user else None


GIVEN = {
    "attribute_company": " ACME ",
    "attribute_plan": "gold",
    "attribute_news": "false",
}


def test_a_sign_up(app: Flask, page: Browser) -> None:
    html = page.page.html
    assert "<bdi>Your company</bdi>" in html
    assert html.count(" required") >= 5  # name, password, and three of these
    assert "attribute_cost_center" not in html
    done = page.submit(name="Erin", new_password=NEW, **GIVEN, attribute_born="2000-02-29")
    assert done.path.endswith("/account")
    expected = {"company": "ACME", "plan": "gold", "news": False, "born": "2000-02-29"}
    assert values_of(app) == expected
    (event,) = events(app, "profile_changed")
    assert event["attributes"] == "born company news plan"
    assert "ACME" not in str(event)


@pytest.mark.parametrize(
    ("field", "text", "problem"),
    [
        ("company", "", "Fill this in."),
        ("company", "   ", "Fill this in."),
        ("company", "a\0b", "fault"),
        ("company", "x" * 2001, "fault"),
        ("plan", "", "Fill this in."),
        ("plan", "platinum", "is none of"),
        ("news", "", "Fill this in."),
        ("news", "maybe", "neither true nor false"),
        ("born", "2001-02-29", "is no date"),
        ("seats", "many", "is no number"),
        ("seats", "x" * 100_000, "fault"),
    ],
)
def test_values_that_do_not_fit(
    app: Flask, page: Browser, field: str, text: str, problem: str
) -> None:
    form = {**GIVEN, f"attribute_{field}": text}
    answer = page.submit(name="Erin", new_password=NEW, **form)
    assert answer.status == 200
    assert problem in answer.html
    assert values_of(app) is None
    assert page.submit(name="Erin", new_password=NEW, **GIVEN, **{
        f"attribute_{name}": "" for name in ("born", "seats")
    }).path.endswith("/account")  # fmt: skip


def test_attributes_that_are_not_asked_for(app: Flask, page: Browser) -> None:
    """A made-up field changes nothing."""
    page.submit(name="Erin", new_password=NEW, **GIVEN, attribute_cost_center="1", groups="staff")
    assert values_of(app) == {"company": "ACME", "plan": "gold", "news": False}


def test_another_attribute_meanwhile(app: Flask, page: Browser) -> None:
    """The page asks for it, and the link still works."""
    define(app, "country", "required")
    assert "Fill this in." in page.submit(name="Erin", new_password=NEW, **GIVEN).html
    page.submit(name="Erin", new_password=NEW, **GIVEN, attribute_country="NZ")
    assert (values_of(app) or {})["country"] == "NZ"


def test_the_service_refuses_what_the_page_does(app: Flask, asked: None, user: User) -> None:
    with app.app_context():
        dana = db.session.get_one(User, user.id)
        for edits in ({}, {"company": "A", "plan": "gold"}, {"cost_center": "1"}):
            with pytest.raises(Invalid):
                attributes.set_at_sign_up(audit.USER, dana, edits)
        assert dana.attributes == {}


def test_an_invitation_and_a_reset(app: Flask, asked: None, mailbox: Mailbox) -> None:
    """Asked for what the operator has not set; a new password asks for nothing."""
    run = app.test_cli_runner().invoke
    for args in (
        ["user", "invite", "--email", ERIN, "--name", "Erin"],
        ["user", "update", ERIN, "--set-attribute", "company=Other"],
    ):
        result = run(args=args)
        assert result.exit_code == 0, result.output
    browser = Browser(app)
    browser.open(mailbox.link(ERIN))
    assert "attribute_company" not in browser.page.fields
    assert "Fill this in." in browser.submit(new_password=NEW, attribute_plan="gold").html
    form = {"attribute_plan": "silver", "attribute_news": "true"}
    assert browser.submit(new_password=NEW, **form).path.endswith("/sign-in")
    assert values_of(app) == {"company": "Other", "plan": "silver", "news": True}
    define(app, "country", "required")
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email=ERIN)
    browser.open(mailbox.link(ERIN))
    assert "attribute_" not in browser.page.html
    assert browser.submit(new_password=NEW + "2").path.endswith("/sign-in")


def test_an_invited_person_who_asks_for_a_new_password(
    app: Flask, asked: None, mailbox: Mailbox
) -> None:
    """It completes the account, as the invitation would."""
    invited = app.test_cli_runner().invoke(
        args=["user", "invite", "--email", ERIN, "--name", "Erin"]
    )
    assert invited.exit_code == 0
    mailbox.link(ERIN)
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email=ERIN)
    browser.open(mailbox.link(ERIN))
    assert "Fill this in." in browser.submit(new_password=NEW).html
    form = {"attribute_company": "Acme", "attribute_plan": "silver", "attribute_news": "true"}
    assert browser.submit(new_password=NEW, **form).path.endswith("/sign-in")
    assert (values_of(app) or {})["company"] == "Acme"


def test_how_operators_say_so(app: Flask) -> None:
    """By command and in the browser; anything else is refused."""
    run = app.test_cli_runner().invoke
    result = run(
        args=["attribute", "define", "plan", "--type", "string", "--at-sign-up", "optional"]
    )
    assert result.exit_code == 0, result.output
    assert '"at_sign_up": "optional"' in run(args=["attribute", "show", "plan", "--json"]).output
    result = run(args=["attribute", "update", "plan", "--at-sign-up", "required"])
    assert result.exit_code == 0, result.output
    assert run(args=["attribute", "update", "plan", "--at-sign-up", "never"]).exit_code != 0
    with app.app_context(), pytest.raises(Invalid):
        attributes.change(audit.SYSTEM, "plan", {"at_sign_up": "never"})
    admin = sign_in_staff(app)
    page = admin.open(f"{ORIGIN}{BASE}/admin/attribute?name=plan")
    assert "It has to be filled in" in page.html
    admin.submit(at_sign_up="no")
    assert '"at_sign_up": "no"' in run(args=["attribute", "show", "plan", "--json"]).output
