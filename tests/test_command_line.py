"""A command loads what it needs: nobody waits seconds for a list."""

import ast
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import MutableMapping
from importlib import import_module
from pathlib import Path

import click
import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st

import sso
from sso import __main__ as console_script
from sso import command_line
from sso.config import settings
from sso.process import program as names
from tests.support.processes import ROOT

pytestmark = pytest.mark.slow

# Everything that a list of users has no use for.
HEAVY = {
    "alembic", "argon2", "authlib", "babel", "cryptography", "email_validator", "flask_babel",
    "flask_login", "flask_migrate", "flask_wtf", "gunicorn", "joserfc", "limits",
    "opentelemetry", "prometheus_client", "psycopg", "redis", "requests", "segno", "smtplib",
    "tomli_w", "webauthn", "wtforms", "zxcvbn_rs_py", "sqlalchemy.dialects.postgresql",
    "sso.web", "sso.endpoints", "sso.oauth", "sso.jobs", "sso.crypto.passwords",
    "sso.presets", "sso.models.grants", "sso.demo.command", "sso.doctor.command",
}  # fmt: skip
LOADED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
sys.argv[0] = "flask"
from flask.cli import main
main()
"""


@pytest.fixture
def environ(template: Path, tmp_path: Path) -> dict[str, str]:
    """A migrated SQLite database, whichever the other tests run on."""
    if not isinstance(template, Path):
        pytest.skip("counts what a command loads on SQLite")
    (tmp_path / "sso.db").write_bytes(template.read_bytes())
    return {
        "PATH": os.environ["PATH"],
        "SSO_SECRET_KEY": "a secret key for tests, and for tests alone",
        "SSO_DATABASE_URL": f"sqlite:///{tmp_path / 'sso.db'}",
    }


def flask(
    environ: dict[str, str], *arguments: str, code: str = LOADED
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def loaded(environ: dict[str, str], *arguments: str) -> set[str]:
    """What a command had loaded when it ended."""
    return set(json.loads(flask(environ, *arguments).stderr.splitlines()[-1]))


CREATE = ("client", "create", "--name", "Wiki", "--redirect-uri", "https://wiki.example/cb")


@pytest.mark.parametrize(
    "arguments", [("user", "list"), ("user", "--help"), ("--help",), ("settings",)], ids=" ".join
)
def test_what_is_not_needed_is_not_loaded(
    environ: dict[str, str], arguments: tuple[str, ...]
) -> None:
    assert HEAVY & loaded(environ, *arguments) == set()


def test_applications_are_listed_without_presets(environ: dict[str, str]) -> None:
    assert not {"sso.presets", "idna", "jinja2.sandbox"} & loaded(environ, "client", "list")


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [(("key", "list"), "joserfc"), (("worker", "--help"), "sso.jobs"), (CREATE, "joserfc")],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_what_is_needed_is_loaded(
    environ: dict[str, str], arguments: tuple[str, ...], needed: str
) -> None:
    found = HEAVY & loaded(environ, *arguments)
    assert needed in found  # the measure sees it
    assert not found & {"webauthn", "sso.web", "sso.endpoints", "gunicorn", "alembic"}


def test_a_list_takes_little_time(environ: dict[str, str]) -> None:
    """CPU time, in terms of what Flask's own command line takes: machines differ."""

    def seconds(*arguments: str) -> float:
        def used() -> float:
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            return usage.ru_utime + usage.ru_stime

        before = used()
        flask(environ, *arguments, code="from flask.cli import main; main()")
        return used() - before

    flask(environ, "user", "list")  # compiled once
    turns = [(seconds("--version"), seconds("user", "list")) for _ in range(5)]
    bare, a_list = map(min, zip(*turns, strict=True))  # what else runs here can only add to them
    assert a_list < 3 * bare


def real_commands() -> dict[tuple[str, ...], tuple[str, click.Command]]:
    """Every command of the table: its summary there, and what it leads to."""
    found: dict[tuple[str, ...], tuple[str, click.Command]] = {}
    for group, (_, commands) in command_line.GROUPS.items():
        for name, (summary, target) in commands.items():
            found[group, name] = summary, command_line.Lazy(name, summary, target).load()
    for name, (summary, target) in command_line.COMMANDS.items():
        found[name,] = summary, command_line.Lazy(name, summary, target).load()
    for lazy in (
        command_line.settings_command, command_line.demo_command, command_line.doctor_command,
    ):  # fmt: skip
        found[lazy.name or "",] = lazy.help or "", lazy.load()
    return found


def test_the_table_tells_the_truth() -> None:
    for path, (summary, command) in real_commands().items():
        assert command.name == path[-1]
        assert " ".join((command.help or "").split("\n\n")[0].split()) == summary


def test_no_command_is_missing_from_the_table() -> None:
    groups = {}
    for file in (ROOT / "sso" / "cli").glob("*.py"):
        group = getattr(import_module(f"sso.cli.{file.stem}"), "group", None)
        if isinstance(group, click.Group) and group.name != "db":
            groups[group.name] = set(group.commands)
    assert groups == {name: set(commands) for name, (_, commands) in command_line.GROUPS.items()}


def test_our_db_commands_stay(app: Flask) -> None:
    run = app.test_cli_runner()
    for _ in range(2):
        assert "--yes" in run.invoke(args=["db", "downgrade"]).stderr


def test_the_development_server_has_the_pages(environ: dict[str, str]) -> None:
    """`flask routes`, `run` and `shell` ask for the application itself, not for commands."""
    shown = flask(environ, "routes").stdout
    assert "/oauth2/authorize" in shown


def test_every_command_shows_its_help(app: Flask) -> None:
    run = app.test_cli_runner()
    for path, (_, command) in real_commands().items():
        if path not in (("demo",), ("doctor",)):
            shown = run.invoke(args=[*path, "--help"])
            assert shown.exit_code == 0
            assert all(option in shown.output for option in ("--json",) if path != ("db",))
            assert (command.help or "").split()[0] in shown.output


ALONE = """
import os, sys
from importlib import import_module
from sqlalchemy.orm import configure_mappers
from sso.extensions import Base
from sso.models import _MODULES
for module in sorted(set(_MODULES.values())):
    if child := os.fork():
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{module} needs tables that it does not import")
        continue
    import_module(module)
    configure_mappers()
    Base.metadata.sorted_tables  # raises where a foreign key leads to a table not loaded
    for table in Base.metadata.tables.values():
        [key.column for key in table.foreign_keys]
    os._exit(0)
"""


def test_a_table_imports_those_that_it_refers_to(environ: dict[str, str]) -> None:
    flask(environ, code=ALONE)


# `sso …`: settings from a file, and the commands of `flask …`.


@pytest.fixture
def own_environ(monkeypatch: pytest.MonkeyPatch) -> MutableMapping[str, str]:
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


def test_the_environment_wins(own_environ: MutableMapping[str, str], tmp_path: Path) -> None:
    file = tmp_path / "environment"
    file.write_text("SSO_MAIL_FROM=file@example.com\nSSO_SIGN_UP=open\n")
    settings.read_environment_file(str(file))
    assert own_environ["SSO_MAIL_FROM"] == "given@example.com"
    assert own_environ["SSO_SIGN_UP"] == "open"


def test_a_file_that_everybody_may_read_is_reported(
    own_environ: MutableMapping[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    own_environ: MutableMapping[str, str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="No such file"):
        settings.read_environment_file(str(tmp_path / "missing"))


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that is read if no other one was asked for."""
    monkeypatch.setattr(settings, "ENVIRONMENT_FILE", str(tmp_path / "environment"))
    return tmp_path / "environment"


def test_the_default_file_need_not_be_there(
    own_environ: MutableMapping[str, str], default: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.read_environment_file("")
    assert capsys.readouterr().err == ""


def test_a_file_that_is_there_is_used_or_nothing_runs(
    own_environ: MutableMapping[str, str], default: Path
) -> None:
    default.write_text("SSO_SIGN_UP=open\nnot a setting\n")
    with pytest.raises(SystemExit, match="line 2 is not NAME=value"):
        settings.read_environment_file("")
    assert "SSO_SIGN_UP" not in own_environ
    default.unlink()
    default.mkdir()
    with pytest.raises(SystemExit, match="Is a directory"):
        settings.read_environment_file("")


def test_the_settings_of_another_user_are_not_replaced_by_defaults(
    own_environ: MutableMapping[str, str], default: Path, monkeypatch: pytest.MonkeyPatch
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
    own_environ: MutableMapping[str, str],
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
