"""Long work on a terminal, in a pipe, and for scripts."""

import json
import os
import pty
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import insert

from sso import clock, create_app
from sso.extensions import db
from sso.mfa import totp
from sso.models import Mail
from sso.store import prepared
from tests.support.factories import make_user
from tests.support.processes import ROOT
from tests.support.programs import Program

pytestmark = pytest.mark.slow

ROWS = 1500
NEW, OLD = "a new secret key for tests, and for tests alone", "the secret key that was used before"


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A database with something to do for each command."""
    folder = tmp_path_factory.mktemp("progress")
    url = f"sqlite:///{folder / 'sso.db'}"
    app = create_app({"SSO_SECRET_KEY": OLD, "SSO_DATABASE_URL": url}, folder)
    assert app.test_cli_runner().invoke(args=["db", "upgrade"]).exit_code == 0
    user = make_user(app, "dana@example.com")
    old = clock.now() - timedelta(days=30)
    mail = {"kind": "new_browser", "attempts": 1, "next_attempt_at": None, "details": {}}
    with app.app_context():
        secret = totp.new_secret()
        totp.enrol(user.id, secret, totp.code(secret))
        mails = [
            {**mail, "id": uuid4(), "address": f"p{n}@example.com", "created_at": old}
            for n in range(ROWS)
        ]
        db.session.execute(insert(prepared.table(Mail)), mails)
        db.session.commit()
        db.engine.dispose()
    secrets = {"SSO_SECRET_KEY": NEW, "SSO_SECRET_KEY_PREVIOUS": OLD}
    return {"PATH": os.environ["PATH"], "SSO_DATABASE_URL": url, **secrets}


def command(
    environ: dict[str, str], *arguments: str, out: Path, error: Path, terminal: Path | None = None
) -> None:
    """Run a command that succeeds."""
    program = Program(
        "tests.support.impatient_flask", arguments, cwd=ROOT, env=environ,
        stdin=terminal or Path(os.devnull), stdout=out, stderr=error,
    )  # fmt: skip
    assert program.wait(60) == 0, arguments


def on_terminal(environ: dict[str, str], *arguments: str, out: Path) -> tuple[str, str]:
    """Standard output, and what is seen on the terminal to which standard error goes."""
    ours, theirs = pty.openpty()
    try:
        command(environ, *arguments, out=out, error=Path(os.ttyname(theirs)))
    finally:
        os.close(theirs)
    return out.read_text(), b"".join(_until_closed(ours)).decode()


def _until_closed(terminal: int) -> Iterator[bytes]:
    try:
        while seen := os.read(terminal, 4096):
            yield seen
    except OSError:  # how Linux says that nobody has it open any more
        os.close(terminal)


def test_on_a_terminal(environ: dict[str, str], tmp_path: Path) -> None:
    backup, copy, empty = (tmp_path / name for name in ("backup", "copy.db", "empty.db"))
    other = {**environ, "SSO_DATABASE_URL": f"sqlite:///{empty}"}
    people = tmp_path / "people.csv"
    people.write_text("email,name\n" + "".join(f"i{n}@example.com,I\n" for n in range(ROWS)))
    for settings, label, arguments in (
        (environ, "Backing up", ["backup", str(backup)]),
        (other, "Restoring", ["restore", str(backup)]),
        (environ, "Copying", ["db", "copy", f"sqlite:///{copy}"]),
        (other, "Importing", ["user", "import", "csv", str(people)]),
        (environ, "Authenticator apps", ["key", "reencrypt"]),
        (environ, "Deleting expired rows", ["purge"]),
    ):
        out, seen = on_terminal(settings, *arguments, out=tmp_path / label)
        shown = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", seen)
        bars = [line for line in re.split("[\r\n]+", shown) if line.startswith(f"{label}  [")]
        assert bars, (label, seen)
        assert f"{ROWS}" in bars[-1] if label.startswith("Deleting") else "100%" in bars[-1]
        assert label not in out


def test_elsewhere_it_is_quiet(environ: dict[str, str], tmp_path: Path) -> None:
    arguments = ("backup", str(tmp_path / "one"), "--json")
    out, seen = on_terminal(environ, *arguments, out=tmp_path / "out")
    assert (json.loads(out)["rows"]["users"], seen) == (1, "")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reading:
        command(environ, "backup", str(tmp_path / "two"), out=tmp_path / "out", error=pipe)
        assert "Backing up" not in reading.read()


CHANGES = [
    ["client", "create", "--name", "Wiki", "--redirect-uri", "https://wiki.example/cb"],
    ["user", "invite", "--email", "erin@example.com", "--name", "Erin"],
    ["user", "disable", "erin@example.com"],
    ["group", "create", "staff"],
    ["api-token", "create", "--name", "HR", "--scope", "scim:read"],
    ["webhook", "create", "--url", "https://hooks.example/x", "--event", "signed_in"],
    ["apply", "FILE"],
    ["user", "delete", "erin@example.com", "--yes"],
]


def test_audit_events_are_no_part_of_what_a_terminal_shows(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """Beside a terminal, they go to standard error; answers alone go to standard output."""
    path = tmp_path / "sso.toml"
    path.write_text('format = 1\n[[users]]\nemail = "fay@example.com"\nname = "Fay"\n')
    changes = [[str(path) if word == "FILE" else word for word in words] for words in CHANGES]
    ours, theirs = pty.openpty()
    terminal = Path(os.ttyname(theirs))
    for words in changes:
        command(environ, *words, out=terminal, error=terminal, terminal=terminal)
        assert "sso.audit" not in os.read(ours, 100_000).decode()
    os.close(theirs)
    os.close(ours)
    path.write_text('format = 1\n[[users]]\nemail = "gil@example.com"\nname = "Gil"\n')
    out, error = tmp_path / "out", tmp_path / "error"
    command(environ, "apply", str(path), out=out, error=error)
    assert "user_created" in error.read_text()
    assert "sso.audit" not in out.read_text()
