"""`flask client` and high-assurance clients: keys, profiles, and what they exclude."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask
from joserfc.jwk import ECKey
from joserfc.util import urlsafe_b64encode

from sso.audit import writer
from sso.cli import apply
from sso.config import images
from sso.store import clients
from tests.cli.test_commands import parsed
from tests.support.actors import ISSUER, RelyingParty
from tests.support.factories import make_client
from tests.support.logos import EVERY, PAGE, PNG, SVG
from tests.support.saml import pair

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


def test_what_is_given_beside_a_profile_goes_before_what_it_implies(run: Any, jwks: str) -> None:
    profile = ("--profile", "fapi2", "--jwks", jwks, "--id-token-alg", "PS256")
    made = parsed(run(*CREATE, *profile, "--json"))
    assert made["id_token_signed_response_alg"] == "PS256"
    other = parsed(run("client", "create", "--name", "Other", "--redirect-uri", URL, "--json"))
    update = ("client", "update", other["client_id"], *profile, "--auth-method", "private_key_jwt")
    # It is refused rather than ignored.
    refused = run(*update, "--no-require-par")
    assert "the profile fapi2 requires" in refused.stderr
    changed = parsed(run(*update, "--json"))
    assert changed["id_token_signed_response_alg"] == "PS256"
    assert changed["require_pushed_authorization_requests"] is True


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


# `flask client` and public clients: registered without a secret, and public for good.

CREATE_PUBLIC = (
    "client",
    "create",
    "--name",
    "CLI",
    "--redirect-uri",
    "http://127.0.0.1/cb",
    "--public",
)


@pytest.fixture
def public(app: Flask) -> RelyingParty:
    return make_client(app, redirect_uris=["com.example.app:/cb"], public=True)


def test_it_is_registered_by_rfc_7591_names_and_has_no_secret(run: Any) -> None:
    made = parsed(run(*CREATE_PUBLIC, "--json"))
    assert made["token_endpoint_auth_method"] == "none"
    assert made["require_pkce"] is True
    assert not [name for name in made if "secret" in name]
    shown = parsed(run("client", "show", made["client_id"], "--json"))
    assert not [name for name in shown if "secret" in name]
    text = run(*CREATE_PUBLIC).stdout
    assert "client_secret" not in text
    assert "It is public: it has no secret and has to use PKCE." in text


def test_the_help_names_apis_in_english(run: Any) -> None:
    text = " ".join(run("client", "update", "--help").stdout.split())
    assert "Add an API. May be repeated." in text
    assert "Remove an API whose access tokens it may exchange." in text


def test_a_public_device_is_not_told_to_use_pkce(run: Any) -> None:
    text = run("client", "create", "--name", "TV", "--public", "--device").stdout
    assert "It is public: it has no secret." in text
    assert "PKCE" not in text


def test_a_list_tells_them_apart(run: Any, client: RelyingParty, public: RelyingParty) -> None:
    heading, *rows = [line.split() for line in run("client", "list").stdout.splitlines()]
    at = heading.index("PUBLIC")
    assert {row[0]: row[at] for row in rows} == {client.client_id: "no", public.client_id: "yes"}


@pytest.mark.parametrize("method", ["any", "client_secret_post", "client_secret_basic"])
def test_a_secret_is_a_contradiction(run: Any, method: str) -> None:
    result = run(*CREATE_PUBLIC, "--auth-method", method)
    assert result.exit_code == 2
    assert "--public contradicts --auth-method" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rotate-secret",), "a public client has no secret"),
        (("rotate-secret", "--keep-old", "1"), "a public client has no secret"),
        (("update", "--auth-method", "any"), "stays public or confidential"),
        (("update", "--no-require-pkce"), "a public client always requires PKCE"),
    ],
)
def test_it_stays_public(
    run: Any, public: RelyingParty, arguments: tuple[str, ...], words: str
) -> None:
    command, *options = arguments
    result = run("client", command, public.client_id, *options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert parsed(run("client", "show", public.client_id, "--json"))["require_pkce"] is True


def test_a_confidential_client_gets_no_private_use_scheme(run: Any, client: RelyingParty) -> None:
    add = ("--add-redirect-uri", "com.example.app:/cb")
    result = run("client", "update", client.client_id, *add)
    assert result.exit_code == 1
    assert "only public clients may have another scheme" in result.stderr


def test_its_addresses_are_changed_like_others(run: Any, public: RelyingParty) -> None:
    uri = "com.example.app:/other"
    changed = parsed(run("client", "update", public.client_id, "--add-redirect-uri", uri, "--json"))
    assert changed["redirect_uris"] == ["com.example.app:/cb", uri]


# `client create/update --logo --home-url`, and both in a declaration.

CREATE_WIKI = ("client", "create", "--name", "Wiki", "--redirect-uri", "https://wiki.example/cb")
HOME = "https://wiki.example/"


@pytest.fixture
def run_and_flush(app: Flask) -> Any:
    def invoke(*arguments: str) -> Result:
        writer.flush(app)
        return app.test_cli_runner().invoke(args=arguments)

    return invoke


@pytest.fixture
def logo(tmp_path: Path) -> Path:
    path = tmp_path / "logo.png"
    path.write_bytes(PNG)
    return path


def json_of(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def logo_uri(data: bytes) -> str:
    return f"{ISSUER}/client-logo?v={digest(data)}"


def changes(run_and_flush: Any) -> Any:
    found = json_of(run_and_flush("audit", "list", "--event", "client_changed", "--json"))
    return found[0]["fields"]["changes"]


def test_a_client_with_both(run_and_flush: Any, logo: Path) -> None:
    made = json_of(run_and_flush(*CREATE_WIKI, "--logo", str(logo), "--home-url", HOME, "--json"))
    assert (made["logo_uri"], made["home_url"]) == (logo_uri(PNG), HOME)
    shown = run_and_flush("client", "show", made["client_id"]).stdout
    assert ["logo_uri", logo_uri(PNG)] in [line.split() for line in shown.splitlines()]
    assert [one["logo_uri"] for one in json_of(run_and_flush("client", "list", "--json"))] == [
        logo_uri(PNG)
    ]


def test_without_them(run_and_flush: Any) -> None:
    assert not {"logo_uri", "home_url"} & json_of(run_and_flush(*CREATE_WIKI, "--json")).keys()


def test_changing_and_removing_them(app: Flask, run_and_flush: Any, logo: Path) -> None:
    update = ("client", "update", make_client(app).client_id)
    assert "logo: - -> " in run_and_flush(*update, "--logo", str(logo)).stdout
    assert changes(run_and_flush) == {"logo": {"before": None, "after": digest(PNG)}}
    assert "Nothing changed." in run_and_flush(*update, "--logo", str(logo)).stdout
    logo.write_bytes(SVG)
    changed = json_of(run_and_flush(*update, "--logo", str(logo), "--home-url", HOME, "--json"))
    assert changed["changes"] == {
        "home_url": {"before": None, "after": HOME},
        "logo": {"before": digest(PNG), "after": digest(SVG)},
    }
    removed = json_of(run_and_flush(*update, "--remove-logo", "--no-home-url", "--json"))
    assert not {"logo_uri", "home_url"} & removed.keys()
    assert changes(run_and_flush)["logo"] == {"before": digest(SVG), "after": None}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--logo", "x", "--remove-logo"), "--remove-logo contradicts --logo."),
        (("--home-url", HOME, "--no-home-url"), "--no-home-url contradicts --home-url."),
    ],
)
def test_contradictions(
    app: Flask, run_and_flush: Any, options: tuple[str, ...], words: str
) -> None:
    result = run_and_flush("client", "update", make_client(app).client_id, *options)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (PAGE, "neither PNG, JPEG, WebP nor SVG"),
        (PNG[:8] + PAGE, "damaged"),
        (SVG.replace(b"<rect", b"<script/><rect"), "the element 'script'"),
        (b"\0" * 10_000_000, "larger than 64 kB"),
        (None, "no such file"),
    ],
)
def test_logos_that_are_refused(
    app: Flask, run_and_flush: Any, logo: Path, data: bytes | None, words: str
) -> None:
    logo.unlink()
    if data is not None:
        logo.write_bytes(data)
    for command in (CREATE_WIKI, ("client", "update", make_client(app, name="Old").client_id)):
        result = run_and_flush(*command, "--logo", str(logo))
        assert result.exit_code == 1
        assert f"the logo {str(logo)!r} is refused: " in result.stderr
        assert words in result.stderr
    assert [one["client_name"] for one in json_of(run_and_flush("client", "list", "--json"))] == [
        "Old"
    ]


def test_a_home_url_that_is_refused(run_and_flush: Any) -> None:
    result = run_and_flush(*CREATE_WIKI, "--home-url", "javascript:alert(1)")
    assert result.exit_code == 1
    assert "home URL 'javascript:alert(1)' is refused" in result.stderr


def declare(tmp_path: Path, more: str) -> str:
    path = tmp_path / "sso.toml"
    path.write_text(
        'format = 1\n[[clients]]\nclient_id = "wiki"\nclient_name = "Wiki"\npublic = true\n'
        f'redirect_uris = ["https://wiki.example/cb"]\n{more}'
    )
    return str(path)


def stored(app: Flask) -> tuple[str | None, str | None]:
    with app.app_context():
        client = clients.find("wiki")
        assert client
        return client.home_url, clients.logo_digest("wiki")


def test_a_declaration(app: Flask, run_and_flush: Any, tmp_path: Path) -> None:
    (tmp_path / "logos").mkdir()
    (tmp_path / "logos" / "wiki").write_bytes(PNG)
    both = f'logo = "logos/wiki"\nhome_url = "{HOME}"\n'
    (made,) = json_of(run_and_flush("apply", declare(tmp_path, both), "--json"))["changes"]
    assert made["fields"]["logo"] == {"before": None, "after": digest(PNG)}
    assert stored(app) == (HOME, digest(PNG))
    for text in (both, ""):
        assert json_of(run_and_flush("apply", declare(tmp_path, text), "--json"))["changes"] == []
    planned = run_and_flush("apply", declare(tmp_path, 'logo = ""'), "--plan").stdout
    assert f"logo: {digest(PNG)} -> -" in planned
    assert stored(app) == (HOME, digest(PNG))
    assert run_and_flush("apply", declare(tmp_path, 'logo = ""\nhome_url = ""')).exit_code == 0
    assert stored(app) == (None, None)


@pytest.mark.parametrize("name", EVERY)
def test_an_export_has_the_logo(app: Flask, run_and_flush: Any, tmp_path: Path, name: str) -> None:
    data, media_type = EVERY[name]
    client_id = make_client(app, logo=images.parse(data, 1000), home_url=HOME).client_id
    path = tmp_path / "export.toml"
    assert run_and_flush("export", str(path)).exit_code == 0
    assert f'logo = "data:{media_type};base64,' in path.read_text()
    assert run_and_flush("client", "update", client_id, "--remove-logo").exit_code == 0
    assert run_and_flush("apply", str(path)).exit_code == 0
    with app.app_context():
        assert clients.logo_digest(client_id) == digest(data)


def test_all_faults_of_a_declaration_at_once(run_and_flush: Any, tmp_path: Path) -> None:
    second = (
        '[[clients]]\nclient_id = "b"\nlogo = "data:image/png;base64,aGk="\n'
        '[[clients]]\nclient_id = "c"\nlogo = 1\n'
    )
    path = declare(tmp_path, 'logo = "../none.png"\n' + second)
    assert "clients c: logo is not a text" in run_and_flush("apply", path).stderr
    path = declare(tmp_path, 'logo = "../none.png"\n' + second.replace("logo = 1", ""))
    words = run_and_flush("apply", path).stderr
    assert "clients wiki: the logo '../none.png' is refused: there is no such file" in words
    assert "clients b: the logo 'data:image/png;base64,aGk=' is refused: it is neither" in words


def test_what_a_declaration_may_have_is_what_an_export_has(app: Flask) -> None:
    make_client(app, logo=images.parse(PNG, 1000), home_url=HOME)
    with app.app_context():
        (client,) = apply.declaration()["clients"]
    assert {"logo", "home_url"} <= client.keys()


def test_a_refused_setting_is_not_shown_as_its_default(
    run_and_flush: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSO_LOGO_FILE", "/nowhere/logo.png")
    result = run_and_flush("settings", "--json")
    (entry,) = [
        one for one in json.loads(result.stdout)["settings"] if one["name"] == "SSO_LOGO_FILE"
    ]
    assert (entry["source"], result.exit_code) == ("refused", 1)


def test_metadata_of_a_service_provider_comes_over_https(run: Any) -> None:
    """Anybody on the way could name an address of theirs in it."""
    refused = run("client", "create", "--saml", "--name", "Wiki", "--metadata", "http://w.example/")
    assert refused.exit_code == 1
    assert "it is not https" in refused.stderr
    unreachable = "http://127.0.0.1:1/"
    refused = run("client", "create", "--saml", "--name", "Wiki", "--metadata", unreachable)
    assert refused.exit_code == 1
    assert "it is not https" not in refused.stderr


def test_metadata_of_a_service_provider_has_its_certificates(run: Any, tmp_path: Path) -> None:
    """What a new version no longer has does not stay; options win over both."""
    file, spoken = tmp_path / "wiki.xml", "urn:oasis:names:tc:SAML:2.0"
    certificate = "".join(pair().certificate.splitlines()[1:-1])
    key = (
        '<KeyDescriptor use="signing"><KeyInfo xmlns="http://www.w3.org/2000/09/xmldsig#">'
        f"<X509Data><X509Certificate>{certificate}</X509Certificate></X509Data></KeyInfo>"
        "</KeyDescriptor>"
    )
    logout = f'<SingleLogoutService Binding="{spoken}:bindings:HTTP-Redirect" Location="{{}}"/>'

    def metadata(inside: str) -> str:
        file.write_text(
            f'<EntityDescriptor xmlns="{spoken}:metadata" entityID="urn:x:wiki">'
            f'<SPSSODescriptor AuthnRequestsSigned="true" protocolSupportEnumeration="{spoken}'
            f':protocol">{inside}<AssertionConsumerService Binding="{spoken}:bindings:HTTP-POST" '
            'Location="https://wiki.example/acs" index="0"/></SPSSODescriptor></EntityDescriptor>'
        )
        return str(file)

    source = metadata(key + logout.format("https://wiki.example/slo"))
    made = run("client", "create", "--saml", "--name", "Wiki", "--metadata", source, "--json")
    assert made.exit_code == 0, made.stderr
    client = json.loads(made.stdout)
    assert client["saml_certificates"].startswith("-----BEGIN CERTIFICATE-----")
    assert client["saml_signed_requests"] is True
    assert client["saml_logout_url"] == "https://wiki.example/slo"
    update = ("client", "update", client["client_id"], "--json", "--metadata")
    changed = run(*update, metadata(logout.format("https://wiki.example/out")))
    assert changed.exit_code == 0, changed.stderr
    client = json.loads(changed.stdout)
    assert client["saml_logout_url"] == "https://wiki.example/out"
    assert (client.get("saml_certificates"), client["saml_signed_requests"]) == (None, False)
    changed = run(*update, metadata(""), "--name", "Notes")
    client = json.loads(changed.stdout)
    assert (client.get("saml_logout_url"), client["client_name"]) == (None, "Notes")
