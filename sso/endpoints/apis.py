"""Views that manage APIs for programs, by JSON and an API token (see `endpoints.api`)."""

from typing import Any

from flask import Response, abort, request

from sso import context
from sso.audit import Actor
from sso.endpoints import api as programs
from sso.extensions import db
from sso.models import Api
from sso.services import api_tokens, api_values, apis
from sso.services.checks import Invalid
from sso.store import apis as stored_apis
from sso.web.errors import as_json

_ERROR = "invalid_request"


def registered_apis() -> Response:
    """Lists APIs, and registers one."""
    actor = _actor()
    if request.method in ("GET", "HEAD"):
        return programs.answer({"apis": [_document(api) for api in stored_apis.every()]})
    try:
        api, secret = apis.register(actor, api_values.parsed(programs.body(_ERROR)))
    except Invalid as error:
        return programs.refused(error, _ERROR)
    db.session.commit()
    url = f"{context.settings().base_url}/apis/{api.api_id}"
    return programs.answer(_document(api, secret), api.version, 201, {"Location": url})


def registered_api(api_id: str) -> Response:
    """Reads, replaces and deletes an API."""
    actor = _actor()
    if request.method in ("GET", "HEAD"):
        api = (api_id.isprintable() and stored_apis.with_id(api_id)) or _unknown()
        return programs.answer(_document(api), api.version)
    _lock(api_id)
    if request.method == "DELETE":
        apis.delete(actor, api_id)
        db.session.commit()
        return Response(status=204)
    try:
        fields = api_values.replacing(api_values.parsed(programs.body(_ERROR)))
        api, _, secret = apis.change(actor, api_id, fields)
    except Invalid as error:
        return programs.refused(error, _ERROR)
    db.session.commit()
    return programs.answer(_document(api, secret), api.version)


def api_secret(api_id: str) -> Response:
    """Gives an API a new secret for introspection; the old one stops working."""
    actor = _actor()
    _lock(api_id)
    api, secret = apis.rotate_secret(actor, api_id)
    db.session.commit()
    return programs.answer(_document(api, secret), api.version)


def _actor() -> Actor:
    return programs.actor_with(api_tokens.APIS_READ, api_tokens.APIS_WRITE)


def _lock(api_id: str) -> None:
    """Lock the API; abort with 412 if it has changed since the caller read it (If-Match)."""
    api = (api_id.isprintable() and stored_apis.lock(api_id)) or _unknown()
    programs.require_match(api.version, "The API has changed; read it again.")


def _unknown() -> Any:
    db.session.rollback()
    abort(as_json(_ERROR, "There is no API with this ID.", 404))


def _document(api: Api, secret: str = "") -> dict[str, Any]:
    """Return an API as JSON, with its new secret if it got one."""
    return {**apis.described(api), **({"secret": secret} if secret else {})}
