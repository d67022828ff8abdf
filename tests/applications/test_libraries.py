"""Applications that are not run here: their libraries sign in, called as they call them."""

import os
from pathlib import Path

import pytest

from sso.presets import loader
from tests.applications.conftest import ADMINS, DANA, Connect
from tests.applications.software import go, node, node_program, rust
from tests.applications.test_high_assurance import environ_of, sign_in_by
from tests.support.processes import Server

PROGRAMS = Path(__file__).parent / "programs"
with_cargo = pytest.mark.skipif("APPLICATIONS_LARGE" not in os.environ, reason="takes minutes")


@pytest.mark.parametrize(
    "preset",
    ["argocd", "gitea", "oauth2-proxy", "outline", "portainer",
     pytest.param("vaultwarden", marks=with_cargo)],
)  # fmt: skip
def test_identity_tokens(server: Server, connect: Connect, tmp_path: Path, preset: str) -> None:
    registered = connect(preset).registered
    assert registered["id_token_signed_response_alg"] == "ES256"
    callback = registered["redirect_uris"][0]
    environ = {
        **environ_of(server, registered),
        "APPLICATION": preset,
        "REDIRECT_URI": callback,
        "SCOPE": registered["scope"],
    }
    found = sign_in_by(program(preset, tmp_path), environ, callback, pushed=False)
    assert found["iss"] == server.base_url
    assert registered["client_id"] in (found["aud"], *found["aud"])
    if preset == "argocd":  # it reads nothing else
        assert found["groups"] == [ADMINS, "staff"]
    if preset == "gitea":  # its library reads userinfo, too
        assert found["email"] == DANA.email


def program(preset: str, folder: Path) -> list[str | Path]:
    if preset == "vaultwarden":
        return [rust(PROGRAMS / "libraries.rs")]
    if preset == "outline":
        (folder / "node_modules").symlink_to(node("outline") / "node_modules")
        source = folder / "outline.mjs"
        source.write_text((PROGRAMS / source.name).read_text())
        return [node_program(), source]
    return [go(PROGRAMS / "libraries.go")]


@pytest.mark.parametrize(
    "preset", ["caddy-oauth2-proxy", "nginx-oauth2-proxy", "traefik-oauth2-proxy"]
)
def test_applications_behind_oauth2_proxy_are_registered_like_it(preset: str) -> None:
    assert loader.load(preset).registration == loader.load("oauth2-proxy").registration
