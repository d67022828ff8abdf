"""Checks of codes, refresh tokens and access tokens."""

from enum import Enum

from sso.audit.events import Event
from sso.config.client_fields import DEVICE_CODE, TOKEN_EXCHANGE
from sso.config.settings import Settings
from sso.explain.case import Case, Explanation, command, sentences
from sso.flow import scopes
from sso.flow.refusals import Cause, Reason
from sso.i18n import N_
from sso.i18n.message import Message


def presented(case: Case) -> Explanation | None:
    """Explain a refused code or token by its stored reason."""
    kind = _kind_presented(case)
    if kind is None:
        return None
    used_at, expires_at, at = case.moment("used_at"), case.moment("expires_at"), case.refusal.at
    if used_at and (not case["reason"] or case.reason == Reason.USED_BEFORE):
        return _used(case, kind, f"{used_at:%Y-%m-%d %H:%M:%S} UTC")
    if case.reason == Reason.EXPIRED and expires_at:
        ago = _duration((at - expires_at).total_seconds())
        late = Message(
            "The %(what)s had expired %(duration)s before.", what=kind.value, duration=ago
        )
        return Explanation(late, _too_late(kind, case.settings))
    if case.reason == Reason.NOT_A_PARTY:
        return _not_a_party(case)
    if case.reason == Reason.ISSUED_TO_ANOTHER:
        return Explanation(
            Message(
                "The %(what)s was issued to %(client)s.",
                what=kind.value,
                client=case.issued_to,
            ),
            Message("Make the application use the same client_id in all its requests."),
        )
    if case.reason == Reason.SESSION_ENDED and kind is _Kind.REFRESH_TOKEN:
        return _session_ended(case)
    if case.reason == Reason.GRANT_ENDED:
        why = case["end_reason"]
        return Explanation(
            Message(
                "What the user approved has ended: %(why)s.",
                why=_ENDED.get(why, why.replace("_", " ")),
            ),
            Message("Let the user sign in to the application again."),
        )
    if case.reason == Reason.USER_DISABLED:
        return _user_disabled(case, kind)
    if case.reason in _UNREADABLE:
        cause, fix = _UNREADABLE[case.reason]
        return Explanation(Message(cause, what=kind.value), fix)
    return None


def narrowed(case: Case) -> Explanation | None:
    """Explain a narrowed grant (see `flow.narrowing`), except for groups."""
    if case.cause == Cause.ONE_FACTOR:
        return Explanation(
            Message(
                "The client requires two-step verification, and the user signed in without it, "
                "before that was required."
            ),
            Message(
                "Let the user sign in to the application again; the second factor is asked for "
                "then."
            ),
        )
    if case.cause == Cause.SESSION_ENDED:
        return _session_ended(case)
    if case.cause == Cause.NOTHING_LEFT:
        return Explanation(
            Message(
                "Nothing that was granted is allowed any more: the client's scopes, or the user's "
                "consent, have been narrowed since."
            ),
            Message("Let the user sign in to the application again, and approve what it asks for."),
        )
    return None


class _Kind(Enum):
    CODE = Message("code")
    OF_DEVICE = Message("device code")
    REFRESH_TOKEN = Message("refresh token")
    ACCESS_TOKEN = Message("access token")
    SUBJECT_TOKEN = Message("subject token")


def _kind_presented(case: Case) -> _Kind | None:
    if case.refusal.name == Event.ACCESS_TOKEN_REFUSED:
        return _Kind.ACCESS_TOKEN
    if case["grant_type"] == TOKEN_EXCHANGE:
        return _Kind.SUBJECT_TOKEN if case.reason else None
    kinds = {
        "authorization_code": _Kind.CODE,
        DEVICE_CODE: _Kind.OF_DEVICE,
        "refresh_token": _Kind.REFRESH_TOKEN,
    }
    return kinds.get(case["grant_type"]) if case["error"] == "invalid_grant" else None


def _too_late(kind: _Kind, settings: Settings) -> Message:
    if kind is _Kind.CODE:
        return Message(
            "A code lives %(seconds)s s (SSO_AUTHORIZATION_CODE_LIFETIME). Make the application "
            "exchange it as soon as it arrives.",
            seconds=settings.authorization_code_lifetime,
        )
    if kind is _Kind.OF_DEVICE:
        return Message("A device code lives 10 minutes. Make the device request a new one.")
    if kind is _Kind.REFRESH_TOKEN:
        return Message(
            "A refresh token lives %(seconds)s s from its last use (SSO_REFRESH_TOKEN_LIFETIME). "
            "Let the user sign in to the application again.",
            seconds=settings.refresh_token_lifetime,
        )
    return Message(
        "An access token lives %(seconds)s s (SSO_ACCESS_TOKEN_LIFETIME). Make the application "
        "get a new one with its refresh token.",
        seconds=settings.access_token_lifetime,
    )


def _used(case: Case, kind: _Kind, at: str) -> Explanation:
    cause = Message("The %(what)s was used before, at %(time)s.", what=kind.value, time=at)
    if not case["reason"]:
        cause = sentences(cause, Message("Everything issued with it was revoked."))
    if kind is _Kind.CODE:
        fix = Message(
            "A code works once. Look in the application for a callback that is loaded twice: a "
            "double click, a reload, a prefetch, or a retry after a time-out."
        )
    elif kind is _Kind.OF_DEVICE:
        fix = Message(
            "A device code works once. Make the device stop asking when it has its tokens, and ask "
            "in one place at a time. If only one place had the device code, it may have been "
            "stolen."
        )
    else:
        fix = Message(
            "A refresh token works once and gives its successor. Make the application store each "
            "answer before it refreshes again, and refresh in one place at a time. Retries within "
            "%(seconds)s s (SSO_REFRESH_TOKEN_LEEWAY) are harmless. If only one place had the "
            "token, it may have been stolen.",
            seconds=case.settings.refresh_token_leeway,
        )
    return Explanation(cause, fix)


def _session_ended(case: Case) -> Explanation:
    registered = scopes.split(case.client.scope) if case.client else ()
    command = None
    fix = Message(
        "Let the user sign in again. To outlive the session, make the application ask for "
        "offline_access."
    )
    if "offline_access" not in registered:
        command = case.update("--add-scope", "offline_access")
    if command:
        fix = Message(
            "Let the user sign in again. To outlive the session, make the application ask for "
            "offline_access, with which the client has to be registered:"
        )
    return Explanation(
        Message(
            "The browser session in which this was approved has ended, by sign-out or by its age."
        ),
        fix,
        command,
    )


def _not_a_party(case: Case) -> Explanation:
    """Explain why a client may not exchange the token of another client."""
    audience = case["audience"]
    cause = Message(
        "The subject token was issued to %(client)s for %(audience)s, and the client acts as no "
        "such API.",
        client=case.issued_to,
        audience=audience,
    )
    if case.settings.is_issuer(audience):
        return Explanation(
            cause,
            Message(
                "Make the application request a token for the API that it calls, with resource; "
                "that API can exchange it."
            ),
        )
    return Explanation(
        cause,
        Message("If the client is the backend of that API:"),
        case.update("--add-exchange-from", audience),
    )


def _user_disabled(case: Case, kind: _Kind) -> Explanation:
    user = case.user
    email = user.email if user else Message("(deleted)")
    if user and not user.is_disabled:
        cause = Message("%(email)s was disabled, and is enabled now.", email=email)
        return Explanation(cause, Message("Let them sign in again."))
    enable = command("user", "enable", email) if user else None
    return Explanation(
        Message("The %(what)s is of %(email)s, who is disabled.", what=kind.value, email=email),
        Message("If they may sign in again:"),
        enable,
    )


def _duration(seconds: float) -> Message:
    if seconds < 120:
        return Message("%(count)s s", count=max(1, round(seconds)))
    if seconds < 7200:
        return Message("%(count)s min", count=round(seconds / 60))
    return Message("%(count)s h", count=round(seconds / 3600))


_UNREADABLE: dict[Reason | None, tuple[str, Message]] = {
    Reason.UNKNOWN: (
        N_("No such %(what)s is stored here: it was never issued, or it expired long ago."),
        Message(
            "Look in the application for a value that is cut or decoded twice, that is of another "
            "kind, or that comes from another server."
        ),
    ),
    Reason.ALTERED: (
        N_("The %(what)s names one of this server's, but its text has been changed."),
        Message("Look in the application for a value that is cut, decoded or signed again."),
    ),
    Reason.NOT_OURS: (
        N_("This server did not issue the %(what)s."),
        Message(
            "Make the application send the access_token of the token response, not the id_token, "
            "the refresh_token or a token of another server."
        ),
    ),
    Reason.REVOKED: (
        N_("The %(what)s was revoked."),
        Message("Make the application get a new one."),
    ),
}
_ENDED = {
    "sign_out": Message("the user signed out"),
    "rp_initiated_logout": Message("the user signed out from an application"),
    "ended_by_user": Message("the user ended the session on the account page"),
    "operator": Message("an operator signed the user out"),
    "revoked": Message("the application revoked the refresh token"),
    "consent_withdrawn": Message("the user withdrew the consent"),
    "group_lost": Message("the user has left the groups that may use the client"),
    "user_disabled": Message("the user was disabled"),
    "client_disabled": Message("the client was disabled"),
    "code_reuse": Message("its code was used twice"),
    "refresh_token_reuse": Message("a refresh token was used twice"),
}
