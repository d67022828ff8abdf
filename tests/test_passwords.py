"""Passwords: what does, what does not, and that both keyboards type the same."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sso import passwords


@pytest.mark.parametrize(
    "password",
    ["passwordpassword", "password1234", "P@ssw0rd1234", "qwertyuiopas", "123456789012",
     "iloveyouiloveyou", "aaaaaaaaaaaaaaaa", "letmein12345", "drowssapdrowssap"],
)  # fmt: skip
def test_common_ones_are_refused(password: str) -> None:
    assert passwords.fault(password) == passwords.TOO_COMMON


@pytest.mark.parametrize(
    "password",
    ["correct horse battery", "S3cret-Passw0rd!", "x7Kq2mZp9Lw4", "日本語のパスワードです長い"],
)
def test_others_do(password: str) -> None:
    assert passwords.fault(password) is None


@pytest.mark.parametrize(
    "password",
    [
        "PENTIUM2BUSTER12",
        "sunshine39409HORSE1234567",
        "correct1234567890a",
        "$2b$10$N9qo8uLOickgx2ZMRZoMye",
        "no text \udcff\udcfe at all",
    ],
)
def test_so_do_odd_ones(password: str) -> None:
    assert passwords.fault(password, [password[:4]]) is None


def test_the_own_address_is_refused_however_long() -> None:
    address = "christopher.montgomery@engineering.example.com"
    assert passwords.fault(address, ("Christopher", address)) == passwords.TOO_COMMON


@given(st.text(alphabet="@({[<!|$+%0123456789abc", min_size=12, max_size=99))
def test_crafted_symbols_are_estimated_by_their_beginning(password: str) -> None:
    taken = passwords._beginning(password)
    assert len(taken) <= 32
    assert len(taken) <= 12 or len(set(taken) & set("@({[<!|$+%")) <= 4


def test_the_own_name_is_refused() -> None:
    assert passwords.fault("dana@example.com", ("Dana", "dana@example.com")) == passwords.TOO_COMMON


@given(st.text(max_size=300), st.lists(st.text(max_size=300), max_size=3))
def test_any_text_gets_an_answer(password: str, about: list[str]) -> None:
    fault = passwords.fault(password, about)
    if len(password) < passwords.MIN_LENGTH:
        assert fault == passwords.TOO_SHORT


def test_composed_and_decomposed_are_the_same() -> None:
    stored = passwords.hash_password("Grüße aus Köln 1")
    assert passwords.verify(unicodedata.normalize("NFD", "Grüße aus Köln 1"), stored)
