"""The checks that turn a setting's text into its value. Each raises `ValueError` with the mend."""

from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from sso.config.urls import is_loopback, strict_url_fault


def base_url(text: str) -> str:
    fault = strict_url_fault(text)
    parts = urlsplit(text) if fault is None else None
    if parts is None:
        raise ValueError(f"{fault}; give an address such as https://login.example.com/api/auth")
    if parts.query or parts.fragment or text.endswith("/"):
        raise ValueError("it has a query, a fragment or a final slash; leave them off")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("it is plain http beyond loopback; give an https address")
    if parts.scheme not in ("http", "https"):
        raise ValueError("give an https address")
    return text


def database_url(text: str) -> str:
    try:
        url = make_url(text)
    except ArgumentError:
        raise ValueError("give an SQLAlchemy URL such as postgresql+psycopg://…") from None
    if url.drivername not in ("sqlite", "postgresql+psycopg"):
        raise ValueError("its driver is not supported; give postgresql+psycopg://… or sqlite:///…")
    return text


def secret_key(text: str) -> str:
    if len(text) < 32:
        raise ValueError("it is shorter than 32 characters; give a long random one")
    return text


def url(*schemes: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        parts = urlsplit(text)
        if parts.scheme not in schemes or not parts.hostname:
            raise ValueError(f"give an address such as {schemes[0]}://host:port")
        return text

    return read


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


# The modules that know mail are loaded where such a setting is given, not by every command.


def smtp_url(text: str) -> str:
    from sso.config import smtp

    smtp.parse(text)
    return text


def email_address(text: str) -> str:
    from sso.config import email_addresses

    try:
        return email_addresses.normalized(text)
    except ValueError:
        raise ValueError("give an email address such as sso@example.com") from None


def sign_up(text: str) -> str:
    """`open`, `off`, or domains, separated by spaces."""
    if text in ("off", "open"):
        return text
    from sso.config import email_addresses

    domains = text.replace(",", " ").lower().split()
    for domain in domains:
        try:
            email_addresses.normalized(f"a@{domain}")
            known = "." in domain
        except ValueError:
            known = False
        if not known:
            raise ValueError("give off, open, or domains such as example.com")
    return " ".join(domains)
