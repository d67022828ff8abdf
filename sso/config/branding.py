"""The branding: name, logo, accent color and links, from the environment or from the database.

A field that the environment sets cannot be changed elsewhere. Administration stores the others (see
`services.branding`), and each process reads them again every few seconds, so that pages of all
nodes change without a restart.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sso import clock
from sso.config.fields import Field, Input, Kind, Option
from sso.config.settings import SETTINGS, Settings
from sso.i18n import N_
from sso.process import program

if TYPE_CHECKING:
    from sso.config import images
    from sso.config.images import Image
else:  # commands do without
    images = program.late_module("sso.config.images")

RELOAD_AFTER = timedelta(seconds=5)
RETRY_AFTER = timedelta(seconds=30)  # if the database could not be read

_TABLE = (
    Field(
        "name", Kind.TEXT, "The name of the company or service.",
        option=Option("name"),
        form=Input(N_("Name"), N_("The company or service, in titles, mail and authenticator "
                   "apps.")),
    ),
    Field(
        "logo", Kind.IMAGE, "The logo of all pages: PNG, JPEG, WebP or SVG, at most 64 kB.",
        option=Option("logo", metavar="FILE"),
        form=Input(N_("Logo"), N_("PNG, JPEG, WebP or SVG, at most 64 kB")),
    ),
    Field(
        "accent_color", Kind.TEXT, "The color of buttons and links, in hexadecimal notation.",
        option=Option("accent-color", metavar="COLOR"),
        form=Input(N_("Accent color"), N_("Such as #2f5bea. It has to be readable in light or in "
                   "dark mode; the other mode uses the nearest color that is.")),
    ),
    Field(
        "support_url", Kind.URL, "Where people get help: an https or mailto: URL.",
        option=Option("support-url", metavar="URL"),
        form=Input(N_("Where people get help"), N_("An https or mailto: URL, at the end of every "
                   "page and mail.")),
    ),
    Field(
        "privacy_url", Kind.URL, "The https URL of the privacy policy.",
        option=Option("privacy-url", metavar="URL"),
        form=Input(N_("Privacy policy"), N_("An https URL.")),
    ),
    Field(
        "terms_url", Kind.URL, "The https URL of the terms of service.",
        option=Option("terms-url", metavar="URL"),
        form=Input(N_("Terms of service"), N_("An https URL.")),
    ),
)  # fmt: skip
FIELDS: Mapping[str, Field] = {field.name: field for field in _TABLE}
_SETTINGS = {setting.name: setting for setting in SETTINGS}


def setting_of(name: str) -> str:
    """Return the setting that sets a field in the environment."""
    return "SSO_LOGO_FILE" if name == "logo" else f"SSO_{name.upper()}"


def checked(name: str, text: str) -> str:
    """Check the text of a field as that of its setting. Raises `ValueError` with the remedy."""
    value: str = _SETTINGS[setting_of(name)].read(text)
    return value


@dataclass(frozen=True)
class Branding:
    """The fields that are set."""

    name: str | None = None
    logo: "Image | None" = None
    accent_color: str | None = None
    support_url: str | None = None
    privacy_url: str | None = None
    terms_url: str | None = None

    @property
    def footer_links(self) -> list[tuple[str, str]]:
        """Return the links on each page and mail: the text, to be translated, and the URL."""
        links = (
            (N_("Help"), self.support_url),
            (N_("Privacy policy"), self.privacy_url),
            (N_("Terms of service"), self.terms_url),
        )
        return [(text, url) for text, url in links if url]

    def over(self, other: "Branding") -> "Branding":
        """Return this branding, with the fields of another one where this one has none."""
        return replace(other, **self.set_fields)

    @property
    def set_fields(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def in_environment(settings: Settings) -> frozenset[str]:
    """Return the fields that the environment sets."""
    return frozenset(
        name
        for name in FIELDS
        if getattr(settings, setting_of(name).removeprefix("SSO_").lower()) is not None
    )


def of_settings(settings: Settings) -> Branding:
    """Return what the environment sets. Reads the file of the logo."""
    logo = None
    if settings.logo_file:
        logo = images.read(Path(settings.logo_file), images.MAX_LOGO)
    return Branding(
        name=settings.name,
        logo=logo,
        accent_color=settings.accent_color,
        support_url=settings.support_url,
        privacy_url=settings.privacy_url,
        terms_url=settings.terms_url,
    )


class BrandingSource:
    """The branding of a process.

    `read_again`: takes the stored branding as it was read before, returns the same object if it has
    not changed, and `None` if the database cannot be read.
    """

    def __init__(self, read_again: Callable[[Branding], Branding | None]) -> None:
        self._read_again = read_again
        self._environment: tuple[Settings, Branding] | None = None
        self._stored = Branding()
        self._read_at: datetime | None = None
        self._lasts = RELOAD_AFTER
        self._current: tuple[Branding, Branding, Branding] | None = None

    def current(self, settings: Settings, oldest: timedelta | None = None) -> Branding:
        """Return the branding in use. `oldest`: how old it may be, if not as old as usual."""
        now, read_at = clock.now(), self._read_at
        lasts = self._lasts if oldest is None else min(oldest, self._lasts)
        if read_at is None or not read_at <= now < read_at + lasts:
            self._read(now)
        return self.last(settings)

    def last(self, settings: Settings) -> Branding:
        """Return the branding as it was read last."""
        if self._environment is None or self._environment[0] is not settings:
            self._environment = settings, of_settings(settings)
        first, stored = self._environment[1], self._stored
        current = self._current
        if current is None or current[0] is not first or current[1] is not stored:
            self._current = current = first, stored, first.over(stored)
        return current[2]

    def forget(self) -> None:
        """Read the stored branding again at the next use."""
        self._read_at = None

    def _read(self, now: datetime) -> None:
        if self._read_at is not None:
            self._read_at = now  # other threads use the previous one while this one reads
        stored = self._read_again(self._stored)
        self._lasts = RELOAD_AFTER if stored is not None else RETRY_AFTER
        self._stored = self._stored if stored is None else stored
        self._read_at = now
