"""Checks of an application behind a proxy (forward auth): that the proxy asks before each request,
that it returns people from the sign-in, and that it passes no header that a client has forged.

The last can be seen at the application only. So it needs a page of it that shows who is signed in.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey

from sso import audit, context
from sso.checkup import reach, sign_in
from sso.checkup.finding import Finding, Findings, ok, skipped, warning, wrong
from sso.checkup.reach import Trouble
from sso.checkup.sign_in import Browser, ProbePerson, temporary_user
from sso.config import urls
from sso.config.urls import DOCTOR_DOMAIN, ENDPOINTS
from sso.flow.forwarded import CALLBACK
from sso.models import Client
from sso.oauth import proxy_sign_in
from sso.process.http_call import Answer
from sso.process.program import COMMAND

PROXY, SIGN_IN, FORGED = "proxy", "sign-in", "forged headers"
MOST = 10  # URLs that are tried
MOST_BYTES = 1_000_000  # of a page
_NAVIGATION = {
    "Accept": "text/html",
    "Sec-Fetch-Dest": "document",
    "Sec-Fetch-Mode": "navigate",
}


@dataclass
class _Visitor:
    """A browser in front of the proxy, which keeps the two cookies of this server alone.

    So the application meets it for the first time with each request.
    """

    client: Client
    origin: str
    cookies: dict[str, str] = field(default_factory=dict)

    def open(self, uri: str, headers: Mapping[str, str] | None = None) -> Answer | Trouble:
        """Open a page as a navigation does, without following redirects."""
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent = {**_NAVIGATION, **({"Cookie": cookies} if cookies else {}), **(headers or {})}
        answer = reach.fetch("GET", self.origin + uri, headers=sent, read=MOST_BYTES)
        if isinstance(answer, Answer):
            lines = answer.headers.get("set-cookie", "")
            for name in proxy_sign_in.cookie_names():
                if value := re.search(rf"(?:^|,\s*){name}=([^;,]+)", lines):
                    self.cookies[name] = value[1]
        return answer

    def returns_to(self, answer: Answer | Trouble) -> str | None:
        """Return the page to which the sign-in returns; `None` if the answer leads to none."""
        if isinstance(answer, Trouble) or not _is_ours(answer):
            return None
        query = urlsplit(answer.headers["location"]).query
        state = re.search(r"(?:^|&)state=([^&]+)", query)
        try:
            attempt = proxy_sign_in.attempt_of(
                state[1] if state else "", self.client.client_id, self.origin
            )
        except proxy_sign_in.Refused:
            return None
        return attempt.uri


def _is_ours(answer: Answer) -> bool:
    """Return whether it is the redirect of this server to the sign-in."""
    ours = f"{context.settings().base_url}{ENDPOINTS['authorization']}?"
    return answer.status in (302, 303) and answer.headers.get("location", "").startswith(ours)


def asks(client: Client) -> Findings:
    """Check that the proxy asks this server about a stranger's request, and about the right one."""
    for origin in client.proxy_urls[:MOST]:
        yield _asks(client, origin)
    if len(client.proxy_urls) > MOST:
        yield skipped(PROXY, f"{len(client.proxy_urls) - MOST} more are not tried")


def _asks(client: Client, origin: str) -> Finding:
    visitor, uri = _Visitor(client, origin), f"/?sso-doctor={secrets.token_hex(8)}"
    answer = visitor.open(uri)
    if isinstance(answer, Trouble):
        return wrong(PROXY, f"{origin}: {answer.message}", answer.hint)
    if visitor.returns_to(answer) != uri:
        message, hint = _not_asked(client, answer)
        return wrong(PROXY, f"{origin}: {message}", hint)
    believed = [
        name
        for name, value in _forged_request(origin).items()
        if visitor.returns_to(visitor.open(uri, {name: value})) != uri
    ]
    if believed:
        names = ", ".join(believed)
        message = f"{origin}: clients can forge {names}, and pretend to ask for a public path"
        return wrong(PROXY, message, f"let the proxy replace {names} when it asks this server")
    message = f"{origin}: a stranger is sent to sign in; forged X-Forwarded headers change nothing"
    return ok(PROXY, message)


def _forged_request(origin: str) -> dict[str, str]:
    other = "http" if origin.startswith("https:") else "https"
    return {
        "X-Forwarded-Method": "DELETE",
        "X-Forwarded-Proto": other,
        "X-Forwarded-Host": DOCTOR_DOMAIN,
        "X-Forwarded-Uri": "/forged",
    }


def _not_asked(client: Client, answer: Answer) -> tuple[str, str]:
    """Return what is wrong with an answer to a stranger, and the hint."""
    status, place = answer.status, f"{context.settings().base_url}/forward-auth/{client.client_id}"
    reasons = f"set SSO_TRUSTED_PROXIES; the reasons: {COMMAND} explain --client {client.client_id}"
    if _is_ours(answer):
        return "the proxy asks about another page", "let it send the path and query as they arrived"
    if 300 <= status < 400:
        target = urlsplit(answer.headers.get("location", "")).netloc.rpartition("@")[2][:200]
        return (
            f"a stranger is redirected to {target or 'the same host'}, not to this server",
            "register the URL that people use; let the proxy pass Location unchanged",
        )
    if status == 401:
        return (
            "the proxy answers 401, and sends nobody to sign in",
            "with nginx, pass 401 to a location that asks without answer=status",
        )
    if status in (400, 500):
        return f"the proxy gets no answer that it can use ({status})", reasons
    if status in (502, 503, 504):
        return f"the proxy does not reach what it asks ({status})", f"let it ask {place}"
    if status < 300:
        return f"a stranger gets in ({status})", f"let the proxy ask {place} before each request"
    return f"it answers {status}", f"let the proxy ask {place} before each request"


def returns(client: Client, page: str | None) -> Findings:
    """Sign in through the proxy as a temporary user, and forge headers for a page.

    Without a page the application itself is not asked for anything.
    """
    yield from sign_in.explained(SIGN_IN, lambda: _walk(client, page))


def _walk(client: Client, page: str | None) -> Findings:
    origin = urls.origin(page) if page else client.proxy_urls[0]
    assert origin is not None
    groups = client.groups[:1]
    doctor = audit.operator(by="doctor")
    with temporary_user(doctor, groups=groups, has_second_factor=client.require_mfa) as person:
        visitor = _Visitor(client, origin)
        if problem := _come_back(visitor, person):
            yield problem
            return
        member = f", made a member of {groups[0]}," if groups else ""
        yield ok(SIGN_IN, f"a temporary user{member} signs in, and comes back to {origin}")
        if page:
            yield _forge(visitor, person, page)
        else:
            yield skipped(
                FORGED,
                "only the application sees what the proxy passes: name a page of it that shows "
                f"who is signed in: {COMMAND} doctor --client {client.client_id} --page URL",
            )


def _come_back(visitor: _Visitor, person: ProbePerson) -> Finding | None:
    """Get the session's cookie on the application's host; return what prevents it."""
    uri = f"/?sso-doctor={secrets.token_hex(8)}"
    answer = visitor.open(uri)
    if isinstance(answer, Trouble) or visitor.returns_to(answer) is None:
        return wrong(SIGN_IN, "the proxy sends nobody to sign in", "fix the proxy first, see above")
    browser = Browser(context.settings().base_url, visitor.origin + CALLBACK)
    page = browser.open(answer.headers["location"])
    if "password" in page.fields:
        page = sign_in.submit_password(browser, page, person)
        sign_in.require_signed_in(page)
        page = sign_in.allow(browser, page)
    if not page.url.startswith(browser.callback):
        message = f"no redirect to {CALLBACK}, but status {page.status}"
        return wrong(SIGN_IN, message, f"run: {COMMAND} doctor, without --client")
    answer = visitor.open(page.url.removeprefix(visitor.origin))
    if isinstance(answer, Trouble):
        return wrong(SIGN_IN, f"{CALLBACK}: {answer.message}", answer.hint)
    session, _ = proxy_sign_in.cookie_names()
    if answer.headers.get("location") != visitor.origin + uri or session not in visitor.cookies:
        hint = f"let the proxy pass {CALLBACK} to this server, and cookies in both directions"
        return wrong(SIGN_IN, f"{CALLBACK} answers {answer.status}, without a session", hint)
    return None


def _forge(visitor: _Visitor, person: ProbePerson, page: str) -> Finding:
    """Ask for a page with forged headers, and look for them in the answer."""
    parts = urlsplit(page)
    uri = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    true = {"Remote-User": str(person.user_id), "Remote-Email": person.email}
    usual = visitor.open(uri)
    if isinstance(usual, Trouble):
        return wrong(FORGED, f"{page}: {usual.message}", usual.hint)
    if _is_ours(usual):
        hint = "let the proxy send the cookies of the request when it asks this server"
        return wrong(FORGED, f"{page}: the proxy sends a signed-in user to sign in again", hint)
    texts = {name: (value,) for name, value in true.items()}
    visible = _shown(usual, texts)
    headers, marks = _forged_identity()
    underscored = {name.replace("-", "_"): value for name, value in headers.items()}
    stranger = _Visitor(visitor.client, visitor.origin)
    answers = [(who.open(uri, h), h) for h in (headers, underscored) for who in (visitor, stranger)]
    for answer, sent in answers:
        if isinstance(answer, Answer) and (arrived := _shown(answer, marks)):
            return _arrived(page, arrived, is_underscored=sent is underscored)
    first, _ = answers[0]
    if isinstance(first, Trouble):
        return wrong(FORGED, f"{page}, with forged headers: {first.message}", first.hint)
    if first.status != usual.status or _shown(first, texts) != visible:
        message = f"{page}: the answer changes ({usual.status}, then {first.status})"
        hint = "one of them reaches the application, or the proxy refuses such requests: look"
        return warning(FORGED, f"{message} when headers are forged", f"{hint} at its configuration")
    if not visible:
        message = f"{page} ({usual.status}) shows neither Remote-User nor Remote-Email of the user"
        return warning(FORGED, f"{message}: nothing can be said", "name a page that shows them")
    others = ", ".join(name for name in headers if name not in visible)
    return ok(
        FORGED,
        f"{page} shows the true {' and '.join(visible)}, whatever is forged; not to be seen "
        f"there: {others}",
    )


def _forged_identity() -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return forged headers, and the texts by which each can be told in an answer."""
    user, email, name, group, mark = (f"forged-{secrets.token_hex(8)}" for _ in range(5))
    claims = {
        "sub": mark,
        "name": mark,
        "email": f"{mark}@{DOCTOR_DOMAIN}",
        "email_verified": True,
        "groups": [mark],
    }
    header = {"alg": "ES256", "typ": proxy_sign_in.ASSERTION_TYPE, "kid": mark}
    assertion = jwt.encode(header, claims, ECKey.generate_key("P-256"))
    headers = {
        "Remote-User": user,
        "Remote-Email": f"{email}@{DOCTOR_DOMAIN}",
        "Remote-Name": name,
        "Remote-Groups": group,
        "X-Sso-Assertion": assertion,
    }
    texts = ((user,), (email,), (name,), (group,), (mark, assertion))
    return headers, dict(zip(headers, texts, strict=True))


def _shown(answer: Answer, texts: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the names of the headers whose texts an answer has."""
    whole = "\n".join([answer.body.decode("utf-8", "replace"), *answer.headers.values()]).lower()
    return [name for name, values in texts.items() if any(v.lower() in whole for v in values)]


def _arrived(page: str, names: Iterable[str], *, is_underscored: bool) -> Finding:
    listed = ", ".join(names)
    spelled = " with underscores in their names" if is_underscored else ""
    return wrong(
        FORGED,
        f"{page}: anybody can be anybody: forged headers{spelled} arrive: {listed}",
        f"let the proxy remove them{spelled} from what clients send; the presets nginx, caddy, "
        "traefik and envoy print such configurations",
    )
