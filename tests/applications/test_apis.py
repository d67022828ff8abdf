"""APIs that verify our access tokens, as docs/how-to/verify-access-tokens.md has them.

Each program runs as it stands there, beside a real server. A token by code for the right API is
accepted; what is wrong with the others is wrong with them alone: those that no server would issue
are signed with the server's own key.
"""

import base64
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from flask import Flask

from sso import audit, context, create_app
from sso.crypto import keys
from sso.extensions import db
from sso.services import apis
from sso.store import apis as stored_apis
from tests.applications.software import go, java, node, node_program, python, stop
from tests.clients.test_independent_client import sign_in_and_allow
from tests.clients.test_readme import block
from tests.support.actors import RelyingParty, claims_of, header_of
from tests.support.factories import PASSWORD, make_api, make_client, make_user, rotate
from tests.support.processes import Server, free_port, require, wait_for
from tests.support.proofs import LEFT_OUT, DPoP, make_key, sign

PAGE = "docs/how-to/verify-access-tokens.md"
DOCS, MAPS = "https://docs.example", "https://maps.example"
CALLBACK = "http://127.0.0.1:9/callback"
large = pytest.mark.skipif("APPLICATIONS_LARGE" not in os.environ, reason="takes minutes")


class Issuer:
    """A server with two APIs, and an application that gets tokens for them by code.

    `app` is the same server in this process: it registers, and signs what the server would not.
    """

    def __init__(self, server: Server, app: Flask) -> None:
        self.server, self.app = server, app
        make_user(app, password=PASSWORD)
        for identifier in (DOCS, MAPS):
            make_api(app, identifier)
        with app.app_context():
            api, secret = apis.rotate_secret(
                audit.SYSTEM, stored_apis.matching(DOCS).rows[0].api_id
            )
            db.session.commit()
            self.credentials = f"{api.api_id}:{secret}"
        self.client: RelyingParty = make_client(
            app, redirect_uris=[CALLBACK], apis=[DOCS, MAPS], first_party=True
        )

    def tokens(self, headers: dict[str, str] | None = None, **more: str) -> dict[str, Any]:
        """The tokens that the application gets by code."""
        asked = {"resource": DOCS, "scope": "openid read", **more}
        query = self.client.parameters(**{k: v for k, v in asked.items() if v})
        url = requests.Request("GET", f"{self.server.base_url}/oauth2/authorize", params=query)
        arrived = sign_in_and_allow(url.prepare().url or "", CALLBACK)
        form = {
            "grant_type": "authorization_code",
            "code": parse_qs(urlsplit(arrived).query)["code"][0],
            "redirect_uri": CALLBACK,
        }
        return self._ask_for_tokens(form, headers)

    def _ask_for_tokens(
        self, form: dict[str, str], headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        answer = requests.post(
            f"{self.server.base_url}/oauth2/token",
            data={**form, **self.client.credentials()},
            headers=headers,
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    @cached_property
    def good(self) -> dict[str, Any]:
        """The tokens for documents, which may be read."""
        return self.tokens()

    def signed(self, typ: str = "at+jwt", **claims: Any) -> str:
        """An access token with other claims, signed with the server's own key."""
        claims = {**claims_of(self.good["access_token"]), **claims}
        kept = {name: value for name, value in claims.items() if value is not LEFT_OUT}
        with self.app.app_context():
            return context.key_ring().sign(kept, keys.ACCESS_TOKEN_ALGORITHM, typ)

    def with_a_new_key(self) -> str:
        """A token signed with a key that was not even published when this began."""
        tokens = self.tokens()
        before = header_of(tokens["access_token"])["kid"]
        with self.app.app_context():
            for _ in range(2):
                rotate(context.settings().secret_keys, force=True)

        def is_new() -> bool:
            form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
            tokens.update(self._ask_for_tokens(form))
            return bool(header_of(tokens["access_token"])["kid"] != before)

        wait_for(is_new, "the new key", pause=0.5)
        return str(tokens["access_token"])


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    folder = tmp_path_factory.mktemp("issuer")
    server = Server(folder, workers=1)
    with server.running():
        environ = {k: v for k, v in server.environ.items() if k.startswith("SSO_")}
        yield Issuer(server, create_app(environ, folder))


def written(folder: Path, *beginnings: str) -> None:
    """Write blocks of the page to files, whose names are in their first lines."""
    for beginning in beginnings:
        text = block(beginning, PAGE)
        name = beginning.removeprefix('"""').removeprefix("// ").partition(":")[0]
        (folder / name).write_text(text)


ACCESS_TOKENS = '"""access_tokens.py: verify access tokens of ISSUER that are for this API."""'
PROOFS = '"""proofs.py: check the DPoP proof that comes with a token that is bound to a key."""'
FLASK = '"""api_flask.py: an API in Flask, protected by Authlib."""'
FASTAPI = '"""api_fastapi.py: an API in FastAPI that also takes tokens bound by DPoP."""'
DJANGO = '"""api_django.py: an API in Django REST framework."""'
EXPRESS = "// api.mjs: an API in Express."
ACCESS = "// access.js: ask the server about the access token of a request."
NGINX = "# For nginx.conf, within http."
MODULE = Path("/usr/lib/nginx/modules/ngx_http_js_module.so")
POM = '<project xmlns="http://maven.apache.org/POM/4.0.0">'
SPRING = "// Api.java: an API in Spring."
GO = "// An API in Go, with github.com/coreos/go-oidc/v3."


def _flask(folder: Path) -> list[Path | str]:
    written(folder, ACCESS_TOKENS, FLASK)
    return [python("authlib") / "bin/python", folder / "api_flask.py"]


def _fastapi(folder: Path) -> list[Path | str]:
    written(folder, ACCESS_TOKENS, PROOFS, FASTAPI)
    return [python("authlib") / "bin/python", folder / "api_fastapi.py"]


def _django(folder: Path) -> list[Path | str]:
    written(folder, ACCESS_TOKENS, DJANGO)
    return [python("django-rest") / "bin/python", folder / "api_django.py"]


def _express(folder: Path) -> list[Path | str]:
    (folder / "node_modules").symlink_to(node("express") / "node_modules")
    written(folder, EXPRESS)
    return [node_program(), folder / "api.mjs"]


def _go(folder: Path) -> list[Path | str]:
    (folder / "api.go").write_text(block(GO, PAGE))
    return [go(folder / "api.go")]


def _spring(folder: Path) -> list[Path | str]:
    (folder / "pom.xml").write_text(block(POM, PAGE))
    written(folder, SPRING)
    program = java("spring", folder / "pom.xml", folder / "Api.java")
    start = folder / "start"
    start.write_text(f"exec java -jar {program} --server.port=$PORT --server.address=127.0.0.1\n")
    return ["/bin/sh", start]


def _nginx(folder: Path) -> list[Path | str]:
    """nginx, and behind it an API that shows the user that nginx found."""
    written(folder, ACCESS)
    backend = free_port()
    changes = {
        "js_path /etc/nginx;": f"js_path {folder};",
        "https://sso.example.com/api/auth": "$ISSUER",
        "api-…:…": "$CREDENTIALS",
        "listen 8001;": "listen 127.0.0.1:$PORT;",
        "127.0.0.1:9000": f"127.0.0.1:{backend}",
    }
    text = block(NGINX, PAGE)
    for example, own in changes.items():
        assert example in text
        text = text.replace(example, own)
    paths = " ".join(
        f"{name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    answer = 'return 200 \'{"user": "$http_x_user"}\';'
    module = require("nginx's JavaScript module", str(MODULE) if MODULE.exists() else None)
    (folder / "nginx.template").write_text(
        f"load_module {module}; daemon off; pid {folder}/pid; error_log stderr;\n"
        f"events {{}} http {{ access_log off; {paths}\n{text}\n"
        f"server {{ listen 127.0.0.1:{backend}; default_type application/json; {answer} }} }}\n"
    )
    nginx = require("nginx", shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"))
    start = folder / "start"
    start.write_text(
        f"for name in ISSUER CREDENTIALS PORT; do\n"
        f'  eval "value=\\$$name"; sed -i "s|[$]$name|$value|" {folder}/nginx.template\n'
        f"done\nexec {nginx} -e stderr -c {folder}/nginx.template\n"
    )
    return ["/bin/sh", start]


# Answers with the user that Envoy sends.
BACKEND = """
import http.server, json, sys

class Backend(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"user": self.headers.get("x-user")}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Backend).serve_forever()
"""
ENVOY_LISTENER = """
static_resources:
  listeners:
    - address: {{ socket_address: {{ address: 127.0.0.1, port_value: $PORT }} }}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: api
                route_config:
                  virtual_hosts:
                    - name: api
                      domains: ["*"]
                      routes: [{{ match: {{ prefix: / }}, route: {{ cluster: api }} }}]
{filters}
  clusters:
    - name: sso
      connect_timeout: 5s
      load_assignment: {{ cluster_name: sso, endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address:
        {{ socket_address: {{ address: 127.0.0.1, port_value: $SSO_PORT }} }} }} }}] }}] }}
    - name: api
      connect_timeout: 5s
      load_assignment: {{ cluster_name: api, endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address:
        {{ socket_address: {{ address: 127.0.0.1, port_value: {backend} }} }} }} }}] }}] }}
"""  # noqa: E501


def _envoy(folder: Path) -> list[Path | str]:
    """Envoy, and behind it an API that shows the user that Envoy found."""
    backend = free_port()
    text = block("http_filters:", PAGE)
    changes = {
        "https://sso.example.com/api/auth": "$ISSUER",
        "https://docs.example.com": DOCS,  # twice
        "cache_duration: 300s": "cache_duration: 1s",  # a test replaces the key at once
    }
    for example, own in changes.items():
        assert example in text
        text = text.replace(example, own)
    filters = textwrap.indent(text, 16 * " ")
    (folder / "backend.py").write_text(BACKEND)
    (folder / "envoy.yaml").write_text(ENVOY_LISTENER.format(filters=filters, backend=backend))
    start = folder / "start"
    start.write_text(
        f"{sys.executable} {folder}/backend.py {backend} &\n"
        "SSO_PORT=$(echo $ISSUER | sed 's|.*:\\([0-9]*\\)/.*|\\1|')\n"
        f'sed -i "s|[$]SSO_PORT|$SSO_PORT|; s|[$]ISSUER|$ISSUER|; s|[$]PORT|$PORT|" '
        f"{folder}/envoy.yaml\n"
        f"exec {python('envoy')}/bin/envoy -c {folder}/envoy.yaml --concurrency 1 "
        "--use-dynamic-base-id --log-level warning\n"
    )
    return ["/bin/sh", start]


PROGRAMS: dict[str, Callable[[Path], list[Path | str]]] = {
    "Flask": _flask,
    "FastAPI": _fastapi,
    "Django": _django,
    "Express": _express,
    "nginx": _nginx,
    "Envoy": _envoy,
    "Go": _go,
    "Spring": _spring,
}


class Api:
    """A program that serves `/documents` to whoever has a token with the scope `read`."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self.url = name, f"http://127.0.0.1:{port}/documents"

    def ask(self, token: str | None, scheme: str = "Bearer", **headers: str) -> requests.Response:
        if token is not None:
            headers["Authorization"] = f"{scheme} {token}"
        return requests.get(self.url, headers=headers, timeout=60)


@contextmanager
def running(command: list[Path | str], folder: Path, port: int, **environ: str) -> Iterator[None]:
    """Start a program, wait until it listens, stop it in the end."""
    log = folder / "output"
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**inherited, "PORT": str(port), **environ},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(listens, str(command[0]))
        yield
    except BaseException as error:
        error.add_note(log.read_text()[-4000:])
        raise
    finally:
        stop(process)  # JupyterHub has to end its proxy


LARGE = {"Spring"}
RARE = {"FastAPI", "Django", "Envoy"}
MARKS = {**dict.fromkeys(LARGE, large), **dict.fromkeys(RARE, pytest.mark.exhaustive)}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=MARKS.get(name, ())) for name in PROGRAMS],
)
def api(
    request: pytest.FixtureRequest, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    folder, port = tmp_path_factory.mktemp("api"), free_port()
    command = PROGRAMS[request.param](folder)
    environ = {
        "ISSUER": issuer.server.base_url,
        "AUDIENCE": DOCS,
        "CREDENTIALS": issuer.credentials,
    }
    with running(command, folder, port, **environ):
        yield Api(request.param, port)


def part(content: Any) -> str:
    """A part of a JWT."""
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def altered(token: str) -> str:
    """With a scope that it did not have, under the signature that it had."""
    head, _, signature = token.split(".")
    return f"{head}.{part({**claims_of(token), 'scope': 'read write admin'})}.{signature}"


def unsigned(token: str) -> str:
    return f"{part({**header_of(token), 'alg': 'none'})}.{token.split('.')[1]}."


def signed_with_the_public_key(issuer: Issuer, token: str) -> str:
    """HS256, with what everybody knows as the secret (RFC 8725 §2.1)."""
    header = {**header_of(token), "alg": "HS256"}
    url = f"{issuer.server.base_url}/oauth2/jwks"
    [jwk] = [k for k in requests.get(url, timeout=60).json()["keys"] if k["kid"] == header["kid"]]
    text = f"{part(header)}.{token.split('.')[1]}"
    mac = hmac.digest(json.dumps(jwk).encode(), text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def of_another_issuer(issuer: Issuer, **claims: Any) -> str:
    """Signed with a key that the server does not have, under the name of one that it has."""
    token = issuer.good["access_token"]
    return sign(header_of(token), {**claims_of(token), **claims}, make_key())


REFUSED: dict[str, Callable[[Issuer], str]] = {
    "wrong audience": lambda issuer: issuer.tokens(resource=MAPS)["access_token"],
    "for userinfo": lambda issuer: issuer.tokens(resource="")["access_token"],
    "identity token": lambda issuer: issuer.good["id_token"],
    "refresh token": lambda issuer: issuer.good["refresh_token"],
    "expired": lambda issuer: issuer.signed(exp=int(time.time()) - 600),
    "without exp": lambda issuer: issuer.signed(exp=LEFT_OUT),
    "another audience, signed": lambda issuer: issuer.signed(aud=f"{DOCS}/"),
    "without aud": lambda issuer: issuer.signed(aud=LEFT_OUT),
    "another iss, same key": lambda issuer: issuer.signed(iss="https://other.example"),
    "longer iss": lambda issuer: issuer.signed(iss=issuer.server.base_url + "/"),
    "other typ": lambda issuer: issuer.signed(typ="JWT"),
    "altered": lambda issuer: altered(issuer.good["access_token"]),
    "another key": of_another_issuer,
    "another issuer": lambda issuer: of_another_issuer(issuer, iss="https://other.example"),
    "alg none": lambda issuer: unsigned(issuer.good["access_token"]),
    "alg HS256": lambda issuer: signed_with_the_public_key(issuer, issuer.good["access_token"]),
    "no JWT": lambda _: "nonsense",
    "dots": lambda _: "..",
    "not UTF-8": lambda _: "w6k.\u00e9.x",
}


# 401 is for tokens that are not of the issuer, or have expired.
FORBIDDEN_BY_ENVOY = {
    "wrong audience", "for userinfo", "identity token", "another audience, signed", "without aud",
    "other typ",
}  # fmt: skip


def test_a_token_for_this_api_is_accepted(api: Api, issuer: Issuer) -> None:
    token = issuer.tokens()["access_token"]
    answer = api.ask(token)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"user": claims_of(token)["sub"]}
    # One that this test signed is as good, but to the server, which does not know it.
    signed = issuer.signed(scope="write read")
    assert api.ask(signed).status_code == (401 if api.name == "nginx" else 200)


@pytest.mark.parametrize("what", REFUSED)
def test_any_other_token_is_refused(api: Api, issuer: Issuer, what: str) -> None:
    answer = api.ask(REFUSED[what](issuer).encode("latin-1").decode("latin-1"))
    status = 403 if api.name == "Envoy" and what in FORBIDDEN_BY_ENVOY else 401
    assert answer.status_code == status, (what, answer.text)


def test_a_user_that_the_client_names(api: Api, issuer: Issuer) -> None:
    """Proxies tell the API behind them who the user is by a header."""
    token = issuer.tokens()["access_token"]
    for name in ("X-User", "x-user", "X_User"):
        answer = api.ask(token, **{name: "somebody else"})
        assert answer.json() == {"user": claims_of(token)["sub"]}


def test_no_token(api: Api) -> None:
    answer = api.ask(None)
    assert answer.status_code == 401
    assert api.ask("eA==", "Basic").status_code == 401


@pytest.mark.parametrize("scope", ["openid write", "openid"])
def test_another_scope(api: Api, issuer: Issuer, scope: str) -> None:
    assert api.ask(issuer.tokens(scope=scope)["access_token"]).status_code == 403


def test_a_stolen_token_that_is_bound_to_a_key(api: Api, issuer: Issuer) -> None:
    dpop = DPoP()
    url = f"{issuer.server.base_url}/oauth2/token"
    bound = issuer.tokens({"DPoP": dpop.proof(htu=url, iat=int(time.time()))})["access_token"]
    assert claims_of(bound)["cnf"] == {"jkt": dpop.jkt}
    assert api.ask(bound).status_code == (403 if api.name == "Envoy" else 401)
    if api.name != "FastAPI":
        return

    def ask(key: DPoP = dpop, token: str = bound, **claims: Any) -> int:
        claims = {"htm": "GET", "htu": api.url, "iat": int(time.time()), **claims}
        proof = key.proof(token=token, **claims)
        return api.ask(bound, "DPoP", DPoP=proof).status_code

    assert ask(jti="one") == 200
    assert ask(jti="one") == 401
    assert ask(DPoP()) == 401
    assert ask(htm="POST") == 401
    assert ask(htu=api.url + "/x") == 401
    assert ask(iat=int(time.time()) - 300) == 401
    assert ask(token="another") == 401
    assert api.ask(bound, "DPoP").status_code == 401
    assert api.ask(issuer.good["access_token"], "DPoP").status_code == 401


def test_a_new_key(api: Api, issuer: Issuer) -> None:
    """The last test of each program: it read the key set before."""
    before = issuer.tokens()["access_token"]
    assert api.ask(before).status_code == 200
    after = issuer.with_a_new_key()
    assert header_of(after)["kid"] != header_of(before)["kid"]
    wait_for(lambda: api.ask(after).status_code == 200, "the new key at the API", pause=0.5)
    assert api.ask(before).status_code == 200
