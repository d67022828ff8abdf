"""Addresses: what may be registered, exact match, parameters added without touching the rest."""

from ipaddress import ip_address
from urllib.parse import quote, urlsplit

MAX_LENGTH = 2000
# RFC 3986 §2: reserved, unreserved and the percent sign; nothing else stands in a URI.
_URI_CHARACTERS = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;=%"
)
_DANGEROUS_SCHEMES = frozenset(
    {"javascript", "data", "vbscript", "file", "about", "blob", "view-source", "filesystem", "ws"}
)


def is_loopback(host: str | None) -> bool:
    """Whether a host name or address is this machine (RFC 8252 §8.3)."""
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


def strict_url_fault(text: str) -> str | None:
    """Why a text is no absolute address of a host, or `None`."""
    if len(text) > MAX_LENGTH:
        return f"it is longer than {MAX_LENGTH} characters"
    if not set(text) <= _URI_CHARACTERS:
        return "it has characters that an address may not have; percent-encode them"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return "it is no valid address"
    if not parts.scheme:
        return "it is not absolute; begin with https://"
    if "@" in parts.netloc:
        return "it carries a user name, which can disguise the host"
    if parts.scheme in ("http", "https") and not parts.hostname:
        return "it has no host"
    return None


def registration_fault(text: str) -> str | None:
    """Why an address may not be registered as a redirect address, or `None`.

    RFC 6749 §3.1.2 (absolute, no fragment), RFC 9700 §2.1 and §4.1 (exact, no wildcard, https but
    for loopback), RFC 8252 §7.1 (an application's own scheme is named like a reversed domain).
    """
    fault = strict_url_fault(text)
    if fault:
        return fault
    parts = urlsplit(text)
    scheme = parts.scheme.lower()
    checks = (
        ("#" in text, "it has a fragment (RFC 6749 §3.1.2)"),
        ("*" in text, "it has a wildcard; addresses are compared exactly (RFC 9700 §4.1)"),
        (scheme in _DANGEROUS_SCHEMES, f"the scheme {scheme}: runs or reads in the browser"),
        (
            scheme == "http" and not is_loopback(parts.hostname),
            "it is plain http beyond loopback; use https (RFC 9700 §2.6)",
        ),
        (
            scheme not in ("http", "https", *_DANGEROUS_SCHEMES) and "." not in scheme,
            "an application's own scheme needs a dot, like com.example.app (RFC 8252 §7.1)",
        ),
        (
            any(part in (".", "..") for part in parts.path.split("/")),
            "its path has . or .. segments, which browsers rewrite",
        ),
    )
    return next((reason for wrong, reason in checks if wrong), None)


def add_parameters(address: str, parameters: list[tuple[str, str]]) -> str:
    """Add parameters to the query, leaving what stands there byte for byte (RFC 6749 §3.1.2)."""
    # Authlib's add_params_to_uri re-encodes the registered query, so it is not used here.
    # surrogateescape carries bytes that are not UTF-8 through, as `parameters` read them.
    encoded = "&".join(
        f"{quote(name, safe='')}={quote(value, safe='', errors='surrogateescape')}"
        for name, value in parameters
    )
    if "?" not in address:
        return f"{address}?{encoded}"
    separator = "" if address.endswith(("?", "&")) else "&"
    return f"{address}{separator}{encoded}"
