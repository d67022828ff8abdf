"""`flask settings`: show every setting, its value, its source, and all errors.

It is an entry point of the group `flask.commands`, because it also runs when errors keep the
application from starting.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from sso import context, create_core
from sso.cli.commands import Failure, json_option
from sso.cli.output import print_json, print_line, print_record
from sso.config.settings import SETTINGS, load_settings, read_settings
from sso.errors import SettingsError
from sso.observability.setting_values import DATABASE, of_database, without_secrets


@click.command("settings")
@json_option
def settings_command(as_json: bool) -> None:
    """Show every setting, its value, where it came from, and every error."""
    reading = read_settings(os.environ)
    faults = _faults()
    refused = {fault.partition(":")[0] for fault in faults}
    in_database = _in_database(faults)
    entries = []
    for setting in SETTINGS:
        name, value, source = setting.name, None, "refused"
        if not {name, f"{name}_FILE"} & refused:  # a default would mislead
            value = without_secrets(reading.values[name], is_secret=setting.secret)
            source = reading.sources.get(name, "default")
            source = "environment" if source == name else source
            if source == "default" and name in in_database:
                value, source = in_database[name], DATABASE
        entries.append(
            {
                "name": name,
                "value": value,
                "source": source,
                "default": setting.default,
                "meaning": setting.meaning,
            }
        )
    if as_json:
        print_json({"settings": entries, "faults": faults})
    else:
        for entry in entries:
            value = "-" if entry["value"] is None else entry["value"]
            print_line(f"{entry['name']} = {value}")
            print_record([("    from", entry["source"]), ("    is", entry["meaning"])])
        for fault in faults:
            print_line(f"Fault: {fault}")
    if faults:
        raise Failure(f"the settings have {len(faults)} fault{'s' * (len(faults) > 1)}")


def _in_database(faults: Sequence[str]) -> dict[str, str]:
    """Return the settings that the database has; none if the server could not start."""
    if faults:
        return {}
    with create_core().app_context():
        return of_database(context.branding())


def _faults() -> list[str]:
    """Return all errors that would keep the server from starting."""
    # Loading generates a missing secret key: not in the real instance folder.
    with TemporaryDirectory() as scratch:
        try:
            load_settings(os.environ, Path(scratch))
        except SettingsError as error:
            return error.errors
    return []
