"""The library's storage: reads and writes users and groups through the services."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any
from uuid import UUID

from scim2_models import (
    InvalidPathException,
    InvalidValueException,
    NotFoundException,
    NotImplementedException,
    PreconditionFailedException,
    ResourceType,
    ResponseParameters,
    SearchRequest,
    UniquenessException,
)
from scim2_server.storage import ScimStorage, SearchPage

from sso.models import Group, User
from sso.scim import filters, resources
from sso.scim.extension import Schema
from sso.scim.patches import MemberEdit
from sso.services import accounts, api_tokens, attributes, group_editing, roles
from sso.services.api_tokens import Program
from sso.store import groups as memberships
from sso.store import named_groups, scim_resources

MOST_MEMBERS = 5000  # of all groups on a page, or of one group


class Storage(ScimStorage):
    """The storage for one request, with the rights of the program.

    `finish`: commits a request that writes. Such a request locks the rows that it reads, so that
    they cannot change between its checks and its writes.
    """

    def __init__(self, program: Program, finish: Callable[[], None] | None, schema: Schema) -> None:
        self.schema = schema
        self.finish, self.is_writing = finish, finish is not None
        self.actor = api_tokens.actor_of(program, "scim")
        self.invites = api_tokens.allows(program, api_tokens.SCIM_INVITE)
        self.is_patch = False
        self.says_active = True  # whether a PATCH of a user names `active`
        self.edit: MemberEdit | None = None  # the members of a group, in PUT and PATCH
        self.keeps_name = False  # of a group, in PATCH
        self._before: Any = None

    @contextmanager
    def operation(self) -> Iterator[None]:
        attributes.hold(self.is_writing and bool(self.schema.fields))  # before users are locked
        yield
        if self.finish:
            self.finish()

    def get(
        self,
        resource_type: ResourceType,
        resource_id: str,
        *,
        response_parameters: "ResponseParameters[Any] | None" = None,
    ) -> Any:
        if _is_user(resource_type):
            user = self._user(resource_id)
            if self.is_writing:  # the library changes the object that it receives
                self._before = self._resource(user)
            return self._resource(user)
        group = self._group(resource_id)
        if self.is_writing or not _asks_for_members(response_parameters):
            return resources.group_resource(group, None)
        return resources.group_resource(
            group, [member.id for member in memberships.all_members(group.name)]
        )

    def search(
        self,
        resource_types: list[ResourceType],
        search_request: "SearchRequest[Any]",
        *,
        position: Any = None,
    ) -> SearchPage:
        """Return a page of documents, not of resources: see `Service.search_response`."""
        if len(resource_types) != 1:
            raise NotImplementedException(detail="search /Users or /Groups")
        filter_text = str(search_request.filter) if search_request.filter else None
        offset, limit = search_request.start_index_0 or 0, search_request.count or 0
        documents: Any
        if _is_user(resource_types[0]):
            condition = filters.condition(User, filter_text)
            total, people = scim_resources.users_where(condition, offset, limit)
            rows = {group.name: group for group in named_groups.of_names(_all_groups(people))}
            documents = [
                resources.user_document(user, rows, self.schema.document_of(user.attributes))
                for user in people
            ]
            return SearchPage(total, documents)
        condition = filters.condition(Group, filter_text)
        total, groups = scim_resources.groups_where(condition, offset, limit)
        if not _asks_for_members(search_request):
            documents = [resources.group_document(group, None) for group in groups]
            return SearchPage(total, documents)
        listed, members = _with_members(groups)
        documents = [resources.group_document(group, members[group.name]) for group in listed]
        return SearchPage(total, documents)

    def create(self, resource_type: ResourceType, resource: Any) -> Any:
        if _is_user(resource_type):
            self._check_free(resource.user_name or "")
            return self._resource(
                resources.create_user(
                    self.actor, resource, is_invited=self.invites, edits_of=self.schema.edits_of
                )
            )
        self._check_group(resource.display_name)
        members = resources.member_ids(resource.members or ())
        group = group_editing.create(
            self.actor,
            resource.display_name or "",
            external_id=resources.group_external_id(resource),
            members=members,
        )
        return resources.group_resource(group, sorted(members))

    def update(
        self,
        resource_type: ResourceType,
        resource: Any,
        *,
        expected_version: str | None = None,
    ) -> Any:
        resource_id = resource.id or ""
        if _is_user(resource_type):
            user = self._user(resource_id, expected_version)
            self._check_free(resource.user_name or "", user.id)
            return self._resource(
                resources.update_user(
                    self.actor,
                    user,
                    self._before,
                    resource,
                    is_patch=self.is_patch,
                    says_active=self.says_active,
                    edits_of=self.schema.edits_of,
                )
            )
        group = self._group(resource_id, expected_version)
        self._check_group(resource.display_name)
        if resource.members is not None:  # a PATCH that hides them in an unexpected place
            raise InvalidPathException(path="", detail="change members by the path members")
        edit = self.edit or MemberEdit()
        changed, _ = group_editing.change(
            self.actor,
            group.id,
            name=None if resource.display_name == group.name else resource.display_name,
            provisioned={"external_id": resources.group_external_id(resource)},
            added=edit.added,
            removed=edit.removed,
            whole=edit.whole,
        )
        if self.is_patch:
            return resources.group_resource(changed, None)
        if edit.whole is not None:
            return resources.group_resource(changed, sorted(edit.whole))
        return resources.group_resource(
            changed, [member.id for member in memberships.all_members(changed.name)]
        )

    def delete(
        self,
        resource_type: ResourceType,
        resource_id: str,
        *,
        expected_version: str | None = None,
    ) -> None:
        if _is_user(resource_type):
            accounts.delete(self.actor, self._user(resource_id, expected_version))
        else:
            group_editing.delete(self.actor, self._group(resource_id, expected_version).id)

    def _user(self, user_id: str, version: str | None = None) -> User:
        user = resources.find_user(user_id, is_locked=self.is_writing)
        if user is None:
            raise NotFoundException(detail=f"there is no user {user_id[:100]}")
        if self.is_writing:
            roles.require_may_change(self.actor, [user.groups])
        if version is not None and version != f'W/"{user.version}"':
            raise PreconditionFailedException
        return user

    def _group(self, group_id: str, version: str | None = None) -> Group:
        if self.is_writing:
            member_ids = self.edit.member_ids if self.edit else set()
            is_few = self.keeps_name and (self.edit is None or self.edit.whole is None)
            if not is_few:
                self._check_few_members(group_id)
            group = resources.lock_group(group_id, member_ids, with_members=not is_few)
        else:
            group = resources.find_group(group_id)
        if group is None:
            raise NotFoundException(detail=f"there is no group {group_id[:100]}")
        if self.is_writing:
            self._check_group(group.name)
        if version is not None and version != f'W/"{group.version}"':
            raise PreconditionFailedException
        return group

    def _check_few_members(self, group_id: str) -> None:
        """Refuse to change all members of a very large group: it would take too long."""
        group = resources.find_group(group_id)
        if group and memberships.count_members(group.name) > group_editing.MOST_MEMBERS:
            raise InvalidValueException(
                detail=f"the group has more than {group_editing.MOST_MEMBERS} members: add and "
                "remove members by their ids; rename or delete it at the command line"
            )

    def _check_group(self, name: str | None) -> None:
        roles.require_may_change(self.actor, [[name or ""]])

    def _check_free(self, user_name: str, user_id: UUID | None = None) -> None:
        other = scim_resources.find_by_user_name(user_name.strip())
        if other and other.id != user_id:
            raise UniquenessException(detail="there is already a user with this userName")

    def _resource(self, user: User) -> Any:
        rows = {group.name: group for group in named_groups.of_names(user.groups)}
        return self._view(user, rows)

    def _view(self, user: User, rows: Mapping[str, Group]) -> Any:
        more = self.schema.document_of(user.attributes)
        return resources.user_resource(user, rows, self.schema.user, more)


def _is_user(resource_type: ResourceType) -> bool:
    return resource_type.name == "User"


def _with_members(groups: Sequence[Group]) -> tuple[Sequence[Group], dict[str, list[UUID]]]:
    """Return the first groups whose members fit into a page, at least one, and all their members.

    The next page begins with the next group.
    """
    sizes = memberships.counts([group.name for group in groups], MOST_MEMBERS)
    fitting = sum(
        total <= MOST_MEMBERS for total in accumulate(sizes[group.name] for group in groups)
    )
    listed = groups[: max(fitting, 1)]
    return listed, memberships.member_ids([group.name for group in listed])


def _all_groups(people: Collection[User]) -> set[str]:
    return {name for user in people for name in user.groups}


def _asks_for_members(parameters: "ResponseParameters[Any] | None") -> bool:
    """Return whether an answer has to list the members of a group."""
    if parameters is None:
        return True
    excluded = [str(path).casefold() for path in parameters.excluded_attributes or ()]
    included = [str(path).casefold() for path in parameters.attributes or ()]
    if included and not any("members" in path for path in included):
        return False
    return not any(path.endswith("members") for path in excluded)
