"""`offline_access` among other scopes: at the beginning, in the middle, at the end, and alone."""

import pytest
from flask import Flask
from sqlalchemy import update

from sso.extensions import db
from sso.models import Grant, User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import make_client


@pytest.mark.parametrize(
    ("scope", "outlives"),
    [
        ("offline_access", True),
        ("offline_access email", True),
        ("email offline_access", True),
        ("openid offline_access email", True),
        ("openid email", False),
        ("openid offline", False),
        ("openid xoffline_access", False),
        ("openid offline_accessx", False),
        ("openid offline-access", False),
        ("openid offlineXaccess", False),
    ],
)
def test_it_outlives_sign_out(
    app: Flask, clock: Clock, browser: Browser, user: User, scope: str, outlives: bool
) -> None:
    client = make_client(app, scope="openid email offline_access")
    code = browser.approve(client, scope="openid email offline_access").code
    tokens = client.exchange(code).get_json()
    with app.app_context():  # also scopes that a newer version may know
        db.session.execute(update(Grant).values(scope=scope))
        db.session.commit()
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    assert (client.userinfo(tokens["access_token"]).status_code == 200) is outlives
    assert (client.refresh(tokens["refresh_token"]).status_code == 200) is outlives
