"""What `flask settings` and administration show of the settings: values, where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass

from sso.config import branding
from sso.config.branding import Branding
from sso.config.settings import SETTINGS, Settings, read_settings
from sso.observability.redaction import redact

HIDDEN = "••••"
DEFAULT, ENVIRONMENT, PROGRAM = "default", "environment", "program"
DATABASE = "database"


@dataclass(frozen=True)
class SettingValue:
    """A setting in use. `source`: one of the constants, or the variable of a file."""

    name: str
    value: object
    source: str
    meaning: str


def without_secrets(value: object, *, is_secret: bool) -> object:
    """Return what may be shown of a value; a URL is shown without its password."""
    if not is_secret or value is None:
        return value
    return redact(str(value)) if "://" in str(value) else HIDDEN


def of_database(stored: Branding) -> dict[str, str]:
    """Return the values of settings that the database has; of the logo, its type and size."""
    return {
        branding.setting_of(name): (
            f"{value.media_type}, {len(value.data)} bytes" if name == "logo" else value
        )
        for name, value in stored.set_fields.items()
    }


def in_use(settings: Settings, environ: Mapping[str, str], stored: Branding) -> list[SettingValue]:
    """Return the settings that this process runs with; `stored`: what is in the database.

    What neither the environment nor the table has was chosen by the program that started the
    server, or made in `instance/`.
    """
    sources, in_database = read_settings(environ).sources, of_database(stored)
    values = []
    for setting in SETTINGS:
        value = getattr(settings, setting.name.removeprefix("SSO_").lower())
        source = sources.get(setting.name)
        if source is None:
            source = DEFAULT if value == setting.default else PROGRAM
            if source == DEFAULT and setting.name in in_database:
                source, value = DATABASE, in_database[setting.name]
        elif source == setting.name:
            source = ENVIRONMENT
        text = without_secrets(value, is_secret=setting.secret)
        values.append(SettingValue(setting.name, text, source, setting.meaning))
    return values
