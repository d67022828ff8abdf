"""The `claims` parameter (OIDC Core §5.5)."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from sso.flow import scopes


class InvalidClaims(ValueError):
    """The parameter is not a claims request; `str()` is the description for the integrator."""


@dataclass(frozen=True)
class ClaimsRequest:
    """The requested claims: names for userinfo and the identity token, and the special values."""

    userinfo: tuple[str, ...] = ()
    id_token: tuple[str, ...] = ()
    subjects: frozenset[str] = field(default=frozenset())
    acr_asked: bool = False
    acr_values: tuple[str, ...] = ()
    acr_essential: bool = False

    def stored(self) -> dict[str, list[str]]:
        """What a grant remembers."""
        both = {"userinfo": list(self.userinfo), "id_token": list(self.id_token)}
        return {place: names for place, names in both.items() if names}

    def without(self, withheld: frozenset[str]) -> "ClaimsRequest":
        """The same without the claims of scopes that the user withholds."""
        gone = set(scopes.claims_of(withheld))
        return replace(
            self,
            userinfo=tuple(name for name in self.userinfo if name not in gone),
            id_token=tuple(name for name in self.id_token if name not in gone),
        )

    def scopes_needed(self) -> tuple[str, ...]:
        """The scopes whose text on the consent page covers these claims."""
        asked = set(self.userinfo) | set(self.id_token)
        return tuple(
            scope.name
            for scope in scopes.SCOPES.values()
            if scope.name != "openid" and asked & set(scope.claims)
        )


def parse(text: str | None, registered_scope: str) -> ClaimsRequest:
    """Read the parameter; claims beyond the client's registered scope are dropped.

    Unknown members are ignored, as §5.5 demands. Raises `InvalidClaims`.
    """
    if not text:
        return ClaimsRequest()
    try:
        asked = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidClaims("The parameter 'claims' is not JSON.") from None
    if not isinstance(asked, dict):
        raise InvalidClaims("The parameter 'claims' is not a JSON object.")
    places = {place: _place(asked, place) for place in ("userinfo", "id_token")}
    allowed = set(scopes.claims_of(scopes.split(registered_scope))) - {"sub"}
    acr = places["id_token"].get("acr")
    subjects: frozenset[str] = frozenset()
    for members in places.values():
        if isinstance(members.get("sub"), dict):
            subjects |= frozenset(_values(members["sub"]))
    return ClaimsRequest(
        userinfo=tuple(name for name in places["userinfo"] if name in allowed),
        id_token=tuple(name for name in places["id_token"] if name in allowed),
        subjects=subjects,
        acr_asked="acr" in places["id_token"],
        acr_values=tuple(_values(acr)) if isinstance(acr, dict) else (),
        acr_essential=isinstance(acr, dict) and acr.get("essential") is True,
    )


def _place(asked: dict[str, Any], place: str) -> dict[str, Any]:
    members = asked.get(place)
    if members is None:
        return {}
    if not isinstance(members, dict):
        raise InvalidClaims(f"The member '{place}' of 'claims' is not a JSON object.")
    for member in members.values():
        if member is not None and not isinstance(member, dict):
            raise InvalidClaims("A claim in 'claims' is neither null nor a JSON object.")
    return members


def _values(member: dict[str, Any]) -> list[str]:
    listed = member.get("values")
    found = [member.get("value"), *(listed if isinstance(listed, list) else [])]
    return [value for value in found if isinstance(value, str)]
