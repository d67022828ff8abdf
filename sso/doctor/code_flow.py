"""The six steps of a sign-in, as a browser and a client's backend would take them."""

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
from sso.doctor import throw_away
from sso.doctor.finding import Finding, Findings, ok, warning, wrong
from sso.doctor.throw_away import CALLBACK, Patient
from sso.doctor.visitor import TIMEOUT, Page, Strayed, Visitor
from sso.web.proxies import FORGED

NAME = "code flow"


class _Stopped(Exception):
    """A step did not lead on; holds the finding."""

    def __init__(self, seen: str, mend: str) -> None:
        super().__init__(seen)
        self.finding = wrong(NAME, seen, mend)


def code_flow() -> Findings:
    """Authorize, sign in, allow, exchange, userinfo, refresh, revoke; and what shows on the way."""
    with throw_away.patient() as patient:
        visitor = Visitor(context.settings().base_url, CALLBACK)
        try:
            yield from _walk(visitor, patient)
        except _Stopped as stopped:
            yield stopped.finding
        except Strayed as strayed:
            mend = "let the proxy pass Host on, and set SSO_BASE_URL to the address people use"
            yield wrong(NAME, f"a redirect led away, to {strayed}", mend)
        except requests.RequestException as error:
            mend = "start the server, and check SSO_BASE_URL and the proxy"
            yield wrong(NAME, f"the connection failed ({type(error).__name__})", mend)


def _walk(visitor: Visitor, patient: Patient) -> Findings:
    state, nonce = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
    verifier = secrets.token_urlsafe(32)
    challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    request = {
        "response_type": "code",
        "client_id": patient.client_id,
        "redirect_uri": CALLBACK,
        "scope": "openid profile email offline_access",
        "state": state,
        "nonce": nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    page = visitor.open(f"{visitor.base_url}/oauth2/authorize?{urlencode(request)}")
    if "password" not in page.fields:
        raise _Stopped(f"no sign-in page came, but {page.status}", "look into the server's log")
    credentials = {"email": patient.email, "password": patient.password}
    page = visitor.submit(page, credentials, **{"X-Forwarded-For": FORGED})
    yield _cookie(visitor)
    if "password" in page.fields or page.status >= 400:
        raise _Stopped(
            f"signing in led to {page.status} and not on",
            "commands and server need one database; let the proxy pass cookies on",
        )
    yield _proxies(throw_away.address_of(patient.user_id))
    if ("decision", "allow") in page.buttons:
        page = visitor.submit(page, {"decision": "allow"})
    yield _tokens(visitor, patient, _code(page, visitor.base_url, state), verifier, nonce)


def _cookie(visitor: Visitor) -> Finding:
    name = current_app.config["SESSION_COOKIE_NAME"]
    lines = [line for line in visitor.cookie_lines if line.startswith(f"{name}=")]
    if not lines:
        mend = "let the proxy pass Set-Cookie on unchanged"
        return wrong("cookies", f"{name} was not set", mend)
    needed: set[str] = {"httponly", "samesite=lax"} | (
        {"secure"} if context.settings().is_https else set()
    )
    found = [{part.strip().lower() for part in line.split(";")[1:]} for line in lines]
    missing = sorted(set().union(*(needed - attributes for attributes in found)))
    if missing:
        mend = "let no proxy rewrite cookies"
        return wrong("cookies", f"{name} lacks {', '.join(missing)}", mend)
    return ok("cookies", f"{name} with {', '.join(sorted(needed))}")


def _proxies(address: str | None) -> Finding:
    settings = context.settings()
    trusted = settings.trusted_proxies
    is_public = not urls.is_loopback(urlsplit(settings.base_url).hostname)
    if address is None:
        mend = "give server and commands the same SSO_DATABASE_URL"
        return wrong("proxy headers", "the sign-in is not in this database", mend)
    if address == FORGED:
        mend = "set SSO_TRUSTED_PROXIES to the number of proxies that there are"
        return wrong("proxy headers", "anybody can forge a client's address", mend)
    if trusted == 0 and is_public and urls.is_loopback(address):
        mend = "behind one proxy set SSO_TRUSTED_PROXIES=1"
        return warning("proxy headers", "every visitor seems to come from this machine", mend)
    return ok("proxy headers", f"{trusted} trusted; a forged address is not believed")


def _code(page: Page, issuer: str, state: str) -> str:
    found = dict(parse_qsl(urlsplit(page.url).query))
    if not page.url.startswith(CALLBACK):
        raise _Stopped(
            f"no way back to the client, but {page.status}", "look into the server's log"
        )
    if found.get("state") != state or found.get("iss") != issuer or not found.get("code"):
        error = str(found.get("error", "no code"))[:40]
        raise _Stopped(f"the answer is not a code ({error})", "look into the server's log")
    return found["code"]


def _tokens(visitor: Visitor, patient: Patient, code: str, verifier: str, nonce: str) -> Finding:
    client = {"client_id": patient.client_id, "client_secret": patient.client_secret}
    tokens = _post(
        visitor, "/oauth2/token", client, grant_type="authorization_code", code=code,
        redirect_uri=CALLBACK, code_verifier=verifier,
    )  # fmt: skip
    key_set = KeySet.import_key_set(
        requests.get(f"{visitor.base_url}/oauth2/jwks", timeout=TIMEOUT).json()
    )
    try:
        claims = jwt.decode(tokens["id_token"], key_set, algorithms=list(keys.ALGORITHMS)).claims
    except (JoseError, ValueError, KeyError):
        raise _Stopped("the identity token does not verify", "see: flask key list") from None
    told = (claims["iss"], claims["sub"], claims["aud"], claims.get("nonce"))
    audience = claims["aud"] if isinstance(claims["aud"], list) else patient.client_id
    expected = (visitor.base_url, str(patient.user_id), audience, nonce)
    if told != expected or patient.client_id not in claims["aud"]:
        raise _Stopped("the identity token is somebody else's", "look into the server's log")
    _userinfo(visitor, tokens["access_token"], 200)
    refreshed = _post(
        visitor, "/oauth2/token", client, grant_type="refresh_token",
        refresh_token=tokens["refresh_token"],
    )  # fmt: skip
    _post(visitor, "/oauth2/revoke", client, token=refreshed["refresh_token"])
    _userinfo(visitor, refreshed["access_token"], 401)
    return ok(NAME, "sign-in, consent, tokens, userinfo, refresh and revocation work")


def _post(visitor: Visitor, path: str, client: dict[str, str], **form: str) -> dict[str, Any]:
    response = requests.post(
        visitor.base_url + path, data={**form, **client}, timeout=TIMEOUT, allow_redirects=False
    )
    if response.status_code != 200:
        what = form.get("grant_type", "revocation")
        raise _Stopped(f"{what}: {path} answers {response.status_code}", "look into the log")
    found: dict[str, Any] = response.json() if response.content.strip() else {}
    return found


def _userinfo(visitor: Visitor, access_token: str, status: int) -> None:
    response = requests.get(
        f"{visitor.base_url}/oauth2/userinfo",
        headers={"Authorization": f"Bearer {access_token}"},
        timeout=TIMEOUT,
        allow_redirects=False,
    )
    if response.status_code != status:
        raise _Stopped(
            f"userinfo answers {response.status_code} instead of {status}",
            "let the proxy pass the Authorization header on" if status == 200 else "see the log",
        )
