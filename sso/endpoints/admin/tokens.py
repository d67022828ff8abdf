"""API tokens: listed, created, revoked."""

from datetime import timedelta

from flask import abort
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import context
from sso.endpoints.admin import access, pages
from sso.endpoints.admin.forms import ApiTokenForm, ConfirmForm
from sso.i18n import N_
from sso.models import ApiToken
from sso.services import api_tokens
from sso.services.checks import RegistrationError
from sso.store import keys, users

_DONE = {"revoked": N_("The token was revoked.")}
STATES = {"valid": N_("valid"), "expired": N_("expired"), "revoked": N_("revoked")}


def tokens() -> Response:
    """All API tokens, a page at a time, the newest first."""
    order = keys.NEWEST_API_TOKENS
    found = order.page(keys.selected_api_tokens(), pages.cursor(order))
    return pages.render(
        "admin/tokens.html",
        "tokens",
        done=_DONE,
        tokens=found.rows,
        owners=users.emails(str(one.owner_id) for one in found.rows if one.owner_id),
        pages=pages.neighbours(found),
        states=STATES,
    )


def new() -> Response:
    """Creates a token; the answer shows its secret."""
    form, errors = ApiTokenForm(), []
    if form.validate_on_submit():
        try:
            token, secret = api_tokens.create(
                access.staff().actor,
                form.name.data or "",
                form.scopes.data or (),
                timedelta(days=int(form.days.data)),
            )
        except RegistrationError as error:
            errors = error.errors
        else:
            return pages.render(
                "admin/token_secret.html",
                "tokens",
                token=token,
                secret=secret,
                base_url=context.settings().base_url,
            )
    return pages.render("admin/token_new.html", "tokens", form=form, errors=errors)


def revoke() -> Response:
    """Asks, then ends a token."""
    token, form = _token(), ConfirmForm()
    if form.validate_on_submit():
        try:
            api_tokens.revoke(access.staff().actor, token.id)
        except LookupError:  # deleted at this moment
            abort(404)
        return pages.done("tokens", "revoked")
    label = gettext("Revoke the token")
    return pages.ask(
        "tokens", form, title=f"{label} · {token.name}", button=label, back=pages.url("tokens"),
        question=gettext("The program that uses it is refused at once. This cannot be undone."),
    )  # fmt: skip


def _token() -> ApiToken:
    found = keys.find_api_token(pages.uuid())
    return found if found and found.revoked_at is None else abort(404)
