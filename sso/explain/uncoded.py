"""The codes of refusals that version 0.1.0 stored without codes, recognized by their sentences.

No current message is compared with these sentences. The rows that have them are deleted after
`store.expired.KEEP_REFUSALS`.
"""

from collections.abc import Mapping
from typing import Any

from sso.crypto.client_jwt import JwtFault
from sso.flow.refusals import Cause, Reason

_CAUSES = {
    "The user is in none of the groups that may use this client.": Cause.NO_LONGER_A_MEMBER,
    "The user is not in a group that may use this client.": Cause.NOT_A_MEMBER,
    "This client requires two-step verification, and the user signed in without it.": (
        Cause.ONE_FACTOR
    ),
    "The sign-in in which this was granted has ended.": Cause.SESSION_ENDED,
    "No scope that was granted is allowed any more.": Cause.NOTHING_LEFT,
    "This client has to push its authorization requests to /oauth2/par, and to send the "
    "request_uri from there (RFC 9126).": Cause.NOT_PUSHED,
    "This client has to sign its authorization requests (RFC 9101).": Cause.NOT_SIGNED,
    "Client authentication is missing: send client_id and client_secret, or a client_assertion.": (
        Cause.MISSING_CLIENT_AUTHENTICATION
    ),
}
_REASONS = {
    "a previous secret, which has expired": Reason.EXPIRED_SECRET,
    "altered": Reason.ALTERED,
    "client disabled": Reason.TOKEN_OF_DISABLED_CLIENT,
    "client_id and client_secret are swapped": Reason.SWAPPED,
    "disabled client": Reason.CLIENT_DISABLED,
    "expired": Reason.EXPIRED,
    "in the URL": Reason.TOKEN_IN_URL,
    "issued to another client": Reason.ISSUED_TO_ANOTHER,
    "not a token of this server": Reason.NOT_OURS,
    "owner": Reason.NO_ADMINISTRATOR,
    "revoked": Reason.REVOKED,
    "session ended": Reason.SESSION_ENDED,
    "the right secret, in quotes or between spaces": Reason.QUOTED_SECRET,
    "unknown": Reason.UNKNOWN,
    "unknown client": Reason.UNKNOWN_CLIENT,
    "used before": Reason.USED_BEFORE,
    "user disabled": Reason.USER_DISABLED,
    "waited too long": Reason.WAITED_TOO_LONG,
    "wrong secret": Reason.WRONG_SECRET,
}
_WITH_MORE = {
    "assertion": (Reason.ASSERTION, "fault"),
    "its grant has ended": (Reason.GRANT_ENDED, "end_reason"),
    "key set": (Reason.KEY_SET, "fault"),
    "wrong method": (Reason.WRONG_METHOD, "method"),
}
_JWT_FAULTS = {
    "not signed with": JwtFault.SIGNATURE,
    "used before": JwtFault.USED_BEFORE,
    "its aud ": JwtFault.AUDIENCE,
    "check the clock": JwtFault.CLOCK,
    "an hour ahead": JwtFault.CLOCK,
}


def facts_of(details: Mapping[str, Any]) -> dict[str, str]:
    """Return the codes that the current version would have stored."""
    if "code" in details or "reason_code" in details:
        return {}
    description, reason = str(details.get("description")), str(details.get("reason"))
    kind, _, value = reason.partition(": ")
    facts: dict[str, str] = {}
    if description in _CAUSES:
        facts["code"] = _CAUSES[description]
    if reason in _REASONS:
        facts["reason_code"] = _REASONS[reason]
    elif kind in _WITH_MORE:
        code, variable = _WITH_MORE[kind]
        facts |= {"reason_code": code, variable: value}
    for text, fault in _JWT_FAULTS.items():
        if text in f"{description} {reason}":
            return {**facts, "jwt": fault}
    return facts
