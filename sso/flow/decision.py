"""What happens to a valid authorization request: the one decision of the authorization endpoint.

The checks are an ordered table. Each names the step that would satisfy it and its error under
`prompt=none`, where no page may be shown (OIDC Core §3.1.2.1, §3.1.2.6).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sso.flow import scopes
from sso.flow.facts import Consent, Facts, Policy, Session
from sso.flow.request import ONE_FACTOR, TWO_FACTORS, AuthorizationRequest

__all__ = [
    "Answer", "AskConsent", "Consent", "Decision", "Forbid", "Policy", "Refuse", "SecondFactor",
    "Session", "SignIn", "Why", "asks_about_factors", "decide", "reached_acr",
]  # fmt: skip


class Why(StrEnum):
    """Why a sign-in is needed."""

    NOBODY = "nobody is signed in"
    AGAIN = "the sign-in has to be repeated"
    SOMEBODY_ELSE = "another user is asked for"
    SELECT = "an account has to be chosen"


@dataclass(frozen=True)
class SignIn:
    """Show the sign-in page."""

    why: Why


@dataclass(frozen=True)
class SecondFactor:
    """Ask for the second factor; `enrol`: the user has none and must set one up."""

    enrol: bool = False


@dataclass(frozen=True)
class AskConsent:
    """Show the consent page for these scopes; `known` are allowed already."""

    scopes: frozenset[str]
    known: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Forbid:
    """Show that this user may not use this client."""


@dataclass(frozen=True)
class Refuse:
    """Answer the client with an error."""

    error: str
    description: str


@dataclass(frozen=True)
class Answer:
    """Answer the client with a code, for everything requested except what the user withholds.

    `uses`: the latest sign-in, choice or consent that satisfies this request and no other one.
    """

    withheld: frozenset[str] = frozenset()
    uses: datetime | None = None


Step = SignIn | SecondFactor | AskConsent | Forbid
Decision = Step | Refuse | Answer


def _must(do: str) -> str:
    return f"The user has to {do}, and prompt=none forbids it."


def _another_user(facts: Facts) -> Step | None:
    user_id, request = facts.session.user_id, facts.request
    hinted, claimed = request.hinted_subject, request.claims.subjects
    wrong = hinted not in (None, user_id) or (claimed and user_id not in claimed)
    return SignIn(Why.SOMEBODY_ELSE) if wrong else None


def _login_again(facts: Facts) -> Step | None:
    asked = "login" in facts.request.prompt
    return SignIn(Why.AGAIN) if asked and not facts.signed_in_for_this else None


def _too_old(facts: Facts) -> Step | None:
    exceeded = facts.max_age_is_exceeded and not facts.signed_in_for_this
    return SignIn(Why.AGAIN) if exceeded else None


def _select_account(facts: Facts) -> Step | None:
    asked = "select_account" in facts.request.prompt
    chosen = facts.selected_for_this or facts.signed_in_for_this
    return SignIn(Why.SELECT) if asked and not chosen else None


def _not_a_member(facts: Facts) -> Step | None:
    groups = facts.policy.groups
    return Forbid() if groups and not groups & facts.session.groups else None


def _second_factor(facts: Facts) -> Step | None:
    request, session = facts.request, facts.session
    if session.acr == TWO_FACTORS:
        return None
    if facts.policy.require_mfa or request.needs_two_factors:
        return SecondFactor(enrol=not session.has_factor)
    # OIDC Core §5.5.1.1: a voluntary acr is tried for, and never an error.
    tried = request.prefers_two_factors and session.has_factor and "none" not in request.prompt
    return SecondFactor() if tried else None


def _consent(facts: Facts) -> Step | None:
    needed = facts.request.scopes_to_consent
    asked = facts.consent_is_demanded
    if asked and not facts.consented_for_this:
        return AskConsent(needed)
    # Also after prompt=consent: the answer may have been to a page that showed less, such as one
    # of another request in another tab.
    known = facts.consent.scope if facts.consent else frozenset()
    new = needed - known - facts.declined
    spared = facts.policy.first_party and not asked
    return AskConsent(new, needed & known) if new and not spared else None


NOT_A_MEMBER = "The user is not in a group that may use this client."
_ANOTHER_USER = (
    "Another user is signed in than the request names, and prompt=none forbids a sign-in."
)
_TOO_OLD = "The sign-in is older than max_age allows, and prompt=none forbids a new one."
_CHECKS: tuple[tuple[Callable[[Facts], Step | None], str, str], ...] = (
    (_another_user, "login_required", _ANOTHER_USER),
    (_login_again, "login_required", _must("sign in again")),
    (_too_old, "login_required", _TOO_OLD),
    (_select_account, "account_selection_required", _must("choose an account")),
    (_not_a_member, "access_denied", NOT_A_MEMBER),
    (_second_factor, "interaction_required", _must("show a second factor")),
    (_consent, "consent_required", _must("consent")),
)


def decide(
    request: AuthorizationRequest,
    session: Session | None,
    consent: Consent | None,
    policy: Policy,
    now: datetime,
) -> Decision:
    """The next step for a valid request, or its answer."""
    silent = "none" in request.prompt
    if request.denied:
        return Refuse("access_denied", "The user refused.")
    if session is None:
        if request.turned_away and policy.groups:
            return Refuse("access_denied", NOT_A_MEMBER)
        return Refuse("login_required", _must("sign in")) if silent else SignIn(Why.NOBODY)
    facts = Facts(request, session, consent, policy, now)
    for check, error, description in _CHECKS:
        step = check(facts)
        if step and (silent or (request.turned_away and isinstance(step, Forbid))):
            if isinstance(step, SecondFactor) and step.enrol:
                description = _must("set up a second factor")
            return Refuse(error, description)
        if step:
            return step
    if not reached_acr(request, session.acr):
        # OIDC Core §5.5.1.1: an essential acr that can't be reached is a failed authentication.
        return Refuse("access_denied", "The required acr was not reached.")
    withheld = facts.declined & request.scopes_to_consent
    if not frozenset(scopes.split(request.scope)) - withheld:
        return Refuse("access_denied", "The user withholds every scope that was asked for.")
    return Answer(withheld, facts.uses)


def granted(request: AuthorizationRequest, acr: str) -> dict[str, Any]:
    """What a grant records of a request that is answered with a code, by field."""
    return {
        "scope": request.scope,
        "claims": request.claims.stored(),
        "acr": reached_acr(request, acr) if request.asks_for_acr else None,
    }


def asks_about_factors(request: AuthorizationRequest, policy: Policy) -> bool:
    """Whether `Session.has_factor` can matter."""
    return policy.require_mfa or request.needs_two_factors or request.prefers_two_factors


def reached_acr(request: AuthorizationRequest, acr: str) -> str | None:
    """The `acr` to state for a session's, or `None` when an essential one was not reached.

    A session with two factors also satisfies one.
    """
    wanted = request.claims.acr_values if request.claims.acr_essential else ()
    if not wanted or acr in wanted:
        return acr
    return ONE_FACTOR if acr == TWO_FACTORS and ONE_FACTOR in wanted else None
