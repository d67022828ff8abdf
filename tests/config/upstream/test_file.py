"""The file of upstream providers: every error at once, each with its remedy."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sso.config.tables import ManyErrors
from sso.config.upstream import file
from sso.config.upstream.oidc import GoogleProvider, MicrosoftProvider, OidcProvider
from tests.support.logos import PNG

TENANT = "8eaef023-2b34-4da1-9baa-8bc8c9d6a490"
GOOD = """
[provider.corp]
type = "oidc"
name = "Example Corp"
issuer = "https://login.example.com"
client_id = "us"
client_secret_file = "{folder}/secret"
logo = "{folder}/logo.png"
domains = ["Example.com", "example.org"]
trust_email = true
groups = {{ "Engineering" = "staff" }}

[provider.google]
type = "google"
client_id = "us"
client_secret_env = "GOOGLE_SECRET"

[provider.entra]
type = "microsoft"
tenant = "common"
client_id = "us"
client_secret_env = "GOOGLE_SECRET"
"""


def read(folder: Path, text: str) -> file.Upstreams:
    (folder / "secret").write_text("s3cret\n")
    (folder / "logo.png").write_bytes(PNG)
    path = folder / "upstream.toml"
    path.write_text(text.format(folder=folder), encoding="utf-8")
    return file.read(path, {"GOOGLE_SECRET": "g"})


def errors(folder: Path, text: str) -> list[str]:
    with pytest.raises(ManyErrors) as caught:
        read(folder, text)
    return caught.value.errors


def test_a_whole_file(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD)
    corp, google, entra = found
    assert isinstance(corp, OidcProvider)
    assert (corp.client_secret, corp.domains) == ("s3cret", ("example.com", "example.org"))
    assert corp.logo is not None
    assert found.logo(corp.logo.digest) == corp.logo
    assert "s3cret" not in repr(corp)
    assert found.of_email(" Dana@EXAMPLE.org ") is corp
    assert found.of_email("dana@other.example") is None
    assert corp.vouches_for("dana@example.com")
    assert not corp.vouches_for("admin@other.example")
    assert not corp.vouches_for(None)
    assert isinstance(google, GoogleProvider)
    assert not google.vouches_for("dana@example.com")
    assert found.find("entra") is entra
    assert found.find("none") is None


def test_every_error_with_its_remedy(tmp_path: Path) -> None:
    found = errors(
        tmp_path,
        """
x = 1
[provider.Corp]
type = "oidc"
nme = "Corp"
issuer = "http://login.example.com"
client_secret = "inline"
trust_email = "yes"
domains = "example.com"
[provider.b]
type = "saml"
[provider.c]
type = "microsoft"
tenant = "example.com"
client_id = "us"
client_secret_env = "UNSET"
recheck = 1
""",
    )
    text = "\n".join(found)
    for part in (
        "x: not known here",
        "[provider.Corp] as an id give small letters",
        "nme: no key of the type oidc has this name; did you mean name?",
        "issuer: give an https URL",
        "client_secret: keep it out of this file; give client_secret_file or client_secret_env",
        "client_id: it is missing",
        "trust_email: give true or false",
        "domains: give a list",
        "[provider.b] type: give one of oidc, google, microsoft, github",
        "the environment variable UNSET is not set",
        "recheck: give a whole number of seconds from 60",
    ):
        assert part in text, part


LITERAL = """
[provider.two]
type = "oidc"
name = "x"
client_id = "x"
client_secret_env = "GOOGLE_SECRET"
issuer = "{}"
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[provider", "is not TOML"),
        ("provider = 1", "begin each provider with [provider.ID]"),
        (GOOD + "\n[provider.two]\ntype='oidc'\nname='x'\nclient_id='x'\nclient_secret_env='"
         "GOOGLE_SECRET'\nissuer='https://login.example.com/'\ndomains=['example.com']",
         "the domain example.com is that of [provider.corp], too"),
        (GOOD.replace('type = "google"', 'type = "google"\nscope = ["openid", "offline_access"]'),
         'leave out "offline_access"'),
        (GOOD.replace("common", "example.com"), "tenant: give its id"),
        (GOOD + LITERAL.format("https://10.0.0.7"), "issuer: its host is a private address; set"),
        (GOOD + LITERAL.format("https://127.1"), "issuer: its host is a private address; set"),
        (GOOD + LITERAL.format("https://[fd00:ec2::254]/x"), "issuer: its host is an address that"),
        (GOOD + LITERAL.format("https://168.63.129.16") + "\nallow_private_addresses = true",
         "issuer: its host is an address that is never called"),
        (GOOD + LITERAL.format("https://10.0.0.7").replace("oidc", "github").replace(
            "issuer", "url"), "url: its host is a private address; set"),
        *(
            (GOOD + LITERAL.format("https://x.example") + f"attributes = {value}", error)
            for value, error in (
                ("['team']", 'give a table, such as { "their claim" = "our_attribute" }'),
                ("{{ a = 'Team' }}", "'Team' is not the name of an attribute"),
                ("{{ a = 1 }}", "1 is not the name of an attribute"),
                ("{{ a = 'x', b = 'x' }}", "the attribute x is there twice"),
            )
        ),
        (GOOD.replace("{folder}/secret", "/none"), "the file /none cannot be read"),
    ],
)  # fmt: skip
def test_one_error(tmp_path: Path, text: str, error: str) -> None:
    assert error in "\n".join(errors(tmp_path, text))


def test_a_provider_in_a_private_network(tmp_path: Path) -> None:
    text = GOOD + LITERAL.format("https://10.0.0.7") + "allow_private_addresses = true"
    assert read(tmp_path, text).find("two")


def test_a_path_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ManyErrors, match="cannot be read"):
        file.read(tmp_path / "none.toml", {})


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "upstream.toml"
    path.write_bytes(b"#" * (256 * 1024 + 1))
    with pytest.raises(ManyErrors, match="is larger than 256 kB"):
        file.read(path, {})


def test_a_secret_is_given_once(tmp_path: Path) -> None:
    text = GOOD.replace(
        '"us"\nclient_secret_env', '"us"\nclient_secret_file = "x"\nclient_secret_env'
    )
    (error, *_) = errors(tmp_path, text)
    assert error == "[provider.google] client_secret_file and client_secret_env: give one of them"


@settings(max_examples=20)
@given(st.text())
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        assert list(file.read(path, {})) == []
    except ManyErrors as error:
        assert error.errors


def test_whose_tokens_a_microsoft_provider_takes() -> None:
    def entra(tenant: str) -> MicrosoftProvider:
        return MicrosoftProvider(
            id="entra", type="microsoft", tenant=tenant, client_id="us", client_secret="x"
        )

    def claims(tenant: str) -> dict[str, str]:
        return {"tid": tenant, "iss": f"https://login.microsoftonline.com/{tenant}/v2.0"}

    person, work, other = claims(MicrosoftProvider.CONSUMERS), claims(TENANT), claims(TENANT[::-1])
    taken = {
        TENANT: (False, True, False),
        "common": (True, True, False),
        "organizations": (False, True, False),
        "consumers": (True, False, False),
    }
    for tenant, expected in taken.items():
        found = tuple(entra(tenant).accepts_issuer(one) for one in (person, work, other))
        assert found == expected, tenant
    assert not entra("common").accepts_issuer({**work, "tid": MicrosoftProvider.CONSUMERS})
    assert not entra("common").accepts_issuer({"iss": work["iss"]})
    assert entra("common").accepts_metadata_issuer(
        "https://login.microsoftonline.com/{tenantid}/v2.0"
    )
    assert not entra(TENANT).accepts_metadata_issuer(
        "https://login.microsoftonline.com/{tenantid}/v2.0"
    )
