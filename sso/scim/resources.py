"""Users and groups as SCIM resources, and their conversion to and from services."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from pydantic import Field, ValidationInfo, field_validator, model_validator
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
    InvalidValueException,
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

from sso.audit import Actor
from sso.flow import moments
from sso.flow.profile_claims import CLAIMS
from sso.models import Group as StoredGroup
from sso.models import User as StoredUser
from sso.process.program import COMMAND
from sso.services import accounts, checks, credentials
from sso.store import named_groups, users

MOST_RESULTS = 200  # on a page


_WHOLE = (Context.RESOURCE_CREATION_REQUEST, Context.RESOURCE_REPLACEMENT_REQUEST)


class Email(ComplexAttribute):
    """An email (RFC 7643 §4.1.2); any domain is allowed (see `config.email_addresses`)."""

    value: Annotated[str | None, Required.true] = None
    display: str | None = None
    type: str | None = Field(None, examples=["work", "home", "other"])
    primary: bool | None = None


class User(Resource[AnyExtension]):
    """A user (RFC 7643 §4.1), without attributes that are not used here."""

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
        """Use the user name as the email address if it is one and `emails` is missing."""
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
    """The extension for enterprises (RFC 7643 §4.3)."""

    __schema__ = URN("urn:ietf:params:scim:schemas:extension:enterprise:2.0:User")

    employee_number: str | None = None
    cost_center: str | None = None
    organization: str | None = None
    division: str | None = None
    department: str | None = None
    manager: Manager | None = None


_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d", re.ASCII)


class Account(Extension):
    """What this server keeps of an account besides the schemas of RFC 7643."""

    __schema__ = URN("urn:sso:params:scim:schemas:extension:account:2.0:User")

    ends_at: datetime | None = Field(None, description="When the account ends.")

    @field_validator("ends_at", mode="before")
    @classmethod
    def _date_time(cls, value: Any) -> Any:
        """Refuse what is no dateTime (RFC 7643 §2.3.5): the model would take dates and numbers."""
        if value is None or isinstance(value, datetime):
            return value
        if isinstance(value, str) and _DATE_TIME.match(value):
            return value
        raise ValueError("endsAt is no date and time such as 2027-01-31T18:00:00Z")


class Member(ComplexAttribute):
    value: Annotated[str | None, Mutability.immutable, CaseExact.true] = None
    ref: Annotated[
        Reference["User"] | None,  # type: ignore[type-arg]  # a resource's name, as text
        Mutability.immutable,
    ] = Field(None, serialization_alias="$ref", validation_alias="$ref")
    type: Annotated[str | None, Mutability.immutable] = Field(None, examples=["User"])


class Group(Resource[Any]):
    """A group (RFC 7643 §4.2); only users are members."""

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
# For requests of Entra ID and Okta. Unknown attributes are dropped, as many clients expect.
POLICY = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)
PROVIDER = ScimProvider(
    models=[User, EnterpriseUser, Account, Group],
    resource_types=[
        ResourceType.from_resource(User[EnterpriseUser | Account]),
        ResourceType.from_resource(Group),
    ],
    config=CONFIG,
    policy=POLICY,
)
UserResource: Any = User[EnterpriseUser | Account]


EditsOf = Callable[[Mapping[str, Any]], Mapping[str, Any]]
_ENTERPRISE, _ACCOUNT = str(EnterpriseUser.__schema__), str(Account.__schema__)
# The claims of attributes; those of `name` are apart.
_PATHS = {claim.scim: claim.name for claim in CLAIMS.values() if claim.scim}
_NAME_CLAIMS = {path[5:]: name for path, name in _PATHS.items() if path.startswith("name.")}
_CLAIMS = {path: name for path, name in _PATHS.items() if "." not in path}
# Stored unchanged; nothing here depends on them.
_KEPT = (
    *("displayName", "name", "title", "userType", "preferredLanguage"),
    *("addresses", "phoneNumbers", "emails"),
)
# Values of directories that are not valid claims are stored, but not sent to applications.
_LOOSE = tuple(claim.scim for claim in CLAIMS.values() if claim.is_loose)
MOST_KEPT = 32 * 1024  # characters of JSON
MOST_VALUES = 20  # of an attribute such as emails
_LONGEST_ID = 255


def _no_edits(_: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


def meta(row: StoredUser | StoredGroup) -> dict[str, Any]:
    """Return the attribute `meta` (RFC 7643 §3.1)."""
    return {
        "resourceType": type(row).__name__,
        "created": row.created_at,
        "lastModified": row.created_at if row.version == 1 else row.updated_at,
        "version": f'W/"{row.version}"',
    }


def user_resource(
    user: StoredUser,
    groups: Mapping[str, StoredGroup],
    model: Any = UserResource,
    more: Mapping[str, Any] = {},
) -> Any:
    """Return the resource of a user; see `user_document`. `model`: the class of the resource."""
    return model.model_validate(user_document(user, groups, more))


def user_document(
    user: StoredUser,
    groups: Mapping[str, StoredGroup],
    more: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Return the attributes of a user; `groups` are the rows of the user's groups.

    `more`: what the resource has besides the schemas of this module.
    """
    document = {"userName": user.user_name or user.email, **(user.scim_attributes or {})}
    claims = user.claims
    name = {**document.pop("name", {})}
    for attribute, claim in _NAME_CLAIMS.items():
        name[attribute] = claims.get(claim)
    if user.user_name is None:
        document["displayName"] = name["formatted"] = user.name
    elif user.name != _name({**document, "name": name}):  # changed by someone else
        document["displayName"] = user.name
    phone = claims.get("phone_number")
    if phone and "phoneNumbers" not in document:
        document["phoneNumbers"] = [{"value": phone, "type": "work", "primary": True}]
    return {
        "active": not user.is_disabled,
        **document,
        **more,
        **({_ACCOUNT: {"endsAt": moments.text_of(user.ends_at)}} if user.ends_at else {}),
        "id": str(user.id),
        "externalId": user.external_id,
        "meta": meta(user),
        "name": {key: value for key, value in name.items() if value},
        **{name: claims.get(claim) or document.get(name) for name, claim in _CLAIMS.items()},
        "emails": _emails(document.get("emails"), user.email),
        "groups": [
            {"value": str(row.id), "$ref": f"Groups/{row.id}", "display": row.name,
             "type": "direct"}
            for group in user.groups
            if (row := groups.get(group))
        ],
    }  # fmt: skip


def create_user(
    actor: Actor, resource: Any, *, is_invited: bool, edits_of: EditsOf = _no_edits
) -> StoredUser:
    """Create a user from a resource. Raises `Invalid` and `InvalidValueException`.

    `edits_of`: returns the values of attributes that a document has.
    """
    document = resource.model_dump()
    attributes = {name: value for name, value in edits_of(document).items() if value is not None}
    return accounts.create(
        actor,
        email=_email(document),
        name=_name(document),
        password=resource.password,
        email_verified=True,  # by the directory that the client speaks for
        disabled=resource.active is False,
        claims={name: value for name, value in _claims(document).items() if value is not None},
        attributes=attributes,
        ends_at=_end(document),
        is_invited=is_invited and resource.password is None and resource.active is not False,
        provisioned=_provisioned(document),
    )


def update_user(
    actor: Actor,
    user: StoredUser,
    before: Any,
    resource: Any,
    *,
    is_patch: bool,
    says_active: bool = True,
    edits_of: EditsOf = _no_edits,
) -> StoredUser:
    """Update a user, who is locked, from a resource.

    If a client removes `active`, the user keeps the state, and `active` is hidden until it is set
    again. `says_active`: a client names it; otherwise it is as before, or another end decides
    whether the user is active. Raises `Invalid` and `InvalidValueException`.
    """
    old_document, document = before.model_dump(), resource.model_dump()
    end = None if _end(document) == _end(old_document) else _end(document)
    is_same = end is not None or resource.active == before.active
    is_left = resource.active is None or (is_same and not says_active)
    email = _email(document)
    is_renamed = document["userName"] != old_document["userName"] and "@" in document["userName"]
    if is_renamed and email == user.email == old_document["userName"].casefold():
        email = document["userName"]  # its own email address all along
    has_moved = email.casefold() != user.email
    changed, _ = accounts.update(
        actor,
        user.id,
        email=email if has_moved else None,
        email_verified=True if has_moved else None,
        name=_name(document, old_document),
        disabled=None if is_left else not resource.active,
        claims={
            name: value
            for name, value in _claims(document).items()
            if user.claims.get(name) != value
        },
        attributes={
            name: value
            for name, value in edits_of(document).items()
            if user.attributes.get(name) != value
        },
        ends_at=end,
        provisioned=_provisioned(document, hides_active=is_patch and resource.active is None),
    )
    if resource.password is not None:
        credentials.set_password(actor, changed, resource.password)
    return changed


def keep_end(current: Any, replacement: Any) -> None:
    """Keep the end of an account in a PUT that does not name the schema: most directories know no
    ends, and must not remove those that operators set.
    """
    named = {str(urn).casefold() for urn in replacement.schemas or ()}
    if Account.__name__ not in replacement.model_fields_set and _ACCOUNT.casefold() not in named:
        replacement[Account] = current[Account]


def find_user(text: str, *, is_locked: bool) -> StoredUser | None:
    """Return the user with this id."""
    try:
        user_id = UUID(text)
    except ValueError:
        return None
    return users.lock_any(user_id) if is_locked else users.find(user_id)


def _emails(emails: Sequence[dict[str, Any]] | None, email: str) -> list[dict[str, Any]]:
    """Return the emails that a client stored, with the user's current one as the main one."""
    if not emails:
        return [{"value": email, "type": "work", "primary": True}]
    main = _main(emails)
    return [{**entry, "value": email} if entry is main else entry for entry in emails]


def _main(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the primary value, or else the one for work, or else the first."""
    primary = [value for value in values if value.get("primary")]
    return [*primary, *(value for value in values if value.get("type") == "work"), *values][0]


def _email(document: Mapping[str, Any]) -> str:
    emails = [entry for entry in document.get("emails", ()) if entry.get("value")]
    if not emails:
        raise InvalidValueException(detail="there is no email address; send one in emails")
    return str(_main(emails)["value"])


def _end(document: Mapping[str, Any]) -> str:
    """Return when the account ends; "" if never."""
    return str((document.get(_ACCOUNT) or {}).get("endsAt") or "")


def _name(document: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> str:
    """Return the display name: the one of SCIM's several names that changed, or else the first."""
    names = list(_names(document))
    if old is not None:
        for new, before in zip(names[:-1], _names(old), strict=False):
            if new and new != before:
                return new
    return next(name for name in names if name)


def _names(document: Mapping[str, Any]) -> Iterable[str]:
    name = document.get("name", {})
    yield document.get("displayName", "")
    yield name.get("formatted", "")
    yield " ".join(name[part] for part in ("givenName", "familyName") if name.get(part))
    yield document["userName"]


def _claims(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return all claims that SCIM has an attribute for; `None` if it is missing."""
    name = document.get("name", {})
    phones = [entry for entry in document.get("phoneNumbers", ()) if entry.get("value")]
    return {
        **{
            claim: document.get(name)
            for name, claim in _CLAIMS.items()
            if not _is_unfit(document, name)
        },
        **{_CLAIMS[name]: None for name in _LOOSE if _is_unfit(document, name)},
        **{claim: name.get(attribute) for attribute, claim in _NAME_CLAIMS.items()},
        "phone_number": _main(phones)["value"] if phones else None,
    }


def _is_unfit(document: Mapping[str, Any], name: str) -> bool:
    """Return whether an attribute is stored, although it is not a valid claim."""
    text = document.get(name)
    if name not in _LOOSE or text is None or not (text.isprintable() and len(text) <= _LONGEST_ID):
        return False
    return bool(checks.claim_errors({_CLAIMS[name]: text}))


def _provisioned(document: Mapping[str, Any], *, hides_active: bool = False) -> dict[str, Any]:
    """Return the fields of `accounts.PROVISIONED`. Raises `InvalidValueException`."""
    attributes = {name: document[name] for name in _KEPT if name in document}
    attributes |= {name: document[name] for name in _LOOSE if _is_unfit(document, name)}
    attributes |= {name: document[name] for name in (_ENTERPRISE,) if name in document}
    if hides_active:
        attributes["active"] = None
    user_name, external_id = document["userName"].strip(), document.get("externalId")
    if user_name != user_name.casefold():
        attributes["userName"] = user_name
    if any(len(value) > MOST_VALUES for value in attributes.values() if isinstance(value, list)):
        raise InvalidValueException(detail=f"an attribute has more than {MOST_VALUES} values")
    if len(json.dumps(attributes)) > MOST_KEPT:
        raise InvalidValueException(detail="the attributes are too long")
    _check_text("userName", user_name, 200)
    _check_text("externalId", external_id, _LONGEST_ID)
    return {
        "user_name": user_name.casefold(),
        "external_id": external_id,
        "scim_attributes": attributes or None,
    }


def _check_text(label: str, text: str | None, longest: int) -> None:
    if text is not None and not (text.isprintable() and 0 < len(text) <= longest):
        detail = f"{label} is no printable text of at most {longest} characters"
        raise InvalidValueException(detail=detail)


def group_resource(group: StoredGroup, members: Iterable[UUID] | None) -> Resource[Any]:
    """Return the resource of a group; see `group_document`."""
    return Group.model_validate(group_document(group, members))


def group_document(group: StoredGroup, members: Iterable[UUID] | None) -> dict[str, Any]:
    """Return the attributes of a group; without its members if they are `None`."""
    group_members = None
    if members is not None:
        group_members = [
            {"value": str(member_uuid), "$ref": f"Users/{member_uuid}", "type": "User"}
            for member_uuid in members
        ]
    return {
        "id": str(group.id),
        "externalId": group.external_id,
        "displayName": group.name,
        "members": group_members,
        "meta": meta(group),
    }


def find_group(text: str) -> StoredGroup | None:
    """Return the group with this id."""
    group_id = uuid(text)
    return named_groups.find(group_id) if group_id else None


def lock_group(text: str, people: Collection[UUID], *, with_members: bool) -> StoredGroup | None:
    """Lock the group with this id, and these people, or all members; return the group."""
    if (group_id := uuid(text)) is None:
        return None
    return named_groups.lock(group_id, people, with_members=with_members)


def uuid(text: str) -> UUID | None:
    """Parse an id; return `None` if it is invalid."""
    try:
        return UUID(text)
    except ValueError:
        return None


def member_id(text: Any) -> UUID:
    """Return the id of the user in a member. Raises `InvalidValueException`."""
    try:
        return UUID(text)
    except (AttributeError, TypeError, ValueError):
        raise InvalidValueException(detail="a member is not the id of a user") from None


def member_ids(members: Iterable[Any]) -> set[UUID]:
    return {member_id(member.value) for member in members}


def group_external_id(resource: Any) -> str | None:
    """Return the external id of a group. Raises `InvalidValueException`."""
    text: str | None = resource.external_id
    if text is not None and not (text.isprintable() and 0 < len(text) <= _LONGEST_ID):
        detail = f"externalId is no printable text of at most {_LONGEST_ID} characters"
        raise InvalidValueException(detail=detail)
    return text
