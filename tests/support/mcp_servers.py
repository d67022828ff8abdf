"""Small MCP servers: one that is right, and others that are broken on purpose.

They verify real tokens with the published keys. What a test changes is wrong with them alone.
"""

import base64
import json
import secrets
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from flask import Flask, Response, redirect, request
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from werkzeug.serving import make_server

from tests.support.listeners import certificate
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
        with _serving(self.flask, self.port):
            yield self


class EnterpriseServer:
    """An MCP server with an authorization server of its own, at https://localhost.

    That one takes identity assertions of `issuer` for the client `CLIENT`, and asks nobody.
    """

    CLIENT = "assistant-there"

    def __init__(self, folder: Path, issuer: str) -> None:
        self.issuer, self.port = issuer, free_port()
        self.certificate = certificate(folder, 1, "localhost")
        self.origin = f"https://localhost:{self.port}"
        self.url = self.origin + PATH
        self.assertions: list[dict[str, Any]] = []
        self._tokens: set[str] = set()
        self._flask = Flask("enterprise")
        add = self._flask.add_url_rule
        add("/.well-known/oauth-authorization-server", "metadata", self._metadata)
        add(f"/.well-known/oauth-protected-resource{PATH}", "resource", self._resource)
        add("/token", "token", self._token, methods=["POST"])
        add(PATH, "call", self._call, methods=["POST"])

    def _metadata(self) -> Any:
        return {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "response_types_supported": ["code"],
            "grant_types_supported": ["urn:ietf:params:oauth:grant-type:jwt-bearer"],
        }

    def _resource(self) -> Any:
        return {"resource": self.url, "authorization_servers": [self.origin]}

    def _token(self) -> Any:
        published = requests.get(f"{self.issuer}/oauth2/jwks", timeout=10).json()
        keys = KeySet.import_key_set(published)
        assertion = jwt.decode(request.form["assertion"], keys, algorithms=["RS256"])
        assert assertion.header["typ"] == "oauth-id-jag+jwt"
        assert (assertion.claims["iss"], assertion.claims["aud"]) == (self.issuer, self.origin)
        assert assertion.claims["client_id"] == request.form["client_id"] == self.CLIENT
        self.assertions.append(assertion.claims)
        self._tokens.add(token := secrets.token_urlsafe())
        return {"access_token": token, "token_type": "Bearer", "expires_in": 300}

    def _call(self) -> Any:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self._tokens:
            return "", 401, {"WWW-Authenticate": "Bearer"}
        message = request.get_json()
        if "id" not in message:
            return "", 202
        server = {"name": "Notes", "version": "1.0.0"}
        version = message.get("params", {}).get("protocolVersion")
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": server,
            },
            "tools/list": {"tools": [{"name": "latest", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "Buy milk."}]},
        }
        return {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}

    @contextmanager
    def running(self) -> Iterator["EnterpriseServer"]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.certificate)
        with _serving(self._flask, self.port, tls):
            yield self


@contextmanager
def _serving(flask: Flask, port: int, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    server = make_server("127.0.0.1", port, flask, True, ssl_context=tls)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def jwt_part(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def moved(url: str) -> Callable[[], Any]:
    """Answer with a redirect."""
    return lambda: redirect(url, 307)
