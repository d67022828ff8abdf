"""The consent page, a step of the dispatcher: the requested scopes in plain words."""

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from flask import url_for
from werkzeug.wrappers import Response

from sso import audit
from sso.audit.events import Event
from sso.endpoints import authorize, browser_session, page
from sso.endpoints.forms import ConsentForm
from sso.extensions import db
from sso.flow import decision, scopes
from sso.flow.refusals import Cause, describe
from sso.models import User
from sso.ratelimit import refusals
from sso.services import revocation
from sso.store.sessions import CurrentSession, ResourceOwner
from sso.web.pending_request import PendingRequest, sign


@dataclass(frozen=True)
class Item:
    """A line of the page: the scope, the values that would be sent, and a checkbox."""

    scope: str
    title: str
    detail: str | None
    optional: bool
    ticked: bool


def consent() -> Response:
    """Ask the user which scopes the application gets."""
    pending = page.pending_request()
    if pending is None:
        return authorize.stale()
    validated, step = page.validate(pending)
    current = browser_session.current_session()
    if current is None or validated.owner is None:
        return authorize.resume(pending)
    if isinstance(step, decision.Forbid):
        return _forbidden(validated, current, pending)
    if not isinstance(step, decision.AskConsent):
        return authorize.resume(
            pending
        )  # already answered, in another tab or before using the back button
    form = ConsentForm()
    if form.validate_on_submit():
        return _decided(form, validated, current, step, pending)
    return page.render(
        "consent.html",
        form=form,
        client_name=validated.client.name,
        client_logo=page.logo_of(validated.client),
        destination=_destination(validated.grant.redirect_uri),
        is_native=validated.client.policy_at(validated.grant.redirect_uri).ask_each_time,
        user=current.user,
        items=items(current.user, step.scopes, _declined(validated.owner)),
        offered=" ".join(sorted(step.scopes)),
        known=[item.title for item in items(current.user, step.known)],
        switch_url=_switch_url(pending),
    )


def items(
    user: User, requested: frozenset[str], declined: frozenset[str] = frozenset()
) -> list[Item]:
    """Return the scopes in the registry's order, with the values that would be sent."""
    listed = []
    for scope in scopes.SCOPES.values():
        if scope.name in requested and not (scope.name == "openid" and len(requested) > 1):
            values = scopes.values(user, scope.claims) if scope.name != "openid" else {}
            listed.append(
                Item(
                    scope.name,
                    scope.title,
                    _words(scope.name, values),
                    scope.name not in scopes.NEEDED,
                    scope.name not in declined,
                )
            )
    return listed


def _words(scope: str, values: dict[str, object]) -> str | None:
    if scope == "email":
        return str(values["email"])
    texts = [
        ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in values.items()
        if isinstance(value, str | list) and name != "picture"
    ]
    address = values.get("address")
    if isinstance(address, dict):
        texts = [str(address.get("formatted") or ", ".join(map(str, address.values())))]
    return " · ".join(texts) or None


def _decided(
    form: ConsentForm,
    validated: authorize.Validated,
    current: CurrentSession,
    step: decision.AskConsent,
    pending: PendingRequest,
) -> Response:
    user_id, client_id = current.user.id, validated.client.client_id
    if form.decision.data != "allow":
        revocation.deny_consent(audit.USER, user_id, client_id)
        return authorize.resume(replace(pending, denied=True))
    # Scopes that were added while the page was open are asked about on the next one.
    submitted = form.offered.data
    offered = step.scopes if submitted is None else step.scopes & frozenset(submitted.split())
    declined = form.unticked(offered) - scopes.NEEDED
    allowed = sorted((offered | step.scopes & scopes.NEEDED) - declined)
    given_at = revocation.remember_consent(
        audit.USER, user_id, client_id, allowed, sorted(declined)
    )
    db.session.commit()
    return authorize.resume(replace(pending, consented_at=given_at))


def _destination(redirect_uri: str) -> str:
    parts = urlsplit(redirect_uri)
    return parts.netloc if parts.scheme in ("http", "https") else parts.scheme


def _declined(owner: ResourceOwner) -> frozenset[str]:
    return frozenset(owner.consent.declined.split()) if owner.consent else frozenset()


def _forbidden(
    validated: authorize.Validated, current: CurrentSession, pending: PendingRequest
) -> Response:
    event = Event.CLIENT_FORBIDDEN
    refusals.record(
        event,
        budget=event,
        facts={"user": current.user.id},
        user=current.user.id,
        client=validated.client.client_id,
        error="access_denied",
        description=describe(Cause.NOT_A_MEMBER),
    )
    back_url = url_for("pages.authorize", resume=sign(replace(pending, turned_away=True)))
    return page.render(
        "forbidden.html",
        status=403,
        client_name=validated.client.name,
        user=current.user,
        back_url=back_url,
        switch_url=_switch_url(pending),
    )


def _switch_url(pending: PendingRequest) -> str:
    return url_for("pages.sign_in", resume=sign(pending), another=1)
