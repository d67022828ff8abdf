"""Addresses: what may be registered, and how parameters are added."""

from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sso.config import urls
from sso.config.urls import add_parameters, registration_error, without_loopback_port

DANGEROUS = [
    "", "/callback", "books.example/callback", "https:///callback", "https://",
    "https://books.example/#x", "https://books.example/cb#", "javascript:alert(1)",
    "JavaScript:alert(1)//https://x.example", "data:text/html,x", "vbscript:x", "file:///etc/passwd",
    "https://*.books.example/", "https://books.example/*", "http://books.example/callback",
    "http://127.0.0.1.evil.example/", "https://user@books.example/", "https://books.example@evil.example/",
    "https://books.example/a/../b",
    "https://books.example/a/%2e%2E/b", "https://books.example/%2E/b", "https://books.example/.%2e",
    "https://books.example/./b", "https://books.example/ä",
    "https://books.example/a b", "https://books.example/\n", "https://books.example\\@evil.example",
    "https://books.example:99999/", "https://[::1", "myapp://callback",
    "https://b.example/" + "a" * 2000,
]  # fmt: skip

HARMLESS = [
    "https://books.example", "https://books.example/cb?tenant=a&x=%20", "http://127.0.0.1:8000/cb",
    "http://localhost/cb", "http://[::1]:1/cb", "https://books.example:8443/cb;a=b",
    "https://books.example/cb?", "https://xn--bcher-kva.example/", "https://books.example/~a/(b)'!",
]  # fmt: skip


@pytest.mark.parametrize("address", DANGEROUS)
def test_dangerous_addresses_are_refused_with_a_reason(address: str) -> None:
    assert registration_error(address)


@pytest.mark.parametrize("address", HARMLESS)
def test_harmless_addresses_are_taken(address: str) -> None:
    assert registration_error(address) is None


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("https://b.example/cb", "https://b.example/cb?a=%20%26"),
        ("https://b.example/cb?", "https://b.example/cb?a=%20%26"),
        ("https://b.example/cb?x", "https://b.example/cb?x&a=%20%26"),
        ("https://b.example/cb?x=;&", "https://b.example/cb?x=;&a=%20%26"),
        ("com.app:///cb", "com.app:///cb?a=%20%26"),
    ],
)
def test_what_stands_there_stays(address: str, wanted: str) -> None:
    assert add_parameters(address, [("a", " &")]) == wanted


@given(st.text(st.characters(exclude_categories=["Cs"])), st.binary())
def test_what_is_added_is_read_back(text: str, raw: bytes) -> None:
    parameters = [("a", text), ("b", raw.decode("utf-8", "surrogateescape"))]
    address = add_parameters("https://b.example/cb?own=1", parameters)
    assert address.isascii()
    query = urlsplit(address).query
    found = parse_qsl(query, keep_blank_values=True, errors="surrogateescape")
    assert found == [("own", "1"), *parameters]


NATIVE = "http://127.0.0.1:8000/cb?x=1"
EDITS = st.lists(
    st.tuples(
        st.integers(0, len(NATIVE)),
        st.integers(0, 3),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=3)
        | st.sampled_from([":", "@", "/", "#", "?", "[", "\\", ".evil", "65536", ":443"]),
    ),
    max_size=3,
)


@given(EDITS)
def test_nothing_but_the_port_of_loopback_may_differ(edits: list[tuple[int, int, str]]) -> None:
    text = NATIVE
    for at, removed, added in edits:
        text = text[:at] + added + text[at + removed :]
    if without_loopback_port(text) == without_loopback_port(NATIVE):
        parts = urlsplit(text)
        assert parts.port is None or 0 < parts.port <= 65535
        assert parts.netloc == "127.0.0.1" + (f":{parts.port}" if parts.port else "")
        assert parts._replace(netloc="127.0.0.1:8000").geturl() == NATIVE


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://sso.example/token", "HTTPS://SSO.example:443/token?x=1#y"),
        ("http://[::1]:5000/a", "http://[::1]:5000/a"),
        ("https://sso.example", "https://sso.example/"),
        ("https://sso.example/a/%7Eb", "https://sso.example/a/~b"),
        ("https://sso.example/a%2fb", "https://sso.example/a%2Fb"),
        ("https://sso.example/a/./b/../c", "https://sso.example/a/c"),
        ("https://sso.example/a/..", "https://sso.example/"),
    ],
)
def test_urls_that_are_the_same(one: str, other: str) -> None:
    assert urls.normalized(one) == urls.normalized(other) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://sso.example/a", "https://sso.example/a/"),
        ("https://sso.example/a", "https://sso.example/A"),
        ("https://sso.example/a", "http://sso.example/a"),
        ("https://sso.example/a", "https://sso.example:8443/a"),
        ("https://sso.example/a", "https://sso.example./a"),
        ("https://sso.example/a/b", "https://sso.example/a%2Fb"),
        ("https://sso.example/a", "https://sso.example//a"),
    ],
)
def test_urls_that_differ(one: str, other: str) -> None:
    assert urls.normalized(one) != urls.normalized(other)


@pytest.mark.parametrize(
    "url",
    ["", "a", "/a", "ftp://a/b", "https://", "https://u@a/", "https://a/é", "https://a:x/", "h:a"],
)
def test_what_is_not_normalized(url: str) -> None:
    assert urls.normalized(url) is None


@pytest.mark.slow
@given(
    st.sampled_from(["http", "HTTPS"]),
    st.from_regex(r"[A-Za-z0-9.-]{1,20}(:[0-9]{1,4})?", fullmatch=True),
    st.text("abAB./%27eEfF~;=?#", max_size=20),
)
def test_normalizing_twice_changes_nothing(scheme: str, host: str, rest: str) -> None:
    once = urls.normalized(f"{scheme}://{host}/{rest}")
    assert once is not None
    assert urls.normalized(once) == once
    assert "/../" not in once
    assert not set("?#") & set(once)


@pytest.mark.slow
@given(st.text())
def test_normalizing_never_fails(url: str) -> None:
    urls.normalized(url)
    urls.normalized(f"https://sso.example/{url}")
