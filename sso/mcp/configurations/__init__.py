"""Ready configurations for MCP servers and for the proxies in front of them.

The texts are the files beside this one. Names between two `@` stand for values: JSON in programs,
which is also valid Python and JavaScript, and the plain text in configurations of proxies.
`tests/applications/test_mcp_configurations.py` runs them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from sso.config.settings import Settings
from sso.config.urls import ENDPOINTS, is_loopback
from sso.mcp import protected_resources
from sso.mcp.protected_resources import ProtectedResource

DOCUMENT_PATH = "/protected-resource"  # below the path of SSO_BASE_URL
_PLACEHOLDER = re.compile("@([a-z_]+)@")
# What has no meaning of its own in a configuration of nginx, Caddy or Traefik.
_PLAIN = re.compile(r"https?://[A-Za-z0-9.\-:\[\]]+(?:/[A-Za-z0-9._~%/\-]*)?\Z")
_PORT = 8000


@dataclass(frozen=True)
class Configuration:
    """One text: `name` is its file's, `label` what people choose by; `is_program`: Python or
    JavaScript, otherwise the configuration of a proxy."""

    name: str
    label: str
    is_program: bool = True


CONFIGURATIONS = (
    Configuration("fastmcp", "FastMCP"),
    Configuration("python-1", "Python SDK 1.x"),
    Configuration("python-2", "Python SDK 2.x"),
    Configuration("typescript-1", "TypeScript SDK 1.x"),
    Configuration("typescript-2", "TypeScript SDK 2.x"),
    Configuration("nginx", "nginx", is_program=False),
    Configuration("caddy", "Caddy", is_program=False),
    Configuration("traefik", "Traefik", is_program=False),
)


def offered(api: ProtectedResource) -> tuple[Configuration, ...]:
    """Return the configurations that can be written for an API.

    Only MCP servers with a URL have some. Identifiers with characters that mean something to
    proxies have programs alone.
    """
    if not api.identifier.startswith(("https://", "http://")) or urlsplit(api.identifier).query:
        return ()
    is_plain = _PLAIN.match(api.identifier)
    return tuple(each for each in CONFIGURATIONS if each.is_program or is_plain)


def written(configuration: Configuration, api: ProtectedResource, settings: Settings) -> str:
    """Write a configuration for an API, which `offered` has to name."""
    values = _values(api, settings)
    if configuration.is_program:
        values = {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}

    def value(match: re.Match[str]) -> str:
        return str(values.get(match[1], match[0]))

    return _PLACEHOLDER.sub(value, _text(configuration.name))


@cache
def _text(name: str) -> str:
    return (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8")


def _values(api: ProtectedResource, settings: Settings) -> Mapping[str, object]:
    parts, base = urlsplit(api.identifier), urlsplit(settings.base_url)
    scopes = list(api.scopes)
    required = scopes[:1]
    port = parts.port if is_loopback(parts.hostname) else None
    document = document_url(api, settings)
    return {
        "issuer": settings.issuer,
        "jwks": settings.base_url + ENDPOINTS["jwks"],
        "resource": api.identifier,
        "origin": f"{parts.scheme}://{parts.netloc}",
        "host": parts.hostname or "",
        "netloc": parts.netloc,
        "path": parts.path or "/",
        "port": port or _PORT,
        "name": api.name,
        "scopes": scopes,
        "required": required,
        "metadata_url": protected_resources.metadata_url(api.identifier),
        "metadata_path": urlsplit(protected_resources.metadata_url(api.identifier)).path,
        "challenge_scope": f', scope="{" ".join(required)}"' if required else "",
        "document_url": document,
        "document_path": urlsplit(document).path,
        "issuer_origin": f"{base.scheme}://{base.netloc}",
        "issuer_netloc": base.netloc,
    }


def document_url(api: ProtectedResource, settings: Settings) -> str:
    """Return where this server itself publishes the protected resource metadata of an API."""
    return f"{settings.base_url}{DOCUMENT_PATH}/{api.api_id}"
