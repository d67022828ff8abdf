"""The schemas that a receiver publishes (RFC 7643 §7): what of a person it takes."""

import json
from collections.abc import Mapping
from typing import Any

from sso.flow import scim_people

# Receivers that require these get the whole name, if a person has no such part.
_NAMES = ("familyName", "givenName")

Attributes = Mapping[str, Mapping[str, Any]]  # definitions by folded name


class Schemas:
    """Definitions of attributes, by the folded URN of their schema."""

    def __init__(self, by_urn: Mapping[str, Attributes]) -> None:
        self._by_urn = by_urn

    @classmethod
    def parsed(cls, content: bytes) -> "Schemas | None":
        """Read the answer of `/Schemas`; return `None` if it does not describe users."""
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            return None
        resources = answer.get("Resources") if isinstance(answer, dict) else answer
        by_urn = {
            str(row.get("id")).lower(): _by_name(row.get("attributes"))
            for row in (resources if isinstance(resources, list) else ())
            if isinstance(row, dict)
        }
        return cls(by_urn) if by_urn.get(scim_people.USER_SCHEMA.lower()) else None

    def fitted(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return a user without what the receiver does not define.

        If it requires a part of the name that the user does not have, that is the whole name.
        """
        urn = scim_people.ENTERPRISE_SCHEMA
        extension = self._by_urn.get(urn.lower(), {})
        core = {**self._by_urn[scim_people.USER_SCHEMA.lower()], "schemas": {}, "id": {}}
        fitted = _defined({name: fields[name] for name in fields if name != urn}, core)
        if urn in fields and (values := _defined(fields[urn], extension)):
            fitted[urn] = values
        elif urn in fields.get("schemas", ()):
            fitted["schemas"] = [schema for schema in fields["schemas"] if schema != urn]
        parts = _by_name(core.get("name", {}).get("subAttributes"))
        whole = fields.get("name", {}).get("formatted")
        for name in _NAMES:
            if whole and parts.get(name.lower(), {}).get("required") is True:
                fitted.setdefault("name", {}).setdefault(name, whole)
        return fitted


def _by_name(definitions: Any) -> Attributes:
    rows = definitions if isinstance(definitions, list) else ()
    return {str(row.get("name")).lower(): row for row in rows if isinstance(row, dict)}


def _defined(values: Mapping[str, Any], attributes: Attributes) -> dict[str, Any]:
    """Return the values that are defined, with what is defined of their parts."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        if (definition := attributes.get(name.lower())) is None:
            continue
        parts = _by_name(definition.get("subAttributes"))
        if not parts:
            kept[name] = value
        elif isinstance(value, list):
            kept[name] = [_defined(item, parts) for item in value]
        else:
            kept[name] = _defined(value, parts)
    return kept
