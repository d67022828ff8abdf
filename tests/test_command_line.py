"""A command loads what it needs: nobody waits seconds for a list."""

import json
import os
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from statistics import median

import click
import pytest
from flask import Flask

from sso import command_line
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
    bare = median(seconds("--version") for _ in range(5))
    assert median(seconds("user", "list") for _ in range(5)) < 3 * bare


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
