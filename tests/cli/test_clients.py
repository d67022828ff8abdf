"""`flask client` and high-assurance clients: keys, profiles, and what they exclude."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask
from joserfc.jwk import ECKey
from joserfc.util import urlsafe_b64encode

from tests.cli.test_commands import parsed

CREATE = ("client", "create", "--name", "Bank", "--redirect-uri", "https://bank.example/cb")
KEY = ECKey.generate_key("P-256")
PUBLIC = {**KEY.as_dict(private=False), "kid": "k1"}
RSA_1024 = urlsafe_b64encode(b"\xff" * 128).decode()
URL = "https://bank.example/jwks"


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str) -> Result:
        return app.test_cli_runner().invoke(args=arguments)

    return invoke


@pytest.fixture
def jwks(tmp_path: Path) -> str:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [PUBLIC]}))
    return str(path)


def test_a_profile_switches_all_of_it_on(run: Any, jwks: str) -> None:
    made = parsed(run(*CREATE, "--profile", "fapi2", "--jwks", jwks, "--json"))
    shown = parsed(run("client", "show", made["client_id"], "--json"))
    for client in (made, shown):
        assert client["profile"] == "fapi2"
        assert client["token_endpoint_auth_method"] == "private_key_jwt"
        assert client["require_pushed_authorization_requests"] is True
        assert client["dpop_bound_access_tokens"] is True
        assert client["require_pkce"] is True
        assert client["id_token_signed_response_alg"] == "ES256"
        assert client["jwks"] == {"keys": [PUBLIC]}
        assert not [name for name in client if "secret" in name]


def test_a_profile_says_what_is_missing(run: Any) -> None:
    result = run(*CREATE, "--profile", "fapi2")
    assert result.exit_code == 1
    assert "give --jwks FILE or --jwks-uri URL" in result.stderr
    result = run(*CREATE, "--jwks", "")
    assert result.exit_code == 1, "a variable that is empty by mistake"
    assert "there is no such file" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--auth-method", "any"), "requires --auth-method private_key_jwt"),
        (("--id-token-alg", "RS256"), "requires --id-token-alg PS256 or ES256 or EdDSA"),
        (("--auth-alg", "RS256"), "'RS256' is none of PS256, ES256, EdDSA"),
        (("--request-object-alg", "RS256"), "'RS256' is none of PS256, ES256, EdDSA"),
        (("--public",), "requires --auth-method private_key_jwt"),
        (("--jwks-uri", URL), "give one of them"),
    ],
)
def test_what_a_profile_excludes(
    run: Any, jwks: str, arguments: tuple[str, ...], words: str
) -> None:
    result = run(*CREATE, "--profile", "fapi2", "--jwks", jwks, *arguments)
    assert result.exit_code == 1
    assert words in result.stderr


@pytest.mark.parametrize("option", ["--no-require-par", "--no-require-dpop", "--no-require-pkce"])
def test_an_update_cannot_loosen_a_profile(run: Any, jwks: str, option: str) -> None:
    run(*CREATE, "--profile", "fapi2", "--jwks", jwks)
    result = run("client", "update", "Bank", option)
    assert "the profile fapi2 requires" in result.stderr
    assert run("client", "update", "Bank", "--no-profile", option).exit_code == 0


def test_an_update_says_what_breaks(run: Any, jwks: str) -> None:
    run(*CREATE)
    told = run("client", "update", "Bank", "--profile", "fapi2", "--jwks", jwks).stderr
    for words in (
        "Its secret is deleted.",
        "Refused from now on: authorization requests that are not pushed.",
        "Refused from now on: authorization requests without PKCE.",
        "Refused from now on: token requests without a DPoP proof, and tokens without a key.",
        "Identity tokens are signed by ES256 instead of RS256.",
    ):
        assert words in told
    told = run("client", "update", "Bank", "--no-profile").stderr
    assert "What the profile switched on stays" in told
    assert "Refused" not in run("client", "update", "Bank", "--name", "Bench").stderr


def test_each_part_by_itself(run: Any, jwks: str) -> None:
    parts = ("--auth-method", "private_key_jwt", "--jwks", jwks, "--auth-alg", "RS256")
    made = parsed(run(*CREATE, *parts, "--require-par", "--require-dpop", "--json"))
    assert made["token_endpoint_auth_signing_alg"] == "RS256"
    assert "profile" not in made
    update = ("client", "update", made["client_id"], "--json")
    changed = parsed(run(*update, "--no-require-par", "--no-require-dpop", "--no-auth-alg"))
    assert changed["require_pushed_authorization_requests"] is False
    assert changed["dpop_bound_access_tokens"] is False
    assert "token_endpoint_auth_signing_alg" not in changed


def test_a_url_replaces_a_set_and_the_other_way_round(run: Any, jwks: str) -> None:
    run(*CREATE, "--profile", "fapi2", "--jwks", jwks)
    changed = parsed(run("client", "update", "Bank", "--jwks-uri", URL, "--json"))
    assert changed["jwks_uri"] == URL
    assert "jwks" not in changed
    changed = parsed(run("client", "update", "Bank", "--jwks", jwks, "--json"))
    assert "jwks_uri" not in changed


def test_with_a_key_it_loses_its_secret(run: Any, jwks: str) -> None:
    made = parsed(run(*CREATE, "--json"))
    update = ("client", "update", made["client_id"])
    key = ("--auth-method", "private_key_jwt", "--jwks", jwks)
    assert "Its secret is deleted." in run(*update, *key).stderr
    refused = run("client", "rotate-secret", made["client_id"])
    assert "neither has one with private_key_jwt" in refused.stderr
    assert "flask client rotate-secret" in run(*update, "--auth-method", "any").stderr
    assert run("client", "rotate-secret", made["client_id"]).exit_code == 0


@pytest.mark.parametrize("url", ["http://bank.example/k", "https://b.example/#k", "bank", "https:"])
def test_urls_of_key_sets(run: Any, url: str) -> None:
    result = run(*CREATE, "--auth-method", "private_key_jwt", "--jwks-uri", url)
    assert "the JWKS URL is refused" in result.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not JSON"),
        ("[" * 10_000, "is not JSON"),
        ("[]", "is not a JSON object with a list of keys"),
        ('{"keys": []}', "has not between 1 and 20 keys"),
        (json.dumps({"keys": [PUBLIC] * 21}), "has not between 1 and 20 keys"),
        (json.dumps({"keys": [PUBLIC, PUBLIC]}), "a kid of its own"),
        (json.dumps(KEY.as_dict(private=True)), "has private parts"),
        (json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}), "has private parts"),
        (json.dumps({"kty": "RSA", "n": RSA_1024, "e": "AQAB"}), "2048 to 4096 bits"),
        (json.dumps(ECKey.generate_key("P-384").as_dict(private=False)), "P-256"),
        (json.dumps({**PUBLIC, "use": "enc"}), "its use is not sig"),
        (json.dumps({**PUBLIC, "alg": "RS256"}), "its alg is not one of"),
        (json.dumps({**PUBLIC, "alg": ["ES256"]}), "its alg is not one of"),
        (json.dumps({**PUBLIC, "kid": 7}), "its kid is not a text"),
        (json.dumps({**PUBLIC, "x": 7}), "its members are not texts"),
        (json.dumps({**PUBLIC, "x": "AAAA"}), "it is not RSA"),
        (json.dumps({"kty": "RSA", "n": "A" * 30_000, "e": "AQAB"}), "it is not RSA"),
    ],
)
def test_key_sets_that_are_refused(run: Any, tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(content)
    result = run(*CREATE, "--auth-method", "private_key_jwt", "--jwks", str(path))
    assert result.exit_code == 1
    assert words in result.stderr


def test_a_file_that_is_not_there(run: Any, tmp_path: Path) -> None:
    result = run(*CREATE, "--auth-method", "private_key_jwt", "--jwks", str(tmp_path / "none"))
    assert "there is no such file" in result.stderr


def test_presets_configure_no_keys(run: Any, jwks: str) -> None:
    preset = ("client", "create", "--preset", "openid-client", "--url", "https://bank.example")
    for more in (("--profile", "fapi2"), ("--auth-method", "private_key_jwt")):
        result = run(*preset, *more, "--jwks", jwks)
        assert result.exit_code == 1
        assert "has no keys; leave --preset off" in result.stderr
    assert run("client", "list", "--json").stdout.strip() == "[]"


def test_a_preset_with_keys(run: Any, jwks: str) -> None:
    preset = ("client", "create", "--preset", "openid-client-fapi2", "--url", "https://b.example")
    for more, words in (
        ((), "--jwks FILE or --jwks-uri URL is missing"),
        (("--jwks", jwks, "--public"), "leave --auth-method and --public off"),
        (("--jwks", jwks, "--auth-method", "any"), "leave --auth-method and --public off"),
    ):
        result = run(*preset, *more)
        assert result.exit_code == 1
        assert words in result.stderr
    made = parsed(run(*preset, "--jwks", jwks, "--json"))
    assert (made["profile"], made["jwks"]) == ("fapi2", {"keys": [PUBLIC]})
    again = run("client", "setup", made["client_id"])
    assert made["client_id"] in again.stdout
    assert "SECRET_HERE" not in again.stdout
    assert "client_secret" not in again.stdout


def test_a_client_that_no_longer_fits_its_preset(run: Any, jwks: str) -> None:
    preset = ("client", "create", "--url", "https://b.example", "--json", "--preset")
    with_secret = parsed(run(*preset, "openid-client"))["client_id"]
    with_key = parsed(run(*preset, "openid-client-fapi2", "--jwks", jwks))["client_id"]
    run("client", "update", with_secret, "--profile", "fapi2", "--jwks", jwks)
    run("client", "update", with_key, "--no-profile")
    assert run("client", "setup", with_key).exit_code == 0
    run("client", "update", with_key, "--auth-method", "any")
    for client, words in (
        (with_secret, "authenticates with a key, but the preset's configuration has a secret"),
        (with_key, "authenticates with a secret, but the preset's configuration has a key"),
    ):
        result = run("client", "setup", client)
        assert (result.exit_code, result.stdout) == (1, "")
        assert words in result.stderr


def test_declared(run: Any, jwks: str, tmp_path: Path) -> None:
    """What is exported can be applied elsewhere, without a secret."""
    made = parsed(run(*CREATE, "--profile", "fapi2", "--jwks", jwks, "--json"))
    file = tmp_path / "all.toml"
    assert run("export", str(file)).exit_code == 0
    assert run("client", "delete", made["client_id"], "--yes").exit_code == 0
    assert run("apply", str(file), "--yes").exit_code == 0
    shown = parsed(run("client", "show", made["client_id"], "--json"))
    assert {**shown, "client_id_issued_at": 0} == {
        **made,
        "client_id_issued_at": 0,
        "live_grants": 0,
        "newest_grants": [],
        "logout_tokens_waiting": 0,
    }
    assert run("apply", str(file), "--yes").stdout.strip() == "Everything is as the file says."
