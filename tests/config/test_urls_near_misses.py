"""Addresses that nearly do, and nearly do not."""

import pytest

from sso.config.urls import (
    MAX_LENGTH,
    is_loopback,
    is_native,
    origin,
    registration_error,
    strict_url_error,
    without_loopback_port,
)

DANGEROUS = (
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


@pytest.mark.parametrize("scheme", DANGEROUS)
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
