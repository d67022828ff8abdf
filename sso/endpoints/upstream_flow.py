"""What belongs to one sign-in at a provider's pages, until its callback.

It travels in a cookie for the callback alone: signed, bound to this browser, and good for 15
minutes. `state` names the cookie's content, and counts once. A long authorization request waits in
the database instead, because all cookies together have to fit into one header.
"""

import json
from dataclasses import astuple, dataclass, replace
from datetime import timedelta
from typing import Any

import flask
from flask import request
from werkzeug.wrappers import Response

from sso import clock, context, database
from sso.config.upstream.oidc import WebProvider
from sso.crypto import secrets
from sso.extensions import db
from sso.mfa import policy
from sso.ratelimit import limiting
from sso.store import redemption
from sso.web.pending_request import PendingRequest

LIFETIME = 900  # seconds, to sign in there
_PURPOSE, _USED = "upstream sign-in", "upstream state"
_SLOTS = 3  # sign-ins at once, in several tabs; a cookie each
_SLOT = "upstream_slot"
_MAX_RESUME = 1000  # characters of a waiting request that the cookie takes
_MAX_COOKIE = 2400  # bytes: three of them, and the session's, fit into a header of 8190


@dataclass(frozen=True)
class Flow:
    """What the callback has to know. `resume`: the waiting request; empty if it is stored."""

    state: str
    provider: str
    nonce: str
    verifier: str
    began_at: int
    resume: str | None
    remember: bool
    again: bool
    max_age: int | None
    user_id: str | None
    back: dict[str, str]


def keep(response: Response, flow: Flow, pending: PendingRequest | None) -> None:
    """Keep it in this browser. Commits. Raises `ValueError` if it is too long."""
    resume = flow.resume or ""
    is_long = pending is not None and len(resume) > _MAX_RESUME
    value = policy.sign_value(astuple(replace(flow, resume="") if is_long else flow), _PURPOSE)
    if len(value) > _MAX_COOKIE:
        raise ValueError("the request is too long to keep")
    if pending and is_long:
        limiting.spend(limiting.PUSHED_BY_ANYONE, "")  # a row until it is purged, as those are
        connection, client_id = database.session_connection(), pending.parameters["client_id"]
        text, now = json.dumps({"resume": resume}), clock.now()
        redemption.add_pushed(connection, _digest(flow), client_id, text, now)
        redemption.let_pushed_wait(connection, _digest(flow), now)
        db.session.commit()
    slot = flask.session[_SLOT] = (int(flask.session.get(_SLOT, 0)) + 1) % _SLOTS
    _set_cookie(response, slot, value)


def find(provider: WebProvider) -> tuple[int, Flow] | None:
    """The sign-in that an answer belongs to, and the place of its cookie."""
    state = request.args.get("state", "")
    for slot in range(_SLOTS):
        value = request.cookies.get(_cookie_name(slot), "")
        found = policy.verify_value(value, _PURPOSE, LIFETIME)
        flow = Flow(*found[0]) if found else None
        if flow and flow.provider == provider.id and secrets.is_equal(flow.state, state):
            return slot, replace(flow, resume=_stored(flow)) if flow.resume == "" else flow
    return None


def forget(response: Response, slot: int) -> None:
    """The callback is over."""
    _set_cookie(response, slot, "")


def is_first(flow: Flow) -> bool:
    """Whether this state has not been used yet. Commits."""
    now = clock.now()
    connection = database.session_connection()
    first = redemption.use_once(
        connection,
        _USED,
        flow.state,
        flow.state,
        now=now,
        expires_at=now + timedelta(seconds=LIFETIME),
    )
    db.session.commit()
    return first


def _stored(flow: Flow) -> str:
    """The waiting request; empty if it is gone."""
    found = redemption.find_pushed(database.session_connection(), _digest(flow))
    return str(json.loads(found.parameters).get("resume", "")) if found else ""


def _digest(flow: Flow) -> str:
    return secrets.digest(f"{_PURPOSE} {flow.state}")


def _cookie_name(slot: int) -> str:
    return f"{'__Secure-' if context.settings().is_https else ''}sso_upstream_{slot}"


def _set_cookie(response: Response, slot: int, value: str) -> None:
    """Lax: the way back from the provider is a navigation that another site has begun."""
    settings = context.settings()
    more: dict[str, Any] = {"secure": settings.is_https, "httponly": True, "samesite": "Lax"}
    path = f"{settings.base_path}/sign-in/callback"
    response.set_cookie(
        _cookie_name(slot), value, max_age=LIFETIME if value else 0, path=path, **more
    )
