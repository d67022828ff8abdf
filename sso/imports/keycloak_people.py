"""People of a Keycloak realm, with the groups that stand for their roles, and their attributes."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from sso.flow import attributes
from sso.flow.profile_claims import CLAIMS
from sso.imports import keycloak_credentials, reading
from sso.imports.files import Advance, Scratch, entries
from sso.imports.formats import KEYCLOAK_PLACES, keycloak_person
from sso.imports.keycloak_credentials import Here
from sso.imports.keycloak_mappers import attribute_name, attributes_read
from sso.imports.keycloak_realm import PROFILE, Realm, Roles, administers_keycloak
from sso.imports.person import SHOWN, Person, flag, mapping, text, texts

SERVICE_ACCOUNT = "service accounts, which come with their clients"
ADMINISTRATORS = "administer Keycloak: give them a group that may administer this server"
_ACTIONS = "required actions"
_PROPERTIES = ("username", "email", "firstName", "lastName")
# The attributes of which Keycloak's default scopes make claims with other names.
_CLAIMS = {"middleName": "middle_name", "phoneNumber": "phone_number"}
_IS_VERIFIED = "phoneNumberVerified"
_ADDRESS = {
    "street": "street_address", "locality": "locality", "region": "region",
    "postal_code": "postal_code", "country": "country", "formatted": "formatted",
}  # fmt: skip

TWINS = "attributes that people may name there, or whose names would be one name here"

Texts = str | list[str]


class AttributeNames:
    """Which attribute there each attribute here comes from, so that no two become one.

    People may have attributes that nobody declared, with names that they chose: where the realm's
    profile or a mapper names one, only that one is taken. Where the profile says that people name
    attributes themselves, no others are: here, one may bear the name of something else.
    """

    def __init__(self, realm: Realm) -> None:
        self._by_name: dict[str, set[str]] = {}
        policies = (profile.get("unmanagedAttributePolicy") for profile in _profiles(realm))
        self._are_others_taken = "ENABLED" not in policies
        profile = (text(entry.get("name")) for entry in _profile(realm))
        for name in (*profile, *attributes_read(realm)):
            if name and name not in _PROPERTIES and name not in CLAIMS:
                self._by_name.setdefault(attribute_name(name), set()).add(name)

    def twins(self) -> dict[str, list[str]]:
        """Return the names here that stand for several there."""
        return {name: sorted(names) for name, names in self._by_name.items() if len(names) > 1}

    def taken(self, values: Mapping[str, Texts]) -> dict[str, Texts]:
        """Return the values by the names here, without those of which it is not clear whose."""
        by_name: dict[str, list[str]] = {}
        for name in values:
            here = attribute_name(name)
            others = (name,) if self._are_others_taken else ()
            if name in self._by_name.get(here, others):
                by_name.setdefault(here, []).append(name)
        return {
            here: values[names[0]] for here, names in by_name.items()
            if len(names) == 1 and len(self._by_name.get(here, ())) < 2
        }  # fmt: skip


def read(
    paths: Sequence[Path],
    roles: Roles,
    source: str,
    advance: Advance,
    counts: Counter[str],
    here: Here,
    names: AttributeNames,
) -> Iterator[Person]:
    """Yield the people in files. Raises `FileProblem`.

    `counts`: what is counted of people who are not yielded, or beside them.
    """
    with closing(Scratch()) as scratch:
        for path in paths:
            for number, (_, entry) in enumerate(entries(path, KEYCLOAK_PLACES, advance), 1):
                content = mapping(entry)
                if content.get("serviceAccountClientId"):
                    counts[SERVICE_ACCOUNT] += 1
                    continue
                counts[ADMINISTRATORS] += administers_keycloak(content)
                person = _person(content, f"user {number}", roles, names)
                keycloak_credentials.take(person, content, here)
                if person.refused is None:
                    person.refused = reading.finished(person, source, scratch)
                person.email = person.email[:SHOWN] if person.refused else person.email
                yield person


def _person(entry: dict[str, Any], where: str, roles: Roles, names: AttributeNames) -> Person:
    person = keycloak_person(entry, where, roles=False)
    person.groups = roles.of_person(entry)
    by_name = names.taken(person.attributes)
    if len(by_name) < len(person.attributes):
        person.lost.append(TWINS)
    person.attributes = by_name
    _take_standard_claims(person, mapping(entry.get("attributes")))
    if username := text(entry.get("username")):
        person.claims["preferred_username"] = username
    if actions := texts(entry.get("requiredActions")):
        person.lost.append(f"{_ACTIONS}: {', '.join(sorted(actions))[:SHOWN]}")
    return person


def _take_standard_claims(person: Person, listed: dict[str, Any]) -> None:
    values = {name: next(iter(texts(value)), "") for name, value in listed.items()}
    for name, claim in _CLAIMS.items():
        if value := values.get(name):
            person.claims[claim] = value
    if values.get(_IS_VERIFIED, "").lower() == "true" and values.get("phoneNumber"):
        person.claims["phone_number_verified"] = True
    if address := {part: value for name, part in _ADDRESS.items() if (value := values.get(name))}:
        person.claims.setdefault("address", address)


def definitions(realm: Realm) -> Iterator[dict[str, Any]]:
    """Yield the definitions of the attributes in the realm's user profile."""
    for entry in _profile(realm):
        name = text(entry.get("name"))
        if name and name not in _PROPERTIES and name not in CLAIMS:
            yield _definition(name, entry)


def _profile(realm: Realm) -> Iterator[dict[str, Any]]:
    """Yield the attributes of the realm's user profile."""
    for profile in _profiles(realm):
        listed = profile.get("attributes")
        yield from map(mapping, listed if isinstance(listed, list) else ())


def _profiles(realm: Realm) -> Iterator[dict[str, Any]]:
    """Yield the realm's user profile."""
    for component in realm.components.get(PROFILE, ()):
        for config in texts_of(component, "kc.user.profile.config"):
            try:
                yield mapping(json.loads(config))
            except (ValueError, RecursionError):
                continue


def texts_of(component: dict[str, Any], name: str) -> list[str]:
    """Return the values of a component's setting, whole."""
    values = mapping(component.get("config")).get(name)
    return [v for v in values if isinstance(v, str)] if isinstance(values, list) else []


def _definition(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    permissions, title = mapping(entry.get("permissions")), text(entry.get("displayName"))
    person, admin = attributes.Party.PERSON, attributes.Party.ADMINISTRATOR
    return {
        "name": attribute_name(name),
        "title": title if "${" not in title else "",
        "type": attributes.LIST if flag(entry.get("multivalued")) else attributes.STRING,
        "readers": [person] if "user" in texts(permissions.get("view")) else [],
        "writers": [admin, *([person] if "user" in texts(permissions.get("edit")) else [])],
    }
