"""Options that are the address of a server: which are accepted, and what proxies make of them."""

import pytest

from sso.presets import installation, loader
from sso.presets.preset_file import PresetError
from tests.presets.test_presets import rendered
from tests.support.each import each

PROXIES = ("nginx", "caddy", "envoy", "traefik")


def lines(preset: str, server: str) -> list[str]:
    """The lines of the first file, for a server at this address."""
    loaded = loader.load(preset)
    text = rendered(installation.install(loaded, loaded.url, {"server": server}))[0].text
    return [line.strip() for line in text.splitlines()]


@each("preset", PROXIES)
@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ("127.0.0.1:8000", "it has no scheme"),
        ("sso", "it has no scheme"),
        ("ftp://sso", "neither https nor http"),
        ("http://", "it has no host"),
        ("http://sso/auth", "it has a path; leave it off"),
        ("http://sso?a", "it has a query"),
        ("http://sso#a", "it has a fragment"),
        ("http://a@sso", "it has a user name"),
        ("http://sso:0", "its port is not a number from 1 to 65535"),
        ("http://sso:65536", "its port is not a number from 1 to 65535"),
        ("http://[::1", "its IPv6 address is not valid"),
        ("http://[::g]", "its IPv6 address is not valid"),
        ("http://::1:8000", "it has no host"),
        ("http://a;b", "its host is not a valid name"),
        ("http://$host", "its host is not a valid name"),
        ("http://a://b", "its port is not a number|single slashes"),
    ],
)
def test_what_is_no_address_is_refused(preset: str, server: str, reason: str) -> None:
    with pytest.raises(PresetError, match=rf"the option server '.*' is refused: .*({reason})"):
        lines(preset, server)


@each("preset", PROXIES)
def test_every_form_of_an_address_is_the_same(preset: str) -> None:
    usual = lines(preset, "http://sso.internal")
    for server in ("http://sso.internal/", "HTTP://SSO.internal", "http://sso.internal:80"):
        assert lines(preset, server) == usual


@pytest.mark.parametrize(
    ("server", "address", "scheme"),
    [
        ("http://sso", "sso", "http"),
        ("http://sso:1", "sso:1", "http"),
        ("http://sso:65535", "sso:65535", "http"),
        ("http://[::1]", "[::1]", "http"),
        ("http://[0::1]:8000", "[::1]:8000", "http"),
        ("https://sso.internal", "sso.internal:443", "https"),
        ("https://sso.internal:8443", "sso.internal:8443", "https"),
        ("https://[::1]", "[::1]:443", "https"),
        ("https://[::1]:8443", "[::1]:8443", "https"),
        ("https://10.0.0.1", "10.0.0.1:443", "https"),
    ],
)
def test_nginx(server: str, address: str, scheme: str) -> None:
    """Without a port, nginx takes 80 for every address of an upstream."""
    file = lines("nginx", server)
    assert f"server {address};" in file
    host = address.removesuffix(":443")
    assert file.count(f"proxy_set_header Host {host};") == 3
    names = 3 if scheme == "https" else 0
    assert file.count(f"proxy_ssl_name {host};") == names
    assert file.count("proxy_ssl_server_name on;") == names
    assert sum(f"proxy_pass {scheme}://sso-an-id" in line for line in file) == 3
