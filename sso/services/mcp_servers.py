"""MCP servers: APIs that agents may use, clients that no operator registered."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from sso.audit import Actor
from sso.flow import resources
from sso.i18n.message import Message
from sso.models import Api
from sso.services import apis
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store import apis as stored_apis


def add(
    actor: Actor,
    url: str,
    *,
    name: str | None = None,
    scopes: Mapping[str, str] | None = None,
    groups: Sequence[str] = (),
) -> Api:
    """Register an MCP server as an API that agents may use. Raises `Invalid`.

    The identifier of the API is the server's URL. If it is registered already, agents may use it
    from now on, and it gets these scopes and groups in addition to its own.
    """
    if error := url_error(url):
        raise Invalid([error])
    api = stored_apis.find(resources.normalized(url))
    scopes = dict(scopes or {})
    if api is None:
        host = urlsplit(url).hostname or url
        fields: dict[str, Any] = {"identifier": url, "name": name or host, "agents": True}
        api, _ = apis.register(actor, {**fields, "scopes": scopes, "groups": list(groups)})
        return api
    fields = {"agents": True, **({"name": name} if name else {})}
    lists = {"groups": ListEdit(added=tuple(groups))} if groups else {}
    fields |= {"scopes": {**api.scopes, **scopes}} if scopes else {}
    api, _, _ = apis.change(actor, api.api_id, fields, lists=lists)
    return api


def url_error(url: str) -> Message | None:
    """Return why clients cannot connect to a URL, or `None`."""
    if error := resources.identifier_error(url):
        return Message("%(url)s is not the URL of an MCP server: %(reason)s",
                       url=repr(url[:200]), reason=error)  # fmt: skip
    if not url.lower().startswith(("https://", "http://")):
        return Message("%(url)s is not the URL of an MCP server: it is not https",
                       url=repr(url[:200]))  # fmt: skip
    return None


def every() -> list[Api]:
    """Return the APIs that agents may use, oldest first."""
    return [api for api in stored_apis.every() if api.agents]
