"""`flask client create`, `setup` and `presets`: connect applications."""

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import click

from sso import audit, context
from sso.cli import clients as shown_clients
from sso.cli.clients import client_argument, find_client, group, show_secret, with_secret
from sso.cli.commands import json_option
from sso.cli.output import (
    print_json,
    print_line,
    print_notes,
    print_paragraph,
    print_record,
    print_table,
)
from sso.config.urls import is_loopback
from sso.extensions import db
from sso.presets import application_url, loader
from sso.presets import installation as installations
from sso.presets.installation import Installation
from sso.presets.preset_file import Block, Preset
from sso.process.program import COMMAND
from sso.services import clients, groups, preset_clients

_alternative = click.option(
    "--alternative", metavar="NAME", help="Print one of several ways to set the application up."
)


@group.command("create")
@shown_clients.create_options
@json_option
def create(
    as_json: bool,
    preset: str | None,
    url: str | None,
    preset_options: Sequence[str],
    alternative: str | None,
    **options: Any,
) -> None:
    """Register an application; its secret is shown once."""
    if preset is not None:
        if options.pop("proxy"):
            raise click.UsageError("--proxy belongs to --url, without --preset.")
        installation = _installation(loader.find(preset), url, preset_options)
        _connect(installation, options, alternative, as_json)
        return
    if options.pop("proxy"):
        _place_behind_proxy(options, url)
        url = None
    if url or preset_options or alternative:
        raise click.UsageError("--url, --option and --alternative belong to --preset.")
    required = {"client_name": "--name"}
    if shown_clients.needs_redirect_uri(options):
        required["redirect_uris"] = "--redirect-uri"
    for name, option in required.items():
        if not options[name]:
            raise click.UsageError(f"Missing option '{option}'.")
    fields = shown_clients.fields_given(options)
    client, secret = clients.register(audit.operator(), fields)
    db.session.commit()
    print_notes(groups.without_members(client.groups))
    show_secret(client, secret, as_json)
    if not as_json and not client.require_pkce and client.redirect_uris:
        print_line("PKCE is recommended for it, not required. To refuse requests without PKCE:")
        print_line(f"  {COMMAND} client update {client.client_id} --require-pkce")


@group.command("setup")
@client_argument
@_alternative
@json_option
def setup(client_id: str, alternative: str | None, as_json: bool) -> None:
    """Print the configuration of an application that was registered from a preset."""
    client = find_client(client_id)
    installation = preset_clients.installation_of(client)
    base_url = context.settings().base_url
    blocks = preset_clients.setup(client, installation, base_url, alternative=alternative)
    if as_json:
        print_json({"client_id": client.client_id, **_setup_json(installation.preset, blocks)})
        return
    if client.has_secret:
        print_line(
            f"{preset_clients.SECRET_PLACEHOLDER} stands for the client secret, which is shown"
        )
        print_line(
            "only once. If it is lost, make a new one; the old one stays valid for 24 hours:"
        )
        print_line(f"  {COMMAND} client rotate-secret {client.client_id} --keep-old 24")
    _print_setup(installation, blocks)


def _place_behind_proxy(options: dict[str, Any], url: str | None) -> None:
    """Set the URLs of an application behind a proxy. Raises `UsageError`."""
    if not url:
        raise click.UsageError("--proxy needs --url: where browsers reach the application.")
    try:
        parsed = application_url.parse(url)
    except ValueError as error:
        raise click.UsageError(f"--url is refused: {error}") from None
    options["proxy_urls"] = (parsed.url, *options["proxy_urls"])


def _installation(preset: Preset, url: str | None, texts: Sequence[str]) -> Installation:
    """Ask for missing values, but only at a terminal. Raises `PresetError`."""
    values = _pairs(texts)
    if sys.stdin and sys.stdin.isatty():
        for name, meaning in installations.missing(preset, url, values).items():
            answer = _ask(preset, name, meaning)
            if name == "url":
                url = answer
            else:
                values[name] = answer
    return installations.install(preset, url, values)


def _ask(preset: Preset, name: str, meaning: str) -> str:
    """Ask until the answer is valid."""

    def checked(answer: str) -> str:
        try:
            if name == "url":
                return application_url.parse(answer).url
        except ValueError as error:
            raise click.UsageError(f"it is refused: {error}") from None
        if problem := installations.option_problem(preset, name, answer):
            raise click.UsageError(problem)
        return answer

    question = f"{name} ({meaning.rstrip('.')})"
    return str(click.prompt(question, value_proc=checked, err=True))


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise click.UsageError(f"--option {text!r} has no value; give NAME=VALUE.")
        if name in pairs:
            raise click.UsageError(f"--option {name} is given twice.")
        pairs[name] = value
    return pairs


def _connect(
    installation: Installation, options: dict[str, Any], alternative: str | None, as_json: bool
) -> None:
    preset, base_url = installation.preset, context.settings().base_url
    client, secret = preset_clients.connect(
        audit.operator(), installation, base_url, shown_clients.fields_given(options),
        alternative=alternative,
    )  # fmt: skip
    blocks = preset_clients.setup(
        client, installation, base_url, secret=secret, alternative=alternative
    )
    db.session.commit()
    print_notes(groups.without_members(client.groups))
    for other in preset_clients.same_place(client):
        click.echo(
            f"{other.client_id} is registered for the same {preset.title}; if it is not needed: "
            f"{COMMAND} client delete {other.client_id}", err=True,
        )  # fmt: skip
    if as_json:
        print_json({**with_secret(client, secret), **_setup_json(preset, blocks)})
        return
    print_line(f"{client.name} is registered.")
    print_line()
    show_secret(client, secret, as_json)
    _print_setup(installation, blocks)
    print_line()
    print_line(f"To print this again{', without the secret' if secret else ''}:")
    print_line(f"  {COMMAND} client setup {client.client_id}")


def _setup_json(preset: Preset, blocks: Iterable[Block]) -> dict[str, Any]:
    return {
        "setup": [vars(block) for block in blocks],
        "notes": [note.text for note in preset.notes],
    }


def _print_setup(installation: Installation, blocks: Sequence[Block]) -> None:
    """Print the blocks. Most formats read a heading as a comment, if it is copied with the text."""
    preset = installation.preset
    ways = list(dict.fromkeys(block.alternative for block in blocks if block.alternative))
    base_url = context.settings().base_url
    if _is_local(base_url) and not (installation.url and _is_local(installation.url.url)):
        print_line()
        print_line(f"SSO_BASE_URL is {base_url}: applications on other hosts cannot reach it.")
        print_line("Set it to the public URL of this server before you use what follows.")
    print_line()
    if len(ways) > 1:
        print_line(f"{preset.title} can be set up in {len(ways)} ways: {', '.join(ways)}.")
        print_line("Choose one. Do the parts that are marked with it, and those without a mark.")
    else:
        print_line(f"Now set {preset.title} up:")
    for block in blocks:
        way = f"[{block.alternative}] " if len(ways) > 1 and block.alternative else ""
        print_line()
        print_line(f"## {way}{block.title}")
        if block.where:
            print_line(f"## {block.where}")
        print_line()
        for line in block.text.split("\n"):
            print_line(line)
    if preset.options:
        print_line()
        print_line("Options, as registered:")
        for name, option in preset.options.items():
            print_paragraph(f"{name}={installation.options[name]}", "- ")
            print_paragraph(option.help, "  ")
        if any(name.endswith("group") for name in preset.options):
            print_line("To put someone into a group, which need not exist:")
            print_line(f"  {COMMAND} user update WHO --add-group NAME")
    for name in preset.requires:
        if name != "email":  # everybody has one
            claim = "--email-verified" if name == "email_verified" else f"--claim {name}=…"
            print_line()
            print_line(f"Everyone who uses {preset.title} needs {name}; operators can set it:")
            print_line(f"  {COMMAND} user update WHO {claim}")
    if preset.notes:
        print_line()
        print_line("Good to know:")
        for note in preset.notes:
            print_paragraph(note.text, "- ")
    if home_url := installations.home_url(installation, base_url):
        print_line()
        print_line(f"Then sign in at {home_url}")


def _is_local(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname)


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
    every = loader.every()
    if as_json:
        print_json([_as_json(preset) for preset in every])
        return
    print_table(
        ("NAME", "TITLE", "TESTS", "SUMMARY"),
        [
            (preset.name, preset.title, "run" if preset.test else "not run", preset.summary)
            for preset in every
        ],
    )
    print_line()
    print_line("run: we run it against the application itself; not run: only its documentation or")
    print_line(f"code was read. To see what an application needs:  {COMMAND} client presets NAME")


def _as_json(preset: Preset) -> dict[str, Any]:
    return {
        **dataclasses.asdict(preset),
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
