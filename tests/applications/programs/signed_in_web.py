"""A web application with Flask and Authlib: it reads its configuration and the server's once.

It keeps the server's metadata, its key set and people's tokens in memory, as long as it runs.
Usage: signed_in_web.py CONFIGURATION.json PORT
"""

import json
import sys
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import requests
from authlib.integrations.flask_client import OAuth
from flask import Flask, redirect, request, session
from werkzeug.wrappers import Response

configuration = json.loads(Path(sys.argv[1]).read_text())
port = int(sys.argv[2])
own_url = f"http://127.0.0.1:{port}"
application = Flask(__name__)
application.secret_key = "the application's own"
application.config["SESSION_COOKIE_NAME"] = f"application_{port}"
server = OAuth(application).register(
    "server",
    server_metadata_url=f"{configuration['issuer']}/.well-known/openid-configuration",
    client_id=configuration["client_id"],
    client_secret=configuration.get("client_secret"),
    client_kwargs={"scope": configuration["scope"], "code_challenge_method": "S256"},
)
tokens: dict[str, dict[str, Any]] = {}  # by user name


@application.get("/")
def index() -> str:
    return "ready"


@application.get("/sign-in")
def sign_in() -> Response:
    sent: Response = server.authorize_redirect(f"{own_url}/callback", **request.args)
    return sent


@application.get("/callback")
def callback() -> dict[str, Any]:
    """Sign in, with all that Authlib checks: state, nonce, issuer, signature, audience, times."""
    token = server.authorize_access_token()
    claims = {**token["userinfo"], **server.userinfo(token=token)}
    session["name"] = claims["preferred_username"]
    tokens[session["name"]] = token
    header = json.loads(_decoded(token["id_token"].split(".")[0]))
    return {"claims": claims, "scope": token.get("scope"), "header": header}


@application.get("/refresh/<name>")
def refresh(name: str) -> dict[str, Any]:
    """Use the stored refresh token of a person; give the server's error if it refuses it."""
    form = {"grant_type": "refresh_token", "refresh_token": tokens[name]["refresh_token"]}
    if not (secret := configuration.get("client_secret")):
        form["client_id"] = configuration["client_id"]
    answer = requests.post(
        server.load_server_metadata()["token_endpoint"], data=form, timeout=60,
        auth=(configuration["client_id"], secret) if secret else None,
    )  # fmt: skip
    if not answer.ok:
        return {"status": answer.status_code, "error": answer.json()["error"]}
    tokens[name] |= answer.json()
    return {"claims": server.userinfo(token=tokens[name])}


@application.get("/userinfo/<name>")
def userinfo(name: str) -> dict[str, Any]:
    """Ask userinfo with the stored access token of a person."""
    headers = {"Authorization": f"Bearer {tokens[name]['access_token']}"}
    url = server.load_server_metadata()["userinfo_endpoint"]
    return {"status": requests.get(url, headers=headers, timeout=60).status_code}


@application.get("/sign-out/<name>")
def sign_out(name: str) -> Response:
    """Sign out here and there, with the stored identity token."""
    metadata = server.load_server_metadata()
    hint = tokens.pop(name)["id_token"]
    return redirect(
        f"{metadata['end_session_endpoint']}?id_token_hint={hint}"
        f"&post_logout_redirect_uri={own_url}/"
    )


def _decoded(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


application.run("127.0.0.1", port)
