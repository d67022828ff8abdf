"""The families of audit events, like the sections of docs/reference/events.md."""

from collections.abc import Mapping
from dataclasses import dataclass

from sso.audit.events import Event
from sso.i18n import N_


@dataclass(frozen=True)
class Family:
    """Events that are about the same things."""

    title: str
    events: tuple[Event, ...]


_LISTED: Mapping[str, Family] = {
    "sign-in": Family(N_("Sign-in and sessions"), (
        Event.SIGNED_IN, Event.SIGN_IN_FAILED, Event.PASSWORD_ACCEPTED, Event.SECOND_FACTOR_FAILED,
        Event.RECOVERY_CODE_USED, Event.STEPPED_UP, Event.SESSION_ENDED, Event.SIGN_IN_CODE_ASKED,
    )),
    "agents": Family(N_("Agents"), (
        Event.AGENT_ADMITTED, Event.AGENT_CHANGED, Event.AGENT_REGISTERED,
        Event.AGENT_DOMAIN_ALLOWED, Event.AGENT_DOMAIN_BLOCKED, Event.AGENT_DOMAIN_REMOVED,
    )),
    "accounts": Family(N_("Accounts"), (
        Event.SIGN_UP_ASKED, Event.SIGNED_UP, Event.USER_CREATED, Event.USER_IMPORTED,
        Event.USER_INVITED, Event.INVITATION_ACCEPTED, Event.USER_CHANGED, Event.GROUP_CREATED,
        Event.GROUP_DELETED, Event.GROUP_CHANGED, Event.GROUP_OWNER_ADDED,
        Event.GROUP_OWNER_REMOVED, Event.USER_DISABLED, Event.USER_ENABLED,
        Event.USER_DELETED, Event.ACCOUNT_DELETION_FAILED, Event.NAME_CHANGED,
        Event.LANGUAGE_CHANGED, Event.PROFILE_CHANGED, Event.ATTRIBUTE_CREATED,
        Event.ATTRIBUTE_CHANGED, Event.ATTRIBUTE_DELETED, Event.PASSWORD_CHANGED,
        Event.PASSWORD_CHANGE_FAILED, Event.PASSWORD_SET, Event.RESET_ASKED, Event.PASSWORD_RESET,
        Event.VERIFICATION_ASKED, Event.EMAIL_VERIFIED, Event.EMAIL_CHANGE_ASKED,
        Event.EMAIL_CHANGE_FAILED, Event.EMAIL_CHANGED, Event.TERMS_ACCEPTED,
    )),
    "factors": Family(N_("Second factors"), (
        Event.ENROLMENT_CODE_ASKED, Event.ENROLMENT_CODE_FAILED, Event.ENROLMENT_LINK_MADE,
        Event.ENROLMENT_ALLOWED, Event.FACTOR_ADDED, Event.FACTOR_REMOVED, Event.FACTOR_RENAMED,
        Event.FACTORS_RESET, Event.RECOVERY_CODES_MADE,
    )),
    "providers": Family(N_("Sign-in providers"), (
        Event.IDENTITY_LINKED, Event.IDENTITY_UNLINKED, Event.IDENTITY_ACCEPTED,
    )),
    "apis": Family(N_("APIs"), (
        Event.API_CREATED, Event.API_DELETED, Event.API_CHANGED, Event.API_DISABLED,
        Event.API_ENABLED, Event.API_SECRET_ROTATED,
    )),
    "applications": Family(N_("Applications"), (
        Event.CLIENT_CREATED, Event.CLIENT_DELETED, Event.CLIENT_CHANGED, Event.CLIENT_DISABLED,
        Event.CLIENT_ENABLED, Event.CLIENT_SECRET_ROTATED, Event.CLIENT_OLD_SECRET_ENDED,
        Event.CONSENT_GIVEN, Event.CONSENT_DENIED, Event.CONSENT_WITHDRAWN,
        Event.DEVICE_APPROVED, Event.DEVICE_DENIED,
        Event.CODE_ISSUED, Event.SAML_ASSERTION_ISSUED, Event.PROXY_SIGNED_IN,
        Event.TOKENS_ISSUED, Event.ID_JAG_ISSUED, Event.TOKENS_EXCHANGED,
        Event.SERVICE_TOKEN_ISSUED, Event.TOKENS_REFRESHED, Event.TOKEN_REVOKED, Event.CODE_REUSED,
        Event.REFRESH_TOKEN_REUSED, Event.LOGOUT_DELIVERED, Event.LOGOUT_GIVEN_UP,
        Event.PROVISIONED, Event.PROVISIONING_FAILED, Event.PROVISIONING_RETRIED,
        Event.PROVISIONING_REPAIRED, Event.PROVISIONING_TESTED, Event.PROVISIONING_TOKEN_CHANGED,
    )),
    "refused": Family(N_("Refused requests"), (
        Event.AUTHORIZATION_REFUSED, Event.PUSHED_REQUEST_REFUSED, Event.PROXY_REQUEST_REFUSED,
        Event.SAML_REFUSED, Event.SAML_LOGOUT_REFUSED,
        Event.DEVICE_AUTHORIZATION_REFUSED, Event.DEVICE_CODE_FAILED, Event.CLIENT_FORBIDDEN,
        Event.SCOPE_DROPPED, Event.CLIENT_AUTHENTICATION_FAILED, Event.TOKENS_REFUSED,
        Event.ACCESS_TOKEN_REFUSED, Event.INTROSPECTION_REFUSED, Event.TOKEN_REFUSED,
        Event.REVOCATION_REFUSED, Event.END_SESSION_REFUSED, Event.POST_LOGOUT_REFUSED,
        Event.CSRF_REFUSED,
    )),
}  # fmt: skip
_LIMITS = tuple(name for name in Event if name.endswith("_limited"))
_OF_OTHERS = {*_LIMITS, *(name for family in _LISTED.values() for name in family.events)}
FAMILIES: Mapping[str, Family] = {
    **_LISTED,
    "operation": Family(N_("Operation"), tuple(name for name in Event if name not in _OF_OTHERS)),
    "limits": Family(N_("Limits"), _LIMITS),
}
