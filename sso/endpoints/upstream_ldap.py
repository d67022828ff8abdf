"""The page that asks for the name and password of a directory.

A password typed here is sent to that directory alone, never compared with one of ours; and none of
ours is sent there.
"""

from time import perf_counter

from flask import abort, request
from flask_babel import gettext, lazy_gettext
from werkzeug.wrappers import Response
from wtforms import BooleanField, StringField
from wtforms.validators import DataRequired, Length

from sso import audit, clock, context
from sso.audit.events import Event
from sso.config import email_addresses
from sso.config.upstream.ldap import LdapProvider
from sso.endpoints import browser_session, page, upstream_sign_in
from sso.endpoints.forms import TOO_LONG, password_field
from sso.endpoints.upstream_sign_in import Attempt
from sso.extensions import db
from sso.i18n import N_
from sso.ldap import account_state
from sso.ldap.directory import NotAllowed
from sso.observability import counters
from sso.process import concurrency
from sso.ratelimit import limiting
from sso.ratelimit.limiting import DIRECTORY
from sso.services import identities as linking
from sso.store import identities, users
from sso.upstream import ldap
from sso.upstream.identity import UpstreamIdentity, UpstreamUnavailable
from sso.web.page_form import PageForm


class DirectoryForm(PageForm):
    """Name and password in a directory. The name may be an email address."""

    user_name = StringField(
        lazy_gettext("User name or email"),
        [
            DataRequired(N_("Enter your user name.")),
            Length(max=email_addresses.LONGEST, message=TOO_LONG),
        ],
    )
    password = password_field(lazy_gettext("Password"), N_("Enter your password."))
    remember = BooleanField(lazy_gettext("Keep me signed in on this device"))


def start(attempt: Attempt) -> Response:
    """Show the page, with what was typed before."""
    provider = attempt.provider
    assert isinstance(provider, LdapProvider)
    form = DirectoryForm()  # not validated: it was another one that was submitted
    form.user_name.data, form.remember.data = attempt.hint or "", attempt.remember
    if attempt.again and (current := browser_session.current_session()):
        form.remember.data = current.session.remembered
    return _page(provider, form, is_linking=attempt.user_id is not None)


def directory_sign_in(provider_id: str) -> Response:
    """Asks for the name and password of a directory, and signs in who has given them."""
    provider = context.upstreams().find(provider_id)
    if not isinstance(provider, LdapProvider):
        abort(404)
    pending, form, is_linking = page.pending_request(), DirectoryForm(), "link" in request.args
    if request.method != "POST" or not form.validate():
        return _page(provider, form, is_linking=is_linking)
    current = browser_session.current_session() if is_linking else None
    if is_linking and current is None:
        return page.confirm_first("identities")
    login = form.user_name.data or ""
    tried, wait = page.try_once(login)
    if wait:
        return _page(provider, form, limiting.waiting_time(wait), wait, is_linking)
    begun = perf_counter()
    try:
        found = _ask(provider, login, form.password.data or "")
    except UpstreamUnavailable as error:
        return upstream_sign_in.unavailable(provider, error)
    except limiting.TooManyAttempts as error:
        concurrency.delay_refusal(begun)
        return _page(
            provider, form, limiting.waiting_time(error.seconds), error.seconds, is_linking
        )
    except NotAllowed as error:
        tried.failed()
        concurrency.delay_refusal(begun)
        return _page(provider, form, _words(provider, error), is_linking=is_linking)
    tried.passed()
    linking.readmit(audit.USER, provider, found)
    user_id = str(current.user.id) if current else None
    remember = bool(form.remember.data)
    return upstream_sign_in.finish(
        Attempt(provider, pending, clock.now(), remember, user_id=user_id), found
    )


def _ask(provider: LdapProvider, login: str, password: str) -> UpstreamIdentity:
    """Who this is. A wrong password counts against the account, by whichever name it was meant.

    Raises `NotAllowed`, `TooManyAttempts` and `UpstreamUnavailable`. Ends the transaction.
    """
    bind: limiting.Attempt | None = None
    user_id = None

    def admit(subject: str | None) -> None:
        nonlocal bind, user_id
        known = identities.find(provider.issuer, subject) if subject else None
        user = users.find(known.user_id) if known else None
        user_id = user.id if user else None
        account = user.email if user else f"{provider.issuer}/{subject or '?' + login}"
        bind = limiting.enter(DIRECTORY, account)
        db.session.commit()  # the transaction must not wait for the directory

    db.session.commit()
    try:
        with concurrency.slot_released():
            found = ldap.sign_in(provider, login, password, admit)
    except NotAllowed as error:
        audit.event(
            Event.SIGN_IN_FAILED, user=user_id, method=provider.id, reason=error.reason[:200]
        )
        db.session.commit()
        counters.upstream(provider.id, "refused")
        if bind:
            bind.failed()
        raise
    if bind:
        bind.passed()
    return found


def _words(provider: LdapProvider, error: NotAllowed) -> str:
    """What to tell; only who has typed the right password learns more than that it was refused."""
    text = gettext("The name or the password is wrong.")
    if error.is_password_right:
        text = gettext("Your account in %(provider)s is disabled.", provider=provider.name)
        if error.reason == account_state.MUST_CHANGE:
            text = gettext(
                "Your password has expired. Change it in %(provider)s, then sign in here.",
                provider=provider.name,
            )
    return str(text)


def _page(
    provider: LdapProvider,
    form: DirectoryForm,
    error: str | None = None,
    wait: int = 0,
    is_linking: bool = False,
) -> Response:
    more = {"link": "1"} if is_linking else {}
    return page.render(
        "directory_sign_in.html",
        wait=wait,
        form=form,
        error=error,
        provider=provider,
        is_linking=is_linking,
        action=page.step("pages.directory_sign_in", provider_id=provider.id, **more),
    )
