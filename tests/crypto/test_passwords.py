"""Passwords: what does, what does not, and that both keyboards type the same."""

import random
import secrets
import string
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st
from zxcvbn.frequency_lists import FREQUENCY_LISTS

from sso import create_core
from sso.crypto import password_strength, passwords
from tests.support.processes import SECRET_KEY


@pytest.mark.parametrize(
    "password",
    ["passwordpassword", "password1234", "P@ssw0rd1234", "qwertyuiopas", "123456789012",
     "iloveyouiloveyou", "aaaaaaaaaaaaaaaa", "letmein12345", "drowssapdrowssap", "Password123!@#",
     "Passw0rd2024!", "Welcome2026!!", "!QAZ2wsx#EDC", "zaq12wsxcde3", "ZAQ!@WSXCDE#",
     "2026Welcome!!", "pa55w0rd5!2026", "$ummer2026!!", "abcd1234efgh", "aaaabbbbcccc",
     "Liverpool1892!", "MyPassword2026!!", "W3lc0m3!2026", "Administrator1!", "trustno1trustno1"],
)  # fmt: skip
def test_common_ones_are_refused(password: str) -> None:
    assert passwords.weakness(password) in (passwords.TOO_COMMON, passwords.LEAKED)


def siblings() -> set[str]:
    """What people make of the demand for letters, digits and symbols."""
    words = [
        *("Spring", "Summer", "Autumn", "Winter", "January", "October", "Monday", "Company"),
        *("Password", "P@ssw0rd", "Passw0rd", "Welcome", "W3lcome", "Admin", "Qwerty", "Dragon"),
        *("Football", "Liverpool", "Michael", "Iloveyou", "Sunshine", "Princess", "Changeme"),
    ]
    ends = ["2026!", "2025!!", "@2024", "123!@#", "1234567", "#1990", "2026", "-2023!", "!!!2026"]
    rows = ["`1234567890-=", "qwertyuiop[]", "asdfghjkl;'", "zxcvbnm,./"]
    columns = ["1qaz", "2wsx", "3edc", "4rfv", "5tgb", "6yhn", "7ujm", "8ik,", "9ol.", "0p;/"]
    walks = [row[start:] + row[:start] for row in rows[:2] for start in range(4)]
    walks += ["".join(columns[at : at + 3]) for at in range(8)]
    walks += ["".join(column[::-1] for column in columns[at : at + 3]) for at in range(8)]
    walks += [columns[at] + columns[at + 1][::-1] + columns[at + 2] for at in range(8)]
    walks += [
        "".join(a + b for a, b in zip(rows[0][1:], rows[1], strict=False))[at : at + 14]
        for at in range(6)
    ]
    walks += ["qweasdzxc123", "qazwsxedcrfv", "1q2w3e4r5t6y", "poiuytrewqasdf", "mnbvcxzlkjhg"]
    shifted = str.maketrans("1234567890", "!@#$%^&*()")
    walks += [walk.upper().translate(shifted) for walk in walks]
    people = ["Dana", "Demo", "DanaDemo", "dana.demo", "d.demo", "Demo-Dana", "acme", "AcmeTools"]
    decorated = {word + end for word in words + people for end in ends}
    return {one for one in {*decorated, *walks} if len(one) >= passwords.MIN_LENGTH}


def test_siblings_of_common_ones_are_refused() -> None:
    about = ("Dana Demo", "dana.demo@acme-tools.example")
    found = siblings()
    assert len(found) > 200
    assert [one for one in sorted(found) if passwords.weakness(one, about) is None] == []


@pytest.fixture(scope="module")
def common_words() -> list[str]:
    return [word for word in FREQUENCY_LISTS["english_wikipedia"] if len(word) > 2][:2000]


@pytest.mark.slow
@pytest.mark.parametrize("between", ["", " ", "-"])
def test_any_four_random_words_do(common_words: list[str], between: str) -> None:
    for seed in range(1500):
        words = random.Random(seed).choices(common_words, k=4)
        if len(password := between.join(words)) >= passwords.MIN_LENGTH:
            assert passwords.weakness(password, ("Dana Demo", "dana@example.com")) is None, password


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: "-".join(secrets.token_hex(2) for _ in range(4)),  # the demo's
        lambda: secrets.token_urlsafe(12),
        lambda: "".join(secrets.choice(string.ascii_lowercase) for _ in range(16)),
        lambda: "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(16)),
        lambda: "".join(secrets.choice(string.printable[:94]) for _ in range(16)),
    ],
)
def test_what_a_program_makes_does(make: Callable[[], str]) -> None:
    for _ in range(500):
        password = make()
        assert passwords.weakness(password, ("Dana Demo", "dana@example.com")) is None, password


def test_the_names_of_the_service_are_refused(
    make_app: Callable[..., Flask], tmp_path: Path
) -> None:
    """Also by commands, which run without the pages."""
    environ = {
        "SSO_BASE_URL": "https://login.acme-tools.example/api/auth",
        "SSO_MAIL_FROM": "it@contoso.example",
        "SSO_NAME": "Tannhauser Portal",
    }
    app = make_app(**environ)
    database = f"sqlite:///{tmp_path / 'commands.sqlite'}"
    environ |= {"SSO_SECRET_KEY": SECRET_KEY, "SSO_DATABASE_URL": database}
    commands = create_core(environ, tmp_path)
    tried = [
        "login.acme-tools.example", "Login.Acme-Tools.example1", "acme-tools2026", "AcmeTools2026!",
        "https://login.acme-tools.example", "sso.acme-tools", "Contoso2026!!", "contoso.example",
        "it@contoso.example", "SingleSignOn1", "sso-sso-sso-1", "TannhauserPortal",
        "tannhauser portal 1", "PortalTannhauser2026", "Tannhauser2026!!", "www.acme-tools.example",
        "admin.acme-tools.example",
        "mail.acme-tools.example", "portal.acme-tools.example", "https://login.acme-tools.example/api/auth",
        "login-acme-tools-example", "ACME-TOOLS.EXAMPLE", "example.acme-tools.login",
    ]  # fmt: skip
    about = (
        "Christopher Alexander Montgomery of Contoso",
        "c.a.montgomery@mail.eu.contoso.example",
    )
    for each_app in (app, commands):
        with each_app.app_context():
            assert [one for one in tried if passwords.weakness(one) is None] == []
            assert [one for one in tried if passwords.weakness(one, about) is None] == []
            assert passwords.weakness("login tools correct horse") is None
            assert passwords.weakness("portal tools correct horse", about) is None
    assert passwords.weakness("it@contoso.example") is None  # elsewhere it may be as good as others


def test_the_person_is_told_what_to_do() -> None:
    for told in (passwords.TOO_COMMON, passwords.LEAKED):
        assert "four random words" in told


def test_a_leaked_one_is_called_so() -> None:
    assert passwords.weakness("zaq12wsxcde3") == passwords.LEAKED
    assert passwords.weakness("ZAQ12wsxcde3") == passwords.LEAKED
    assert passwords.weakness("x7Kq2mZp9Lw4") is None


@pytest.mark.parametrize(
    "password",
    ["correct horse battery", "S3cret-Passw0rd!", "x7Kq2mZp9Lw4", "日本語のパスワードです長い"],
)
def test_others_do(password: str) -> None:
    assert passwords.weakness(password) is None


@pytest.mark.parametrize(
    "password",
    [
        "sunshine39409HORSE1234567",
        "$2b$10$N9qo8uLOickgx2ZMRZoMye",
        "no text \udcff\udcfe at all",
    ],
)
def test_so_do_odd_ones(password: str) -> None:
    assert passwords.weakness(password, [password[:4]]) is None


@pytest.mark.parametrize(
    "password", ["PENTIUM2BUSTER12", "correct1234567890a", "a\nb\nc\nd\ne\nf\ng"]
)
def test_any_other_odd_one_gets_an_answer(password: str) -> None:
    passwords.weakness(password, [password[:4]])


def test_the_own_address_is_refused_however_long() -> None:
    address = "christopher.montgomery@engineering.example.com"
    assert passwords.weakness(address, ("Christopher", address)) == passwords.TOO_COMMON


@given(st.text(alphabet="@({[<!|$+%0123456789abc", min_size=12, max_size=99))
def test_crafted_symbols_are_estimated_by_their_beginning(password: str) -> None:
    taken = password_strength._beginning(password)
    assert len(taken) <= 32
    assert len(taken) <= 12 or len(set(taken) & set("@({[<!|$+%")) <= 4


def test_the_own_name_is_refused() -> None:
    assert (
        passwords.weakness("dana@example.com", ("Dana", "dana@example.com")) == passwords.TOO_COMMON
    )


@given(st.text(max_size=300), st.lists(st.text(max_size=300), max_size=3))
def test_any_text_gets_an_answer(password: str, about: list[str]) -> None:
    fault = passwords.weakness(password, about)
    if len(password) < passwords.MIN_LENGTH:
        assert fault == passwords.TOO_SHORT


def test_composed_and_decomposed_are_the_same() -> None:
    stored = passwords.hash_password("Grüße aus Köln 1")
    assert passwords.verify(unicodedata.normalize("NFD", "Grüße aus Köln 1"), stored)
