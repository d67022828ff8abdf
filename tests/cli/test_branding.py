"""`flask branding`, and where `flask settings` says that values come from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask

from tests.support.events import events
from tests.support.logos import PNG

Run = Callable[..., Result]


@pytest.fixture
def run(app: Flask) -> Run:
    def invoke(*arguments: str, code: int = 0) -> Result:
        done = app.test_cli_runner().invoke(args=["branding", *arguments])
        assert done.exit_code == code, done.stderr
        return done

    return invoke


def values(run: Run) -> dict[str, Any]:
    entries = json.loads(run("show", "--json").stdout)
    return {name: (entry["value"], entry["source"]) for name, entry in entries.items()}


def test_set_show_and_reset(app: Flask, run: Run, tmp_path: Path) -> None:
    (tmp_path / "logo").write_bytes(PNG)
    printed = run("set", "--name", "Acme", "--logo", str(tmp_path / "logo")).stdout
    assert "name: - -> Acme" in printed
    nothing = (None, "default")
    assert values(run) == {
        "name": ("Acme", "database"),
        "logo": (f"image/png, {len(PNG)} bytes", "database"),
        **dict.fromkeys(("accent_color", "support_url", "privacy_url", "terms_url"), nothing),
    }
    changed = json.loads(run("set", "--accent-color", "#C8102E", "--name", "", "--json").stdout)
    assert changed["changes"].keys() == {"name", "accent_color"}
    assert values(run)["accent_color"] == ("#c8102e", "database")
    run("reset", "logo", "--yes")
    assert values(run)["logo"] == nothing
    run("reset", "--yes")
    assert set(values(run).values()) == {nothing}
    assert [entry["what"] for entry in events(app, "branding_changed")] == [
        "name logo", "name accent_color", "logo", "accent_color",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("set",), 2, "give an option"),
        (("set", "--accent-color", "#777777"), 1, "--accent-color: its contrast is"),
        (("set", "--logo", "/nowhere"), 1, "there is no such file"),
        (("set", "--terms-url", "http://x.example"), 1, "--terms-url: it is not https"),
        (("reset", "motto"), 2, "'motto' is not one of"),
        (("reset",), 1, "add --yes"),
    ],
)
def test_refused(run: Run, arguments: tuple[str, ...], code: int, reason: str) -> None:
    assert reason in run(*arguments, code=code).stderr


def test_the_environment_comes_first(make_app: Callable[..., Flask]) -> None:
    runner = make_app(SSO_NAME="Acme").test_cli_runner()
    refused = runner.invoke(args=["branding", "set", "--name", "Other"])
    assert refused.exit_code == 1
    assert "SSO_NAME sets it in the environment" in refused.stderr
    shown = json.loads(runner.invoke(args=["branding", "show", "--json"]).stdout)
    assert shown["name"] == {"value": "Acme", "source": "environment"}
