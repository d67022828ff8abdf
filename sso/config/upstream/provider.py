"""What every upstream identity provider has, and how a key of the file becomes a field.

A type of provider is a dataclass. Each field made by `key` is a key of the provider's table in the
file; one made by `secret` is given as NAME_file or NAME_env.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from sso.config import email_addresses, images, settings
from sso.config.images import Image
from sso.config.tables import REQUIRED, itself, key
from sso.config.urls import call_error, is_loopback, strict_url_error

MAX_LOGO = 64 * 1024
DAY = 24 * 3600


def secret(meaning: str, default: Any = REQUIRED) -> Any:
    """A secret, given as a file in NAME_file or as an environment variable in NAME_env."""
    return key(meaning, itself, default, secret=True)


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError('give a text in one line, in quotation marks, such as "…"')
    if len(value) > 500:
        raise ValueError("it is longer than 500 characters")
    return value.strip()


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError('give a list of texts, such as ["…", "…"]')
    return tuple(dict.fromkeys(text(one) for one in value))


def switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("give true or false, without quotation marks")
    return value


def seconds(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"give a whole number of seconds from {low} to {high}")
        return value

    return read


def one_of(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        return settings.one_of(*choices)(text(value))

    return read


def https_url(value: Any) -> str:
    """An https URL; http leads no further than this machine."""
    found = text(value)
    error = strict_url_error(found)
    parts = urlsplit(found) if error is None else None
    if parts is None or parts.query or parts.fragment:
        raise ValueError(f"{error or 'it has a query or a fragment'}; give an https URL")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise ValueError("give an https URL")
    if error := call_error(found):
        raise ValueError(f"{error}; give another URL")
    return found


def _name(value: Any) -> str:
    return images.checked_name(text(value))


def _logo(value: Any) -> Image:
    return images.read(Path(text(value)), MAX_LOGO)


def _domains(value: Any) -> tuple[str, ...]:
    found = []
    for one in texts(value):
        try:
            found.append(email_addresses.domain(email_addresses.normalized(f"a@{one}")))
        except ValueError:
            raise ValueError(f"{one!r} is not a domain such as example.com") from None
    return tuple(dict.fromkeys(found))


def _groups(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ValueError('give a table, such as { "their group" = "our group" }')
    return {text(theirs): settings.checked_group(text(ours)) for theirs, ours in value.items()}


@dataclass(frozen=True, kw_only=True)
class Provider:
    """An upstream identity provider. `id` is the name of its table, and stands in URLs."""

    REDIRECTS: ClassVar[bool] = True  # the browser goes to a page of the provider's

    id: str
    type: str
    name: str = key("its name on the sign-in page", _name)
    logo: Image | None = key("path of its logo: PNG, JPEG, WebP or SVG, at most 64 kB", _logo, None)
    domains: tuple[str, ...] = key(
        "people with an email address of these domains are sent there; only for these is its word "
        "about an email address taken, and only these sign up",
        _domains,
        (),
    )
    trust_email: bool = key(
        "whether an email address that it calls verified proves whose account it is", switch, False
    )
    sign_up: bool = key(
        "whether people without an account get one at their first sign-in", switch, False
    )
    groups: Mapping[str, str] = key(
        "their groups, and the groups here that their members are in", _groups, {}
    )
    recheck: int | None = key(
        "seconds after which a session is checked again with the provider",
        seconds(60, 30 * DAY),
        None,
    )

    def faults(self) -> Iterator[str]:
        """What is wrong with several keys together."""
        return iter(())

    def vouches_for(self, email: str | None) -> bool:
        """Whether the operator takes its word for this address, if it calls it verified."""
        return bool(email) and self.trust_email and self.covers(email)

    def covers(self, email: str | None) -> bool:
        """Whether the address is of its domains; without any, each one is."""
        return not self.domains or email_addresses.domain(email or "").lower() in self.domains
