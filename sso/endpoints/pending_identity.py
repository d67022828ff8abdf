"""An identity that waits in this browser until its person has signed in here, to be linked.

It stands in the browser's own cookie, which we sign.
"""

from dataclasses import asdict

import flask

from sso import clock, context
from sso.config.upstream.provider import Provider
from sso.upstream.identity import UpstreamIdentity

_KEY = "identity"
_LIFETIME = 1800  # seconds, to look for a password or a mail
_KEPT = ("issuer", "subject", "email", "email_verified", "name")


def keep(provider: Provider, found: UpstreamIdentity) -> None:
    """Let it wait; an earlier one is forgotten. Groups and tokens come with the next sign-in."""
    values = {name: value for name, value in asdict(found).items() if name in _KEPT}
    values["email"], values["name"] = (found.email or "")[:320], found.name[:200]
    flask.session[_KEY] = [clock.timestamp(clock.now()), provider.id, values]


def waiting() -> tuple[Provider, UpstreamIdentity] | None:
    """What waits in this browser."""
    if _KEY not in flask.session:
        return None
    at, provider_id, values = flask.session[_KEY]
    provider = context.upstreams().find(provider_id)
    if provider is None or not 0 <= clock.timestamp(clock.now()) - at <= _LIFETIME:
        return None
    return provider, UpstreamIdentity(**values)


def forget() -> None:
    flask.session.pop(_KEY, None)


def clear_others() -> None:
    """Clear the cookie for another session of the browser, but for what waits."""
    kept = flask.session.get(_KEY)
    flask.session.clear()
    if kept:
        flask.session[_KEY] = kept
