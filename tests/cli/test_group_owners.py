"""Owners of groups by command, and in a file."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask

from sso.store import named_groups
from tests.support.factories import make_user


@pytest.fixture
def run(app: Flask) -> Callable[..., Result]:
    return lambda *arguments: app.test_cli_runner().invoke(args=arguments)


@pytest.fixture
def apply(app: Flask, tmp_path: Path) -> Callable[..., Result]:
    def write_and_apply(text: str, *options: str) -> Result:
        path = tmp_path / "sso.toml"
        path.write_text(f"format = 1\n{text}")
        return app.test_cli_runner().invoke(args=("apply", str(path), *options))

    return write_and_apply


def owners(app: Flask) -> dict[str, list[str]]:
    with app.app_context():
        return named_groups.owners_by_group()


def test_the_commands(app: Flask, run: Callable[..., Result]) -> None:
    dana = make_user(app, groups=["team"])
    assert run("group", "owners", "team").stdout == "Nobody owns the group team.\n"
    result = run("group", "add-owner", "team", "dana@example.com")
    assert result.exit_code == 0, result.stderr
    assert "dana@example.com" in result.stdout
    (owner,) = json.loads(run("group", "owners", "team", "--json").stdout)["owners"]
    assert owner == {"id": str(dana.id), "email": "dana@example.com"}
    run("user", "disable", "dana@example.com")
    assert "disabled" in run("group", "owners", "team").stdout
    result = run("group", "remove-owner", "team", str(dana.id), "--json")
    assert json.loads(result.stdout)["owners"] == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("owners", "nowhere"), "there is no group nowhere"),
        (("add-owner", "nowhere", "dana@example.com"), "there is no group nowhere"),
        (("add-owner", "team", "nobody@example.com"), "nobody@example.com"),
        (("remove-owner", "team", "dana@example.com"), "does not own the group team"),
        (("add-owner", "sso-helpdesk", "dana@example.com"), "gives rights in the administration"),
    ],
)
def test_what_the_commands_refuse(
    app: Flask, run: Callable[..., Result], arguments: tuple[str, ...], error: str
) -> None:
    make_user(app, groups=["team", "sso-helpdesk"])
    result = run("group", *arguments)
    assert result.exit_code == 1
    assert error in result.stderr
    assert owners(app) == {}


TEAM = '[[groups]]\nname = "team"\nowners = ["Dana@example.com"]\n'
DANA = '[[users]]\nemail = "dana@example.com"\nname = "Dana"\nemail_verified = true\n'


def test_a_file_declares_owners(app: Flask, apply: Callable[..., Result]) -> None:
    """The group and its owner may be new."""
    result = apply(DANA + TEAM, "--plan")
    assert "+ group team\n    owners: ['dana@example.com']" in result.stdout
    assert owners(app) == {}
    result = apply(DANA + TEAM)
    assert result.exit_code == 0, result.stderr
    assert owners(app) == {"team": ["dana@example.com"]}
    assert "Everything is as the file says." in apply(TEAM).stdout
    twice = TEAM.replace('@example.com"', '@example.com", "dana@example.com "')
    assert twice != TEAM
    assert "Everything is as the file says." in apply(twice).stdout
    make_user(app, "erin@example.com")
    result = apply('[[groups]]\nname = "team"\nowners = ["erin@example.com"]\n')
    assert "~ group team" in result.stdout
    assert owners(app) == {"team": ["erin@example.com"]}
    assert apply('[[groups]]\nname = "team"\n').exit_code == 0  # as they are
    assert owners(app) == {"team": ["erin@example.com"]}
    apply('[[groups]]\nname = "team"\nowners = []\n')
    assert owners(app) == {}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (TEAM, "groups team: there is no user dana@example.com"),
        ('[[groups]]\nname = "team"\nowners = "x"\n', "groups team"),
        ('[[groups]]\nname = "team"\nmembers = []\n', "'members' is unknown"),
        ('[[groups]]\nowners = []\n', "name is missing"),
        (TEAM + TEAM, "is there twice"),
        ('[[groups]]\nname = "a,b"\nowners = []\n', "groups a,b"),
        (DANA + TEAM.replace("team", "sso-administrators"), "gives rights in the administration"),
    ],
)  # fmt: skip
def test_what_a_file_may_not_say(
    app: Flask, apply: Callable[..., Result], text: str, error: str
) -> None:
    for options in ((), ("--plan",)):
        result = apply(text, *options)
        assert result.exit_code == 1
        assert error in result.stderr
    assert owners(app) == {}


def test_the_export_has_owners(
    app: Flask, run: Callable[..., Result], apply: Callable[..., Result]
) -> None:
    make_user(app, groups=["team"])
    assert "groups" not in tomllib.loads(run("export").stdout)
    apply(TEAM)
    content: dict[str, Any] = tomllib.loads(run("export").stdout)
    assert content["groups"] == [{"name": "team", "owners": ["dana@example.com"]}]
    assert (
        "Everything is as the file says."
        in apply(run("export").stdout.partition("format = 1\n")[2]).stdout
    )


def test_an_owner_whom_prune_deletes(app: Flask, apply: Callable[..., Result]) -> None:
    make_user(app, "erin@example.com")
    text = DANA + '[[groups]]\nname = "team"\nowners = ["erin@example.com"]\n'
    result = apply(text, "--prune", "--yes")
    assert result.exit_code == 1
    assert "groups team: there is no user erin@example.com" in result.stderr
    assert owners(app) == {}
    assert apply(DANA + TEAM, "--prune", "--yes").exit_code == 0
    assert owners(app) == {"team": ["dana@example.com"]}
