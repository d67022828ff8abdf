"""The documents name files and commands that exist."""

import re
from pathlib import Path

import pytest

from sso.command_line import COMMANDS, GROUPS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]
ENTRY_POINTS = {"settings", "demo", "doctor"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_named_in_a_document_exist(document: Path) -> None:
    text = document.read_text()
    named = re.findall(r"`((?:[\w.-]+/)+[\w*.-]*)`", text)
    named = [one for one in named if one.endswith("/") or re.search(r"\.(py|md|toml|conf)$", one)]
    for one in named:
        if not one.startswith("instance/"):
            assert list(ROOT.glob(one)) or list((ROOT / "sso").glob(one)), one
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_named_in_a_document_exist(document: Path) -> None:
    for name, command in re.findall(r"`flask ([a-z]+)(?: ([a-z][a-z-]+))?", document.read_text()):
        assert name in GROUPS or name in COMMANDS or name in ENTRY_POINTS, name
        if name in GROUPS and command:
            assert command in GROUPS[name][1], f"{name} {command}"
