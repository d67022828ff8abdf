"""Where metadata is looked for, and challenges as servers send them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sso.mcp import protected_resources
from sso.mcp.protected_resources import Challenge


@pytest.mark.parametrize(
    ("identifier", "places"),
    [
        ("https://a.example", ["https://a.example/.well-known/oauth-protected-resource"]),
        ("https://a.example/", ["https://a.example/.well-known/oauth-protected-resource"]),
        (
            "https://a.example:8443/x/mcp",
            [
                "https://a.example:8443/.well-known/oauth-protected-resource/x/mcp",
                "https://a.example:8443/.well-known/oauth-protected-resource",
            ],
        ),
        (
            "https://a.example/mcp?k=v",  # RFC 9728 §3.1: the query stays
            [
                "https://a.example/.well-known/oauth-protected-resource/mcp?k=v",
                "https://a.example/.well-known/oauth-protected-resource",
            ],
        ),
    ],
)
def test_places_of_the_metadata(identifier: str, places: list[str]) -> None:
    assert list(protected_resources.metadata_urls(identifier)) == places


def test_places_of_the_metadata_of_an_issuer() -> None:
    assert protected_resources.authorization_server_urls("https://s.example/api/auth") == (
        "https://s.example/.well-known/oauth-authorization-server/api/auth",
        "https://s.example/.well-known/openid-configuration/api/auth",
        "https://s.example/api/auth/.well-known/openid-configuration",
    )
    assert protected_resources.authorization_server_urls("https://s.example") == (
        "https://s.example/.well-known/oauth-authorization-server",
        "https://s.example/.well-known/openid-configuration",
    )


@pytest.mark.parametrize(
    ("header", "challenges"),
    [
        ("", []),
        ("Bearer", [Challenge("bearer", {})]),
        ('bearer realm="x"', [Challenge("bearer", {"realm": "x"})]),
        (
            'Bearer error="invalid_token", scope="a b", Resource_Metadata="https://x/y"',
            [
                Challenge(
                    "bearer",
                    {
                        "error": "invalid_token",
                        "scope": "a b",
                        "resource_metadata": "https://x/y",
                    },
                )
            ],
        ),
        (
            'DPoP algs="ES256", Bearer resource_metadata="https://x/y, Basic z=1"',
            [
                Challenge("dpop", {"algs": "ES256"}),
                Challenge("bearer", {"resource_metadata": "https://x/y, Basic z=1"}),
            ],
        ),
        (
            r'Bearer realm="say \"a\", b", scope = read',
            [Challenge("bearer", {"realm": 'say "a", b', "scope": "read"})],
        ),
        (
            "Negotiate, Bearer scope=a",
            [Challenge("negotiate", {}), Challenge("bearer", {"scope": "a"})],
        ),
        ('Bearer scope="never ends', [Challenge("bearer", {})]),
    ],
)
def test_challenges(header: str, challenges: list[Challenge]) -> None:
    assert protected_resources.challenges(header) == challenges


@given(st.text(max_size=200))
def test_any_header_is_read(header: str) -> None:
    for challenge in protected_resources.challenges(header):
        assert challenge.scheme == challenge.scheme.lower() != ""


def test_a_long_header_is_cut() -> None:
    header = 'Bearer a="' + "x" * 10_000 + '", scope="read"'
    assert protected_resources.challenges(header)[0].parameters == {}
