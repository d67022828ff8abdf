"""Why a client cannot have a URL: a function for each field, or entry of a list, that is one."""

from urllib.parse import urlsplit

from sso.config.urls import call_error, is_loopback, origin, strict_url_error
from sso.i18n.message import Message


def backchannel_error(text: str) -> Message | None:
    """OIDC Back-Channel Logout §2.2: absolute, no fragment; we call it, so it is http or https."""
    if error := strict_url_error(text):
        return error
    if urlsplit(text).scheme not in ("http", "https"):
        return Message("it is neither http nor https")
    return Message("it has a fragment") if "#" in text else call_error(text)


def web_url_error(text: str) -> Message | None:
    """The browser is sent there."""
    if error := strict_url_error(text):
        return error
    if urlsplit(text).scheme not in ("http", "https"):
        return Message("it is neither http nor https")
    return Message("it has a fragment") if "#" in text else None


def jwks_uri_error(text: str) -> Message | None:
    if error := strict_url_error(text):
        return error
    if urlsplit(text).scheme != "https":
        return Message("it is not https")
    return Message("it has a fragment") if "#" in text else call_error(text, only_public=True)


def scim_url_error(text: str) -> Message | None:
    """RFC 7644 §1.3: a base URL, to which endpoints are appended."""
    if error := strict_url_error(text):
        return error
    parts = urlsplit(text)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        return Message("it is not https (http is for this machine alone)")
    if "?" in text or "#" in text:
        return Message("it has a query or a fragment")
    return call_error(text)


def issuer_error(text: str) -> Message | None:
    """OIDC Discovery §3: an issuer has neither a query nor a fragment."""
    if error := jwks_uri_error(text):
        return error
    return Message("it has a query") if "?" in text else None


def id_jag_audience_error(text: str) -> Message | None:
    """An entry is `ISSUER CLIENT_ID [SCOPE…]`; the issuer is never called from here."""
    issuer, *rest = text.split(" ")
    if not rest or not all(rest):
        return Message("it is not an issuer and a client ID, with one space between them")
    if any(len(name) > 200 or not (name.isascii() and name.isprintable()) for name in rest):
        return Message("it has a client ID or a scope that is too long, or not ASCII")
    if error := strict_url_error(issuer):
        return error
    parts = urlsplit(issuer)
    if parts.scheme != "https":
        return Message("it is not https")
    return Message("it has a query or a fragment") if "?" in issuer or "#" in issuer else None


def origin_error(text: str) -> Message | None:
    """Return why browsers would not send a text as the origin of an application."""
    if error := strict_url_error(text):
        return error
    parts = urlsplit(text)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        return Message("it is not https")
    if text != origin(text):
        return Message("it is more than scheme, host in lower case and port, or has a usual port")
    return None
