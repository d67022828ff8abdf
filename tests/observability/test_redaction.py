"""What must not be logged is taken out of any text, in time that grows with its length alone."""

import time
from collections.abc import Callable
from itertools import cycle, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sso import audit
from sso.crypto import secrets
from sso.observability import redaction
from sso.observability.redaction import redact, redact_url

TOKEN = "sso_rt_" + "x" * 43
JWT = f"eyJhbGciOiJI.{'y' * 30}.{'z' * 40}"
LONG = 8190  # characters of a request line

# What each pattern begins with, and what it can be made to look at again and again.
UNITS = [
    *("-eyJ", "eyJ", "a?", "?a", "?", "a%3F", "a=", "?a=", "://", "://a:", "://a:b", "a@", ":@"),
    *("sso_", "sso_rt_", "-sso_rt_", "Bearer ", "Bearer", "Basic\t", "password", "password ", '"'),
    *("password=", 'password": "', "password='", "client_secret", "eyJaaaaaaaa.", ".", "-", " "),
    *("a", "\\", "password=\"\\\\", "/", "\u2028", "\x00", "id_token\n", "e", "p", "whsec_"),
]  # fmt: skip


def cpu(work: Callable[[], object], tries: int = 5) -> float:
    """The least CPU time of some tries, in seconds."""

    def once() -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    return min(once() for _ in range(tries))


def repeated(units: list[str], length: int) -> str:
    return "".join(islice(cycle(units), length))[:length]


@pytest.mark.parametrize("unit", UNITS)
def test_no_pattern_is_slow_on_its_own_beginning(unit: str) -> None:
    text = "GET /" + unit * (LONG // len(unit))
    assert cpu(lambda: redact(text)) < 0.02


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(UNITS), min_size=1, max_size=4))
def test_the_work_grows_with_the_length_alone(units: list[str]) -> None:
    short, long = repeated(units, 2_000), repeated(units, 16_000)
    # Linear is 8 times as long; quadratic would be 64 times. What is quick anyway is not compared.
    assert cpu(lambda: redact(long), 3) < max(24 * cpu(lambda: redact(short), 3), 0.01)


def test_a_long_text_is_cut_before_it_is_searched() -> None:
    text = "word " * 1_000_000
    assert len(redact(text)) <= redaction.LONGEST + 1
    assert redact(text).startswith("word word ")
    assert cpu(lambda: redact(text), 3) < 0.1
    assert redact("x" * 1_000_000) == "…"


@pytest.mark.parametrize(
    "secret", [TOKEN, JWT, f"Bearer {'q' * 60}", "password=hunter2hunter2", "?code=abcdefabcdefabc"]
)
@pytest.mark.parametrize("shift", [0, 1, 8, 20, 44, 60])
def test_no_cut_shows_a_part_of_a_secret(secret: str, shift: int) -> None:
    before = ("word " * redaction.LONGEST)[: redaction.LONGEST - shift - 2] + " /"
    found = redact(before + secret + " after")
    for length in (6, len(secret)):
        for part in (TOKEN[7:], JWT[3:], "q" * 60, "hunter2", "abcdef"):
            assert part[:length] not in found


@pytest.mark.parametrize(
    "secret",
    [TOKEN, JWT, JWT.rpartition(".")[0], f"Authorization: Bearer {'q' * 30}", "x://u:hunter2@h/",
     "GET /x?code=hunter2", "password=hunter2", "new_password=hunter2", "old_password: hunter2",
     '{"client_secret": "hunter2 and more hunter2"}', "authorization: bearer " + "q" * 20],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", "-eyJ a? ://a: " * 99])
@pytest.mark.parametrize("after", ["", " ?", " and so on" * 100])
def test_a_secret_within_a_long_text_is_found(before: str, secret: str, after: str) -> None:
    found = redact(f"{before} {secret}{after}")
    for part in (TOKEN[7:], "hunter2", "q" * 16, "y" * 30, "z" * 40):
        assert part not in found
    assert found.endswith(after)


@pytest.mark.parametrize(
    "text",
    ["nothing here? or there", '{"reason": "password_changed"}', "sso_rt_short", "eyJabc.def",
     "Bearer of news", "the password is wrong", "https://login.example.com/sign-in", "a = b? c",
     "really?no", "<b>why?</b>", "mailto:dana@example.com", "10:30 at the bar"],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_a_password_of_several_words_goes_as_a_whole() -> None:
    assert redact('{"password": "it\'s \\"ours\\" now", "x": 1}') == '{"password": "…", "x": 1}'


@pytest.mark.slow
@given(st.text(max_size=300))
def test_any_text_can_be_redacted(text: str) -> None:
    assert isinstance(redact(text), str)


@pytest.mark.parametrize("start", range(150, 200, 7))
def test_the_audit_trail_cuts_no_secret_short(start: int) -> None:
    cleaned = audit.clean("w" * start + " " + TOKEN, 200)
    assert len(cleaned) <= 200
    assert "xxx" not in cleaned
    assert "yyy" not in audit.clean("w" * start + " " + JWT, 200)


SECRETS = st.text("ABCDEFGHJKLMNP0123456789-_.~", min_size=8, max_size=60)


@given(SECRETS, st.sampled_from(["code=", "a=b&code=", "x&y=", "code=%20"]), st.booleans())
def test_a_url_is_kept_without_what_may_be_secret(secret: str, before: str, swap: bool) -> None:
    for url in (
        f"https://books.example/cb?{before}{secret}",
        f"https://books.example/cb?a=1#{before}{secret}",
        f"https://dana:{secret}@books.example/cb?a",
        f"https://{secret}@books.example/cb",
        f"https://books.example/{TOKEN if swap else JWT}/cb?{before}{secret}",
    ):
        kept = redact_url(url)
        assert secret not in kept
        assert TOKEN not in kept
        assert JWT not in kept
        assert kept.startswith("https://")
        assert redact_url(kept) == kept


@given(st.text(st.sampled_from(":/?#@&=…%a"), max_size=30) | st.text())
def test_a_url_may_be_any_text(text: str) -> None:
    kept = redact_url(text)
    assert redact_url(kept) == kept


@pytest.mark.parametrize("unit", UNITS)
def test_a_long_url_takes_little_time(unit: str) -> None:
    usual = cpu(lambda: redact_url("x" * LONG))
    assert cpu(lambda: redact_url(repeated([unit], LONG))) < 10 * usual + 0.02


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://books.example/cb", "https://books.example/cb"),
        ("https://books.example/cb/?a=1&b&c=", "https://books.example/cb/?a=…&b&c=…"),
        ("https://books.example/cb?", "https://books.example/cb?"),
        ("https://books.example/cb#", "https://books.example/cb#…"),
        ("com.app:/cb?a=1", "com.app:/cb?a=…"),
    ],
)
def test_what_of_a_url_is_kept(url: str, kept: str) -> None:
    assert redact_url(url) == kept


def test_the_secret_of_a_webhook() -> None:
    secret = secrets.make_webhook_secret()
    assert redact(f"the secret {secret}, shown") == "the secret whsec_…, shown"


# Redaction: each kind of secret is hidden, and what only looks like one is left readable.

BARE_TOKEN = "t" * 43
IDENTITY_TOKEN = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJkYW5hIn0.c2lnbmF0dXJl"
EXAMPLES = {
    **{f"sso_{kind}_": f"sso_{kind}_{BARE_TOKEN}" for kind in ("ac", "rt", "cs", "sid", "ml")},
    "a IDENTITY_TOKEN": IDENTITY_TOKEN,
    "a IDENTITY_TOKEN without its signature": IDENTITY_TOKEN.rsplit(".", 1)[0] + ".",
    "Bearer": "Bearer abcdefghijklmnop",
    "bearer of another spelling": "Bearer  abc~+/=-._abcdefgh",
    "Basic": "Basic Ym9va3M6c2VjcmV0c2VjcmV0",
    "a password in an address": "postgresql+psycopg://sso:secretsecret@db:5432/sso",
    "a query": "/api/auth/new-password?token=secretsecret",
    "a query behind a slash": "/api/auth/?code=secretsecret&state=x",
    "a field of a form": "password=secretsecret&x=y",
    "a field of JSON": '{"client_secret": "secretsecret"}',
    **{
        f"the field {name}": f"{name}: 'secretsecret'"
        for name in (
            "password", "client_secret", "code_verifier", "access_token", "refresh_token",
            "id_token",
        )
    },
}  # fmt: skip
HIDDEN = ("secretsecret", BARE_TOKEN, "eyJ", "abcdefgh", "Ym9va3")


@pytest.mark.parametrize("secret", EXAMPLES.values(), ids=EXAMPLES.keys())
@pytest.mark.parametrize("around", ["{}", "before {} after", '"{}"', "line\n{}\nline", "({})"])
def test_it_is_hidden(secret: str, around: str) -> None:
    found = redact(around.format(secret))
    assert not any(part in found for part in HIDDEN), found
    assert "…" in found
    for word in ("before", "after", "line"):
        assert (word in found) == (word in around)


def test_what_stays_readable() -> None:
    for text in (
        "sso_rt_ is a prefix",
        "sso_rt_" + "t" * 39,
        "Basic English",
        "Bearer realm",
        "is it? yes",
        "really?",
        "https://login.example.com/api/auth/oauth2/token",
        "the password is not right",
        "the client_secret and the id_token",
        "dana@example.com",
        "eyJ",
        "a.b.c",
    ):
        assert redact(text) == text


def test_all_of_several() -> None:
    text = f"{IDENTITY_TOKEN} sso_ac_{BARE_TOKEN} sso_rt_{BARE_TOKEN} password=secretsecret"
    assert redact(text).count("…") == 4
