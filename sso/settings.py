"""Every setting: name, meaning, unit, default, check. The docstrings below are the manual.

Settings come from the environment, each one also from a file named in the same variable with
`_FILE` added. Every fault is found in one reading, so that an operator mends them all at once.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sso import setting_checks
from sso.secret_key import embedded_secret_key
from sso.setting_checks import base_url, database_url, ip, number, one_of, secret_key, url

DEFAULT_BASE_URL = "http://127.0.0.1:5000/api/auth"
YEAR = 366 * 24 * 3600


class SettingsError(Exception):
    """The settings have faults; `faults` has one line for each, with the mend."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


@dataclass(frozen=True)
class Setting:
    """One variable: its name, default, meaning, and the check that turns text into a value."""

    name: str
    default: Any
    meaning: str
    read: Callable[[str], Any]
    secret: bool = False


@dataclass(frozen=True)
class Reading:
    """What was read: values by variable name, where each came from, and every fault."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


SETTINGS = (
    Setting(
        "SSO_BASE_URL",
        DEFAULT_BASE_URL,
        "public base address and issuer; anything but loopback must be https",
        base_url,
    ),
    Setting(
        "SSO_DATABASE_URL",
        None,
        "SQLAlchemy URL; without it, an SQLite file in instance/",
        database_url,
        secret=True,
    ),
    Setting(
        "SSO_SECRET_KEY",
        None,
        "signs browser cookies, seals keys at rest; without it, made once in instance/",
        secret_key,
        secret=True,
    ),
    Setting(
        "SSO_REDIS_URL",
        None,
        "rate limits shared by all processes and nodes",
        url("redis", "rediss"),
        secret=True,
    ),
    Setting(
        "SSO_SMTP_URL",
        None,
        "outgoing mail; without it, mail goes to the log",
        setting_checks.smtp_url,
        secret=True,
    ),
    Setting(
        "SSO_MAIL_FROM",
        None,
        "sender of mails; without it, no-reply@ the host of the base address",
        setting_checks.email_address,
    ),
    Setting(
        "SSO_SIGN_UP",
        "off",
        "who may make an account: off, open, or domains of e-mail addresses",
        setting_checks.sign_up,
    ),
    Setting(
        "SSO_TRUSTED_PROXIES",
        0,
        "number of reverse proxies in front whose X-Forwarded-* is believed",
        number(0, 10),
    ),
    Setting(
        "SSO_ACCESS_TOKEN_LIFETIME", 3600, "seconds an access token lives", number(1, 24 * 3600)
    ),
    Setting(
        "SSO_AUTHORIZATION_CODE_LIFETIME",
        60,
        "seconds an authorization code lives (RFC 6749 §4.1.2: at most 600)",
        number(1, 600),
    ),
    Setting(
        "SSO_REFRESH_TOKEN_LIFETIME",
        2_592_000,
        "seconds a refresh token lives since its last use",
        number(1, YEAR),
    ),
    Setting(
        "SSO_REFRESH_TOKEN_LEEWAY",
        10,
        "seconds in which a repeated refresh gets the same successor; 0 is strict",
        number(0, 3600),
    ),
    Setting(
        "SSO_SESSION_LIFETIME",
        1_209_600,
        "seconds a browser session lives since its last use",
        number(60, YEAR),
    ),
    Setting(
        "SSO_SESSION_ABSOLUTE_LIFETIME",
        7_776_000,
        "seconds after which a sign-in ends, however much it is used",
        number(60, 2 * YEAR),
    ),
    Setting(
        "SSO_KEY_LIFETIME",
        7_776_000,
        "seconds after which the worker rotates the signing keys",
        number(24 * 3600, 10 * YEAR),
    ),
    Setting(
        "SSO_AUDIT_LIFETIME",
        34_560_000,
        "seconds for which audit events are kept",
        number(24 * 3600, 20 * YEAR),
    ),
    Setting(
        "SSO_METRICS_PORT",
        None,
        "port for Prometheus; without it, nothing is counted",
        number(1, 65535),
    ),
    Setting(
        "SSO_METRICS_ADDRESS",
        "127.0.0.1",
        "address on which that port listens; keep it away from the public",
        ip,
    ),
    Setting(
        "SSO_LOG_FORMAT",
        "text",
        "text for people, json for programs: a line each",
        one_of("text", "json"),
    ),
)


@dataclass(frozen=True)
class Settings:
    """The settings in force; see `SETTINGS` for the meaning of each."""

    base_url: str
    database_url: str
    secret_key: str
    redis_url: str | None
    smtp_url: str | None
    mail_from: str | None
    sign_up: str
    trusted_proxies: int
    access_token_lifetime: int
    authorization_code_lifetime: int
    refresh_token_lifetime: int
    refresh_token_leeway: int
    session_lifetime: int
    session_absolute_lifetime: int
    key_lifetime: int
    audit_lifetime: int
    metrics_port: int | None
    metrics_address: str
    log_format: str

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
            reading.faults.append(f"{name}: no setting has this name; remove it or mend the name")
    for setting in SETTINGS:
        _read_one(setting, environ, reading)
    return reading


def _read_one(setting: Setting, environ: Mapping[str, str], reading: Reading) -> None:
    name, text, path = setting.name, environ.get(setting.name), environ.get(f"{setting.name}_FILE")
    reading.values[name], reading.sources[name] = setting.default, "default"
    if text and path:
        reading.faults.append(f"{name}: given both itself and as {name}_FILE; keep one of them")
        return
    if path:
        try:
            text = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            reading.faults.append(f"{name}_FILE: the file cannot be read; check its path and mode")
            return
    if not text:
        return
    reading.sources[name] = f"{name}_FILE" if path else "environment"
    try:
        reading.values[name] = setting.read(text)
    except ValueError as error:
        shown = "the value" if setting.secret else repr(text)
        reading.faults.append(f"{name}: {shown} does not do: {error}")


def load_settings(environ: Mapping[str, str], instance: Path) -> Settings:
    """The settings in force. Raises `SettingsError` with every fault at once."""
    reading = read_settings(environ)
    if os.environ.get("AUTHLIB_INSECURE_TRANSPORT"):
        reading.faults.append(
            "AUTHLIB_INSECURE_TRANSPORT: it turns https checks off in Authlib; unset it"
        )
    if reading.faults:
        raise SettingsError(reading.faults)
    values = dict(reading.values)
    instance.mkdir(parents=True, exist_ok=True)
    values["SSO_DATABASE_URL"] = values["SSO_DATABASE_URL"] or f"sqlite:///{instance / 'sso.db'}"
    values["SSO_SECRET_KEY"] = values["SSO_SECRET_KEY"] or embedded_secret_key(instance)
    return Settings(**{name.removeprefix("SSO_").lower(): value for name, value in values.items()})
