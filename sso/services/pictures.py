"""Pictures of people. The URL of an uploaded one is the value of the claim `picture`.

Another value of this claim ends the uploaded picture (see `accounts.take_effect`).
"""

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sso import audit, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.config import urls
from sso.extensions import db
from sso.models import User
from sso.services import changes as differences
from sso.services import roles
from sso.services.changes import Differences
from sso.store import pictures, users

if TYPE_CHECKING:
    from sso.config.picture_files import Picture

_CLAIM = "picture"


@audit.acting
def change(actor: Actor, user_id: UUID, picture: "Picture | None") -> User:
    """Replace the picture of a user, or remove the uploaded one, by an operator.

    Raises `LookupError` and `NotAllowed`.
    """
    user = users.lock_any(user_id)
    if user is None:
        raise LookupError(user_id)
    roles.require_may_help(actor, user)
    if changes := _set(user, picture):
        audit.event(Event.USER_CHANGED, by=actor.by, user=user.id, what=_CLAIM, changes=changes)
    return user


@audit.acting
def set_own(actor: Actor, user_id: UUID, picture: "Picture | None") -> None:
    """Replace or remove the picture of the user, by the user.

    Raises `LookupError` if the account is disabled.
    """
    user = users.lock(user_id)
    if user is None:
        raise LookupError(user_id)
    if changes := _set(user, picture):
        audit.own_event(Event.PROFILE_CHANGED, user.id, what=_CLAIM, changes=changes)


def is_uploaded(claims: Mapping[str, Any]) -> bool:
    """Return whether the claim `picture` is that of an uploaded picture."""
    return urls.picture_name(claims.get(_CLAIM)) is not None


def _set(user: User, picture: "Picture | None") -> Differences:
    before, after = user.claims.get(_CLAIM), None
    if picture:
        name = secrets.token_urlsafe(24)
        pictures.replace(user.id, name, picture.data)
        after = urls.picture(context.settings().base_url, name)
    elif is_uploaded(user.claims):
        pictures.remove(user.id)
    else:
        return {}
    claims = {**user.claims, _CLAIM: after}
    user.claims = {key: value for key, value in claims.items() if value is not None}
    db.session.flush()
    return differences.between({_CLAIM: before}, {_CLAIM: after})
