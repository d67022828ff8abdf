"""The signed-in user's own recent security events."""

import json
from collections.abc import Mapping

from flask_babel import gettext
from flask_login import login_required
from werkzeug.wrappers import Response

from sso.audit import rows
from sso.audit.event_names import NAMES
from sso.audit.events import Event
from sso.endpoints import browser_session, page
from sso.extensions import db
from sso.i18n import N_, languages
from sso.models import AuditEvent
from sso.store import clients

_SHOWN = 50
# What concerns a person, in words; the rest of the trail is for operators.
WORDS: Mapping[Event, str] = {
    **{
        event: NAMES[event]
        for event in (
            Event.SIGNED_IN,
            Event.PASSWORD_ACCEPTED,
            Event.SESSION_ENDED,
            Event.CONSENT_GIVEN,
            Event.CONSENT_DENIED,
            Event.CONSENT_WITHDRAWN,
            Event.PASSWORD_CHANGED,
            Event.PASSWORD_CHANGE_FAILED,
            Event.PASSWORD_SET,
            Event.PASSWORD_RESET,
            Event.INVITATION_ACCEPTED,
            Event.NAME_CHANGED,
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
        languages.browser_name(event.browser) if event.browser and not by_operator else None,
        event.address if not by_operator else None,
    ]
    return [part for part in parts if part]
