"""The fields of every upstream identity provider, and the functions that read their keys.

Each type of provider is a dataclass. Its fields made by `tables.key` are the keys of its table in
the file; those made by `secret` are given as NAME_file or NAME_env.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from sso.config import email_addresses, images, tables
from sso.config.images import Image
from sso.config.tables import REQUIRED, checked_group, checked_name, itself, key
from sso.config.urls import call_error, is_loopback, strict_url_error
from sso.flow.attributes import NAME

MAX_LOGO = 64 * 1024
DAY = 24 * 3600


def secret(meaning: str, default: Any = REQUIRED) -> Any:
    """Describe a secret: NAME_file names a file, NAME_env an environment variable."""
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
    return tuple(dict.fromkeys(text(item) for item in value))


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
        return tables.one_of(*choices)(text(value))

    return read


def https_url(value: Any) -> str:
    """Check an https URL, or an http URL of this machine."""
    url = text(value)
    error = strict_url_error(url)
    parts = urlsplit(url) if error is None else None
    if parts is None or parts.query or parts.fragment:
        raise ValueError(f"{error or 'it has a query or a fragment'}; give an https URL")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise ValueError("give an https URL")
    if error := call_error(url):
        raise ValueError(f"{error}; give another URL")
    return url


def _name(value: Any) -> str:
    return checked_name(text(value))


def _logo(value: Any) -> Image:
    return images.read(Path(text(value)), MAX_LOGO)


def _domains(value: Any) -> tuple[str, ...]:
    domains = []
    for domain in texts(value):
        try:
            domains.append(email_addresses.domain(email_addresses.normalized(f"a@{domain}")))
        except ValueError:
            raise ValueError(f"{domain!r} is not a domain such as example.com") from None
    return tuple(dict.fromkeys(domains))


def _groups(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ValueError('give a table, such as { "their group" = "our group" }')
    return {text(upstream): checked_group(text(group)) for upstream, group in value.items()}


def _attributes(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ValueError('give a table, such as { "their claim" = "our_attribute" }')
    for name in value.values():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of an attribute such as cost_center")
        if list(value.values()).count(name) > 1:
            raise ValueError(f"the attribute {name} is there twice")
    return {text(claim): name for claim, name in value.items()}


@dataclass(frozen=True, kw_only=True)
class Provider:
    """An upstream identity provider. `id` is the name of its table, and stands in URLs."""

    REDIRECTS: ClassVar[bool] = True  # people sign in on a page of the provider

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
    attributes: Mapping[str, str] = key(
        "their claims, or attributes in a directory, and the attributes of people here that they "
        "are written to at each sign-in",
        _attributes,
        {},
    )
    recheck: int | None = key(
        "seconds after which a session is checked again with the provider",
        seconds(60, 30 * DAY),
        None,
    )

    def faults(self) -> Iterator[str]:
        """Yield the errors of keys that contradict each other."""
        return iter(())

    def vouches_for(self, email: str | None) -> bool:
        """Return whether the operator trusts it to verify this address."""
        return bool(email) and self.trust_email and self.covers(email)

    def covers(self, email: str | None) -> bool:
        """Return whether the address is in its domains, if it has any."""
        return not self.domains or email_addresses.domain(email or "").lower() in self.domains
