"""Addresses that nearly do, and nearly do not."""

import pytest

from sso.config.urls import MAX_LENGTH, is_loopback, registration_error, strict_url_error

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
def test_schemes_that_run_or_read(scheme: str, rest: str) -> None:
    assert registration_error(scheme + rest)
    assert registration_error(scheme.upper() + rest)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("com.example.app:/cb", True),
        ("com.example.app:cb", True),
        ("example:/cb", False),
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
