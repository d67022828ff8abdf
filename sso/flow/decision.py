"""What happens to a valid authorization request: the one decision of the authorization endpoint.

The checks are an ordered table. Each names the step that would satisfy it and its error under
`prompt=none`, where no page may be shown (OIDC Core §3.1.2.1, §3.1.2.6). A decision is made from
`Facts`: the session, the consent, the client's policy.

`ENDS` says what an operator's action ends, as admin pages show it beforehand. The causes are rows
of docs/explanation/revocation.md, which tests/endpoints/test_what_ends_what.py proves.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from sso.flow import resources, scopes
from sso.flow.refusals import Cause, describe
from sso.flow.request import ONE_FACTOR, TWO_FACTORS, AuthorizationRequest
from sso.i18n import N_

# A sign-in or consent that a request demanded counts for this long.
FRESH = timedelta(minutes=10)
_LASTING = frozenset({"offline_access"})


@dataclass(frozen=True)
class Session:
    """Who is signed in on this browser, and how.

    `subject`: what the client knows the user by.
    `has_factor`: whether the user has set up a second factor.
    `terms_version`: the version of the terms of service that the user has accepted.
    `decisions_used_until`: sign-ins and consents up to this moment have satisfied a request that
    demanded one. They satisfy no other request.
    """

    user_id: str
    auth_time: datetime
    acr: str
    groups: frozenset[str] = frozenset()
    has_factor: bool = False
    decisions_used_until: datetime | None = None
    terms_version: str | None = None
    subject: str | None = None


class ConsentRecord(Protocol):
    """A consent as it is stored."""

    @property
    def scope(self) -> str: ...
    @property
    def declined(self) -> str: ...
    @property
    def updated_at(self) -> datetime: ...


@dataclass(frozen=True)
class Consent:
    """What the user allowed and declined for this client, and when last."""

    scope: frozenset[str]
    given_at: datetime
    declined: frozenset[str] = frozenset()

    @classmethod
    def of(cls, record: "ConsentRecord | None") -> "Consent | None":
        """Return the consent that is recorded."""
        if record is None:
            return None
        return cls(
            frozenset(record.scope.split()), record.updated_at, frozenset(record.declined.split())
        )


@dataclass(frozen=True)
class Policy:
    """The client's registration, as far as it matters here.

    `ask_each_time`: it may be another program that asks in its name. `api_groups`: the groups that
    may use an API, by its identifier, for those that not everybody may use. `terms_version`: the
    version of the server's terms of service that users must have accepted, if any.
    """

    first_party: bool = False
    groups: frozenset[str] = frozenset()
    require_mfa: bool = False
    ask_each_time: bool = False
    api_groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    terms_version: str | None = None


@dataclass(frozen=True)
class Facts:
    """Everything that a check may look at."""

    request: AuthorizationRequest
    session: Session
    consent: Consent | None
    policy: Policy
    now: datetime

    def _is_for_this(self, moment: datetime | None) -> bool:
        """Return whether something happened since the client asked, recently, and was not used yet.

        The caller checks that its form was submitted for this request. Otherwise someone with the
        URL of an old pending request could get it answered by a step of another one.
        """
        used = self.session.decisions_used_until
        return (
            moment is not None
            and self.request.resumed
            and moment > self.request.asked_at
            and (used is None or moment > used)
            and self.now - moment <= FRESH
        )

    @property
    def signed_in_for_this(self) -> bool:
        auth_time = self.session.auth_time
        return self.request.signed_in_at == auth_time and self._is_for_this(auth_time)

    @property
    def selected_for_this(self) -> bool:
        request = self.request
        return request.selected == self.session.user_id and self._is_for_this(request.selected_at)

    @property
    def consented_for_this(self) -> bool:
        given_at = self.consent.given_at if self.consent else None
        return self.request.consented_at == given_at and self._is_for_this(given_at)

    @property
    def consent_is_demanded(self) -> bool:
        """Whether an earlier consent is not enough."""
        return "consent" in self.request.prompt or self.policy.ask_each_time

    @property
    def declined(self) -> frozenset[str]:
        return self.consent.declined if self.consent else frozenset()

    @property
    def max_age_is_exceeded(self) -> bool:
        max_age = self.request.max_age
        if max_age is None:
            return False
        age = self.now - self.session.auth_time
        return max_age == 0 or age > timedelta(seconds=max_age)

    @property
    def uses(self) -> datetime | None:
        """The latest of the moments that satisfy what was demanded for this very request."""
        prompt, auth_time = self.request.prompt, self.session.auth_time
        moments = []
        # Also within max_age: later, when it is exceeded, this sign-in must not count once more.
        demands_sign_in = "login" in prompt or self.request.max_age is not None
        if demands_sign_in and self.signed_in_for_this:
            moments.append(auth_time)
        if "select_account" in prompt:
            chosen_at = self.request.selected_at if self.selected_for_this else None
            moments.append(chosen_at or auth_time)
        if self.consent_is_demanded and self.consent:
            moments.append(self.consent.given_at)
        return max(moments, default=None)


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
class AcceptTerms:
    """Ask the user to accept this version of the terms of service."""

    version: str


@dataclass(frozen=True)
class AskConsent:
    """Show the consent page for these scopes; `known` are allowed already."""

    scopes: frozenset[str]
    known: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Forbid:
    """Show that this user may not use this client, or the API with this identifier."""

    api: str | None = None


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


Step = SignIn | SecondFactor | AcceptTerms | AskConsent | Forbid
Decision = Step | Refuse | Answer


def _another_user(facts: Facts) -> Step | None:
    session, request = facts.session, facts.request
    hinted, claimed = request.hinted_subject, request.claims.subjects
    names = {session.user_id, session.subject}  # hints may be older than the client's attribute
    is_another = hinted not in {None, *names} or (claimed and not claimed & names)
    return SignIn(Why.SOMEBODY_ELSE) if is_another else None


def _login_again(facts: Facts) -> Step | None:
    is_demanded = "login" in facts.request.prompt
    return SignIn(Why.AGAIN) if is_demanded and not facts.signed_in_for_this else None


def _too_old(facts: Facts) -> Step | None:
    exceeded = facts.max_age_is_exceeded and not facts.signed_in_for_this
    return SignIn(Why.AGAIN) if exceeded else None


def _select_account(facts: Facts) -> Step | None:
    is_demanded = "select_account" in facts.request.prompt
    chosen = facts.selected_for_this or facts.signed_in_for_this
    return SignIn(Why.SELECT) if is_demanded and not chosen else None


def _not_a_member(facts: Facts) -> Step | None:
    groups = facts.policy.groups
    return Forbid() if groups and not groups & facts.session.groups else None


def _not_admitted_to_api(facts: Facts) -> Step | None:
    for api in facts.request.resources:
        groups = facts.policy.api_groups.get(api)
        if groups and not groups & facts.session.groups:
            return Forbid(api)
    return None


def _second_factor(facts: Facts) -> Step | None:
    request, session = facts.request, facts.session
    if session.acr == TWO_FACTORS:
        return None
    if demands_two_factors(request, facts.policy):
        return SecondFactor(enrol=not session.has_factor)
    # OIDC Core §5.5.1.1: a voluntary acr is tried for, and never an error.
    tried = request.prefers_two_factors and session.has_factor and "none" not in request.prompt
    return SecondFactor() if tried else None


def _terms(facts: Facts) -> Step | None:
    version = facts.policy.terms_version
    is_missing = version is not None and facts.session.terms_version != version
    return AcceptTerms(version) if version and is_missing else None


def _consent(facts: Facts) -> Step | None:
    needed = facts.request.scopes_to_consent - _withheld_once(facts.request)
    is_demanded = facts.consent_is_demanded
    if is_demanded and not facts.consented_for_this:
        return AskConsent(needed)
    # Also after prompt=consent: the answer may have been to a page that showed less, such as one
    # of another request in another tab.
    consented = facts.consent.scope if facts.consent else frozenset()
    new = needed - consented - facts.declined
    spared = facts.policy.first_party and not is_demanded
    return AskConsent(new, needed & consented) if new and not spared else None


_CHECKS: tuple[tuple[Callable[[Facts], Step | None], str, Cause], ...] = (
    (_another_user, "login_required", Cause.ANOTHER_USER),
    (_login_again, "login_required", Cause.MUST_SIGN_IN_AGAIN),
    (_too_old, "login_required", Cause.SIGN_IN_TOO_OLD),
    (_select_account, "account_selection_required", Cause.MUST_SELECT_ACCOUNT),
    (_not_a_member, "access_denied", Cause.NOT_A_MEMBER),
    (_not_admitted_to_api, "access_denied", Cause.NOT_A_MEMBER_OF_API),
    (_second_factor, "interaction_required", Cause.MUST_SHOW_FACTOR),
    (_terms, "interaction_required", Cause.MUST_ACCEPT_TERMS),
    (_consent, "consent_required", Cause.MUST_CONSENT),
)
# Of `prompt=none` alone (OIDC Core §3.1.2.6).
SILENT_ERRORS = frozenset(
    {"login_required", "account_selection_required", "interaction_required", "consent_required"}
)


def decide(
    request: AuthorizationRequest,
    session: Session | None,
    consent: Consent | None,
    policy: Policy,
    now: datetime,
) -> Decision:
    """Return the next step for a valid request, or its answer."""
    silent = "none" in request.prompt
    if request.denied:
        return Refuse("access_denied", describe(Cause.DENIED))
    if session is None:
        if request.turned_away and policy.groups:
            return Refuse("access_denied", describe(Cause.NOT_A_MEMBER))
        if request.turned_away and policy.api_groups:
            api = next(iter(policy.api_groups))
            return Refuse("access_denied", describe(Cause.NOT_A_MEMBER_OF_API, resource=api))
        return (
            Refuse("login_required", describe(Cause.MUST_SIGN_IN)) if silent else SignIn(Why.NOBODY)
        )
    facts = Facts(request, session, consent, policy, now)
    for check, error, cause in _CHECKS:
        step = check(facts)
        if step and (silent or (request.turned_away and isinstance(step, Forbid))):
            if isinstance(step, SecondFactor) and step.enrol:
                cause = Cause.MUST_SET_UP_FACTOR
            names = {"resource": step.api} if isinstance(step, Forbid) and step.api else {}
            return Refuse(error, describe(cause, **names))
        if step:
            return step
    if not reached_acr(request, session.acr):
        # OIDC Core §5.5.1.1: an essential acr that can't be reached is a failed authentication.
        return Refuse("access_denied", describe(Cause.ACR_NOT_REACHED))
    withheld = facts.declined & request.scopes_to_consent | _withheld_once(request)
    remaining = frozenset(scopes.split(request.scope)) - withheld
    if not remaining:
        return Refuse("access_denied", describe(Cause.ALL_SCOPES_WITHHELD))
    if not _has_audience(request, remaining):
        withheld_api = request.resources[0]
        return Refuse("access_denied", describe(Cause.API_WITHHELD, resource=withheld_api))
    return Answer(withheld, facts.uses)


def _withheld_once(request: AuthorizationRequest) -> frozenset[str]:
    """Return what a user withholds who allows access for this once."""
    return _LASTING & request.scopes_to_consent if request.once else frozenset()


def _has_audience(request: AuthorizationRequest, names: Collection[str]) -> bool:
    """Return whether the first API of a request is among what is granted.

    Its client expects tokens for this API, and would send it those for another one.
    """
    return not request.resources or any(
        resources.api_of(name) == request.resources[0]
        for name in names
        if resources.is_of_api(name)
    )


def granted(request: AuthorizationRequest, acr: str) -> dict[str, Any]:
    """Return the fields of the grant for a request that is answered with a code."""
    return {
        "scope": request.scope,
        "claims": request.claims.stored(),
        "acr": reached_acr(request, acr) if request.asks_for_acr else None,
    }


def demands_two_factors(request: AuthorizationRequest, policy: Policy) -> bool:
    """Return whether one factor is not enough."""
    return policy.require_mfa or request.needs_two_factors


def asks_about_factors(request: AuthorizationRequest, policy: Policy) -> bool:
    """Return whether `Session.has_factor` can matter."""
    return demands_two_factors(request, policy) or request.prefers_two_factors


def reached_acr(request: AuthorizationRequest, acr: str) -> str | None:
    """Return the `acr` to state for a session's; `None` if an essential one was not reached.

    A session with two factors also satisfies one.
    """
    acr_values = request.claims.acr_values if request.claims.acr_essential else ()
    if not acr_values or acr in acr_values:
        return acr
    return ONE_FACTOR if acr == TWO_FACTORS and ONE_FACTOR in acr_values else None


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
