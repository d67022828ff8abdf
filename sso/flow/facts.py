"""The facts that a decision is made from: the session, the consent, the client's policy."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from sso.flow.request import AuthorizationRequest

# A sign-in or consent that a request demanded counts for this long.
FRESH = timedelta(minutes=10)


@dataclass(frozen=True)
class Session:
    """Who is signed in on this browser, and how.

    `has_factor`: whether the user has set up a second factor.
    `decisions_used_until`: sign-ins and consents up to this moment have satisfied a request that
    demanded one. They satisfy no other request.
    """

    user_id: str
    auth_time: datetime
    acr: str
    groups: frozenset[str] = frozenset()
    has_factor: bool = False
    decisions_used_until: datetime | None = None


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
        """What is recorded of a consent."""
        if record is None:
            return None
        return cls(
            frozenset(record.scope.split()), record.updated_at, frozenset(record.declined.split())
        )


@dataclass(frozen=True)
class Policy:
    """The client's registration, as far as it matters here.

    `ask_each_time`: it may be another program that asks in its name.
    """

    first_party: bool = False
    groups: frozenset[str] = frozenset()
    require_mfa: bool = False
    ask_each_time: bool = False


@dataclass(frozen=True)
class Facts:
    """Everything that a check may look at."""

    request: AuthorizationRequest
    session: Session
    consent: Consent | None
    policy: Policy
    now: datetime

    def _is_for_this(self, moment: datetime | None) -> bool:
        """Whether something happened since the client asked, recently, and satisfied nothing yet.

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
