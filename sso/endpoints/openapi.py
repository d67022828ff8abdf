"""The OpenAPI document of the API for programs."""

import json
from typing import Any

from flask import Response

from sso import context
from sso.config.client_fields import FIXED, IN_API
from sso.process.program import COMMAND
from sso.services.api_tokens import (
    CLIENTS_READ,
    CLIENTS_WRITE,
    SCIM_READ,
    SCIM_WRITE,
    SCOPES,
)

_TYPES: dict[type, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    list: {"type": "array", "items": {"type": "string"}},
    dict: {"type": "object"},
}
_JSON, _SCIM = "application/json", "application/scim+json"
_PLACES = {"client_id": "path", "id": "path", "If-Match": "header"}
_MEANINGS = {
    "client_id": "ID of the client.",
    "id": "ID of the resource.",
    "If-Match": "The ETag of what was read. If it has changed since then: 412.",
    "filter": "A filter (RFC 7644 §3.4.2.2).",
    "startIndex": "The first result, from 1.",
    "count": "Results on a page, at most 200.",
    "attributes": "Attributes to return, with commas between them.",
    "excludedAttributes": "Attributes not to return, such as members.",
}
_SHOWN, _LISTED = ("attributes", "excludedAttributes"), ("filter", "startIndex", "count")


def openapi() -> Response:
    """Return the OpenAPI document of the API for programs."""
    return Response(json.dumps(document(context.settings().base_url)), mimetype=_JSON)


def document(base_url: str) -> dict[str, Any]:
    """Return the document, in OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sso: API for programs",
            "version": "1",
            "description": "Users and groups by SCIM 2.0, and registrations of clients. An "
            f"administrator creates the token: {COMMAND} api-token create.",
        },
        "servers": [{"url": base_url}],
        "security": [{"token": []}],
        "paths": {
            **_registrations(),
            **_resources("Users", "User"),
            **_resources("Groups", "Group"),
            **_discovery(),
        },
        "components": {
            "securitySchemes": {"token": {
                "type": "http", "scheme": "bearer",
                "description": "\n".join(f"- {name}: {text}" for name, text in SCOPES.items()),
            }},
            "parameters": {name: _parameter(name) for name in _MEANINGS},
            "schemas": _schemas(),
        },
    }  # fmt: skip


def _registrations() -> dict[str, Any]:
    path, names = "/oauth2/register/{client_id}", ["client_id"]
    read, write = (_JSON, CLIENTS_READ), (_JSON, CLIENTS_WRITE)
    return {
        "/oauth2/register": {
            "get": _operation("listClients", "List all clients", read, "Clients"),
            "post": _operation(
                "registerClient", "Register a client; its secret is in this answer alone", write,
                "Client", body="ClientMetadata", status=201,
            ),
        },
        path: {
            "get": _operation("readClient", "Read a registration", read, "Client", names),
            "put": _operation(
                "replaceClient", "Replace a registration; what is left out is removed", write,
                "Client", [*names, "If-Match"], "ClientMetadata",
            ),
            "delete": _operation(
                "deleteClient", "Delete a client with its tokens and consents", write, None,
                [*names, "If-Match"],
            ),
        },
        f"{path}/secret": {
            "post": _operation(
                "rotateClientSecret", "Give a client a new secret", write, "Client",
                [*names, "If-Match"], "Rotation",
            ),
        },
    }  # fmt: skip


def _resources(endpoint: str, kind: str) -> dict[str, Any]:
    path, names = f"/scim/v2/{endpoint}", ["id"]
    read, write = (_SCIM, SCIM_READ), (_SCIM, SCIM_WRITE)
    changed = [*names, "If-Match", *_SHOWN]
    return {
        path: {
            "get": _operation(f"list{endpoint}", f"List {endpoint.lower()}", read, "ScimList",
                              [*_LISTED, *_SHOWN]),
            "post": _operation(f"create{kind}", f"Create a {kind.lower()}", write, kind,
                               body=kind, status=201),
        },
        f"{path}/.search": {
            "post": _operation(f"search{endpoint}", f"List {endpoint.lower()}, with a body", read,
                               "ScimList", body="ScimSearch"),
        },
        f"{path}/{{id}}": {
            "get": _operation(f"read{kind}", f"Read a {kind.lower()}", read, kind,
                              [*names, *_SHOWN]),
            "put": _operation(f"replace{kind}", f"Replace a {kind.lower()}", write, kind, changed,
                              kind),
            "patch": _operation(f"change{kind}", f"Change a {kind.lower()}", write, kind, changed,
                                "ScimPatch"),
            "delete": _operation(f"delete{kind}", f"Delete a {kind.lower()}", write, None,
                                 [*names, "If-Match"]),
        },
    }  # fmt: skip


def _discovery() -> dict[str, Any]:
    names = ("ServiceProviderConfig", "ResourceTypes", "Schemas")
    return {
        f"/scim/v2/{name}": {
            "get": _operation(f"read{name}", f"Read {name}", (_SCIM, SCIM_READ), "Object")
        }
        for name in names
    }


def _operation(
    operation_id: str,
    summary: str,
    kind: tuple[str, str],
    answer: str | None,
    parameters: Any = (),
    body: str | None = None,
    status: int = 200,
) -> dict[str, Any]:
    media_type, scope = kind
    error = "ScimError" if media_type == _SCIM else "Error"
    described: dict[str, Any] = {
        "operationId": operation_id,
        "summary": summary,
        "description": f"Needs the scope {scope}.",
        "responses": {
            **(
                {str(status): {"description": "Done.", **_content(media_type, answer)}}
                if answer
                else {"204": {"description": "Done."}}
            ),
            "default": {"description": "Refused.", **_content(media_type, error)},
        },
    }
    if operation_id == "changeGroup":
        described["responses"]["204"] = {"description": "Done; the answer has no group."}
    if parameters:
        described["parameters"] = [{"$ref": f"#/components/parameters/{n}"} for n in parameters]
    if body:
        described["requestBody"] = {"required": body != "Rotation", **_content(media_type, body)}
    return described


def _content(media_type: str, schema: str) -> dict[str, Any]:
    return {"content": {media_type: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}}


def _parameter(name: str) -> dict[str, Any]:
    place = _PLACES.get(name, "query")
    kind = "integer" if name in ("startIndex", "count") else "string"
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": _MEANINGS[name],
        "schema": {"type": kind},
    }


def _schemas() -> dict[str, Any]:
    fields = {field.name: _TYPES[field.json_type] for field in IN_API}
    fixed = {field.name: {**_TYPES[field.json_type], "readOnly": True} for field in FIXED}
    issued = {
        **dict.fromkeys(("client_id", "client_secret", "registration_client_uri"), _TYPES[str]),
        **{name: {"type": "integer"} for name in ("client_id_issued_at",
                                                  "client_secret_expires_at")},
    }  # fmt: skip
    required = [field.name for field in IN_API if field.is_required]
    client: dict[str, Any] = {"type": "object", "properties": {**fields, **fixed}}
    resource = {"type": "object", "properties": {"schemas": _TYPES[list], "id": _TYPES[str],
                                                 "externalId": _TYPES[str]}}  # fmt: skip
    texts = {
        "Error": ("error", "error_description"),
        "ScimError": ("status", "scimType", "detail"),
    }
    return {
        "ClientMetadata": {**client, "required": required},
        "Client": {**client, "properties": {**client["properties"], **issued}},
        "Clients": _object(clients={"type": "array", "items": _ref("Client")}),
        "Rotation": _object(keep_old={"type": "integer", "minimum": 0, "maximum": 8760,
                                      "description": "Hours for which the old one is valid."}),
        "User": {**resource, "description": "RFC 7643 §4.1; see /scim/v2/Schemas."},
        "Group": {**resource, "description": "RFC 7643 §4.2; see /scim/v2/Schemas."},
        "ScimList": _object(
            totalResults={"type": "integer"}, startIndex={"type": "integer"},
            itemsPerPage={"type": "integer"}, Resources={"type": "array", "items": _TYPES[dict]},
        ),
        "ScimSearch": _object(filter=_TYPES[str], startIndex={"type": "integer"},
                              count={"type": "integer"}, attributes=_TYPES[list]),
        "ScimPatch": _object(schemas=_TYPES[list],
                             Operations={"type": "array", "items": _TYPES[dict]}),
        "Object": _TYPES[dict],
        **{name: _object(**dict.fromkeys(names, _TYPES[str])) for name, names in texts.items()},
    }  # fmt: skip


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
