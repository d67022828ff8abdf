"""The resources as they are published: what is kept of RFC 7643's user and group."""

from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationInfo, model_validator
from scim2_models import (
    URN,
    Address,
    AuthenticationScheme,
    Bulk,
    CaseExact,
    ChangePassword,
    ComplexAttribute,
    Context,
    ETag,
    Extension,
    External,
    Filter,
    GroupMembership,
    Mutability,
    Patch,
    PhoneNumber,
    Reference,
    Required,
    Resource,
    ResourceType,
    Returned,
    ScimPolicy,
    ScimProvider,
    ServiceProviderConfig,
    Sort,
    Uniqueness,
)
from scim2_models import Group as StandardGroup
from scim2_models import Name as StandardName
from scim2_models import User as StandardUser
from scim2_models.resources.resource import AnyExtension

from sso.process.program import COMMAND

MOST_RESULTS = 200  # on a page


_WHOLE = (Context.RESOURCE_CREATION_REQUEST, Context.RESOURCE_REPLACEMENT_REQUEST)


class Email(ComplexAttribute):
    """Of RFC 7643 §4.1.2; an operator may register any domain (see `config.email_addresses`)."""

    value: Annotated[str | None, Required.true] = None
    display: str | None = None
    type: str | None = Field(None, examples=["work", "home", "other"])
    primary: bool | None = None


class User(Resource[AnyExtension]):
    """RFC 7643 §4.1, without what nothing here has a use for."""

    __schema__ = StandardUser.__schema__

    user_name: Annotated[str | None, Uniqueness.server, Required.true] = None
    name: StandardName | None = None
    display_name: str | None = None
    nick_name: str | None = None
    profile_url: Reference[External] | None = None
    title: str | None = None
    user_type: str | None = None
    preferred_language: str | None = None
    locale: str | None = None
    timezone: str | None = None
    active: bool | None = None
    password: Annotated[str | None, Mutability.write_only, Returned.never, CaseExact.true] = None
    emails: Annotated[list[Email] | None, Required.true] = None
    phone_numbers: list[PhoneNumber] | None = None
    addresses: list[Address] | None = None
    groups: Annotated[
        list[GroupMembership] | None,
        Mutability.read_only,
    ] = None

    Name: ClassVar[type[ComplexAttribute]] = StandardName
    Emails: ClassVar[type[ComplexAttribute]] = Email

    @model_validator(mode="before")
    @classmethod
    def _email_by_user_name(cls, payload: Any, info: ValidationInfo) -> Any:
        """Clients whose user names are email addresses may send nothing else."""
        if not isinstance(payload, dict) or (info.context or {}).get("scim") not in _WHOLE:
            return payload
        names = {key.casefold(): key for key in payload if isinstance(key, str)}
        user_name = payload.get(names.get("username", ""))
        if isinstance(user_name, str) and "@" in user_name:
            emails = names.get("emails", "emails")
            if not payload.get(emails):
                return {**payload, emails: [{"value": user_name, "type": "work", "primary": True}]}
        return payload


class Manager(ComplexAttribute):
    value: Annotated[str | None, CaseExact.true] = None
    display_name: Annotated[str | None, Mutability.read_only] = None


class EnterpriseUser(Extension):
    """RFC 7643 §4.3."""

    __schema__ = URN("urn:ietf:params:scim:schemas:extension:enterprise:2.0:User")

    employee_number: str | None = None
    cost_center: str | None = None
    organization: str | None = None
    division: str | None = None
    department: str | None = None
    manager: Manager | None = None


class Member(ComplexAttribute):
    value: Annotated[str | None, Mutability.immutable, CaseExact.true] = None
    ref: Annotated[
        Reference["User"] | None,  # type: ignore[type-arg]  # a resource's name, as text
        Mutability.immutable,
    ] = Field(None, serialization_alias="$ref", validation_alias="$ref")
    type: Annotated[str | None, Mutability.immutable] = Field(None, examples=["User"])


class Group(Resource[Any]):
    """RFC 7643 §4.2; groups have no groups in them."""

    __schema__ = StandardGroup.__schema__

    display_name: Annotated[str | None, Required.true, Uniqueness.server] = None
    members: list[Member] | None = None

    Members: ClassVar[type[ComplexAttribute]] = Member


CONFIG = ServiceProviderConfig(
    patch=Patch(supported=True),
    bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
    filter=Filter(supported=True, max_results=MOST_RESULTS),
    change_password=ChangePassword(supported=True),
    sort=Sort(supported=False),
    etag=ETag(supported=True),
    authentication_schemes=[
        AuthenticationScheme(
            type=AuthenticationScheme.Type.oauthbearertoken,
            name="API token",
            description=f"A bearer token that an administrator creates: {COMMAND} api-token create",
            spec_uri=Reference[External]("https://www.rfc-editor.org/info/rfc6750"),
            primary=True,
        )
    ],
)
# What Entra ID and Okta send. Attributes that are not kept are dropped, as many clients expect.
POLICY = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)
PROVIDER = ScimProvider(
    models=[User, EnterpriseUser, Group],
    resource_types=[
        ResourceType.from_resource(User[EnterpriseUser]),
        ResourceType.from_resource(Group),
    ],
    config=CONFIG,
    policy=POLICY,
)
UserResource: Any = User[EnterpriseUser]
