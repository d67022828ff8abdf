"""One Markdown page for each application, and an index of them."""

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sso.config.client_fields import FIELDS
from sso.presets import installation, loader
from sso.presets.installation import Credentials
from sso.presets.preset_file import Preset

BASE_URL = "https://login.example.com/api/auth"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIID…\n-----END CERTIFICATE-----"


def write(folder: Path) -> None:
    """Write `NAME.md` for every preset, and `index.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {preset.name: page(preset) for preset in presets()}
    pages["index"] = _environment.get_template("index.md").render(presets=presets())
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def presets() -> list[Preset]:
    """Return all presets, by title."""
    return sorted(loader.every(), key=lambda preset: preset.title.lower())


def page(preset: Preset) -> str:
    """Return the page of an application, with example values."""
    example = installation.example(preset)
    metadata = installation.registration(example, BASE_URL)
    credentials = Credentials(
        "CLIENT_ID", "CLIENT_SECRET", preset.title, metadata["scope"],
        preset.registration.id_token_alg, "login.example.com", CERTIFICATE,
    )  # fmt: skip
    registered = [
        (field.preset.label, _values(value))
        for field in FIELDS.values()
        if field.preset and field.preset.label and (value := metadata.get(field.name))
    ]
    return _environment.get_template("application.md").render(
        preset=preset,
        command=installation.command(example),
        registered=registered,
        blocks=installation.setup(example, credentials, BASE_URL),
    )


def _values(value: Any) -> list[str]:
    if isinstance(value, list):
        return value
    return ["required"] if value is True else [str(value)]


def _markdown(text: str) -> str:
    """Escape a text, but for its `code`."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*_\[\]<>])", r"\\\1", part) for part in parts
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _fenced(text: str, language: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


_environment = Environment(  # noqa: S701 (Markdown, with filters of its own)
    loader=PackageLoader("sso.presets", "markdown"),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
)
_environment.filters |= {"md": _markdown, "cell": _cell, "fenced": _fenced}
