"""The user's pages of second factors: passkeys, authenticator app, recovery codes.

Before the first second factor is added, a code by email or an operator's link is required. Recovery
codes are stored as digests. So the page that shows them carries them for the download, signed for
the session in which they were created.
"""

from dataclasses import replace

from flask import make_response, redirect, request, url_for
from flask_babel import gettext
from flask_login import login_required
from sqlalchemy.exc import IntegrityError
from werkzeug.wrappers import Response

from sso import audit, clock
from sso.endpoints import authorize, browser_session, page
from sso.endpoints.forms import DecisionForm, EmailedCodeForm, FactorsForm, TotpForm
from sso.extensions import db
from sso.flow import decision
from sso.i18n import N_, languages, times
from sso.mfa import passkey_names, passkeys, policy, totp
from sso.ratelimit import device_cookie, limiting
from sso.services import agent_identity, mail_links, second_factors
from sso.services.second_factors import Added, FactorRefused
from sso.store import factors as store
from sso.store.factors import Factors
from sso.store.sessions import CurrentSession
from sso.web import errors, routing
from sso.web.pending_request import PendingRequest

WRONG = N_("The code is wrong or has expired. After a few attempts you need a new one.")
TOO_MANY = N_("You have requested many codes recently. Please wait an hour, then try again.")


@login_required
def factor_code() -> Response:
    """Mail a code and check it, to allow this session to add the first second factor."""
    current, form = page.signed_in(), EmailedCodeForm()
    page.pending_request()
    if not policy.asks_for_code(current, store.of_user(current.user.id)):
        return page.to_step("pages.factors")
    if form.validate_on_submit():
        return _send(form, current) if form.action.data == "send" else _take(form, current)
    return _enrolment_page(form, current)


def _send(form: EmailedCodeForm, current: CurrentSession) -> Response:
    if not policy.is_fresh(current):
        return page.confirm_first("factor_code")
    routing.spend(current.user.email)
    if not policy.email_settled(current.user):
        return _enrolment_page(form, current)
    is_sent = second_factors.request_emailed_code(audit.USER, current.user, current.session)
    db.session.commit()
    if not is_sent:
        return _enrolment_page(form, current, TOO_MANY)
    return page.to_step("pages.factor_code", sent="1")


def _take(form: EmailedCodeForm, current: CurrentSession) -> Response:
    attempt, wait = page.try_once(current.user.email)
    if wait:
        return _enrolment_page(form, current, limiting.waiting_time(wait), wait)
    locked = policy.lock(current)
    if locked is None or not policy.email_settled(locked.user):
        return page.confirm_first("factor_code")
    typed = form.code.data
    if not second_factors.accept_emailed_code(audit.USER, locked.user, locked.session.id, typed):
        db.session.commit()  # the try counts
        attempt.failed()
        return _enrolment_page(form, locked, WRONG)
    attempt.passed()
    second_factors.allow_enrolment(audit.USER, locked.user, locked.session, "email")
    db.session.commit()
    return page.to_step("pages.factors")


def _enrolment_page(
    form: EmailedCodeForm, current: CurrentSession, error: str | None = None, wait: int = 0
) -> Response:
    return page.render(
        "factor_code.html",
        wait=wait,
        form=form,
        user=current.user,
        settled=policy.email_settled(current.user),
        sent="sent" in request.args or error is not None,
        error=gettext(error) if error else None,
    )


def factor_link() -> Response:
    """Accept an operator's link, which allows the first second factor, after a recent sign-in."""
    current = browser_session.current_session()
    link = mail_links.find(request.args.get("token", ""), mail_links.ENROLMENT)
    if link is None:
        return _dead()
    if current is None or link[1] is None or link[1].id != current.user.id:
        return _sign_in_first()
    if not policy.is_fresh(current):
        return _sign_in_first()
    form = DecisionForm()
    if form.validate_on_submit():
        locked = policy.lock(current)
        if locked is None:
            return _sign_in_first()
        if not mail_links.use(link[0], locked.user):
            db.session.rollback()
            return _dead()
        second_factors.allow_enrolment(audit.USER, locked.user, locked.session, "link")
        db.session.commit()
        return redirect(url_for("pages.factors"), 303)
    return page.render("factor_link.html", form=form, user=current.user)


def _dead() -> Response:
    return errors.page(
        gettext("It has been used, has expired, or is incomplete."),
        status=410,
        title=gettext("This link no longer works"),
        hint=gettext("Ask your administrator for a new link."),
    )


def _sign_in_first() -> Response:
    return errors.page(
        gettext(
            "The link works only while you are signed in to the account that it was created for."
        ),
        status=403,
        title=gettext("Please sign in first"),
        hint=gettext(
            "Sign in to that account in this browser, then open the link again right away."
        ),
        link=(gettext("Sign in"), url_for("pages.sign_in", back="factors")),
    )


_LIFETIME = 15 * 60  # seconds; the page may be open for longer
_FILE_NAME = "recovery-codes.txt"


def show_codes(current: CurrentSession, codes: list[str]) -> Response:
    """Render the page that shows new recovery codes once."""
    next_url = page.admin_page() or url_for("pages.factors")
    if request.args.get("resume"):
        next_url = page.step("pages.authorize")
    return page.render(
        "recovery_codes.html",
        form=FactorsForm(),
        codes=codes,
        sheet=policy.sign_value(codes, _sheet_purpose(current)),
        next_url=next_url,
    )


@login_required
def download_codes() -> Response:
    """Return the codes of the page as a text file."""
    current = page.signed_in()
    signed = policy.verify_value(FactorsForm().sheet.data, _sheet_purpose(current), _LIFETIME)
    if signed is None:
        return redirect(url_for("pages.factors"), 303)
    lines = (
        gettext("Recovery codes for %(service)s", service=passkeys.rp_name()),
        current.user.email,
        gettext("Created on %(time)s", time=times.moment(clock.now())),
        "",
        *signed[0],
        "",
        gettext("Each code replaces your second factor once. Keep this file in a safe place."),
        "",
    )
    response = make_response("\r\n".join(lines))
    response.mimetype = "text/plain"
    response.headers["Content-Disposition"] = f'attachment; filename="{_FILE_NAME}"'
    return response


def _sheet_purpose(current: CurrentSession) -> str:
    return f"recovery codes of {current.user.id} shown in {current.session.id}"


_SETUP_LIFETIME = int(policy.SETUP.total_seconds())
_WRONG = N_("The code is wrong. Check that the phone's clock is right, and try the next code.")
_DONE = {
    "passkey": N_("The passkey was added."),
    "totp": N_("The authenticator app was added."),
    "removed": N_("It was removed."),
    "renamed": N_("The passkey was renamed."),
}


@login_required
def factors() -> Response:
    """Show the user's second factors; a POST adds or removes one, after a recent sign-in."""
    current, pending = page.signed_in(), page.pending_request()
    existing, form, error = store.of_user(current.user.id), FactorsForm(), None
    if form.validate_on_submit():
        if form.action.data == "cancel" and pending:
            return authorize.resume(replace(pending, denied=True))
        locked = policy.lock(current)
        if locked is None:
            return page.confirm_first()
        current, existing = locked, store.of_user(locked.user.id)
        if policy.asks_for_code(current, existing):
            return page.to_step("pages.factor_code")
        if not policy.may_change(current, existing):
            return page.confirm_first()
        try:
            if answer := _act(form, current, existing):
                return answer
        except FactorRefused as refused:
            error = str(refused)
        db.session.rollback()
        existing = store.of_user(current.user.id)
    return _page(form, current, existing, error, pending)


def _act(form: FactorsForm, current: CurrentSession, existing: Factors) -> Response | None:
    user = current.user
    match form.action.data:
        case "add_passkey":
            browser = languages.browser_name(request.user_agent.string, gettext("Passkey"))
            credential, challenge = form.credential.data, form.challenge.data
            added = second_factors.add_passkey(
                audit.USER, current, existing, browser, credential, challenge
            )
            return _added(current, added, "passkey")
        case "rename_passkey":
            second_factors.rename_passkey(
                audit.USER, user, existing, form.passkey.data, form.name.data
            )
            db.session.commit()
            return _done("renamed")
        case "remove_passkey":
            second_factors.remove_passkey(audit.USER, user, existing, form.passkey.data)
        case "remove_totp":
            second_factors.remove_totp(audit.USER, user, existing)
        case "new_codes":
            codes = second_factors.renew_recovery_codes(audit.USER, user, existing)
            db.session.commit()
            return show_codes(current, codes)
        case _:
            return None
    db.session.commit()
    return _done("removed")


def _added(current: CurrentSession, added: Added, kind: str) -> Response:
    """Step the session up after adding a factor; show the codes of the first one. Commits."""
    if added.codes:
        device_cookie.remember(current.user)  # all browsers were forgotten
    browser_session.step_up(current, added.methods)
    db.session.commit()
    return show_codes(current, added.codes) if added.codes else _done(kind)


def _done(result: str) -> Response:
    if request.args.get("resume"):
        return page.to_step("pages.authorize")
    return redirect(page.admin_page() or url_for("pages.factors", done=result), 303)


def _page(
    form: FactorsForm,
    current: CurrentSession,
    existing: Factors,
    error: str | None,
    pending: PendingRequest | None,
) -> Response:
    client_name = None
    if pending:
        validated, step = page.validate(pending)
        if step != decision.SecondFactor(enrol=True):
            return authorize.resume(pending)
        client_name = agent_identity.title_of(validated.client)
    fresh = policy.may_change(current, existing)
    by_passkey = fresh and passkeys.available() and len(existing.passkeys) < passkeys.MOST
    passkey = passkeys.ask_to_enrol(current.user, list(existing.passkeys)) if by_passkey else None
    return page.render(
        "factors.html",
        form=form,
        user=current.user,
        known=existing,
        fresh=fresh,
        asks_for_code=policy.asks_for_code(current, existing),
        passkey=passkey,
        passkeys_work_here=passkeys.available(),
        name_length=passkey_names.LONGEST,
        error=error,
        done=page.done_text(_DONE),
        client_name=client_name,
        for_administration=page.admin_page() is not None,
    )


@login_required
def totp_setup() -> Response:
    """Set up an authenticator app, which is stored after its first correct code."""
    current, form = page.signed_in(), TotpForm()
    page.pending_request()
    existing = store.of_user(current.user.id)
    if existing.totp is not None:
        return page.to_step("pages.factors")
    if form.validate_on_submit():
        return _set_up(form, current)
    if policy.asks_for_code(current, existing):
        return page.to_step("pages.factor_code")
    if not policy.may_change(current, existing):
        return page.confirm_first()
    return _totp_page(form, current, totp.new_secret(), None)


def _set_up(form: TotpForm, current: CurrentSession) -> Response:
    # The setup page was shown after a fresh sign-in of the same session.
    signed = policy.verify_value(form.setup.data, _purpose(current), _SETUP_LIFETIME)
    if signed is None:
        return page.to_step("pages.totp_setup")
    locked = policy.lock(current)
    if locked is None:
        return page.confirm_first()
    existing = store.of_user(locked.user.id)
    if existing.totp is not None:  # from another tab at the same instant
        return page.to_step("pages.factors")
    if not policy.may_finish(locked, existing):
        return page.confirm_first()
    try:
        added = second_factors.add_totp(audit.USER, locked, existing, signed[0], form.code.data)
    except IntegrityError:  # added by an older version, which takes no lock
        db.session.rollback()
        return page.to_step("pages.factors")
    return _added(locked, added, "totp") if added else _totp_page(form, locked, signed[0], _WRONG)


def _totp_page(form: TotpForm, current: CurrentSession, secret: str, error: str | None) -> Response:
    uri = totp.provisioning_uri(secret, current.user)
    return page.render(
        "totp_setup.html",
        form=form,
        qr_code=totp.qr_code(uri),
        uri=uri,
        secret=" ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
        setup=policy.sign_value(secret, _purpose(current)),
        error=error,
    )


def _purpose(current: CurrentSession) -> str:
    return f"authenticator app of {current.user.id} set up in {current.session.id}"
