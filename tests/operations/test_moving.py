"""Backup, restore and copy keep every row, on both databases, while the service writes."""

import json
import os
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import (
    JSON,
    Column,
    Engine,
    Integer,
    MetaData,
    Table,
    Text,
    cast,
    create_engine,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.pool import NullPool

from sso import create_app, database
from sso.audit import rows as audit_events
from sso.audit import writer
from sso.config import images
from sso.database import schema
from sso.extensions import Base, db
from sso.jobs import backup
from sso.models import Client, User
from sso.store import migrations, prepared
from tests.operations.conftest import fresh_database
from tests.support.actors import Browser
from tests.support.factories import make_client, make_user
from tests.support.logos import PNG
from tests.support.processes import SECRET_KEY

Rows = dict[str, set[Any]]
EVENTS = ("backup_made", "backup_restored", "database_copied")


@pytest.fixture
def make_on(tmp_path: Path) -> Iterator[Callable[[str], Flask]]:
    """Make an application on any database; it is not migrated."""
    made = []

    def make(url: str, **environ: str) -> Flask:
        settings = {"SSO_SECRET_KEY": SECRET_KEY, "SSO_DATABASE_URL": url, **environ}
        made.append(create_app(settings, tmp_path / "instance"))
        return made[-1]

    yield make
    for app in made:
        with app.app_context():
            db.session.remove()
            db.engine.dispose()


@pytest.fixture
def lived_in(app: Flask) -> Flask:
    """An application in use: whatever one sign-in and one sign-out write is there."""
    client = make_client(
        app,
        name="Büro “日本”",
        backchannel_logout_uri="https://books.example/out",
        logo=images.parse(PNG, 1000),
    )
    make_user(app, groups=["staff"], claims={"address": {"locality": "Delft"}})
    run(app, "webhook", "create", "--url", "https://hooks.example/", "--event", "signed_in")
    for _ in range(2):
        run(app, "user", "sign-out", "dana@example.com")
        page = Browser(app).approve(client)
        assert client.exchange(page.code).status_code == 200
    writer.flush(app)
    assert sum(bool(rows) for rows in rows_of(app).values()) >= 9
    return app


def rows_of(app: Flask) -> Rows:
    """Every row of every table, as Python sees it; but for the commands' own events."""
    with app.app_context(), database.snapshot(db.engine) as connection:
        return {
            table.name: {
                text
                for row in connection.execute(select(table))
                if not any(f"'{event}'" in (text := repr(tuple(row))) for event in EVENTS)
            }
            for table in Base.metadata.sorted_tables
        }


def events_of(app: Flask) -> set[str]:
    writer.flush(app)
    with app.app_context():
        return set(audit_events.names())


def run(app: Flask, *arguments: str, **environ: str) -> Any:
    return app.test_cli_runner().invoke(args=arguments, env=environ)


def test_there_and_back_again(
    lived_in: Flask, make_on: Callable[..., Flask], cluster: str, tmp_path: Path
) -> None:
    middle, last = fresh_database(cluster), f"sqlite:///{tmp_path / 'back.db'}"
    make_client(lived_in, name="CLI", redirect_uris=["com.example.cli:/cb"], public=True)
    before = rows_of(lived_in)
    done = run(lived_in, "db", "copy", "env:TARGET", "--json", TARGET=middle)
    assert json.loads(done.stdout)["rows"] == {name: len(rows) for name, rows in before.items()}
    assert rows_of(make_on(middle)) == before
    assert run(make_on(middle), "db", "copy", last).exit_code == 0
    assert rows_of(make_on(last)) == before
    for app in (make_on(middle), make_on(last)):
        assert app.test_client().get("/readyz").status_code == 200


def test_a_backup_restores_into_either_database(
    lived_in: Flask, make_on: Callable[..., Flask], cluster: str, tmp_path: Path
) -> None:
    before, path = rows_of(lived_in), tmp_path / "a?b#c.backup"
    assert run(lived_in, "backup", str(path)).exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.glob("*backup*")] == [path.name]
    for url in (fresh_database(cluster), f"sqlite:///{tmp_path / 'restored.db'}"):
        app = make_on(url)
        assert run(app, "restore", str(path)).exit_code == 0
        assert rows_of(app) == before


@pytest.mark.parametrize("is_postgresql", [False, True], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize(
    "revision", [schema.known()[1], pytest.param("0017", marks=pytest.mark.exhaustive), "0010"]
)
def test_a_new_version_backs_up_an_older_schema(
    lived_in: Flask,
    make_on: Callable[..., Flask],
    cluster: str,
    tmp_path: Path,
    revision: str,
    is_postgresql: bool,
) -> None:
    """The guide to upgrades says: back up first. The backup is upgraded like the database."""
    url = fresh_database(cluster) if is_postgresql else f"sqlite:///{tmp_path / 'lived-in.db'}"
    assert run(lived_in, "db", "copy", url).exit_code == 0
    app, path = make_on(url), tmp_path / "backup"
    assert run(app, "db", "downgrade", revision, "--yes").exit_code == 0
    engine = create_engine(url)  # another program has a table here
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE of_another (id INTEGER PRIMARY KEY)"))
        connection.execute(text("INSERT INTO of_another VALUES (1)"))
    engine.dispose()
    done = run(app, "backup", str(path), "--json")
    assert done.exit_code == 0, done.stderr
    counts = json.loads(done.stdout)["rows"]
    assert counts["users"] == counts["clients"] == 1
    assert not {"memberships", "alembic_version", "of_another"} & counts.keys()
    with sqlite3.connect(path) as copied:
        assert copied.execute("SELECT version_num FROM alembic_version").fetchall() == [(revision,)]
    restored = make_on(f"sqlite:///{path}")
    for one in (app, restored):
        assert run(one, "db", "upgrade").exit_code == 0
    here, there = rows_of(app), rows_of(restored)
    if revision < "0015":  # each upgrade gives the groups ids
        here["groups"], there["groups"] = set(), set()
    assert there == here
    groups = "SELECT name FROM memberships"
    with sqlite3.connect(path) as copied:
        assert copied.execute(groups).fetchall() == [("staff",)]


def test_a_migrated_but_unused_database_counts_as_empty(
    lived_in: Flask, make_on: Callable[..., Flask], tmp_path: Path
) -> None:
    path, app = tmp_path / "backup", make_on(f"sqlite:///{tmp_path / 'new.db'}")
    run(lived_in, "backup", str(path))
    assert run(app, "db", "upgrade").exit_code == 0
    assert run(app, "restore", str(path)).exit_code == 0
    assert rows_of(app) == rows_of(lived_in)
    assert {"backup_made"} <= events_of(lived_in)
    assert {"backup_restored"} <= events_of(app)
    again = run(app, "restore", str(path))
    assert again.exit_code == 1
    assert "not empty" in again.stderr


def test_a_schema_that_no_backup_is_made_of(
    lived_in: Flask, make_on: Callable[..., Flask], tmp_path: Path
) -> None:
    """Of nothing, and of a newer one, whose tables this version does not know."""
    path = tmp_path / "backup"
    empty = run(make_on(f"sqlite:///{tmp_path / 'none.db'}"), "backup", str(path))
    with lived_in.app_context():
        db.session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        db.session.commit()
    newer = run(lived_in, "backup", str(path))
    for done, reason in ((empty, "no tables yet"), (newer, "newer than this program's")):
        assert done.exit_code == 1
        assert reason in done.stderr
    assert not path.exists()


def test_a_damaged_backup_is_not_kept(
    lived_in: Flask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copy_into = tmp_path / "backup", backup.copy_into

    def lose_a_row(target: Engine, *args: Any, **more: Any) -> dict[str, int]:
        counts = copy_into(target, *args, **more)
        with target.begin() as connection:
            connection.execute(text("DELETE FROM groups"))
        return counts

    monkeypatch.setattr(backup, "copy_into", lose_a_row)
    done = run(lived_in, "backup", str(path))
    assert done.exit_code == 1
    assert "groups has 0 rows of 1" in done.stderr
    assert list(tmp_path.glob("*backup*")) == []
    assert "backup_made" not in events_of(lived_in)


def test_what_is_refused(lived_in: Flask, make_on: Callable[..., Flask], tmp_path: Path) -> None:
    path, empty = tmp_path / "backup", f"sqlite:///{tmp_path / 'new.db'}"
    run(lived_in, "backup", str(path))
    assert "exists" in run(lived_in, "backup", str(path)).stderr
    assert run(lived_in, "backup", str(path), "--force").exit_code == 0
    other = make_on(empty, SSO_SECRET_KEY="another secret key than that of the backup")
    assert "SSO_SECRET_KEY does not open" in run(other, "restore", str(path)).stderr
    # With the secret key of the backup as the one before, it is as good as ever.
    renewed = {"SSO_SECRET_KEY": "another secret key than that of the backup"}
    new = f"sqlite:///{tmp_path / 'again.db'}"
    again = make_on(new, **renewed, SSO_SECRET_KEY_PREVIOUS=SECRET_KEY)
    assert run(again, "restore", str(path)).exit_code == 0
    assert run(again, "key", "reencrypt").exit_code == 0
    alone = make_on(new, **renewed)
    assert alone.test_client().get("/readyz").status_code == 200
    (tmp_path / "letter").write_text("Dear Sir or Madam, " * 100)
    assert "not a backup" in run(other, "restore", str(tmp_path / "letter")).stderr
    older = sqlite3.connect(path)
    older.execute("UPDATE webhooks SET sealed_secret = 'of another secret key'")
    older.commit()
    assert "secrets of webhooks" in run(make_on(empty), "restore", str(path)).stderr
    for version, advice in (
        ("9999", "install the version that made it"),
        (schema.known()[1], "flask db upgrade"),
    ):
        older.execute("UPDATE alembic_version SET version_num = ?", [version])
        older.commit()
        assert advice in run(make_on(empty), "restore", str(path)).stderr
    older.close()
    # So has the target, which nobody has upgraded; the advice for an older backup helps.
    aged, old = f"sqlite:///{tmp_path / 'aged.db'}", f"sqlite:///{tmp_path / 'old'}"
    for url in (aged, old):
        with make_on(url).app_context():
            migrations.upgrade(revision=schema.known()[1])
    copied = run(lived_in, "db", "copy", aged)
    assert f"the schema {schema.known()[1]}, this program" in copied.stderr
    assert run(make_on(old), "db", "upgrade").exit_code == 0
    assert run(make_on(empty), "restore", str(tmp_path / "old")).exit_code == 0
    assert run(lived_in, "db", "copy", "mysql://u:hunter2@h/d").exit_code == 1
    assert "hunter2" not in run(lived_in, "db", "copy", "mysql://u:hunter2@h/d").stderr


def test_a_fault_half_way_leaves_the_target_empty(
    lived_in: Flask, make_on: Callable[..., Flask], cluster: str
) -> None:
    with lived_in.app_context():  # SQLite takes a NUL in a text, PostgreSQL does not
        db.session.execute(prepared.table(User).update().values(name="a\0b"))
        db.session.commit()
    target = fresh_database(cluster)
    done = run(lived_in, "db", "copy", target)
    assert done.exit_code == 1
    assert not any(rows_of(make_on(target)).values())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_is_of_one_moment(
    kind: str, lived_in: Flask, make_on: Callable[..., Flask], cluster: str, tmp_path: Path
) -> None:
    app = lived_in
    if kind == "postgresql":
        url = fresh_database(cluster)
        run(lived_in, "db", "copy", url)
        app = make_on(url)
    done, written = threading.Event(), []

    def write() -> None:
        """One user and one client in each transaction."""
        with app.app_context():
            client = dict(db.session.execute(select(Client.__table__)).mappings().one())
            user = dict(db.session.execute(select(User.__table__)).mappings().one())
            for number in range(100_000):
                if done.is_set():
                    return
                new_user = {"email": f"u{number}@example.com", "id": None}
                with db.engine.begin() as connection:
                    more = {k: v for k, v in user.items() if k != "id"} | new_user
                    more.pop("id")
                    connection.execute(insert(prepared.table(User)).values(**more))
                    new_client = {**client, "client_id": f"c{number}"}
                    connection.execute(insert(prepared.table(Client)).values(**new_client))
                written.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    counts = []
    try:
        for number in range(3):
            before = len(written)
            with app.app_context():
                counts.append(backup.write(tmp_path / f"backup{number}"))
            assert counts[-1]["users"] >= before
    finally:
        done.set()
        writer.join()
    assert len(written) > 3
    assert all(count["users"] == count["clients"] for count in counts)
    last = sqlite3.connect(tmp_path / "backup2")
    assert last.execute("PRAGMA foreign_key_check").fetchall() == []
    assert last.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    last.close()


def test_tables_of_another_time(cluster: str, tmp_path: Path) -> None:
    """Numbered rows go on being numbered; NULL in a JSON column stays NULL."""
    metadata = MetaData()
    table = Table("outbox", metadata, Column("id", Integer, primary_key=True), Column("what", JSON))
    source = database.open_engine(f"sqlite:///{tmp_path / 'source.db'}")
    target = create_engine(fresh_database(cluster), poolclass=NullPool)
    metadata.create_all(source)
    metadata.create_all(target)
    with source.begin() as connection:
        for number in range(migrations.BATCH * 2 + 7):
            connection.execute(insert(table).values(what={"n": number} if number % 2 else None))
        connection.exec_driver_sql("UPDATE outbox SET what = NULL WHERE id % 4 = 1")
    with database.snapshot(source) as reading, target.begin() as writing:
        assert migrations.copy(reading, writing, metadata) == {"outbox": 2007}
        assert writing.scalar(insert(table).values(what=1).returning(table.c.id)) == 2008
        kept = select(table).where(table.c.id <= 2007).order_by(table.c.id)
        assert writing.execute(kept).all() == reading.execute(kept).all()
        nulls = select(func.count()).where(cast(table.c.what, Text).is_(None))
        assert writing.scalar(nulls) == 1004  # half of them were JSON's null
    source.dispose()
    target.dispose()


@pytest.mark.slow
def test_a_full_disk_leaves_no_half_backup(app: Flask, tmp_path: Path) -> None:
    """On a small file system; the backup that is there stays."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2M", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        assert run(app, "backup", str(disk / "sso.sqlite")).exit_code == 0
        kept = (disk / "sso.sqlite").read_bytes()
        (disk / "filler").write_bytes(b"x" * (2_000_000 - len(kept)))
        refused = run(app, "backup", "--force", str(disk / "sso.sqlite"))
        assert refused.exit_code == 1
        assert "cannot be written: No space left on device" in refused.stderr
        assert sorted(path.name for path in disk.iterdir()) == ["filler", "sso.sqlite"]
        assert (disk / "sso.sqlite").read_bytes() == kept
    finally:
        subprocess.run(["umount", str(disk)], check=True)
