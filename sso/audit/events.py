"""The names of all security events, and which of them survive a rollback."""

# ruff: noqa: S105 (no password, though its name has the word)

from enum import Enum, StrEnum
from typing import Self


class _Mark(Enum):
    """What holds for an event beside its name."""

    ANYWAY = "it is written even if its transaction is rolled back"
    SENT = "webhooks can subscribe to it"


_ANYWAY, _SENT = _Mark.ANYWAY, _Mark.SENT


class Event(StrEnum):
    """The name of a security event, as the log and the audit trail have it.

    `survives_rollback`: the event is written even if its transaction is rolled back.
    `is_for_webhooks`: webhooks can subscribe to it. Such an event is recorded before its
    transaction commits, and never by a successful token or userinfo request.
    """

    survives_rollback: bool
    is_for_webhooks: bool

    def __new__(cls, name: str, mark: _Mark | None = None) -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.survives_rollback = mark is _ANYWAY
        member.is_for_webhooks = mark is _SENT
        return member

    AGENT_ADMITTED = "agent_admitted"
    AGENT_CHANGED = "agent_changed"
    AGENT_DOMAIN_ALLOWED = "agent_domain_allowed"
    AGENT_DOMAIN_BLOCKED = "agent_domain_blocked"
    AGENT_DOMAIN_REMOVED = "agent_domain_removed"
    AGENT_REGISTERED = "agent_registered"
    API_CHANGED = "api_changed", _SENT
    API_CREATED = "api_created", _SENT
    API_DELETED = "api_deleted", _SENT
    API_DISABLED = "api_disabled", _SENT
    API_ENABLED = "api_enabled", _SENT
    API_SECRET_ROTATED = "api_secret_rotated", _SENT
    API_TOKEN_CREATED = "api_token_created"
    API_TOKEN_REVOKED = "api_token_revoked"
    ATTRIBUTE_CHANGED = "attribute_changed"
    ATTRIBUTE_CREATED = "attribute_created"
    ATTRIBUTE_DELETED = "attribute_deleted"
    AUDIT_PURGED = "audit_purged"
    AUDIT_RESEALED = "audit_resealed"
    BACKUP_MADE = "backup_made"
    BACKUP_RESTORED = "backup_restored"
    BRANDING_CHANGED = "branding_changed"
    CLIENT_CHANGED = "client_changed", _SENT
    CLIENT_CREATED = "client_created", _SENT
    CLIENT_DELETED = "client_deleted", _SENT
    CLIENT_DISABLED = "client_disabled", _SENT
    CLIENT_ENABLED = "client_enabled", _SENT
    CLIENT_FORBIDDEN = "client_forbidden"
    CLIENT_OLD_SECRET_ENDED = "client_old_secret_ended", _SENT
    CLIENT_SECRET_ROTATED = "client_secret_rotated", _SENT
    CODE_ISSUED = "code_issued"
    CODE_REUSED = "code_reused", _SENT
    CONSENT_DENIED = "consent_denied"
    CONSENT_GIVEN = "consent_given", _SENT
    CONSENT_WITHDRAWN = "consent_withdrawn", _SENT
    DATABASE_COPIED = "database_copied"
    DEVICE_APPROVED = "device_approved", _SENT
    DEVICE_DENIED = "device_denied"
    EMAIL_CHANGE_ASKED = "email_change_asked"
    EMAIL_CHANGED = "email_changed", _SENT
    EMAIL_VERIFIED = "email_verified", _SENT
    ENROLMENT_ALLOWED = "enrolment_allowed"
    ENROLMENT_CODE_ASKED = "enrolment_code_asked"
    ENROLMENT_LINK_MADE = "enrolment_link_made"
    EXPORTED = "exported"
    FACTOR_ADDED = "factor_added", _SENT
    FACTOR_REMOVED = "factor_removed", _SENT
    FACTOR_RENAMED = "factor_renamed"
    FACTORS_RESET = "factors_reset", _SENT
    GROUP_CHANGED = "group_changed"
    GROUP_CREATED = "group_created"
    GROUP_DELETED = "group_deleted"
    GROUP_OWNER_ADDED = "group_owner_added", _SENT
    GROUP_OWNER_REMOVED = "group_owner_removed", _SENT
    ID_JAG_ISSUED = "id_jag_issued"
    IDENTITY_ACCEPTED = "identity_accepted"
    IDENTITY_LINKED = "identity_linked", _SENT
    IDENTITY_UNLINKED = "identity_unlinked", _SENT
    INVITATION_ACCEPTED = "invitation_accepted", _SENT
    KEY_REMOVED = "key_removed"
    KEY_RETIRED = "key_retired"
    KEY_ROTATED = "key_rotated"
    LANGUAGE_CHANGED = "language_changed"
    LOGOUT_DELIVERED = "logout_delivered"
    LOGOUT_GIVEN_UP = "logout_given_up"
    MAIL_DELETED = "mail_deleted"
    MAIL_GIVEN_UP = "mail_given_up"
    MAIL_RESENT = "mail_resent"
    MAIL_SENT = "mail_sent"
    NAME_CHANGED = "name_changed", _SENT
    PASSWORD_ACCEPTED = "password_accepted"
    PASSWORD_CHANGED = "password_changed", _SENT
    PASSWORD_RESET = "password_reset", _SENT
    PASSWORD_SET = "password_set", _SENT
    PROFILE_CHANGED = "profile_changed", _SENT
    PROVISIONED = "provisioned"
    PROVISIONING_FAILED = "provisioning_failed"
    PROVISIONING_REPAIRED = "provisioning_repaired"
    PROVISIONING_RETRIED = "provisioning_retried"
    PROVISIONING_TESTED = "provisioning_tested"
    PROVISIONING_TOKEN_CHANGED = "provisioning_token_changed"
    PROXY_SIGNED_IN = "proxy_signed_in"
    RECOVERY_CODE_USED = "recovery_code_used"
    RECOVERY_CODES_MADE = "recovery_codes_made"
    REENCRYPTED = "reencrypted"
    REFRESH_TOKEN_REUSED = "refresh_token_reused", _SENT
    RESET_ASKED = "reset_asked"
    SCOPE_DROPPED = "scope_dropped"
    SAML_ASSERTION_ISSUED = "saml_assertion_issued"
    SAML_LOGOUT_REFUSED = "saml_logout_refused", _ANYWAY
    SAML_REFUSED = "saml_refused", _ANYWAY
    SERVICE_TOKEN_ISSUED = "service_token_issued"
    SESSION_ENDED = "session_ended", _SENT
    SIGN_IN_CODE_ASKED = "sign_in_code_asked"
    SIGN_UP_ASKED = "sign_up_asked"
    SIGNED_IN = "signed_in", _SENT
    SIGNED_UP = "signed_up", _SENT
    STEPPED_UP = "stepped_up"
    TERMS_ACCEPTED = "terms_accepted", _SENT
    TOKEN_REVOKED = "token_revoked", _SENT
    TOKENS_EXCHANGED = "tokens_exchanged"
    TOKENS_ISSUED = "tokens_issued"
    TOKENS_REFRESHED = "tokens_refreshed"
    USER_CHANGED = "user_changed", _SENT
    USER_CREATED = "user_created", _SENT
    USER_DELETED = "user_deleted", _SENT
    USER_DISABLED = "user_disabled", _SENT
    USER_ENABLED = "user_enabled", _SENT
    USER_IMPORTED = "user_imported", _SENT
    USER_INVITED = "user_invited", _SENT
    VERIFICATION_ASKED = "verification_asked"
    WEBHOOK_CHANGED = "webhook_changed"
    WEBHOOK_CREATED = "webhook_created"
    WEBHOOK_DELETED = "webhook_deleted"
    WEBHOOK_DISABLED = "webhook_disabled"
    WEBHOOK_ENABLED = "webhook_enabled"
    WEBHOOK_RETRIED = "webhook_retried"
    WEBHOOK_TESTED = "webhook_tested"

    ACCESS_TOKEN_REFUSED = "access_token_refused", _ANYWAY
    API_TOKEN_REFUSED = "api_token_refused", _ANYWAY
    ACCOUNT_DELETION_FAILED = "account_deletion_failed", _ANYWAY
    AUDIT_VERIFICATION_FAILED = "audit_verification_failed", _ANYWAY
    AUTHORIZATION_REFUSED = "authorization_refused", _ANYWAY
    CLIENT_AUTHENTICATION_FAILED = "client_authentication_failed", _ANYWAY
    CSRF_REFUSED = "csrf_refused", _ANYWAY
    DEVICE_AUTHORIZATION_REFUSED = "device_authorization_refused", _ANYWAY
    DEVICE_CODE_FAILED = "device_code_failed", _ANYWAY
    EMAIL_CHANGE_FAILED = "email_change_failed", _ANYWAY
    END_SESSION_REFUSED = "end_session_refused", _ANYWAY
    ENROLMENT_CODE_FAILED = "enrolment_code_failed", _ANYWAY
    INTROSPECTION_REFUSED = "introspection_refused", _ANYWAY
    PASSWORD_CHANGE_FAILED = "password_change_failed", _ANYWAY
    POST_LOGOUT_REFUSED = "post_logout_refused", _ANYWAY
    PROXY_REQUEST_REFUSED = "proxy_request_refused", _ANYWAY
    PUSHED_REQUEST_REFUSED = "pushed_request_refused", _ANYWAY
    REVOCATION_REFUSED = "revocation_refused", _ANYWAY
    SECOND_FACTOR_FAILED = "second_factor_failed", _ANYWAY
    SIGN_IN_FAILED = "sign_in_failed", _ANYWAY
    TOKEN_REFUSED = "token_refused", _ANYWAY
    TOKENS_REFUSED = "tokens_refused", _ANYWAY

    # A limit of a rule in `ratelimit.limiting`, or the budget of an event, is used up.
    ACCESS_TOKEN_REFUSED_LIMITED = "access_token_refused_limited", _ANYWAY
    API_REQUESTS_LIMITED = "api_requests_limited", _ANYWAY
    API_TOKEN_LIMITED = "api_token_limited", _ANYWAY
    API_TOKEN_REFUSED_LIMITED = "api_token_refused_limited", _ANYWAY
    AUTHORIZATION_REFUSED_LIMITED = "authorization_refused_limited", _ANYWAY
    CLIENT_AUTHENTICATION_LIMITED = "client_authentication_limited", _ANYWAY
    CLIENT_AUTHENTICATION_FAILED_LIMITED = "client_authentication_failed_limited", _ANYWAY
    CLIENT_FORBIDDEN_LIMITED = "client_forbidden_limited", _ANYWAY
    CLIENT_DOCUMENT_LIMITED = "client_document_limited", _ANYWAY
    CODE_ISSUED_LIMITED = "code_issued_limited", _ANYWAY
    CONSENT_DENIED_LIMITED = "consent_denied_limited", _ANYWAY
    CONSENT_GIVEN_LIMITED = "consent_given_limited", _ANYWAY
    CONSENT_WITHDRAWN_LIMITED = "consent_withdrawn_limited", _ANYWAY
    CSRF_REFUSED_LIMITED = "csrf_refused_limited", _ANYWAY
    DEVICE_APPROVED_LIMITED = "device_approved_limited", _ANYWAY
    DEVICE_AUTHORIZATION_REFUSED_LIMITED = "device_authorization_refused_limited", _ANYWAY
    DEVICE_CODE_BY_ANYONE_LIMITED = "device_code_by_anyone_limited", _ANYWAY
    DEVICE_CODE_FAILED_LIMITED = "device_code_failed_limited", _ANYWAY
    DEVICE_CODE_LIMITED = "device_code_limited", _ANYWAY
    DEVICE_DENIED_LIMITED = "device_denied_limited", _ANYWAY
    DEVICE_REQUEST_BY_ANYONE_LIMITED = "device_request_by_anyone_limited", _ANYWAY
    DEVICE_REQUEST_LIMITED = "device_request_limited", _ANYWAY
    DIRECTORY_LIMITED = "directory_limited", _ANYWAY
    EMAILED_CODE_LIMITED = "emailed_code_limited", _ANYWAY
    END_SESSION_REFUSED_LIMITED = "end_session_refused_limited", _ANYWAY
    ERROR_LIMITED = "error_limited", _ANYWAY
    EXCHANGED_TOKENS_LIMITED = "exchanged_tokens_limited", _ANYWAY
    FACTOR_RENAMED_LIMITED = "factor_renamed_limited", _ANYWAY
    ID_JAG_ISSUED_LIMITED = "id_jag_issued_limited", _ANYWAY
    INTROSPECTION_REFUSED_LIMITED = "introspection_refused_limited", _ANYWAY
    LANGUAGE_CHANGED_LIMITED = "language_changed_limited", _ANYWAY
    MAIL_LIMITED = "mail_limited", _ANYWAY
    NAME_CHANGED_LIMITED = "name_changed_limited", _ANYWAY
    OPEN_REGISTRATION_LIMITED = "open_registration_limited", _ANYWAY
    PASSKEY_LIMITED = "passkey_limited", _ANYWAY
    PASSWORD_CHECK_LIMITED = "password_check_limited", _ANYWAY
    PASSWORD_RESET_LIMITED = "password_reset_limited", _ANYWAY
    PICTURE_LIMITED = "picture_limited", _ANYWAY
    POST_LOGOUT_REFUSED_LIMITED = "post_logout_refused_limited", _ANYWAY
    OWNER_ADDITION_LIMITED = "owner_addition_limited", _ANYWAY
    PROFILE_CHANGED_LIMITED = "profile_changed_limited", _ANYWAY
    PROXY_REQUEST_REFUSED_LIMITED = "proxy_request_refused_limited", _ANYWAY
    PROXY_SIGNED_IN_LIMITED = "proxy_signed_in_limited", _ANYWAY
    PUSHED_BY_ANYONE_LIMITED = "pushed_by_anyone_limited", _ANYWAY
    PUSHED_REQUEST_LIMITED = "pushed_request_limited", _ANYWAY
    PUSHED_REQUEST_REFUSED_LIMITED = "pushed_request_refused_limited", _ANYWAY
    REVOCATION_REFUSED_LIMITED = "revocation_refused_limited", _ANYWAY
    SAML_ASSERTION_ISSUED_LIMITED = "saml_assertion_issued_limited", _ANYWAY
    SAML_LOGOUT_REFUSED_LIMITED = "saml_logout_refused_limited", _ANYWAY
    SAML_REFUSED_LIMITED = "saml_refused_limited", _ANYWAY
    SCOPE_DROPPED_LIMITED = "scope_dropped_limited", _ANYWAY
    SECOND_FACTOR_LIMITED = "second_factor_limited", _ANYWAY
    SERVICE_TOKEN_ISSUED_LIMITED = "service_token_issued_limited", _ANYWAY
    SERVICE_TOKENS_LIMITED = "service_tokens_limited", _ANYWAY
    SIGN_IN_CODE_LIMITED = "sign_in_code_limited", _ANYWAY
    SIGN_IN_CODE_REQUEST_LIMITED = "sign_in_code_request_limited", _ANYWAY
    SIGN_IN_LIMITED = "sign_in_limited", _ANYWAY
    SIGN_UP_LIMITED = "sign_up_limited", _ANYWAY
    SILENT_AUTHORIZATION_REFUSED_LIMITED = "silent_authorization_refused_limited", _ANYWAY
    TEST_SIGN_IN_LIMITED = "test_sign_in_limited", _ANYWAY
    TEST_WEBHOOK_LIMITED = "test_webhook_limited", _ANYWAY
    TOKEN_REFUSED_LIMITED = "token_refused_limited", _ANYWAY
    TOKENS_EXCHANGED_LIMITED = "tokens_exchanged_limited", _ANYWAY
    TOKENS_REFUSED_LIMITED = "tokens_refused_limited", _ANYWAY
    UPSTREAM_LIMITED = "upstream_limited", _ANYWAY
    VERIFICATION_LIMITED = "verification_limited", _ANYWAY


def limited(rule: str) -> Event:
    """Return the event for a used-up limit of a rule or budget of an event, recorded once."""
    return Event(f"{rule}_limited")


WEBHOOK_EVENTS = tuple(event for event in Event if event.is_for_webhooks)
