"""The table of the claims that operators set for users: one entry for each (OIDC Core §5.1).

Scopes, checks, commands, pages, imports and SCIM read it. A new claim is an entry here, and, if its
format is new, what checks and shows that format. `tests/flow/test_profile_claims.py` compares the
surfaces with this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from sso.i18n import N_


class Format(Enum):
    """What a value is; it decides how surfaces ask for it, check it and show it."""

    TEXT = "a text"
    WEB_URL = "an http or https URL"
    BIRTHDATE = "YYYY-MM-DD, 0000-MM-DD or YYYY"
    TIME_ZONE = "a name of the time zone database"
    LANGUAGE = "a language tag"
    ADDRESS = "an object of texts (OIDC Core §5.1.1)"
    SWITCH = "true or false"


@dataclass(frozen=True)
class ProfileClaim:
    """A claim. `scope`: the scope that has it; `scim`: the path of the attribute (RFC 7643 §4.1).

    `is_loose`: SCIM stores a value that is no valid claim, but applications do not get it.
    """

    name: str
    scope: str
    title: str
    format: Format = Format.TEXT
    scim: str = ""
    is_loose: bool = False


_TABLE = (
    ProfileClaim("given_name", "profile", N_("Given name"), scim="name.givenName"),
    ProfileClaim("family_name", "profile", N_("Family name"), scim="name.familyName"),
    ProfileClaim("middle_name", "profile", N_("Middle name"), scim="name.middleName"),
    ProfileClaim("nickname", "profile", N_("Nickname"), scim="nickName"),
    ProfileClaim("preferred_username", "profile", N_("User name")),
    ProfileClaim("profile", "profile", N_("Profile page"), Format.WEB_URL, scim="profileUrl"),
    ProfileClaim("picture", "profile", N_("Picture"), Format.WEB_URL),
    ProfileClaim("website", "profile", N_("Website"), Format.WEB_URL),
    ProfileClaim("gender", "profile", N_("Gender")),
    ProfileClaim("birthdate", "profile", N_("Birthdate"), Format.BIRTHDATE),
    ProfileClaim(
        "zoneinfo", "profile", N_("Time zone"), Format.TIME_ZONE, scim="timezone", is_loose=True
    ),
    ProfileClaim(
        "locale", "profile", N_("Language"), Format.LANGUAGE, scim="locale", is_loose=True
    ),
    ProfileClaim("address", "address", N_("Address"), Format.ADDRESS),
    ProfileClaim("phone_number", "phone", N_("Telephone number")),
    ProfileClaim("phone_number_verified", "phone", N_("Telephone number verified"), Format.SWITCH),
)

CLAIMS: Mapping[str, ProfileClaim] = {claim.name: claim for claim in _TABLE}
# Whose value is a text.
TEXT_CLAIMS = tuple(
    claim.name for claim in _TABLE if claim.format not in (Format.ADDRESS, Format.SWITCH)
)


def of_scope(scope: str) -> tuple[str, ...]:
    """Return the names of a scope's claims that operators set."""
    return tuple(claim.name for claim in _TABLE if claim.scope == scope)


def title_of(name: str) -> str:
    """Return the name that people see, untranslated; of an unknown claim, the claim itself."""
    return CLAIMS[name].title if name in CLAIMS else name
