"""The commands: what they print, how they end, what they do."""

import ast
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest
from click.testing import CliRunner, Result
from flask import Flask
from flask.cli import FlaskGroup

from sso import audit
from sso.audit.events import Event, limited
from sso.crypto import keys
from sso.extensions import db
from sso.metrics.exporter import SIGN_INS
from sso.models import User
from sso.ratelimit import limiting
from sso.store import clients, grants, users
from tests.support.actors import Browser, RelyingParty
from tests.support.factories import make_client, make_user
from tests.support.processes import ROOT


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        return app.test_cli_runner().invoke(args=arguments, input=stdin)

    return invoke


def parsed(result: Result) -> Any:
    """The one JSON value on standard output."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


CREATE = ("client", "create", "--name", "Wiki", "--redirect-uri", "https://wiki.example/cb")


def test_an_application_is_told_where_it_finds_the_rest(app: Flask, run: Any) -> None:
    """Most of them ask for this one URL."""
    shown = dict(line.split() for line in run(*CREATE).stdout.splitlines()[:4])
    answer = app.test_client().get(shown["discovery"]).get_json()
    assert answer["issuer"] == shown["issuer"]


def test_a_client_is_registered_and_its_secret_shown_once(app: Flask, run: Any) -> None:
    made = parsed(run(*CREATE, "--json"))
    assert made["redirect_uris"] == ["https://wiki.example/cb"]
    assert made["scope"] == "openid profile email"
    shown = run("client", "show", made["client_id"]).stdout
    assert made["client_id"] in shown
    assert made["client_secret"] not in shown
    with app.app_context():
        client = clients.find(made["client_id"])
        assert client is not None
        assert made["client_secret"] not in repr(vars(client))
        assert client.check_client_secret(made["client_secret"])
    assert [one["client_id"] for one in parsed(run("client", "list", "--json"))] == [
        made["client_id"]
    ]


@pytest.mark.parametrize(
    "address",
    ["https://a.example/#x", "javascript:alert(1)", "https://*.a.example/", "http://a.example/"],
)
def test_dangerous_addresses_are_refused(run: Any, address: str) -> None:
    result = run("client", "create", "--name", "X", "--redirect-uri", address)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert parsed(run("client", "list", "--json")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("client", "show", "nobody"),
        ("client", "disable", "nobody"),
        ("user", "show", "nobody@example.com"),
        ("user", "sessions", "nobody@example.com"),
        ("key", "retire", "nobody"),
        (*CREATE, "--scope", "openid nonsense"),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(run: Any, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1


def test_wrong_usage_is_exit_code_2(run: Any) -> None:
    assert run("client", "create").exit_code == 2
    assert run("client", "create", "--nonsense").exit_code == 2


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["usr"], "No such command 'usr'. Did you mean 'user'?"),
        (["rotes"], "No such command 'rotes'. Did you mean 'routes'?"),  # Flask's own
        (["user", "crate"], "No such command 'crate'. Did you mean 'create'?"),
        (["xyzzy"], "No such command 'xyzzy'."),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_mistyped_command(app: Flask, typed: list[str], meant: str) -> None:
    done = CliRunner().invoke(FlaskGroup(create_app=lambda: app), typed)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"Error: {meant}")


def test_rotating_a_secret(app: Flask, run: Any, client: RelyingParty) -> None:
    def works(secret: str) -> bool:
        answer = client.introspect("x", client_secret=secret)
        return answer.status_code == 200

    kept = parsed(run("client", "rotate-secret", client.client_id, "--keep-old", "1", "--json"))
    assert works(client.client_secret)
    assert works(kept["client_secret"])
    newest = parsed(run("client", "rotate-secret", client.client_id, "--json"))
    assert works(newest["client_secret"])
    assert not works(kept["client_secret"])
    assert not works(client.client_secret)


@pytest.mark.parametrize(
    "arguments", [("client", "disable"), ("client", "delete", "--yes")], ids=lambda a: a[1]
)
def test_a_client_that_is_disabled_or_deleted_ends_its_grants(
    run: Any, browser: Browser, client: RelyingParty, user: User, arguments: tuple[str, ...]
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    assert run(*arguments, client.client_id).exit_code == 0
    assert client.userinfo(tokens["access_token"]).status_code == 401
    assert browser.authorize(client).status == 400


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (("user", "disable"), None),
        (("user", "delete", "--yes"), None),
        (("user", "sign-out"), None),
        (("user", "set-password", "--password-stdin"), "another long password\n"),
    ],
    ids=["disable", "delete", "sign-out", "set-password"],
)
def test_what_ends_a_users_sessions(
    run: Any,
    browser: Browser,
    client: RelyingParty,
    user: User,
    arguments: tuple[str, ...],
    stdin: str | None,
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    result = run(*arguments, user.email, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    assert client.userinfo(tokens["access_token"]).status_code == 401
    assert client.refresh(tokens["refresh_token"]).status_code == 400
    assert browser.authorize(client).path.endswith("/sign-in")


def test_deleting_asks(run: Any, client: RelyingParty) -> None:
    result = run("client", "delete", client.client_id)
    assert result.exit_code == 1
    assert "--yes" in result.stderr
    assert parsed(run("client", "show", client.client_id, "--json"))


def test_a_user_is_made_and_changed(run: Any) -> None:
    create = ["user", "create", "--email", "Erin@Example.com", "--name", "Erin"]
    made = parsed(
        run(
            *create,
            *("--password-stdin", "--json", "--group", "staff", "--claim", "locale=de"),
            stdin="correct horse battery\n",
        )
    )
    assert set(made) >= {"id", "email", "name", "email_verified"}
    assert (made["email"], made["email_verified"]) == ("erin@example.com", False)
    shown = parsed(run("user", "show", made["id"], "--json"))
    assert (shown["groups"], shown["claims"]) == (["staff"], {"locale": "de"})
    again = run(*create, "--password-stdin", stdin="correct horse battery\n")
    assert again.exit_code == 1
    short = run("user", "set-password", made["id"], "--password-stdin", stdin="short\n")
    assert short.exit_code == 1


def test_terminal_escapes_are_made_harmless(app: Flask, run: Any) -> None:
    make_client(app, name="evil")
    with app.app_context():
        (client,) = clients.every()
        client.set_client_metadata({**client.client_metadata, "client_name": "\x1b[31mevil\n"})
        db.session.commit()
    assert "\x1b" not in run("client", "list").stdout


def test_keys(run: Any) -> None:
    states = sorted((key["alg"], key["state"]) for key in parsed(run("key", "list", "--json")))
    assert states == [
        (alg, state) for alg in sorted(keys.ALGORITHMS) for state in ("active", "next")
    ]
    assert run("key", "rotate").exit_code == 0
    refused = run("key", "rotate")
    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    active = next(
        key["kid"] for key in parsed(run("key", "list", "--json")) if key["state"] == "active"
    )
    assert run("key", "retire", active).exit_code == 1


def test_purge(run: Any) -> None:
    assert set(parsed(run("purge", "--json"))) >= {"tokens", "authorization_codes", "grants"}


def flask(tmp_path: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The real command, as a process."""
    environ = {
        "PATH": str(Path(sys.executable).parent),
        "SSO_SECRET_KEY": "k" * 40,
        "SSO_DATABASE_URL": f"sqlite:///{tmp_path / 'sso.db'}",
        **environ,
    }
    return subprocess.run(
        [sys.executable, "-m", "flask", *arguments],
        cwd=ROOT, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_settings_are_shown_with_every_fault(tmp_path: Path) -> None:
    good = flask(tmp_path, "settings", "--json")
    assert good.returncode == 0, good.stderr
    assert "k" * 40 not in good.stdout
    assert json.loads(good.stdout)["faults"] == []
    bad = flask(tmp_path, "settings", SSO_ACCESS_TOKEN_LIFETIME="soon", SSO_COLOUR="blue")
    assert bad.returncode == 1
    assert "SSO_COLOUR" in bad.stdout
    assert "SSO_ACCESS_TOKEN_LIFETIME" in bad.stdout


def test_faults_stop_the_start_without_a_traceback(tmp_path: Path) -> None:
    bad = flask(tmp_path, "client", "list", SSO_ACCESS_TOKEN_LIFETIME="soon", SSO_COLOUR="blue")
    assert bad.returncode == 1
    assert bad.stdout == ""
    assert "Traceback" not in bad.stderr
    assert len(bad.stderr.strip().splitlines()) == 2


def test_a_database_without_tables(tmp_path: Path) -> None:
    result = flask(tmp_path, "client", "list")
    assert result.returncode == 1
    assert "flask db upgrade" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_going_back_asks_first(run: Any) -> None:
    refused = run("db", "downgrade")
    assert refused.exit_code == 1
    assert "--yes" in refused.stderr
    assert run("user", "list").exit_code == 0
    assert "0004" in run("db", "downgrade", "0004", "--yes").stdout
    assert "its schema is 0004, not" in run("audit", "list").stderr
    assert run("db", "upgrade").exit_code == 0
    shown = run("db", "--help").stdout
    assert "upgrade" in shown
    assert "stamp" not in shown


def test_a_worker_that_fails_says_so(make_app: Callable[..., Flask]) -> None:
    url = "postgresql+psycopg://sso:bad@127.0.0.1:1/x"
    run = make_app(SSO_DATABASE_URL=url).test_cli_runner()
    done = run.invoke(args=["worker", "--once"])
    assert done.exit_code == 1
    assert "send mails: failed" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_slip_of_the_pen(run: Any) -> None:
    run(*CREATE)
    for options in ((), ("--json",), ("--user", "nobody@example.com")):
        refused = run("audit", "list", "--event", "client_created", "--event", "nonsense", *options)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "there is no event nonsense" in refused.stderr
    assert "client_created" in run("audit", "list", "--event", "client_maid").stderr
    done = run("audit", "list", "--event", "client_deleted", "--user", "nobody@example.com")
    assert done.exit_code == 0  # there is such an event, though it has not happened
    assert "no user nobody@example.com" in done.stderr


def events_in(tree: ast.AST) -> set[str]:
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Event"
    }


def test_every_limit_has_its_event() -> None:
    kinds = (limiting.Guessing, limiting.Flooding)
    limits = {rule.name for rule in vars(limiting).values() if isinstance(rule, kinds)}
    # What strangers and people can repeat in a loop has a budget, too.
    notes = ("refusals.record", "note_refusal(", "own_events.record")
    for path in (ROOT / "sso").rglob("*.py"):
        text = path.read_text()
        if "refusal" not in text and "own_events" not in text:
            continue  # parsing all files takes seconds
        tree = ast.parse(text)
        if not any(note in ast.unparse(tree) for note in notes):
            continue
        for part in tree.body:
            if isinstance(part, ast.FunctionDef) and not any(
                note in ast.unparse(part) for note in notes
            ):
                continue
            unlimited = [
                node.args[0]
                for node in ast.walk(part)
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "audit.event"
            ]
            told = events_in(part).difference(*map(events_in, unlimited))
            limits |= {Event[name] for name in told}
    assert len(limits) > 20
    assert {limited(rule) for rule in limits} <= set(Event)
    assert limited("sign_in") == "sign_in_limited"
    assert limited(Event.TOKENS_REFUSED) == "tokens_refused_limited"
    with pytest.raises(ValueError, match="nonsense"):
        limited("nonsense")
    assert set(SIGN_INS) <= set(Event)


@pytest.mark.parametrize("at_a_terminal", [True, False])
def test_audit_events_are_logged_but_not_to_a_terminal(
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    at_a_terminal: bool,
) -> None:
    stream = click.testing._NamedTextIOWrapper
    monkeypatch.setattr(stream, "isatty", lambda _: at_a_terminal, raising=False)
    for _ in range(2):  # and the level is restored
        parsed(run(*CREATE, "--json"))
    assert caplog.text.count("client_created") == (0 if at_a_terminal else 2)
    assert audit.logger.isEnabledFor(logging.INFO)


def test_an_empty_table_says_so(run: Any) -> None:
    listed = run("user", "list", "--search", "nobody")
    assert (listed.exit_code, listed.stderr) == (0, "(nothing to list)\n")
    assert run("user", "list", "--search", "nobody", "--json").stderr == ""


@pytest.mark.parametrize(("most", "emails"), [(3, ["c@x.org"]), (2, []), (1, [])])
def test_a_search_looks_through_so_many_users(
    run: Any, app: Flask, monkeypatch: pytest.MonkeyPatch, most: int, emails: list[str]
) -> None:
    for email in ("a@x.org", "b@x.org", "c@x.org"):
        make_user(app, email)
    monkeypatch.setattr(users, "MOST_LOOKED_THROUGH", most)
    listed = run("user", "list", "--search", "c@x", "--json")
    assert [row["email"] for row in json.loads(listed.stdout)] == emails
    note = f"Only the first {most} users were looked through."
    assert (note in listed.stderr) == (most < 3)


def test_grants_are_counted_up_to_a_number(
    app: Flask, run: Any, client: RelyingParty, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "MOST_COUNTED", 2)
    for expected in ("1", "2 or more", "2 or more"):
        client.exchange(Browser(app).approve(client).code)
        shown = run("client", "show", client.client_id).stdout
        assert re.search(rf"live_grants +{expected}$", shown, re.MULTILINE), shown
