"""The signed-in user's own recent security events."""

import json
from collections.abc import Mapping

from flask_babel import gettext
from flask_login import login_required
from werkzeug.wrappers import Response

from sso.audit import rows
from sso.audit.events import Event
from sso.endpoints import browser_session, page
from sso.extensions import db
from sso.i18n import N_, user_agents
from sso.models import AuditEvent
from sso.store import clients

_SHOWN = 50
# What concerns a person, in words; the rest of the trail is for operators.
WORDS: Mapping[Event, str] = {
    Event.SIGNED_IN: N_("Signed in"),
    Event.SIGN_IN_FAILED: N_("Sign-in failed: wrong password"),
    Event.PASSWORD_ACCEPTED: N_("The password was correct, and the second factor was requested"),
    Event.SESSION_ENDED: N_("Session ended"),
    Event.CONSENT_GIVEN: N_("Access allowed"),
    Event.CONSENT_DENIED: N_("Access denied"),
    Event.CONSENT_WITHDRAWN: N_("Access withdrawn"),
    Event.PASSWORD_CHANGED: N_("Password changed"),
    Event.PASSWORD_CHANGE_FAILED: N_("Changing the password failed: wrong old password"),
    Event.PASSWORD_SET: N_("Password set by an operator"),
    Event.PASSWORD_RESET: N_("Password reset by a link from an email"),
    Event.INVITATION_ACCEPTED: N_("Password set by invitation"),
    Event.NAME_CHANGED: N_("Name changed"),
    Event.ACCOUNT_DELETION_FAILED: N_("Deleting the account failed: wrong password"),
    Event.EMAIL_CHANGE_ASKED: N_("Requested another email address"),
    Event.EMAIL_CHANGE_FAILED: N_("Changing the email address failed: wrong password"),
    Event.EMAIL_CHANGED: N_("Email address changed"),
    Event.EMAIL_VERIFIED: N_("Email address verified"),
    Event.SIGNED_UP: N_("Account created"),
    Event.VERIFICATION_ASKED: N_("Requested a confirmation email"),
    Event.USER_INVITED: N_("Account created by an operator, with an invitation"),
    Event.USER_CREATED: N_("Account created by an operator"),
    Event.USER_CHANGED: N_("Account changed by an operator"),
    Event.USER_DISABLED: N_("Account disabled by an operator"),
    Event.USER_ENABLED: N_("Account enabled by an operator"),
    Event.ENROLMENT_CODE_ASKED: N_("Requested a code to set up a second factor"),
    Event.ENROLMENT_CODE_FAILED: N_("Entered a wrong code to set up a second factor"),
    Event.ENROLMENT_LINK_MADE: N_("An operator created a link to set up a second factor"),
    Event.ENROLMENT_ALLOWED: N_("A code or a link allowed setting up a second factor"),
    Event.FACTOR_ADDED: N_("Second factor added"),
    Event.FACTOR_REMOVED: N_("Second factor removed"),
    Event.FACTOR_RENAMED: N_("Passkey renamed"),
    Event.FACTORS_RESET: N_("Second factors removed by an operator"),
    Event.RECOVERY_CODES_MADE: N_("New recovery codes created"),
    Event.RECOVERY_CODE_USED: N_("A recovery code was used"),
    Event.SECOND_FACTOR_FAILED: N_("Entered a wrong second factor"),
    Event.REFRESH_TOKEN_REUSED: N_("A stolen token was detected, and access was ended"),
    Event.CODE_REUSED: N_("A stolen code was detected, and access was ended"),
}


@login_required
def activity() -> Response:
    """The user's recent security events."""
    current = page.signed_in()
    browser_session.touch(current)
    found = rows.newest(user_id=str(current.user.id), names=sorted(WORDS), limit=_SHOWN)
    names = clients.names({event.client_id for event in found if event.client_id})
    events = [(event, WORDS[Event(event.name)], _details(event, names)) for event in found]
    response = page.render("activity.html", events=events)
    db.session.commit()
    return response


def _details(event: AuditEvent, names: dict[str, str]) -> list[str]:
    """The application, and where it came from, as far as that is known."""
    by_operator = "operator" in json.loads(event.fields)
    parts = [
        names.get(event.client_id or ""),
        gettext("by an operator") if by_operator else None,
        user_agents.name(event.browser) if event.browser and not by_operator else None,
        event.address if not by_operator else None,
    ]
    return [part for part in parts if part]
