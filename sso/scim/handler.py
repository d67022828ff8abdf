"""Answers a SCIM request: bounds, what Entra ID and Okta send, and the library's handler."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pydantic_core import from_json, to_json
from scim2_models import (
    Context,
    ForbiddenException,
    InvalidPathException,
    InvalidSyntaxException,
    InvalidValueException,
    PatchOp,
    PatchOperation,
    Resource,
    ResourceType,
    ResponseParameters,
    SCIMException,
    SearchRequest,
    UniquenessException,
)
from scim2_models.path import CompareOperator, Comparison
from scim2_server.conditions import Conditions
from scim2_server.handler import ScimHandler
from scim2_server.requests import ScimRequest
from scim2_server.responses import ScimResponse
from scim2_server.service import ScimService

from sso.models import ApiToken
from sso.scim import filters, groups
from sso.scim.resources import PROVIDER
from sso.scim.storage import Storage
from sso.services import staff
from sso.services.checks import RegistrationError

MOST_OPERATIONS = 1000  # of a PATCH that only adds and removes members
MOST_EDITS = 100  # of any other
MOST_ATTRIBUTES = 50  # asked for by name
LONGEST_PATH = 500
_MANAGER = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:user:manager"


class Service(ScimService):
    """The library's protocol, with bounds on what is parsed."""

    def read_search(
        self, resource_types: list[ResourceType], payload: Any
    ) -> "tuple[SearchRequest[Any], Any]":
        given = payload if isinstance(payload, dict) else {}
        for name, value in given.items():
            if name.casefold() == "filter" and len(str(value)) > filters.LONGEST:
                raise filters.too_long()
            if name.casefold() in ("attributes", "excludedattributes"):
                _check_attributes(value)
        return super().read_search(resource_types, payload)

    def read_response_parameters(
        self, resource_type: ResourceType, query: Mapping[str, str]
    ) -> Any:
        for name in ("attributes", "excludedAttributes"):
            _check_attributes(query.get(name, ""))
        return super().read_response_parameters(resource_type, query)

    def read_patch(
        self, resource_type: ResourceType, body: bytes, content_type: str | None
    ) -> "PatchOp[Any]":
        self.ensure_json(content_type)
        is_group = resource_type.name == "Group"
        return super().read_patch(resource_type, _tidy(body, is_group), content_type)

    def patch_response(
        self,
        base_url: str,
        resource: Resource[Any],
        response_parameters: "ResponseParameters[Any]",
    ) -> ScimResponse:
        """With a user, which clients expect; without the members of a group."""
        if self.get_resource_type_of(resource).name == "Group":
            return super().patch_response(base_url, resource, response_parameters)
        return self.resource_response(
            self.publish(base_url, resource),
            Context.RESOURCE_REPLACEMENT_RESPONSE,
            response_parameters,
        )


SERVICE = Service(PROVIDER)


class Handler(ScimHandler):
    """The library's operations on one request."""

    storage: Storage

    def patch_resource(
        self,
        resource_type: ResourceType,
        resource_id: str,
        patch_op: "PatchOp[Any]",
        conditions: Conditions,
    ) -> Resource[Any]:
        """A group of thousands is not read to add one member, nor to rename it."""
        self.storage.is_patch = True
        operations = patch_op.operations or []
        if resource_type.name == "Group":
            edit = _membership(operations)
            self.storage.has_members = edit is None and any(map(_names_members, operations))
            if edit is not None:
                self.storage.joins_or_leaves = {*edit[0], *edit[1]}
                current = self.storage.get(resource_type, resource_id)
                self.service.check_preconditions(current, "PATCH", conditions)
                return self.storage.change_members(resource_id, *edit)
        if len(operations) > MOST_EDITS:
            raise InvalidValueException(detail=f"there are more than {MOST_EDITS} operations")
        return super().patch_resource(resource_type, resource_id, patch_op, conditions)


def answer(request: ScimRequest, token: ApiToken, *, is_writing: bool) -> ScimResponse:
    """The answer to an authenticated request; nothing is committed. Raises `SCIMException`."""
    storage = Storage(token, is_writing=is_writing)
    storage.named = groups.ids_in(request.body) if is_writing else ()
    try:
        return Handler(SERVICE, storage).handle(request)
    except staff.NotAllowed as error:
        raise ForbiddenException(detail=str(error)) from None
    except RegistrationError as error:
        if "there is already a" in str(error):
            raise UniquenessException(detail=str(error)) from None
        raise InvalidValueException(detail=str(error)) from None


def refusal(error: SCIMException) -> ScimResponse:
    """The answer to an error."""
    return SERVICE.error_response(error)


def _check_attributes(value: Any) -> None:
    names = value.split(",") if isinstance(value, str) else value
    if isinstance(names, list) and len(names) > MOST_ATTRIBUTES:
        raise InvalidValueException(detail=f"there are more than {MOST_ATTRIBUTES} attributes")


def _tidy(body: bytes, is_group: bool) -> bytes:
    """The operations as the library takes them. Raises `SCIMException`.

    Without a path, Entra ID sends paths with filters as the names of values; and it sends the id of
    a manager as a text. Okta sends the id of a group among its values.
    """
    try:
        payload = from_json(body)
    except ValueError as error:
        raise InvalidSyntaxException(detail=str(error)[:200]) from None
    given = payload.get("Operations") if isinstance(payload, dict) else None
    if not isinstance(given, list):
        return body  # the library says what is wrong
    if len(given) > (MOST_OPERATIONS if is_group else MOST_EDITS):
        raise InvalidValueException(detail="there are too many operations")
    operations: list[Any] = []
    for one in given:
        operations += _split(one) if isinstance(one, dict) else [one]
    for one in operations:
        if isinstance(one, dict) and len(str(one.get("path") or "")) > LONGEST_PATH:
            raise InvalidPathException(
                path="", detail=f"a path is longer than {LONGEST_PATH} characters"
            )
    return to_json({**payload, "Operations": operations})


def _split(operation: dict[str, Any]) -> list[dict[str, Any]]:
    path, value = operation.get("path"), operation.get("value")
    if isinstance(path, str):
        if path.casefold() == _MANAGER and isinstance(value, str):
            return [{**operation, "value": {"value": value}}]
        return [operation]
    if path is not None or not isinstance(value, dict):
        return [operation]
    if any(len(name) > LONGEST_PATH for name in value) or len(value) > MOST_EDITS:
        raise InvalidValueException(detail="the value has too many attributes, or too long names")
    plain = {name: one for name, one in value.items() if "[" not in name and name != "id"}
    found = [{**operation, "value": plain}] if plain else []
    return found + [
        {**operation, "path": name, "value": one} for name, one in value.items() if "[" in name
    ]


def _names_members(operation: "PatchOperation[Any]") -> bool:
    """Whether an operation on a group is about who is in it."""
    if operation.path:
        return "members" in str(operation.path).casefold()
    value = operation.value
    return not isinstance(value, dict) or any("members" in name.casefold() for name in value)


def _membership(operations: "list[PatchOperation[Any]]") -> tuple[set[UUID], set[UUID]] | None:
    """Who comes and who goes, if that is all that the operations say."""
    added: set[UUID] = set()
    removed: set[UUID] = set()
    for one in operations:
        ids = _named(one)
        if ids is None:
            return None
        if one.op == PatchOperation.Op.add:
            added, removed = added | ids, removed - ids
        else:
            added, removed = added - ids, removed | ids
    return added, removed


def _named(operation: "PatchOperation[Any]") -> set[UUID] | None:
    """The members that an operation adds or removes by their ids; `None` if it does other things.

    Raises `InvalidValueException`.
    """
    path, value = operation.path, operation.value
    if operation.op == PatchOperation.Op.replace_ or path is None:
        return None
    if str(path).rpartition(":")[2].casefold() == "members" and isinstance(value, list):
        return {_id_of(one) for one in value}
    selected = path.value_filter
    if (
        operation.op == PatchOperation.Op.remove
        and value is None
        and str(path).casefold().startswith("members[")
        and str(path).endswith("]")
        and isinstance(selected, Comparison)
        and selected.op == CompareOperator.eq
        and str(selected.attr_path).casefold() == "value"
    ):
        return {_id_of({"value": selected.value})}
    return None


def _id_of(member: Any) -> UUID:
    return groups.member_id(member.get("value") if isinstance(member, dict) else None)
