"""Agents: clients that nobody registered, and the hosts of their metadata documents."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from flask import Flask

from sso.process import http_call
from sso.process.http_call import Answer
from tests.support.actors import RelyingParty, pkce

AGENT = "https://agent.example/oauth/client.json"
CALLBACK = "http://127.0.0.1:4711/callback"
DOCUMENT: Mapping[str, Any] = {
    "client_id": AGENT,
    "client_name": "Helpful Agent",
    "redirect_uris": ["http://127.0.0.1/callback", "https://agent.example/callback"],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
}
Reply = Answer | Exception


def answer(
    content: Any, status: int = 200, kind: str = "application/json", **headers: str
) -> Answer:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"content-type": kind, **names}, {}, body)


class Hosts:
    """What answers the server's requests for documents: the replies by URL, and who was asked."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {AGENT: answer(DOCUMENT)}
        self.asked: list[str] = []

    def call(self, method: str, url: str, **options: Any) -> Answer:
        assert (method, options["only_public"], options["seconds"]) == ("GET", True, 3.0)
        self.asked.append(url)
        reply = self.replies.get(url, answer({}, 404))
        if isinstance(reply, Exception):
            raise reply
        return Answer(reply.status, reply.headers, {}, reply.body[: options["read"]])

    def publish(self, url: str = AGENT, /, **changes: Any) -> None:
        """Publish a document; a field that is `None` is left out."""
        fields = {**DOCUMENT, "client_id": url, **changes}
        self.replies[url] = answer({k: v for k, v in fields.items() if v is not None})


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """The hosts of documents. `http_call` itself has tests of its own."""
    hosts = Hosts()
    monkeypatch.setattr(http_call, "call", hosts.call)
    return hosts


def agent(app: Flask, client_id: str = AGENT, uri: str = CALLBACK) -> RelyingParty:
    return RelyingParty(app, client_id, "", uri, pkce()[0])
