"""Pages of signing keys (list, rotate, retire) and API tokens (list, create, revoke)."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from flask import abort
from flask_babel import gettext
from sqlalchemy import Select
from werkzeug.wrappers import Response

from sso import context
from sso.endpoints.admin import access, admin_page, exports, several
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.forms import ApiTokenForm, SelectionForm
from sso.endpoints.admin.several import Several
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
    results={several.DONE: several.SAVED},
)
TOKEN_STATES = {"valid": N_("valid"), "expired": N_("expired"), "revoked": N_("revoked")}
_SEVERAL = Several(
    resource=API_TOKEN,
    tasks=("revoke",),
    find=lambda ids: stored_keys.api_tokens_with(several.uuids(ids)),
    line=lambda token: (str(token.id), token.name, token.scope),
)
ORDERS: admin_page.Orders = {
    **admin_page.by_age(stored_keys.NEWEST_API_TOKENS),
    "name": (N_("Name"), stored_keys.API_TOKENS_BY_NAME),
    "expires": (N_("Expires"), stored_keys.API_TOKENS_BY_END),
}
_EXPORTED = ("id", "name", "owner_id", "state", "scopes", "created", "expires", "last_used")


def _filters() -> dict[str, str]:
    """Return the filters in the URL."""
    state = admin_page.choice("state", TOKEN_STATES)
    sort = admin_page.choice("sort", ORDERS)
    return admin_page.chosen(q=admin_page.searched(), state=state, sort=sort)


def _statement(filters: Mapping[str, str]) -> Select[ApiToken]:
    return stored_keys.selected_api_tokens(filters.get("q", ""), filters.get("state", ""))


def export_tokens() -> Response:
    """Export the API tokens that the filters select, as CSV; never their secrets."""
    filters = _filters()
    rows = exports.rows(ORDERS[filters.get("sort", "")][1], _statement(filters))
    return exports.send_table("API tokens", _EXPORTED, map(_line, rows))


def _line(token: ApiToken) -> Sequence[object]:
    used = exports.moment(token.last_used_at) if token.last_used_at else ""
    return (
        token.id, token.name, token.owner_id, token.state, token.scope,
        exports.moment(token.created_at), exports.moment(token.expires_at), used,
    )  # fmt: skip


def tokens() -> Response:
    """List API tokens; a POST revokes several of them."""
    form, filters = SelectionForm(), _filters()
    if response := _SEVERAL.act(form, filters):
        return response
    order, statement = ORDERS[filters.get("sort", "")][1], _statement(filters)
    listed = order.page(statement, admin_page.cursor(order))
    return API_TOKEN.render(
        "admin/tokens.html",
        tokens=listed.rows,
        total=admin_page.total(order, statement),
        filters=filters,
        orders=ORDERS,
        form=form,
        tasks=_SEVERAL.labels,
        export_url=admin_page.url("tokens_export", **filters),
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
