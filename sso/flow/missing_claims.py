"""Why a client does not get a claim."""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from sso.flow import scopes


class Reason(StrEnum):
    """Why a claim is missing."""

    NOT_REGISTERED = "scope_not_registered"
    NOT_REQUESTED = "scope_not_requested"
    WITHHELD = "scope_withheld"
    LEFT_OUT_BY_PROFILE = "left_out_by_profile"
    NO_VALUE = "no_value"
    ONLY_AT_USERINFO = "only_at_userinfo"


class Missing(NamedTuple):
    """A claim of a scope that is missing in `id_token`, `userinfo` or both."""

    claim: str
    scope: str
    places: tuple[str, ...]
    reason: Reason


def explain(
    places: Mapping[str, Mapping[str, Any] | None],
    *,
    registered: Collection[str],
    granted: Collection[str],
    withheld: Collection[str],
    is_standard: bool = False,
) -> Iterator[Missing]:
    """Explain each claim that is missing in userinfo or in a token.

    `is_standard`: the client's profile leaves out `scopes.OWN_CLAIMS`.
    """
    for scope in scopes.SCOPES.values():
        for claim in scope.claims:
            missing = tuple(
                place
                for place, claims in places.items()
                if claims is not None and claim not in claims
            )
            if missing == ("id_token",):
                yield Missing(claim, scope.name, missing, Reason.ONLY_AT_USERINFO)
            elif missing:
                reason = _reason(scope.name, registered, granted, withheld)
                if is_standard and claim in scopes.OWN_CLAIMS and reason is Reason.NO_VALUE:
                    reason = Reason.LEFT_OUT_BY_PROFILE
                yield Missing(claim, scope.name, missing, reason)


def _reason(
    scope: str, registered: Collection[str], granted: Collection[str], withheld: Collection[str]
) -> Reason:
    if scope not in registered:
        return Reason.NOT_REGISTERED
    if scope in withheld:
        return Reason.WITHHELD
    return Reason.NO_VALUE if scope in granted else Reason.NOT_REQUESTED
