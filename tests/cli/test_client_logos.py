"""`client create/update --logo --home-url`, and both in a declaration."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask

from sso.audit import writer
from sso.cli import apply
from sso.config import images
from sso.store import clients
from tests.support.actors import ISSUER
from tests.support.factories import make_client
from tests.support.logos import EVERY, PAGE, PNG, SVG

CREATE = ("client", "create", "--name", "Wiki", "--redirect-uri", "https://wiki.example/cb")
HOME = "https://wiki.example/"


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str) -> Result:
        writer.flush(app)
        return app.test_cli_runner().invoke(args=arguments)

    return invoke


@pytest.fixture
def logo(tmp_path: Path) -> Path:
    path = tmp_path / "logo.png"
    path.write_bytes(PNG)
    return path


def parsed(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def logo_uri(data: bytes) -> str:
    return f"{ISSUER}/client-logo?v={digest(data)}"


def changes(run: Any) -> Any:
    found = parsed(run("audit", "list", "--event", "client_changed", "--json"))
    return found[0]["fields"]["changes"]


def test_a_client_with_both(run: Any, logo: Path) -> None:
    made = parsed(run(*CREATE, "--logo", str(logo), "--home-url", HOME, "--json"))
    assert (made["logo_uri"], made["home_url"]) == (logo_uri(PNG), HOME)
    shown = run("client", "show", made["client_id"]).stdout
    assert ["logo_uri", logo_uri(PNG)] in [line.split() for line in shown.splitlines()]
    assert [one["logo_uri"] for one in parsed(run("client", "list", "--json"))] == [logo_uri(PNG)]


def test_without_them(run: Any) -> None:
    assert not {"logo_uri", "home_url"} & parsed(run(*CREATE, "--json")).keys()


def test_changing_and_removing_them(app: Flask, run: Any, logo: Path) -> None:
    update = ("client", "update", make_client(app).client_id)
    assert "logo: - -> " in run(*update, "--logo", str(logo)).stdout
    assert changes(run) == {"logo": {"before": None, "after": digest(PNG)}}
    assert "Nothing changed." in run(*update, "--logo", str(logo)).stdout
    logo.write_bytes(SVG)
    changed = parsed(run(*update, "--logo", str(logo), "--home-url", HOME, "--json"))
    assert changed["changes"] == {
        "home_url": {"before": None, "after": HOME},
        "logo": {"before": digest(PNG), "after": digest(SVG)},
    }
    removed = parsed(run(*update, "--remove-logo", "--no-home-url", "--json"))
    assert not {"logo_uri", "home_url"} & removed.keys()
    assert changes(run)["logo"] == {"before": digest(SVG), "after": None}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--logo", "x", "--remove-logo"), "--remove-logo contradicts --logo."),
        (("--home-url", HOME, "--no-home-url"), "--no-home-url contradicts --home-url."),
    ],
)
def test_contradictions(app: Flask, run: Any, options: tuple[str, ...], words: str) -> None:
    result = run("client", "update", make_client(app).client_id, *options)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (PAGE, "neither PNG, JPEG, WebP nor SVG"),
        (PNG[:8] + PAGE, "damaged"),
        (SVG.replace(b"<rect", b"<script/><rect"), "the element 'script'"),
        (b"\0" * 10_000_000, "larger than 64 kB"),
        (None, "no such file"),
    ],
)
def test_logos_that_are_refused(
    app: Flask, run: Any, logo: Path, data: bytes | None, words: str
) -> None:
    logo.unlink()
    if data is not None:
        logo.write_bytes(data)
    for command in (CREATE, ("client", "update", make_client(app, name="Old").client_id)):
        result = run(*command, "--logo", str(logo))
        assert result.exit_code == 1
        assert f"the logo {str(logo)!r} is refused: " in result.stderr
        assert words in result.stderr
    assert [one["client_name"] for one in parsed(run("client", "list", "--json"))] == ["Old"]


def test_a_home_url_that_is_refused(run: Any) -> None:
    result = run(*CREATE, "--home-url", "javascript:alert(1)")
    assert result.exit_code == 1
    assert "home URL 'javascript:alert(1)' is refused" in result.stderr


def declare(tmp_path: Path, more: str) -> str:
    path = tmp_path / "sso.toml"
    path.write_text(
        'format = 1\n[[clients]]\nclient_id = "wiki"\nclient_name = "Wiki"\npublic = true\n'
        f'redirect_uris = ["https://wiki.example/cb"]\n{more}'
    )
    return str(path)


def stored(app: Flask) -> tuple[str | None, str | None]:
    with app.app_context():
        client = clients.find("wiki")
        assert client
        return client.home_url, clients.logo_digest("wiki")


def test_a_declaration(app: Flask, run: Any, tmp_path: Path) -> None:
    (tmp_path / "logos").mkdir()
    (tmp_path / "logos" / "wiki").write_bytes(PNG)
    both = f'logo = "logos/wiki"\nhome_url = "{HOME}"\n'
    (made,) = parsed(run("apply", declare(tmp_path, both), "--json"))["changes"]
    assert made["fields"]["logo"] == {"before": None, "after": digest(PNG)}
    assert stored(app) == (HOME, digest(PNG))
    for text in (both, ""):
        assert parsed(run("apply", declare(tmp_path, text), "--json"))["changes"] == []
    planned = run("apply", declare(tmp_path, 'logo = ""'), "--plan").stdout
    assert f"logo: {digest(PNG)} -> -" in planned
    assert stored(app) == (HOME, digest(PNG))
    assert run("apply", declare(tmp_path, 'logo = ""\nhome_url = ""')).exit_code == 0
    assert stored(app) == (None, None)


@pytest.mark.parametrize("name", EVERY)
def test_an_export_has_the_logo(app: Flask, run: Any, tmp_path: Path, name: str) -> None:
    data, media_type = EVERY[name]
    client_id = make_client(app, logo=images.parse(data, 1000), home_url=HOME).client_id
    path = tmp_path / "export.toml"
    assert run("export", str(path)).exit_code == 0
    assert f'logo = "data:{media_type};base64,' in path.read_text()
    assert run("client", "update", client_id, "--remove-logo").exit_code == 0
    assert run("apply", str(path)).exit_code == 0
    with app.app_context():
        assert clients.logo_digest(client_id) == digest(data)


def test_all_faults_of_a_declaration_at_once(run: Any, tmp_path: Path) -> None:
    second = (
        '[[clients]]\nclient_id = "b"\nlogo = "data:image/png;base64,aGk="\n'
        '[[clients]]\nclient_id = "c"\nlogo = 1\n'
    )
    path = declare(tmp_path, 'logo = "../none.png"\n' + second)
    assert "clients c: logo is not a text" in run("apply", path).stderr
    path = declare(tmp_path, 'logo = "../none.png"\n' + second.replace("logo = 1", ""))
    words = run("apply", path).stderr
    assert "clients wiki: the logo '../none.png' is refused: there is no such file" in words
    assert "clients b: the logo 'data:image/png;base64,aGk=' is refused: it is neither" in words


def test_what_a_declaration_may_have_is_what_an_export_has(app: Flask) -> None:
    make_client(app, logo=images.parse(PNG, 1000), home_url=HOME)
    with app.app_context():
        (client,) = apply.declaration()["clients"]
    assert {"logo", "home_url"} <= client.keys()


def test_a_refused_setting_is_not_shown_as_its_default(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSO_LOGO_FILE", "/nowhere/logo.png")
    result = run("settings", "--json")
    (entry,) = [
        one for one in json.loads(result.stdout)["settings"] if one["name"] == "SSO_LOGO_FILE"
    ]
    assert (entry["source"], result.exit_code) == ("refused", 1)
