"""The signed-in user's own recent security events."""

import json

from flask import make_response, redirect, render_template, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso.audit import rows
from sso.extensions import db
from sso.i18n import N_
from sso.models import AuditEvent
from sso.store import clients
from sso.web import browser_session, user_agents

_SHOWN = 50
# What concerns a person, in words; the rest of the trail is for operators.
WORDS = {
    "signed_in": N_("Signed in"),
    "sign_in_failed": N_("A sign-in failed: wrong password"),
    "password_accepted": N_("The password was right, and the second factor was asked for"),
    "session_ended": N_("A sign-in ended"),
    "consent_given": N_("Access allowed"),
    "consent_denied": N_("Access refused"),
    "consent_withdrawn": N_("Access withdrawn"),
    "password_changed": N_("Password changed"),
    "password_change_failed": N_("A change of the password failed: wrong old password"),
    "password_set": N_("Password set by an operator"),
    "password_reset": N_("Password set anew by a link from a mail"),
    "invitation_accepted": N_("Password set by invitation"),
    "email_change_asked": N_("Another email address asked for"),
    "email_change_failed": N_("A change of the email address failed: wrong password"),
    "email_changed": N_("Email address changed"),
    "email_verified": N_("Email address verified"),
    "signed_up": N_("Account made"),
    "verification_asked": N_("A confirmation mail asked for"),
    "user_invited": N_("Account made by an operator, with an invitation"),
    "user_created": N_("Account made by an operator"),
    "user_changed": N_("Account changed by an operator"),
    "user_disabled": N_("Account disabled by an operator"),
    "user_enabled": N_("Account enabled by an operator"),
    "enrolment_code_asked": N_("A code to set up a second factor asked for"),
    "enrolment_code_failed": N_("A code to set up a second factor was not right"),
    "enrolment_link_made": N_("A link to set up a second factor made by an operator"),
    "enrolment_allowed": N_("Setting up a second factor allowed by a code or a link"),
    "factor_added": N_("Second factor added"),
    "factor_removed": N_("Second factor removed"),
    "factors_reset": N_("Second factors removed by an operator"),
    "recovery_codes_made": N_("New recovery codes made"),
    "recovery_code_used": N_("A recovery code was used"),
    "second_factor_failed": N_("A second factor was not right"),
    "refresh_token_reused": N_("A stolen token was found, and access ended"),
    "code_reused": N_("A stolen code was found, and access ended"),
}


def activity() -> Response:
    """List what happened lately in the user's name."""
    visit = browser_session.current_session()
    if visit is None:
        return redirect(url_for("sso.sign_in"), 303)
    browser_session.touch(visit)
    found = rows.newest(user_id=str(visit.user.id), names=sorted(WORDS), limit=_SHOWN)
    names = clients.names({event.client_id for event in found if event.client_id})
    html = render_template(
        "activity.html",
        events=[(event, WORDS[event.name], _details(event, names)) for event in found],
        account_url=url_for("sso.account"),
    )
    db.session.commit()
    return make_response(html)


def _details(event: AuditEvent, names: dict[str, str]) -> str:
    """The application, and where it came from, as far as that is known."""
    by_operator = "operator" in json.loads(event.fields)
    parts = [
        names.get(event.client_id or ""),
        gettext("by an operator") if by_operator else None,
        user_agents.name(event.browser) if event.browser and not by_operator else None,
        event.address,
    ]
    return " · ".join(part for part in parts if part)
