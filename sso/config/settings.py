"""Every setting: its name, default, meaning and check.

A field of `Settings` is set by the environment variable of its name with `SSO_` in front, or by the
file that the same variable with `_FILE` appended names (see `config.reading`).
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sso.config import checks, database_url
from sso.config.checks import number
from sso.i18n import N_

DEFAULT_BASE_URL = "http://127.0.0.1:5000/api/auth"
DAY = 24 * 3600
YEAR = 366 * DAY


def _setting(
    default: Any, meaning: str, read: Callable[[str], Any], *, secret: bool = False
) -> Any:
    return field(metadata={"default": default, "meaning": meaning, "read": read, "secret": secret})


@dataclass(frozen=True)
class Settings:
    """The settings in force. All lifetimes are seconds."""

    base_url: str = _setting(
        DEFAULT_BASE_URL,
        "public base URL and issuer; must be https, except on loopback",
        checks.base_url,
    )
    database_url: str = _setting(
        None,
        "database, as an SQLAlchemy URL; without it, an SQLite file in instance/",
        database_url.checked,
        secret=True,
    )
    secret_key: str = _setting(
        None,
        "signs cookies and encrypts keys at rest; without it, generated once in instance/",
        checks.secret_key,
        secret=True,
    )
    secret_key_previous: str | None = _setting(
        None,
        "the old secret key while you replace it; only used for reading",
        checks.secret_key,
        secret=True,
    )
    redis_url: str | None = _setting(
        None,
        "Redis or Valkey, which shares rate limits; without it, each process counts separately",
        checks.deferred("sso.config.redis_url:checked"),
        secret=True,
    )
    smtp_url: str | None = _setting(
        None,
        "outgoing mail server; without it, mail is written to the log",
        checks.deferred("sso.config.smtp:checked"),
        secret=True,
    )
    mail_from: str | None = _setting(
        None,
        "sender address of mail; without it, no-reply@ and the host of the base URL",
        checks.deferred("sso.config.email_addresses:sender"),
    )
    sign_up: str = _setting(
        "off",
        "who can sign up: off, open, or a list of email domains",
        checks.sign_up,
    )
    account_deletion: str = _setting(
        "off", "whether people can delete their own accounts: on or off", checks.one_of("on", "off")
    )
    name: str | None = _setting(
        None,
        "name of the company or service, on pages, in mail and in authenticator apps",
        checks.deferred("sso.config.branding:name"),
    )
    logo_file: str | None = _setting(
        None,
        "path of a logo for all pages: PNG, JPEG, WebP or SVG, at most 256 kB",
        checks.deferred("sso.config.branding:logo_file"),
    )
    accent_color: str | None = _setting(
        None,
        "color of buttons and links, such as #2f5bea; readable in light or dark mode by WCAG AA",
        checks.deferred("sso.config.colors:accent"),
    )
    templates_dir: str | None = _setting(
        None,
        "folder with blocks of pages, texts of mail and CSS to use besides the built-in ones",
        checks.deferred("sso.config.overrides:checked"),
    )
    support_url: str | None = _setting(
        None,
        "where people get help, linked from every page and mail: an https or mailto: URL",
        checks.support_url,
    )
    privacy_url: str | None = _setting(
        None,
        "https URL of the privacy policy, linked from every page and mail",
        checks.deferred("sso.config.branding:page_url"),
    )
    terms_url: str | None = _setting(
        None,
        "https URL of the terms of service, linked from every page and mail",
        checks.deferred("sso.config.branding:page_url"),
    )
    admin_group: str = _setting(
        "sso-administrators",
        "group whose members may administer this server in the browser",
        checks.group,
    )
    helpdesk_group: str = _setting(
        "sso-helpdesk",
        "group whose members may help people in the browser: invitations, second factors, sessions",
        checks.group,
    )
    upstream_file: str | None = _setting(
        None,
        "path of a TOML file with the identity providers that people may sign in through",
        checks.deferred("sso.config.upstream.file:checked"),
    )
    language: str = _setting(
        "en",
        "language of mail to people who have not chosen one, and of pages for browsers that ask "
        "for none that is known: en, de, fr, es, ja or ar",
        checks.one_of("en", "de", "fr", "es", "ja", "ar"),
    )
    time_zone: str = _setting(
        "UTC",
        "time zone of pages and mail for people without the claim zoneinfo, such as Europe/Berlin",
        checks.deferred("sso.i18n.times:zone_name"),
    )
    trusted_proxies: int = _setting(
        0, "number of reverse proxies whose X-Forwarded-* headers are trusted", number(0, 10)
    )
    access_token_lifetime: int = _setting(
        3600, "seconds for which an access token is valid", number(1, DAY)
    )
    authorization_code_lifetime: int = _setting(
        60, "seconds for which an authorization code is valid, at most 600", number(1, 600)
    )
    refresh_token_lifetime: int = _setting(
        30 * DAY, "seconds from the last use until a refresh token expires", number(1, YEAR)
    )
    refresh_token_leeway: int = _setting(
        10,
        "seconds in which repeating a refresh returns the same new token to a confidential client; "
        "0 disables this",
        number(0, 3600),
    )  # fmt: skip
    refresh_token_absolute_lifetime: int = _setting(
        365 * DAY,
        "seconds from the approval until its refresh tokens end, even if used",
        number(1, 10 * YEAR),
    )
    dpop_nonce: str = _setting(
        "optional",
        "required: every DPoP proof needs a nonce of this server",
        checks.one_of("optional", "required"),
    )
    session_lifetime: int = _setting(
        14 * DAY, "seconds from the last use until a browser session ends", number(60, YEAR)
    )
    session_absolute_lifetime: int = _setting(
        90 * DAY, "seconds from the sign-in until the session ends, even if used",
        number(60, 2 * YEAR),
    )  # fmt: skip
    invitation_lifetime: int = _setting(
        7 * DAY, "seconds for which an invitation is valid", number(60, YEAR)
    )
    key_lifetime: int = _setting(
        90 * DAY, "seconds after which the worker rotates the signing keys", number(DAY, 10 * YEAR)
    )
    audit_lifetime: int = _setting(
        400 * DAY, "seconds for which audit events are kept", number(DAY, 20 * YEAR)
    )
    metrics_port: int | None = _setting(
        None, "port of the Prometheus exporter; without it, nothing is counted", number(1, 65535)
    )
    metrics_address: str = _setting(
        "127.0.0.1",
        "IP address that the exporter listens on; keep it private",
        checks.ip,
    )
    log_format: str = _setting(
        "text", "text for people, json for programs", checks.one_of("text", "json")
    )

    @property
    def secret_keys(self) -> tuple[str, ...]:
        """The secret key, followed by the previous one, which is accepted for reading."""
        previous = self.secret_key_previous
        return (self.secret_key, previous) if previous else (self.secret_key,)

    @property
    def signing_secrets(self) -> list[str]:
        """The same for itsdangerous: all of them verify, the last one signs."""
        return list(reversed(self.secret_keys))

    @property
    def issuer(self) -> str:
        """The issuer identifier (OIDC Core §1.2): the base URL."""
        return self.base_url

    @property
    def base_path(self) -> str:
        """The path prefix of every URL, such as `/api/auth`; may be empty."""
        return urlsplit(self.base_url).path

    @property
    def footer_links(self) -> list[tuple[str, str]]:
        """What each page and mail links to: the text, to be translated, and the URL."""
        links = (
            (N_("Help"), self.support_url),
            (N_("Privacy policy"), self.privacy_url),
            (N_("Terms of service"), self.terms_url),
        )
        return [(text, url) for text, url in links if url]

    @property
    def is_https(self) -> bool:
        return self.base_url.startswith("https:")


@dataclass(frozen=True)
class Setting:
    """One variable. `read` turns its text into a value; it raises `ValueError` with the remedy."""

    name: str
    default: Any
    meaning: str
    read: Callable[[str], Any]
    secret: bool


SETTINGS = tuple(Setting(f"SSO_{one.name.upper()}", **one.metadata)
                 for one in dataclasses.fields(Settings))  # fmt: skip
