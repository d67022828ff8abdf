"""What is done to a person by one button: asked about first, then one service call."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flask import abort, request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import context
from sso.audit import Actor
from sso.endpoints.admin import access, pages
from sso.endpoints.admin.forms import ConfirmForm
from sso.extensions import db
from sso.flow.decision import ENDS, NOTIFIED
from sso.i18n import N_
from sso.i18n.message import Message
from sso.models import User
from sso.services import accounts, credentials, staff
from sso.services import identities as linking
from sso.services.changes import Changed
from sso.services.checks import RegistrationError
from sso.store import identities, keys


@dataclass(frozen=True)
class Action:
    """`cause`: what it ends, of `decision.ENDS`. `applies`: whether it makes sense for a user.

    `run` gives `False` if the mail that it is about is not sent.
    """

    label: str
    question: str
    done: str
    run: Callable[[Actor, User], Any]
    cause: str | None = None
    applies: Callable[[User], bool] = lambda _: True
    is_for_helpdesk: bool = False


ACTIONS = {
    "invite": Action(
        N_("Send the invitation again"),
        N_("%(name)s gets another email with a link to set the password."),
        N_("The invitation will be sent."),
        accounts.invite_again,
        applies=lambda user: user.password_hash is None and user.disabled_at is None,
        is_for_helpdesk=True,
    ),
    "verify": Action(
        N_("Send the confirmation of the address again"),
        N_("%(name)s gets another email with a link to confirm the address."),
        N_("The email will be sent."),
        credentials.request_verification,
        applies=lambda user: not user.email_verified and user.disabled_at is None,
        is_for_helpdesk=True,
    ),
    "password": Action(
        N_("Send a link for a new password"),
        N_("%(name)s gets an email with a link to set a new password."),
        N_("The email will be sent."),
        accounts.mail_password_reset,
        applies=lambda user: user.password_hash is not None and user.disabled_at is None,
        is_for_helpdesk=True,
    ),
    "factors": Action(
        N_("Reset the second factors"),
        N_(
            "All second factors of %(name)s are removed. Make sure that the request really comes "
            "from them."
        ),
        N_("The second factors were removed."),
        credentials.reset_factors,
        cause="second factors reset by an operator",
        is_for_helpdesk=True,
    ),
    "sign-out": Action(
        N_("End all sessions"),
        N_("%(name)s is signed out everywhere."),
        N_("All sessions were ended."),
        accounts.sign_out,
        cause="sign-out by an operator",
        is_for_helpdesk=True,
    ),
    "disable": Action(
        N_("Disable the account"),
        N_("%(name)s cannot sign in until you enable the account again."),
        N_("The account was disabled."),
        accounts.disable,
        cause="user disabled",
        applies=lambda user: user.disabled_at is None,
    ),
    "enable": Action(
        N_("Enable the account"),
        N_(
            "%(name)s will be able to sign in again. Sessions and access that ended do not come "
            "back."
        ),
        N_("The account was enabled."),
        accounts.enable,
        applies=lambda user: user.disabled_at is not None,
    ),
    "delete": Action(
        N_("Delete the account"),
        N_("%(name)s is deleted, with all that belongs to the account. This cannot be undone."),
        N_("The account was deleted."),
        accounts.delete,
        cause="user deleted",
    ),
}  # fmt: skip
DONE = {name: action.done for name, action in ACTIONS.items()} | {
    "invited": N_("The account was created, and the invitation will be sent."),
    "not-invited": N_(
        "The account was created, but no invitation is sent: this address has had too many within "
        "the last hour, or receives none. Send it again later."
    ),
    "not-sent": N_(
        "No email is sent: this address has had too many within the last hour, or receives none."
    ),
    "edited": N_("The changes were saved."),
    "unlinked": N_("The connected account was removed."),
}
_BEGUN_THERE = (
    N_("Sessions that began with this account, and access of applications that lasts as long"),
    NOTIFIED,
)


def offered(user: User) -> Iterator[tuple[str, Action]]:
    """What the acting administrator may do to this person, by name."""
    is_admin = access.staff().is_admin
    if is_admin or staff.role_of(user.groups) is None:
        for name, action in ACTIONS.items():
            if (is_admin or action.is_for_helpdesk) and action.applies(user):
                yield name, action


def act() -> Response:
    """Asks before one of the actions, and does it."""
    user, name = pages.person(), request.args.get("do", "")
    action = dict(offered(user)).get(name)
    if action is None:
        abort(404)
    form = ConfirmForm()
    if form.validate_on_submit():
        try:
            is_sent = action.run(access.staff().actor, user) is not False
        except (LookupError, RegistrationError):  # deleted or changed at this moment
            abort(404)
        if name == "delete":
            return pages.done("people", name)
        return pages.done("person", name if is_sent else "not-sent", id=str(user.id))
    label = gettext(action.label)
    return pages.ask(
        "people",
        form,
        title=f"{label} · {user.name}",
        question=gettext(action.question, name=f"{user.name} ({user.email})"),
        button=label,
        back=pages.url("person", id=str(user.id)),
        ends=ENDS[action.cause] if action.cause else (),
        is_danger=action.cause is not None,
        warnings=_tokens(user) if name in ("disable", "delete") else (),
    )


def _tokens(user: User) -> list[str]:
    """Return a warning that names the API tokens that will end with their owner, if any."""
    names = ", ".join(one.name for one in keys.of_owner(user.id))
    if not names:
        return []
    return [Message("API tokens that this person created are revoked, too: %(names)s", names=names)]


def unlink() -> Response:
    """Asks, then removes an account at a provider that signs this person in."""
    user, identity_id = pages.person(), pages.uuid("identity")
    identity = next((one for one in identities.of_user(user.id) if one.id == identity_id), None)
    if identity is None:
        abort(404)
    form, errors = ConfirmForm(), []
    if form.validate_on_submit():
        warned = (form.seen.data or "").splitlines()
        try:
            linking.remove_identity(access.staff().actor, user, identity_id, warned=warned)
        except LookupError:  # removed at this moment
            abort(404)
        except Changed:
            db.session.rollback()
            errors = [
                Message("Someone else has changed this in the meantime. Nothing was deleted.")
            ]
        else:
            return pages.done("person", "unlinked", id=str(user.id))
    warnings = linking.consequences(user, identity)
    form.seen.data = "\n".join(warnings)
    provider = context.upstreams().find(identity.provider)
    label = gettext("Remove the connected account")
    return pages.ask(
        "people",
        form,
        title=f"{label} · {user.name}",
        question=gettext(
            "%(name)s can no longer sign in with the account %(account)s at %(provider)s.",
            name=f"{user.name} ({user.email})",
            account=identity.email or identity.subject,
            provider=provider.name if provider else identity.provider,
        ),
        button=label,
        back=pages.url("person", id=str(user.id)),
        ends=_BEGUN_THERE,
        errors=errors,
        warnings=warnings,
    )
