"""The consent page, a step of the dispatcher: what the client asks for, in plain words."""

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from flask import make_response, render_template, request, url_for
from werkzeug.wrappers import Response

from sso import audit
from sso.audit.events import Event
from sso.endpoints import authorize
from sso.endpoints.forms import DecisionForm
from sso.extensions import db
from sso.flow import decision, scopes
from sso.models import User
from sso.ratelimit import refusals
from sso.services import consents
from sso.store.sessions import CurrentSession, Presence
from sso.web import browser_session
from sso.web.pending_request import PendingRequest, sign


@dataclass(frozen=True)
class Item:
    """One line of the page: what is asked for, what would be sent, and its tick box."""

    scope: str
    title: str
    detail: str | None
    optional: bool
    ticked: bool


def consent() -> Response:
    """Ask for consent; every answer goes back to the dispatcher."""
    waiting = authorize.read_waiting()
    if waiting is None:
        return authorize.stale()
    validated = authorize.validate(waiting)
    if isinstance(validated, Response):
        return validated
    visit = browser_session.current_session()
    step = authorize.decide(validated)
    if visit is None or validated.presence is None:
        return authorize.resume(waiting)
    if isinstance(step, decision.Forbid):
        return _forbidden(validated, visit, waiting)
    if not isinstance(step, decision.AskConsent):
        return authorize.resume(waiting)  # answered already, in another tab or before the back key
    form = DecisionForm()
    if request.method == "POST" and form.validate():
        return _decided(validated, visit, step, waiting)
    html = render_template(
        "consent.html",
        form=form,
        client_name=validated.client.name,
        client_host=urlsplit(validated.grant.redirect_uri).netloc,
        user_name=visit.user.name,
        user_email=visit.user.email,
        items=items(visit.user, step.scopes, _declined(validated.presence)),
        offered=" ".join(sorted(step.scopes)),
        known=[item.title for item in items(visit.user, step.known)],
        switch_url=_switch_url(waiting),
    )
    return make_response(html)


def items(user: User, asked: frozenset[str], declined: frozenset[str] = frozenset()) -> list[Item]:
    """The scopes in the registry's order, with the values that would be sent."""
    found = []
    for scope in scopes.SCOPES.values():
        if scope.name in asked and not (scope.name == "openid" and len(asked) > 1):
            values = scopes.values(user, scope.claims) if scope.name != "openid" else {}
            found.append(
                Item(
                    scope.name,
                    scope.title,
                    _words(scope.name, values),
                    scope.name not in scopes.NEEDED,
                    scope.name not in declined,
                )
            )
    return found


def _words(scope: str, values: dict[str, object]) -> str | None:
    if scope == "email":
        return str(values["email"])
    shown = [
        ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in values.items()
        if isinstance(value, str | list) and name != "picture"
    ]
    address = values.get("address")
    if isinstance(address, dict):
        shown = [str(address.get("formatted") or ", ".join(map(str, address.values())))]
    return " · ".join(shown) or None


def _decided(
    validated: authorize.Validated,
    visit: CurrentSession,
    step: decision.AskConsent,
    waiting: PendingRequest,
) -> Response:
    client_id = validated.client.client_id
    if request.form.get("decision") == "allow":
        # What came to be asked for while the page was open is asked about on the next one.
        offered = step.scopes & _offered(step)
        declined = _unticked(offered) - scopes.NEEDED
        allowed = sorted((offered | step.scopes & scopes.NEEDED) - declined)
        given_at = consents.remember(
            audit.USER, visit.user.id, client_id, allowed, sorted(declined)
        )
        db.session.commit()
        return authorize.resume(replace(waiting, consented_at=given_at))
    consents.deny(audit.USER, visit.user.id, client_id)
    return authorize.resume(replace(waiting, denied=True))


def _offered(step: decision.AskConsent) -> frozenset[str]:
    """The scopes that were on the page; all of them, if it had no boxes."""
    given = request.form.get("offered")
    return step.scopes if given is None else frozenset(given.split())


def _unticked(offered: frozenset[str]) -> frozenset[str]:
    """The scopes whose boxes came back empty; none, if the page had no boxes."""
    if "offered" not in request.form:
        return frozenset()
    return frozenset(name for name in offered if f"scope_{name}" not in request.form)


def _declined(presence: Presence) -> frozenset[str]:
    return frozenset(presence.consent.declined.split()) if presence.consent else frozenset()


def _forbidden(
    validated: authorize.Validated, visit: CurrentSession, waiting: PendingRequest
) -> Response:
    event = Event.CLIENT_FORBIDDEN
    refusals.note(
        event,
        budget=event,
        user=visit.user.id,
        client=validated.client.client_id,
        error="access_denied",
        description=decision.NOT_A_MEMBER,
    )
    back = url_for("pages.authorize", resume=sign(replace(waiting, turned_away=True)))
    html = render_template(
        "forbidden.html",
        client_name=validated.client.name,
        user_email=visit.user.email,
        back_url=back,
        switch_url=_switch_url(waiting),
    )
    response = make_response(html)
    response.status_code = 403
    return response


def _switch_url(waiting: PendingRequest) -> str:
    return url_for("pages.sign_in", resume=sign(waiting), another=1)
