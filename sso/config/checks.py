"""Checks that turn a setting's text into its value. They raise `ValueError` with the remedy."""

import os
import secrets
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from urllib.parse import urlsplit

from sso.config.urls import MAX_LENGTH, is_loopback, strict_url_error


class ManyErrors(ValueError):
    """Several faults in one setting: each becomes a line of its own."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


def base_url(text: str) -> str:
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


def secret_key(text: str) -> str:
    if len(text) < 32:
        raise ValueError("it is shorter than 32 characters; give a long random one")
    return text


def support_url(text: str) -> str:
    if text.startswith("mailto:") and len(text) <= MAX_LENGTH:
        address, _, query = text.removeprefix("mailto:").partition("?")
        resolve_name("sso.config.email_addresses:normalized")(address)
        if query and strict_url_error(f"https://x/?{query}"):
            raise ValueError("percent-encode what stands behind the question mark")
        return text
    error = strict_url_error(text)
    if error or not text.startswith("https://"):
        raise ValueError("give an https URL, or mailto: and an email address")
    return text


def number(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text[:12]) <= high):
            raise ValueError(f"give a whole number from {low} to {high}")
        return int(text)

    return read


def ip(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError("give an IP address such as 127.0.0.1") from None


def one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"give one of {', '.join(choices)}")
        return text

    return read


def deferred(target: str) -> Callable[[str], Any]:
    """The check that `module:function` names. Its module is loaded when such a setting is given:
    those that know mail take longer to load than most commands run."""
    return lambda text: resolve_name(target)(text)


def sign_up(text: str) -> str:
    """`open`, `off`, or domains, separated by spaces."""
    is_mode = text in ("off", "open")
    return text if is_mode else str(resolve_name("sso.config.email_addresses:domains")(text))


def group(text: str) -> str:
    """The name of a group of users (see `services.checks.group_errors`)."""
    if "," in text or text != text.strip() or not text.isprintable() or len(text) > 200:
        raise ValueError("give one group, without commas, of at most 200 characters")
    return text


def embedded_secret_key(instance: Path) -> str:
    """The secret key in `instance/secret_key`; generated once, readable by its owner alone."""
    path = instance / "secret_key"
    if not path.exists():
        # Written to another name and linked: of several processes that start at once, one wins and
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
