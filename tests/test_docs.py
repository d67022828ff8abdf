"""The documents name what exists, and the reference has all of it."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import click
import pytest

from scripts import documentation, picture, pictures
from sso.audit.events import Event
from sso.command_line import COMMANDS, GROUPS
from sso.config.settings import SETTINGS
from sso.endpoints.admin.admin_page import SECTIONS
from sso.endpoints.routes import ROUTES
from sso.flow.permissions import LIMITABLE, LIMITABLE_TO_APPLICATIONS, MEANINGS, ROLES
from sso.flow.scopes import ALL_CLAIMS, SCOPES
from sso.metrics.exporter import Counters
from sso.metrics.gauges import GAUGES
from sso.presets import loader
from tests.support.each import each

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]
ENTRY_POINTS = {"settings", "demo", "doctor"}
REFERENCE = "docs/reference"


@each("document", DOCUMENTS)
def test_files_named_in_a_document_exist(document: Path) -> None:
    text = document.read_text()
    named = re.findall(r"`((?:[\w.-]+/)+[\w*.-]*)`", text)
    named = [one for one in named if one.endswith("/") or re.search(r"\.(py|md|toml|conf)$", one)]
    named += [f"tests/attacks/{one}" for one in re.findall(r"`(test_\w+\.py)`", text)]
    for one in named:
        if not one.startswith("instance/"):
            assert list(ROOT.glob(one)) or list((ROOT / "sso").glob(one)), one
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    targets += re.findall(r'\b(?:src|srcset)="(?!https?:)([^"]+)"', text)
    for target in targets:
        assert (document.parent / target).exists(), target


def test_documents_that_messages_name_exist() -> None:
    source = "".join(path.read_text() for path in (ROOT / "sso").rglob("*.py"))
    for name in set(re.findall(r"docs/[a-z/-]+(?:\.md)?", source)):
        assert (ROOT / name).exists(), name


@each("document", DOCUMENTS)
def test_commands_named_in_a_document_exist(document: Path) -> None:
    named = re.findall(r"`flask ([a-z][a-z-]*)(?: ([a-z][a-z0-9-]+))?", document.read_text())
    for name, command in named:
        assert name in GROUPS or name in COMMANDS or name in ENTRY_POINTS, name
        if name in GROUPS and command:
            assert command in GROUPS[name][1], f"{name} {command}"


def commands() -> Iterator[tuple[str, click.Command]]:
    for name, command in documentation.top_level().items():
        yield name, command
        if isinstance(command, click.Group):
            for child in [one for one in command.commands if not command.commands[one].hidden]:
                yield f"{name} {child}", documentation.loaded(command.commands[child])


@each("document", DOCUMENTS)
def test_options_named_with_a_command_exist(document: Path) -> None:
    known = {
        name: {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
        for name, command in commands()
    }
    text = document.read_text()
    lines = re.findall(r"`(?:sso-)?flask ([a-z][^`\n]+)`", text)
    lines += re.findall(r"^ *(?:\.venv/bin/|sso-)flask ([a-z].+)$", text, re.MULTILINE)
    for line in lines:
        words = shlex.split(line, comments=True)
        for name in [one for one in (" ".join(words[:2]), words[0]) if one in known][:1]:
            options = {word.lstrip("[").partition("=")[0] for word in words if "--" in word}
            assert {one for one in options if "…" not in one} <= known[name] | {"--help"}, line


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    """The pages of the reference as the site shows them."""
    pages = [source for source in documentation.sources() if source.startswith(REFERENCE)]
    return {Path(source).stem: documentation.page(source) for source in pages}


def test_the_reference_has_every_setting(reference: dict[str, str]) -> None:
    for setting in SETTINGS:
        assert f"| `{setting.name}` |" in reference["settings"]
        assert setting.meaning in reference["settings"]


def test_the_reference_has_every_url(reference: dict[str, str]) -> None:
    for route in ROUTES:
        (line,) = re.findall(rf"^\| `{re.escape(route.path)}` \| (.*) \|$", reference["urls"], re.M)
        methods, _, purpose = line.partition(" | ")
        assert methods == ", ".join(route.methods)
        assert purpose.endswith((".", ".)"))


def test_the_reference_has_every_permission(reference: dict[str, str]) -> None:
    for permission, meaning in MEANINGS.items():
        (line,) = re.findall(rf"^\| `{permission}` \| (.*) \|$", reference["permissions"], re.M)
        text, *held, limited, pages = line.split(" | ")
        assert text == meaning
        assert [cell.strip() == "yes" for cell in held] == [
            permission in role for role in ROLES.values()
        ]
        assert (limited.strip() == "to groups") is (permission in LIMITABLE)
        assert (limited.strip() == "to applications") is (permission in LIMITABLE_TO_APPLICATIONS)
        assert pages.count("`") == 2 * sum(
            permission in route.needs and route.name != "overview" for route in ROUTES
        )


def test_the_reference_has_every_command(reference: dict[str, str]) -> None:
    found = dict(commands())
    assert {*GROUPS, *COMMANDS, *ENTRY_POINTS} <= found.keys()
    headings = dict(re.findall(r"^##+ flask (.+)\n+([^#]*)", reference["commands"], re.MULTILINE))
    assert headings.keys() == found.keys()
    for name, command in found.items():
        for option in () if isinstance(command, click.Group) else command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.opts[0] in headings[name], (name, option.opts)


def test_the_reference_has_every_event(reference: dict[str, str]) -> None:
    named = re.findall(r"`(\w+)`(?=[^|\n]*\|)|`(\w+_limited)`", reference["events"])
    assert {one or other for one, other in named} >= set(Event)
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", reference["events"], re.MULTILINE)
    listed = re.findall(r"\w+", " ".join(rows))
    assert len(listed) == len(set(listed))
    assert {*listed} == {event for event in Event if not event.endswith("_limited")}


def test_the_reference_has_every_metric(reference: dict[str, str]) -> None:
    counters = [family.name for family in Counters().registry.collect()]
    for name in (*counters, *(gauge.name for gauge in GAUGES)):
        assert re.search(rf"^\| `{name}(_total)?` \|", reference["metrics"], re.MULTILINE), name


def test_the_reference_has_every_scope_and_claim(reference: dict[str, str]) -> None:
    for name in (*SCOPES, *ALL_CLAIMS):
        assert f"`{name}`" in reference["claims"]


def test_the_guide_has_the_versions_of_agents_that_the_tests_run() -> None:
    text = (ROOT / "docs/how-to/agents.md").read_text()
    rows = dict(
        re.findall(r"^\| \[?([\w -]+).* \| ([\d., ]+) \| .*`.*` ?.* \|$", text, re.MULTILINE)
    )
    locks = ROOT / "tests/applications/locks"
    (python,) = re.findall(r"^mcp==(.+)$", (locks / "fastmcp.txt").read_text(), re.MULTILINE)

    def version(lock: str, package: str) -> str:
        locked = json.loads((locks / lock / "package-lock.json").read_text())["packages"]
        return str(locked[f"node_modules/{package}"]["version"])

    official = "@modelcontextprotocol"
    versions = {
        "Python SDK": [python],
        "TypeScript SDK": [
            version("mcp-clients", f"{official}/{package}") for package in ("sdk", "client")
        ],
        "mcp-remote": [version("mcp-tools", "mcp-remote")],
        "MCP Inspector": [version("mcp-tools", f"{official}/inspector")],
    }
    assert rows == {
        name: ", ".join(each.rpartition(".")[0] for each in listed)
        for name, listed in versions.items()
    }
    assert f"conformance@{version('mcp-tools', f'{official}/conformance')} " in text


def test_generated_parts_replace_what_stands_for_them() -> None:
    for source in documentation.sources():
        assert "<!-- generated" not in documentation.page(source), source


def test_every_page_is_in_the_navigation() -> None:
    config = tomllib.loads((ROOT / "zensical.toml").read_text())

    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for value in entry.values() if isinstance(entry, dict) else entry:
                yield from pages(value)

    assert sorted(pages(config["project"]["nav"])) == sorted(
        documentation.site_path(source) for source in documentation.sources()
    )


def test_every_application_has_a_page(tmp_path: Path) -> None:
    documentation.write(tmp_path)
    config = tomllib.loads((tmp_path / "zensical.toml").read_text())
    (listed,) = [one["Applications"] for one in config["project"]["nav"] if "Applications" in one]
    pages = {one if isinstance(one, str) else next(iter(one.values())) for one in listed}
    assert pages == {"applications/index.md", *(f"applications/{one}.md" for one in loader.names())}
    index = (tmp_path / "docs" / "applications" / "index.md").read_text()
    connect = (tmp_path / "docs" / "how-to" / "connect.md").read_text()
    for name in loader.names():
        assert (tmp_path / "docs" / "applications" / f"{name}.md").is_file()
        assert f"]({name}.md)" in index
        assert f"](../applications/{name}.md)" in connect


def test_without_zensical_the_script_says_what_to_run(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(ROOT / "scripts/docs", tmp_path / "scripts")
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "\npython3 -m venv .venv && .venv/bin/pip install" in done.stderr
    assert done.stderr.endswith("'.[docs]'\n")


def test_the_guide_of_the_administration_has_every_section() -> None:
    guide = (ROOT / "docs/how-to/administer.md").read_text()
    listed = re.findall(r"^\| \*\*(.+?)\*\* \|", guide, re.M)
    assert listed == [section.title for section in SECTIONS]


def test_the_pictures_of_pages_are_small_and_used() -> None:
    """Else run `python -m scripts.pictures`."""
    made = set(picture.PICTURE.parent.glob("*.webp"))
    assert made == {pictures.file_of(*each) for each in product(pictures.NAMES, pictures.SCHEMES)}
    assert len(made) <= 14
    texts = [document.read_text() for document in DOCUMENTS]
    for file in made:
        data = file.read_bytes()
        assert (data[:4], data[8:12]) == (b"RIFF", b"WEBP"), file
        assert len(data) <= pictures.MOST_BYTES, file
        assert any(f"assets/{file.name}" in text for text in texts), file


def test_the_picture_shows_the_figures() -> None:
    """Else run `python -m scripts.picture`."""
    page = picture.PAGE.read_text()
    drawn = picture.draw(picture.ratios(page))
    assert picture.PICTURE.read_text() == drawn
    alternative = re.search(r"!\[CPU time per request\. (.+?)\]", (ROOT / "README.md").read_text())
    assert alternative
    assert alternative[1] in drawn
    changed = page.replace("| sso, SQLite | 1.7 | 2.2 |", "| sso, SQLite | 1.7 | 4.4 |")
    assert picture.ratios(changed)["code exchange"]["glewlwyd"] == 7.0 / 4.4
