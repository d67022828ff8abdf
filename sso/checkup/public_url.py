"""What clients see at the public URL: TLS, metadata, the key set, the time, the headers."""

import socket
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import requests

from sso import clock
from sso import context as current
from sso.checkup import reach
from sso.checkup.finding import Findings, ok, skipped, warning, wrong
from sso.checkup.machine import clock_finding
from sso.config import urls
from sso.crypto import keys
from sso.extensions import db
from sso.models import KeyState
from sso.store import clients, signing_keys

TIMEOUT = 10  # seconds
MOST_SKEW = timedelta(seconds=30)
DISCOVERY = "/.well-known/openid-configuration"


def tls() -> Findings:
    """Clients trust the certificate, and it does not expire soon."""
    parts = urlsplit(current.settings().base_url)
    host = parts.hostname or ""
    if parts.scheme != "https":
        yield skipped("tls", "plain http, for this machine only")
        return
    context = reach.as_browsers()  # as `requests` in the other checks
    try:
        with (
            socket.create_connection((host, parts.port or 443), TIMEOUT) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            version, certificate = secured.version(), secured.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        hint = (
            "install a certificate for this name, with its whole chain; or, with a CA "
            "of your own, give that CA's file in REQUESTS_CA_BUNDLE"
        )
        yield wrong("tls", f"clients refuse the certificate: {error.verify_message}", hint)
        return
    except OSError as error:
        yield wrong("tls", f"no TLS connection ({type(error).__name__})", "check the proxy and DNS")
        return
    ends = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    left = datetime.fromtimestamp(ends, UTC) - clock.now()
    if left < reach.RENEW:
        yield warning("tls", f"the certificate expires in {left.days} days", "renew it")
    else:
        yield ok("tls", f"{version}; the certificate is valid for {left.days} days")


def metadata() -> Findings:
    """Both metadata documents come from this server and are equal (RFC 8414 §3.3)."""
    base_url = current.settings().base_url
    try:
        response = requests.get(f"{base_url}{DISCOVERY}", timeout=TIMEOUT, allow_redirects=False)
        found = _json(response)
    except requests.RequestException as error:
        if isinstance(error, requests.exceptions.SSLError):
            yield skipped("discovery", "fix the certificate first")
            return
        yield wrong(
            "discovery",
            f"{base_url} cannot be reached ({type(error).__name__})",
            "start the server, and check SSO_BASE_URL, DNS and the proxy",
        )
        return
    if response.status_code != 200 or found is None:
        yield wrong(
            "discovery",
            f"{base_url}{DISCOVERY} answers {response.status_code}",
            "let the proxy pass the path of SSO_BASE_URL on unchanged",
        )
        return
    if found.get("issuer") != base_url:
        yield wrong(
            "discovery",
            "the issuer is not SSO_BASE_URL: another server or another setting answers there",
            "give server and commands the same settings",
        )
        return
    yield ok("discovery", f"the issuer is {base_url}")
    yield from _root_metadata(base_url, found)
    yield from _published_keys(f"{base_url}/oauth2/jwks")
    date = response.headers.get("Date")
    if date:
        reported = parsedate_to_datetime(date)
        yield clock_finding("clock and HTTP Date", reported, MOST_SKEW)
    yield from _headers(response)
    yield from _cross_origin(base_url)


def _json(response: requests.Response) -> dict[str, Any] | None:
    try:
        found = response.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _root_metadata(base_url: str, discovery: dict[str, Any]) -> Findings:
    parts = urlsplit(base_url)
    path = f"/.well-known/oauth-authorization-server{parts.path}"
    response = requests.get(f"{parts.scheme}://{parts.netloc}{path}", timeout=TIMEOUT)
    if _json(response) == discovery:
        yield ok("metadata", "RFC 8414 metadata equals discovery")
    else:
        hint = f"let the proxy pass {path} on, too; clients of RFC 8414 alone need it"
        yield warning("metadata", f"{path} answers {response.status_code}", hint)


def _published_keys(url: str) -> Findings:
    keys_there = (_json(requests.get(url, timeout=TIMEOUT)) or {}).get("keys", [])
    published = {key.get("kid") for key in keys_there}
    needed = {r.kid for r in signing_keys.every() if r.state != KeyState.RETIRED}
    db.session.rollback()
    if needed <= published:
        yield ok("key set", f"{len(published)} keys are published")
    else:
        yield wrong(
            "key set",
            "it lacks keys of this database: another database or a stale cache answers",
            f"compare SSO_DATABASE_URL; no proxy may cache it beyond {keys.JWKS_MAX_AGE} s",
        )


def _headers(response: requests.Response) -> Findings:
    headers = response.headers
    missing = [] if headers.get("X-Content-Type-Options") == "nosniff" else ["nosniff"]
    if current.settings().is_https and "Strict-Transport-Security" not in headers:
        missing.append("Strict-Transport-Security")
    if missing:
        yield wrong("headers", f"lost: {', '.join(missing)}", "let the proxy keep our headers")
    else:
        yield ok("headers", "arrive unchanged")


def _cross_origin(base_url: str) -> Findings:
    """A browser lets a public client's scripts call the server (CORS)."""
    public = [one for one in clients.every() if one.is_public and not one.disabled_at]
    origins = [urls.origin(uri) for client in public for uri in client.redirect_uris]
    db.session.rollback()
    origin = next(filter(None, origins), None)
    if origin is None:
        return
    asked = {"Origin": origin, "Access-Control-Request-Method": "GET"}
    answer = requests.options(f"{base_url}/oauth2/userinfo", headers=asked, timeout=TIMEOUT)
    allowed = answer.headers.get("Access-Control-Allow-Origin", "none")
    if allowed == origin:
        yield ok("cross-origin", f"scripts of {origin} may read answers")
    else:
        hint = "let the proxy pass OPTIONS and Origin on, and add no Access-Control headers"
        yield wrong("cross-origin", f"allowed for {origin}: {allowed[:200]}", hint)
