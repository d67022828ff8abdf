"""The SCIM service of an application: what is sent to it, over guarded HTTP.

scim2-client makes the requests and checks the answers. It has engines for several HTTP libraries;
this one uses `http_call`, which follows no redirects, calls no address that is never called, and
ends by a deadline and a size.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlencode

from scim2_client import BaseSyncSCIMClient, RequestNetworkException, SCIMClientException
from scim2_models import (
    EnterpriseUser,
    Group,
    ResourceType,
    SCIMException,
    ScimProvider,
    User,
)

from sso.models.provisioning import MAX_REMOTE_ID
from sso.process import http_call
from sso.provisioning.schemas import Schemas

SECONDS = http_call.SECONDS  # for one request
MOST_BYTES = 1024 * 1024  # of an answer
PAGE = 100  # resources that are requested at once
MOST_LISTED = 200_000  # resources of a list
_LONGEST_PAUSE = timedelta(hours=1)  # whatever a receiver asks for
_UNKNOWN, _TAKEN, _BROKEN = 404, 409, 500
_REFUSED = 400
_UNABLE = (400, 405, 501)  # some services know no PATCH
_NO_COUNT = (400, 500)  # some services fail if they are asked for a number of resources
_MODEL = User[EnterpriseUser]
# The whole service is concerned, and not this person.
_OF_SERVICE = (401, 403, 408, 429)


class CallError(Exception):
    """A request failed; `str()` is a short reason.

    `status`: of the answer, if there was one. `is_of_service`: others would fail, too. `pause`:
    what the receiver asked for.
    """

    def __init__(
        self,
        reason: str,
        status: int | None = None,
        *,
        is_of_service: bool = False,
        pause: timedelta | None = None,
    ) -> None:
        super().__init__(reason[:200])
        self.status, self.is_of_service, self.pause = status, is_of_service, pause


@dataclass(frozen=True)
class _Response:
    """An answer as scim2-client reads it."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")


class _Client(BaseSyncSCIMClient):
    """scim2-client over `http_call`."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(
            provider=ScimProvider(
                models=(User, EnterpriseUser, Group),
                resource_types=[ResourceType.from_resource(model) for model in (_MODEL, Group)],
            ),
            check_response_payload=False,
            check_response_content_type=False,
            check_response_status_codes=False,
        )
        self.last: _Response | None = None
        self._url = url.rstrip("/")
        self._headers = {"Accept": "application/scim+json, application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def url_of(self, path: str) -> str:
        return f"{self._url}/{path.lstrip('/')}"

    def request(self, method: str, url: str, **options: Any) -> _Response:
        """Send a request below the URL; scim2-client calls this."""
        self.last, headers, body = None, dict(self._headers), None
        if (payload := options.get("json")) is not None:
            headers["Content-Type"] = "application/scim+json"
            body = json.dumps(payload).encode()
        query = urlencode(options.get("params") or {}, quote_via=quote)
        target = self.url_of(url) + (f"?{query}" if query else "")
        try:
            answer = http_call.call(
                method, target, body, headers, seconds=SECONDS, read=MOST_BYTES + 1
            )
        except (OSError, HTTPException, ValueError) as error:
            raise RequestNetworkException(message=f"{type(error).__name__}: {error}") from None
        if len(answer.body) > MOST_BYTES:
            raise RequestNetworkException(message=f"it answered more than {MOST_BYTES} bytes")
        self.last = _Response(answer.status, answer.headers, answer.body)
        return self.last


class Receiver:
    """What can be done at the SCIM service. All of it raises `CallError`."""

    def __init__(self, url: str, token: str = "") -> None:
        self._client = _Client(url, token)
        self._schemas: Schemas | None = None
        self._has_asked = False
        self._is_counting = True

    @property
    def last_status(self) -> int | None:
        """The status of the last answer; `None` if there was none."""
        return self._client.last.status_code if self._client.last else None

    def test(self) -> None:
        """Ask for one resource, and for nothing to be changed."""
        self._page({"startIndex": 1, "count": 1})

    def create(self, fields: Mapping[str, Any]) -> str | None:
        """Create a user; return the id, or `None` if there is a user with this name already."""
        try:
            answer = self._send("create", fields)
        except CallError as error:
            is_taken = error.status == _TAKEN
            if is_taken or (error.status == _BROKEN and self.find(fields) is not None):
                return None
            raise
        return _id_of(answer)

    def replace(self, remote_id: str, fields: Mapping[str, Any]) -> bool:
        """Replace a user; return False if there is none with this id."""
        try:
            answer = self._send("replace", {**fields, "id": remote_id})
        except CallError as error:
            if error.status == _UNKNOWN:
                return False
            raise
        if answer is not None and _id_of(answer) != remote_id:
            raise CallError("it answered with the id of somebody else")
        return True

    def deactivate(self, remote_id: str, fields: Mapping[str, Any] | None) -> bool:
        """Deactivate a user; return False if there is none with this id.

        `fields`: what is known about the user, for a service that replaces but does not patch.
        """
        try:
            return self._patch(_MODEL, remote_id, {"op": "replace", "value": {"active": False}})
        except CallError as error:
            if error.status not in _UNABLE or fields is None:
                raise
            return self.replace(remote_id, {**fields, "active": False})

    def delete(self, remote_id: str) -> None:
        """Delete a user; it is the same if there is none with this id."""
        self._delete(_MODEL, remote_id)

    def find(self, fields: Mapping[str, Any]) -> str | None:
        """Return the id of the user with this external id, else with this user name, if any.

        Raises `CallError`, also if an account of this name has another external id: it is somebody
        else's.
        """
        return self._found(_MODEL, "user", ("externalId", "userName"), fields)

    def find_group(self, fields: Mapping[str, Any]) -> str | None:
        """Return the id of the group with this external id, else with this name; see `find`."""
        return self._found(Group, "group", ("externalId", "displayName"), fields)

    def create_group(self, fields: Mapping[str, Any], members: Sequence[str] = ()) -> str:
        """Create a group; return its id.

        `members`: ids of users, for a service that refuses a group without members.
        """
        try:
            answer = self._call("create", Group.model_validate(dict(fields)))
        except CallError as error:
            if error.status != _REFUSED or not members:
                raise
            full = {**fields, "members": [self._member(remote_id) for remote_id in members]}
            answer = self._call("create", Group.model_validate(full))
        return _id_of(answer)

    def rename_group(self, remote_id: str, name: str) -> bool:
        """Rename a group; return False if there is none with this id."""
        return self._patch(Group, remote_id, {"op": "replace", "value": {"displayName": name}})

    def delete_group(self, remote_id: str) -> None:
        """Delete a group; it is the same if there is none with this id."""
        self._delete(Group, remote_id)

    def add_member(self, group_id: str, remote_id: str) -> bool:
        """Add a user to a group; return False if there is no such group."""
        value = [{"value": remote_id}]
        return self._patch(Group, group_id, {"op": "add", "path": "members", "value": value})

    def remove_member(self, group_id: str, remote_id: str) -> bool:
        """Remove a user from a group; return False if there is no such group."""
        path = f"members[value eq {json.dumps(remote_id)}]"
        return self._patch(Group, group_id, {"op": "remove", "path": path})

    def _member(self, remote_id: str) -> dict[str, str]:
        return {"value": remote_id, "$ref": self._client.url_of(f"Users/{quote(remote_id)}")}

    def _found(
        self, model: Any, noun: str, names: Sequence[str], fields: Mapping[str, Any]
    ) -> str | None:
        for name in names:
            text = json.dumps(fields[name], ensure_ascii=False)
            rows = self._page({"filter": f"{name} eq {text}"}, model)[0]
            # A service that ignores the filter answers with everybody.
            matching = [row for row in rows if _is_same(row.get(name), fields[name])]
            if len(matching) > 1:
                raise CallError(f"it has several {noun}s with this {name}")
            if matching:
                if matching[0].get("externalId") not in (None, "", fields["externalId"]):
                    raise CallError(f"its {noun} of this name has another externalId")
                return _id_of(matching[0])
        return None

    def _patch(self, model: Any, remote_id: str, operation: Mapping[str, Any]) -> bool:
        """Change a resource; return False if there is none with this id."""
        schema = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
        try:
            self._call("modify", model, remote_id, {"schemas": [schema], "Operations": [operation]})
        except CallError as error:
            if error.status != _UNKNOWN:
                raise
            return False
        return True

    def _delete(self, model: Any, remote_id: str) -> None:
        try:
            self._call("delete", model, remote_id)
        except CallError as error:
            if error.status != _UNKNOWN:
                raise

    def every(self) -> Iterator[Mapping[str, Any]]:
        """Yield all users."""
        return self._every(_MODEL, "users")

    def every_group(self) -> Iterator[Mapping[str, Any]]:
        """Yield all groups, without their members, of which there may be many."""
        return self._every(Group, "groups", excludedAttributes="members")

    def members_of(self, group_id: str) -> set[str]:
        """Return the ids of a group's members."""
        answer = self._call("query", Group, group_id)
        members = answer.get("members") if isinstance(answer, dict) else None
        rows = members if isinstance(members, list) else ()
        return {str(row.get("value")) for row in rows if isinstance(row, dict)}

    def _every(self, model: Any, noun: str, **options: str) -> Iterator[Mapping[str, Any]]:
        start = 1
        ids: set[str] = set()
        while start <= MOST_LISTED:
            rows, total = self._page({"startIndex": start, "count": PAGE, **options}, model)
            new = [row for row in rows if str(row.get("id")) not in ids]
            yield from new
            ids.update(str(row.get("id")) for row in new)
            if not new or len(ids) >= total:
                return
            start += len(rows)
        raise CallError(f"it has more than {MOST_LISTED} {noun}")

    def _page(
        self, query: Mapping[str, Any], model: Any = _MODEL
    ) -> tuple[list[Mapping[str, Any]], int]:
        options = {name: query[name] for name in query if name != "count" or self._is_counting}
        try:
            answer = self._call("query", model, None, options, check_request_payload=False)
        except CallError as error:
            if "count" not in options or error.status not in _NO_COUNT:
                raise
            self._is_counting = False
            return self._page(query, model)
        resources = answer.get("Resources", []) if isinstance(answer, dict) else None
        total = answer.get("totalResults", 0) if isinstance(answer, dict) else 0
        if not isinstance(resources, list) or not isinstance(total, int):
            raise CallError("its list is none as RFC 7644 has it")
        return [user for user in resources if isinstance(user, dict)], total

    def _send(self, operation: str, fields: Mapping[str, Any]) -> Any:
        """Create or replace a user. A service that refuses it gets what its schemas define."""
        if self._schemas:
            fields = self._schemas.fitted(fields)
        try:
            return self._call(operation, _MODEL.model_validate(dict(fields)))
        except CallError as error:
            if error.status != _REFUSED or self._has_asked:
                raise
            self._schemas, self._has_asked = self._published(), True
            fitted = self._schemas.fitted(fields) if self._schemas else fields
            if fitted == fields:
                raise
            return self._call(operation, _MODEL.model_validate(dict(fitted)))

    def _published(self) -> Schemas | None:
        """Return the schemas of the service, or `None` if it does not say."""
        try:
            response = self._client.request("GET", "/Schemas")
        except RequestNetworkException:
            return None
        return Schemas.parsed(response.content) if response.status_code == 200 else None

    def _call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Perform an operation of scim2-client. An error of the service is no exception there."""
        answer, fault = None, ""
        try:
            answer = getattr(self._client, operation)(*arguments, **options)
        except RequestNetworkException as error:
            raise CallError(error.message, is_of_service=True) from None
        except (SCIMClientException, SCIMException, ValueError) as error:
            fault = type(error).__name__
        response = self._client.last
        if response and not 200 <= response.status_code < 300:
            raise _refusal(response, answer)
        if fault:
            about = "its answer is not" if response else "what is sent is not"
            raise CallError(f"{about} as RFC 7644 has it ({fault})")
        return answer


def _refusal(response: _Response, answer: Any) -> CallError:
    """Return the error for an answer that is no success."""
    status = response.status_code
    if 300 <= status < 400:
        reason = f"it answered {status}; redirects are not followed"
        return CallError(reason, status, is_of_service=True)
    detail = answer.get("detail") if isinstance(answer, dict) else None
    reason = f"it answered {status}"
    if isinstance(detail, str) and detail.isprintable():
        reason = f"{reason}: {detail}"
    pause = _pause(response.headers.get("retry-after"))
    is_of_service = status in _OF_SERVICE or status >= 500
    return CallError(reason, status, is_of_service=is_of_service, pause=pause)


def _pause(text: str | None) -> timedelta | None:
    """Read Retry-After in seconds (RFC 9110 §10.2.3); its other form, a date, is left out."""
    if text is None or not text.isdecimal() or len(text) > 9:
        return None
    return min(timedelta(seconds=int(text)), _LONGEST_PAUSE)


def _id_of(answer: Any) -> str:
    remote_id = answer.get("id") if isinstance(answer, dict) else None
    if not isinstance(remote_id, str) or not 0 < len(remote_id) <= MAX_REMOTE_ID:
        raise CallError("its answer has no id")
    if not remote_id.isprintable():  # no database stores NUL, or half a character
        raise CallError("the id in its answer is not printable")
    return remote_id


def _is_same(answered: Any, sent: str) -> bool:
    return isinstance(answered, str) and answered.casefold() == sent.casefold()
