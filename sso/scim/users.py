"""Users as SCIM resources, and what a resource says as the arguments of a service."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from scim2_models import InvalidValueException

from sso.audit import Actor
from sso.models import Group, User
from sso.scim.resources import UserResource
from sso.services import accounts, checks, credentials
from sso.store import users

_CORE = str(UserResource.__schema__)
# Claims that stand for an attribute (OIDC Core §5.1).
_NAME_CLAIMS = {"givenName": "given_name", "familyName": "family_name", "middleName": "middle_name"}
_CLAIMS = {
    "nickName": "nickname",
    "profileUrl": "profile",
    "locale": "locale",
    "timezone": "zoneinfo",
}
# Kept as they are; nothing here depends on them.
_KEPT = (
    *("displayName", "name", "title", "userType", "preferredLanguage"),
    *("addresses", "phoneNumbers", "emails"),
)
# Directories have values that are no valid claims: they are stored, but applications get no claim.
_LOOSE = ("locale", "timezone")
MOST_KEPT = 32 * 1024  # characters of JSON
MOST_VALUES = 20  # of an attribute such as emails
_LONGEST_ID = 255


def meta(row: User | Group) -> dict[str, Any]:
    """The attribute of that name (RFC 7643 §3.1)."""
    return {
        "resourceType": type(row).__name__,
        "created": row.created_at,
        "lastModified": row.created_at if row.version == 1 else row.updated_at,
        "version": f'W/"{row.version}"',
    }


def resource(user: User, groups: Mapping[str, Group]) -> Any:
    """A user as SCIM shows one; `groups` are the rows of the user's groups."""
    kept = {"userName": user.user_name or user.email, **(user.scim_attributes or {})}
    claims = user.claims
    name = {**kept.pop("name", {})}
    for attribute, claim in _NAME_CLAIMS.items():
        name[attribute] = claims.get(claim)
    if user.user_name is None:
        kept["displayName"] = name["formatted"] = user.name
    elif user.name != _name({**kept, "name": name}):  # changed by someone else
        kept["displayName"] = user.name
    phone = claims.get("phone_number")
    if phone and "phoneNumbers" not in kept:
        kept["phoneNumbers"] = [{"value": phone, "type": "work", "primary": True}]
    return UserResource.model_validate(
        {
            "active": user.disabled_at is None,
            **kept,
            "id": str(user.id),
            "externalId": user.external_id,
            "meta": meta(user),
            "name": {key: value for key, value in name.items() if value},
            **{name: claims.get(claim) or kept.get(name) for name, claim in _CLAIMS.items()},
            "emails": _emails(kept.get("emails"), user.email),
            "groups": [
                {"value": str(found.id), "$ref": f"Groups/{found.id}", "display": found.name,
                 "type": "direct"}
                for group in user.groups
                if (found := groups.get(group))
            ],
        }
    )  # fmt: skip


def create(actor: Actor, wanted: Any, *, is_invited: bool) -> User:
    """Raises `RegistrationError` and `InvalidValueException`."""
    said = wanted.model_dump()
    return accounts.create(
        actor,
        email=_email(said),
        name=_name(said),
        password=wanted.password,
        email_verified=True,  # by the directory that the client speaks for
        disabled=wanted.active is False,
        claims={name: value for name, value in _claims(said).items() if value is not None},
        is_invited=is_invited and wanted.password is None and wanted.active is not False,
        provisioned=_provisioned(said),
    )


def update(actor: Actor, user: User, before: Any, wanted: Any, *, is_patch: bool) -> User:
    """Give a user, who is locked, what a resource says.

    A client that removes `active` is shown none until it sets it again; what was, stays. Raises
    `RegistrationError` and `InvalidValueException`.
    """
    old, said = before.model_dump(), wanted.model_dump()
    email = _email(said)
    is_renamed = said["userName"] != old["userName"] and "@" in said["userName"]
    if is_renamed and email == user.email == old["userName"].casefold():
        email = said["userName"]  # its own email address all along
    has_moved = email.casefold() != user.email
    changed, _ = accounts.update(
        actor,
        user.id,
        email=email if has_moved else None,
        email_verified=True if has_moved else None,
        name=_name(said, old),
        disabled=None if wanted.active is None else not wanted.active,
        claims={
            name: value for name, value in _claims(said).items() if user.claims.get(name) != value
        },
        provisioned=_provisioned(said, hides_active=is_patch and wanted.active is None),
    )
    if wanted.password is not None:
        credentials.set_password(actor, changed, wanted.password)
    return changed


def find(text: str, *, is_locked: bool) -> User | None:
    """The user with this id."""
    try:
        user_id = UUID(text)
    except ValueError:
        return None
    return users.lock_any(user_id) if is_locked else users.find(user_id)


def _emails(kept: Sequence[dict[str, Any]] | None, email: str) -> list[dict[str, Any]]:
    """The addresses that a client keeps; ours is the one that the user has now."""
    if not kept:
        return [{"value": email, "type": "work", "primary": True}]
    ours = _main(kept)
    return [{**one, "value": email} if one is ours else one for one in kept]


def _main(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The primary one; else that for work; else the first."""
    primary = [one for one in values if one.get("primary")]
    return [*primary, *(one for one in values if one.get("type") == "work"), *values][0]


def _email(said: Mapping[str, Any]) -> str:
    emails = [one for one in said.get("emails", ()) if one.get("value")]
    if not emails:
        raise InvalidValueException(detail="there is no email address; send one in emails")
    return str(_main(emails)["value"])


def _name(said: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> str:
    """The name that is shown: what has changed of the several that SCIM has; else the first."""
    names = list(_names(said))
    if old is not None:
        for new, before in zip(names[:-1], _names(old), strict=False):
            if new and new != before:
                return new
    return next(name for name in names if name)


def _names(said: Mapping[str, Any]) -> Iterable[str]:
    name = said.get("name", {})
    yield said.get("displayName", "")
    yield name.get("formatted", "")
    yield " ".join(name[part] for part in ("givenName", "familyName") if name.get(part))
    yield said["userName"]


def _claims(said: Mapping[str, Any]) -> dict[str, Any]:
    """All claims that SCIM has an attribute for; `None` where it says nothing."""
    name = said.get("name", {})
    phones = [one for one in said.get("phoneNumbers", ()) if one.get("value")]
    return {
        **{claim: said.get(name) for name, claim in _CLAIMS.items() if not _is_unfit(said, name)},
        **{_CLAIMS[name]: None for name in _LOOSE if _is_unfit(said, name)},
        **{claim: name.get(attribute) for attribute, claim in _NAME_CLAIMS.items()},
        "phone_number": _main(phones)["value"] if phones else None,
    }


def _is_unfit(said: Mapping[str, Any], name: str) -> bool:
    """Return whether an attribute is stored, although it is not a valid claim."""
    text = said.get(name)
    if name not in _LOOSE or text is None or not (text.isprintable() and len(text) <= _LONGEST_ID):
        return False
    return bool(checks.claim_errors({_CLAIMS[name]: text}))


def _provisioned(said: Mapping[str, Any], *, hides_active: bool = False) -> dict[str, Any]:
    """See `accounts.PROVISIONED`. Raises `InvalidValueException`."""
    kept = {name: said[name] for name in _KEPT if name in said}
    kept |= {name: said[name] for name in _LOOSE if _is_unfit(said, name)}
    kept |= {name: value for name, value in said.items() if ":" in name and name != _CORE}
    if hides_active:
        kept["active"] = None
    user_name, external_id = said["userName"].strip(), said.get("externalId")
    if user_name != user_name.casefold():
        kept["userName"] = user_name
    if any(len(value) > MOST_VALUES for value in kept.values() if isinstance(value, list)):
        raise InvalidValueException(detail=f"an attribute has more than {MOST_VALUES} values")
    if len(json.dumps(kept)) > MOST_KEPT:
        raise InvalidValueException(detail="the attributes are too long")
    _check_text("userName", user_name, 200)
    _check_text("externalId", external_id, _LONGEST_ID)
    return {
        "user_name": user_name.casefold(),
        "external_id": external_id,
        "scim_attributes": kept or None,
    }


def _check_text(label: str, text: str | None, longest: int) -> None:
    if text is not None and not (text.isprintable() and 0 < len(text) <= longest):
        detail = f"{label} is no printable text of at most {longest} characters"
        raise InvalidValueException(detail=detail)
