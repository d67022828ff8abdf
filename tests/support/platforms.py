"""Platforms that give workloads JWTs, with the claims that their documentation lists."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

from sso import clock
from tests.support import listeners
from tests.support.actors import ISSUER
from tests.support.signing import RSA, public, sign

DISCOVERY, KEY_SET = "/.well-known/openid-configuration", "/openid/v1/jwks"
Claims = dict[str, Any]


@dataclass
class Platform:
    """An issuer, its documents, and which paths it was asked for."""

    issuer: str
    metadata: Claims
    key_set: Any = field(default_factory=lambda: {"keys": [public(RSA, alg="RS256", use="sig")]})
    replies: dict[str, Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def jwt(self, claims: Claims, **header: Any) -> str:
        """Sign claims with the issuer's key; `None` leaves one out."""
        values = {"iss": self.issuer, **claims}
        given = {name: value for name, value in values.items() if value is not None}
        return sign(given, RSA, **{"alg": "RS256", **header})


@contextmanager
def serving(folder: Path) -> Iterator[Platform]:
    """A platform on this machine, over TLS with a certificate of its own."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if reply := platform.replies.get(self.path):
                reply(self)
                return
            documents = {DISCOVERY: platform.metadata, KEY_SET: platform.key_set}
            self.send_response(200 if self.path in documents else 404)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(json.dumps(documents.get(self.path)).encode())

        def log_message(self, *_: object) -> None: ...

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        issuer = f"https://127.0.0.1:{server.server_port}"
        metadata = {
            "issuer": issuer,
            "jwks_uri": issuer + KEY_SET,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }
        platform = Platform(issuer, metadata, asked=asked)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield platform
        finally:
            server.shutdown()
            thread.join()


def certificate(folder: Path) -> Path:
    """The certificate of the platform, for whoever is to trust it."""
    path = folder / "certificate9-127.0.0.1.pem"
    return path if path.exists() else listeners.certificate(folder, 9)


def _times(seconds: int) -> Claims:
    now = int(clock.now().timestamp())
    return {"iat": now, "nbf": now, "exp": now + seconds}


def of_kubernetes(**more: Any) -> Claims:
    """A projected token of a service account (TokenRequest API)."""
    return {
        "aud": [ISSUER],
        **_times(3600),
        "jti": str(uuid4()),
        "kubernetes.io": {
            "namespace": "reports",
            "node": {"name": "node-1", "uid": str(uuid4())},
            "pod": {"name": "nightly-7c9f", "uid": str(uuid4())},
            "serviceaccount": {"name": "nightly", "uid": str(uuid4())},
        },
        "sub": "system:serviceaccount:reports:nightly",
        **more,
    }


def of_github(**more: Any) -> Claims:
    """The token of a job of GitHub Actions."""
    return {
        "jti": str(uuid4()),
        "sub": "repo:octo-org/octo-repo:environment:production",
        "environment": "production",
        "aud": ISSUER,
        "ref": "refs/heads/main",
        "sha": "example-sha",
        "repository": "octo-org/octo-repo",
        "repository_owner": "octo-org",
        "actor_id": "12",
        "repository_visibility": "private",
        "repository_id": "74",
        "repository_owner_id": "65",
        "run_id": "example-run-id",
        "run_number": "10",
        "run_attempt": "2",
        "runner_environment": "github-hosted",
        "actor": "octocat",
        "workflow": "example-workflow",
        "head_ref": "",
        "base_ref": "",
        "event_name": "workflow_dispatch",
        "ref_type": "branch",
        "job_workflow_ref": "octo-org/octo-automation/.github/workflows/oidc.yml@refs/heads/main",
        **_times(900),
        **more,
    }


def of_gitlab(**more: Any) -> Claims:
    """The ID token of a job of GitLab CI."""
    return {
        "namespace_id": "72",
        "namespace_path": "my-group",
        "project_id": "20",
        "project_path": "my-group/my-project",
        "user_id": "1",
        "user_login": "sample-user",
        "user_email": "sample-user@example.com",
        "pipeline_id": "574",
        "pipeline_source": "push",
        "job_id": "302",
        "ref": "feature-branch-1",
        "ref_type": "branch",
        "ref_path": "refs/heads/feature-branch-1",
        "ref_protected": "false",
        "groups_direct": ["mygroup/mysubgroup", "myothergroup/myothersubgroup"],
        "environment": "test-environment2",
        "environment_protected": "false",
        "deployment_tier": "testing",
        "runner_id": 1,
        "runner_environment": "self-hosted",
        "sha": "714a629c0b401fdce83e847fc9589983fc6f46bc",
        "project_visibility": "public",
        "ci_config_ref_uri": "gitlab.example.com/my-group/my-project//.gitlab-ci.yml@main",
        "jti": str(uuid4()),
        **_times(7200),
        "sub": "project_path:my-group/my-project:ref_type:branch:ref:feature-branch-1",
        "aud": ISSUER,
        **more,
    }
