"""The difference between two URLs: named whenever there is one, and only then."""

from collections.abc import Callable
from string import ascii_letters, ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sso.config.urls import Kind, marks, nearest_url, split_url, url_differences

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
