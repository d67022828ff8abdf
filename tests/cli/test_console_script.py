"""`sso …`: settings from a file, and the commands of `flask …`."""

import os
from collections.abc import MutableMapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sso
from sso import command_line
from sso.command_line import _assignments, _read_environment_file


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
    assert _assignments(f"# a comment\n; another\n\n{line}\n") == {"NAME": value}


@pytest.mark.parametrize("line", ["export NAME=x", "NAME", "=x=y z", 'NAME="open', "1A=x"])
def test_anything_else_is_refused(line: str) -> None:
    if line.startswith("="):
        assert _assignments(line) == {}
    else:
        with pytest.raises(ValueError):  # noqa: PT011 (shlex's own text, too)
            _assignments(line)


@given(st.text())
def test_no_file_is_an_error_of_another_kind(text: str) -> None:
    try:
        found = _assignments(text)
    except ValueError:
        return
    assert all(name.isidentifier() for name in found)


def test_the_environment_wins(environ: MutableMapping[str, str], tmp_path: Path) -> None:
    file = tmp_path / "environment"
    file.write_text("SSO_MAIL_FROM=file@example.com\nSSO_SIGN_UP=open\n")
    _read_environment_file(str(file))
    assert environ["SSO_MAIL_FROM"] == "given@example.com"
    assert environ["SSO_SIGN_UP"] == "open"


def test_a_file_that_everybody_may_read_is_reported(
    environ: MutableMapping[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "environment"
    file.write_text("SSO_SIGN_UP=open\n")
    file.chmod(0o644)
    _read_environment_file(str(file))
    assert f"chmod o-r {file}" in capsys.readouterr().err
    file.chmod(0o640)
    _read_environment_file(str(file))
    assert capsys.readouterr().err == ""


def test_a_file_that_was_asked_for_must_be_there(
    environ: MutableMapping[str, str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="No such file"):
        _read_environment_file(str(tmp_path / "missing"))


def test_the_default_file_need_not_be_there(
    environ: MutableMapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    default = tmp_path / "environment"
    monkeypatch.setattr(command_line, "ENVIRONMENT_FILE", str(default))
    _read_environment_file("")
    assert capsys.readouterr().err == ""
    default.write_text("SSO_SIGN_UP=open\nnot a setting\n")
    default.chmod(0o600)
    _read_environment_file("")
    assert "are not used: line 2 is not NAME=value" in capsys.readouterr().err
    assert "SSO_SIGN_UP" not in environ


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_another_packages_file_moves_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """Some packages install a pyproject.toml beside all others: no reason for a new database."""
    packages = tmp_path / folder
    packages.mkdir()
    (packages / "pyproject.toml").touch()
    monkeypatch.setattr(sso, "__file__", str(packages / "sso" / "__init__.py"))
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/sso")
    assert sso._instance() == Path("/var/lib/sso")
