"""What an account needs to be made, and what a directory may change of it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from flask import Flask

from sso import audit
from sso.config.upstream.provider import Provider
from sso.extensions import db
from sso.models import User
from sso.services import accounts, identities
from sso.services.checks import Invalid
from sso.store import users
from sso.upstream.identity import UpstreamIdentity
from tests.support.factories import PASSWORD, make_user

THERE = UpstreamIdentity("x", "1", "there@example.com", email_verified=True, name="Dana There")


@pytest.mark.parametrize(
    ("more", "errors"),
    [
        ({"password": "password"}, 1),
        ({"email": "nobody"}, 1),
        ({"email": "nobody", "password": "password"}, 2),
        ({"name": "", "password": PASSWORD}, 1),
    ],
)
def test_all_that_is_wrong_with_a_new_account_is_said_at_once(
    app: Flask, more: dict[str, str], errors: int
) -> None:
    usual: dict[str, Any] = {"email": "new@example.com", "name": "New", "password": PASSWORD}
    with app.app_context():
        with pytest.raises(Invalid) as refusal:
            accounts.create(audit.SYSTEM, **(usual | more))
        assert len(refusal.value.errors) == errors
        db.session.rollback()
        assert users.find_by_email("new@example.com") is None
        assert accounts.create(audit.SYSTEM, **usual)


LIVES_BY_IT: dict[str, Any] = {"password_hash": None, "user_name": None, "external_id": None}


@pytest.mark.parametrize(
    ("values", "identity", "changed"),
    [
        ({}, {}, ("Dana There", "there@example.com")),
        ({"password_hash": "x"}, {}, ()),
        ({"user_name": "dana"}, {}, ()),  # SCIM's word goes before it
        ({"external_id": "7"}, {}, ()),
        ({}, {"email_verified": False}, ("Dana There",)),
        ({}, {"email": None}, ("Dana There",)),
        ({}, {"email": "taken@example.com"}, ("Dana There",)),
        ({}, {"email": "a@elsewhere.example"}, ("Dana There",)),
        ({}, {"name": ""}, ("there@example.com",)),
    ],
)
def test_what_a_directory_changes(
    app: Flask, user: User, values: dict[str, Any], identity: dict[str, Any], changed: Any
) -> None:
    make_user(app, "taken@example.com")
    directory = SimpleNamespace(
        REDIRECTS=False, groups={}, id="corp",
        vouches_for=lambda email: email.endswith("@example.com"),
    )  # fmt: skip
    with app.app_context():
        dana = db.session.get_one(User, user.id)
        for name, value in {**LIVES_BY_IT, **values}.items():
            setattr(dana, name, value)
        db.session.commit()
        found = replace(THERE, **identity)
        identities.take_over_profile(audit.SYSTEM, cast(Provider, directory), dana, found)
        before = ("Dana Demo", "dana@example.com")
        assert {dana.name, dana.email} - set(before) == set(changed)
