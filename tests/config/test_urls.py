"""Addresses: what may be registered, and how parameters are added."""

from collections.abc import Callable
from string import ascii_letters, ascii_lowercase
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sso.config import urls
from sso.config.urls import (
    MAX_LENGTH,
    Kind,
    add_parameters,
    is_loopback,
    is_native,
    marks,
    nearest_url,
    origin,
    registration_error,
    split_url,
    strict_url_error,
    url_differences,
    without_loopback_port,
)

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
    assert "/../" not in f"/{once.split('/', 3)[3]}"  # a host may be ".."
    assert not set("?#") & set(once)


@pytest.mark.slow
@given(st.text())
def test_normalizing_never_fails(url: str) -> None:
    urls.normalized(url)
    urls.normalized(f"https://sso.example/{url}")


# Addresses that nearly do, and nearly do not.

DANGEROUS_SCHEMES = (
    "javascript", "data", "vbscript", "file", "about", "blob", "view-source", "filesystem", "ws",
)  # fmt: skip


@pytest.mark.parametrize(
    ("host", "good"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.255.255.254", True),
        ("::1", True),
        ("localhost.", False),
        ("localhost.example.com", False),
        ("evil-localhost", False),
        ("evil.localhost", False),
        ("127.0.0.1.example.com", False),
        ("128.0.0.1", False),
        ("126.255.255.255", False),
        ("::2", False),
        ("0.0.0.0", False),
        ("", False),
        (None, False),
    ],
)
def test_loopback(host: str | None, good: bool) -> None:
    assert is_loopback(host) is good
    if host:
        shown = f"[{host}]" if ":" in host else host
        assert (registration_error(f"http://{shown}/cb") is None) is good


@pytest.mark.parametrize("length", [MAX_LENGTH, MAX_LENGTH + 1])
def test_length(length: int) -> None:
    text = "https://b.example/".ljust(length, "a")
    assert (strict_url_error(text) is None) is (length <= MAX_LENGTH)


@pytest.mark.parametrize("scheme", DANGEROUS_SCHEMES)
@pytest.mark.parametrize("rest", [":x.y", "://b.example/cb", ":/cb"])
@pytest.mark.parametrize("is_public", [False, True])
def test_schemes_that_run_or_read(scheme: str, rest: str, is_public: bool) -> None:
    assert registration_error(scheme + rest, is_public=is_public)
    assert registration_error(scheme.upper() + rest, is_public=is_public)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("https://b.example/a.b", True),
        ("https://b.example/.a", True),
        ("https://b.example/a..b/c", True),
        ("https://b.example/a/.", False),
        ("https://b.example/a/..", False),
        ("https://b.example/./a", False),
        ("https://b.example/..", False),
        ("https://b.example/cb#", False),
        ("https://b.example/cb#x", False),
        ("https://b.example/cb?x=#", False),
        ("https://b.example/cb?x=%23", True),
        ("https://*/cb", False),
        ("https://b.example/cb?x=*", False),
        ("https://b.example/cb?x=%2A", True),
        ("https://u@b.example/", False),
        ("https://u:p@b.example/", False),
        ("https://b.example/@u", True),
        ("https://b.example/?x=a@b", True),
        ("https://b.example/\\", False),
        ("https://b.example/<", False),
        ('https://b.example/"', False),
        ("https://b.example/'", True),
        ("https://b.example/\x7f", False),
        ("https://b.example/\t", False),
        (" https://b.example/", False),
        ("https:b.example/", False),
        ("https:///b.example/", False),
        ("https://:443/", False),
        ("https://b.example:65535/", True),
        ("https://b.example:65536/", False),
        ("https://b.example:x/", False),
        ("https://[::1/", False),
        ("//b.example/", False),
        ("b.example", False),
    ],
)
def test_registration(text: str, good: bool) -> None:
    assert (registration_error(text) is None) is good


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("com.example.app:/cb", True),
        ("com.example.app://cb", True),
        ("com.app:///cb", True),
        ("Com.Example.App:/cb", True),
        ("com.example-app.x2:/cb?y=1", True),
        ("com.example.app:cb", False),
        ("wiki.example.com:8443/cb", False),
        ("localhost:3000/cb", False),
        ("com.example.app:", False),
        ("com.example.app:/cb#x", False),
        ("com.example.app:/*", False),
        ("com.example.app:/../cb", False),
        ("com.example.app://u@host/cb", False),
        ("example:/cb", False),
        ("myapp://cb", False),
        ("com.:/cb", False),
        ("com..app:/cb", False),
        (".com.app:/cb", False),
        ("2com.app:/cb", False),
        ("com.exämple:/cb", False),
        ("com.ex+ample:/cb", False),
        ("http.example:/cb", False),
        ("https.example.com:/cb", False),
        ("javascript.example:/cb", False),
        ("httpx://example.com/cb", False),
        ("intent://example.com/cb", False),
        ("ms-settings:x.y", False),
        ("http://example.com/cb", False),
        ("http://127.0.0.1/cb", True),
        ("https://example.com/cb", True),
        ("https://example.com/CB", True),
    ],
)
def test_private_use_schemes_of_public_clients(text: str, good: bool) -> None:
    assert (registration_error(text, is_public=True) is None) is good
    is_web = text.startswith(("http://127", "https://example"))
    assert (registration_error(text) is None) is (good and is_web)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
@pytest.mark.parametrize("rest", ["", "/", "/cb", "/cb?x=1:2", "?x=1"])
def test_the_port_of_loopback_is_left_out(host: str, rest: str) -> None:
    for port in ("", ":1", ":80", ":65535"):
        assert without_loopback_port(f"http://{host}{port}{rest}") == f"http://{host}{rest}"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:0/", "http://127.0.0.1:65536/", "http://127.0.0.1:/", "http://127.0.0.1:080/",
        "http://127.0.0.1:99999/", "http://127.0.0.1:8\u0660/", "http://127.0.0.1:8000x/",
        "http://127.0.0.1:8000#x", "http://127.0.0.1:80\\@evil.example/", "http://127.0.0.1:80@evil.example/",
        "http://127.0.0.1.evil.example:80/", "http://localhost.evil.example:80/", "http://127.1:80/",
        "http://[::ffff:127.0.0.1]:80/", "http://2130706433:80/", "http://0x7f000001:80/",
        "http://127.0.0.2:80/", "http://[0:0:0:0:0:0:0:1]:80/", "http://LOCALHOST:80/",
        "http://u@127.0.0.1:80/", "http://127.0.0.1%2f:80/", "HTTP://127.0.0.1:80/",
        "https://127.0.0.1:443/", "https://localhost:443/", "http://evil.example:80/",
        "https://evil.example:443/?http://127.0.0.1:80/", "com.example.app://127.0.0.1:80/", "",
    ],
)  # fmt: skip
def test_every_other_url_stays_as_it_is(url: str) -> None:
    assert without_loopback_port(url) == url


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://App.Example/cb", "https://app.example"),
        ("https://app.example:443/cb", "https://app.example"),
        ("https://app.example:8443/cb?x", "https://app.example:8443"),
        ("http://localhost:80", "http://localhost"),
        ("http://127.0.0.1:3000/cb", "http://127.0.0.1:3000"),
        ("http://[::1]:3000/cb", "http://[::1]:3000"),
        ("com.example.app:/cb", None),
        ("com.example.app://host/cb", None),
    ],
)
def test_the_origin_of_a_url(url: str, found: str | None) -> None:
    assert origin(url) == found


@pytest.mark.parametrize(
    ("uri", "native"),
    [
        ("https://app.example/cb", False),
        ("HTTPS://app.example/cb", False),
        ("http://127.0.0.1/cb", True),
        ("com.example.app:/cb", True),
    ],
)
def test_what_any_program_could_receive(uri: str, native: bool) -> None:
    assert is_native(uri) is native


def test_a_public_clients_host_is_written_as_browsers_do() -> None:
    assert registration_error("https://App.example/cb") is None
    assert registration_error("https://App.example/cb", is_public=True)


# The difference between two URLs: named whenever there is one, and only then.

SEGMENT = st.text(ascii_lowercase, min_size=1, max_size=8)
URLS = st.builds(
    lambda scheme, labels, port, segments: (
        f"{scheme}://{'.'.join(labels)}.example{port}/{'/'.join(segments)}"
    ),
    st.sampled_from(["https", "http"]),
    st.lists(SEGMENT, min_size=1, max_size=3),
    st.sampled_from(["", ":8443", ":3000"]),
    st.lists(SEGMENT, min_size=1, max_size=4),
)
# Texts in which the delimiters of URLs are frequent.
TEXTS = st.text(st.sampled_from(":/?#@[]%. aA1é\n\ud800"), max_size=20) | st.text(max_size=20)


def kinds(received: str, registered: str) -> set[Kind]:
    return {one.kind for one in url_differences(received, registered)}


@given(TEXTS)
def test_the_parts_are_the_text(text: str) -> None:
    assert "".join(split_url(text)) == text


@given(TEXTS | URLS, TEXTS | URLS)
def test_there_is_a_difference_unless_they_are_the_same(one: str, other: str) -> None:
    assert bool(url_differences(one, other)) == (one != other)
    assert url_differences(one, one) == []
    assert all(found.message for found in url_differences(one, other))


@given(TEXTS | URLS, TEXTS | URLS)
def test_what_is_not_marked_stands_in_the_other(received: str, registered: str) -> None:
    line = marks(received, registered)
    assert set(line) <= {" ", "^"}
    assert ("^" in line) == (received != registered)
    assert len(line) <= len(received) + 1
    padded = line.ljust(len(received))
    rest = iter(registered)
    for char, mark in zip(received, padded, strict=False):
        assert mark == "^" or char in rest  # `in` goes on where the last one was found


def other_port(url: str) -> str:
    parts = split_url(url)
    return "".join(parts._replace(port=":9999"))


def other_case_of_host(url: str) -> str:
    parts = split_url(url)
    return "".join(parts._replace(host=parts.host.upper()))


def encoded(url: str) -> str:
    """The last character as %xx."""
    return f"{url[:-1]}%{ord(url[-1]):02X}"


MISTAKES: dict[Kind, Callable[[str], str]] = {
    Kind.TRAILING_SLASH: lambda url: url + "/",
    Kind.PORT: other_port,
    Kind.SCHEME: lambda url: url.replace("://", "s://", 1).replace("httpss:", "http:", 1),
    Kind.CASE: other_case_of_host,
    Kind.ENCODING: encoded,
    Kind.QUERY: lambda url: url + "?x=1",
    Kind.FRAGMENT: lambda url: url + "#x",
    Kind.SPACE: lambda url: url + " ",
    Kind.PATH: lambda url: url + "/more",
    Kind.HOST: lambda url: url.replace("://", "://www.", 1),
    Kind.USER: lambda url: url.replace("://", "://dana@", 1),
}


@given(url=URLS, mistake=st.sampled_from(sorted(MISTAKES, key=str)), is_swapped=st.booleans())
def test_a_mistake_is_called_by_its_name(url: str, mistake: Kind, is_swapped: bool) -> None:
    pair = (MISTAKES[mistake](url), url)
    assert kinds(*(pair[::-1] if is_swapped else pair)) == {mistake}


TOGETHER = (
    Kind.HOST, Kind.USER, Kind.PORT, Kind.SCHEME, Kind.TRAILING_SLASH, Kind.QUERY, Kind.FRAGMENT,
    Kind.SPACE,
)  # fmt: skip


@given(URLS, st.sets(st.sampled_from(TOGETHER), min_size=2))
def test_several_mistakes_are_all_named(url: str, mistakes: set[Kind]) -> None:
    wrong = url
    for kind in TOGETHER:
        wrong = MISTAKES[kind](wrong) if kind in mistakes else wrong
    assert kinds(wrong, url) == mistakes


@given(st.lists(URLS, min_size=1, unique=True), st.data())
def test_a_slip_leads_to_the_one_that_was_meant(registered: list[str], data: st.DataObject) -> None:
    meant = data.draw(st.sampled_from(registered))
    slip = data.draw(st.sampled_from([Kind.TRAILING_SLASH, Kind.CASE, Kind.SPACE, Kind.ENCODING]))
    assert nearest_url(MISTAKES[slip](meant), registered) == meant


@given(TEXTS, st.lists(TEXTS | URLS))
def test_the_nearest_is_one_of_them(received: str, registered: list[str]) -> None:
    found = nearest_url(received, registered)
    assert found in registered if registered else found is None


@given(st.text(ascii_letters + "/%2Ff", max_size=12), st.text(ascii_letters + "/%2Ff", max_size=12))
def test_paths_that_are_alike(one: str, other: str) -> None:
    found = kinds(f"https://x.example/{one}", f"https://x.example/{other}")
    assert found <= {Kind.PATH, Kind.TRAILING_SLASH, Kind.CASE, Kind.ENCODING}
    assert bool(found) == (one != other)


@pytest.mark.parametrize(
    ("received", "registered", "words"),
    [
        ("http://localhost:3000/cb", "http://127.0.0.1:3000/cb",
         ["it says localhost, not 127.0.0.1, and the texts are compared"]),
        ("http://[::1]/cb", "http://localhost/cb",
         ["it says [::1], not localhost, and the texts are compared"]),
        ("https://x.example:443/cb", "https://x.example/cb",
         ["it has the port 443, the other has none, although it is the default"]),
        ("https://x.example/cb", "https://x.example:8443/cb", ["the port 8443 is missing"]),
        ("https://x.example/CB/", "https://x.example/cb",
         ["it has a trailing slash, the other has none",
          "the path differs in upper and lower case"]),
        ("https://x.example", "https://x.example/",
         ["it has no trailing slash, the other has one"]),
        ("https://x.example/a%2fb", "https://x.example/a%2Fb",
         ["the path differs in percent-encoding"]),
        ("HTTPS://x.example/", "https://x.example/",
         ["the scheme differs in upper and lower case"]),
        ("x.example/cb", "https://x.example/cb",
         ["the scheme is missing, not https", "the host is missing, not x.example",
          "the path is x.example/cb, not /cb"]),
        ("com.app://cb", "com.app:/cb",
         ["it has // after the scheme, the other has none",
          "the host is cb, not empty", "the path is empty, not /cb"]),
    ],
)  # fmt: skip
def test_the_words(received: str, registered: str, words: list[str]) -> None:
    assert [one.message for one in url_differences(received, registered)] == words


@pytest.mark.parametrize(
    ("received", "registered", "line"),
    [
        ("https://x.example/cb/", "https://x.example/cb", "                    ^"),
        ("https://x.example/cb", "https://x.example/cb/", "                    ^"),
        ("http://x.example/cb", "https://x.example/cb", "    ^"),
        ("https://x.example:1/cb", "https://x.example/cb", "                 ^^"),
        ("http://localhost:3000/cb", "http://127.0.0.1:3000/cb", "       ^^^^^^^^^"),
        ("http://x.example/cb?a", "https://x.example/cb", "    ^              ^^"),
    ],
)
def test_the_marks(received: str, registered: str, line: str) -> None:
    assert marks(received, registered) == line
