"""`flask doctor` against a running server: healthy, and with one thing wrong at a time."""

import json
import os
import re
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from flask import Flask
from sqlalchemy import delete, event, insert, select, update

from sso import audit, clock, create_app
from sso.audit import rows
from sso.checkup import sign_in as sign_in_steps
from sso.checkup.sign_in import Browser, Page
from sso.config.urls import DOCTOR_DOMAIN
from sso.doctor.command import doctor_command
from sso.endpoints.admin.overview import LABELS
from sso.extensions import db
from sso.models import AuditEvent, Heartbeat, Refusal, User
from sso.store import clients, users
from tests.support.actors import RelyingParty
from tests.support.processes import Server, free_port
from tests.support.servers import Redis


def examine(server: Server, **environ: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the findings by name; of several of one name the worst.

    In this process, because a dozen new ones take their time; the server is a real one.
    """
    inherited = {name: None for name in os.environ if name.startswith("SSO_")}
    settings = {k: v for k, v in server.environ.items() if k.startswith("SSO_")}
    done = CliRunner().invoke(doctor_command, ["--json"], env={**inherited, **settings, **environ})
    assert isinstance(done.exception, SystemExit | None), done.exception
    report = json.loads(done.stdout)
    assert report["ok"] == (done.exit_code == 0)
    worst = sorted(report["findings"], key=lambda one: one["status"] == "wrong")
    return done.exit_code, {one["name"]: one for one in worst}


FLOW = ("cookies", "proxy headers", "code flow")


def states(page: Page) -> dict[str, str]:
    """The checks on an admin page, and how it finds them."""
    assert page.response
    row = r'<th scope="row"[^>]*>([^<]+)</th>\s*<td[^>]*><span class="[^"]*">([^<]+)<'
    names = {label: name for name, label in LABELS.items()}
    return {names[label]: state for label, state in re.findall(row, page.response.text)}


def test_a_healthy_server(server: Server) -> None:
    code, found = examine(server)
    bad = [one for one in found.values() if one["status"] not in ("ok", "skipped")]
    assert (code, bad) == (0, [])
    assert {name for name, one in found.items() if one["status"] == "ok"} >= {
        "settings", "file modes", "database", "clock and database", "schema", "keys", "discovery",
        "metadata", "key set", "clock and HTTP Date", "headers", "cookies", "proxy headers",
        "code flow",
    }  # fmt: skip


def test_it_leaves_nothing_behind(server: Server) -> None:
    """But for what the audit trail tells of it."""
    examine(server)
    assert json.loads(server.flask("user", "list", "--json")) == []
    assert json.loads(server.flask("client", "list", "--json")) == []
    told = json.loads(server.flask("audit", "list", "--json"))
    mine = [one["event"] for one in told if one["fields"].get("by") == "doctor"]
    assert {"user_created", "client_created", "user_deleted", "client_deleted"} == set(mine)


def test_a_page_shows_what_the_command_does(server: Server) -> None:
    """It also tries the sign-in, one at a time."""
    names = set(examine(server)[1])
    app = create_app({k: v for k, v in server.environ.items() if k.startswith("SSO_")})
    with (
        app.app_context(),
        sign_in_steps.temporary_user(
            audit.operator(), groups=["sso-administrators"], has_second_factor=True
        ) as ada,
    ):
        browser = Browser(server.base_url, sign_in_steps.PROBE_CALLBACK)
        sign_in = browser.open(f"{server.base_url}/sign-in")
        sign_in_steps.require_signed_in(sign_in_steps.submit_password(browser, sign_in, ada))
        page = browser.open(f"{server.base_url}/admin/checks")
        assert set(states(page)) | {"settings", *FLOW} == names
        page = browser.submit(page, {}, Origin=server.origin)
        assert states(page) == dict.fromkeys(FLOW, "in order")
        with sign_in_steps.temporary_user(audit.operator(), "doctor-page"):
            page = browser.submit(page, {}, Origin=server.origin)
        assert states(page) == {"code flow": "not checked"}
        assert [one.id for one in users.of_domain(DOCTOR_DOMAIN, clock.now())] == [ada.user_id]
        assert [
            one for one in clients.every() if one.redirect_uris == [sign_in_steps.PROBE_CALLBACK]
        ] == []
        refused = db.session.scalars(select(Refusal.details))
        assert not [one for one in refused if "doctor-" in one]
        last = json.loads(rows.newest(names=["client_deleted"], limit=1)[0].fields)
        assert (last["operator"], last["by"]) == (ada.email, "doctor")


def test_what_a_killed_run_left_behind(app: Flask, client: RelyingParty, user: User) -> None:
    """It is deleted by the next run; a run that may still be under way loses nothing."""
    hour = timedelta(hours=1)
    with app.app_context():
        for email, age in (("doctor-1", hour), ("doctor-2", 0 * hour)):
            email += f"@{DOCTOR_DOMAIN}"
            db.session.add(User(email=email, name="Doctor", created_at=clock.now() - age))
        at = User(email=f"x@not-{DOCTOR_DOMAIN}", name="Dana", created_at=clock.now() - hour)
        db.session.add(at)
        db.session.commit()
        loaded: list[User] = []
        note = lambda row, _: loaded.append(row)  # noqa: E731
        event.listen(User, "load", note)
        with sign_in_steps.temporary_user(audit.operator()) as person:
            names = {person.email, user.email, at.email, f"doctor-2@{DOCTOR_DOMAIN}"}
            assert set(db.session.scalars(select(User.email))) == names
        event.remove(User, "load", note)
        assert user.id not in {row.id for row in loaded}
        with sign_in_steps.temporary_user(
            audit.operator(), groups=["sso-administrators"]
        ) as person:
            pass
        assert users.find(person.user_id) is None


def test_a_second_factor_that_a_password_alone_can_add(server: Server) -> None:
    _, found = examine(server)
    assert found["mail"]["status"] == "skipped"
    client = server.register("Vault", "https://vault.example/cb")["client_id"]
    server.flask("client", "update", client, "--require-mfa")
    code, found = examine(server)
    assert (code, found["mail"]["status"]) == (0, "warning")
    assert "SSO_SMTP_URL" in found["mail"]["hint"]
    server.flask("client", "delete", client, "--yes")


@pytest.mark.parametrize(
    ("environ", "name", "hint"),
    [
        ({"SSO_BASE_URL": "http://localhost:{port}/api/auth"}, "discovery", "same settings"),
        ({"SSO_BASE_URL": "http://127.0.0.1:{free}/api/auth"}, "discovery", "start the server"),
        ({"SSO_SECRET_KEY": "another secret key than the server's"}, "keys", "secret key"),
        ({"SSO_REDIS_URL": "redis://:hunter2@127.0.0.1:{free}"}, "redis", "SSO_REDIS_URL"),
        ({"SSO_SMTP_URL": "smtp://me:hunter2@127.0.0.1:{free}"}, "mail", "SSO_SMTP_URL"),
        ({"SSO_DATABASE_URL": "sqlite:////nowhere/sso.db"}, "database", "SSO_DATABASE_URL"),
        ({"SSO_COLOUR": "blue"}, "settings", "no setting has this name"),
    ],
)
def test_one_thing_wrong(server: Server, environ: dict[str, str], name: str, hint: str) -> None:
    places = {"port": server.port, "free": free_port()}
    code, found = examine(server, **{k: v.format(**places) for k, v in environ.items()})
    assert (code, found[name]["status"]) == (1, "wrong")
    assert hint in found[name]["hint"]
    assert "hunter2" not in json.dumps(found)


def test_a_redis_that_takes_no_writes(server: Server, tmp_path: Path) -> None:
    primary = Redis(tmp_path / "primary")
    replica = Redis(tmp_path / "replica", primary=primary)
    with ExitStack() as stack:
        for one, status in ((primary, "ok"), (replica, "wrong")):
            stack.callback(one.stop)
            one.start()
            assert examine(server, SSO_REDIS_URL=one.url)[1]["redis"]["status"] == status


def test_another_database_than_the_servers(server: Server, tmp_path: Path) -> None:
    other = {"SSO_DATABASE_URL": f"sqlite:///{tmp_path / 'other.db'}"}
    server.flask("db", "upgrade", **other)
    spa = (
        "client",
        "create",
        "--name",
        "SPA",
        "--redirect-uri",
        "https://spa.example/",
        "--public",
    )
    server.flask(*spa, **other)
    code, found = examine(server, **other)
    assert (code, found["key set"]["status"]) == (1, "wrong")
    assert found["cross-origin"]["status"] == "wrong"
    assert found["cross-origin"]["seen"] == "allowed for https://spa.example: none"


def test_scripts_of_a_public_client(server: Server) -> None:
    _, found = examine(server)
    assert "cross-origin" not in found
    client = server.register("SPA", "https://spa.example/", "--public")["client_id"]
    code, found = examine(server)
    assert (code, found["cross-origin"]["status"]) == (0, "ok")
    server.flask("client", "delete", client, "--yes")


def test_a_secret_that_others_can_read(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(server.environ["SSO_SECRET_KEY"])
    path.chmod(0o644)
    code, found = examine(server, SSO_SECRET_KEY="", SSO_SECRET_KEY_FILE=str(path))
    assert (code, found["file modes"]["status"]) == (1, "wrong")
    assert found["file modes"]["hint"] == f"chmod 640 {path}"
    assert found["code flow"]["status"] == "ok"


def test_addresses_that_can_be_forged(tmp_path: Path) -> None:
    with Server(tmp_path, workers=1, SSO_TRUSTED_PROXIES="1").running() as server:
        code, found = examine(server)
    assert (code, found["proxy headers"]["status"]) == (1, "wrong")
    assert found["code flow"]["status"] == "ok"


def test_for_people_a_line_each(server: Server) -> None:
    done = server.try_flask("doctor", SSO_REDIS_URL=f"redis://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "wrong    redis" in done.stdout
    assert "fix: check SSO_REDIS_URL" in done.stdout
    assert "ok       code flow" in done.stdout
    assert re.search(r"Error: 1 of \d+ checks failed\n", done.stderr)


def test_nobody_does_what_is_due(server: Server) -> None:
    app = create_app({k: v for k, v in server.environ.items() if k.startswith("SSO_")})
    with app.app_context():
        long_ago = clock.now() - timedelta(hours=5)
        db.session.execute(
            insert(AuditEvent).values(id=uuid4(), at=long_ago, name="thing_happened", fields="{}")
        )
        db.session.commit()
        code, found = examine(server)
        assert (code, found["worker"]["status"]) == (1, "wrong")
        assert "flask worker" in found["worker"]["hint"]
        assert found["code flow"]["status"] == "ok"
        db.engine.dispose()
    server.flask("worker", "--once")
    assert examine(server)[1]["worker"]["status"] == "ok"


@pytest.mark.parametrize(
    ("ago", "status", "seen"),
    [
        (None, "warning", "none has ever run"),
        (timedelta(minutes=6), "warning", "none has run since"),
        (timedelta(minutes=4), "ok", "runs"),
    ],
)
def test_whether_a_worker_runs(
    server: Server, ago: timedelta | None, status: str, seen: str
) -> None:
    """Also where nothing is due yet: else nobody notices before the first mail is late."""
    app = create_app({k: v for k, v in server.environ.items() if k.startswith("SSO_")})
    with app.app_context():
        server.flask("worker", "--once")
        if ago is None:
            db.session.execute(delete(Heartbeat))
        else:
            db.session.execute(update(Heartbeat).values(at=clock.now() - ago))
        db.session.commit()
        code, found = examine(server)
        assert (code, found["worker"]["status"]) == (0, status)
        assert seen in found["worker"]["seen"]
        db.engine.dispose()
    server.flask("worker", "--once")
    assert examine(server)[1]["worker"]["status"] == "ok"


def test_a_secret_key_that_is_being_replaced(server: Server) -> None:
    theirs, other = server.environ["SSO_SECRET_KEY"], "the secret key that comes after theirs"
    code, found = examine(server, SSO_SECRET_KEY=other, SSO_SECRET_KEY_PREVIOUS=theirs)
    assert (found["keys"]["status"], found["secret key"]["status"]) == ("ok", "warning")
    assert "signing keys" in found["secret key"]["seen"]
    assert "flask key reencrypt" in found["secret key"]["hint"]
    code, found = examine(server, SSO_SECRET_KEY_PREVIOUS=other)
    assert (code, found["secret key"]["status"]) == (0, "warning")
    assert "remove it" in found["secret key"]["hint"]
    assert examine(server)[1]["secret key"]["status"] == "ok"


def test_the_addresses_of_earlier_servers(server: Server) -> None:
    """The server runs without the setting at first, as if it had not been restarted."""
    issuer = f"{server.origin}/realms/main"
    aliases = {"SSO_ISSUER_ALIASES": f"{issuer}=keycloak"}
    code, findings = examine(server, **aliases)
    assert (code, findings["issuer aliases"]["status"]) == (1, "wrong")
    assert "answers 404" in findings["issuer aliases"]["seen"]
    assert findings["code flow"]["status"] == "ok"
    nobody = {"SSO_ISSUER_ALIASES": f"http://127.0.0.1:{free_port()}/realms/main=keycloak"}
    assert "cannot be reached" in examine(server, **nobody)[1]["issuer aliases"]["seen"]
    # Another server answers there.
    own = {"SSO_BASE_URL": f"{server.origin}/api/other",
           "SSO_ISSUER_ALIASES": f"{server.base_url}=authelia"}  # fmt: skip
    assert "issuer is" in examine(server, **own)[1]["issuer aliases"]["seen"]


def test_a_client_whose_issuer_the_setting_no_longer_names(server: Server) -> None:
    issuer = f"{server.origin}/realms/main"
    aliases = {"SSO_ISSUER_ALIASES": f"{issuer}=keycloak"}
    arguments = ("--name", "A", "--redirect-uri", "https://a.example/", "--issuer", issuer)
    made = json.loads(server.flask("client", "create", *arguments, "--json", **aliases))
    code, findings = examine(server)
    assert (code, findings["issuer aliases"]["status"]) == (0, "warning")
    assert f"client update {made['client_id']} --issuer new" in findings["issuer aliases"]["hint"]
    server.flask("client", "update", made["client_id"], "--issuer", "new")
    assert "issuer aliases" not in examine(server)[1]
