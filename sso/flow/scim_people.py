"""People as SCIM resources for an application that keeps accounts of its own (RFC 7643 §4.1).

An entry of a registration is `NAME=SOURCE`: an attribute of SCIM, and a source as own claims have
it, which is `attribute:NAME` or `constant:TEXT`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from sso.flow import attributes, own_claims
from sso.i18n.message import Message

GROUP_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:Group"
USER_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:User"
ENTERPRISE_SCHEMA = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
# Attributes that entries may set, and where each one stands.
_PATHS: Mapping[str, tuple[str, ...]] = {
    **{
        name: (name,)
        for name in (
            *("userName", "displayName", "nickName", "title", "userType", "profileUrl"),
            *("preferredLanguage", "locale", "timezone"),
        )
    },
    **{
        f"name.{part}": ("name", part)
        for part in ("givenName", "familyName", "middleName", "formatted")
    },
    **{
        name: (ENTERPRISE_SCHEMA, name)
        for name in ("employeeNumber", "costCenter", "organization", "division", "department")
    },
}
NAMES = tuple(_PATHS)
# Where the claims of a person stand.
_CLAIMS: Mapping[str, tuple[str, ...]] = {
    "given_name": ("name", "givenName"),
    "family_name": ("name", "familyName"),
    "middle_name": ("name", "middleName"),
    "nickname": ("nickName",),
    "profile": ("profileUrl",),
    "locale": ("locale",),
    "zoneinfo": ("timezone",),
}
_SOURCES = ("attribute", "constant")
_ROOM = 32 * 1024  # bytes


class Person(own_claims.Person, Protocol):
    """The part of a user that is sent."""

    @property
    def id(self) -> UUID: ...
    @property
    def email(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def user_name(self) -> str | None: ...
    @property
    def claims(self) -> dict[str, Any]: ...


def resource(person: Person, entries: Sequence[str] = ()) -> dict[str, Any]:
    """Return an active person as a SCIM resource. `externalId` is the `sub` of tokens."""
    fields: dict[str, Any] = {
        "schemas": [USER_SCHEMA],
        "externalId": str(person.id),
        "userName": person.user_name or person.email,
        "name": {"formatted": person.name},
        "displayName": person.name,
        "emails": [{"value": person.email, "type": "work", "primary": True}],
        "active": True,
    }
    for claim, path in _CLAIMS.items():
        if isinstance(value := person.claims.get(claim), str):
            _put(fields, path, value)
    if isinstance(number := person.claims.get("phone_number"), str):
        fields["phoneNumbers"] = [{"value": number, "type": "work"}]
    mapped = own_claims.of(entries, person, own_claims.ASSERTION, room=_ROOM)
    for name, value in mapped.items():
        _put(fields, _PATHS[name], attributes.text_of(value))
    if ENTERPRISE_SCHEMA in fields:
        fields["schemas"].append(ENTERPRISE_SCHEMA)
    return fields


def group_resource(group_id: UUID, name: str) -> dict[str, Any]:
    """Return a group as a SCIM resource, without its members."""
    return {"schemas": [GROUP_SCHEMA], "externalId": str(group_id), "displayName": name}


def _put(fields: dict[str, Any], path: tuple[str, ...], value: str) -> None:
    for name in path[:-1]:
        fields = fields.setdefault(name, {})
    fields[path[-1]] = value


def differences(sent: Mapping[str, Any], answered: Mapping[str, Any]) -> list[str]:
    """Return the names of attributes that differ from what was sent, as far as they are there.

    A receiver may leave attributes out that it does not have, and add others.
    """
    folded = {name.lower(): value for name, value in answered.items()}
    return [
        name.rpartition(":")[2]
        for name, value in sent.items()
        if name != "schemas"
        and folded.get(name.lower()) not in (None, [], {})
        and _differs(value, folded[name.lower()])
    ]


def _differs(sent: Any, answered: Any) -> bool:
    if isinstance(sent, Mapping):
        if not isinstance(answered, Mapping):
            return True
        return bool(differences(sent, answered))
    if isinstance(sent, list):
        if not isinstance(answered, list):
            return True
        values = [item.get("value") for item in answered if isinstance(item, Mapping)]
        return any(item["value"] not in values for item in sent)
    return bool(sent != answered)


def errors(entries: Sequence[str]) -> Iterable[Message]:
    """Yield why these attributes cannot be sent. The caller checks that the sources exist."""
    if len(entries) > own_claims.MOST:
        yield Message("there are more than %(most)d attributes for SCIM", most=own_claims.MOST)
        return
    names = []
    for entry in entries:
        try:
            claim = own_claims.parsed(entry)
        except ValueError:
            claim = None
        if claim is None or len(entry) > own_claims.MAX_ENTRY or claim.places is not None \
                or claim.source not in _SOURCES:  # fmt: skip
            yield Message(
                "the SCIM attribute %(entry)s is refused: it is not NAME=SOURCE with one of the "
                "sources attribute:NAME and constant:TEXT",
                entry=repr(entry[:100]),
            )
        elif claim.name not in _PATHS:
            yield Message(
                "the SCIM attribute %(name)s is none of %(names)s",
                name=repr(claim.name[:100]),
                names=", ".join(_PATHS),
            )
        elif claim.name in names:
            yield Message("the SCIM attribute %(name)s is there twice", name=claim.name)
        elif claim.value is not None and not attributes.is_line(claim.value, own_claims.MAX_ENTRY):
            yield Message("the source of the SCIM attribute %(name)s is refused", name=claim.name)
        else:
            names.append(claim.name)
