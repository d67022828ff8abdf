"""Pages of users: search, show, invite, edit, and actions on them."""

from dataclasses import dataclass
from typing import Any

from flask import abort
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import context
from sso.audit import Actor, rows
from sso.crypto import passwords
from sso.endpoints.admin import access, admin_page, audit_trail, exports, mail_queue
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.forms import (
    InviteForm,
    NewPersonForm,
    PersonForm,
    SelectionForm,
    lines,
)
from sso.endpoints.admin.several import Several
from sso.endpoints.attribute_form import displayed
from sso.endpoints.forms import PictureForm
from sso.flow import permissions, profile_claims
from sso.flow.attributes import Party
from sso.flow.decision import ENDS, NOTIFIED
from sso.flow.permissions import Permission
from sso.i18n import N_, languages
from sso.i18n.message import Message
from sso.models import BrowserSession, Identity, User
from sso.services import accounts, attributes, authentication, credentials, pictures, roles
from sso.services import changes as differences
from sso.services import identities as linking
from sso.services.changes import Differences, ListEdit
from sso.store import factors, grants, identities, keys, named_groups, outbox, sessions


def _api_tokens(user: User) -> list[str]:
    """Return a warning that names the API tokens that will end with their owner, if any."""
    names = ", ".join(token.name for token in keys.of_owner(user.id))
    if not names:
        return []
    return [Message("API tokens that this person created are revoked, too: %(names)s", names=names)]


ENDED = N_("The sessions were ended.")
ACTIONS: dict[str, Action[User]] = {
    "invite": Action(
        label=N_("Send the invitation again"),
        question=N_("%(name)s gets another email with a link to set the password."),
        done=N_("The invitation will be sent."),
        run=credentials.invite_again,
        applies=lambda user: user.password_hash is None and not user.is_disabled,
        needs=permissions.CHANGE_PEOPLE,
        sends_mail=True,
    ),
    "verify": Action(
        label=N_("Send the confirmation of the address again"),
        question=N_("%(name)s gets another email with a link to confirm the address."),
        done=N_("The email will be sent."),
        run=credentials.request_verification,
        applies=lambda user: not user.email_verified and not user.is_disabled,
        needs=permissions.CHANGE_PEOPLE,
        sends_mail=True,
    ),
    "password": Action(
        label=N_("Send a link for a new password"),
        question=N_("%(name)s gets an email with a link to set a new password."),
        done=N_("The email will be sent."),
        run=credentials.mail_password_reset,
        applies=lambda user: user.password_hash is not None and not user.is_disabled,
        needs=permissions.CHANGE_PEOPLE,
        sends_mail=True,
    ),
    "factors": Action(
        label=N_("Reset the second factors"),
        question=N_(
            "All second factors of %(name)s are removed. Make sure that the request really comes "
            "from them."
        ),
        done=N_("The second factors were removed."),
        run=credentials.reset_factors,
        ends=ENDS["second factors reset by an operator"],
        is_danger=True,
        needs=permissions.CHANGE_PEOPLE,
    ),
    "sign-out": Action(
        label=N_("End all sessions"),
        question=N_("%(name)s is signed out everywhere."),
        done=N_("All sessions were ended."),
        run=authentication.sign_out,
        ends=ENDS["sign-out by an operator"],
        is_danger=True,
        needs=permissions.CHANGE_PEOPLE,
    ),
    "disable": Action(
        label=N_("Disable the account"),
        question=N_("%(name)s cannot sign in until you enable the account again."),
        done=N_("The account was disabled."),
        run=accounts.disable,
        applies=lambda user: not user.is_disabled,
        ends=ENDS["user disabled"],
        warnings=_api_tokens,
        is_danger=True,
        needs=permissions.WRITE_PEOPLE,
    ),
    "enable": Action(
        label=N_("Enable the account"),
        question=N_(
            "%(name)s will be able to sign in again. Sessions and access that ended do not come "
            "back."
        ),
        done=N_("The account was enabled."),
        run=accounts.enable,
        applies=lambda user: user.is_disabled,
        refusal=roles.why_not_enable,
        needs=permissions.WRITE_PEOPLE,
    ),
    "delete": Action(
        label=N_("Delete the account"),
        question=N_(
            "%(name)s is deleted, with all that belongs to the account. This cannot be undone."
        ),
        done=N_("The account was deleted."),
        run=accounts.delete,
        refusal=roles.why_not_free_email,
        ends=ENDS["user deleted"],
        warnings=_api_tokens,
        is_danger=True,
        is_removal=True,
        needs=permissions.WRITE_PEOPLE,
    ),
}


@dataclass(frozen=True)
class LinkedAccount:
    """A user, and an account at a provider that signs them in."""

    user: User
    identity: Identity

    @property
    def warnings(self) -> list[str]:
        return linking.consequences(self.user, self.identity)

    @property
    def question(self) -> str:
        provider = context.upstreams().find(self.identity.provider)
        text = gettext(
            "%(name)s can no longer sign in with the account %(account)s at %(provider)s.",
            name=_name(self.user),
            account=self.identity.email or self.identity.subject,
            provider=provider.name if provider else self.identity.provider,
        )
        return str(text)


def _name(user: User) -> str:
    return f"{user.name} ({user.email})"


def _linked_account() -> LinkedAccount:
    user, identity_id = admin_page.person(), admin_page.uuid("identity")
    linked = {identity.id: identity for identity in identities.of_user(user.id)}
    return LinkedAccount(user, linked.get(identity_id) or abort(404))


def _unlink(actor: Actor, account: LinkedAccount, warned: str) -> None:
    linking.remove_identity(actor, account.user, account.identity.id, warned=warned.splitlines())


LINKED_ACCOUNT = Resource(
    section="people",
    page="person",
    query=lambda account: {"id": str(account.user.id)},
    find=_linked_account,
    title=lambda account: account.user.name,
    actions={
        "unlink": Action(
            label=N_("Remove the connected account"),
            question=lambda account: account.question,
            done=N_("The connected account was removed."),
            run=_unlink,
            ends=(
                N_(
                    "Sessions that began with this account, and access of applications that lasts "
                    "as long"
                ),
                NOTIFIED,
            ),
            warnings=lambda account: account.warnings,
            version=lambda account: "\n".join(account.warnings),
            is_danger=True,
        )
    },
)
PERSON = Resource(
    section="people",
    page="person",
    query=lambda user: {"id": str(user.id)},
    find=admin_page.person,
    name="person",
    title=lambda user: user.name,
    variables=lambda user: {"name": _name(user)},
    may_act=lambda staff, user: roles.may_help(staff.actor, user),
    groups=lambda user: user.groups,
    actions=ACTIONS,
    results={
        "invited": N_("The account was created, and the invitation will be sent."),
        "not-invited": N_(
            "The account was created, but no invitation is sent: this address has had too many "
            "within the last hour, or receives none. Send it again later."
        ),
        "sessions-ended": ENDED,
        "imported": N_("The people were imported. Send invitations to those without a password."),
        "created": N_("The account was created."),
        "edited": N_("The changes were saved."),
        "picture": N_("The picture was changed."),
        "several": N_("The changes were saved for the people that you chose."),
        **LINKED_ACCOUNT.done_texts,
    },
)


def act() -> Response:
    """Ask before an action, then carry it out."""
    return PERSON.act()


def unlink() -> Response:
    """Ask, then remove an account at a provider that signs this user in."""
    return LINKED_ACCOUNT.act("unlink")


def state_of(user: User) -> list[tuple[str, str]]:
    """Return labels for the state of an account, such as disabled, each with the kind of state."""
    labels = [
        (title, kind)
        for applies, title, kind in (
            (user.is_disabled, N_("disabled"), "bad"),
            (user.password_hash is None and not user.is_disabled, N_("no password"), "warning"),
            (not user.email_verified, N_("not verified"), "warning"),
        )
        if applies
    ]
    return labels or [(N_("active"), "good")]


_NEWEST = 10
SESSION = Resource[BrowserSession](
    section="people",
    page="person",
    query=lambda session: {"id": str(session.user_id)},
    find=lambda: abort(404),
    may_act=lambda staff, _session: PERSON.may_act(staff, admin_page.person()),
    groups=lambda _session: admin_page.person().groups,
    actions={
        "end": Action(
            label=N_("End the sessions"),
            question=N_("The browser is signed out."),
            done=ENDED,
            run=lambda actor, session: authentication.end_some(
                actor, admin_page.person(), [session.id]
            ),
            ends=ENDS["sign-out by an operator"],
            is_danger=True,
            needs=permissions.CHANGE_PEOPLE,
        )
    },
)


def describe_session(session: BrowserSession) -> tuple[str, str, str]:
    """Return the id of a session, its browser, and where and when it was last used."""
    detail = f"{session.address} · {exports.moment(session.last_seen_at)}"
    return str(session.id), languages.browser_name(session.browser), detail


_SESSIONS = Several(
    resource=SESSION,
    tasks=("end",),
    find=lambda ids: [
        session for session in sessions.of_user(admin_page.uuid()) if str(session.id) in ids
    ],
    line=describe_session,
    page="person",
    done="sessions-ended",
    run=lambda _, actor, chosen: authentication.end_some(
        actor, admin_page.person(), [session.id for session in chosen]
    ),
)


def person() -> Response:
    """Show a user: profile, factors, sessions, applications, events and actions. A POST ends
    sessions.
    """
    staff, user, form = access.staff(), admin_page.person(), SelectionForm()
    if response := _SESSIONS.act(form, {"id": str(user.id)}):
        return response
    by_name = attributes.definitions()
    party = attributes.party_of(staff.actor, user.groups) or Party.ADMINISTRATOR
    held = staff.rights.over(user.groups)
    user_factors = factors.of_user(user.id)
    return PERSON.render(
        "admin/person.html",
        person=user,
        may_write=Permission.WRITE_PEOPLE in held,
        role=roles.role_of(user.groups),
        owned=named_groups.names_owned_by(user.id) if staff.may(Permission.GROUPS) else (),
        states=state_of(user),
        has_imported_password=passwords.is_foreign(user.password_hash),
        claims=[
            (profile_claims.title_of(name), value)
            for name, value in user.claims.items()
            if not (name == "picture" and pictures.is_uploaded(user.claims))
        ],
        may_change_picture=PERSON.may_act(staff, user)
        and not held.isdisjoint(permissions.CHANGE_PEOPLE),
        attributes=[
            (entry.title or entry.name, displayed(value), attributes.origin_text(user, entry.name))
            for entry, value in attributes.readable(user, party, by_name)
        ],
        may_edit_attributes=PERSON.may_act(staff, user)
        and not held.isdisjoint(permissions.CHANGE_PEOPLE)
        and attributes.writable(party, by_name),
        known=user_factors,
        identities=[
            (identity, context.upstreams().find(identity.provider))
            for identity in identities.of_user(user.id)
        ],
        sessions=[
            (session, languages.browser_name(session.browser))
            for session in sessions.of_user(user.id)
        ],
        accesses=grants.accesses_of(user.id),
        events=audit_trail.views(rows.newest(user_id=str(user.id), limit=_NEWEST)),
        mails=[
            (mail, mail_queue.subject_of(mail.kind), *mail_queue.state_of(mail))
            for mail in outbox.newest_to(user.email, _NEWEST)
        ],
        buttons=PERSON.buttons(user, "person_act"),
        form=form,
        may_end=PERSON.may_act(staff, user)
        and SESSION.actions["end"].holds_for(staff, user.groups),
        tasks=_SESSIONS.labels,
    )


def picture() -> Response:
    """Replace or remove the picture of a user."""
    staff, user, form = access.staff(), admin_page.person(), PictureForm()
    if not PERSON.may_act(staff, user):
        abort(404)
    with Refusal() as refusal:
        if form.validate_on_submit():
            pictures.change(staff.actor, user.id, form.read(staff.user.email))
            return PERSON.done("picture", user)
    if refusal.is_refused:
        user = admin_page.person()
    return admin_page.form_page("admin/person_picture.html", "people", form, refusal, person=user)


_SIMPLE = ("email", "name", "email_verified", "ends_at")


def invite() -> Response:
    """Create a user, and mail a link to set the password."""
    staff, form = access.staff(), InviteForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            user, is_sent = accounts.invite(
                staff.actor,
                email=form.email.data or "",
                name=form.name.data or "",
                groups=lines(form.groups.data) if staff.holds(Permission.WRITE_PEOPLE) else [],
            )
            return PERSON.done("invited" if is_sent else "not-invited", user)
    return admin_page.form_page(
        "admin/invite.html", "people", form, refusal, groups_hint=_groups_hint()
    )


def _groups_hint() -> str:
    """Return which groups a new person may be in, for those who manage only some."""
    groups = access.staff().rights.limited_to(permissions.WRITE_PEOPLE)
    if not groups:
        return ""
    text = gettext("At least one of your groups: %(groups)s", groups=", ".join(sorted(groups)))
    return str(text)


def new() -> Response:
    """Create a user with a password."""
    form = NewPersonForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            user = accounts.create(
                access.staff().actor,
                email=form.email.data or "",
                name=form.name.data or "",
                password=form.password.data,
                email_verified=bool(form.email_verified.data),
                groups=lines(form.groups.data),
            )
            return PERSON.done("created", user)
    return admin_page.form_page(
        "admin/person_new.html", "people", form, refusal, groups_hint=_groups_hint()
    )


def edit() -> Response:
    """Edit a user."""
    return PERSON.edit(
        "admin/edit_person.html",
        form_of=lambda _: PersonForm(),
        described=_described,
        save=_save,
        claims=profile_claims.CLAIMS.values(),
    )


def _described(user: User) -> dict[str, Any]:
    described = accounts.described(user)
    return {name: described[name] for name in (*_SIMPLE, "groups", "claims")}


def _save(actor: Actor, user: User, changes: Differences, expected: dict[str, Any]) -> None:
    values = {name: changes[name]["after"] for name in _SIMPLE if name in changes}
    if "groups" in changes:
        values["memberships"] = ListEdit(whole=tuple(changes["groups"]["after"]))
    if "claims" in changes:
        claims = differences.between(**changes["claims"])
        values["claims"] = {name: change["after"] for name, change in claims.items()}
    accounts.update(actor, user.id, seen=expected, **values)
