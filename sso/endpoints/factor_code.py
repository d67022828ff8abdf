"""Before the first second factor: a code by email, because the password alone proves too little."""

from flask import make_response, redirect, render_template, request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit
from sso.endpoints import authorize
from sso.endpoints.forms import DecisionForm
from sso.endpoints.redirects import confirm_first, step
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.process import concurrency
from sso.ratelimit import limiting
from sso.services import emailed_code
from sso.store import factors
from sso.store.sessions import CurrentSession
from sso.web import browser_session

WRONG = N_("The code is not right, or it is too old. After a few tries you need a new one.")
TOO_MANY = N_("You have asked for many codes lately. Please wait an hour, then try again.")


def factor_code() -> Response:
    """Send a code, or take one; then the factors may be set up in this session."""
    visit = browser_session.current_session()
    if visit is None:
        return confirm_first()
    if "resume" in request.args and authorize.read_waiting() is None:
        return authorize.stale()
    if not policy.asks_for_code(visit, factors.of_user(visit.user.id)):
        return redirect(step("pages.factors"), 303)
    if request.method == "POST" and DecisionForm().validate():
        return _send(visit) if request.form.get("action") == "send" else _take(visit)
    return _page(visit)


def _send(visit: CurrentSession) -> Response:
    if not policy.is_fresh(visit):
        return confirm_first("factor_code")
    limiting.spend(limiting.VERIFICATION, visit.user.email)
    if not policy.email_settled(visit.user):
        return _page(visit)
    is_sent = emailed_code.request(audit.USER, visit.user, visit.session)
    db.session.commit()
    if not is_sent:
        return _page(visit, TOO_MANY)
    return redirect(step("pages.factor_code", sent="1"), 303)


def _take(visit: CurrentSession) -> Response:
    attempt, wait = limiting.ask(limiting.EMAILED_CODE, visit.user.email)
    if wait:
        db.session.commit()  # nothing but what is told; no transaction waits
        concurrency.delay_refusal()
        return _page(visit, limiting.words(wait), wait)
    locked = policy.lock(visit)
    if locked is None or not policy.email_settled(locked.user):
        return confirm_first("factor_code")
    typed = request.form.get("code", "")
    if not emailed_code.accept(audit.USER, locked.user, locked.session.id, typed):
        db.session.commit()  # the try counts
        attempt.failed()
        return _page(locked, WRONG)
    attempt.passed()
    emailed_code.allow_enrolment(audit.USER, locked.user, locked.session, "email")
    db.session.commit()
    return redirect(step("pages.factors"), 303)


def _page(visit: CurrentSession, error: str | None = None, wait: int = 0) -> Response:
    html = render_template(
        "factor_code.html",
        form=DecisionForm(formdata=None),
        user_name=visit.user.name,
        user_email=visit.user.email,
        settled=policy.email_settled(visit.user),
        sent="sent" in request.args or error is not None,
        error=gettext(error) if error else None,
        factors_url=step("pages.factors"),
    )
    response = make_response(html)
    if wait:
        response.status_code = 429
        response.headers["Retry-After"] = str(wait)
    return response
