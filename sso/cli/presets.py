"""`flask client presets`: the applications that are known."""

import dataclasses
from typing import Any

import click

from sso import context
from sso.cli.clients import group
from sso.cli.commands import json_option
from sso.cli.output import print_json, print_line, print_paragraph, print_record, print_table
from sso.presets import installation as installations
from sso.presets import loader
from sso.presets.schema import Preset
from sso.process.program import COMMAND


@group.command("presets")
@click.argument("name", required=False)
@json_option
def presets(name: str | None, as_json: bool) -> None:
    """List the known applications, or show one."""
    if name is not None:
        preset = loader.find(name)
        if as_json:
            print_json(_as_json(preset))
        else:
            _show(preset)
        return
    found = loader.every()
    if as_json:
        print_json([_as_json(preset) for preset in found])
        return
    print_table(
        ("NAME", "TITLE", "TESTS", "SUMMARY"),
        [(one.name, one.title, "run" if one.test else "not run", one.summary) for one in found],
    )
    print_line()
    print_line("run: we run it against the application itself; not run: only its documentation or")
    print_line(f"code was read. To see what an application needs:  {COMMAND} client presets NAME")


def _as_json(preset: Preset) -> dict[str, Any]:
    found = dataclasses.asdict(preset)
    return {
        **found,
        "looked_up": preset.looked_up.isoformat(),
        "notes": [note.text for note in preset.notes],
    }


def _show(preset: Preset) -> None:
    print_paragraph(f"{preset.title}: {preset.summary}")
    print_line(preset.homepage)
    print_line()
    print_record([
        ("name", ", ".join([preset.name, *preset.aliases])),
        ("version", f"{preset.version} (looked up {preset.looked_up})"),
        ("tests", preset.test or "not run: only its documentation or code was read"),
        ("people need", ", ".join(preset.requires)),
        ("ways to set it up", ", ".join(preset.alternatives)),
    ])  # fmt: skip
    example = installations.example(preset)
    base_url = context.settings().base_url
    _heading(f"Registered{f', at {preset.url} for example' if preset.url else ''}")
    registered = installations.registration(example, base_url)
    print_record([(name, value) for name, value in registered.items() if name != "preset"])
    if preset.options:
        _heading("Options (--option NAME=VALUE)")
        for name, option in preset.options.items():
            default = "required" if option.default is None else f"default: {option.default or '-'}"
            choices = f"; one of {', '.join(option.choices)}" if option.choices else ""
            print_line(f"{name} ({default}{choices})")
            print_paragraph(option.help, "  ")
    if preset.notes:
        _heading("Good to know")
        for note in preset.notes:
            print_paragraph(note.text, "- ")
    _heading("Sources")
    for source in preset.sources:
        print_paragraph(source.fact, "- ")
        print_line(f"  {source.url}")
    if preset.preparation:
        _heading("Make its keys first, where it runs")
        for line in preset.preparation.strip("\n").split("\n"):
            print_line(line)
    _heading("Register it")
    print_line(installations.command(example))


def _heading(text: str) -> None:
    print_line()
    print_line(text)
