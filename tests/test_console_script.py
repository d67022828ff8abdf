"""`sso …`: settings from a file, and the commands of `flask …`."""

import ast
import os
import re
from collections.abc import MutableMapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sso
from sso import __main__ as console_script
from sso import command_line
from sso.config import settings
from sso.process import program as names
from tests.support.processes import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> MutableMapping[str, str]:
    monkeypatch.setenv("SSO_MAIL_FROM", "given@example.com")
    monkeypatch.setenv("SSO_SIGN_UP", "later removed again")
    del os.environ["SSO_SIGN_UP"]
    return os.environ


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("NAME=plain", "plain"),
        ("NAME=two words", "two words"),
        ("NAME=https://id.example/#x", "https://id.example/#x"),
        ('NAME="two words"', "two words"),
        ("NAME='a $b \\c'", "a $b \\c"),
        ("  NAME= x ", "x"),
        ("NAME=", ""),
        ("NAME=a=b", "a=b"),
    ],
)
def test_a_line_is_read_as_systemd_reads_it(line: str, value: str) -> None:
    assert settings.parse_environment_file(f"# a comment\n; another\n\n{line}\n") == {"NAME": value}


@pytest.mark.parametrize("line", ["export NAME=x", "NAME", "=x=y z", 'NAME="open', "1A=x"])
def test_anything_else_is_refused(line: str) -> None:
    if line.startswith("="):
        assert settings.parse_environment_file(line) == {}
    else:
        with pytest.raises(ValueError):  # noqa: PT011 (shlex's own text, too)
            settings.parse_environment_file(line)


@given(st.text())
def test_no_file_is_an_error_of_another_kind(text: str) -> None:
    try:
        found = settings.parse_environment_file(text)
    except ValueError:
        return
    assert all(name.isidentifier() for name in found)


def test_the_environment_wins(environ: MutableMapping[str, str], tmp_path: Path) -> None:
    file = tmp_path / "environment"
    file.write_text("SSO_MAIL_FROM=file@example.com\nSSO_SIGN_UP=open\n")
    settings.read_environment_file(str(file))
    assert environ["SSO_MAIL_FROM"] == "given@example.com"
    assert environ["SSO_SIGN_UP"] == "open"


def test_a_file_that_everybody_may_read_is_reported(
    environ: MutableMapping[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "environment"
    file.write_text("SSO_SIGN_UP=open\n")
    file.chmod(0o644)
    settings.read_environment_file(str(file))
    assert f"chmod o-r {file}" in capsys.readouterr().err
    file.chmod(0o640)
    settings.read_environment_file(str(file))
    assert capsys.readouterr().err == ""


def test_a_file_that_was_asked_for_must_be_there(
    environ: MutableMapping[str, str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="No such file"):
        settings.read_environment_file(str(tmp_path / "missing"))


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that is read if no other one was asked for."""
    monkeypatch.setattr(settings, "ENVIRONMENT_FILE", str(tmp_path / "environment"))
    return tmp_path / "environment"


def test_the_default_file_need_not_be_there(
    environ: MutableMapping[str, str], default: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.read_environment_file("")
    assert capsys.readouterr().err == ""


def test_a_file_that_is_there_is_used_or_nothing_runs(
    environ: MutableMapping[str, str], default: Path
) -> None:
    default.write_text("SSO_SIGN_UP=open\nnot a setting\n")
    with pytest.raises(SystemExit, match="line 2 is not NAME=value"):
        settings.read_environment_file("")
    assert "SSO_SIGN_UP" not in environ
    default.unlink()
    default.mkdir()
    with pytest.raises(SystemExit, match="Is a directory"):
        settings.read_environment_file("")


def test_the_settings_of_another_user_are_not_replaced_by_defaults(
    environ: MutableMapping[str, str], default: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or an operator who forgets `sudo` would administer an empty database at home."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    for arguments in (["user", "list"], ["db", "upgrade"], ["settings"]):
        monkeypatch.setattr("sys.argv", ["sso", *arguments])
        with pytest.raises(SystemExit, match=r"Permission denied; run .*sudo -u sso sso"):
            console_script.main()


@pytest.mark.parametrize("arguments", [["--version"], ["user", "list", "--help"]])
def test_help_needs_no_settings(
    environ: MutableMapping[str, str],
    default: Path,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    default.write_text("not a setting\n")
    monkeypatch.setattr("sys.argv", ["sso", *arguments])
    with pytest.raises(SystemExit) as left:
        console_script.main()
    assert left.value.code == 0


@pytest.mark.parametrize(
    ("program", "command"),
    [("/opt/sso/current/bin/sso", "sso"), ("/venv/bin/flask", "flask"), ("/bin/gunicorn", "flask")],
)
def test_hints_name_the_program_in_use(
    program: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [program])
    assert names.command() == command
    monkeypatch.setattr(names, "__file__", "/opt/sso/lib/site-packages/sso/process/program.py")
    assert names.command() == "sso"


def test_no_hint_says_another_program() -> None:
    """All of them use COMMAND; docstrings may name `flask`, as the documentation does."""
    commands = "|".join([*command_line.GROUPS, *command_line.COMMANDS, "settings", "doctor"])
    for path in (ROOT / "sso").rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = re.search(rf"(?<!`)flask ({commands})\b", node.value)
                assert not found, f"{path}:{node.lineno}"


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_another_packages_file_moves_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """Some packages install a pyproject.toml beside all others: no reason for a new database."""
    packages = tmp_path / folder
    packages.mkdir()
    (packages / "pyproject.toml").touch()
    monkeypatch.setattr(names, "__file__", str(packages / "sso" / "process" / "program.py"))
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/sso")
    assert sso._instance() == Path("/var/lib/sso")
