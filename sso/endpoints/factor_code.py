"""Before the first second factor: a code by email, because the password alone proves too little."""

from flask import make_response, redirect, render_template, request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit, clock
from sso.audit.events import Event
from sso.endpoints import authorize
from sso.endpoints.forms import DecisionForm
from sso.endpoints.redirects import confirm_first, step
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.process import concurrency
from sso.ratelimit import limiting
from sso.services import emailed_code, notifications
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
    if not notifications.enrolment_code_asked(visit.user, visit.session):
        db.session.commit()  # what is told
        return _page(visit, TOO_MANY)
    audit.event(Event.ENROLMENT_CODE_ASKED, user=visit.user.id)
    db.session.commit()
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
    right = emailed_code.accept(locked.user, locked.session.id, request.form.get("code", ""))
    if not right:
        audit.event(Event.ENROLMENT_CODE_FAILED, user=locked.user.id)
        db.session.commit()  # the try counts
        attempt.failed()
        return _page(locked, WRONG)
    attempt.passed()
    allow(locked, "email")
    db.session.commit()
    return redirect(step("pages.factors"), 303)


def allow(visit: CurrentSession, method: str) -> None:
    """Let this session add the first factor, for a while. Does not commit."""
    visit.session.enrolment_allowed_at = clock.now()
    audit.event(Event.ENROLMENT_ALLOWED, user=visit.user.id, sid=visit.session.id, method=method)


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
