"""A client with the official Python SDK: `mcp_client.py URL CALLBACK [DOCUMENT]`.

It prints the URL for the person's browser, reads the URL at which the browser ended, and calls the
tool `latest`.
"""

import asyncio
import json
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata


class Storage:
    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


async def redirect(address: str) -> None:
    print(address, flush=True)  # noqa: T201 (its test reads it)


async def arrived() -> Any:
    query = parse_qs(urlsplit(sys.stdin.readline().strip()).query)
    [code], [state], [iss] = query["code"], query["state"], query["iss"]
    return AuthorizationCodeResult(code=code, state=state, iss=iss)


async def main(url: str, callback: str, document: str | None = None) -> None:
    storage = Storage()
    auth = OAuthClientProvider(
        url,
        OAuthClientMetadata.model_validate(
            {"client_name": "Python SDK", "redirect_uris": [callback]}
        ),
        storage,
        redirect,
        arrived,
        client_metadata_url=document,
    )
    async with (
        httpx2.AsyncClient(auth=auth, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        result: Any = await client.call_tool("latest")
    said = {"text": result.content[0].text, "client_id": storage.client.client_id}
    print(json.dumps({**said, "scope": storage.tokens.scope}))  # noqa: T201


asyncio.run(main(*sys.argv[1:]))
