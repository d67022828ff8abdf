"""What `flask apply` takes away ends at once, as by a change of one person (`accounts.update`)."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select, update

from sso import clock
from sso.extensions import db
from sso.models import BrowserSession, Mail, User
from sso.services import mail_links
from sso.store import named_groups, users
from tests.attacks.test_api_token_owners import ADMINS, HELPDESK, token_of
from tests.support.actors import BASE, Browser
from tests.support.events import events
from tests.support.factories import make_user

Apply = Callable[..., Any]


@pytest.fixture
def apply(app: Flask, tmp_path: Path) -> Apply:
    """Apply a file with these people; gives what it prints as JSON."""

    def run(*people: dict[str, Any], prune: bool = False, code: int = 0) -> Any:
        path = tmp_path / "sso.json"
        path.write_text(json.dumps({"format": 1, "users": people}))
        options = ["--prune", "--yes"] if prune else []
        done = app.test_cli_runner().invoke(args=["apply", str(path), "--json", *options])
        assert done.exit_code == code, done.output
        return done.stderr if code else json.loads(done.stdout)["changes"]

    return run


OWNER, OTHER = {"email": "owner@example.com"}, {"email": "other@example.com"}


@pytest.mark.parametrize(
    ("people", "reason"),
    [
        ([OWNER | {"disabled": True}], "owner_disabled"),
        ([OWNER | {"groups": ["staff"]}], "owner_lost_role"),
        ([OWNER | {"groups": [HELPDESK]}], "owner_lost_role"),
        ([OWNER | {"groups": [], "disabled": True}], "owner_disabled"),
        ([OTHER], "owner_deleted"),
        # With others of whom nothing ends.
        (
            [OTHER | {"groups": [ADMINS, "x"]}, OWNER | {"groups": [], "email": OWNER["email"]}],
            "owner_lost_role",
        ),
    ],
)
def test_tokens_end_with_an_administrator(
    app: Flask, apply: Apply, people: list[dict[str, Any]], reason: str
) -> None:
    other = make_user(app, "other@example.com", groups=[ADMINS])
    owner = make_user(app, "owner@example.com", groups=[ADMINS, "staff"])
    token, theirs = token_of(app, owner), token_of(app, other, "Theirs")
    unowned = token_of(app, None, "By command")
    assert token("GET", "/Users").status_code == 200
    apply(*people, prune=people == [OTHER])
    assert token("GET", "/Users").status_code == 401
    assert theirs("GET", "/Users").status_code == 200
    assert unowned("GET", "/Users").status_code == 200
    (noted,) = events(app, "api_token_revoked")
    assert (noted["name"], noted["owner"], noted["reason"]) == ("Entra", str(owner.id), reason)
    assert noted["operator"]
    if reason != "owner_deleted":  # an administrator again, but the token stays ended
        apply(OWNER | {"groups": [ADMINS], "disabled": False})
        assert token("GET", "/Users").status_code == 401


def test_what_leaves_an_administrator_ends_no_token(app: Flask, apply: Apply) -> None:
    owner = make_user(app, "owner@example.com", groups=["staff", ADMINS])
    token = token_of(app, owner)
    apply({"email": "new@example.com", "id": str(owner.id), "name": "N", "groups": [ADMINS]})
    assert token("GET", "/Users").status_code == 200
    assert events(app, "api_token_revoked") == []


def allow(app: Flask, email: str) -> None:
    with app.app_context():
        of_user = select(User.id).where(User.email == email).scalar_subquery()
        db.session.execute(
            update(BrowserSession)
            .where(BrowserSession.user_id == of_user)
            .values(enrolment_allowed_at=clock.now())
            .execution_options(synchronize_session=False)
        )
        db.session.commit()


def allowed(app: Flask) -> list[str]:
    with app.app_context():
        rows = db.session.execute(
            select(User.email)
            .join(BrowserSession, BrowserSession.user_id == User.id)
            .where(BrowserSession.enrolment_allowed_at.is_not(None))
        )
        return sorted(email for (email,) in rows)


def test_another_address_ends_what_allowed_the_first_factor(app: Flask, apply: Apply) -> None:
    ids = {}
    for name in ("ada", "ben", "cleo"):
        ids[name] = str(make_user(app, f"{name}@example.com").id)
        Browser(app).sign_in(f"{name}@example.com")
        allow(app, f"{name}@example.com")
    assert len(allowed(app)) == 3
    with app.app_context():
        ada = users.find_by_email("ada@example.com")
        assert ada is not None
        _, link = mail_links.make_secret(mail_links.LINK_USED, ada.email, ada, timedelta(minutes=9))
        db.session.commit()
    apply(
        {"id": ids["ada"], "email": "ada@example.org", "email_verified": True},
        {"email": "ben@example.com", "name": "Else"},
    )
    assert allowed(app) == ["ben@example.com", "cleo@example.com"]
    with app.app_context():
        assert mail_links.find(link, mail_links.LINK_USED) is None
        mails = set(db.session.execute(select(Mail.kind, Mail.address)).all())
    assert ("email_changed", "ada@example.com") in mails
    assert not any(kind == "verify" for kind, _ in mails)


def test_disabled_people_are_signed_out_and_their_sessions_allow_nothing(
    app: Flask, apply: Apply
) -> None:
    for name in ("ada", "ben"):
        make_user(app, f"{name}@example.com")
    browsers = [Browser(app), Browser(app)]
    browsers[0].sign_in("ada@example.com")
    browsers[1].sign_in("ben@example.com")
    apply({"email": "ada@example.com", "disabled": True}, {"email": "ben@example.com", "name": "B"})
    assert browsers[0].open(f"{BASE}/account").path.endswith("/sign-in")
    assert browsers[1].open(f"{BASE}/account").path.endswith("/account")
    (ended,) = events(app, "session_ended")
    assert ended["reason"] == "user_disabled"


def test_groups_of_new_people_are_seen_to_change(app: Flask, apply: Apply) -> None:
    """A provisioning client that has read the group before is told that it has changed."""

    def version() -> int:
        with app.app_context():
            group = named_groups.find_by_name("readers")
            assert group
            return group.version

    apply({"email": "first@example.com", "name": "First", "groups": ["readers"]})
    before = version()
    apply({"email": "second@example.com", "name": "Second", "groups": ["readers"]})
    assert version() > before
    before = version()
    apply({"email": "third@example.com", "name": "Third", "groups": ["other"]})
    assert version() == before
