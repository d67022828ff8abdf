"""Checks of one application: its registered URLs answer, and a sign-in leads to its callback."""

import shlex
from collections.abc import Iterable, Mapping
from functools import partial
from urllib.parse import urljoin, urlsplit

from sso import audit, context
from sso.checkup import reach
from sso.checkup import sign_in as sign_in_steps
from sso.checkup.finding import Finding, Findings, ok, skipped, warning, wrong
from sso.checkup.reach import Trouble
from sso.checkup.sign_in import Browser, temporary_user
from sso.config import urls
from sso.config.auth_methods import PRIVATE_KEY_JWT
from sso.crypto import client_jwt
from sso.extensions import db
from sso.models import Client
from sso.oauth import authorization_request, key_sets
from sso.oauth.key_sets import KeySetUnavailable
from sso.process.http_call import Answer
from sso.process.program import COMMAND
from sso.services import agent_identity
from sso.store import outbox

CALLBACK = "redirect URI"
MOST = 10  # URLs of a kind that are tried
_UNKNOWN_PATH = (404, 410)
_PROXY_WAITS = (502, 503, 504)


def registration(client: Client) -> Findings:
    """Check that the client is enabled."""
    message = f"{agent_identity.described(client)} ({client.client_id})"
    if client.disabled_at is not None:
        hint = f"run: {COMMAND} client enable {client.client_id}"
        yield wrong("client", f"{message} is disabled: nobody can sign in to it", hint)
    else:
        yield ok("client", message)


def redirect_uris(client: Client) -> Findings:
    """Call the redirect URIs, without any parameter."""
    yield from _each(CALLBACK, client, client.redirect_uris)


def post_logout_redirect_uris(client: Client) -> Findings:
    """Call the URLs for browsers that have signed out."""
    registered = client.client_metadata.get("post_logout_redirect_uris", [])
    yield from _each("post-logout URI", client, registered)


def _each(name: str, client: Client, registered: Iterable[str]) -> Findings:
    listed = list(registered)
    tried: dict[tuple[str, str], Answer | Trouble] = {}
    for uri in listed[:MOST]:
        parts = urlsplit(uri)
        origin = parts.scheme, parts.netloc
        previous = tried.get(origin)
        if reason := _not_callable(uri, client):
            yield skipped(name, f"{uri}: {reason}")
        elif isinstance(previous, Trouble):
            yield skipped(name, f"{uri}: same host as above")
        else:
            answer = tried[origin] = reach.fetch("GET", uri)
            if isinstance(answer, Trouble):
                yield _silent(name, uri, answer)
                continue
            if previous is None:
                yield from _expiry(name, uri, answer)
            yield _answered(name, uri, answer, client)
    if len(listed) > MOST:
        yield skipped(name, f"{len(listed) - MOST} more are not tried")


def _not_callable(uri: str, client: Client) -> str | None:
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https"):
        return "it opens a program on the user's device, and cannot be called from here"
    if not urls.is_loopback(parts.hostname):
        return None
    if client.is_public:
        return "a program on the user's device listens there, during a sign-in only"
    if not urls.is_loopback(urlsplit(context.settings().base_url).hostname):
        return "it is on the machine of the browser, and cannot be called from here"
    return None


def _silent(name: str, uri: str, trouble: Trouble) -> Finding:
    if trouble.is_certain:
        return wrong(name, f"{uri}: {trouble.message}", trouble.hint)
    hint = f"{trouble.hint}; if the address works in a browser, ignore this"
    return warning(name, f"{uri}: {trouble.message}", hint)


def _expiry(name: str, uri: str, answer: Answer) -> Findings:
    days = reach.days_left(answer)
    if days is not None and days < reach.RENEW.days:
        yield warning(name, f"{uri}: the certificate expires in {days} days", "renew it")


def _answered(name: str, uri: str, answer: Answer, client: Client) -> Finding:
    if problem := _path_problem(name, uri, answer):
        return problem
    target = _elsewhere(uri, answer)
    if target is None:
        usual = ", as it was called without a code" if name == CALLBACK else ""
        status = f" ({answer.status}{usual})" if answer.status >= 400 else ""
        return ok(name, f"{uri} answers{status}")
    if name != CALLBACK:  # browsers follow
        return ok(name, f"{uri} redirects to {target}")
    update = f"{COMMAND} client update {client.client_id} --add-redirect-uri {shlex.quote(target)}"
    message = f"{uri}: the application redirects to {urlsplit(target).netloc}"
    return warning(name, message, f"if it is used at that address: {update}")


def _elsewhere(uri: str, answer: Answer) -> str | None:
    """Return the same path on the host of a redirect; `None` for the same host or this server."""
    if not 300 <= answer.status < 400:
        return None
    here, ours = urlsplit(uri), urlsplit(context.settings().base_url)
    try:
        there = urlsplit(urljoin(uri, answer.headers.get("location", "")))
    except ValueError:
        return None
    if (there.scheme, there.netloc) in ((here.scheme, here.netloc), (ours.scheme, ours.netloc)):
        return None
    return here._replace(scheme=there.scheme, netloc=there.netloc.rpartition("@")[2]).geturl()[:300]


def _path_problem(name: str, uri: str, answer: Answer) -> Finding | None:
    if answer.status in _UNKNOWN_PATH:
        message = f"{uri}: the application does not know this path ({answer.status})"
        return warning(name, message, "compare it with the application's documentation")
    if answer.status in _PROXY_WAITS:
        message = f"{uri}: a proxy answers for the application ({answer.status})"
        return warning(
            name, message, "start the application, or check where its proxy looks for it"
        )
    return None


def backchannel_logout(client: Client) -> Findings:
    """Check that the worker can reach the URL for logout tokens.

    OPTIONS is a safe method (RFC 9110 §9.2.1). A POST, even without a token, might sign people out.
    """
    name, uri = "back-channel logout", client.backchannel_logout_uri
    if uri is None:
        yield skipped(name, "no address is registered: the application learns of no sign-out here")
        return
    answer = reach.fetch("OPTIONS", uri, as_worker=True)
    waiting = outbox.logouts_waiting_for(client.client_id)
    queue = f"; {waiting} logout tokens are waiting" if waiting else ""
    if isinstance(answer, Trouble):
        yield wrong(name, f"{uri}: {answer.message}{queue}", answer.hint)
        return
    methods = {method.strip().upper() for method in answer.headers.get("allow", "POST").split(",")}
    if 300 <= answer.status < 400:
        hint = "register the address to which it redirects: logout tokens follow no redirect"
        yield wrong(name, f"{uri}: the application redirects", hint)
    elif problem := _path_problem(name, uri, answer):
        yield problem
    elif "POST" not in methods:
        hint = "compare the path with the application's documentation"
        allowed = ", ".join(sorted(methods))[:80]
        yield warning(name, f"{uri}: it takes no POST, only {allowed}", hint)
    else:
        yield ok(name, f"{uri} answers OPTIONS; no logout token was sent{queue}")


def keys(client: Client) -> Findings:
    """Check that the client has public keys for what it signs, also at its URL."""
    name, url = "keys", client.client_metadata.get("jwks_uri")
    jwks = client.client_metadata.get("jwks")
    if jwks is None and url is None:
        return
    try:
        key_list = key_sets.read(url) if url else client_jwt.usable_keys(jwks)
    except KeySetUnavailable as error:
        hint = "the URL has to give a JWK set over https, at a public address, within 5 seconds"
        yield wrong(name, f"{url}: {error}", hint)
        return
    usable = {alg for key in key_list for alg in key.algorithms}
    missing = [
        (purpose, algorithms) for purpose, algorithms in _signs(client) if not algorithms & usable
    ]
    for purpose, algorithms in missing:
        hint = "the client needs a key for one of these algorithms"
        yield wrong(name, f"no key is for {', '.join(sorted(algorithms))}, to sign {purpose}", hint)
    if not missing:
        where = url or "registered"
        yield ok(name, f"{where}: {len(key_list)} public keys, for {', '.join(sorted(usable))}")


def _signs(client: Client) -> Iterable[tuple[str, set[str]]]:
    """Yield what the client signs with its key, and the algorithms that are accepted."""
    accepted = client_jwt.FAPI_ALGORITHMS if client.is_fapi2 else client_jwt.ALGORITHMS
    if client.token_endpoint_auth_method == PRIVATE_KEY_JWT:
        registered = client.token_endpoint_auth_signing_alg
        yield "client assertions", {registered} if registered else set(accepted)
    if alg := client.request_object_signing_alg:
        yield "requests", {alg}


def sign_in(client: Client) -> Findings:
    """Sign in as a browser, up to the redirect to the application, which is not followed."""
    yield from sign_in_steps.explained("sign-in", lambda: _sign_in(client))
    parts = {
        "client assertions": client.token_endpoint_auth_method == PRIVATE_KEY_JWT,
        "signed requests": client.request_object_signing_alg is not None,
        "pushed requests": client.requires_par,
        "DPoP proofs": client.requires_dpop,
    }
    if untried := [name for name, is_needed in parts.items() if is_needed]:
        message = f"only the application has its key; not tried: {', '.join(untried)}. "
        yield skipped("application", f"{message}If it is refused, see: {COMMAND} explain")


def _push(client: Client, parameters: Mapping[str, str]) -> str:
    """Store a request as if the application had pushed it."""
    uri = authorization_request.keep_pushed(db.session.connection(), client.client_id, parameters)
    db.session.commit()
    return uri


def _sign_in(client: Client) -> Findings:
    if not client.redirect_uris:
        yield skipped("sign-in", "no browser comes back to it: it has no redirect URI")
        return
    callback, groups = client.redirect_uris[0], client.groups[:1]
    must_push = client.requires_par or client.request_object_signing_alg
    doctor = audit.operator(by="doctor")
    with temporary_user(doctor, groups=groups, has_second_factor=client.require_mfa) as person:
        browser = Browser(context.settings().base_url, callback)
        party = sign_in_steps.relying_party(browser, client.client_id, scope=client.scope)
        push = partial(_push, client) if must_push else None
        request, page = sign_in_steps.authorize(browser, party, push)
        page = sign_in_steps.submit_password(browser, page, person)
        sign_in_steps.require_signed_in(page)
        sign_in_steps.code_of(sign_in_steps.allow(browser, page), party, request)
    member = f", made a member of {groups[0]}," if groups else ""
    yield ok(
        "sign-in",
        f"a temporary user{member} signs in, and is sent to {callback} with a code; "
        "the code was not delivered",
    )
