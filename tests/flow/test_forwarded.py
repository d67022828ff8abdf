"""What a proxy tells about the request that it asks about."""

import pytest

from sso.flow import forwarded
from sso.flow.forwarded import CALLBACK, MAX_RETURN, OUR_PATHS


def read(
    uri: str = "/", *, host: str = "app.example", scheme: str = "https", method: str = "GET"
) -> forwarded.ForwardedRequest:
    names = ("Method", "Proto", "Host", "Uri")
    headers = dict(zip(names, (method, scheme, host, uri), strict=True))
    return forwarded.read(lambda name: headers.get(name.removeprefix("X-Forwarded-")))


@pytest.mark.parametrize(
    ("scheme", "host", "origin"),
    [
        ("https", "app.example", "https://app.example"),
        ("https", "App.example:443", "https://app.example"),
        ("https", "app.example:80", "https://app.example:80"),
        ("https", "app.example:8443", "https://app.example:8443"),
        ("http", "app.example:80", "http://app.example"),
        ("http", "app.example:443", "http://app.example:443"),
        ("wss", "app.example:443", "https://app.example"),
        ("ws", "[::1]:80", "http://[::1]"),
    ],
)
def test_the_usual_port_is_that_of_the_scheme(scheme: str, host: str, origin: str) -> None:
    assert read(scheme=scheme, host=host).origin == origin


@pytest.mark.parametrize("query", ["", "?code=x&state=y"])
@pytest.mark.parametrize("path", sorted(OUR_PATHS))
def test_nobody_comes_back_to_our_own_paths(path: str, query: str) -> None:
    """They would be signed out again, or answer a response that is used."""
    assert read(path + query).way_back(None) == "/"
    referrer = f"https://app.example{path}{query}"
    assert read("/form", method="POST").way_back(referrer) == "/"
    assert read(f"{path}x").way_back(None) == f"{path}x"


def test_a_long_way_back_loses_its_query() -> None:
    assert CALLBACK in OUR_PATHS
    for length, back in ((MAX_RETURN, True), (MAX_RETURN + 1, False)):
        uri = "/page?".ljust(length, "q")
        assert read(uri).way_back(None) == (uri if back else "/page")
        assert read("/".ljust(length, "p")).way_back(None) == (
            "/".ljust(length, "p") if back else "/"
        )
