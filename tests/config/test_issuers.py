"""SSO_ISSUER_ALIASES: what keeps the server from starting, and where the old addresses are."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sso import create_app
from sso.config import issuers
from sso.config.settings import DEFAULT_BASE_URL, load_settings, read_settings
from sso.errors import SettingsError
from tests.support.each import each
from tests.support.old_servers import AUTHELIA, GIT, KEYCLOAK, POCKET_ID, TOGETHER, WIKI

BASE = "https://login.example.com/api/auth"
SHAPE = r"looks like https://\S+"


@each(
    "text, error",
    [
        ("http://login.example.com/realms/main=keycloak", "not https"),
        ("https://login.example.com/realms/main?a=b=keycloak", "query or a fragment"),
        ("https://login.example.com/realms/main#a=keycloak", "query or a fragment"),
        ("https://login.example.com/realms/main", "give ISSUER=FORM"),
        ("https://login.example.com/realms/main=", "keycloak, authentik, authelia, pocket-id"),
        ("https://login.example.com/realms/main=dex", "give ISSUER=FORM"),
        ("=keycloak", "not absolute"),
        ("/realms/main=keycloak", "not absolute"),
        ("https:///realms/main=keycloak", "no host"),
        ("https://me@login.example.com/realms/main=keycloak", "user name"),
        (f"{KEYCLOAK}=keycloak {KEYCLOAK}=keycloak", "is there twice"),
        (f"{KEYCLOAK}=keycloak {KEYCLOAK}=authelia", "is there twice"),
        (f"{KEYCLOAK}/=keycloak", SHAPE),
        (f"{KEYCLOAK}/account=keycloak", SHAPE),
        ("https://login.example.com=keycloak", SHAPE),
        (f"{WIKI.removesuffix('/')}=authentik", SHAPE),
        ("https://authentik.example/=authentik", SHAPE),
        (f"{AUTHELIA}/=authelia", SHAPE),
        ("https://login.example.com/realms/%3Cx%3E=keycloak", "cannot be served"),
        ("https://login.example.com/realms/%00=keycloak", "cannot be served"),
        ("https://login.example.com/realms/%FF=keycloak", "cannot be served"),
        ("https://login.example.com/realms/%252e=keycloak", "cannot be served"),
        ("https://login.example.com/a/../realms/main=keycloak", "empty segments, dots"),
        ("https://login.example.com//realms/main=keycloak", "empty segments, dots"),
        (f"{AUTHELIA}=authelia {POCKET_ID}=pocket-id", "would both answer at /.well-known/"),
        (f"{KEYCLOAK}=keycloak https://b.example/realms/main=keycloak", "would both answer at"),
        (f"{KEYCLOAK}=keycloak https://b.example/realms/m%61in=keycloak", "would both answer at"),
        (" ".join(f"https://a{n}.example/realms/r{n}=keycloak" for n in range(501)), "more than"),
        (f"https://a.example/realms/{'x' * 2000}=keycloak", "longer than 2000"),
    ],
)
def test_settings_that_do_not_do(text: str, error: str) -> None:
    errors = read_settings({"SSO_ISSUER_ALIASES": text}).errors
    assert len(errors) == 1
    assert errors[0].startswith("SSO_ISSUER_ALIASES: ")
    assert re.search(error, errors[0]), errors
    assert "\n" not in errors[0]


@each(
    "base_url, text, error",
    [
        ("https://login.example.com/realms/main", f"{KEYCLOAK}=keycloak", "is SSO_BASE_URL itself"),
        ("https://new.example/realms/main", f"{KEYCLOAK}=keycloak", "has the path of SSO_BASE_URL"),
        ("https://new.example", f"{AUTHELIA}=authelia", "give SSO_BASE_URL another path"),
        ("https://new.example", f"{POCKET_ID}=pocket-id", "give SSO_BASE_URL another path"),
        ("https://new.example/application/o/wiki", f"{WIKI}=authentik", "has the path of"),
    ],
)
def test_issuers_that_cannot_stand_beside_this_server(
    tmp_path: Path, base_url: str, text: str, error: str
) -> None:
    environ = {"SSO_BASE_URL": base_url, "SSO_ISSUER_ALIASES": text}
    with pytest.raises(SettingsError) as raised:
        load_settings(environ, tmp_path)
    assert len(raised.value.errors) == 1
    assert error in raised.value.errors[0]


def test_errors_of_both_settings_are_told_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings({"SSO_BASE_URL": "x", "SSO_ISSUER_ALIASES": f"{WIKI}=authentik"}, tmp_path)
    assert [line.partition(":")[0] for line in raised.value.errors] == ["SSO_BASE_URL"]


def test_an_old_address_that_is_one_of_this_server(tmp_path: Path) -> None:
    """Which the settings alone do not show."""
    environ = {
        "SSO_BASE_URL": "https://new.example/id",
        "SSO_ISSUER_ALIASES": "https://old.example/id/oauth2=pocket-id",
    }
    with pytest.raises(SettingsError, match="/id/oauth2/authorize, which is an address of this"):
        create_app(environ, tmp_path)


@each("issuer", ["https://login.example.com/auth/realms/main", KEYCLOAK,
                 "http://127.0.0.1:8080/realms/main",
                 "https://login.example.com/realms/My%20Realm"])  # fmt: skip
def test_settings_that_do(tmp_path: Path, issuer: str) -> None:
    settings = load_settings({"SSO_ISSUER_ALIASES": f" {issuer}=keycloak\n"}, tmp_path)
    alias = settings.aliases[issuer]
    assert alias.endpoints["token"] == f"{issuer}/protocol/openid-connect/token"
    assert settings.is_issuer(issuer)
    assert settings.is_issuer(DEFAULT_BASE_URL)
    assert not settings.is_issuer(f"{issuer}x")
    assert not settings.is_issuer(None)


def test_requests_have_decoded_paths() -> None:
    aliases = issuers.aliases_of("https://login.example.com/realms/My%20Realm=keycloak")
    paths = issuers.addresses_of(aliases)
    assert "/realms/My Realm/protocol/openid-connect/token" in paths


def test_each_form_has_a_correct_example() -> None:
    for name, form in issuers.FORMS.items():
        assert issuers.checked(f"{form.example}={name}")


def test_endpoints_that_applications_of_authentik_share() -> None:
    addresses = issuers.addresses_of(issuers.aliases_of(TOGETHER))
    shared = issuers.Address("token", frozenset({WIKI, GIT}))
    assert addresses["/application/o/token/"] == shared
    assert addresses["/application/o/wiki/jwks/"].issuers == {WIKI}


@given(st.text(max_size=80), st.sampled_from([*issuers.FORMS, "x"]))
def test_any_text_is_refused_in_one_line_or_can_be_served(text: str, form: str) -> None:
    for entry in (f"{text}={form}", f"https://a.example/{text}={form}"):
        errors = read_settings({"SSO_ISSUER_ALIASES": entry}).errors
        assert len(errors) <= 1
        if not errors and entry.strip():
            for path in issuers.addresses_of(issuers.aliases_of(" ".join(entry.split()))):
                assert path.startswith("/")
                assert not set(path) & set("<>{}?#\\")
