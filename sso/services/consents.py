"""Consents: what a user allowed an application, refused it, or took back."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sso import audit
from sso.audit import Actor
from sso.audit.events import Event
from sso.services import revocation
from sso.store import grants, users


@audit.acting
def remember(
    actor: Actor, user_id: UUID, client_id: str, allowed: Sequence[str], declined: Sequence[str]
) -> datetime:
    """Remember the scopes that were allowed and declined; returns the moment that is noted."""
    given_at = grants.remember_consent(user_id, client_id, allowed, declined)
    audit.own_event(Event.CONSENT_GIVEN, user_id, client=client_id, scope=" ".join(allowed))
    return given_at


@audit.acting
def deny(actor: Actor, user_id: UUID, client_id: str) -> None:
    """Record that the user refused; nothing is remembered."""
    audit.own_event(Event.CONSENT_DENIED, user_id, client=client_id)


@audit.acting
def withdraw(actor: Actor, user_id: UUID, client_id: str) -> None:
    """Forget what was allowed, and end every grant of the client for this user."""
    users.lock(user_id)  # before the consent, as in `approvals.add`
    grants.withdraw_consent(user_id, client_id)
    revocation.grants_of_user_and_client(user_id, client_id, "consent_withdrawn")
    audit.own_event(Event.CONSENT_WITHDRAWN, user_id, client=client_id)
