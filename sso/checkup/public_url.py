"""Checks of the public URL: TLS, metadata, the key set, the time, the headers."""

import socket
import ssl
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from time import monotonic
from typing import Any
from urllib.parse import SplitResult, urlsplit

import requests

from sso import clock
from sso import context as current
from sso.checkup import reach
from sso.checkup.components import clock_finding
from sso.checkup.finding import Findings, answered, ok, run, skipped, warning, wrong
from sso.config import urls
from sso.crypto import keys
from sso.extensions import db
from sso.i18n.message import Message, Quote
from sso.models import KeyState
from sso.process import concurrency, http_call
from sso.process.program import COMMAND
from sso.store import clients
from sso.store import keys as stored_keys

TIMEOUT = 10  # seconds
_SLOW_BODIES = 3
_EARLY = 2.0  # seconds: an earlier answer did not wait for the body
_LENGTH = 100  # bytes of a slow body
MOST_SKEW = timedelta(seconds=30)
DISCOVERY = "/.well-known/openid-configuration"


def tls() -> Findings:
    """Check that clients trust the certificate and it does not expire soon."""
    parts = urlsplit(current.settings().base_url)
    host = parts.hostname or ""
    if parts.scheme != "https":
        yield skipped("tls", Message("plain http, for this machine only"))
        return
    context = reach.as_browsers()  # as `requests` in the other checks
    try:
        with (
            socket.create_connection((host, parts.port or 443), TIMEOUT) as plain,
            http_call.over_tls(plain, context, host) as secured,
        ):
            version, certificate = secured.version(), secured.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        message = Message(
            "clients refuse the certificate: %(reason)s", reason=Quote(error.verify_message)
        )
        hint = Message(
            "install a certificate for this name, with its whole chain; or, with a CA "
            "of your own, give that CA's file in REQUESTS_CA_BUNDLE"
        )
        yield wrong("tls", message, hint)
        return
    except OSError as error:
        message = Message("no TLS connection (%(reason)s)", reason=type(error).__name__)
        yield wrong("tls", message, Message("check the proxy and DNS"))
        return
    ends = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    left = datetime.fromtimestamp(ends, UTC) - clock.now()
    if left < reach.RENEW:
        message = Message("the certificate expires in %(days)s days", days=left.days)
        yield warning("tls", message, Message("renew it"))
    else:
        message = Message(
            "%(version)s; the certificate is valid for %(days)s days",
            version=str(version),
            days=left.days,
        )
        yield ok("tls", message)


def metadata() -> Findings:
    """Check that both metadata documents come from this server and are equal (RFC 8414 §3.3)."""
    base_url = current.settings().base_url
    try:
        response = requests.get(f"{base_url}{DISCOVERY}", timeout=TIMEOUT, allow_redirects=False)
        document = _json(response)
    except requests.RequestException as error:
        if isinstance(error, requests.exceptions.SSLError):
            yield skipped("discovery", Message("fix the certificate first"))
            return
        yield wrong(
            "discovery",
            Message(
                "%(name)s cannot be reached (%(reason)s)",
                name=base_url,
                reason=type(error).__name__,
            ),
            Message("start the server, and check SSO_BASE_URL, DNS and the proxy"),
        )
        return
    if response.status_code != 200 or document is None:
        yield wrong(
            "discovery",
            answered(f"{base_url}{DISCOVERY}", response.status_code),
            Message("let the proxy pass the path of SSO_BASE_URL on unchanged"),
        )
        return
    if document.get("issuer") != base_url:
        yield wrong(
            "discovery",
            Message(
                "the issuer is not SSO_BASE_URL: another server or another setting answers there"
            ),
            Message("give server and commands the same settings"),
        )
        return
    yield ok("discovery", Message("the issuer is %(url)s", url=base_url))
    yield from _root_metadata(base_url, document)
    yield from _published_keys(f"{base_url}/oauth2/jwks")
    date = response.headers.get("Date")
    if date:
        reported = parsedate_to_datetime(date)
        yield clock_finding("clock and HTTP Date", reported, MOST_SKEW)
    yield from _headers(response)
    yield from _cross_origin(base_url)


def _json(response: requests.Response) -> dict[str, Any] | None:
    try:
        document = response.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _root_metadata(base_url: str, discovery: dict[str, Any]) -> Findings:
    parts = urlsplit(base_url)
    path = f"/.well-known/oauth-authorization-server{parts.path}"
    response = requests.get(f"{parts.scheme}://{parts.netloc}{path}", timeout=TIMEOUT)
    if _json(response) == discovery:
        yield ok("metadata", Message("RFC 8414 metadata equals discovery"))
    else:
        hint = Message(
            "let the proxy pass %(path)s on, too; clients of RFC 8414 alone need it", path=path
        )
        yield warning("metadata", answered(path, response.status_code), hint)


def _published_keys(url: str) -> Findings:
    keys_there = (_json(requests.get(url, timeout=TIMEOUT)) or {}).get("keys", [])
    published = {key.get("kid") for key in keys_there}
    rows = stored_keys.every_signing_key()
    needed = {r.kid for r in rows if r.state != KeyState.RETIRED and r.alg != keys.SAML}
    db.session.rollback()
    if needed <= published:
        yield ok("key set", Message("%(count)s keys are published", count=len(published)))
    else:
        yield wrong(
            "key set",
            Message("it lacks keys of this database: another database or a stale cache answers"),
            Message(
                "compare SSO_DATABASE_URL; no proxy may cache it beyond %(seconds)s s",
                seconds=keys.JWKS_MAX_AGE,
            ),
        )


def _headers(response: requests.Response) -> Findings:
    headers = response.headers
    missing = [] if headers.get("X-Content-Type-Options") == "nosniff" else ["nosniff"]
    if current.settings().is_https and "Strict-Transport-Security" not in headers:
        missing.append("Strict-Transport-Security")
    if missing:
        message = Message("lost: %(headers)s", headers=", ".join(missing))
        yield wrong("headers", message, Message("let the proxy keep our headers"))
    else:
        yield ok("headers", Message("arrive unchanged"))


def _cross_origin(base_url: str) -> Findings:
    """Check that browsers let a public client's scripts call the server (CORS)."""
    public_clients = [
        client for client in clients.every() if client.is_public and not client.disabled_at
    ]
    origins = [urls.origin(uri) for client in public_clients for uri in client.redirect_uris]
    db.session.rollback()
    origin = next(filter(None, origins), None)
    if origin is None:
        return
    headers = {"Origin": origin, "Access-Control-Request-Method": "GET"}
    answer = requests.options(f"{base_url}/oauth2/userinfo", headers=headers, timeout=TIMEOUT)
    allowed = answer.headers.get("Access-Control-Allow-Origin", "none")
    if allowed == origin:
        message = Message("scripts of %(origin)s may read answers", origin=origin)
        yield ok("cross-origin", message)
    else:
        message = Message(
            "allowed for %(origin)s: %(allowed)s", origin=origin, allowed=allowed[:200]
        )
        hint = Message(
            "let the proxy pass OPTIONS and Origin on, and add no Access-Control headers"
        )
        yield wrong("cross-origin", message, hint)


ALIASES = "issuer aliases"


def issuer_aliases() -> Findings:
    """Check that this server answers at the addresses of earlier servers, and whose clients left.

    An unchanged application asks there for the metadata, and takes it only with that issuer.
    """
    aliases, base_url = current.settings().aliases, current.settings().base_url
    for issuer in aliases:
        url = urls.discovery(issuer)
        try:
            response = requests.get(url, timeout=TIMEOUT, allow_redirects=False)
        except requests.RequestException as error:
            message = Message(
                "%(name)s cannot be reached (%(reason)s)", name=url, reason=type(error).__name__
            )
            hint = Message(
                "let DNS, the certificate and the proxy of the earlier server lead to this one"
            )
            yield wrong(ALIASES, message, hint)
            continue
        document = _json(response) or {}
        if response.status_code == 200 and document.get("issuer") == issuer:
            yield ok(ALIASES, Message("the issuer is %(url)s", url=issuer))
            continue
        observation = answered(url, response.status_code)
        if response.status_code == 200:
            observation = Message("%(url)s is answered by another server", url=url)
        hint = Message(
            "let the proxy pass the paths of %(issuer)s on to this server unchanged; restart the "
            "server after SSO_ISSUER_ALIASES has changed",
            issuer=issuer,
        )
        yield wrong(ALIASES, observation, hint)
    for client in clients.every():
        if client.issuer and client.issuer not in aliases:
            message = Message(
                "%(client)s has the issuer %(issuer)s, which SSO_ISSUER_ALIASES does not name: its "
                "tokens name %(own)s",
                client=client.client_id,
                issuer=client.issuer,
                own=base_url,
            )
            command = f"{COMMAND} client update {client.client_id} --issuer new"
            yield warning(ALIASES, message, run(command))
    db.session.rollback()


def slow_bodies() -> Findings:
    """Check that the proxy reads a whole body before it asks the server."""
    name, settings = "slow bodies", current.settings()
    parts = urlsplit(settings.base_url)
    if urls.is_loopback(parts.hostname) and not settings.trusted_proxies:
        yield skipped(name, Message("no proxy, for this machine only"))
        return
    try:
        early, late = _send_slowly(parts)
    except OSError as error:
        message = Message("no answer to a slow body (%(reason)s)", reason=type(error).__name__)
        yield skipped(name, message)
        return
    hint = Message(
        "let the proxy read bodies first, up to 256 KiB; %(page)s says how",
        page="docs/deploy/index.md#slow-bodies",
    )
    if concurrency.IN_A_THREAD in early:
        message = Message(
            "the proxy passes on requests whose bodies have not arrived, and each occupies a "
            "thread: a few slow clients can stop the service"
        )
        yield wrong(name, message, hint)
    elif concurrency.COLLECTED in early:
        message = Message(
            "the proxy passes on requests whose bodies have not arrived; the server waits for them"
        )
        yield warning(name, message, hint)
    elif late & {concurrency.IN_A_THREAD, concurrency.COLLECTED}:
        yield ok(name, Message("the proxy waits for them"))
    else:
        message = Message("the server did not answer: something in front of it refuses the test")
        yield skipped(name, message)


def _send_slowly(parts: SplitResult) -> tuple[set[str], set[str]]:
    """Return the answers that came before, and after, the bodies were complete."""
    head = (
        f"POST {parts.path}/oauth2/token HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"{concurrency.HEAD_ONLY}: doctor\r\nContent-Length: {_LENGTH}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n\r\n"
    )
    with ExitStack() as stack:
        connections = []
        for _ in range(_SLOW_BODIES):
            connections.append(connection := stack.enter_context(_connect(parts)))
            connection.sendall(f"{head}a".encode())
        early, silent, end = set(), [], monotonic() + _EARLY
        for connection in connections:
            connection.settimeout(max(end - monotonic(), 0.01))
            try:
                early.add(_head_only(connection))
            except TimeoutError:
                silent.append(connection)
        late = set()
        for connection in silent:
            connection.settimeout(TIMEOUT)
            connection.sendall((_LENGTH - 1) * b"a")
            late.add(_head_only(connection))
        return early, late


def _connect(parts: SplitResult) -> socket.socket:
    host = parts.hostname or ""
    is_https = parts.scheme == "https"
    plain = socket.create_connection((host, parts.port or (443 if is_https else 80)), TIMEOUT)
    if not is_https:
        return plain
    return http_call.over_tls(plain, reach.as_browsers(), host)


def _head_only(connection: socket.socket) -> str:
    """Read an answer, and return what the server, not a proxy, says in it."""
    answer = HTTPResponse(connection)
    try:
        answer.begin()
        return answer.getheader(concurrency.HEAD_ONLY, "")
    except HTTPException:
        return ""
