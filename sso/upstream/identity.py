"""What an upstream identity provider says of a person."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

FEDERATED = "fed"  # in `amr`: another server has seen the proof


class UpstreamUnavailable(Exception):
    """A provider cannot be asked, or answers nonsense; `str()` says why, for the log.

    `is_private`: its address is private, which the settings do not allow.
    """

    def __init__(self, reason: str, *, is_private: bool = False) -> None:
        super().__init__(reason)
        self.is_private = is_private


class UpstreamRefused(Exception):
    """A provider did not let the person in, or its answer is not to be trusted.

    `str()` says why, for the log. `error`: the code that the provider answered (RFC 6749 §5.2).
    """

    def __init__(self, reason: str, error: str | None = None) -> None:
        super().__init__(reason)
        self.error = error


@dataclass(frozen=True)
class UpstreamIdentity:
    """A person who has proven to a provider who they are.

    `issuer` and `subject` identify them; nothing else does. `email_verified`: the provider says
    so; whether that counts is the operator's decision. `groups`: as the provider names them;
    `None` if it says nothing about groups. `attributes`: what it says for attributes of people, by
    their names here, as it says it; `None` if it says nothing about them. `has_two_factors`: only
    where the operator trusts it. `auth_time`: when they proved themselves there; `None` if it does
    not say. `sid`: the provider's session (OIDC Back-Channel Logout §2.4). The tokens are what a
    recheck asks with.
    """

    issuer: str
    subject: str
    email: str | None = None
    email_verified: bool = False
    name: str = ""
    groups: frozenset[str] | None = None
    attributes: Mapping[str, Any] | None = field(default=None, repr=False)
    amr: str = FEDERATED
    has_two_factors: bool = False
    auth_time: datetime | None = None
    sid: str | None = None
    id_token: str | None = field(default=None, repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    access_token: str | None = field(default=None, repr=False)
