"""Accounts at identity providers, listed and removed by an operator."""

import json
from typing import Any

import pytest
from flask import Flask

from sso.config.upstream.file import Upstreams
from sso.store import users
from tests.support.administration import link_identity
from tests.support.events import events
from tests.support.factories import make_user
from tests.support.upstreams import provider


def test_listed_and_removed(app: Flask) -> None:
    app.extensions["sso.upstreams"] = Upstreams([provider(trust_email=False)])
    dana = make_user(app, password=None)
    known = [link_identity(app, dana, subject=one, email="d@corp.example") for one in "ab"]

    def run(*arguments: str, ok: bool = True) -> Any:
        done = app.test_cli_runner().invoke(args=["user", *arguments])
        assert (done.exit_code == 0) == ok, done.output
        return done

    listed = {one["id"]: one for one in json.loads(run("identities", "dana", "--json").stdout)}
    assert set(listed) == {str(one) for one in known}
    assert listed[str(known[0])] | {"id": "", "since": ""} == {
        "id": "", "provider": "corp", "issuer": "https://corp.example", "subject": "a",
        "email": "d@corp.example", "since": "", "last_used_at": None,
    }  # fmt: skip
    assert "d@corp.example" in run("identities", dana.email).stdout
    assert "in full" in run("unlink", "dana", "corp", "--yes", ok=False).stderr
    assert "several accounts corp" in run("unlink", dana.email, "corp", "--yes", ok=False).stderr
    assert "no account x" in run("unlink", dana.email, "x", "--yes", ok=False).stderr
    assert "add --yes" in run("unlink", dana.email, str(known[0]), ok=False).stderr
    run("unlink", dana.email, str(known[0]), "--yes")
    done = json.loads(run("unlink", dana.email, "corp", "--yes", "--json").stdout)
    assert (done["identity"], done["provider"]) == (str(known[1]), "corp")
    assert len(events(app, "identity_unlinked")) == 2
    assert json.loads(run("identities", dana.email, "--json").stdout) == []
    with app.app_context():
        assert users.find(dana.id)


def test_the_last_way_in_is_named_before(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    app.extensions["sso.upstreams"] = Upstreams([provider()])
    dana = make_user(app, password=None)
    link_identity(app, dana)
    asked: list[str] = []
    monkeypatch.setattr("sso.cli.users.confirm", lambda text, yes: asked.append(text))
    done = app.test_cli_runner().invoke(args=["user", "unlink", dana.email, "corp"])
    assert done.exit_code == 0, done.output
    assert "only way to sign in" in asked[0]
    assert "provider is trusted" in asked[0]
