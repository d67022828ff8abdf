"""A sign-in as a check: a temporary user and client, a browser over real HTTP, the steps."""

import secrets
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from html.parser import HTMLParser
from math import inf
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit
from uuid import UUID, uuid4

import requests
from authlib.integrations.requests_client import OAuthError
from flask import current_app
from joserfc.errors import InvalidClaimError, JoseError, MissingClaimError
from requests import HTTPError

from sso import clock, context
from sso.audit import Actor
from sso.checkup.finding import Finding, Findings, answered, at, ok, skipped, warning, wrong
from sso.checkup.relying_party import RelyingParty, Request
from sso.config import urls
from sso.config.urls import DOCTOR_DOMAIN
from sso.extensions import db
from sso.i18n.message import Message
from sso.mfa import totp
from sso.process.program import COMMAND
from sso.services import accounts, clients
from sso.services.checks import Invalid
from sso.store import approvals, sessions, users
from sso.store import clients as stored_clients
from sso.web.proxies import FORGED, FORGED_BY_UNDERSCORE

TIMEOUT = 15  # seconds
MOST_STEPS = 10
MOST_BYTES = 1_000_000


class LeftServer(Exception):
    """A redirect led away from the public URL; `str()` is the target without its query."""


class _Form(HTMLParser):
    """The fields that a browser would submit, by name: boxes may share one."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, list[str]] = {}
        self.buttons: set[tuple[str, str]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "input" and "name" in attributes:
            if attributes.get("type") not in ("checkbox", "radio") or "checked" in attributes:
                values = self.fields.setdefault(attributes["name"], [])
                values.append(attributes.get("value", ""))
        elif tag == "button" and "name" in attributes:
            self.buttons.add((attributes["name"], attributes.get("value", "")))


@dataclass
class Page:
    """The page that the browser ended at: one of the server, or the client's callback URL."""

    url: str
    response: requests.Response | None = None
    fields: dict[str, list[str]] = field(default_factory=dict)
    buttons: set[tuple[str, str]] = field(default_factory=set)

    @property
    def status(self) -> int:
        return self.response.status_code if self.response is not None else 0


class Browser:
    """Follows redirects only below the public URL; the callback URL is never opened.

    `within`: the seconds for all requests together.
    """

    def __init__(self, base_url: str, callback: str, within: float = inf) -> None:
        self.base_url, self.callback = base_url, callback
        self._end = monotonic() + within
        self.session = requests.Session()
        self.session.headers["User-Agent"] = "sso-doctor"
        self.cookie_lines: list[str] = []
        self.last_answer: requests.Response | None = None

    def record(self, answer: requests.Response, **_options: Any) -> None:
        """Keep the last answer to the client, as a hook of its `requests` session."""
        self.last_answer = answer

    def timeout(self) -> float:
        """Return the seconds for the next request. Raises `requests.Timeout` if none is left."""
        left = self._end - monotonic()
        if left <= 0:
            raise requests.Timeout
        return min(TIMEOUT, left)

    def open(
        self, url: str, form: Mapping[str, str | list[str]] | None = None, **headers: str
    ) -> Page:
        """Follow a URL to a page or the callback. Raises `LeftServer`."""
        for _ in range(MOST_STEPS):
            if url.startswith(self.callback):
                return Page(url)
            if not url.startswith(f"{self.base_url}/"):
                raise LeftServer(url.partition("?")[0][:200])
            response = self.session.request(
                "POST" if form else "GET",
                url,
                data=form,
                headers=headers,
                timeout=self.timeout(),
                allow_redirects=False,
            )
            self.cookie_lines += response.raw.headers.getlist("Set-Cookie")
            if response.status_code not in (302, 303):
                return _page(url, response)
            url, form = urljoin(url, response.headers["Location"]), None
        raise LeftServer(Message("a loop"))

    def submit(self, page: Page, values: Mapping[str, str], **headers: str) -> Page:
        """Submit the form of a page to the page's own URL, as all our forms do."""
        return self.open(page.url, {**page.fields, **values}, **headers)


def _page(url: str, response: requests.Response) -> Page:
    form = _Form()
    form.feed(response.text[:MOST_BYTES])
    return Page(url, response, form.fields, form.buttons)


PROBE_CALLBACK = f"https://{DOCTOR_DOMAIN}/callback"
# Longer than any run takes: older ones were left behind by a run that was killed.
_LEFT_BEHIND = timedelta(minutes=10)


@dataclass(frozen=True)
class ProbePerson:
    """The user to sign in as."""

    user_id: UUID
    email: str
    password: str
    totp_secret: str | None


@dataclass(frozen=True)
class Probe:
    """The user and the client to try the code flow with."""

    person: ProbePerson
    client_id: str
    client_secret: str


class Busy(Exception):
    """A temporary user of this name exists already."""


@contextmanager
def temporary_user(
    actor: Actor,
    name: str | None = None,
    *,
    groups: Iterable[str] = (),
    has_second_factor: bool = False,
) -> Iterator[ProbePerson]:
    """Create a user, who gets no mail; delete it with everything that depends on it at the end.

    `name`: before the @ of its email address; otherwise a random one. Raises `Busy`.
    """
    _remove_left_behind(actor)
    user_id, password = uuid4(), secrets.token_urlsafe(24)
    email = f"{name or f'doctor-{secrets.token_hex(8)}'}@{DOCTOR_DOMAIN}"
    secret = totp.new_secret() if has_second_factor else None
    with _until_asked_to_end():
        try:
            _create(actor, user_id, email, password, groups)
            if secret:
                # The code of the step before: each counts once, and the sign-in needs this one's.
                totp.enrol(user_id, secret, totp.code(secret, steps=-1))
            db.session.commit()
            yield ProbePerson(user_id, email, password, secret)
        finally:
            db.session.rollback()
            _remove_user(actor, user_id)


def _create(actor: Actor, user_id: UUID, email: str, password: str, groups: Iterable[str]) -> None:
    try:
        accounts.create(
            actor,
            user_id=user_id,
            email=email,
            name="Doctor",
            password=password,
            email_verified=True,
            groups=groups,
        )
    except Invalid:
        db.session.rollback()
        if users.find_by_email(email):
            raise Busy from None
        raise


@contextmanager
def temporary_probe(actor: Actor, name: str | None = None) -> Iterator[Probe]:
    """A temporary user, and a client that is deleted, too. Raises `Busy`."""
    with temporary_user(actor, name) as person:
        client_id = f"doctor-{secrets.token_hex(8)}"
        metadata = {"client_name": f"flask {person.email}", "redirect_uris": [PROBE_CALLBACK]}
        try:
            _, client_secret = clients.register(actor, metadata, client_id=client_id)
            db.session.commit()
            yield Probe(person, client_id, client_secret)
        finally:
            db.session.rollback()
            _remove_client(actor, client_id)


@contextmanager
def temporary_public_client(actor: Actor, api: str) -> Iterator[str]:
    """Register a public client that may use an API; delete it at the end. Yields its ID."""
    client_id = f"doctor-{secrets.token_hex(8)}"
    metadata = {
        "client_name": "Doctor",
        "redirect_uris": [PROBE_CALLBACK],
        "token_endpoint_auth_method": "none",
        "apis": [api],
    }
    try:
        clients.register(actor, metadata, client_id=client_id)
        db.session.commit()
        yield client_id
    finally:
        db.session.rollback()
        _remove_client(actor, client_id)


@contextmanager
def _until_asked_to_end() -> Iterator[None]:
    """Clean up at SIGTERM, too, as at SIGINT."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def ip_address_of(user_id: UUID) -> str | None:
    """Return the IP address that the server saw the user sign in from."""
    rows = sessions.of_user(user_id)
    db.session.rollback()
    return rows[0].address if rows else None


def _remove_left_behind(actor: Actor) -> None:
    before = clock.now() - _LEFT_BEHIND
    for client in stored_clients.every():
        if client.redirect_uris == [PROBE_CALLBACK] and client.created_at < before:
            _remove_client(actor, client.client_id)
    for user in users.of_domain(DOCTOR_DOMAIN, before):
        _remove_user(actor, user.id)


def _remove_user(actor: Actor, user_id: UUID) -> None:
    if user := users.lock_any(user_id):
        # Otherwise a real application would be sent a logout token of somebody it has never met.
        approvals.drop_all_unredeemed(user_id)
        user.groups = []  # it may be the last administrator, who could not be deleted
        accounts.delete(actor, user)
    db.session.commit()


def _remove_client(actor: Actor, client_id: str) -> None:
    with suppress(LookupError):
        clients.delete(actor, client_id)
    db.session.commit()


NAME = "code flow"
DEADLINE = 30  # seconds; shorter than proxies wait for an admin page
_FORGED = {"X-Forwarded-For": FORGED}
_FORGED_BY_UNDERSCORE = dict.fromkeys(
    ("X_Forwarded_For", "X-Forwarded_For", "X_Forwarded-For"), FORGED_BY_UNDERSCORE
)


_LOG = Message("check the server's log")


class Stopped(Exception):
    """A step failed."""

    def __init__(self, message: Message, hint: Message = _LOG) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def explained(name: str, walk: Callable[[], Findings]) -> Findings:
    """Walk through the flow. Report a failed step as a finding."""
    try:
        yield from walk()
    except Stopped as stopped:
        yield wrong(name, stopped.message, stopped.hint)
    except LeftServer as error:
        message = Message("a redirect led away, to %(url)s", url=error.args[0])
        hint = Message("let the proxy forward Host, and set SSO_BASE_URL to the URL people use")
        yield wrong(name, message, hint)
    except requests.RequestException as error:
        message = Message("the connection failed (%(reason)s)", reason=type(error).__name__)
        yield wrong(
            name, message, Message("start the server, and check SSO_BASE_URL and the proxy")
        )


def code_flow(actor: Actor, name: str | None = None) -> Findings:
    """Authorize, sign in, consent, exchange, userinfo, refresh, revoke; cookies and proxies.

    `name`: of the temporary user; only one such sign-in is tried at a time.
    """
    try:
        with temporary_probe(actor, name) as probe:
            browser = Browser(context.settings().base_url, PROBE_CALLBACK, DEADLINE)
            yield from explained(NAME, lambda: _walk(browser, probe))
    except Busy:
        yield skipped(NAME, Message("another one is being tried; try again in a minute"))


def _walk(browser: Browser, probe: Probe) -> Findings:
    party = relying_party(browser, probe.client_id, probe.client_secret)
    request, page = authorize(browser, party)
    page = submit_password(browser, page, probe.person)
    yield _cookie(browser)
    require_signed_in(page)
    yield _proxies(ip_address_of(probe.person.user_id))
    page = allow(browser, page)
    yield _tokens(browser, party, request, code_of(page, party, request), probe.person)


def relying_party(
    browser: Browser, client_id: str, client_secret: str = "", **options: Any
) -> RelyingParty:
    """Return the client that the browser signs in to. They share their time."""
    return RelyingParty(
        browser.base_url,
        client_id,
        client_secret,
        timeout=browser.timeout,
        hooks={"response": [browser.record]},
        **options,
    )


def authorize(
    browser: Browser,
    party: RelyingParty,
    push: Callable[[Mapping[str, str]], str] | None = None,
) -> tuple[Request, Page]:
    """Begin a sign-in and open its page. Raises `Stopped`."""
    try:
        request = party.request(browser.callback, push)
    except OAuthError:
        raise Stopped(
            Message(
                "the issuer is not SSO_BASE_URL: another server or another setting answers there"
            ),
            Message("give server and commands the same settings"),
        ) from None
    page = browser.open(request.url)
    if "password" not in page.fields:
        raise Stopped(Message("no sign-in page, but status %(status)s", status=page.status))
    return request, page


def submit_password(browser: Browser, page: Page, person: ProbePerson) -> Page:
    """Submit the password, and the code if a second factor is asked for; return the next page."""
    credentials = {"email": person.email, "password": person.password}
    form = page
    page = browser.submit(form, credentials, **_FORGED, **_FORGED_BY_UNDERSCORE)
    if page.status == 400:  # some proxies refuse such requests instead
        page = browser.submit(form, credentials, **_FORGED)
    if person.totp_secret and "code" in page.fields:
        page = browser.submit(page, {"code": totp.code(person.totp_secret)})
    return page


def require_signed_in(page: Page) -> None:
    """Raise `Stopped` unless the page is one for signed-in users."""
    if "password" in page.fields or "code" in page.fields or page.status >= 400:
        raise Stopped(
            Message("signing in ended with status %(status)s", status=page.status),
            Message("give commands and server the same database; let the proxy forward cookies"),
        )


def allow(browser: Browser, page: Page) -> Page:
    """Allow what the consent page asks, if it is one; return the next page."""
    if ("decision", "allow") in page.buttons:
        return browser.submit(page, {"decision": "allow"})
    return page


def _cookie(browser: Browser) -> Finding:
    name = current_app.config["SESSION_COOKIE_NAME"]
    lines = [line for line in browser.cookie_lines if line.startswith(f"{name}=")]
    if not lines:
        hint = Message("let the proxy pass Set-Cookie unchanged")
        return wrong("cookies", Message("%(name)s was not set", name=name), hint)
    required: set[str] = {"httponly", "samesite=lax"} | (
        {"secure"} if context.settings().is_https else set()
    )
    cookies = [{part.strip().lower() for part in line.split(";")[1:]} for line in lines]
    missing = sorted(set().union(*(required - attributes for attributes in cookies)))
    if missing:
        message = Message("%(name)s lacks %(attributes)s", name=name, attributes=", ".join(missing))
        return wrong("cookies", message, Message("let no proxy rewrite cookies"))
    attributes = ", ".join(sorted(required))
    return ok("cookies", Message("%(name)s with %(attributes)s", name=name, attributes=attributes))


def _proxies(ip_address: str | None) -> Finding:
    settings = context.settings()
    trusted = settings.trusted_proxies
    is_public = not urls.is_loopback(urlsplit(settings.base_url).hostname)
    if ip_address is None:
        hint = Message("give server and commands the same SSO_DATABASE_URL")
        return wrong("proxy headers", Message("the sign-in is not in this database"), hint)
    forged = Message("anyone can forge a client's IP address")
    if ip_address == FORGED:
        hint = Message("set SSO_TRUSTED_PROXIES to the number of proxies in front")
        return wrong("proxy headers", forged, hint)
    if ip_address == FORGED_BY_UNDERSCORE:
        hint = Message("let the proxy remove headers with underscores, such as X_Forwarded_For")
        return wrong("proxy headers", forged, hint)
    if trusted == 0 and is_public and urls.is_loopback(ip_address):
        message = Message("every client seems to connect from this machine")
        return warning(
            "proxy headers", message, Message("behind one proxy set SSO_TRUSTED_PROXIES=1")
        )
    message = Message("%(count)s trusted; a forged IP address is not believed", count=trusted)
    return ok("proxy headers", message)


def code_of(page: Page, party: RelyingParty, request: Request) -> str:
    """Return the code that came to the callback. Raises `Stopped`."""
    if not page.url.startswith(request.redirect_uri):
        raise Stopped(
            Message("no redirect to the client, but status %(status)s", status=page.status)
        )
    answer = dict(parse_qsl(urlsplit(page.url).query))
    try:
        return party.code(request, answer)
    except OAuthError:
        error = answer["error"][:40] if "error" in answer else Message("no code")
        raise Stopped(Message("the answer is not a code (%(error)s)", error=error)) from None


def _tokens(
    browser: Browser, party: RelyingParty, request: Request, code: str, person: ProbePerson
) -> Finding:
    with _succeeding(browser, "authorization_code"):
        token = party.exchange(request, code)
    _check_identity(party, token, request, person)
    try:
        party.profile(token, str(person.user_id))
    except HTTPError as error:
        hint = Message("let the proxy forward the Authorization header")
        raise Stopped(answered("userinfo", error.response.status_code), hint) from None
    with _succeeding(browser, "refresh_token"):
        token = party.refresh(token)
    with _succeeding(browser, Message("token management")):
        party.revoke(token["refresh_token"])
        # Userinfo would refuse it, and list that among the refused requests.
        is_active = party.is_active(token["access_token"])
    if is_active:
        raise Stopped(Message("a revoked access token is still valid"))
    return ok(NAME, Message("sign-in, consent, tokens, userinfo, refresh and revocation work"))


@contextmanager
def _succeeding(browser: Browser, step: str) -> Iterator[None]:
    """Raise `Stopped` at an answer of the server that is no success."""
    try:
        yield
    except (OAuthError, HTTPError, ValueError):
        answer = browser.last_answer
        if answer is None:
            raise
        path = answer.url.removeprefix(browser.base_url)
        raise Stopped(at(step, answered(path, answer.status_code))) from None


def _check_identity(
    party: RelyingParty, token: Mapping[str, Any], request: Request, person: ProbePerson
) -> None:
    try:
        claims = party.identity(token, request.nonce)
        if claims["sub"] != str(person.user_id):
            raise InvalidClaimError("sub")
    except (InvalidClaimError, MissingClaimError):
        raise Stopped(Message("the identity token is for another client or user")) from None
    except (OAuthError, JoseError, ValueError):
        hint = Message("see: %(command)s", command=f"{COMMAND} key list")
        raise Stopped(Message("the identity token does not verify"), hint) from None
