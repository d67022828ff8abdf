"""Reads the settings from environment variables and files. All errors are reported at once."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sso.config import checks
from sso.config.settings import SETTINGS, Setting, Settings
from sso.errors import SettingsError

SAME_KEY = (
    "SSO_SECRET_KEY_PREVIOUS: it is the same as SSO_SECRET_KEY; give the one before it, or none"
)


@dataclass(frozen=True)
class Reading:
    """What was read: values by variable name, where each came from, and every error."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def read_settings(environ: Mapping[str, str]) -> Reading:
    """Read every setting. Never raises: the errors are listed in the answer."""
    reading = Reading()
    known = {s.name for s in SETTINGS} | {f"{s.name}_FILE" for s in SETTINGS}
    for name in sorted(set(environ)):
        if name.startswith("SSO_") and name not in known:
            meant = get_close_matches(name, sorted(known), n=1, cutoff=0.8)
            fix = f"did you mean {meant[0]}?" if meant else "remove or correct it"
            reading.errors.append(f"{name}: no setting has this name; {fix}")
    for setting in SETTINGS:
        _read_one(setting, environ, reading)
    return reading


def _read_one(setting: Setting, environ: Mapping[str, str], reading: Reading) -> None:
    name, text, path = setting.name, environ.get(setting.name), environ.get(f"{setting.name}_FILE")
    reading.values[name], reading.sources[name] = setting.default, "default"
    if text and path:
        reading.errors.append(f"{name}: given both itself and as {name}_FILE; keep one of them")
        return
    if path:
        try:
            text = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            reading.errors.append(f"{name}_FILE: the file cannot be read; check its path and mode")
            return
    if not text:
        return
    reading.sources[name] = f"{name}_FILE" if path else "environment"
    try:
        reading.values[name] = setting.read(text)
    except checks.ManyErrors as error:
        reading.errors.extend(f"{name}: {one}" for one in error.errors)
    except ValueError as error:
        shown = "the value" if setting.secret else repr(text)
        reading.errors.append(f"{name}: {shown} is not valid: {error}")


def load_settings(environ: Mapping[str, str], instance: Path) -> Settings:
    """The settings in force. Raises `SettingsError` with every error at once."""
    reading = read_settings(environ)
    if os.environ.get("AUTHLIB_INSECURE_TRANSPORT"):
        reading.errors.append(
            "AUTHLIB_INSECURE_TRANSPORT: it turns https checks off in Authlib; unset it"
        )
    given, previous = (reading.values[f"SSO_SECRET_KEY{end}"] for end in ("", "_PREVIOUS"))
    if given and given == previous:
        reading.errors.append(SAME_KEY)
    if reading.values["SSO_ADMIN_GROUP"] == reading.values["SSO_HELPDESK_GROUP"]:
        reading.errors.append("SSO_HELPDESK_GROUP: it is the same as SSO_ADMIN_GROUP")
    if reading.errors:
        raise SettingsError(reading.errors)
    values = {name.removeprefix("SSO_").lower(): value for name, value in reading.values.items()}
    instance.mkdir(parents=True, exist_ok=True)
    values["database_url"] = values["database_url"] or f"sqlite:///{instance / 'sso.db'}"
    values["secret_key"] = given or checks.embedded_secret_key(instance)
    if values["secret_key"] == previous:
        raise SettingsError([SAME_KEY])
    return Settings(**values)
