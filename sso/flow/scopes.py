"""The registry of scopes: the claims of each (OIDC Core §5.4) and its text on the consent page.

`groups`, `id` and `emailVerified` are ours.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol
from uuid import UUID

from sso.flow import profile_claims
from sso.i18n import N_


class Profile(Protocol):
    """The part of a user that the claims are made from."""

    @property
    def id(self) -> UUID: ...
    @property
    def name(self) -> str: ...
    @property
    def email(self) -> str: ...
    @property
    def email_verified(self) -> bool: ...
    @property
    def claims(self) -> dict[str, Any]: ...
    @property
    def attributes(self) -> dict[str, Any]: ...
    @property
    def groups(self) -> list[str]: ...
    @property
    def updated_at(self) -> Any: ...


@dataclass(frozen=True)
class Scope:
    """One scope: its claims and its text on the consent page."""

    name: str
    claims: tuple[str, ...]
    title: str


OFFLINE = "offline_access"
SCOPES = {
    scope.name: scope
    for scope in (
        Scope("openid", ("sub", "id"), N_("Confirmation that it is you")),
        Scope(
            "profile",
            ("name", *profile_claims.of_scope("profile"), "updated_at"),
            N_("Your name and profile"),
        ),
        Scope("email", ("email", "email_verified", "emailVerified"), N_("Your email address")),
        Scope("address", profile_claims.of_scope("address"), N_("Your postal address")),
        Scope("phone", profile_claims.of_scope("phone"), N_("Your phone number")),
        Scope("groups", ("groups",), N_("The groups that you belong to")),
        Scope(OFFLINE, (), N_("Access that continues after you sign out")),
    )
}

DEFAULT_SCOPE = "openid profile email"
# Userinfo asks for one of these.
USERINFO_SCOPES = ("openid", "profile", "email")

# `profile_claims` has the claims that operators set; the others are computed from columns.
_COLUMNS: Mapping[str, Callable[[Profile], Any]] = {
    "sub": lambda user: str(user.id),
    "id": lambda user: str(user.id),
    "name": lambda user: user.name,
    "email": lambda user: user.email,
    "email_verified": lambda user: user.email_verified,
    "emailVerified": lambda user: user.email_verified,
    "groups": lambda user: list(user.groups) or None,
    "updated_at": lambda user: int(user.updated_at.timestamp()),
}

# Claims of no standard. Clients with the profile fapi2 only get those that they request by name.
OWN_CLAIMS = frozenset({"id", "emailVerified"})

# Every other scope can be declined on the consent page.
NEEDED = frozenset({"openid"})

ALL_CLAIMS = tuple(dict.fromkeys(claim for scope in SCOPES.values() for claim in scope.claims))


@lru_cache(maxsize=256)
def split(scope: str | None) -> tuple[str, ...]:
    """Return the scopes of a space-separated text, each once, in their order (RFC 6749 §3.3)."""
    return tuple(dict.fromkeys(scope.split(" "))) if scope and scope.strip(" ") else ()


def is_offline(scope: str) -> bool:
    """Return whether a grant of this scope outlives its session (OIDC Core §11)."""
    return OFFLINE in split(scope)


def grantable(requested: str | None, registered: str) -> str:
    """Return the requested scopes that are known and registered; by default all registered ones."""
    allowed = split(registered)
    names = split(requested) if requested else allowed
    return " ".join(name for name in names if name in allowed and name in SCOPES)


def dropped(requested: str | None, granted: str) -> str:
    """Return the requested scopes that cannot be granted."""
    if not requested or requested == granted:
        return ""
    granted_names = split(granted)
    return " ".join(name for name in split(requested) if name not in granted_names)


def claims_of(scopes: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the claims of these scopes."""
    return tuple(claim for name in scopes if name in SCOPES for claim in SCOPES[name].claims)


def values(user: Profile, claims: Iterable[str]) -> dict[str, Any]:
    """Return the values of these claims that the user has."""
    held, by_operator = {}, user.claims
    for claim in claims:
        column = _COLUMNS.get(claim)
        value = column(user) if column else by_operator.get(claim)
        if value is not None:
            held[claim] = value
    return held


def profile(
    user: Profile, scope: str, requested: Iterable[str] = (), *, is_standard: bool = False
) -> dict[str, Any]:
    """Return the user's profile as userinfo shows it, always with `sub`.

    `is_standard`: without `OWN_CLAIMS`, unless they are in `requested`.
    """
    names = _profile_claims(scope, is_standard)
    return values(user, dict.fromkeys((*names, *requested)) if requested else names)


@lru_cache(maxsize=256)
def _profile_claims(scope: str, is_standard: bool) -> tuple[str, ...]:
    names = dict.fromkeys(("sub", "id", *claims_of(split(scope))))
    return tuple(name for name in names if not (is_standard and name in OWN_CLAIMS))
