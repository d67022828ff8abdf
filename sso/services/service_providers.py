"""Service providers of SAML: their metadata and certificates, as fields of a client."""

from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sso import clock
from sso.config.urls import is_loopback
from sso.i18n.message import Message
from sso.process import http_call
from sso.saml import provider_metadata
from sso.saml.documents import EMAIL, MAX_METADATA, Malformed, timestamp
from sso.services.checks import MAX_TEXT, Invalid

SECONDS = 10.0  # to fetch metadata


class Imported(NamedTuple):
    """The fields that metadata gives a client, and notes for the operator."""

    fields: Mapping[str, Any]
    notes: Sequence[str]


def certificates(path: Path) -> str:
    """Read certificates from a file. Raises `Invalid`."""
    return _read(path).decode("ascii", "replace")


def imported(source: str) -> Imported:
    """Read the metadata of a service provider from a file or a URL. Raises `Invalid`."""
    text = _fetched(source) if source.startswith(("https://", "http://")) else _read(Path(source))
    return of_metadata(text, source)


def of_metadata(text: bytes, source: str) -> Imported:
    """Return the fields of a service provider's metadata. Raises `Invalid`.

    `source`: where it comes from, for errors.
    """
    try:
        provider = provider_metadata.service_provider(text, clock.now())
    except Malformed as error:
        raise Invalid([_refused(source, str(error))]) from None
    fields: dict[str, Any] = {
        "saml_entity_id": provider.entity_id,
        "saml_acs_urls": list(dict.fromkeys(provider.acs_urls)),
        "saml_logout_url": provider.logout_url,
        "saml_certificates": provider.certificates or None,
        "saml_signed_requests": provider.signs_requests and bool(provider.certificates),
        "saml_metadata_expires": provider.expires_at and timestamp(provider.expires_at),
    }
    if list(provider.name_id_formats[:1]) == [EMAIL]:
        fields["saml_name_id"] = "email"
    return Imported(fields, provider.notes)


def _fetched(url: str) -> bytes:
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname):
        # Anybody on the way could send the assertions elsewhere.
        raise Invalid([_refused(url, Message("it is not https (http is for this machine alone)"))])
    try:
        answer = http_call.call("GET", url, b"", {}, seconds=SECONDS, read=MAX_METADATA + 1)
    except (OSError, HTTPException, ValueError) as error:
        raise Invalid([_refused(url, f"{type(error).__name__}: {error}"[:MAX_TEXT])]) from None
    if answer.status != 200:  # a redirect is not followed
        raise Invalid([_refused(url, f"it answered {answer.status}")])
    return answer.body


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():  # reading a pipe would block
            raise FileNotFoundError(0, "there is no such file")
        with path.open("rb") as file:
            return file.read(MAX_METADATA + 1)
    except OSError as error:
        raise Invalid([_refused(str(path), str(error.strerror))]) from None


def _refused(source: str, reason: str | Message) -> Message:
    return Message(
        "%(source)s cannot be used: %(reason)s", source=repr(source[:MAX_TEXT]), reason=reason
    )
