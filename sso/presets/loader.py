"""Finds presets and reads them, with everything that is wrong with one at once."""

import tomllib
from difflib import get_close_matches
from functools import cache
from importlib import resources

from sso.i18n.message import Message
from sso.presets import checks, schema
from sso.presets.errors import PresetError
from sso.presets.schema import Preset
from sso.process.program import COMMAND


def names() -> list[str]:
    """The names of all presets, sorted."""
    files = resources.files("sso.presets").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def find(name: str) -> Preset:
    """A preset by its name or an alias. Raises `PresetError` with what comes close."""
    wanted = name.strip().lower()
    if wanted in names():
        return load(wanted)
    known = {}
    for preset in every():
        for one in (preset.name, preset.title.lower(), *preset.aliases):
            if one == wanted:
                return preset
            known[one] = preset.name
    near = dict.fromkeys(known[one] for one in get_close_matches(wanted, known, n=5, cutoff=0.6))
    hint = f"did you mean {' or '.join(near)}?" if near else f"see: {COMMAND} client presets"
    shown = repr(name[:100])
    raise PresetError(
        [
            Message(
                "there is no preset %(name)s",
                name=shown,
                for_commands=f"there is no preset {shown}; {hint}",
            )
        ]
    )


def every() -> list[Preset]:
    return [load(name) for name in names()]


@cache
def load(name: str) -> Preset:
    """A preset by its name. Raises `PresetError` with every error of its file."""
    file = resources.files("sso.presets").joinpath(f"{name}.toml")
    return read(name, file.read_text(encoding="utf-8"))


def read(name: str, text: str) -> Preset:
    """A preset from the text of its file. Raises `PresetError`."""
    errors: list[str] = []
    try:
        table = tomllib.loads(text)
    except ValueError as error:
        raise PresetError([f"preset {name}: it is not TOML: {error}"]) from None
    found = schema.build(Preset, {"name": name, **table}, "", errors)
    if found:
        errors += checks.errors(found)
    if errors:
        raise PresetError([f"preset {name}: {error}" for error in errors])
    preset: Preset = found
    return preset
