"""`flask settings`: every setting, its value, where it came from, and every fault.

It is an entry point of the group `flask.commands`, because it has to run when faults keep the
application from starting.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from sso.cli.commands import Failure, json_option
from sso.cli.output import HIDDEN, print_json, print_line, print_record
from sso.settings import SETTINGS, SettingsError, load_settings, read_settings


@click.command("settings")
@json_option
def settings_command(as_json: bool) -> None:
    """Show every setting, its value, where it came from, and every fault."""
    reading = read_settings(os.environ)
    shown = [
        {
            "name": setting.name,
            "value": _value(reading.values[setting.name], setting.secret),
            "source": reading.sources[setting.name],
            "default": setting.default,
            "meaning": setting.meaning,
        }
        for setting in SETTINGS
    ]
    faults = _faults()
    if as_json:
        print_json({"settings": shown, "faults": faults})
    else:
        for entry in shown:
            value = "-" if entry["value"] is None else entry["value"]
            print_line(f"{entry['name']} = {value}")
            print_record([("    from", entry["source"]), ("    is", entry["meaning"])])
        for fault in faults:
            print_line(f"Fault: {fault}")
    if faults:
        raise Failure(f"the settings have {len(faults)} fault{'s' * (len(faults) > 1)}")


def _value(value: object, secret: bool) -> object:
    return HIDDEN if secret and value is not None else value


def _faults() -> list[str]:
    """Every fault that would stop the start."""
    # Loading makes a secret key in the instance folder when there is none: not in the real one.
    with TemporaryDirectory() as scratch:
        try:
            load_settings(os.environ, Path(scratch))
        except SettingsError as error:
            return error.faults
    return []
