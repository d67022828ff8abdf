"""What an operator's action ends, as admin pages say before they do it.

The causes are rows of docs/explanation/revocation.md, which tests/endpoints/test_what_ends_what.py
proves.
"""

from collections.abc import Mapping

from sso.i18n import N_

SESSIONS = N_("All sessions of this person")
TOKENS = N_("Access of applications that lasts as long as a session")
OFFLINE = N_("Access of applications that outlives sessions (offline access)")
NOTIFIED = N_("Applications with back-channel logout are notified")
_EVERYTHING = (SESSIONS, TOKENS, OFFLINE, NOTIFIED)

ENDS: Mapping[str, tuple[str, ...]] = {
    "sign-out by an operator": (SESSIONS, TOKENS, NOTIFIED),
    "second factors reset by an operator": (SESSIONS, TOKENS, NOTIFIED),
    "password set by an operator": _EVERYTHING,
    "user disabled": _EVERYTHING,
    "user deleted": _EVERYTHING,
    "group lost": (TOKENS, OFFLINE, NOTIFIED),
    "client disabled": (TOKENS, OFFLINE),
    "client deleted": (TOKENS, OFFLINE),
    "client for other groups": (TOKENS, OFFLINE, NOTIFIED),
}
