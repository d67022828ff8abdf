"""The texts of presets that people read: they are translated, unlike names of files and commands.

Their catalog is `presets`, apart from that of the pages: only a few pages need it.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from sso.presets.schema import Preset

_FILE_NAME = re.compile(r"\S*[./]\S*")


def translated(preset: Preset, translate: Callable[[str], str]) -> Preset:
    """The same preset for people who read another language. Its templates are not filled in yet."""

    def words(text: str) -> str:
        return text if not text or _FILE_NAME.fullmatch(text) else translate(text)

    return replace(
        preset,
        summary=words(preset.summary),
        options={
            name: replace(option, help=words(option.help))
            for name, option in preset.options.items()
        },
        setup=tuple(
            replace(block, title=words(block.title), where=words(block.where))
            for block in preset.setup
        ),
        notes=tuple(replace(note, text=words(note.text)) for note in preset.notes),
    )


def texts(preset: Preset) -> list[str]:
    """What a catalog needs for it."""
    found: list[str] = []

    def keep(text: str) -> str:
        found.append(text)
        return text

    translated(preset, keep)
    return found
