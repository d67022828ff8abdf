"""Finds, reads and checks presets. All errors of a preset are reported at once."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Set
from difflib import get_close_matches
from functools import cache
from importlib import resources

from sso.config.auth_methods import FAPI2, PRIVATE_KEY_JWT
from sso.config.tables import TableReader, fields_of
from sso.config.urls import strict_url_error
from sso.i18n.message import Message
from sso.presets import application_url, templates
from sso.presets.preset_file import Preset, PresetError, Registration
from sso.presets.templates import FILTERS
from sso.process.program import COMMAND

KINDS = ("file", "command", "environment", "form")
# By language: the filters that quote a value for it.
LANGUAGES: Mapping[str, Set[str]] = {
    "apache": {"apache"},
    "bash": {"shell", "json"},  # json: in a here-document
    "env": {"env"},
    "hcl": {"hcl"},
    "ini": {"ini"},
    "java": {"json"},
    "javascript": {"json"},
    "json": {"json"},
    "nginx": set(),
    "php": {"php"},
    "python": {"python"},
    "ruby": {"php"},
    "text": FILTERS.keys(),  # any: it is none of these
    "toml": {"json"},
    "typescript": {"json"},
    "xml": {"xml"},
    "yaml": {"json"},
}
_READER = TableReader(fields_of(Preset))
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_OPTION_NAME = re.compile(r"[a-z][a-z0-9_]*")
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def errors_in(preset: Preset) -> Iterator[str]:
    """Return why a preset cannot be used, in one line for each reason."""
    for name in (preset.name, *preset.aliases):
        if not _NAME.fullmatch(name):
            yield f"the name {name!r} is not lower-case letters, digits and hyphens"
    for label in ("title", "summary", "version"):
        text = getattr(preset, label)
        if not text.strip() or _CONTROLS.search(text) or "\n" in text:
            yield f"{label} is not a line of text"
    links = [("homepage", preset.homepage), *(("sources", source.url) for source in preset.sources)]
    for label, url in links:
        if strict_url_error(url) or not url.startswith("https://"):
            yield f"{label}: {url!r} is not an https address"
    if not preset.sources:
        yield "it has no sources"
    if not preset.setup:
        yield "it has no setup"
    if preset.url is not None:
        try:
            application_url.parse(preset.url)
        except ValueError as error:
            yield f"url: {error}"
    if preset.registration.public != (preset.registration.auth_method == "none"):
        yield 'registration: public and auth_method = "none" belong together'
    if preset.registration.profile not in (None, FAPI2):
        yield f"registration: the profile {preset.registration.profile!r} is not {FAPI2}"
    elif preset.registration.profile and not preset.has_keys:
        yield f'registration: the profile {FAPI2} needs auth_method = "{PRIVATE_KEY_JWT}"'
    if bool(preset.registration.acs_urls) != preset.is_saml:
        yield "registration: entity_id and acs_urls belong together"
    if preset.has_keys != bool(preset.preparation.strip()):
        yield f'auth_method = "{PRIVATE_KEY_JWT}" and a preparation belong together'
    if _CONTROLS.search(preset.preparation):
        yield "preparation has tabs or control characters"
    for number, block in enumerate(preset.setup, 1):
        if block.kind not in KINDS:
            yield f"setup[{number}].kind is none of {', '.join(KINDS)}"
        if block.language not in LANGUAGES:
            yield f"setup[{number}].language is none of {', '.join(LANGUAGES)}"
    yield from _option_errors(preset)
    yield from _template_errors(preset)


def _option_errors(preset: Preset) -> Iterator[str]:
    for name, option in preset.options.items():
        if not _OPTION_NAME.fullmatch(name):
            yield f"options.{name}: the name is not lower-case letters, digits and underscores"
        if not option.help.strip():
            yield f"options.{name} has no help"
        if option.choices and option.default not in (None, *option.choices):
            yield f"options.{name}: the default is not one of the choices"


def _template_errors(preset: Preset) -> Iterator[str]:
    everywhere = templates.SERVER | {f"options.{name}" for name in preset.options}
    if preset.url is not None:
        everywhere |= templates.URL_PARTS
    client = templates.CLIENT - (set() if preset.has_secret else {"client_secret"})
    client -= set() if preset.is_saml else {"certificate"}
    used: set[str] = set()
    for where, text, filters in _templates(preset):
        if _CONTROLS.search(text):
            yield f"{where} has tabs or control characters"
        try:
            uses = templates.uses(text)
        except ValueError as error:
            yield f"{where}: {error}"
            continue
        used |= uses.names
        names = everywhere if where.startswith("registration") else everywhere | client
        yield from (f"{where}: there is no {name}" for name in sorted(uses.names - names))
        if filters is None:
            continue
        for name in sorted(uses.filters - filters):
            yield f"{where}: the filter {name} does not quote for this language"
        for name in sorted(uses.unquoted):
            if not name.startswith("options."):
                yield f"{where}: {name} needs a filter that quotes it"
    unused = {f"options.{name}" for name in preset.options} - used
    yield from (f"{name} is not used" for name in sorted(unused))


def _templates(preset: Preset) -> Iterator[tuple[str, str, Set[str] | None]]:
    """Return every template: where it is, its text, and the filters that quote there.

    `None`: nothing has to be quoted, because a person reads it.
    """
    for name in Registration.__dataclass_fields__:
        value = getattr(preset.registration, name)
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str):
                yield f"registration.{name}", text, set()
    for number, block in enumerate(preset.setup, 1):
        filters = None if block.kind == "form" else LANGUAGES.get(block.language)
        yield f"setup[{number}].title", block.title, None
        yield f"setup[{number}].where", block.where, None
        yield f"setup[{number}].text", block.text, filters


def unquoted_options(preset: Preset) -> set[str]:
    """Return the options without quotes in a file or command: their values have to be harmless."""
    unquoted = {
        name.removeprefix("options.")
        for _, text, filters in _templates(preset)
        if filters is not None
        for name in templates.uses(text).unquoted
    }
    return {
        name
        for name, option in preset.options.items()
        if name in unquoted and not option.choices and not option.is_origin
    }


def names() -> list[str]:
    """Return the names of all presets, sorted."""
    files = resources.files("sso.presets").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def find(name: str) -> Preset:
    """Return a preset by its name or alias. Raises `PresetError` with similar names."""
    key = name.strip().lower()
    if key in names():
        return load(key)
    by_alias = {}
    for preset in every():
        for alias in (preset.name, preset.title.lower(), *preset.aliases):
            if alias == key:
                return preset
            by_alias[alias] = preset.name
    near = get_close_matches(key, by_alias, n=5, cutoff=0.6)
    similar = " or ".join(dict.fromkeys(by_alias[alias] for alias in near))
    hint = f"did you mean {similar}?" if similar else f"see: {COMMAND} client presets"
    quoted = repr(name[:100])
    raise PresetError(
        [
            Message(
                "there is no preset %(name)s",
                name=quoted,
                for_commands=f"there is no preset {quoted}; {hint}",
            )
        ]
    )


def every() -> list[Preset]:
    return [load(name) for name in names()]


@cache
def load(name: str) -> Preset:
    """Return a preset by its name. Raises `PresetError` with every error of its file."""
    file = resources.files("sso.presets").joinpath(f"{name}.toml")
    return read(name, file.read_text(encoding="utf-8"))


def read(name: str, text: str) -> Preset:
    """Read a preset from the text of its file. Raises `PresetError`."""
    try:
        table = tomllib.loads(text)
    except ValueError as error:
        raise PresetError([f"preset {name}: it is not TOML: {error}"]) from None
    reading = _READER.read({"name": name, **table})
    errors = [" ".join(error) for error in reading.located]
    if not errors:
        preset = Preset(**reading.values)
        errors = [*errors_in(preset)]
        if not errors:
            return preset
    raise PresetError([f"preset {name}: {error}" for error in errors])
