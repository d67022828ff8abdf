"""Signing keys: listed, rotated, retired."""

from flask import abort
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import context
from sso.endpoints.admin import access, pages
from sso.endpoints.admin.forms import ConfirmForm
from sso.extensions import db
from sso.i18n import N_
from sso.models import KeyState
from sso.services import signing_keys
from sso.services.signing_keys import RotationRefused
from sso.store import keys as stored_keys

_DONE = {
    "rotated": N_("The keys were rotated."),
    "retired": N_("The key was retired."),
}


def keys() -> Response:
    """The signing keys, oldest first."""
    return pages.render(
        "admin/keys.html", "keys", done=_DONE, keys=stored_keys.every_signing_key(), states=KeyState
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
