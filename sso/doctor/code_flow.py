"""The steps of a sign-in, as a browser and a client's backend would take them."""

import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import requests
from flask import current_app
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from sso import context
from sso.config import urls
from sso.crypto import keys
from sso.doctor.browser import TIMEOUT, Browser, LeftServer, Page
from sso.doctor.finding import Finding, Findings, ok, warning, wrong
from sso.doctor.probe import CALLBACK, Probe, ip_address_of, temporary_probe
from sso.web.proxies import FORGED

NAME = "code flow"


class _Stopped(Exception):
    """A step failed; holds the finding."""

    def __init__(self, seen: str, hint: str) -> None:
        super().__init__(seen)
        self.finding = wrong(NAME, seen, hint)


def code_flow() -> Findings:
    """Authorize, sign in, consent, exchange, userinfo, refresh, revoke; cookies and proxies."""
    with temporary_probe() as probe:
        browser = Browser(context.settings().base_url, CALLBACK)
        try:
            yield from _walk(browser, probe)
        except _Stopped as stopped:
            yield stopped.finding
        except LeftServer as error:
            hint = "let the proxy forward Host, and set SSO_BASE_URL to the URL people use"
            yield wrong(NAME, f"a redirect led away, to {error}", hint)
        except requests.RequestException as error:
            hint = "start the server, and check SSO_BASE_URL and the proxy"
            yield wrong(NAME, f"the connection failed ({type(error).__name__})", hint)


def _walk(browser: Browser, probe: Probe) -> Findings:
    state, nonce = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
    verifier = secrets.token_urlsafe(32)
    challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    request = {
        "response_type": "code",
        "client_id": probe.client_id,
        "redirect_uri": CALLBACK,
        "scope": "openid profile email offline_access",
        "state": state,
        "nonce": nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    page = browser.open(f"{browser.base_url}/oauth2/authorize?{urlencode(request)}")
    if "password" not in page.fields:
        raise _Stopped(f"no sign-in page, but status {page.status}", "check the server's log")
    credentials = {"email": probe.email, "password": probe.password}
    page = browser.submit(page, credentials, **{"X-Forwarded-For": FORGED})
    yield _cookie(browser)
    if "password" in page.fields or page.status >= 400:
        raise _Stopped(
            f"signing in ended with status {page.status}",
            "give commands and server the same database; let the proxy forward cookies",
        )
    yield _proxies(ip_address_of(probe.user_id))
    if ("decision", "allow") in page.buttons:
        page = browser.submit(page, {"decision": "allow"})
    yield _tokens(browser, probe, _code(page, browser.base_url, state), verifier, nonce)


def _cookie(browser: Browser) -> Finding:
    name = current_app.config["SESSION_COOKIE_NAME"]
    lines = [line for line in browser.cookie_lines if line.startswith(f"{name}=")]
    if not lines:
        hint = "let the proxy pass Set-Cookie unchanged"
        return wrong("cookies", f"{name} was not set", hint)
    needed: set[str] = {"httponly", "samesite=lax"} | (
        {"secure"} if context.settings().is_https else set()
    )
    found = [{part.strip().lower() for part in line.split(";")[1:]} for line in lines]
    missing = sorted(set().union(*(needed - attributes for attributes in found)))
    if missing:
        hint = "let no proxy rewrite cookies"
        return wrong("cookies", f"{name} lacks {', '.join(missing)}", hint)
    return ok("cookies", f"{name} with {', '.join(sorted(needed))}")


def _proxies(ip_address: str | None) -> Finding:
    settings = context.settings()
    trusted = settings.trusted_proxies
    is_public = not urls.is_loopback(urlsplit(settings.base_url).hostname)
    if ip_address is None:
        hint = "give server and commands the same SSO_DATABASE_URL"
        return wrong("proxy headers", "the sign-in is not in this database", hint)
    if ip_address == FORGED:
        hint = "set SSO_TRUSTED_PROXIES to the number of proxies in front"
        return wrong("proxy headers", "anybody can forge a client's IP address", hint)
    if trusted == 0 and is_public and urls.is_loopback(ip_address):
        hint = "behind one proxy set SSO_TRUSTED_PROXIES=1"
        return warning("proxy headers", "every client seems to connect from this machine", hint)
    return ok("proxy headers", f"{trusted} trusted; a forged IP address is not believed")


def _code(page: Page, issuer: str, state: str) -> str:
    found = dict(parse_qsl(urlsplit(page.url).query))
    if not page.url.startswith(CALLBACK):
        raise _Stopped(
            f"no redirect to the client, but status {page.status}", "check the server's log"
        )
    if found.get("state") != state or found.get("iss") != issuer or not found.get("code"):
        error = str(found.get("error", "no code"))[:40]
        raise _Stopped(f"the answer is not a code ({error})", "check the server's log")
    return found["code"]


def _tokens(browser: Browser, probe: Probe, code: str, verifier: str, nonce: str) -> Finding:
    client = {"client_id": probe.client_id, "client_secret": probe.client_secret}
    tokens = _post(
        browser, "/oauth2/token", client, grant_type="authorization_code", code=code,
        redirect_uri=CALLBACK, code_verifier=verifier,
    )  # fmt: skip
    key_set = KeySet.import_key_set(
        requests.get(f"{browser.base_url}/oauth2/jwks", timeout=TIMEOUT).json()
    )
    try:
        claims = jwt.decode(tokens["id_token"], key_set, algorithms=list(keys.ALGORITHMS)).claims
    except (JoseError, ValueError, KeyError):
        raise _Stopped("the identity token does not verify", "see: flask key list") from None
    reported = (claims["iss"], claims["sub"], claims["aud"], claims.get("nonce"))
    audience = claims["aud"] if isinstance(claims["aud"], list) else probe.client_id
    expected = (browser.base_url, str(probe.user_id), audience, nonce)
    if reported != expected or probe.client_id not in claims["aud"]:
        raise _Stopped("the identity token is for another client or user", "check the server's log")
    _userinfo(browser, tokens["access_token"], 200)
    refreshed = _post(
        browser, "/oauth2/token", client, grant_type="refresh_token",
        refresh_token=tokens["refresh_token"],
    )  # fmt: skip
    _post(browser, "/oauth2/revoke", client, token=refreshed["refresh_token"])
    _userinfo(browser, refreshed["access_token"], 401)
    return ok(NAME, "sign-in, consent, tokens, userinfo, refresh and revocation work")


def _post(browser: Browser, path: str, client: dict[str, str], **form: str) -> dict[str, Any]:
    response = requests.post(
        browser.base_url + path, data={**form, **client}, timeout=TIMEOUT, allow_redirects=False
    )
    if response.status_code != 200:
        what = form.get("grant_type", "revocation")
        raise _Stopped(f"{what}: {path} answers {response.status_code}", "check the log")
    found: dict[str, Any] = response.json() if response.content.strip() else {}
    return found


def _userinfo(browser: Browser, access_token: str, status: int) -> None:
    response = requests.get(
        f"{browser.base_url}/oauth2/userinfo",
        headers={"Authorization": f"Bearer {access_token}"},
        timeout=TIMEOUT,
        allow_redirects=False,
    )
    if response.status_code != status:
        raise _Stopped(
            f"userinfo answers {response.status_code} instead of {status}",
            "let the proxy forward the Authorization header" if status == 200 else "check the log",
        )
