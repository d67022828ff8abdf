"""Users and groups for provisioning clients (SCIM 2.0). What answers is in `sso.scim`."""

import json
from functools import cache
from importlib import import_module
from typing import Any

from flask import Response, g, request
from scim2_server.requests import ScimRequest

from sso import context
from sso.endpoints import api
from sso.extensions import db
from sso.ratelimit import refusals
from sso.services import api_tokens

_ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
_MEDIA_TYPE = "application/scim+json"


def scim(path: str) -> Response:
    """Users and groups, for programs with an API token (RFC 7644)."""
    g.sso_error_shape = _error, _MEDIA_TYPE
    is_reading = request.method in ("GET", "HEAD") or path.endswith(".search")
    token = api.authenticate(api_tokens.SCIM_READ if is_reading else api_tokens.SCIM_WRITE)
    db.session.commit()
    asked = ScimRequest(
        "GET" if request.method == "HEAD" else request.method,
        f"{context.settings().base_url}/scim/v2",
        f"/{path}",
        request.args.to_dict(),
        dict(request.headers),
        request.get_data(cache=False),
    )
    program = _program()
    try:
        api.spend(token, program.weight(asked))
        answer = program.answer(asked, token, None if is_reading else db.session.commit)
    except program.SCIMException as error:
        db.session.rollback()
        answer = program.refusal(error)
        refusals.note_answer(error.scim_type or f"status {error.status}", str(error.detail))
    body = None if answer.body is None else json.dumps(answer.body)
    return Response(body, int(answer.status), answer.headers)


@cache
def _program() -> Any:
    """Imported by the first request: a server without provisioning saves 30 MB."""
    return import_module("sso.scim.handler")


def _error(status: int, description: str) -> dict[str, Any]:
    """An error that comes from elsewhere (RFC 7644 §3.12)."""
    return {"schemas": [_ERROR], "status": str(status), "detail": description}
