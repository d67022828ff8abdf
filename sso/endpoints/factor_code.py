"""Before the first second factor: a code by email, because the password alone proves too little."""

from flask import request
from flask_babel import gettext
from flask_login import login_required
from werkzeug.wrappers import Response

from sso import audit
from sso.endpoints import page
from sso.endpoints.forms import EmailedCodeForm
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.ratelimit import limiting
from sso.services import emailed_code
from sso.store import factors
from sso.store.sessions import CurrentSession

WRONG = N_("The code is not right, or it is too old. After a few tries you need a new one.")
TOO_MANY = N_("You have asked for many codes lately. Please wait an hour, then try again.")


@login_required  # type: ignore[untyped-decorator]  # Flask-Login has no types
def factor_code() -> Response:
    """Send a code, or take one; then the factors may be set up in this session."""
    visit, form = page.signed_in(), EmailedCodeForm()
    page.pending_request()
    if not policy.asks_for_code(visit, factors.of_user(visit.user.id)):
        return page.to_step("pages.factors")
    if form.validate_on_submit():
        return _send(form, visit) if form.action.data == "send" else _take(form, visit)
    return _page(form, visit)


def _send(form: EmailedCodeForm, visit: CurrentSession) -> Response:
    if not policy.is_fresh(visit):
        return page.confirm_first("factor_code")
    limiting.spend(limiting.VERIFICATION, visit.user.email)
    if not policy.email_settled(visit.user):
        return _page(form, visit)
    is_sent = emailed_code.request(audit.USER, visit.user, visit.session)
    db.session.commit()
    if not is_sent:
        return _page(form, visit, TOO_MANY)
    return page.to_step("pages.factor_code", sent="1")


def _take(form: EmailedCodeForm, visit: CurrentSession) -> Response:
    attempt, wait = page.try_once(limiting.EMAILED_CODE, visit.user.email)
    if wait:
        return _page(form, visit, limiting.words(wait), wait)
    locked = policy.lock(visit)
    if locked is None or not policy.email_settled(locked.user):
        return page.confirm_first("factor_code")
    typed = form.code.data or ""
    if not emailed_code.accept(audit.USER, locked.user, locked.session.id, typed):
        db.session.commit()  # the try counts
        attempt.failed()
        return _page(form, locked, WRONG)
    attempt.passed()
    emailed_code.allow_enrolment(audit.USER, locked.user, locked.session, "email")
    db.session.commit()
    return page.to_step("pages.factors")


def _page(
    form: EmailedCodeForm, visit: CurrentSession, error: str | None = None, wait: int = 0
) -> Response:
    return page.render(
        "factor_code.html",
        wait=wait,
        form=form,
        user=visit.user,
        settled=policy.email_settled(visit.user),
        sent="sent" in request.args or error is not None,
        error=gettext(error) if error else None,
    )
