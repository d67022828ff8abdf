"""Pages for troubleshooting: refused requests, and the preview of claims."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from flask import abort, request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso.endpoints.admin import access, admin_page, exports
from sso.explain import explaining
from sso.explain.case import Case, Explanation
from sso.explain.explaining import explain
from sso.flow import resources, scopes
from sso.flow.permissions import Permission
from sso.flow.token_claims import Missing, Reason
from sso.i18n import N_
from sso.models import Client, Refusal, User
from sso.services import preview as previews
from sso.services.preview import Stop
from sso.store import refusals, users

STOPS = {
    Stop.CLIENT_DISABLED: N_("The application is disabled."),
    Stop.USER_DISABLED: N_("This person's account is disabled."),
    Stop.CANNOT_SIGN_IN: N_("This person has neither a password nor a passkey."),
    Stop.NOT_A_MEMBER: N_("This person is in none of the groups that may use the application."),
    Stop.NOT_A_MEMBER_OF_API: N_("This person is in none of the groups that may use the API."),
    Stop.INVALID_TARGET: N_("The application may not use one of these APIs."),
    Stop.WITHOUT_PERSON: N_("Nobody signs in to the application: it gets tokens for itself."),
    Stop.INVALID_SCOPE: N_("The application may request none of these scopes."),
    Stop.NAME_ID_MISSING: N_("This person has no value for the NameID."),
    Stop.ALL_WITHHELD: N_("This person has allowed none of these scopes."),
}
REASONS = {
    Reason.NOT_REGISTERED: N_("The application may not request the scope %(scope)s."),
    Reason.NOT_REQUESTED: N_("The application does not request the scope %(scope)s."),
    Reason.WITHHELD: N_("This person does not allow the scope %(scope)s."),
    Reason.LEFT_OUT_BY_PROFILE: N_("The profile fapi2 leaves out claims of no standard."),
    Reason.NO_VALUE: N_("This person has no such value."),
    Reason.ONLY_AT_USERINFO: N_("It is only in the profile, not in the identity token."),
}
Explained = tuple[Case, Explanation]


def newest(client_id: str, limit: int) -> list[Explained]:
    """Return the latest refusals of a client, with explanations."""
    return _explained(refusals.newest(client_id=client_id, limit=limit))


def _explained(rows: Iterable[Refusal]) -> list[Explained]:
    """Explain refusals without telling of applications that the visitor does not manage."""
    managed = _managed()
    return [explain(refusal, managed) for refusal in rows]


def _managed() -> frozenset[str] | None:
    """Return the IDs of the clients that the visitor manages; `None` if these are all."""
    return access.staff().rights.clients_for(Permission.APPLICATIONS)


def _ids(client: Client | None) -> frozenset[str] | None:
    """Return the IDs of the clients whose refusals are asked for; `None` if all are."""
    return frozenset({client.client_id}) if client else _managed()


def _client() -> Client | None:
    """Return the client in the URL, if it names one; end the view with 404 if there is none."""
    return admin_page.application("client") if request.args.get("client") else None


ORDERS = admin_page.by_age(refusals.NEWEST_FIRST)


def refused() -> Response:
    """List the refusals, or those with an error ID, which may be mistyped."""
    text, client = admin_page.searched(), _client()
    client_id = client and client.client_id
    sort = admin_page.choice("sort", ORDERS)
    order, statement = ORDERS[sort][1], refusals.of(_ids(client))
    pages: dict[str, Any] = {}
    rows: Iterable[Refusal]
    if text:
        managed = _managed()
        rows = [
            refusal
            for refusal in explaining.find_refusals(text)
            if managed is None or refusal.client_id in managed
        ]
    else:
        listed = order.page(statement, admin_page.cursor(order))
        rows, pages = listed.rows, admin_page.neighbours(listed)
    explained = _explained(rows)
    return admin_page.render(
        "admin/refusals.html",
        "refusals",
        found=explained,
        pages=pages,
        total=None if text else admin_page.total(order, statement),
        export_url=admin_page.url(
            "refusals_export", **admin_page.chosen(client=client_id or "", sort=sort)
        ),
        orders=ORDERS,
        sort=sort,
        text=text,
        client=client,
        is_whole=bool(text) and len(explained) == 1,
    )


_EXPORTED = ("id", "time", "code", "endpoint", "client_id", "user_id")


def export_refusals() -> Response:
    """Export the refusals of a client, or all, as CSV."""
    client = _client()
    order = ORDERS[admin_page.choice("sort", ORDERS)][1]
    rows = exports.rows(order, refusals.of(_ids(client)))
    return exports.send_table(
        "refusals",
        _EXPORTED,
        (
            (row.request_id, exports.moment(row.at), row.name, row.endpoint, row.client_id,
             row.user_id)
            for row in rows
        ),
    )  # fmt: skip


def may_preview() -> bool:
    """Return whether the visitor may see what applications get of people."""
    staff = access.staff()
    return staff.may(Permission.APPLICATIONS) or staff.holds(Permission.READ_PEOPLE)


def preview() -> Response:
    """Show the claims that an application would receive about a user. Nothing is stored."""
    client, identifier = admin_page.application(), admin_page.searched("who")
    if not may_preview():
        abort(404)
    scope, resource = admin_page.searched("scope") or None, admin_page.searched("resource") or None
    user, result = _person(identifier), None
    if user:
        result = previews.make(client.client_id, user, scope, resource=resource)
    missing: dict[tuple[Reason, str], list[Missing]] = {}
    for claim in result.missing if result else ():
        of_scope = claim.reason in (Reason.NOT_REGISTERED, Reason.NOT_REQUESTED, Reason.WITHHELD)
        missing.setdefault((claim.reason, claim.scope if of_scope else ""), []).append(claim)
    return admin_page.render(
        "admin/application_preview.html",
        "applications",
        client=client,
        who=identifier,
        scope=scope,
        resource=resource,
        found=result,
        consent=_readable(result.consent) if result else "",
        granted=_readable(scopes.split(result.scope)) if result else "",
        stops=STOPS,
        reasons=REASONS,
        missing=missing,
        parts=_parts(result) if result else (),
    )


def _parts(shown_preview: previews.Preview) -> Sequence[tuple[str, dict[str, Any]]]:
    tokens, assertion = shown_preview.tokens, shown_preview.assertion
    if assertion:
        name_id = assertion.name_id or gettext("random, made at the first sign-on")
        named = {f"NameID ({assertion.kind})": name_id}
        return [(N_("Assertion"), named), (N_("Attributes"), dict(assertion.attributes))]
    if tokens is None:
        return ()
    parts = [
        (N_("Profile that the application can fetch"), tokens.userinfo),
        (N_("Identity token"), tokens.id_token and tokens.id_token.claims),
        *((N_("Access token"), token.claims) for token in tokens.access_tokens),
    ]
    return [(title, claims) for title, claims in parts if claims is not None]


def _readable(names: Iterable[str]) -> str:
    """Return scopes as text, those of APIs with the identifier: `read (https://api.example.com)`."""
    return ", ".join(
        f"{resources.scope_of(name)} ({resources.api_of(name)})".strip()
        if resources.is_of_api(name)
        else name
        for name in names
    )


def _person(identifier: str) -> User | None:
    """Return the user with this ID or email; none whom the visitor must not see.

    Those who manage only some applications see only people for whom they have a permission.
    """
    try:
        user = users.find(UUID(identifier))
    except ValueError:
        user = users.find_by_email(identifier)
    staff = access.staff()
    if user is None or staff.may(Permission.APPLICATIONS):
        return user
    return user if Permission.READ_PEOPLE in staff.rights.over(user.groups) else None
