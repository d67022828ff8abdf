"""Signing keys: listed, rotated, retired. API tokens: listed, created, revoked."""

from datetime import timedelta

from flask import abort
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import context
from sso.endpoints.admin import access, pages
from sso.endpoints.admin.forms import ApiTokenForm, ConfirmForm
from sso.extensions import db
from sso.i18n import N_
from sso.models import ApiToken, KeyState
from sso.services import api_tokens, signing_keys
from sso.services.checks import Invalid
from sso.services.signing_keys import RotationRefused
from sso.store import keys as stored_keys
from sso.store import users

_KEYS_DONE = {
    "rotated": N_("The keys were rotated."),
    "retired": N_("The key was retired."),
}


def keys() -> Response:
    """The signing keys, oldest first."""
    return pages.render(
        "admin/keys.html",
        "keys",
        done=_KEYS_DONE,
        keys=stored_keys.every_signing_key(),
        states=KeyState,
    )


def rotate() -> Response:
    """Asks, then makes the next keys active."""
    form, errors = ConfirmForm(), []
    if form.validate_on_submit():
        try:
            signing_keys.rotate(access.staff().actor, context.settings().secret_keys)
        except RotationRefused as refused:
            db.session.rollback()
            errors = [refused.args[0]]
        else:
            return _done("rotated")
    question = gettext("The next keys become active, and the active ones stay valid until expiry.")
    label = gettext("Rotate the keys")
    return pages.ask(
        "keys", form, title=label, question=question, button=label, back=pages.url("keys"),
        errors=errors, is_danger=False,
    )  # fmt: skip


def retire() -> Response:
    """Asks, then replaces a next key, or takes a retired one off the key set."""
    key = stored_keys.find_signing_key(pages.searched("kid"))
    if key is None or key.state == KeyState.ACTIVE:
        abort(404)
    form, errors = ConfirmForm(), []
    if form.validate_on_submit():
        try:
            signing_keys.retire(access.staff().actor, key.kid, context.settings().secret_keys)
        except LookupError:  # removed at this moment
            abort(404)
        except RotationRefused as refused:
            db.session.rollback()
            errors = [refused.args[0]]
        else:
            return _done("retired")
    is_next = key.state == KeyState.NEXT
    question = (
        gettext("It is replaced by another one before it signs anything.")
        if is_next
        else gettext("It is removed from the key set, and its signatures are no longer accepted.")
    )
    label = gettext("Retire the key")
    return pages.ask(
        "keys", form, title=label, question=f"{key.kid} ({key.alg}): {question}", button=label,
        back=pages.url("keys"), errors=errors,
    )  # fmt: skip


def _done(what: str) -> Response:
    response = pages.done("keys", what)
    context.forget_keys()
    return response


_TOKENS_DONE = {"revoked": N_("The token was revoked.")}
TOKEN_STATES = {"valid": N_("valid"), "expired": N_("expired"), "revoked": N_("revoked")}


def tokens() -> Response:
    """All API tokens, a page at a time, the newest first."""
    order = stored_keys.NEWEST_API_TOKENS
    found = order.page(stored_keys.selected_api_tokens(), pages.cursor(order))
    return pages.render(
        "admin/tokens.html",
        "tokens",
        done=_TOKENS_DONE,
        tokens=found.rows,
        owners=users.emails(str(one.owner_id) for one in found.rows if one.owner_id),
        pages=pages.neighbours(found),
        states=TOKEN_STATES,
    )


def new_token() -> Response:
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
        except Invalid as error:
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


def revoke_token() -> Response:
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
    found = stored_keys.find_api_token(pages.uuid())
    return found if found and found.revoked_at is None else abort(404)
