"""Human-readable names of audit events; docs/reference/events.md explains the events.

Events of limits are not listed: `name` composes their names.
"""

from collections.abc import Mapping

from flask_babel import gettext

from sso.audit.events import Event
from sso.i18n import N_

NAMES: Mapping[Event, str] = {
    Event.SIGNED_IN: N_("Signed in"),
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
    Event.LANGUAGE_CHANGED: N_("Language changed"),
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
    Event.SIGN_IN_FAILED: N_("Sign-in failed"),
    Event.IDENTITY_ACCEPTED: N_("Signed in at a provider, and the second factor was requested"),
    Event.STEPPED_UP: N_("Second factor used in a session"),
    Event.SIGN_UP_ASKED: N_("Requested an account"),
    Event.RESET_ASKED: N_("Requested a link for a new password"),
    Event.USER_IMPORTED: N_("Account imported"),
    Event.USER_DELETED: N_("Account deleted"),
    Event.GROUP_CREATED: N_("Group created"),
    Event.GROUP_CHANGED: N_("Group renamed"),
    Event.GROUP_DELETED: N_("Group deleted"),
    Event.IDENTITY_LINKED: N_("Account at a provider connected"),
    Event.IDENTITY_UNLINKED: N_("Account at a provider disconnected"),
    Event.CLIENT_CREATED: N_("Application registered"),
    Event.CLIENT_CHANGED: N_("Application changed"),
    Event.CLIENT_DISABLED: N_("Application disabled"),
    Event.CLIENT_ENABLED: N_("Application enabled"),
    Event.CLIENT_DELETED: N_("Application deleted"),
    Event.CLIENT_SECRET_ROTATED: N_("Client secret replaced"),
    Event.CLIENT_FORBIDDEN: N_("Access refused: not in a required group"),
    Event.CODE_ISSUED: N_("Authorization code issued"),
    Event.TOKENS_ISSUED: N_("Tokens issued"),
    Event.TOKENS_REFRESHED: N_("Tokens refreshed"),
    Event.TOKEN_REVOKED: N_("Token revoked by an application"),
    Event.SCOPE_DROPPED: N_("Unregistered scopes ignored"),
    Event.LOGOUT_DELIVERED: N_("Logout token delivered"),
    Event.LOGOUT_GIVEN_UP: N_("Logout token not delivered"),
    Event.MAIL_SENT: N_("Email sent"),
    Event.MAIL_GIVEN_UP: N_("Email not sent"),
    Event.AUTHORIZATION_REFUSED: N_("Authorization request refused"),
    Event.PUSHED_REQUEST_REFUSED: N_("Pushed request refused"),
    Event.CLIENT_AUTHENTICATION_FAILED: N_("Client authentication failed"),
    Event.TOKENS_REFUSED: N_("Token request refused"),
    Event.ACCESS_TOKEN_REFUSED: N_("Access token refused"),
    Event.INTROSPECTION_REFUSED: N_("Introspection refused"),
    Event.TOKEN_REFUSED: N_("Introspected another application's token"),
    Event.REVOCATION_REFUSED: N_("Revocation refused"),
    Event.END_SESSION_REFUSED: N_("Sign-out request refused"),
    Event.POST_LOGOUT_REFUSED: N_("Return after sign-out refused"),
    Event.CSRF_REFUSED: N_("Form refused"),
    Event.API_TOKEN_CREATED: N_("API token created"),
    Event.API_TOKEN_REVOKED: N_("API token revoked"),
    Event.API_TOKEN_REFUSED: N_("API request refused"),
    Event.WEBHOOK_CREATED: N_("Webhook created"),
    Event.WEBHOOK_CHANGED: N_("Webhook changed"),
    Event.WEBHOOK_DISABLED: N_("Webhook disabled"),
    Event.WEBHOOK_ENABLED: N_("Webhook enabled"),
    Event.WEBHOOK_DELETED: N_("Webhook deleted"),
    Event.KEY_ROTATED: N_("Signing key activated"),
    Event.KEY_RETIRED: N_("Signing key replaced before use"),
    Event.KEY_REMOVED: N_("Signing key removed"),
    Event.REENCRYPTED: N_("Secrets encrypted again"),
    Event.BACKUP_MADE: N_("Backup created"),
    Event.BACKUP_RESTORED: N_("Backup restored"),
    Event.DATABASE_COPIED: N_("Database copied"),
    Event.EXPORTED: N_("Data exported"),
    Event.AUDIT_PURGED: N_("Old audit events deleted"),
    Event.AUDIT_RESEALED: N_("Audit chain authenticated again"),
    Event.AUDIT_VERIFICATION_FAILED: N_("Audit trail is damaged"),
}
_LIMITED = "_limited"


def name(code: str) -> str:
    """Return an event's name in the reader's language, or its code if it is unknown."""
    if code in NAMES:
        return str(gettext(NAMES[Event(code)]))
    if code.endswith(_LIMITED):
        return str(gettext("Limit reached: %(what)s", what=name(code.removesuffix(_LIMITED))))
    return code
