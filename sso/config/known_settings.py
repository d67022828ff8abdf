"""Every setting there is: name, default, meaning, unit, check."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sso.config import setting_checks
from sso.config.setting_checks import base_url, database_url, ip, number, one_of, secret_key, url

DEFAULT_BASE_URL = "http://127.0.0.1:5000/api/auth"
YEAR = 366 * 24 * 3600


@dataclass(frozen=True)
class Setting:
    """One variable: its name, default, meaning, and the check that turns text into a value."""

    name: str
    default: Any
    meaning: str
    read: Callable[[str], Any]
    secret: bool = False


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
        "SSO_SECRET_KEY_PREVIOUS",
        None,
        "the secret key before this one, while it is being replaced: read with it, never written",
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
        "who may make an account: off, open, or domains of email addresses",
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
        "SSO_REFRESH_TOKEN_ABSOLUTE_LIFETIME",
        31_536_000,
        "seconds from the approval to the end of its refresh tokens, however much they are used",
        number(1, 10 * YEAR),
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
        "SSO_INVITATION_LIFETIME",
        604_800,
        "seconds for which an invitation can be accepted",
        number(60, YEAR),
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
