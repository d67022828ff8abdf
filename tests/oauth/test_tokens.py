"""Access tokens are known again by their digest; those of an older version by their signature."""

from base64 import urlsafe_b64encode
from dataclasses import replace

import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update

from sso.extensions import db
from sso.models import Token, User
from sso.oauth import tokens
from tests.support.actors import Browser, RelyingParty


@pytest.fixture
def token(browser: Browser, client: RelyingParty, user: User) -> str:
    issued: str = client.exchange(browser.approve(client).code).get_json()["access_token"]
    return issued


def forged(token: str) -> list[str]:
    """The same claims under another signature, under none, and another header."""
    header, payload, signature = token.split(".")
    other = signature[:-6] + ("AAAAAA" if not signature.endswith("AAAAAA") else "BBBBBB")
    none = urlsafe_b64encode(b'{"alg":"none","typ":"at+jwt"}').rstrip(b"=").decode()
    return [
        f"{header}.{payload}.{other}", f"{header}.{payload}.", f"{none}.{payload}.",
        f"{none}.{payload}.{signature}", f"{header}.{payload}.{signature}=",
    ]  # fmt: skip


def test_to_the_letter(client: RelyingParty, token: str) -> None:
    assert client.userinfo(token).status_code == 200
    assert client.introspect(token).get_json()["active"] is True
    for other in forged(token):
        assert client.userinfo(other).status_code == 401
        assert client.introspect(other).get_json() == {"active": False}


def test_rows_of_an_older_version(app: Flask, client: RelyingParty, token: str) -> None:
    with app.app_context():
        assert db.session.scalar(select(Token.access_digest)) is not None
        db.session.execute(update(Token).values(access_digest=None))
        db.session.commit()
    test_to_the_letter(client, token)
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, base_url="https://other.example")
    with app.app_context():
        assert not tokens.is_genuine(token, None)  # signed here, but under another issuer
        app.extensions["sso.settings"] = settings
        assert tokens.is_genuine(token, None)


@given(st.text() | st.binary().map(lambda raw: f"a.{urlsafe_b64encode(raw).decode()}.b"))
def test_rubbish_claims_nothing(text: str) -> None:
    assert tokens.claimed_jti(text) is None


@pytest.mark.parametrize("jti", ['"a\\u0000"', '"' + "a" * 44 + '"', "7", "null", "[]"])
def test_what_is_no_jti(jti: str) -> None:
    payload = urlsafe_b64encode(f'{{"jti": {jti}}}'.encode()).decode()
    assert tokens.claimed_jti(f"a.{payload}.b") is None
