"""`flask user set-picture`, and pictures in what is exported."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask

from sso.audit import writer
from sso.models import User
from sso.store import users
from tests.support.actors import ISSUER
from tests.support.events import events
from tests.support.logos import PAGE, PNG

WHO = "dana@example.com"


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str) -> Result:
        writer.flush(app)
        return app.test_cli_runner().invoke(args=arguments)

    return invoke


@pytest.fixture
def photo(tmp_path: Path) -> str:
    path = tmp_path / "dana.png"
    path.write_bytes(PNG)
    return str(path)


def claims(app: Flask) -> dict[str, Any]:
    with app.app_context():
        user = users.find_by_email(WHO)
        assert user
        return user.claims


def test_it_is_set_and_removed(app: Flask, user: User, run: Any, photo: str) -> None:
    made = run("user", "set-picture", WHO, photo)
    url = claims(app)["picture"]
    assert url.startswith(f"{ISSUER}/picture/")
    assert made.stdout == f"{WHO} ({user.id}): the picture is at {url}.\n"
    assert app.test_client().get(url).mimetype == "image/jpeg"
    removed = run("user", "set-picture", WHO, "--remove", "--json")
    assert json.loads(removed.stdout) == {"id": str(user.id), "email": WHO, "picture": None}
    assert claims(app) == {}
    assert app.test_client().get(url).status_code == 404
    assert [event["what"] for event in events(app, "user_changed")] == ["picture"] * 2


def test_wrong_usage_changes_nothing(
    app: Flask, user: User, run: Any, photo: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.png"
    page.write_bytes(PAGE)
    for code, reason, *arguments in (
        (2, "Give a FILE or --remove.", WHO),
        (2, "Give a FILE or --remove.", WHO, photo, "--remove"),
        (1, "No such file", WHO, str(tmp_path / "none.png")),
        (1, f"{page} is refused: it is neither PNG, JPEG nor WebP", WHO, str(page)),
        (1, "there is no user nobody@example.com", "nobody@example.com", photo),
    ):
        result = run("user", "set-picture", *map(str, arguments))
        assert (result.exit_code, reason in result.stderr) == (code, True), result.stderr
    assert claims(app) == {}
    assert not events(app, "user_changed")


def test_an_export_leaves_it_out_and_apply_leaves_it_alone(
    app: Flask, user: User, run: Any, photo: str, tmp_path: Path
) -> None:
    run("user", "update", WHO, "--claim", "nickname=Dee")
    run("user", "set-picture", WHO, photo)
    url = claims(app)["picture"]
    file = tmp_path / "export.toml"
    assert run("export", str(file)).exit_code == 0
    assert "picture" not in file.read_text()
    assert "Dee" in file.read_text()
    assert run("apply", str(file), "--yes").stdout.strip() == "Everything is as the file says."
    file.write_text(file.read_text().replace("Dee", "Didi"))
    assert run("apply", str(file), "--yes").exit_code == 0
    assert claims(app) == {"nickname": "Didi", "picture": url}
    run("user", "update", WHO, "--claim", "picture=https://people.example/dana.png")
    run("export", str(file))
    assert "https://people.example/dana.png" in file.read_text()
    assert app.test_client().get(url).status_code == 404
