"""The attacker saw a code as it was typed: of the app, or of the sheet.

It ends at one statement that accepts each time step and each recovery code once.
"""

import pytest
from flask import Flask
from sqlalchemy import select

from sso.extensions import Base, db
from sso.models import User
from tests.conftest import Clock
from tests.support.actors import Browser
from tests.support.second_factors import ASK, code_of, codes_of, enrol_totp, is_signed_in

pytestmark = pytest.mark.slow


@pytest.fixture
def enrolled(app: Flask, clock: Clock, user: User) -> tuple[str, list[str]]:
    browser = Browser(app)
    browser.sign_in()
    return enrol_totp(browser)


def tries(app: Flask, **form: str) -> bool:
    """Sign in with the password and this; whether it works."""
    browser = Browser(app)
    browser.sign_in()
    browser.submit(**form)
    return is_signed_in(browser)


def test_a_code_in_the_same_window(
    app: Flask, clock: Clock, enrolled: tuple[str, list[str]]
) -> None:
    secret, _ = enrolled
    assert not tries(app, code=code_of(secret))  # used up when the app was set up
    clock.move(seconds=30)
    code = code_of(secret)
    assert tries(app, code=code)
    assert not tries(app, code=code)
    assert not tries(app, code=code_of(secret, -1))  # an earlier one neither
    clock.move(seconds=30)
    assert not tries(app, code=code)
    assert tries(app, code=code_of(secret))


def test_a_recovery_code_twice(app: Flask, enrolled: tuple[str, list[str]]) -> None:
    code = enrolled[1][3]
    assert tries(app, recovery_code=code)
    assert not tries(app, recovery_code=code)
    assert tries(app, recovery_code=enrolled[1][4])


def test_codes_of_an_old_sheet(app: Flask, enrolled: tuple[str, list[str]]) -> None:
    browser = Browser(app)
    browser.sign_in()
    browser.submit(recovery_code=enrolled[1][0])
    browser.open(f"{ASK}new_codes")
    fresh = codes_of(browser.submit(action="new_codes"))
    assert not set(fresh) & set(enrolled[1])
    assert not tries(app, recovery_code=enrolled[1][1])
    assert tries(app, recovery_code=fresh[1])


@pytest.mark.parametrize(
    "code", ["", "0", "12345", "1234567", "abcdef", "\uff11" * 6, "\x00", "é" * 6, "-1"]
)
def test_what_is_no_code(app: Flask, enrolled: tuple[str, list[str]], code: str) -> None:
    assert not tries(app, code=code)
    assert not tries(app, recovery_code=code)


def test_nothing_is_stored_in_clear(app: Flask, enrolled: tuple[str, list[str]]) -> None:
    with app.app_context():
        tables = Base.metadata.sorted_tables
        stored = repr([db.session.execute(select(table)).all() for table in tables])
    secret, codes = enrolled
    assert "totp" in stored
    for one in (secret, *codes, *(code.replace("-", "") for code in codes)):
        assert one not in stored
