"""The handler of SCIM requests: the library's, with limits, adapted to Entra ID and Okta."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from scim2_models import (
    Context,
    ForbiddenException,
    InvalidValueException,
    PatchOperation,
    Resource,
    ResourceType,
    ResponseParameters,
    ScimProvider,
    SearchRequest,
    UniquenessException,
)
from scim2_models import (
    SCIMException as SCIMException,
)
from scim2_server.conditions import Conditions
from scim2_server.handler import ScimHandler
from scim2_server.requests import ScimRequest
from scim2_server.responses import ScimResponse
from scim2_server.routing import Operation
from scim2_server.service import ScimService
from scim2_server.storage import SearchPage

from sso.errors import NotAllowed
from sso.scim import extension, filters, patches, resources
from sso.scim.backend import Storage
from sso.scim.listing import Projection
from sso.scim.patches import GroupPatch, MemberEdit
from sso.scim.resources import PROVIDER
from sso.services import attributes
from sso.services.api_tokens import Program
from sso.services.checks import Invalid, Rule

MOST_ATTRIBUTES = 50  # requested by name
MEMBERS_A_REQUEST = 20  # members that count as one additional request


class Service(ScimService):
    """The library's protocol, with limits on the input."""

    def read_search(
        self, resource_types: list[ResourceType], payload: Any
    ) -> "tuple[SearchRequest[Any], Any]":
        members = payload if isinstance(payload, dict) else {}
        for name, value in members.items():
            if name.casefold() == "filter" and len(str(value)) > filters.LONGEST:
                raise filters.too_long()
            if name.casefold() in ("attributes", "excludedattributes"):
                _check_attributes(value)
        return super().read_search(resource_types, payload)

    def search_response(
        self,
        base_url: str,
        resource_types: list[ResourceType],
        page: SearchPage,
        search_request: "SearchRequest[Any]",
    ) -> ScimResponse:
        """Answer with a page of documents (`Storage.search`), made JSON without the library."""
        (resource_type,) = resource_types
        projection = Projection(self.get_model(resource_type), search_request)
        endpoint = str(resource_type.endpoint).strip("/")
        documents: Any = page.resources
        listed = [projection.published(base_url, endpoint, document) for document in documents]
        response = super().search_response(
            base_url, resource_types, replace(page, resources=[]), search_request
        )
        body = {**(response.body or {}), "itemsPerPage": len(listed)}
        return replace(response, body=body | {"Resources": listed} if listed else body)

    def read_response_parameters(
        self, resource_type: ResourceType, query: Mapping[str, str]
    ) -> Any:
        for name in ("attributes", "excludedAttributes"):
            _check_attributes(query.get(name, ""))
        return super().read_response_parameters(resource_type, query)

    def read_patch(self, resource_type: ResourceType, body: bytes, content_type: str | None) -> Any:
        """Return a `GroupPatch`, or for a user the library's `PatchOp`."""
        self.ensure_json(content_type)
        is_group = _is_group(resource_type)
        parsed = patches.parsed(body, is_group=is_group)
        patch = super().read_patch(resource_type, parsed.body, content_type)
        if parsed.is_empty:
            patch = patch.model_copy(update={"operations": []})
        patches.check_paths(patch)
        return GroupPatch(parsed.members, patch) if is_group else patch

    def patch_response(
        self,
        base_url: str,
        resource: Resource[Any],
        response_parameters: "ResponseParameters[Any]",
    ) -> ScimResponse:
        """Answer with the user, which clients expect; leave out the members of a group."""
        if _is_group(self.get_resource_type_of(resource)):
            return super().patch_response(base_url, resource, response_parameters)
        return self.resource_response(
            self.publish(base_url, resource),
            Context.RESOURCE_REPLACEMENT_RESPONSE,
            response_parameters,
        )


SERVICE = Service(PROVIDER)


@lru_cache(maxsize=8)
def _service(provider: ScimProvider) -> Service:
    return SERVICE if provider is PROVIDER else Service(provider)


class Handler(ScimHandler):
    """The library's operations on one request."""

    storage: Storage

    def replace(self, request: ScimRequest) -> ScimResponse:
        """Replace a resource, but read the body before locking (RFC 7644 §3.5.1)."""
        with self.service.provider:
            target = self.service.route(request, Operation.replace)
            resource_type = self.service.resource_type_at(str(target.endpoint))
            parameters = self.service.read_response_parameters(resource_type, request.query)
            replacement: Any = self.service.read_replacement(
                resource_type, request.body, request.header("Content-Type")
            )
            if _is_group(resource_type):
                self._take_members(replacement)
            with self.storage.operation():
                resource = self.replace_resource(
                    resource_type,
                    self.storage.get(resource_type, str(target.resource_id)),
                    replacement,
                    self.service.read_conditions(request),
                )
            return self.service.replacement_response(request.base_url, resource, parameters)

    def replace_resource(
        self,
        resource_type: ResourceType,
        current: Resource[Any],
        replacement: Resource[Any],
        conditions: Conditions,
    ) -> Resource[Any]:
        """Replace a resource; always store a group, as the library does not compare members."""
        if not _is_group(resource_type):
            resources.keep_end(current, replacement)
            return super().replace_resource(resource_type, current, replacement, conditions)
        version = current.meta.version if current.meta else None
        replaced = self.service.apply_replacement(current, replacement, conditions)
        new = replaced or current
        stored: Resource[Any] = self.storage.update(resource_type, new, expected_version=version)
        return stored

    def patch_resource(
        self,
        resource_type: ResourceType,
        resource_id: str,
        patch_op: Any,
        conditions: Conditions,
    ) -> Resource[Any]:
        """Patch a resource, without reading all members of a group."""
        self.storage.is_patch = True
        if not isinstance(patch_op, GroupPatch):
            self.storage.says_active = any(map(_says_active, patch_op.operations or ()))
            return super().patch_resource(resource_type, resource_id, patch_op, conditions)
        other_operations = patch_op.other_operations
        self.storage.edit = patch_op.members
        self.storage.keeps_name = not any(map(_renames, other_operations.operations or ()))
        current: Resource[Any] = self.storage.get(resource_type, resource_id)
        version = current.meta.version if current.meta else None
        self.service.check_preconditions(current, "PATCH", conditions)
        is_changed = bool(other_operations.operations) and other_operations.patch(current)
        if not is_changed and patch_op.members is None:
            return current
        stored: Resource[Any] = self.storage.update(
            resource_type, current, expected_version=version
        )
        return stored

    def _take_members(self, replacement: Any) -> None:
        """Move the members of a PUT to the storage; without them, they stay (RFC 7644 §3.5.1)."""
        if replacement.members is not None:
            self.storage.edit = MemberEdit(whole=resources.member_ids(replacement.members))
            replacement.members = None


def weight(request: ScimRequest) -> int:
    """Return how many extra requests this one counts as. Raises `SCIMException` if too large."""
    is_group = request.path.casefold().startswith("/groups")
    return patches.check_size(request.body, is_group=is_group) // MEMBERS_A_REQUEST


def answer(
    request: ScimRequest, program: Program, finish: Callable[[], None] | None
) -> ScimResponse:
    """Answer an authenticated request. Raises `SCIMException`.

    `finish`: commits a request that writes, before its answer is serialized, so that no lock is
    held meanwhile.
    """
    schema = extension.schema_of(attributes.definitions().values())
    storage = Storage(program, finish, schema)
    try:
        return Handler(_service(schema.provider), storage).handle(request)
    except NotAllowed as error:
        raise ForbiddenException(detail=str(error)) from None
    except Invalid as error:
        if Rule.ALREADY_EXISTS in error.rules:
            raise UniquenessException(detail=str(error)) from None
        raise InvalidValueException(detail=str(error)) from None


def refusal(error: SCIMException) -> ScimResponse:
    """Return the response to an error."""
    return SERVICE.error_response(error)


def _check_attributes(value: Any) -> None:
    names = value.split(",") if isinstance(value, str) else value
    if isinstance(names, list) and len(names) > MOST_ATTRIBUTES:
        raise InvalidValueException(detail=f"there are more than {MOST_ATTRIBUTES} attributes")


def _renames(operation: "PatchOperation[Any]") -> bool:
    path = operation.path
    return path is None or str(path).casefold().endswith("displayname")


def _says_active(operation: "PatchOperation[Any]") -> bool:
    names = [str(operation.path or ""), *_names(operation.value)]
    return any(name.casefold().rpartition(":")[2] == "active" for name in names)


def _names(value: Any) -> Iterator[str]:
    """Yield the names in a value, also those within the URN of a schema."""
    for name, member in value.items() if isinstance(value, dict) else ():
        yield name
        yield from _names(member)


def _is_group(resource_type: ResourceType) -> bool:
    return resource_type.name == "Group"
