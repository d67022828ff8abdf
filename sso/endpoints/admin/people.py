"""People: found, shown, invited, edited, and changed by one button.

An action asks first, then makes one service call.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from flask import abort, redirect, request
from flask_babel import gettext
from sqlalchemy import ColumnElement, Select
from werkzeug.wrappers import Response

from sso import context
from sso.audit import Actor, rows
from sso.crypto import passwords
from sso.endpoints.admin import access, audit_trail, pages
from sso.endpoints.admin.forms import ConfirmForm, InviteForm, PersonForm, lines, seen_of
from sso.extensions import db
from sso.flow.decision import ENDS, NOTIFIED
from sso.flow.scopes import CLAIM_NAMES
from sso.i18n import N_, languages
from sso.i18n.message import Message
from sso.models import User
from sso.services import accounts, credentials, helpdesk, staff
from sso.services import changes as differences
from sso.services import identities as linking
from sso.services.changes import Changed, Differences, ListEdit
from sso.services.checks import Invalid
from sso.store import factors, grants, groups, identities, keys, sessions, users
from sso.store.lists import Order


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
        helpdesk.invite_again,
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
        helpdesk.mail_password_reset,
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
        helpdesk.sign_out,
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
        except (LookupError, Invalid):  # deleted or changed at this moment
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


STATES: dict[str, tuple[str, Callable[[], ColumnElement[bool]]]] = {
    "disabled": (N_("disabled"), users.is_disabled),
    "invited": (N_("no password"), users.is_invited),
    "unverified": (N_("not verified"), users.is_unverified),
}
_NEWEST = 10


def people() -> Response:
    """Users: all of them, or those that are searched for."""
    text, group, anywhere = pages.searched(), pages.searched("group"), "anywhere" in request.args
    state = request.args.get("state", "")
    if found := _by_id(text):
        return redirect(pages.url("person", id=str(found.id)), 303)
    of_state = STATES[state][1]() if state in STATES else None
    return pages.render(
        "admin/people.html",
        "people",
        lists=[
            (title, found.rows, pages.neighbours(found, name, other))
            for title, order, statement, name, other in _lists(text, group, of_state, anywhere)
            if other not in request.args or name in request.args
            for found in [order.page(statement, pages.cursor(order, name))]
        ],
        text=text,
        group=group,
        state=state,
        anywhere=anywhere,
        states=[(name, title) for name, (title, _) in STATES.items()],
        state_of=state_of,
        done=DONE,
    )


_List = tuple[str | None, Order, Select[User], str, str]


def _lists(
    text: str, group: str, of_state: ColumnElement[bool] | None, anywhere: bool
) -> list[_List]:
    """Each list: its title, order and rows, and the names of its cursor and of the other one's."""
    conditions = [] if of_state is None else [of_state]
    if group:
        conditions.append(groups.has_member(group, among_few=True))
    if text and anywhere:
        found = users.containing(text).where(*conditions)
        return [(None, users.CONTAINING, found, "page", "names")]
    order, found = users.BY_EMAIL, users.with_email(text).where(*conditions)
    if group and of_state is None:
        order, found = users.in_group(group, text)
    if not text:
        return [(None, order, found, "page", "names")]
    named = users.with_name(text).where(*conditions)
    return [
        (N_("By email"), order, found, "page", "names"),
        (N_("By name"), users.BY_NAME, named, "names", "page"),
    ]


def _by_id(text: str) -> User | None:
    try:
        return users.find(UUID(text))
    except ValueError:
        return None


def state_of(user: User) -> list[str]:
    """What is special about an account, in a few words each."""
    return [
        title
        for name, title in (
            (user.disabled_at, N_("disabled")),
            (user.password_hash is None and not user.disabled_at, N_("no password")),
            (not user.email_verified, N_("not verified")),
        )
        if name
    ]


def person() -> Response:
    """One user: profile, factors, sessions, applications, events, and what can be done."""
    found = pages.person()
    known = factors.of_user(found.id)
    return pages.render(
        "admin/person.html",
        "people",
        done=DONE,
        person=found,
        role=staff.role_of(found.groups),
        states=state_of(found),
        has_imported_password=passwords.is_foreign(found.password_hash),
        claims=[(CLAIM_NAMES.get(name, name), value) for name, value in found.claims.items()],
        known=known,
        identities=[
            (one, context.upstreams().find(one.provider)) for one in identities.of_user(found.id)
        ],
        sessions=[(one, languages.browser_name(one.browser)) for one in sessions.of_user(found.id)],
        accesses=grants.accesses_of(found.id),
        events=audit_trail.shown(rows.newest(user_id=str(found.id), limit=_NEWEST)),
        actions=list(offered(found)),
    )


FIELDS = {
    "email": N_("Email"),
    "name": N_("Name"),
    "email_verified": N_("The address belongs to this person"),
    "groups": N_("Groups"),
    **CLAIM_NAMES,
}


def invite() -> Response:
    """Creates a user, who is mailed a link to set the password."""
    staff, form, errors = access.staff(), InviteForm(), []
    if form.validate_on_submit():
        groups = lines(form.groups.data) if staff.is_admin else []
        email, name = form.email.data or "", form.name.data or ""
        try:
            user, is_sent = accounts.invite(staff.actor, email=email, name=name, groups=groups)
        except Invalid as error:
            errors = error.errors
        else:
            what = "invited" if is_sent else "not-invited"
            return pages.done("person", what, id=str(user.id))
    return pages.render("admin/invite.html", "people", form=form, errors=errors)


def edit() -> Response:
    """Changes a user. What another administrator changed meanwhile is shown first."""
    user, form, errors = pages.person(), PersonForm(), []
    others: Differences = {}
    now = seen_of(accounts.described(user))
    if request.method != "POST":
        form.show(now)
    elif form.validate():
        seen = form.was_seen() or now
        try:
            _save(user, seen, form.read())
        except Changed as changed:
            others = changed.differences
            _merge(form, seen, user)
        except LookupError:  # deleted at this moment
            abort(404)
        except Invalid as error:
            errors = error.errors
        else:
            return pages.done("person", "edited", id=str(user.id))
    return pages.render(
        "admin/edit_person.html",
        "people",
        status=409 if others else 200,
        person=user,
        form=form,
        errors=errors,
        claim_names=CLAIM_NAMES,
        others=_in_words(others),
    )


def _save(user: User, seen: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Change only what the person who edits has changed."""
    changed = differences.between(seen, wanted)
    if not changed:
        return
    simple = ("email", "name", "email_verified")
    given: dict[str, Any] = {name: wanted[name] for name in simple if name in changed}
    if "groups" in changed:
        given["memberships"] = ListEdit(whole=tuple(wanted["groups"]))
    if "claims" in changed:
        inner = differences.between(seen["claims"], wanted["claims"])
        given["claims"] = {name: one["after"] for name, one in inner.items()}
    accounts.update(access.staff().actor, user.id, seen=seen, **given)


def _merge(form: PersonForm, seen: dict[str, Any], user: User) -> None:
    """What I have changed stays in the fields; the rest is as it is now."""
    mine, now = form.read(), seen_of(accounts.described(user))
    merged = {**now, **{name: mine[name] for name in differences.between(seen, mine)}}
    inner = differences.between(seen["claims"], mine["claims"])
    merged["claims"] = {**now["claims"], **{name: one["after"] for name, one in inner.items()}}
    form.show(merged, seen=now)


def _in_words(others: Differences) -> list[tuple[str, Any, Any]]:
    """What others changed: the name of the field, before and now."""
    found = []
    for name, one in others.items():
        if name == "claims":
            inner = differences.between(one["before"] or {}, one["after"] or {})
            found += [(FIELDS.get(n, n), o["before"], o["after"]) for n, o in inner.items()]
        else:
            found.append((FIELDS[name], one["before"], one["after"]))
    return pages.in_words((gettext(name), before, after) for name, before, after in found)
