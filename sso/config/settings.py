"""The settings: the name, meaning, check and default of each, and how they are read.

Each field of `Settings` is read from the environment: `base_url` from `SSO_BASE_URL`, or from the
file that `SSO_BASE_URL_FILE` names. The command `sso` also reads the environment file of the
systemd units. Checks turn text into values, or raise `ValueError` with the remedy; all errors are
reported at once.
"""

import os
import secrets
import shlex
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import click

from sso.config import connections, issuers, role_settings
from sso.config.tables import (
    Error,
    Field,
    ManyErrors,
    Read,
    Reading,
    TableReader,
    checked_group,
    checked_name,
    fields_of,
    hint,
    itself,
    key,
    one_of,
)
from sso.config.urls import ENDPOINTS, MAX_LENGTH, is_loopback, strict_url_error
from sso.errors import SettingsError
from sso.i18n.message import Message
from sso.process.concurrency import MAX_BODY
from sso.process.program import late_function


def checked_base_url(text: str) -> str:
    error = strict_url_error(text)
    parts = urlsplit(text) if error is None else None
    if parts is None:
        raise ValueError(f"{error}; give a URL such as https://login.example.com/api/auth")
    if parts.query or parts.fragment or text.endswith("/"):
        raise ValueError("it has a query, a fragment or a final slash; leave them off")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError(
            "it is plain http, which only localhost, 127.0.0.1 and [::1] may use; give an https URL"
        )
    if parts.scheme not in ("http", "https"):
        raise ValueError("give an https URL")
    return text


def checked_secret_key(text: str) -> str:
    if len(text) < 32:
        raise ValueError("it is shorter than 32 characters; give a long random one")
    return text


_normalized = late_function("sso.config.email_addresses:normalized")
_domains = late_function("sso.config.email_addresses:domains")


def checked_support_url(text: str) -> str:
    if text.startswith("mailto:") and len(text) <= MAX_LENGTH:
        email, _, query = text.removeprefix("mailto:").partition("?")
        _normalized(email)
        if query and strict_url_error(f"https://x/?{query}"):
            raise ValueError(Message("percent-encode what stands behind the question mark"))
        return text
    error = strict_url_error(text)
    if error or not text.startswith("https://"):
        raise ValueError(Message("give an https URL, or mailto: and an email address"))
    return text


def checked_page_url(text: str) -> str:
    error = strict_url_error(text)
    if error or not text.startswith("https://"):
        reason = error or Message("it is not https")
        raise ValueError(
            Message("%(reason)s; give a URL such as https://example.com/…", reason=reason)
        )
    return text


def checked_number(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text[:12]) <= high):
            raise ValueError(f"give a whole number from {low} to {high}")
        return int(text)

    return read


def checked_ip(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError("give an IP address such as 127.0.0.1") from None


def checked_sign_up(text: str) -> str:
    """Check `open`, `off`, or domains."""
    is_mode = text in ("off", "open")
    return text if is_mode else str(_domains(text))


def embedded_secret_key(instance: Path) -> str:
    """Return the secret key in `instance/secret_key`, generated once, for its owner only."""
    path = instance / "secret_key"
    if not path.exists():
        # Written under another name and linked: if several processes start at once, one wins, and
        # none reads half a key.
        fresh = instance / f".secret_key.{secrets.token_hex(8)}"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return path.read_text().strip()


DEFAULT_BASE_URL = "http://127.0.0.1:5000/api/auth"
DAY = 24 * 3600
YEAR = 366 * DAY


class HasIssuer(Protocol):
    """The part of a client's registration that chooses its issuer."""

    @property
    def issuer(self) -> str | None: ...


@dataclass(frozen=True)
class Settings:
    """All settings. Lifetimes are seconds."""

    base_url: str = key(
        "public base URL and issuer; must be https, except on loopback",
        checked_base_url,
        DEFAULT_BASE_URL,
    )
    issuer_aliases: str | None = key(
        "issuers of earlier servers, under which this server answers as well, each with the form "
        "of its addresses: https://login.example.com/realms/main=keycloak, or =authentik, "
        "=authelia, =pocket-id; separated by spaces",
        issuers.checked,
        None,
    )
    database_url: str = key(
        "database, as an SQLAlchemy URL; without it, an SQLite file in instance/",
        connections.checked_database_url,
        None,
        secret=True,
    )
    secret_key: str = key(
        "signs cookies and encrypts keys at rest; without it, generated once in instance/",
        checked_secret_key,
        None,
        secret=True,
    )
    secret_key_previous: str | None = key(
        "the old secret key while you replace it; only used for reading",
        checked_secret_key,
        None,
        secret=True,
    )
    redis_url: str | None = key(
        "Redis or Valkey, which shares rate limits; without it, each process counts separately",
        late_function("sso.config.connections:checked_redis_url"),
        None,
        secret=True,
    )
    smtp_url: str | None = key(
        "outgoing mail server; without it, mail is written to the log",
        late_function("sso.config.smtp:checked"),
        None,
        secret=True,
    )
    mail_from: str | None = key(
        "sender address of mail; without it, no-reply@ and the host of the base URL",
        late_function("sso.config.email_addresses:sender"),
        None,
    )
    sign_up: str = key(
        "who can sign up: off, open, or a list of email domains", checked_sign_up, "off"
    )
    mail_codes: str = key(
        "whether people can sign in with a code that is sent by email, instead of a password: on "
        "or off",
        one_of("on", "off"),
        "off",
    )
    account_deletion: str = key(
        "whether people can delete their own accounts: on or off", one_of("on", "off"), "off"
    )
    name: str | None = key(
        "name of the company or service, on pages, in mail and in authenticator apps",
        checked_name,
        None,
    )
    logo_file: str | None = key(
        "path of a logo for all pages: PNG, JPEG, WebP or SVG, at most 256 kB",
        late_function("sso.config.images:checked_logo_file"),
        None,
    )
    accent_color: str | None = key(
        "color of buttons and links, such as #2f5bea; readable in light or dark mode by WCAG AA",
        late_function("sso.config.colors:accent"),
        None,
    )
    templates_dir: str | None = key(
        "folder with blocks of pages, texts of mail and CSS to use besides the built-in ones",
        late_function("sso.config.overrides:checked"),
        None,
    )
    support_url: str | None = key(
        "where people get help, linked from every page and mail: an https or mailto: URL",
        checked_support_url,
        None,
    )
    privacy_url: str | None = key(
        "https URL of the privacy policy, linked from every page and mail",
        checked_page_url,
        None,
    )
    terms_url: str | None = key(
        "https URL of the terms of service, linked from every page and mail",
        checked_page_url,
        None,
    )
    terms_version: str | None = key(
        "version of the terms of service, such as 2026-11; people must accept it before they go on "
        "to applications, and again when it changes",
        checked_name,
        None,
    )
    admin_group: str = key(
        "group whose members may administer this server in the browser",
        checked_group,
        "sso-administrators",
    )
    helpdesk_group: str = key(
        "group whose members may help people in the browser: invitations, second factors, sessions",
        checked_group,
        "sso-helpdesk",
    )
    admin_roles: str | None = key(
        "groups whose members have some permissions of the administration in the browser, each "
        "with its permissions: auditors=audit people-read, wiki=applications",
        role_settings.checked,
        None,
    )
    admin_role_groups: str | None = key(
        "the groups that roles of SSO_ADMIN_ROLES are limited to, with their members: "
        "hr-paris=paris, hr-paris=lyon",
        role_settings.checked_limits("hr-paris=paris, hr-paris=lyon"),
        None,
    )
    admin_role_applications: str | None = key(
        "the applications that roles of SSO_ADMIN_ROLES are limited to, by client ID: "
        "wiki-team=wiki, wiki-team=wiki-test",
        role_settings.checked_limits("wiki-team=wiki, wiki-team=wiki-test"),
        None,
    )
    client_documents: str = key(
        "which client metadata documents identify clients: off, listed (of domains that "
        "mcp allow has named), or any",
        one_of("off", "listed", "any"),
        "off",
    )
    open_registration: str = key(
        "true: applications may register themselves as public clients (RFC 7591)",
        one_of("true", "false"),
        "false",
    )
    upstream_file: str | None = key(
        "path of a TOML file with the identity providers that people may sign in through",
        late_function("sso.config.upstream.file:checked"),
        None,
    )
    language: str = key(
        "language of mail to people who have not chosen one, and of pages for browsers that ask "
        "for none that is known: en, de, fr, es, ja or ar",
        one_of("en", "de", "fr", "es", "ja", "ar"),
        "en",
    )
    time_zone: str = key(
        "time zone of pages and mail for people without the claim zoneinfo, such as Europe/Berlin",
        late_function("sso.i18n.times:zone_name"),
        "UTC",
    )
    trusted_proxies: int = key(
        "number of reverse proxies whose X-Forwarded-* headers are trusted",
        checked_number(0, 10),
        0,
    )
    access_token_lifetime: int = key(
        "seconds for which an access token is valid", checked_number(1, DAY), 3600
    )
    authorization_code_lifetime: int = key(
        "seconds for which an authorization code is valid, at most 600", checked_number(1, 600), 60
    )
    refresh_token_lifetime: int = key(
        "seconds from the last use until a refresh token expires", checked_number(1, YEAR), 30 * DAY
    )
    refresh_token_leeway: int = key(
        "seconds in which repeating a refresh returns the same new token to a confidential client; "
        "0 disables this",
        checked_number(0, 3600),
        10,
    )
    refresh_token_absolute_lifetime: int = key(
        "seconds from the approval until its refresh tokens end, even if used",
        checked_number(1, 10 * YEAR),
        365 * DAY,
    )
    dpop_nonce: str = key(
        "required: every DPoP proof needs a nonce of this server",
        one_of("optional", "required"),
        "optional",
    )
    session_lifetime: int = key(
        "seconds from the last use until a browser session ends", checked_number(60, YEAR), 14 * DAY
    )
    session_absolute_lifetime: int = key(
        "seconds from the sign-in until the session ends, even if used",
        checked_number(60, 2 * YEAR),
        90 * DAY,
    )
    invitation_lifetime: int = key(
        "seconds for which an invitation is valid", checked_number(60, YEAR), 7 * DAY
    )
    key_lifetime: int = key(
        "seconds after which the worker rotates the signing keys",
        checked_number(DAY, 10 * YEAR),
        90 * DAY,
    )
    audit_lifetime: int = key(
        "seconds for which audit events are kept", checked_number(DAY, 20 * YEAR), 400 * DAY
    )
    metrics_port: int | None = key(
        "port of the Prometheus exporter; without it, nothing is counted",
        checked_number(1, 65535),
        None,
    )
    metrics_address: str = key(
        "IP address that the exporter listens on; keep it private", checked_ip, "127.0.0.1"
    )
    log_format: str = key("text for people, json for programs", one_of("text", "json"), "text")

    @property
    def secret_keys(self) -> tuple[str, ...]:
        """Return the secret key and the previous one, which is only used for reading."""
        previous = self.secret_key_previous
        return (self.secret_key, previous) if previous else (self.secret_key,)

    @property
    def signing_secrets(self) -> list[str]:
        """Return the keys in the order of itsdangerous: all verify, the last one signs."""
        return list(reversed(self.secret_keys))

    @property
    def is_registration_open(self) -> bool:
        """Return whether clients may register themselves."""
        return self.open_registration == "true"

    @property
    def issuer(self) -> str:
        """Return the issuer identifier (OIDC Core §1.2): the base URL."""
        return self.base_url

    @property
    def aliases(self) -> issuers.Aliases:
        """Return the issuers of earlier servers."""
        return (
            issuers.aliases_of(self.issuer_aliases) if self.issuer_aliases else issuers.NO_ALIASES
        )

    def issuer_of(self, client: "HasIssuer") -> str:
        """Return the issuer of a client: in its tokens, its answers and what is sent for it.

        An issuer that the setting does not name any more is not signed for.
        """
        if self.issuer_aliases and client.issuer in self.aliases:
            return client.issuer or ""
        return self.base_url

    def endpoint_of(self, client: "HasIssuer", name: str) -> str:
        """Return the URL of an endpoint, by its name in `ENDPOINTS`, as a client knows it."""
        if self.issuer_aliases and (alias := self.aliases.get(client.issuer or "")):
            return alias.endpoints.get(name, "")
        return self.base_url + ENDPOINTS[name]

    def is_issuer(self, text: object) -> bool:
        """Return whether a text is the issuer of this server, or one that it answers under."""
        return text == self.base_url or bool(self.issuer_aliases and text in self.aliases)

    @property
    def base_path(self) -> str:
        """Return the path prefix of every URL, such as `/api/auth`; may be empty."""
        return urlsplit(self.base_url).path

    @property
    def is_https(self) -> bool:
        return self.base_url.startswith("https:")


SAME_KEY = (
    "SSO_SECRET_KEY_PREVIOUS: it is the same as SSO_SECRET_KEY; give the one before it, or none"
)


class _Environment(TableReader):
    """Reads environment variables: NAME, or NAME_FILE for a file with the value."""

    def keys_of(self, field: Field) -> Mapping[str, Read]:
        return {field.name: itself, f"{field.name}_FILE": _text_of_file}

    def convert(self, field: Field, value: str) -> Any:
        try:
            return field.read(value)
        except ManyErrors:
            raise
        except ValueError as error:
            text = "the value" if field.secret else repr(value)
            raise ValueError(f"{text} is not valid: {error}") from None

    def unknown(self, name: str) -> str:
        return f"no setting has this name; {hint(name, self.known, 'remove or correct it', 0.8)}"

    def ambiguous(self, field: Field, names: Sequence[str]) -> Error:
        return field.name, f"given both itself and as {field.name}_FILE; keep one of them"


def _text_of_file(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError):
        raise ValueError("the file cannot be read; check its path and mode") from None


SETTINGS = tuple(replace(field, name=f"SSO_{field.name.upper()}") for field in fields_of(Settings))
_ENVIRONMENT = _Environment(SETTINGS)


def read_settings(environ: Mapping[str, str]) -> Reading:
    """Read every setting; an empty one counts as not given. Never raises."""
    names = _ENVIRONMENT.known
    return _ENVIRONMENT.read({
        name: text
        for name, text in environ.items()
        if name.startswith("SSO_") and (text or name not in names)
    })  # fmt: skip


def load_settings(environ: Mapping[str, str], instance: Path) -> Settings:
    """Load all settings. Raises `SettingsError` with all errors."""
    reading = read_settings(environ)
    errors = reading.errors
    if os.environ.get("AUTHLIB_INSECURE_TRANSPORT"):
        errors.append("AUTHLIB_INSECURE_TRANSPORT: it turns https checks off in Authlib; unset it")
    secret_key, previous = (reading.values[f"SSO_SECRET_KEY{end}"] for end in ("", "_PREVIOUS"))
    if secret_key and secret_key == previous:
        errors.append(SAME_KEY)
    if reading.values["SSO_ADMIN_GROUP"] == reading.values["SSO_HELPDESK_GROUP"]:
        errors.append("SSO_HELPDESK_GROUP: it is the same as SSO_ADMIN_GROUP")
    errors += role_settings.errors_together(reading)
    errors += _errors_of_aliases(reading)
    if reading.values["SSO_TERMS_VERSION"] and not reading.values["SSO_TERMS_URL"]:
        errors.append("SSO_TERMS_VERSION: people cannot read the terms; set SSO_TERMS_URL, too")
    if errors:
        raise SettingsError(errors)
    values = {name.removeprefix("SSO_").lower(): value for name, value in reading.values.items()}
    instance.mkdir(parents=True, exist_ok=True)
    values["database_url"] = values["database_url"] or f"sqlite:///{instance / 'sso.db'}"
    values["secret_key"] = secret_key or embedded_secret_key(instance)
    if values["secret_key"] == previous:
        raise SettingsError([SAME_KEY])
    return Settings(**values)


def _errors_of_aliases(reading: Reading) -> list[str]:
    aliases, base_url = (reading.values[f"SSO_{name}"] for name in ("ISSUER_ALIASES", "BASE_URL"))
    errors = issuers.errors_beside(aliases, base_url) if aliases else ()
    return [f"SSO_ISSUER_ALIASES: {error}" for error in errors]


def flask_config(settings: Settings) -> dict[str, object]:
    # The __Host- prefix demands Path=/ and Secure; without https the base path binds the cookie.
    return {
        "SECRET_KEY": settings.secret_key,
        # Values signed with the previous key are accepted, and signed again with this one.
        "SECRET_KEY_FALLBACKS": list(settings.secret_keys[1:]) or None,
        "WTF_CSRF_SECRET_KEY": settings.signing_secrets,
        "SESSION_COOKIE_NAME": "__Host-sso" if settings.is_https else "sso_browser",
        "SESSION_COOKIE_PATH": "/" if settings.is_https else settings.base_path or "/",
        "SESSION_COOKIE_SECURE": settings.is_https,
        "SESSION_COOKIE_HTTPONLY": True,
        "SESSION_COOKIE_SAMESITE": "Lax",
        "PERMANENT_SESSION_LIFETIME": settings.session_lifetime,
        # The cookie is signed again when the session is prolonged (browser_session.touch).
        "SESSION_REFRESH_EACH_REQUEST": False,
        "MAX_CONTENT_LENGTH": MAX_BODY,
        "WTF_CSRF_CHECK_DEFAULT": False,  # see routing
        # A sign-in page left open overnight still works; the token lives as long as the cookie.
        "WTF_CSRF_TIME_LIMIT": None,
        # Pages send no Referer (see headers); the token alone proves the form is ours.
        "WTF_CSRF_SSL_STRICT": False,
    }


ENVIRONMENT_FILE = "/etc/sso/environment"


def read_environment_file(chosen: str) -> None:
    """Set the variables of the file that the environment lacks.

    Without the file, a command might work on another database. So a file that cannot be read is an
    error, unless it is the default one and does not exist.
    """
    path = Path(chosen or ENVIRONMENT_FILE)
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IROTH:
                click.echo(f"Warning: {path} is readable by everyone: chmod o-r {path}", err=True)
            values = parse_environment_file(file.read())
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and not chosen:
            return
        reason = error.strerror if isinstance(error, OSError) else error
        hint = ""
        if isinstance(error, PermissionError):
            hint = "; run this as the service's user: sudo -u sso sso …"
        raise SystemExit(f"Error: {path} cannot be used: {reason}{hint}") from None
    for name, value in values.items():
        os.environ.setdefault(name, value)


def parse_environment_file(text: str) -> dict[str, str]:
    """Parse the lines NAME=value, as systemd does for EnvironmentFile=.

    Raises `ValueError` for any other line.
    """
    values = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, mark, value = line.strip().partition("=")
        if not name or name[0] in "#;":
            continue
        if not mark or not name.isidentifier():
            raise ValueError(f"line {number} is not NAME=value")
        quoted = value.startswith(("'", '"'))
        values[name] = "".join(shlex.split(value)) if quoted else value.strip()
    return values
