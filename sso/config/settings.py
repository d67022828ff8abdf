"""The settings in force, read from the environment.

Each one also from a file named in the same variable with `_FILE` added. Every fault is found in one
reading, so that an operator mends them all at once.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sso.config.known_settings import SETTINGS, Setting
from sso.config.secret_key import embedded_secret_key
from sso.errors import SettingsError

SAME_KEY = (
    "SSO_SECRET_KEY_PREVIOUS: it is the same as SSO_SECRET_KEY; give the one before it, or none"
)


@dataclass(frozen=True)
class Reading:
    """What was read: values by variable name, where each came from, and every fault."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Settings:
    """The settings in force; see `SETTINGS` for the meaning of each."""

    base_url: str
    database_url: str
    secret_key: str
    secret_key_previous: str | None
    redis_url: str | None
    smtp_url: str | None
    mail_from: str | None
    sign_up: str
    trusted_proxies: int
    access_token_lifetime: int
    authorization_code_lifetime: int
    refresh_token_lifetime: int
    refresh_token_leeway: int
    refresh_token_absolute_lifetime: int
    session_lifetime: int
    session_absolute_lifetime: int
    invitation_lifetime: int
    key_lifetime: int
    audit_lifetime: int
    metrics_port: int | None
    metrics_address: str
    log_format: str

    @property
    def secret_keys(self) -> tuple[str, ...]:
        """The secret key, and after it the one that is accepted for reading."""
        previous = self.secret_key_previous
        return (self.secret_key, previous) if previous else (self.secret_key,)

    @property
    def signing_secrets(self) -> list[str]:
        """The same for itsdangerous: all of them verify, the last one signs."""
        return list(reversed(self.secret_keys))

    @property
    def issuer(self) -> str:
        """The issuer identifier (OIDC Core §1.2): the base address."""
        return self.base_url

    @property
    def base_path(self) -> str:
        """The path prefix of every address, such as `/api/auth`; may be empty."""
        return urlsplit(self.base_url).path

    @property
    def is_https(self) -> bool:
        return self.base_url.startswith("https:")


def read_settings(environ: Mapping[str, str]) -> Reading:
    """Read every setting; never raises, faults are listed in the answer."""
    reading = Reading()
    known = {s.name for s in SETTINGS} | {f"{s.name}_FILE" for s in SETTINGS}
    for name in sorted(set(environ)):
        if name.startswith("SSO_") and name not in known:
            reading.errors.append(f"{name}: no setting has this name; remove it or mend the name")
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
    except ValueError as error:
        shown = "the value" if setting.secret else repr(text)
        reading.errors.append(f"{name}: {shown} is not valid: {error}")


def load_settings(environ: Mapping[str, str], instance: Path) -> Settings:
    """The settings in force. Raises `SettingsError` with every fault at once."""
    reading = read_settings(environ)
    if os.environ.get("AUTHLIB_INSECURE_TRANSPORT"):
        reading.errors.append(
            "AUTHLIB_INSECURE_TRANSPORT: it turns https checks off in Authlib; unset it"
        )
    given, previous = (reading.values[f"SSO_SECRET_KEY{end}"] for end in ("", "_PREVIOUS"))
    if given and given == previous:
        reading.errors.append(SAME_KEY)
    if reading.errors:
        raise SettingsError(reading.errors)
    values = dict(reading.values)
    instance.mkdir(parents=True, exist_ok=True)
    values["SSO_DATABASE_URL"] = values["SSO_DATABASE_URL"] or f"sqlite:///{instance / 'sso.db'}"
    values["SSO_SECRET_KEY"] = values["SSO_SECRET_KEY"] or embedded_secret_key(instance)
    if values["SSO_SECRET_KEY"] == values["SSO_SECRET_KEY_PREVIOUS"]:
        raise SettingsError([SAME_KEY])
    return Settings(**{name.removeprefix("SSO_").lower(): value for name, value in values.items()})
