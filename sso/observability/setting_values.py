"""What `flask settings` and administration show of the settings: values, where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass

from sso.config.settings import SETTINGS, Settings, read_settings
from sso.observability.redaction import redact

HIDDEN = "••••"
DEFAULT, ENVIRONMENT, PROGRAM = "default", "environment", "program"


@dataclass(frozen=True)
class SettingValue:
    """A setting in use. `source`: `DEFAULT`, `ENVIRONMENT`, `PROGRAM` or the variable of a file."""

    name: str
    value: object
    source: str
    meaning: str


def without_secrets(value: object, *, is_secret: bool) -> object:
    """Return what may be shown of a value; a URL is shown without its password."""
    if not is_secret or value is None:
        return value
    return redact(str(value)) if "://" in str(value) else HIDDEN


def in_use(settings: Settings, environ: Mapping[str, str]) -> list[SettingValue]:
    """Return the settings that this process runs with.

    What neither the environment nor the table has was chosen by the program that started the
    server, or made in `instance/`.
    """
    sources = read_settings(environ).sources
    values = []
    for setting in SETTINGS:
        value = getattr(settings, setting.name.removeprefix("SSO_").lower())
        source = sources.get(setting.name)
        if source is None:
            source = DEFAULT if value == setting.default else PROGRAM
        elif source == setting.name:
            source = ENVIRONMENT
        text = without_secrets(value, is_secret=setting.secret)
        values.append(SettingValue(setting.name, text, source, setting.meaning))
    return values
