"""The names of all security events, for who asks for one that has not happened yet."""

import difflib
from collections.abc import Collection

from sso.ratelimit import limiting

_NAMES = """
    access_token_refused audit_purged audit_resealed audit_verification_failed
    authorization_refused backup_made backup_restored client_authentication_failed client_changed
    client_created client_deleted client_disabled client_enabled client_forbidden
    client_secret_rotated code_issued code_reused consent_denied consent_given consent_withdrawn
    csrf_refused database_copied email_change_asked email_change_failed email_changed
    email_verified end_session_refused enrolment_allowed enrolment_code_asked enrolment_code_failed
    enrolment_link_made exported factor_added factor_removed factors_reset introspection_refused
    invitation_accepted key_removed key_retired key_rotated logout_delivered logout_given_up
    mail_given_up mail_limited mail_sent password_accepted password_change_failed password_changed
    password_reset password_set post_logout_refused recovery_code_used recovery_codes_made
    reencrypted refresh_token_reused reset_asked revocation_refused scope_dropped
    second_factor_failed session_ended sign_in_failed sign_up_asked signed_in signed_up stepped_up
    token_refused token_revoked tokens_issued tokens_refreshed tokens_refused user_changed
    user_created user_deleted user_disabled user_enabled user_invited verification_asked
"""
NAMES = frozenset(_NAMES.split())


def is_known(name: str) -> bool:
    """Whether this program tells such an event; `…_limited` is told of budgets that are used up."""
    budget = name.removesuffix("_limited").removeprefix("silent_")
    return name in NAMES or (name.endswith("_limited") and budget in NAMES | _rules())


def alike(name: str, happened: Collection[str]) -> list[str]:
    """The names that may have been meant."""
    return difflib.get_close_matches(name, sorted(NAMES.union(happened)), cutoff=0.5)


def _rules() -> set[str]:
    kinds = (limiting.Guessing, limiting.Flooding)
    return {rule.name for rule in vars(limiting).values() if isinstance(rule, kinds)}
