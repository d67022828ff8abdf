"""Snapshots of what is seen from outside, to compare before and after files were moved.

    .venv/bin/python -m scripts.snapshots build/before
    .venv/bin/python -m scripts.snapshots build/after
    diff -r build/before build/after

Two runs of the same sources write the same bytes.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from flask import Flask
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from scripts import documentation
from sso import create_app, models
from sso.endpoints.routes import ROUTES
from sso.extensions import Base, db
from sso.store import migrations
from tests.support.actors import Browser
from tests.support.factories import PASSWORD, ensure_keys, make_client, make_user
from tests.support.statements import watched

ROOT = Path(__file__).resolve().parents[1]
SECRET_KEY = "a secret key for snapshots, and for snapshots alone"  # noqa: S105
DISCOVERY = ("/.well-known/openid-configuration", "/openapi.json")
DECLARATION = """
format = 1

[[clients]]
client_id = "wiki"
client_name = "Wiki"
redirect_uris = ["https://wiki.example/callback"]
scope = "openid email"
public = true
groups = ["staff"]

[[users]]
id = "b6f2a5c4-8d0e-4c57-9a43-2f6f1c1f7a10"
email = "ada@example.com"
name = "Ada Lovelace"
groups = ["staff"]
"""


def write(folder: Path) -> None:
    """Write every snapshot into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as instance:
        app = create_app({"SSO_SECRET_KEY": SECRET_KEY}, Path(instance))
        messages = StringIO()
        with app.app_context(), redirect_stdout(messages), redirect_stderr(messages):
            migrations.upgrade()
            migrations.check()
            ensure_keys(SECRET_KEY)
            db.session.commit()
        found = {
            "routes.txt": "\n".join(routes(app)),
            "commands.txt": "\n".join(commands()),
            "schema.txt": "\n".join(schema()),
            "check.txt": messages.getvalue(),
            "messages.pot": catalog(Path(instance)),
            "export.toml": export(app, Path(instance)),
            "statements.sql": "\n".join(statements(app)),
            **dict(documents(app)),
        }
    for name, text in found.items():
        (folder / name).write_text(text.rstrip() + "\n")
    documentation.write(folder / "documentation")


def routes(app: Flask) -> Iterator[str]:
    """The URL map, and the properties of each route but for the function that answers."""
    for rule in sorted(app.url_map.iter_rules(), key=lambda rule: (rule.rule, rule.endpoint)):
        yield f"{rule.rule} {rule.endpoint} {' '.join(sorted(rule.methods or ()))}"
    for route in ROUTES:
        pairs = ((field.name, getattr(route, field.name)) for field in fields(route))
        yield " ".join(f"{name}={_plain(value)}" for name, value in pairs if not callable(value))


def _plain(value: object) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", str(getattr(value, "name", value)))


def commands() -> Iterator[str]:
    """`--help` of every command."""

    def all_of(command: click.Command, path: str) -> Iterator[str]:
        context = click.Context(command, info_name=path, terminal_width=100)
        yield f"$ {path} --help\n{command.get_help(context)}\n"
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                yield from all_of(documentation.loaded(child), f"{path} {name}")

    for name, command in sorted(documentation.top_level().items()):
        yield from all_of(command, f"flask {name}")


def schema() -> Iterator[str]:
    """The tables and indexes on both databases."""
    models.load_all()
    for dialect in (sqlite.dialect(), postgresql.dialect()):  # type: ignore[no-untyped-call]
        for table in sorted(Base.metadata.tables.values(), key=lambda table: table.name):
            yield str(CreateTable(table).compile(dialect=dialect)).strip()
            for index in sorted(table.indexes, key=lambda index: str(index.name)):
                yield str(CreateIndex(index).compile(dialect=dialect))


def catalog(folder: Path) -> str:
    """All messages that the sources have for translators."""
    target = folder / "messages.pot"
    keywords = [part for name in ("N_", "lazy_gettext", "Message") for part in ("-k", name)]
    subprocess.run(  # noqa: S603 (our own arguments)
        [Path(sys.executable).with_name("pybabel"), "-q", "extract", "-F", "pyproject.toml",
         *keywords, "--omit-header", "--no-location", "--sort-output", "-o", target, "."],
        cwd=ROOT, check=True,
    )  # fmt: skip
    return target.read_text()


def documents(app: Flask) -> Iterator[tuple[str, str]]:
    """What programs read about the server."""
    client = app.test_client()
    base = app.extensions["sso.settings"].base_path
    for path in DISCOVERY:
        answer = client.get(f"{base}{path}")
        text = json.dumps(answer.get_json(), indent=2, ensure_ascii=False)
        yield (
            f"{path.strip('/.').replace('/', '-').removesuffix('.json')}.json",
            f"{answer.status_code}\n{text}",
        )


def export(app: Flask, folder: Path) -> str:
    """What `flask export` prints of what `flask apply` was given."""
    path = folder / "declaration.toml"
    path.write_text(DECLARATION)
    run = app.test_cli_runner()
    applied = run.invoke(args=["apply", str(path), "--yes"])
    exported = run.invoke(args=["export"])
    return f"{applied.output}\n{exported.output}"


def statements(app: Flask) -> Iterator[str]:
    """The SQL of a sign-in, a code exchange and what follows, without its values."""
    email = make_user(app).email
    client = make_client(app)
    browser = Browser(app)
    with app.app_context():
        engine = db.engine
    seen: list[str] = []
    with watched(engine, lambda statement, _: seen.append(statement)):
        seen.append("-- sign-in, consent")
        browser.authorize(client)
        browser.sign_in(email, PASSWORD)
        code = browser.allow().code
        seen.append("-- code exchange")
        tokens = client.exchange(code).get_json()
        seen.append("-- authorization in a session")
        browser.authorize(client)
        seen.append("-- userinfo")
        client.userinfo(tokens["access_token"])
        seen.append("-- introspection, revocation")
        client.introspect(tokens["access_token"])
        client.revoke(tokens["access_token"])
    for statement in seen:
        yield re.sub(r"\s+", " ", statement)


if __name__ == "__main__":
    for name in [name for name in os.environ if name.startswith("SSO_")]:
        del os.environ[name]
    write(Path(sys.argv[1]).resolve())
