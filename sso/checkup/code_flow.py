"""The steps of a sign-in, as a browser and a client's backend would take them."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import requests
from flask import current_app
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from sso import context
from sso.audit import Actor
from sso.checkup.browser import Browser, LeftServer, Page
from sso.checkup.finding import Finding, Findings, answered, at, ok, skipped, warning, wrong
from sso.checkup.probe import CALLBACK, Busy, Person, Probe, ip_address_of, temporary_probe
from sso.checkup.request import Request
from sso.config import urls
from sso.crypto import keys
from sso.i18n.message import Message
from sso.mfa import totp
from sso.process.program import COMMAND
from sso.web.proxies import FORGED, FORGED_BY_UNDERSCORE

NAME = "code flow"
DEADLINE = 30  # seconds; shorter than proxies wait for an admin page
_FORGED = {"X-Forwarded-For": FORGED}
_FORGED_BY_UNDERSCORE = dict.fromkeys(
    ("X_Forwarded_For", "X-Forwarded_For", "X_Forwarded-For"), FORGED_BY_UNDERSCORE
)


_LOG = Message("check the server's log")


class Stopped(Exception):
    """A step failed."""

    def __init__(self, seen: Message, hint: Message = _LOG) -> None:
        super().__init__(seen)
        self.seen, self.hint = seen, hint


def explained(name: str, walk: Callable[[], Findings]) -> Findings:
    """The findings of a walk through the flow; a step that fails is one, too."""
    try:
        yield from walk()
    except Stopped as stopped:
        yield wrong(name, stopped.seen, stopped.hint)
    except LeftServer as error:
        seen = Message("a redirect led away, to %(url)s", url=error.args[0])
        hint = Message("let the proxy forward Host, and set SSO_BASE_URL to the URL people use")
        yield wrong(name, seen, hint)
    except requests.RequestException as error:
        seen = Message("the connection failed (%(reason)s)", reason=type(error).__name__)
        yield wrong(name, seen, Message("start the server, and check SSO_BASE_URL and the proxy"))


def code_flow(actor: Actor, name: str | None = None) -> Findings:
    """Authorize, sign in, consent, exchange, userinfo, refresh, revoke; cookies and proxies.

    `name`: of the temporary user; only one such sign-in is tried at a time.
    """
    try:
        with temporary_probe(actor, name) as probe:
            browser = Browser(context.settings().base_url, CALLBACK, DEADLINE)
            yield from explained(NAME, lambda: _walk(browser, probe))
    except Busy:
        yield skipped(NAME, Message("another one is being tried; try again in a minute"))


def _walk(browser: Browser, probe: Probe) -> Findings:
    scope = "openid profile email"
    request = Request.make(browser.base_url, probe.client_id, CALLBACK, scope)
    page = authorize(browser, request)
    page = submit_password(browser, page, probe.person)
    yield _cookie(browser)
    require_signed_in(page)
    yield _proxies(ip_address_of(probe.person.user_id))
    page = allow(browser, page)
    yield _tokens(browser, probe, code_of(page, request), request)


def authorize(browser: Browser, request: Request) -> Page:
    """The sign-in page. Raises `Stopped`."""
    page = browser.open(request.url)
    if "password" not in page.fields:
        raise Stopped(Message("no sign-in page, but status %(status)s", status=page.status))
    return page


def submit_password(browser: Browser, page: Page, person: Person) -> Page:
    """What follows the sign-in page, and the second factor if the person has one."""
    credentials = {"email": person.email, "password": person.password}
    form = page
    page = browser.submit(form, credentials, **_FORGED, **_FORGED_BY_UNDERSCORE)
    if page.status == 400:  # some proxies refuse such requests instead
        page = browser.submit(form, credentials, **_FORGED)
    if person.totp_secret and "code" in page.fields:
        page = browser.submit(page, {"code": totp.code(person.totp_secret)})
    return page


def require_signed_in(page: Page) -> None:
    """Raises `Stopped`."""
    if "password" in page.fields or "code" in page.fields or page.status >= 400:
        raise Stopped(
            Message("signing in ended with status %(status)s", status=page.status),
            Message("give commands and server the same database; let the proxy forward cookies"),
        )


def allow(browser: Browser, page: Page) -> Page:
    """What follows the consent page, if there is one."""
    if ("decision", "allow") in page.buttons:
        return browser.submit(page, {"decision": "allow"})
    return page


def _cookie(browser: Browser) -> Finding:
    name = current_app.config["SESSION_COOKIE_NAME"]
    lines = [line for line in browser.cookie_lines if line.startswith(f"{name}=")]
    if not lines:
        hint = Message("let the proxy pass Set-Cookie unchanged")
        return wrong("cookies", Message("%(name)s was not set", name=name), hint)
    needed: set[str] = {"httponly", "samesite=lax"} | (
        {"secure"} if context.settings().is_https else set()
    )
    found = [{part.strip().lower() for part in line.split(";")[1:]} for line in lines]
    missing = sorted(set().union(*(needed - attributes for attributes in found)))
    if missing:
        lacks = Message("%(name)s lacks %(attributes)s", name=name, attributes=", ".join(missing))
        return wrong("cookies", lacks, Message("let no proxy rewrite cookies"))
    attributes = ", ".join(sorted(needed))
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
        seen = Message("every client seems to connect from this machine")
        return warning("proxy headers", seen, Message("behind one proxy set SSO_TRUSTED_PROXIES=1"))
    seen = Message("%(count)s trusted; a forged IP address is not believed", count=trusted)
    return ok("proxy headers", seen)


def code_of(page: Page, request: Request) -> str:
    """The code that came to the callback. Raises `Stopped`."""
    found = dict(parse_qsl(urlsplit(page.url).query))
    if not page.url.startswith(request.callback):
        seen = Message("no redirect to the client, but status %(status)s", status=page.status)
        raise Stopped(seen)
    expected = (request.state, request.issuer)
    if (found.get("state"), found.get("iss")) != expected or not found.get("code"):
        error = found["error"][:40] if "error" in found else Message("no code")
        raise Stopped(Message("the answer is not a code (%(error)s)", error=error))
    return found["code"]


def _tokens(browser: Browser, probe: Probe, code: str, request: Request) -> Finding:
    client = {"client_id": probe.client_id, "client_secret": probe.client_secret}
    tokens = _post(
        browser, "/oauth2/token", client, grant_type="authorization_code", code=code,
        redirect_uri=CALLBACK, code_verifier=request.verifier,
    )  # fmt: skip
    key_set = KeySet.import_key_set(
        requests.get(f"{browser.base_url}/oauth2/jwks", timeout=browser.timeout()).json()
    )
    try:
        claims = jwt.decode(tokens["id_token"], key_set, algorithms=list(keys.ALGORITHMS)).claims
    except (JoseError, ValueError, KeyError):
        hint = Message("see: %(command)s", command=f"{COMMAND} key list")
        raise Stopped(Message("the identity token does not verify"), hint) from None
    reported = (claims["iss"], claims["sub"], claims["aud"], claims.get("nonce"))
    audience = claims["aud"] if isinstance(claims["aud"], list) else probe.client_id
    expected = (browser.base_url, str(probe.person.user_id), audience, request.nonce)
    if reported != expected or probe.client_id not in claims["aud"]:
        raise Stopped(Message("the identity token is for another client or user"))
    _userinfo(browser, tokens["access_token"])
    refreshed = _post(
        browser, "/oauth2/token", client, grant_type="refresh_token",
        refresh_token=tokens["refresh_token"],
    )  # fmt: skip
    _post(browser, "/oauth2/revoke", client, token=refreshed["refresh_token"])
    # Userinfo would refuse it, and list that among the refused requests.
    if _post(browser, "/oauth2/introspect", client, token=refreshed["access_token"])["active"]:
        raise Stopped(Message("a revoked access token is still valid"))
    seen = Message("sign-in, consent, tokens, userinfo, refresh and revocation work")
    return ok(NAME, seen)


def _post(browser: Browser, path: str, client: dict[str, str], **form: str) -> dict[str, Any]:
    response = requests.post(
        browser.base_url + path,
        data={**form, **client},
        timeout=browser.timeout(),
        allow_redirects=False,
    )
    if response.status_code != 200:
        what = form.get("grant_type", Message("token management"))
        raise Stopped(at(what, answered(path, response.status_code)))
    found: dict[str, Any] = response.json() if response.content.strip() else {}
    return found


def _userinfo(browser: Browser, access_token: str) -> None:
    response = requests.get(
        f"{browser.base_url}/oauth2/userinfo",
        headers={"Authorization": f"Bearer {access_token}"},
        timeout=browser.timeout(),
        allow_redirects=False,
    )
    if response.status_code != 200:
        hint = Message("let the proxy forward the Authorization header")
        raise Stopped(answered("userinfo", response.status_code), hint)
