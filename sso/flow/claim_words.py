"""The names of standard claims in words, for the pages (OIDC Core §5.1)."""

from sso.i18n import N_

CLAIM_WORDS = {
    "given_name": N_("Given name"),
    "family_name": N_("Family name"),
    "middle_name": N_("Middle name"),
    "nickname": N_("Nickname"),
    "preferred_username": N_("User name"),
    "profile": N_("Profile page"),
    "picture": N_("Picture"),
    "website": N_("Website"),
    "gender": N_("Gender"),
    "birthdate": N_("Birthdate"),
    "zoneinfo": N_("Time zone"),
    "locale": N_("Language"),
    "address": N_("Address"),
    "phone_number": N_("Telephone number"),
    "phone_number_verified": N_("Telephone number verified"),
}
