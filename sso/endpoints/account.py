"""The user's own pages: profile, sign-ins, applications, connected accounts, events, deletion."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar
from uuid import UUID

from flask import abort, redirect, request, url_for
from flask_babel import gettext
from flask_login import login_required
from werkzeug.wrappers import Response
from wtforms import StringField

from sso import audit, context, database
from sso.audit import rows
from sso.audit.event_titles import TITLES
from sso.audit.events import Event
from sso.crypto import passwords
from sso.endpoints import browser_session, page, upstream
from sso.endpoints.attribute_form import OwnValuesForm, displayed, typed
from sso.endpoints.forms import (
    AccountForm,
    ChangeNameForm,
    ChangePasswordForm,
    DeleteAccountForm,
    PictureForm,
)
from sso.endpoints.upstream_sign_in import may_link
from sso.extensions import db
from sso.flow import profile_claims, scopes
from sso.flow.attributes import Definition, Party
from sso.flow.resources import api_of, identifiers_in, is_of_api
from sso.i18n import N_, languages
from sso.i18n.languages import LANGUAGES
from sso.mfa import policy
from sso.models import Api, AuditEvent, User
from sso.models.clients import MAX_CLIENT_ID
from sso.ratelimit import device_cookie
from sso.services import (
    accounts,
    agent_identity,
    attributes,
    credentials,
    pictures,
    revocation,
    roles,
    terms,
)
from sso.services import identities as linking
from sso.services.checks import Invalid
from sso.services.identities import LinkRefused
from sso.store import account_page, apis, clients, grants, sessions, users
from sso.store import identities as stored
from sso.store.account_page import AccountFacts, LinkedIdentity
from sso.store.grants import Access
from sso.store.sessions import CurrentSession
from sso.web import cookies
from sso.web.forms import PageForm

Entry = TypeVar("Entry")
_SHOWN = ("profile", "address", "phone")
_SESSIONS_DONE = {
    "session": N_("The session was ended."),
    "sessions": N_("All other sessions were ended."),
    "withdrawn": N_("The application no longer has access."),
    "agents": N_("No agent has access any more."),
    "password": N_("Your password was changed, and all other sessions were ended."),
    "name": N_("Your name was changed."),
    "language": N_("The language was changed."),
    "attributes": N_("Your details were changed."),
    "picture": N_("Your picture was changed."),
}


@login_required
def account() -> Response:
    """Show the user's sessions and applications; a POST ends them, or changes the profile."""
    current, password_form, name_form = page.signed_in(), ChangePasswordForm(), ChangeNameForm()
    form = AccountForm()
    if request.method == "POST":
        values_form = _values_form(current.user, form, attributes.definitions())
        done = _act(form, password_form, name_form, values_form, current)
        if isinstance(done, Response):
            return done
        if done:
            response = page.done("pages.account", done=done)
            if done == "language":
                cookies.choose_language(response, None)  # forget the choice from before the sign-in
            return response
    browser_session.touch(current)
    facts = account_page.read(database.session_connection(), current.user.id)
    if request.method != "POST":
        values_form = _values_form(current.user, form, facts.attributes)
    response = _page(current, facts, password_form, name_form, values_form)
    db.session.commit()
    return response


def _values_form(
    user: User, submitted: AccountForm, by_name: Mapping[str, Definition]
) -> OwnValuesForm:
    form = OwnValuesForm.of(attributes.writable(Party.PERSON, by_name), user.attributes)
    form.readable = [
        (entry.title or entry.name, displayed(value))
        for entry, value in attributes.readable(user, Party.PERSON, by_name)
    ]
    form.was_sent = submitted.action.data == "change_attributes"
    if not form.was_sent:
        form.fill(form.before)
    return form


def _page(
    current: CurrentSession,
    facts: AccountFacts,
    password_form: ChangePasswordForm,
    name_form: ChangeNameForm,
    values_form: OwnValuesForm,
) -> Response:
    user = current.user
    may_administer = bool(roles.rights_of(user.groups))
    claims = scopes.values(user, scopes.claims_of(_SHOWN))
    return page.render(
        "account.html",
        title_of=agent_identity.title_of,
        user=user,
        claims=[
            (gettext(profile_claims.title_of(name)), value)
            for name, value in claims.items()
            # `locale` has a field of its own, and an uploaded picture is shown.
            if name not in ("name", "updated_at", "locale")
            and not (name == "picture" and pictures.is_uploaded(claims))
        ],
        sessions=[(session, languages.browser_name(session.browser)) for session in facts.sessions],
        applications=[
            (client, page.logo_url(client.logo_digest))
            for client in facts.launchable
            if client.admits(user.groups)
        ],
        identities=_provider_names(facts.identities),
        this_session=current.session.id,
        accesses=_accesses(user),
        claimed_name_of=agent_identity.claimed_name_of,
        devices=_by(attrgetter("client_id"), facts.devices),
        services=_by(attrgetter("application"), facts.services),
        form=password_form,
        name_form=name_form,
        values_form=values_form,
        opened=request.args.get("open"),
        factors=facts.factors,
        missing_terms=terms.missing(user),
        can_delete=context.settings().account_deletion == "on",
        directory=linking.directory_of(user, facts.identities),
        has_password=user.password_hash is not None,
        lacks_second_factor=facts.factors.exist and not policy.has_recent_factor(current),
        languages=LANGUAGES,
        may_administer=may_administer,
        owns_groups=not may_administer and facts.owns_groups,
        # A POST that fails renders this page at the same URL.
        done=page.done_text(_SESSIONS_DONE) if request.method == "GET" else None,
    )


def _provider_names(identities: Sequence[LinkedIdentity]) -> list[str] | None:
    """Return the names of the providers that sign the user in; `None` if none is configured."""
    if not (providers := {provider.id: provider.name for provider in context.upstreams()}):
        return None
    return [providers.get(identity.provider, identity.provider) for identity in identities]


def _accesses(user: User) -> list[tuple[Access, list[str]]]:
    """List the applications with access, each with what it may receive and do."""
    accesses = grants.accesses_of(user.id)
    identifiers = {name for access in accesses for name in identifiers_in(access.scope)}
    by_identifier = apis.with_identifiers(identifiers) if identifiers else {}
    return [(access, _titles(access.scope, by_identifier)) for access in accesses]


def _by(client_id: Callable[[Entry], str], entries: Iterable[Entry]) -> Mapping[str, list[Entry]]:
    """Return entries by the client ID of their application, each list in the same order."""
    by_client: dict[str, list[Entry]] = {}
    for entry in entries:
        by_client.setdefault(client_id(entry), []).append(entry)
    return by_client


def _titles(scope: str, by_identifier: Mapping[str, Api]) -> list[str]:
    names = scope.split()
    titles = [gettext(entry.title) for entry in scopes.SCOPES.values() if entry.name in names]
    for name in filter(is_of_api, names):
        if api := by_identifier.get(api_of(name)):
            titles.append(f"{api.name}: {page.api_scope_title(api, name)}")
    return titles


def _act(
    form: AccountForm,
    password_form: ChangePasswordForm,
    name_form: ChangeNameForm,
    values_form: OwnValuesForm,
    current: CurrentSession,
) -> Response | str | None:
    """Carry out the action of a button; return its key in `_SESSIONS_DONE`."""
    user_id = current.user.id
    match form.action.data:
        case "end_session":
            return _end_session(current, form.session.data)
        case "end_other_sessions":
            if policy.lock(current) is None:
                db.session.rollback()
                return "ended"
            browser_session.end_others(current, "ended_by_user")
            return "sessions"
        case "end_all_sessions":
            revocation.sessions_of_user(user_id, "ended_by_user", but=current.session.id)
            # `sign_out` may forget it again. A known browser is not blocked by strangers' guesses.
            device_cookie.remember(current.user)
            browser_session.sign_out("ended_by_user")
            db.session.commit()
            return redirect(url_for("pages.sign_out"), 303)
        case "withdraw":
            client_id = form.client.data.replace("\0", "")[:MAX_CLIENT_ID]
            revocation.withdraw_consent(audit.USER, user_id, client_id)
            return "withdrawn"
        case "end_agents":
            revocation.withdraw_agents(audit.USER, user_id)
            return "agents"
        case "change_password":
            return _change_password(current, password_form)
        case "change_name" if linking.directory_of(current.user) is None:
            return _change_name(current, name_form)
        case "change_attributes":
            return _change_attributes(current, values_form)
        case "choose_language":
            return _choose_language(current, form.locale.data)
    return None


def _end_session(current: CurrentSession, session_id: str) -> str | None:
    for session in sessions.of_user(current.user.id):
        if str(session.id) == session_id and session.id != current.session.id:
            revocation.session(session, "ended_by_user")
            return "session"
    return None


def _change_password(current: CurrentSession, form: ChangePasswordForm) -> Response | str | None:
    user = current.user
    if policy.lacks_second_factor(current):
        return redirect(url_for("pages.second_factor", back="password"), 303)
    if not form.validate():
        return None
    if not page.is_password_right(
        current,
        form.old_password,
        N_("The old password is wrong."),
        Event.PASSWORD_CHANGE_FAILED,
        "old password",
    ):
        return None
    new = form.new_password.data or ""
    if error := passwords.weakness(new, (user.name, user.email)):
        form.new_password.errors = [error]
        return None
    fresh = passwords.hash_password(new, str(user.id))
    if policy.lock(current) is None or policy.lacks_second_factor(current):
        db.session.rollback()
        return "ended"  # the redirect leads to the sign-in page, or back to this one
    credentials.change_password(audit.USER, user, fresh, keep=current.session.id)
    device_cookie.remember(user)
    browser_session.renew(current)
    return "password"


def _change_name(current: CurrentSession, form: ChangeNameForm) -> str | None:
    if not form.validate():
        return None
    if users.lock(current.user.id) is None:
        db.session.rollback()
        return "ended"
    credentials.rename(audit.USER, current.user, form.name.data or "")
    return "name"


def _change_attributes(current: CurrentSession, form: OwnValuesForm) -> str | None:
    if not form.validate():
        return None
    edits = {
        entry.name: typed(entry, text)
        for entry in form.definitions
        if (text := form.read()[entry.name]) != form.before[entry.name]
    }
    try:
        attributes.set_own(audit.USER, current.user.id, edits)
    except LookupError:  # disabled at this moment
        db.session.rollback()
        return "ended"
    except Invalid as error:
        db.session.rollback()
        form.problems = error.errors
        return None
    return "attributes"


def _choose_language(current: CurrentSession, tag: str) -> str:
    # All claims are one value, and an operator may be changing another one.
    if users.lock(current.user.id) is None:
        db.session.rollback()
        return "ended"
    accounts.choose_language(audit.USER, current.user, tag if tag in LANGUAGES else None)
    return "language"


@login_required
def picture() -> Response:
    """Show the user's picture; a POST replaces or removes it."""
    current, form, errors = page.signed_in(), PictureForm(), []
    user_id, email = current.user.id, current.user.email
    if form.validate_on_submit():
        try:
            pictures.set_own(audit.USER, user_id, form.read(email))
            return page.done("pages.account", done="picture")
        except Invalid as error:
            db.session.rollback()
            errors = error.errors
        except LookupError:  # disabled at this moment
            db.session.rollback()
            return redirect(url_for("pages.account"), 303)
    browser_session.touch(current)
    response = page.render("account_picture.html", user=current.user, form=form, errors=errors)
    db.session.commit()
    return response


def delete_account() -> Response:
    """Ask for the password and the second factor, and delete the account."""
    if context.settings().account_deletion != "on":
        abort(404)
    current = browser_session.current_session()
    if current is None:
        if "done" in request.args:
            return page.render("account_deleted.html")
        return redirect(url_for("pages.sign_in", back="delete"), 303)
    form = DeleteAccountForm()
    if current.user.password_hash is None:
        del form.password
    if request.method == "POST" and not _is_barred(current) and _is_right(form, current):
        return _delete(current)
    return page.render(
        "delete_account.html",
        form=form,
        user=current.user,
        administers=_administers(current),
        must_confirm=_must_confirm(current),
        lacks_second_factor=policy.lacks_second_factor(current),
        sessions=len(sessions.of_user(current.user.id)),
        applications=[
            agent_identity.title_of(access.client) for access in grants.accesses_of(current.user.id)
        ],
    )


def _must_confirm(current: CurrentSession) -> bool:
    """Return whether the user must step up or sign in again first."""
    if policy.lacks_second_factor(current):
        return True
    return current.user.password_hash is None and not policy.is_fresh(current)


def _administers(current: CurrentSession) -> bool:
    """Return whether the user is an administrator, who cannot delete their own account."""
    return roles.role_of(current.user.groups) == roles.ADMIN


def _is_barred(current: CurrentSession) -> bool:
    return _administers(current) or _must_confirm(current)


def _is_right(form: DeleteAccountForm, current: CurrentSession) -> bool:
    if not form.validate():
        return False
    return form.password is None or page.is_password_right(
        current,
        form.password,
        N_("The password is wrong."),
        Event.ACCOUNT_DELETION_FAILED,
        "password",
    )


def _delete(current: CurrentSession) -> Response:
    locked = policy.lock(current)
    if locked is None or _is_barred(locked):  # changed meanwhile
        db.session.rollback()
        return redirect(url_for("pages.delete_account"), 303)
    accounts.delete(audit.USER, locked.user, is_own=True)
    browser_session.forget(locked.user)
    return page.done("pages.delete_account", done="1")


_EVENTS_SHOWN = 50
# Descriptions of the events that users see; all others are for operators.
WORDS: Mapping[Event, str] = {
    **{
        event: TITLES[event]
        for event in (
            Event.SIGNED_IN,
            Event.PASSWORD_ACCEPTED,
            Event.SESSION_ENDED,
            Event.CONSENT_GIVEN,
            Event.CONSENT_DENIED,
            Event.CONSENT_WITHDRAWN,
            Event.DEVICE_APPROVED,
            Event.DEVICE_DENIED,
            Event.PASSWORD_CHANGED,
            Event.PASSWORD_CHANGE_FAILED,
            Event.PASSWORD_SET,
            Event.PASSWORD_RESET,
            Event.INVITATION_ACCEPTED,
            Event.NAME_CHANGED,
            Event.LANGUAGE_CHANGED,
            Event.PROFILE_CHANGED,
            Event.ACCOUNT_DELETION_FAILED,
            Event.EMAIL_CHANGE_ASKED,
            Event.EMAIL_CHANGE_FAILED,
            Event.EMAIL_CHANGED,
            Event.EMAIL_VERIFIED,
            Event.SIGNED_UP,
            Event.VERIFICATION_ASKED,
            Event.USER_INVITED,
            Event.USER_CREATED,
            Event.USER_CHANGED,
            Event.USER_DISABLED,
            Event.USER_ENABLED,
            Event.ENROLMENT_CODE_ASKED,
            Event.ENROLMENT_CODE_FAILED,
            Event.ENROLMENT_LINK_MADE,
            Event.ENROLMENT_ALLOWED,
            Event.TERMS_ACCEPTED,
            Event.FACTOR_ADDED,
            Event.FACTOR_REMOVED,
            Event.FACTOR_RENAMED,
            Event.FACTORS_RESET,
            Event.RECOVERY_CODES_MADE,
            Event.RECOVERY_CODE_USED,
            Event.SECOND_FACTOR_FAILED,
            Event.REFRESH_TOKEN_REUSED,
            Event.CODE_REUSED,
        )
    },
    Event.SIGN_IN_FAILED: N_("Sign-in failed: wrong password"),
}


@login_required
def activity() -> Response:
    """Show the user's recent security events."""
    current = page.signed_in()
    browser_session.touch(current)
    newest = rows.newest(user_id=str(current.user.id), names=sorted(WORDS), limit=_EVENTS_SHOWN)
    with_clients = clients.with_ids({event.client_id for event in newest if event.client_id})
    names = {client.client_id: agent_identity.title_of(client) for client in with_clients}
    events = [(event, WORDS[Event(event.name)], _details(event, names)) for event in newest]
    response = page.render("activity.html", events=events)
    db.session.commit()
    return response


def _details(event: AuditEvent, names: dict[str, str]) -> list[str]:
    """Return the application, browser and IP address of an event, as far as they are known."""
    by_operator = "operator" in json.loads(event.fields)
    parts = [
        names.get(event.client_id or ""),
        gettext("by an operator") if by_operator else None,
        languages.browser_name(event.browser) if event.browser and not by_operator else None,
        event.address if not by_operator else None,
    ]
    return [part for part in parts if part]


_IDENTITIES_DONE = {
    "connected": N_("The account was connected."),
    "removed": N_("It was removed."),
}


class IdentitiesForm(PageForm):
    """The provider to connect, or the id of the identity to remove."""

    action = StringField()
    provider = StringField()
    identity = StringField()


@login_required
def identities() -> Response:
    """Show connected accounts; a POST adds or removes one, after a recent sign-in."""
    current, form, error = page.signed_in(), IdentitiesForm(), None
    if form.validate_on_submit():
        if not may_link(current):
            return page.confirm_first("identities")
        if form.action.data == "connect":
            provider = context.upstreams().find(form.provider.data or "")
            if provider:
                return upstream.start(provider, None, user_id=str(current.user.id))
        else:
            error = _remove(current, form.identity.data or "")
            if error is None:
                return page.done("pages.identities", done="removed")
    identities = stored.of_user(current.user.id)
    linked = {identity.provider for identity in identities}
    providers = {provider.id: provider for provider in context.upstreams()}
    return page.render(
        "identities.html",
        form=form,
        error=error,
        user=current.user,
        is_managed=linking.is_managed,
        fresh=may_link(current),
        known=[(identity, providers.get(identity.provider)) for identity in identities],
        others=[provider for provider in providers.values() if provider.id not in linked],
        done=page.done_text(_IDENTITIES_DONE),
    )


def _remove(current: CurrentSession, identity_id: str) -> str | None:
    """Remove an identity; return the reason if it has to stay."""
    if policy.lock(current) is not None:
        try:
            linking.unlink(audit.USER, current.user, _id(identity_id), current.session.id)
        except LinkRefused as error:
            db.session.rollback()
            return str(error)
    return None


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)
