"""Pages of signing keys (list, rotate, retire) and API tokens (list, create, revoke)."""

from datetime import timedelta

from flask import abort
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import context
from sso.endpoints.admin import access, admin_page
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.forms import ApiTokenForm
from sso.i18n import N_
from sso.models import ApiToken, KeyState, SigningKey
from sso.services import api_tokens, signing_keys
from sso.store import keys as stored_keys
from sso.store import users


def _retirement(key: SigningKey) -> str:
    is_next = key.state == KeyState.NEXT
    effect = (
        gettext("It is replaced by another one before it signs anything.")
        if is_next
        else gettext("It is removed from the key set, and its signatures are no longer accepted.")
    )
    return f"{key.kid} ({key.alg}): {effect}"


SIGNING_KEY = Resource(
    section="keys",
    find=lambda: stored_keys.find_signing_key(admin_page.searched("kid")) or abort(404),
    actions={
        "retire": Action(
            label=N_("Retire the key"),
            question=_retirement,
            done=N_("The key was retired."),
            run=lambda actor, key: signing_keys.retire(
                actor, key.kid, context.settings().secret_keys
            ),
            applies=lambda key: key.state != KeyState.ACTIVE,
            is_danger=True,
            after_commit=context.forget_keys,
        )
    },
)
SIGNING_KEYS = Resource[None](
    section="keys",
    find=lambda: None,
    actions={
        "rotate": Action(
            label=N_("Rotate the keys"),
            question=N_(
                "The next keys become active, and the active ones stay valid until expiry."
            ),
            done=N_("The keys were rotated."),
            run=lambda actor, _: signing_keys.rotate(actor, context.settings().secret_keys),
            after_commit=context.forget_keys,
        )
    },
    results=SIGNING_KEY.done_texts,
)


def keys() -> Response:
    """List the signing keys, oldest first."""
    return SIGNING_KEYS.render(
        "admin/keys.html", keys=stored_keys.every_signing_key(), states=KeyState
    )


def rotate() -> Response:
    """Ask, then activate the next keys."""
    return SIGNING_KEYS.act("rotate")


def retire() -> Response:
    """Ask, then replace a next key, or remove a retired one from the key set."""
    return SIGNING_KEY.act("retire")


API_TOKEN: Resource[ApiToken] = Resource(
    section="tokens",
    find=lambda: stored_keys.find_api_token(admin_page.uuid()) or abort(404),
    title=lambda token: token.name,
    actions={
        "revoke": Action(
            label=N_("Revoke the token"),
            question=N_("The program that uses it is refused at once. This cannot be undone."),
            done=N_("The token was revoked."),
            run=lambda actor, token: api_tokens.revoke(actor, token.id),
            applies=lambda token: token.revoked_at is None,
            is_danger=True,
        )
    },
)
TOKEN_STATES = {"valid": N_("valid"), "expired": N_("expired"), "revoked": N_("revoked")}


def tokens() -> Response:
    """List all API tokens, newest first."""
    order = stored_keys.NEWEST_API_TOKENS
    listed = order.page(stored_keys.selected_api_tokens(), admin_page.cursor(order))
    return API_TOKEN.render(
        "admin/tokens.html",
        tokens=listed.rows,
        owners=users.emails(str(token.owner_id) for token in listed.rows if token.owner_id),
        pages=admin_page.neighbours(listed),
        states=TOKEN_STATES,
    )


def new_token() -> Response:
    """Create a token, and show its secret."""
    form = ApiTokenForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            token, secret = api_tokens.create(
                access.staff().actor,
                form.name.data or "",
                form.scopes.data or (),
                timedelta(days=int(form.days.data)),
            )
            return admin_page.render(
                "admin/token_secret.html",
                "tokens",
                token=token,
                secret=secret,
                base_url=context.settings().base_url,
            )
    return admin_page.form_page("admin/token_new.html", "tokens", form, refusal)


def revoke_token() -> Response:
    """Ask, then revoke a token."""
    return API_TOKEN.act("revoke")
