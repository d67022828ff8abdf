"""Every preset: well-formed, sourced, registrable, and proof against what people type."""

from functools import cache
from urllib.parse import urlsplit

import pytest
from flask import Flask
from joserfc.jwk import ECKey

from sso import audit
from sso.presets import installation, loader, preset_pages
from sso.presets.installation import Credentials, Installation
from sso.presets.preset_file import Block, Preset, PresetError
from sso.services import preset_clients
from tests.presets.formats import shape
from tests.support.each import each
from tests.support.processes import ROOT

BASE_URL = "https://id.example.com/api/auth"
PRESETS = loader.names()
HOSTILE = (
    "it's", 'say "hi"', "back\\slash\\", "$HOME ${HOME} $(id) `id`", "#{1+1} %{x} %(x)s %s",
    "a; b # c", "[x] {y}: <b>&amp;</b> | > *", "null", "-n", "{{ url }} {% x %}", "ü 漢字 😀",
)  # fmt: skip
KEY = ECKey.generate_key("P-256").as_dict(private=False)
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIID+/==\n-----END CERTIFICATE-----\n"
# Where a command line listens, on the computer of the person who signs in (RFC 8252 section 7.3).
LOOPBACK = {"vault": "http://localhost:8250/oidc/callback"}
REFUSALS = ("cannot be written", "may have only", "is refused: it has no scheme")


every_preset = each("preset", [loader.load(name) for name in PRESETS])


def credentials(scope: str, text: str = "Acme") -> Credentials:
    return Credentials("an-id", "sso_cs_secret-secret", text, scope, "ES256", text, CERTIFICATE)


def rendered(found: Installation, text: str = "Acme") -> list[Block]:
    scope = installation.registration(found, BASE_URL)["scope"]
    return installation.setup(found, credentials(scope, text), BASE_URL)


def places(preset: Preset) -> list[str | None]:
    """Addresses with all that varies: a path, a port, and the example."""
    if preset.url is None:
        return [None]
    return [preset.url, "https://apps.example.com:8443/a/sub-path", "http://localhost:3000"]


def test_there_are_presets() -> None:
    assert "grafana" in PRESETS


def test_no_name_means_two_applications() -> None:
    names = [name for one in loader.every() for name in (one.name, *one.aliases)]
    assert len(names) == len(set(names))


@every_preset
def test_a_test_that_is_named_exists(preset: Preset) -> None:
    assert not preset.test or (ROOT / preset.test).is_file()


@every_preset
def test_every_address_is_within_the_application(preset: Preset) -> None:
    """No callback leads to a host that the operator did not name."""
    for url in places(preset):
        found = installation.install(preset, url, installation.example(preset).options)
        metadata = installation.registration(found, BASE_URL)
        lists = ("redirect_uris", "post_logout_redirect_uris", "saml_acs_urls")
        addresses = [address for name in lists for address in metadata.get(name, ())]
        single = ("backchannel_logout_uri", "saml_logout_url")
        addresses += [address for name in single if (address := metadata.get(name))]
        assert addresses or metadata["proxy_urls"]
        if loopback := LOOPBACK.get(preset.name):
            addresses.remove(loopback)
        for address in addresses:
            if found.url is None or urlsplit(address).scheme not in ("http", "https"):
                continue
            assert urlsplit(address).hostname == found.url.host, address


@every_preset
def test_what_is_registered_passes_the_service(app: Flask, preset: Preset) -> None:
    for url in places(preset):
        found = installation.install(preset, url, installation.example(preset).options)
        with app.app_context(), audit.dry_run():
            keys = {"jwks": {"keys": [KEY]}} if preset.has_keys else {}
            client, secret = preset_clients.connect(audit.SYSTEM, found, BASE_URL, keys)
            assert bool(secret) == preset.has_secret
            assert preset_clients.installation_of(client) == found
            assert preset_clients.setup(client, found, BASE_URL, secret=secret)


@every_preset
def test_its_configuration_is_well_formed(preset: Preset) -> None:
    for url in places(preset):
        found = installation.install(preset, url, installation.example(preset).options)
        for block in rendered(found):
            shape(block.language, block.text)


@every_preset
def test_the_secret_is_in_each_way_to_set_it_up(preset: Preset) -> None:
    if not preset.has_secret:
        return
    blocks = rendered(installation.example(preset))
    ways: list[str | None] = [*preset.alternatives] or [None]
    for way in ways:
        texts = [one.text for one in blocks if one.alternative in (None, way)]
        assert any("sso_cs_secret-secret" in text for text in texts), way


@each("text", HOSTILE)
@every_preset
def test_what_people_type_changes_no_more_than_its_value(preset: Preset, text: str) -> None:
    """As an option, or as a name. A format that cannot hold the text says so."""
    free = [name for name, option in preset.options.items() if not option.choices]
    for name in [None, *free]:
        usual = usually_rendered(preset.name, name)
        try:
            blocks = rendered(example_with(preset, name, text), "Acme" if name else text)
        except PresetError as error:
            assert any(one in str(error) for one in REFUSALS), str(error)
            continue
        changed = [pair for pair in zip(blocks, usual, strict=True) if pair[0].text != pair[1].text]
        for block, expected in changed:
            found, wanted = (shape(one.language, one.text) for one in (block, expected))
            assert found == wanted, (name, block.title, block.text)


@cache
def usually_rendered(preset: str, option: str | None) -> list[Block]:
    """The blocks that each text is compared with."""
    loaded = loader.load(preset)
    is_origin = option is not None and loaded.options[option].is_origin
    return rendered(example_with(loaded, option, "http://acme" if is_origin else "Acme"))


def example_with(preset: Preset, name: str | None, value: str) -> Installation:
    options = dict(installation.example(preset).options) | ({name: value} if name else {})
    return installation.install(preset, preset.url, options)


@pytest.mark.parametrize(
    "text", ["", " ", "a\nb", "\0", "\x1b[2J", "a\u202eb", "\ud800", "x" * 201]
)
def test_no_option_is_invisible_or_breaks_lines(text: str) -> None:
    preset = loader.load("grafana")
    with pytest.raises(PresetError):
        installation.install(preset, preset.url, {"admin_group": text})


@every_preset
def test_it_has_a_page(preset: Preset) -> None:
    page = preset_pages.page(preset)
    assert page.startswith("# ")
    assert ("**Not run.**" in page) == (not preset.test)
    assert f"flask client create --preset {preset.name}" in page
    assert preset.preparation.strip("\n") in page
    assert ("--jwks public.json" in page) == preset.has_keys
    for source in preset.sources:
        assert f"<{source.url}>" in page
