"""The schema of the attributes that the operator lets provisioning programs read or change."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, Union

from pydantic import Field
from scim2_models import URN, Extension, Mutability, ResourceType, ScimProvider

from sso.flow import attributes
from sso.flow.attributes import Definition, Party
from sso.scim import resources

SCHEMA = URN("urn:sso:params:scim:schemas:extension:attributes:2.0:User")
_TYPES: Mapping[str, Any] = {
    attributes.NUMBER: float,
    attributes.BOOLEAN: bool,
    attributes.LIST: list[str],
}  # the others are texts


class _Field(NamedTuple):
    """An attribute of the schema."""

    name: str
    type: str
    title: str
    is_writable: bool


class Schema(NamedTuple):
    """The models of users and groups for the present definitions."""

    provider: ScimProvider
    user: Any
    fields: tuple[_Field, ...]

    def document_of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of a user's document that has the values of attributes."""
        present = {
            field.name: float(value) if field.type == attributes.NUMBER else value
            for field in self.fields
            if (value := values.get(field.name)) is not None
        }
        return {str(SCHEMA): present} if present else {}

    def edits_of(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all attributes that programs change; `None` if one is missing."""
        present = document.get(str(SCHEMA)) or {}
        return {
            field.name: _stored(present.get(field.name))
            for field in self.fields
            if field.is_writable
        }


def _stored(value: Any) -> Any:
    """Return a whole number as one: SCIM has decimals."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def schema_of(definitions: Iterable[Definition]) -> Schema:
    """Return the models with the attributes that programs may read or change."""
    return _made(
        tuple(
            _Field(
                entry.name,
                entry.type,
                entry.title or entry.name,
                attributes.may_write(entry, Party.SCIM),
            )
            for entry in definitions
            if attributes.may_read(entry, Party.SCIM)
        )
    )


@lru_cache(maxsize=8)
def _made(fields: tuple[_Field, ...]) -> Schema:
    if not fields:
        return Schema(resources.PROVIDER, resources.UserResource, ())
    # No field has the name of a member of the class.
    members = {f"attribute_{field.name}": field for field in fields}
    extension: Any = type(
        "Attributes",
        (Extension,),
        {
            "__module__": __name__,
            "__doc__": "The attributes that the operator of the server has defined.",
            "__schema__": SCHEMA,
            "__annotations__": {name: _annotation(field) for name, field in members.items()},
            **{
                name: Field(
                    None,
                    serialization_alias=field.name,
                    validation_alias=field.name,
                    description=field.title,
                )
                for name, field in members.items()
            },
        },
    )
    user: Any = resources.User[
        Union[resources.EnterpriseUser, resources.Account, extension]  # noqa: UP007 (made at run time)
    ]
    provider = ScimProvider(
        models=[
            resources.User,
            resources.EnterpriseUser,
            resources.Account,
            extension,
            resources.Group,
        ],
        resource_types=[
            ResourceType.from_resource(user),
            ResourceType.from_resource(resources.Group),
        ],
        config=resources.CONFIG,
        policy=resources.POLICY,
    )
    return Schema(provider, user, fields)


def _annotation(field: _Field) -> Any:
    kind = _TYPES.get(field.type, str) | None
    return kind if field.is_writable else Annotated[kind, Mutability.read_only]
