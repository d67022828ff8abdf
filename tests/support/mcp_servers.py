"""Small MCP servers: one that is right, and others that are broken on purpose.

They verify real tokens with the published keys. What a test changes is wrong with them alone.
"""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import requests
from flask import Flask, Response, redirect, request
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from werkzeug.serving import make_server

from tests.support.processes import free_port

PATH = "/mcp"


@dataclass
class McpServer:
    """An MCP server at `url`, protected by `issuer`; it needs the scope `read`."""

    issuer: str
    port: int = field(default_factory=free_port)
    required: str = "read"
    audience: str | None = None
    algorithms: tuple[str, ...] = ("ES256",)
    verifies_audience: bool = True
    verifies_signature: bool = True
    # None: the challenge is left out.
    challenge: str | None = 'Bearer resource_metadata="{metadata}", scope="read"'
    places: tuple[str, ...] = ("/.well-known/oauth-protected-resource/mcp",)
    document: dict[str, Any] = field(default_factory=dict)  # what it says in other words
    answer: Callable[[], Any] | None = None  # to requests without a token
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.origin = f"http://127.0.0.1:{self.port}"
        self.url = self.origin + PATH
        self.metadata_url = f"{self.origin}/.well-known/oauth-protected-resource{PATH}"
        self.flask = Flask("mcp")
        self.flask.add_url_rule(PATH, "mcp", self.call, methods=["POST", "DELETE"])
        for place in self.places:
            self.flask.add_url_rule(place, place, self.metadata)

    def metadata(self) -> Any:
        return {
            "resource": self.url,
            "authorization_servers": [self.issuer],
            "scopes_supported": [self.required],
            **self.document,
        }

    def call(self) -> Any:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        message = request.get_json(silent=True) or {}
        self.calls.append({"method": message.get("method"), "token": token})
        if not token:
            return self.answer() if self.answer else self.refuse(401, "")
        try:
            claims = self.claims(token)
        except (JoseError, ValueError) as error:
            return self.refuse(401, f', error="invalid_token", error_description="{error}"')
        if self.required and self.required not in claims.get("scope", "").split():
            return self.refuse(403, f', error="insufficient_scope", scope="{self.required}"')
        return {"jsonrpc": "2.0", "id": 1, "result": {}}

    def claims(self, token: str) -> dict[str, Any]:
        if not self.verifies_signature:
            payload = token.split(".")[1]
            return dict(json.loads(jwt_part(payload)))
        published = requests.get(f"{self.issuer}/oauth2/jwks", timeout=10).json()
        keys = KeySet.import_key_set(published)
        claims = jwt.decode(token, keys, algorithms=list(self.algorithms)).claims
        if self.verifies_audience and claims["aud"] != (self.audience or self.url):
            raise ValueError("wrong audience")
        return claims

    def refuse(self, status: int, error: str) -> Response:
        response = Response(status=status)
        if self.challenge is not None:
            challenge = self.challenge.format(metadata=self.metadata_url)
            if status == 403:
                challenge = f'Bearer resource_metadata="{self.metadata_url}"'
            response.headers["WWW-Authenticate"] = challenge + error
        return response

    @contextmanager
    def running(self) -> Iterator["McpServer"]:
        server = make_server("127.0.0.1", self.port, self.flask, True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join(10)
            server.server_close()


def jwt_part(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def moved(url: str) -> Callable[[], Any]:
    """Answer with a redirect."""
    return lambda: redirect(url, 307)
