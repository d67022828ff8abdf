"""`flask client` and public clients: registered without a secret, and public for good."""

from typing import Any

import pytest
from click.testing import Result
from flask import Flask

from tests.cli.test_commands import parsed
from tests.support.actors import RelyingParty
from tests.support.factories import make_client

CREATE = ("client", "create", "--name", "CLI", "--redirect-uri", "http://127.0.0.1/cb", "--public")


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str) -> Result:
        return app.test_cli_runner().invoke(args=arguments)

    return invoke


@pytest.fixture
def public(app: Flask) -> RelyingParty:
    return make_client(app, redirect_uris=["com.example.app:/cb"], public=True)


def test_it_is_registered_by_rfc_7591_names_and_has_no_secret(run: Any) -> None:
    made = parsed(run(*CREATE, "--json"))
    assert made["token_endpoint_auth_method"] == "none"
    assert made["require_pkce"] is True
    assert not [name for name in made if "secret" in name]
    shown = parsed(run("client", "show", made["client_id"], "--json"))
    assert not [name for name in shown if "secret" in name]
    text = run(*CREATE).stdout
    assert "client_secret" not in text
    assert "It is public: it has no secret and has to use PKCE." in text


def test_a_list_tells_them_apart(run: Any, client: RelyingParty, public: RelyingParty) -> None:
    heading, *rows = [line.split() for line in run("client", "list").stdout.splitlines()]
    at = heading.index("PUBLIC")
    assert {row[0]: row[at] for row in rows} == {client.client_id: "no", public.client_id: "yes"}


@pytest.mark.parametrize("method", ["any", "client_secret_post", "client_secret_basic"])
def test_a_secret_is_a_contradiction(run: Any, method: str) -> None:
    result = run(*CREATE, "--auth-method", method)
    assert result.exit_code == 2
    assert "--public contradicts --auth-method" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rotate-secret",), "a public client has no secret"),
        (("rotate-secret", "--keep-old", "1"), "a public client has no secret"),
        (("update", "--auth-method", "any"), "stays public or confidential"),
        (("update", "--no-require-pkce"), "a public client always requires PKCE"),
    ],
)
def test_it_stays_public(
    run: Any, public: RelyingParty, arguments: tuple[str, ...], words: str
) -> None:
    command, *options = arguments
    result = run("client", command, public.client_id, *options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert parsed(run("client", "show", public.client_id, "--json"))["require_pkce"] is True


def test_a_confidential_client_gets_no_private_use_scheme(run: Any, client: RelyingParty) -> None:
    add = ("--add-redirect-uri", "com.example.app:/cb")
    result = run("client", "update", client.client_id, *add)
    assert result.exit_code == 1
    assert "only public clients may have another scheme" in result.stderr


def test_its_addresses_are_changed_like_others(run: Any, public: RelyingParty) -> None:
    uri = "com.example.app:/other"
    changed = parsed(run("client", "update", public.client_id, "--add-redirect-uri", uri, "--json"))
    assert changed["redirect_uris"] == ["com.example.app:/cb", uri]
