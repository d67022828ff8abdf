"""Addresses of applications: what is taken, in which form, and what is refused."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sso.config.urls import registration_error
from sso.presets.application_url import parse

# As Chromium has them (tests/browser/test_application_urls.py).
TAKEN = {
    "https://grafana.example.com": "https://grafana.example.com",
    "https://grafana.example.com/": "https://grafana.example.com",
    "https://example.com/grafana/": "https://example.com/grafana",
    "https://example.com/a/b_c.d~e-F": "https://example.com/a/b_c.d~e-F",
    " https://a.example\n": "https://a.example",
    "HTTPS://Grafana.Example.COM:443/Path": "https://grafana.example.com/Path",
    "https://a.example:8443": "https://a.example:8443",
    "https://a.example:80": "https://a.example:80",
    "https://a.example:00443/": "https://a.example",
    "https://a.example:/": "https://a.example",
    "http://localhost:3000/": "http://localhost:3000",
    "http://127.0.0.1:80": "http://127.0.0.1",
    "http://[::1]:3000": "http://[::1]:3000",
    "https://[2001:DB8:0:0::1]": "https://[2001:db8::1]",
    "https://Müller.example": "https://xn--mller-kva.example",
    "https://straße.example": "https://xn--strae-oqa.example",
    "https://例え。jp": "https://xn--r8jz45g.jp",
    "https://\uff47rafana.example": "https://grafana.example",
    "https://xn--mller-kva.example": "https://xn--mller-kva.example",
    "https://a_b.example": "https://a_b.example",
}
REFUSED = {
    "": "empty",
    "  ": "empty",
    "grafana.example.com": "begin with https://",
    "localhost:3000": "begin with https://",
    "//a.example": "begin with https://",
    "https:a.example": "begin with https://",
    "ftp://a.example": "neither https nor http",
    "javascript://a.example": "neither https nor http",
    "http://a.example": "plain http",
    "http://127.0.0.1.example": "plain http",
    "https://dana@a.example": "user name",
    "https://dana:secret@a.example": "user name",
    "https://a.example?x=1": "a query",
    "https://a.example/?": "a query",
    "https://a.example#": "a fragment",
    "https://a.example/#/x": "a fragment",
    "https://": "no host",
    "https:///x": "no host",
    "https://:443": "no host",
    "https://a.example:0": "port",
    "https://a.example:65536": "port",
    "https://a.example:٣": "port",
    "https://a.example:443:443": "port",
    "https://a b.example": "valid name",
    "https://a\u0000b.example": "valid name",
    "https://a..example": "valid name",
    "https://-a.example": "valid name",
    "https://a.example.": "valid name",
    "https://*.example": "valid name",
    "https://ex%61mple.com": "valid name",
    "https://a.example\\b": "valid name",
    "https://$(id).example": "valid name",
    "https://☃.example": "ASCII form",
    "https://a\u200db.example": "ASCII form",
    "https://1.2.3": "IPv4",
    "https://127.1": "IPv4",
    "https://0x7f.1": "IPv4",
    "https://01.2.3.4": "IPv4",
    "https://[::1": "IPv6",
    "https://[::1]x": "IPv6",
    "https://[::1%eth0]": "IPv6",
    "https://[1]": "IPv6",
    "https://a.example/a b": "its path",
    "https://a.example/a//b": "its path",
    "https://a.example/%2e%2e/b": "its path",
    "https://a.example/ü": "its path",
    "https://a.example/$(id)": "its path",
    "https://a.example/'": "its path",
    "https://a.example/a/../b": "segments",
    "https://a.example/.": "segments",
    f"https://a.example/{'x' * 2000}": "longer",
}


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_taken(text: str) -> None:
    assert parse(text).url == TAKEN[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_says_why(text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[text]):
        parse(text)


def test_the_parts() -> None:
    found = parse("https://Example.com:8443/grafana/")
    assert (found.scheme, found.host, found.port, found.path) == (
        "https", "example.com", 8443, "/grafana",
    )  # fmt: skip
    assert found.hostname_port == "example.com:8443"
    assert found.origin == "https://example.com:8443"
    assert parse("https://example.com").port == 443
    assert parse("https://example.com").hostname_port == "example.com"


PIECES = st.sampled_from(
    ["https", "http", "://", "//", "/", ":", "@", "?", "#", "[", "]", "::1", "443", "0", "a", "B.b",
     "localhost", "127.0.0.1", ".", "..", "%2f", "xn--", "ü", "ß", "\u200d", " ", "\n", "\\", "*",
     "'", "$", "~u", "-", "_"]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(PIECES).map("".join), st.lists(PIECES).map(
    lambda parts: "https://a" + "".join(parts))))  # fmt: skip
@example("https://xn--")
@example("https://a:" + "9" * 5000)
def test_whatever_comes(text: str) -> None:
    """It is refused with a reason, or has one form, that nothing has to quote or escape."""
    try:
        found = parse(text)
    except ValueError as error:
        assert str(error)
        return
    assert parse(found.url) == found
    assert parse(f"{found.url}/") == found
    assert found.url.startswith(found.origin)
    assert registration_error(f"{found.url}/callback") is None
    assert not set(found.url) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789:/._~-[]")  # fmt: skip
