"""The consent page, a step of the dispatcher: the requested scopes in plain words."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from flask import request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit
from sso.audit.events import Event
from sso.endpoints import authorize, browser_session, page
from sso.endpoints.forms import ConsentForm
from sso.extensions import db
from sso.flow import decision, own_claims, resources, role_claims, scopes
from sso.flow.refusals import Cause, describe
from sso.flow.resources import Apis
from sso.i18n import times
from sso.models import User
from sso.oauth import document_clients, tokens
from sso.oauth.device_authorization import is_of_device
from sso.ratelimit import refusals
from sso.services import agent_identity, agents, revocation
from sso.store.sessions import CurrentSession, ResourceOwner
from sso.web.pending_request import PendingRequest, sign


@dataclass(frozen=True)
class Item:
    """A line of the page: the scope, the values that would be sent, and a checkbox.

    `field` and `value` are those of the checkbox.
    """

    title: str
    detail: str | None
    optional: bool
    ticked: bool
    field: str
    value: str = "1"


@dataclass(frozen=True)
class ApiItems:
    """An API that is asked for, and its lines."""

    name: str
    host: str
    items: list[Item]
    # What its tokens carry; `None` if they do not.
    groups: list[str] | None = None
    roles: list[str] | None = None


def consent() -> Response:
    """Ask the user which scopes the application gets."""
    pending = page.pending_request()
    if pending is None:
        return authorize.stale()
    validated, step = page.validate(pending)
    current = browser_session.current_session()
    if current is None or validated.owner is None:
        return authorize.resume(pending)
    if is_of_device(pending.parameters):
        return authorize.resume(pending)  # has a page of its own
    if isinstance(step, decision.Forbid):
        back_url = url_for("pages.authorize", resume=sign(replace(pending, turned_away=True)))
        return forbidden(validated, current, pending, step.api, back_url)
    if not isinstance(step, decision.AskConsent):
        # Already answered, in another tab or before using the back button.
        return authorize.resume(pending)
    form, apis = ConsentForm(), validated.grant.request.apis
    if form.validate_on_submit():
        return _decided(form, validated, current, step, pending)
    redirect_uri, is_agent = validated.grant.redirect_uri, validated.client.is_agent
    # Of an agent, the question how long it gets access stands for it.
    in_boxes = step.scopes - {"offline_access"} if is_agent else step.scopes
    return page.render(
        "agent_consent.html" if is_agent else "consent.html",
        form=form,
        client_name=agent_identity.title_of(validated.client),
        client_logo=page.logo_of(validated.client),
        destination=_destination(redirect_uri),
        is_native=validated.client.policy_at(redirect_uri).ask_each_time,
        agent=agent_identity.identity_of(validated.client, redirect_uri) if is_agent else None,
        outlives_session="offline_access" in step.scopes,
        lifetime=times.lifetime(_lifetime(validated.grant.request.asked.resources, apis)),
        user=current.user,
        items=items(current.user, in_boxes, declined_of(validated.owner)),
        apis=api_items(current.user, apis, step.scopes, declined_of(validated.owner)),
        roles=roles_of(current.user, validated.client.roles, step.scopes | step.known),
        claims=own_claims.about_people(validated.client.own_claims),
        offered=" ".join(sorted(step.scopes)),
        known=[
            *(item.title for item in items(current.user, step.known)),
            *(
                item.title
                for api in api_items(current.user, apis, step.known)
                for item in api.items
            ),
        ],
        switch_url=switch_url(pending),
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
                    gettext(scope.title),
                    _words(scope.name, values),
                    scope.name not in scopes.NEEDED,
                    scope.name not in declined,
                    f"scope_{scope.name}",
                )
            )
    return listed


def api_items(
    user: User, apis: Apis, requested: frozenset[str], declined: frozenset[str] = frozenset()
) -> list[ApiItems]:
    """List the APIs among the scopes of a request, each with the descriptions of its scopes."""
    listed = []
    for api in apis.values():
        names = [name for name in requested if resources.api_of(name) == api.identifier]
        in_order = [name for scope in ("", *api.scopes)
                    if (name := resources.qualified(api.identifier, scope)) in names]  # fmt: skip
        items = [
            Item(page.api_scope_title(api, name), None, True, name not in declined,
                 "api_scope", name)
            for name in in_order
        ]  # fmt: skip
        if items:
            host = urlsplit(api.identifier).netloc
            groups = list(user.groups) if api.includes_groups else None
            roles = roles_of(user, api.roles)
            listed.append(ApiItems(api.name, host, items, groups, roles))
    return listed


def roles_of(
    user: User, entries: Sequence[str], granted: frozenset[str] | None = None
) -> list[str] | None:
    """Return the roles that an application or an API learns; `None` if it learns none.

    `granted`: the scopes of an application, which learns its roles at userinfo.
    """
    if not entries or (granted is not None and granted.isdisjoint(scopes.USERINFO_SCOPES)):
        return None
    return role_claims.of(entries, user.groups)


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
    if document := document_clients.document_of(client_id):
        try:
            agents.admit(audit.USER, client_id, document.metadata)
        except agents.Refused:
            db.session.rollback()
            return authorize.resume(pending)  # it says why
    once = validated.client.is_agent and form.duration.data != form.LASTING
    form.scope_offline_access.data = form.scope_offline_access.data or validated.client.is_agent
    allowed, declined = choice(form, step)
    if once:  # this request alone does without: what was allowed before stays as it is
        allowed = [scope for scope in allowed if scope != "offline_access"]
    given_at = revocation.remember_consent(audit.USER, user_id, client_id, allowed, declined)
    if validated.client.is_agent:
        title = agent_identity.title_of(validated.client)
        agents.report_new(current.user, client_id, title, request.remote_addr or "", given_at)
    db.session.commit()
    return authorize.resume(replace(pending, consented_at=given_at, once=once))


def choice(form: ConsentForm, step: decision.AskConsent) -> tuple[list[str], list[str]]:
    """Return the scopes that were allowed, and those that were unticked."""
    # Scopes that were added while the page was open are asked about on the next one.
    submitted = form.offered.data
    offered = step.scopes if submitted is None else step.scopes & frozenset(submitted.split())
    declined = form.unticked(offered) - scopes.NEEDED
    return sorted((offered | step.scopes & scopes.NEEDED) - declined), sorted(declined)


def _lifetime(asked_for: Sequence[str], apis: Apis) -> int:
    """Return the seconds that the access tokens live at most which a request may give."""
    return max(tokens.lifetime_for(apis[api] if api else None) for api in (None, *asked_for))


def _destination(redirect_uri: str) -> str:
    parts = urlsplit(redirect_uri)
    return parts.netloc if parts.scheme in ("http", "https") else parts.scheme


def declined_of(owner: ResourceOwner) -> frozenset[str]:
    """Return the scopes that somebody unticked before."""
    return frozenset(owner.consent.declined.split()) if owner.consent else frozenset()


def forbidden(
    validated: authorize.Validated,
    current: CurrentSession,
    pending: PendingRequest,
    api: str | None,
    back_url: str | None,
) -> Response:
    """Tell the user that they may not use the client, or an API that it asks for.

    `back_url`: the way back to the client; a device has none.
    """
    event = Event.CLIENT_FORBIDDEN
    fault = (
        describe(Cause.NOT_A_MEMBER_OF_API, resource=api) if api else describe(Cause.NOT_A_MEMBER)
    )
    refusals.record(
        event,
        budget=event,
        facts={"user": current.user.id, **({"resource": api} if api else {})},
        user=current.user.id,
        client=validated.client.client_id,
        error="access_denied",
        description=fault,
    )
    return page.render(
        "forbidden.html",
        status=403,
        client_name=agent_identity.title_of(validated.client),
        api_name=validated.grant.request.apis[api].name if api else None,
        user=current.user,
        back_url=back_url,
        switch_url=switch_url(pending),
    )


def switch_url(pending: PendingRequest) -> str:
    """Return the URL for signing in with another account."""
    return url_for("pages.sign_in", resume=sign(pending), another=1)
