"""Reading presets: every error at once, each with its place."""

import pytest

from sso.presets import installation, loader
from sso.presets.preset_file import PresetError

GOOD = """
title = "Wiki"
summary = "Pages."
homepage = "https://wiki.example"
version = "1"
looked_up = 2026-11-22
test = ""
url = "https://wiki.example.com"
[registration]
redirect_uris = ["{{ url }}/callback"]
scope = "openid"
auth_method = "client_secret_post"
require_pkce = true
id_token_claims = "all"
[options.group]
help = "A group."
[options.level]
help = "A level."
default = "low"
choices = ["low", "high"]
[[setup]]
title = "wiki.json"
kind = "file"
language = "json"
text = '''{"group": {{ options.group|json }}, "level": "{{ options.level }}"}'''
[[sources]]
fact = "all"
url = "https://wiki.example/docs"
"""


def errors_of(text: str) -> list[str]:
    with pytest.raises(PresetError) as caught:
        loader.read("wiki", text)
    return [error.removeprefix("preset wiki: ") for error in caught.value.errors]


def test_a_good_one() -> None:
    preset = loader.read("wiki", GOOD)
    assert preset.registration.redirect_uris == ("{{ url }}/callback",)
    assert preset.options["level"].choices == ("low", "high")
    assert loader.unquoted_options(preset) == set()
    assert hash(preset.registration)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('title = "Wiki"\n', "", "title is missing"),
        ('title = "Wiki"', "title = 3", "title is not a text"),
        ('title = "Wiki"', 'title = " "', "title is not a line of text"),
        ('title = "Wiki"', 'title = "a\\nb"', "title is not a line of text"),
        ('title = "Wiki"', 'titel = ""\ntitle = "Wiki"', "titel is unknown"),
        ("2026-11-22", '"2026-11-22"', "looked_up is not a date"),
        ("2026-11-22", "2026-11-22T00:00:00", "looked_up is not a date"),
        ("require_pkce = true", "require_pkce = 1",
         "registration.require_pkce is not true or false"),
        ('["{{ url }}/callback"]', '"{{ url }}/callback"',
         "registration.redirect_uris is not a list"),
        ('["{{ url }}/callback"]', "[1]", "registration.redirect_uris[1] is not a text"),
        ("{{ url }}/callback", "{{ uri }}/callback", "registration.redirect_uris: there is no uri"),
        ("{{ url }}/callback", "{{ client_id }}/cb",
         "registration.redirect_uris: there is no client_id"),
        ("{{ url }}/callback", "{{ url", "registration.redirect_uris: unexpected end of template"),
        ("{{ url }}/callback", "{{ url|jsn }}",
         "registration.redirect_uris: No filter named 'jsn'"),
        ('help = "A group."', "", "options.group.help is missing"),
        ('help = "A group."', 'help = ""', "options.group has no help"),
        ('default = "low"', 'default = "mid"',
         "options.level: the default is not one of the choices"),
        ("[options.group]", "[options.Group]",
         "options.Group: the name is not lower-case letters, digits and underscores"),
        ("options.group|json", "options.group|shell",
         "setup[1].text: the filter shell does not quote for this language"),
        ("options.group|json", "options.grop|json", "setup[1].text: there is no options.grop"),
        ("options.group|json", "client_name",
         "setup[1].text: client_name needs a filter that quotes it"),
        ("options.group|json", '"x"', "options.group is not used"),
        ("options.group|json", "options|json", "setup[1].text: there is no options"),
        ("{{ options.group|json }}", "{% set g = client_name ~ options.group %}{{ g|upper }}",
         "setup[1].text: client_name needs a filter that quotes it"),
        ("{{ options.group|json }}", "\t{{ options.group|json }}",
         "setup[1].text has tabs or control characters"),
        ('kind = "file"', 'kind = "fille"',
         "setup[1].kind is none of file, command, environment, form"),
        ('language = "json"', 'language = "jason"', "setup[1].language is none of"),
        ('url = "https://wiki.example.com"', 'url = "http://wiki.example.com"',
         "url: it is plain http"),
        ('url = "https://wiki.example/docs"', 'url = "http://wiki.example/docs"',
         "sources: 'http://wiki.example/docs' is not an https address"),
        ('auth_method = "client_secret_post"', 'auth_method = "none"',
         'registration: public and auth_method = "none" belong together'),
        ('auth_method = "client_secret_post"', 'auth_method = "private_key_jwt"',
         'auth_method = "private_key_jwt" and a preparation belong together'),
        ('auth_method = "client_secret_post"',
         'auth_method = "client_secret_post"\nprofile = "fapi2"',
         'registration: the profile fapi2 needs auth_method = "private_key_jwt"'),
        ('auth_method = "client_secret_post"',
         'auth_method = "client_secret_post"\nprofile = "fapi1"',
         "registration: the profile 'fapi1' is not fapi2"),
        ('scope = "openid"', 'scope = "openid"\nentity_id = "https://wiki.example.com"',
         "registration: entity_id and acs_urls belong together"),
        ('scope = "openid"', 'scope = "openid"\nacs_urls = ["https://wiki.example.com"]',
         "registration: entity_id and acs_urls belong together"),
        ("options.group|json", "certificate|json", "setup[1].text: there is no certificate"),
        ('looked_up =', 'preparation = "make keys"\nlooked_up =',
         'auth_method = "private_key_jwt" and a preparation belong together'),
        ('looked_up =', 'preparation = "make\\tkeys"\nlooked_up =',
         "preparation has tabs or control characters"),
        ("[[sources]]", "[[source]]", "source is unknown"),
        ('looked_up =', 'aliases = ["A b"]\nlooked_up =',
         "the name 'A b' is not lower-case letters, digits and hyphens"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(old: str, new: str, error: str) -> None:
    assert old in GOOD
    found = errors_of(GOOD.replace(old, new, 1))
    assert any(one.startswith(error) for one in found), found


def test_all_errors_come_at_once() -> None:
    text = GOOD.replace('title = "Wiki"', "title = 1").replace("= true", "= 1") + "\nmore = 1\n"
    assert len(errors_of(text)) == 3
    text = GOOD.replace("json }}", "xml }}").replace('"A group."', '""').replace("https:", "http:")
    assert len(errors_of(text)) >= 4


def test_no_sources_and_no_setup() -> None:
    text = GOOD[: GOOD.index("[[setup]]")].replace(
        "[registration]", "setup = []\nsources = []\n[registration]"
    )
    assert {"it has no sources", "it has no setup"} <= set(errors_of(text))


def test_a_configuration_with_keys_has_no_secret() -> None:
    text = GOOD.replace("client_secret_post", "private_key_jwt").replace(
        "looked_up", 'preparation = "make keys"\nlooked_up'
    )
    assert not loader.read("wiki", text).has_secret
    text = text.replace("{{ options.level }}", "{{ options.level }} {{ client_secret }}")
    assert errors_of(text) == ["setup[1].text: there is no client_secret"]


def test_what_is_no_toml() -> None:
    (error,) = errors_of("title = ")
    assert error.startswith("it is not TOML")


def test_an_application_without_an_address() -> None:
    text = GOOD.replace('url = "https://wiki.example.com"\n', "")
    assert errors_of(text) == ["registration.redirect_uris: there is no url"]
    found = loader.read("wiki", text.replace("{{ url }}/callback", "http://localhost:8000"))
    assert installation.missing(found, None, {}) == {"group": "A group."}
    with pytest.raises(PresetError, match="leave --url off"):
        installation.install(found, "https://wiki.example.com", {"group": "x"})


@pytest.mark.parametrize(
    "written",
    [
        "{{ options.group }}",
        "{{ options['group'] }}",
        "{{ options.group|upper }}",
        "{{ 'a' if options.group else '' }}{{ options.group or 'b' }}",
        "{% for one in options.group.split(',') %}{{ one }}{% endfor %}",
        "{% set g = options.group %}{{ g|json }}{{ g }}",
        "{% set g %}{{ options.group }}{% endset %}{{ g }}",
        "{% set g = '' %}{% if url %}{% set g = options.group %}{% endif %}{{ g }}",
    ],
)
def test_an_option_without_quotes_is_harmless(written: str) -> None:
    preset = loader.read("wiki", GOOD.replace("{{ options.group|json }}", written))
    assert loader.unquoted_options(preset) == {"group"}
    with pytest.raises(PresetError, match="may have only letters"):
        installation.install(preset, preset.url, {"group": "a b"})
    assert installation.install(preset, preset.url, {"group": "a-b"})


@pytest.mark.parametrize(
    "written",
    [
        "{{ options.group|upper|json }}",
        "{{ (options.group ~ client_name)|json }}",
        "{% if options.group %}a{% endif %}{{ 'b' if options.group == 'c' }}",
        "{% set g %}{{ options.group }}{% endset %}{{ g|json }}",
        "{% set g %}{{ options.group|json }}{% endset %}{{ g }}",
        "{% for one in options.group.split(',') %}{{ one|json }}{{ loop.last }}{% endfor %}",
    ],
)
def test_an_option_with_quotes(written: str) -> None:
    preset = loader.read("wiki", GOOD.replace("{{ options.group|json }}", written))
    assert loader.unquoted_options(preset) == set()


@pytest.mark.parametrize("name", ["grafana", "Grafana", " grafana ", "forgejo"])
def test_a_preset_is_found_by_its_names(name: str) -> None:
    assert loader.find(name).name in ("grafana", "gitea")


@pytest.mark.parametrize("name", ["", "graphana", "../loader", "grafana.toml", "x" * 10_000, "\0"])
def test_an_unknown_preset(name: str) -> None:
    with pytest.raises(PresetError) as caught:
        loader.find(name)
    assert ("did you mean grafana" in str(caught.value)) == name.startswith(
        "graf"
    ) or name == "graphana"
    assert len(str(caught.value)) < 300
