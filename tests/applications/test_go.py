"""Applications in Go, without the applications: their libraries, called as they call them."""

from pathlib import Path

import pytest

from sso.presets import loader
from tests.applications.conftest import ADMINS, DANA, Connect
from tests.applications.software import go
from tests.applications.test_high_assurance import environ_of, sign_in_by
from tests.support.processes import Server

PROGRAM = Path(__file__).parent / "programs" / "go_libraries.go"


@pytest.mark.parametrize("preset", ["argocd", "gitea", "oauth2-proxy", "portainer"])
def test_identity_tokens(server: Server, connect: Connect, preset: str) -> None:
    registered = connect(preset).registered
    assert registered["id_token_signed_response_alg"] == "ES256"
    callback = registered["redirect_uris"][0]
    environ = {
        **environ_of(server, registered),
        "APPLICATION": preset,
        "REDIRECT_URI": callback,
        "SCOPE": registered["scope"],
    }
    found = sign_in_by([go(PROGRAM)], environ, callback, pushed=False)
    assert found["iss"] == server.base_url
    assert found["aud"] == registered["client_id"]
    if preset == "argocd":  # it reads nothing else
        assert found["groups"] == [ADMINS, "staff"]
    if preset == "gitea":  # its library reads userinfo, too
        assert found["email"] == DANA.email


@pytest.mark.parametrize("preset", ["caddy", "nginx", "traefik"])
def test_applications_behind_oauth2_proxy_are_registered_like_it(preset: str) -> None:
    assert loader.load(preset).registration == loader.load("oauth2-proxy").registration
