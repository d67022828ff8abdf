"""Passwords: what does, what does not, and that both keyboards type the same."""

import os
import random
import secrets
import string
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Literal

import pytest
from argon2 import PasswordHasher
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st
from zxcvbn.frequency_lists import FREQUENCY_LISTS

from sso import create_core
from sso.crypto import password_strength, passwords
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox
from tests.support.processes import SECRET_KEY, wait_for


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
    walks += ["zxcpoivbnrty", "rewuioasdvbn"]  # on no list: three keys next to each other
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


TRIES = 500 if os.environ.get("EXHAUSTIVE") else 100


@pytest.fixture(scope="module")
def common_words() -> list[str]:
    return [word for word in FREQUENCY_LISTS["english_wikipedia"] if len(word) > 2][:2000]


@pytest.mark.slow
@pytest.mark.parametrize("between", ["", " ", "-"])
def test_any_four_random_words_do(common_words: list[str], between: str) -> None:
    for seed in range(3 * TRIES):
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
    for _ in range(TRIES):
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


def test_the_password_of_nobody_is_no_password() -> None:
    """It stands in for the hash of an unknown user, and of one without a password."""
    assert not passwords.verify("a password that nobody has", None)
    assert not passwords.verify("a password that nobody has", "")
    own = passwords.hash_password("a password that nobody has")
    assert passwords.verify("a password that nobody has", own)


def test_composed_and_decomposed_are_the_same() -> None:
    stored = passwords.hash_password("Grüße aus Köln 1")
    assert passwords.verify(unicodedata.normalize("NFD", "Grüße aus Köln 1"), stored)


@pytest.mark.parametrize(
    ("typed", "other"), [("ﬁnnisch", "finnisch"), ("km²", "km2"), ("\uff21", "A")]
)
def test_signs_that_only_look_alike_are_not(typed: str, other: str) -> None:
    stored = passwords.hash_password(f"{typed} und mehr 1")
    assert passwords.verify(f"{typed} und mehr 1", stored)
    assert not passwords.verify(f"{other} und mehr 1", stored)


# Who has shown that an account is theirs has a place in the queue, however many others wait.

STORED = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA"


class Gate(PasswordHasher):
    """Checks no password before it is opened; remembers the order."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.open, self.seen, self.began = Event(), list[bytes](), 0

    def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
        self.began += 1
        assert self.open.wait(60)
        assert isinstance(password, bytes)
        self.seen.append(password)
        return super().verify(hash, password)


class Crowd:
    """Checks that wait."""

    def __init__(self, gate: Gate, pool: ThreadPoolExecutor) -> None:
        self.gate, self.pool = gate, pool
        self.waiting: list[Future[bool]] = []

    def check(self, password: str, account: str | None = None) -> None:
        """One more, which is in the queue when this returns."""
        before = self.count
        self.waiting.append(self.pool.submit(passwords.verify, password, STORED, account))
        wait_for(lambda: self.queued == self.count == before + 1, "a place in the queue")

    def is_refused(self, password: str, account: str | None = None) -> bool:
        """Whether one more gets no place; does not wait for its turn if it gets one."""
        before = self.count
        check = self.pool.submit(passwords.verify, password, STORED, account)
        wait_for(lambda: check.done() or self.queued > before, "a refusal or a place")
        if not check.done():
            self.waiting.append(check)
            return False
        return isinstance(check.exception(), passwords.Busy)

    @property
    def queued(self) -> int:
        queue = passwords._queue
        return len(queue._kept) + len(queue._others) + self.gate.began - len(self.gate.seen)

    @property
    def count(self) -> int:
        return passwords._under_way + len(passwords._kept)

    def fill(self) -> None:
        while passwords._under_way < passwords.AT_ONCE:
            self.check(f"other {passwords._under_way}")


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    gate = Gate()
    monkeypatch.setattr(passwords, "hasher", gate)
    with ThreadPoolExecutor(40) as pool:
        made = Crowd(gate, pool)
        try:
            yield made
        finally:
            gate.open.set()
            for one in made.waiting:
                one.result(60)
    assert made.count == 0


def test_places_are_kept_for_accounts(crowd: Crowd) -> None:
    crowd.fill()
    assert crowd.is_refused("one too many")
    for number in range(passwords.KEPT):
        crowd.check("mine", f"account {number}")
    assert crowd.is_refused("one too many", "another account")


def test_one_account_has_one_place(crowd: Crowd) -> None:
    """Nobody takes all places with an account of their own, or with a cookie of somebody else."""
    crowd.fill()
    crowd.check("mine", "mallory")
    assert crowd.is_refused("mine", "mallory")
    with pytest.raises(passwords.Busy):
        passwords.look_for_room(lambda: "mallory")
    passwords.look_for_room(lambda: "dana")
    crowd.check("mine", "dana")


def test_whose_place_is_taken_waits_with_the_others(crowd: Crowd) -> None:
    crowd.check("first", "dana")
    crowd.check("second", "dana")
    assert (passwords._under_way, passwords._kept) == (1, {"dana"})


def test_kept_places_take_every_other_turn(crowd: Crowd) -> None:
    crowd.check("other 0")  # is being checked
    wait_for(lambda: crowd.gate.began == 1, "the first check")
    for number in range(1, 5):
        crowd.check(f"other {number}")
    for number in range(3):
        crowd.check(f"mine {number}", f"account {number}")
    crowd.gate.open.set()
    for one in crowd.waiting:
        one.result(60)
    assert [one.decode() for one in crowd.gate.seen] == [
        "other 0", "mine 0", "other 1", "mine 1", "other 2", "mine 2", "other 3", "other 4",
    ]  # fmt: skip


def test_nobody_is_looked_up_while_there_is_room(crowd: Crowd) -> None:
    def never() -> str:
        raise AssertionError("under a flood alone")

    passwords.look_for_room(never)
    crowd.fill()
    with pytest.raises(AssertionError):
        passwords.look_for_room(never)


def test_a_place_is_free_again_after_a_fault(crowd: Crowd) -> None:
    crowd.gate.open.set()
    for _ in range(passwords.AT_ONCE + 2):
        for account in (None, "dana"):
            with pytest.raises(TypeError):
                passwords.verify("x", 5, account)  # type: ignore[arg-type]
    assert crowd.count == 0


def _known(app: Flask) -> Browser:
    """A browser that the account has signed in from, and out of."""
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.submit(email="dana@example.com", password=PASSWORD, remember="y")
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    return browser


def _sign_in(app: Flask, _: Mailbox) -> Callable[[], str]:
    browser = _known(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    return lambda: browser.sign_in().url


def _change_password(app: Flask, _: Mailbox) -> Callable[[], str]:
    browser = Browser(app)
    browser.sign_in()
    browser.open(f"{ORIGIN}{BASE}/account")
    form = {
        "action": "change_password",
        "old_password": PASSWORD,
        "new_password": "a b c d e f g h i",
    }
    return lambda: browser.submit(**form).url


def _change_email(app: Flask, _: Mailbox) -> Callable[[], str]:
    browser = Browser(app)
    browser.sign_in()
    browser.open(f"{ORIGIN}{BASE}/account/email")
    return lambda: browser.submit(email="new@example.com", password=PASSWORD).url


def _reset(app: Flask, mailbox: Mailbox) -> Callable[[], str]:
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email="dana@example.com")
    browser.open(mailbox.link("dana@example.com"))
    return lambda: browser.submit(new_password="another long password").url


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (_sign_in, "/account"),
        (_change_password, "done=password"),
        (_change_email, "done=asked"),
        (_reset, "notice=password"),
    ],
)
def test_a_crowd_keeps_nobody_out_of_their_account(
    app: Flask,
    mailbox: Mailbox,
    monkeypatch: pytest.MonkeyPatch,
    begin: Callable[[Flask, Mailbox], Callable[[], str]],
    end: str,
) -> None:
    make_user(app)
    act = begin(app, mailbox)
    monkeypatch.setattr(passwords, "AT_ONCE", 0)
    assert act().endswith(end)


@pytest.mark.parametrize("email", ["erin@example.com", "", "\0", "x" * 5000])
def test_a_known_browser_has_no_place_for_another_account(
    app: Flask, monkeypatch: pytest.MonkeyPatch, email: str
) -> None:
    make_user(app)
    browser = _known(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    monkeypatch.setattr(passwords, "AT_ONCE", 0)
    assert browser.sign_in(email).status == 503


def test_a_stranger_has_none(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    make_user(app)
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    monkeypatch.setattr(passwords, "AT_ONCE", 0)
    assert browser.sign_in().status == 503


def test_where_no_priority_may_be_set_passwords_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", forbidden)
    passwords._worker.cache_clear()
    try:
        assert passwords.verify(PASSWORD, passwords.hash_password(PASSWORD))
    finally:
        passwords._worker.cache_clear()
