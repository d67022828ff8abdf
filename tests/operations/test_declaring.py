"""`flask export` and `flask apply`: one file for another installation, or for tomorrow."""

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask

from sso import create_app
from sso.config.client_fields import FIELDS
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import Mail
from sso.store import clients, users
from tests.conftest import Clock
from tests.operations.conftest import fresh_database
from tests.support.actors import Browser
from tests.support.factories import PASSWORD, make_client, make_user
from tests.support.processes import SECRET_KEY

SECRET = "a-random-secret-of-32-characters-or-more"
WIKI = """
format = 1
[[clients]]
client_id = "wiki"
client_name = "Wiki"
redirect_uris = ["https://wiki.example/cb"]
first_party = true
secret = "env:WIKI_SECRET"
[[users]]
email = "Erin@example.com"
name = "Erin"
groups = ["staff"]
initial_password = "env:ERIN"
claims = { locale = "nl" }
"""
VALUES = {"WIKI_SECRET": SECRET, "ERIN": PASSWORD}


def run(app: Flask, *arguments: str, **environ: str) -> Any:
    return app.test_cli_runner().invoke(args=arguments, env={**VALUES, **environ})


@pytest.fixture
def apply(app: Flask, tmp_path: Path) -> Callable[..., Any]:
    def write_and_apply(text: str, *options: str) -> Any:
        path = tmp_path / "sso.toml"
        path.write_text(text)
        return run(app, "apply", str(path), *options)

    return write_and_apply


@pytest.fixture
def elsewhere(cluster: str, tmp_path: Path) -> Iterator[Flask]:
    """Another installation, on PostgreSQL."""
    settings = {"SSO_SECRET_KEY": SECRET_KEY, "SSO_DATABASE_URL": fresh_database(cluster)}
    app = create_app(settings, tmp_path / "elsewhere")
    assert run(app, "db", "upgrade").exit_code == 0
    yield app
    with app.app_context():
        db.session.remove()
        db.engine.dispose()


def actions(result: Any) -> list[tuple[str, str]]:
    assert result.exit_code == 0, result.stderr
    return [(one["action"], one["name"]) for one in json.loads(result.stdout)["changes"]]


def test_an_export_makes_the_same_installation_elsewhere(
    app: Flask, elsewhere: Flask, tmp_path: Path
) -> None:
    made = make_client(app, name='A "quoted" name', require_pkce=True, groups=["staff"])
    user = make_user(app, groups=["staff"], claims={"address": {"locality": "Delft"}})
    path = tmp_path / "sso.toml"
    assert run(app, "export", str(path)).exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    with app.app_context():
        client, owner = clients.find(made.client_id), users.find(user.id)
        assert client is not None
        assert owner is not None
        hidden = (made.client_secret, client.secret_digest, str(owner.password_hash))
        assert [secret for secret in hidden if secret in text] == []
    path.write_text(text.replace("client_name =", 'secret = "env:WIKI_SECRET"\nclient_name ='))
    assert run(elsewhere, "apply", str(path)).exit_code == 0
    there = run(elsewhere, "export").stdout
    assert tomllib.loads(there) == tomllib.loads(text)
    assert actions(run(elsewhere, "apply", str(path), "--json")) == []
    assert json.loads(run(elsewhere, "export", "--json").stdout) == tomllib.loads(there)


def test_what_is_declared_works(app: Flask, apply: Callable[..., Any]) -> None:
    assert actions(apply(WIKI, "--json")) == [("create", "wiki"), ("create", "erin@example.com")]
    relying_party = make_client(app)
    relying_party.client_id, relying_party.client_secret = "wiki", SECRET
    relying_party.redirect_uri = "https://wiki.example/cb"
    browser = Browser(app)
    browser.authorize(relying_party)
    page = browser.sign_in("erin@example.com")
    tokens = relying_party.exchange(page.code).get_json()
    assert relying_party.userinfo(tokens["access_token"]).get_json()["locale"] == "nl"


def test_a_plan_changes_nothing(app: Flask, apply: Callable[..., Any]) -> None:
    shown = apply(WIKI, "--plan")
    assert shown.exit_code == 0
    assert "+ client wiki" in shown.stdout
    assert "+ user erin@example.com" in shown.stdout
    assert not any(value in shown.stdout for value in VALUES.values())
    assert actions(apply(WIKI, "--json", "--plan")) == actions(apply(WIKI, "--json"))


@pytest.mark.parametrize("given", [None, "0198a2f4-1111-4222-8333-444455556666"])
def test_the_id_that_is_told_is_the_one_that_there_is(
    app: Flask, apply: Callable[..., Any], given: str | None
) -> None:
    def ids(told: str) -> list[str]:
        return re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", told)

    file = WIKI.replace("[[users]]", f"[[users]]\nid = '{given}'") if given else WIKI
    other = file.replace("Erin@", "frank@").replace(given or "-", str(uuid4()) if given else "-")
    expected = [given] if given else []
    assert ids(apply(file, "--plan").stdout) == ids(apply(file, "--plan", "--json").stdout)
    assert ids(apply(file, "--plan").stdout) == expected
    printed, shown = ids(apply(file).stdout), ids(apply(other, "--json").stdout)
    with app.app_context():
        first, second = (users.find_by_email(f"{who}@example.com") for who in ("erin", "frank"))
        assert first is not None
        assert second is not None
        assert (printed, shown) == ([str(first.id)], [str(second.id)])


def invited(app: Flask) -> list[str]:
    with app.app_context():
        found = db.session.scalars(db.select(Mail.address).where(Mail.kind == "invite")).all()
        return sorted(found)


NOBODYS = """
format = 1
[[users]]
email = "frank@example.com"
name = "Frank"
[[users]]
email = "gone@example.com"
name = "Gone"
disabled = true
"""


def test_who_is_new_and_has_no_password_is_invited_once(
    app: Flask, apply: Callable[..., Any]
) -> None:
    both = WIKI + NOBODYS.replace("format = 1", "")
    plan = apply(both, "--plan").stdout
    assert plan.count("invitation: by mail") == 1
    assert "invitation: by mail" in plan.partition("frank@example.com")[2].partition("gone@")[0]
    assert invited(app) == []
    apply(both)
    assert invited(app) == ["frank@example.com"]
    assert actions(apply(both, "--json")) == []
    apply(both.replace('"Frank"', '"Franka"').replace("disabled = true", "disabled = false"))
    assert invited(app) == ["frank@example.com"]


def test_only_what_differs_is_changed(app: Flask, apply: Callable[..., Any]) -> None:
    apply(WIKI)
    assert actions(apply(WIKI, "--json")) == []
    more = WIKI.replace('["staff"]', '["staff", "admins"]').replace('"nl"', '"fr"')
    shown = apply(more)
    assert "~ user erin@example.com" in shown.stdout
    assert "groups: added admins" in shown.stdout
    with app.app_context():
        user = users.find_by_email("erin@example.com")
        assert user is not None
        assert (user.groups, user.claims) == (["staff", "admins"], {"locale": "fr"})


def test_a_new_secret_and_disabling_take_effect(
    app: Flask, apply: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(WIKI)
    monkeypatch.setitem(VALUES, "WIKI_SECRET", SECRET[::-1])
    shown = apply(WIKI)
    assert "secret: (by reference)" in shown.stdout
    assert SECRET[::-1] not in shown.stdout
    with app.app_context():
        client = clients.find("wiki")
        assert client is not None
        assert client.check_client_secret(SECRET[::-1])
        assert not client.check_client_secret(SECRET)
    browser = Browser(app)
    assert browser.sign_in("erin@example.com").path.endswith("/account")
    apply(WIKI.replace('name = "Erin"', 'name = "Erin"\ndisabled = true'))
    assert browser.open("/api/auth/account").path.endswith("/sign-in")


def test_who_leaves_a_group_loses_what_it_gave(app: Flask, apply: Callable[..., Any]) -> None:
    client = make_client(app, groups=["staff"])
    apply(WIKI)
    browser = Browser(app)
    browser.authorize(client)
    browser.sign_in("erin@example.com")
    tokens = client.exchange(browser.allow().code).get_json()
    assert client.userinfo(tokens["access_token"]).status_code == 200
    apply(WIKI.replace('["staff"]', "[]"), "--plan")
    assert client.userinfo(tokens["access_token"]).status_code == 200
    apply(WIKI.replace('["staff"]', "[]"))
    assert client.userinfo(tokens["access_token"]).status_code == 401


def test_pruning_is_asked_for_twice(app: Flask, apply: Callable[..., Any]) -> None:
    apply(WIKI)
    other = make_client(app)
    make_user(app)
    assert actions(apply(WIKI, "--json")) == []
    plan = actions(apply(WIKI, "--json", "--plan", "--prune"))
    assert plan == [("delete", other.client_id), ("delete", "dana@example.com")]
    refused = apply(WIKI, "--prune")
    assert refused.exit_code == 1
    assert "--yes" in refused.stderr
    assert actions(apply(WIKI, "--json", "--prune", "--yes")) == plan
    assert actions(apply("format = 1\nclients = []", "--json", "--prune", "--yes")) == [
        ("delete", "wiki")  # and no user: the file says nothing of users
    ]


def test_every_fault_is_told_and_nothing_done(app: Flask, apply: Callable[..., Any]) -> None:
    wrong = WIKI.replace("https://wiki.example/cb", "http://wiki.example/cb")
    result = apply(wrong.replace("env:ERIN", "env:NOBODY"))
    assert result.exit_code == 1
    assert "plain http" in result.stderr
    assert "env:NOBODY" in result.stderr
    with app.app_context():
        assert users.every() == clients.every() == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("clients = [", "cannot be understood"),
        ("clients = []", "format = 1"),
        ("format = 1\nservers = []", "'servers'"),
        ('format = 1\nclients = "all"', "list of tables"),
        ("format = 1\n[[clients]]\nclient_name = 'x'", "client_id is missing"),
        ("format = 1\n[[clients]]\nclient_id = '-x'", "client_id is not"),
        ("format = 1\n[[clients]]\nclient_id = 'x'", "give secret"),
        (WIKI.replace('"env:WIKI_SECRET"', f'"{SECRET}"'), "neither env:NAME nor file:PATH"),
        (WIKI.replace("env:WIKI_SECRET", "env:ERIN"), "shorter than 32"),
        (WIKI.replace("first_party", "colour"), "'colour' is unknown"),
        (WIKI.replace("true", "'yes'"), "first_party is not true or false"),
        (WIKI.replace('["staff"]', "[1]"), "groups is not a list of texts"),
        (WIKI + WIKI.partition("[[users]]")[2].join(["[[users]]", ""]), "is there twice"),
    ],
)
def test_files_that_do_not_do(apply: Callable[..., Any], text: str, fault: str) -> None:
    result = apply(text)
    assert result.exit_code == 1
    assert fault in result.stderr
    assert SECRET not in result.stderr


@pytest.mark.parametrize("kind", ["env", "file"])
def test_a_secret_that_is_not_utf_8(
    app: Flask,
    apply: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    latin = "mot de passe oublié".encode("latin-1")
    (tmp_path / "erin").write_bytes(latin)
    monkeypatch.setitem(VALUES, "ERIN", os.fsdecode(latin))
    reference = {"env": "env:ERIN", "file": f"file:{tmp_path / 'erin'}"}[kind]
    result = apply(WIKI.replace("env:ERIN", reference))
    assert result.exit_code == 1
    assert f"{reference}: it is not valid UTF-8" in result.stderr
    with app.app_context():
        assert users.every() == clients.every() == []


def test_the_file_has_all_metadata(app: Flask) -> None:
    """Metadata that is added to registration is to be added to the file, too."""
    preset = {"name": "grafana", "url": "https://books.example"}
    more = {"home_url": "https://books.example/", "preset": preset}
    made = make_client(app, backchannel_logout_uri="https://books.example/out", **more)
    with app.app_context():
        client = clients.find(made.client_id)
        assert client is not None
        assert set(client.client_metadata) <= FIELDS.keys()


CLI = """
format = 1
[[clients]]
client_id = "cli"
client_name = "CLI"
redirect_uris = ["http://127.0.0.1/cb", "com.example.cli:/cb"]
public = true
"""


def test_a_public_client(app: Flask, apply: Callable[..., Any], tmp_path: Path) -> None:
    assert actions(apply(CLI, "--json")) == [("create", "cli")]
    assert actions(apply(CLI, "--json")) == []
    with app.app_context():
        client = clients.find("cli")
        assert client is not None
        assert (client.is_public, client.require_pkce, client.secret_digest) == (True, True, "")
        db.session.rollback()
    exported = tmp_path / "exported.toml"
    assert run(app, "export", str(exported)).exit_code == 0
    assert run(app, "client", "delete", "cli", "--yes").exit_code == 0
    assert actions(apply(exported.read_text(), "--json")) == [("create", "cli")]
    assert actions(apply(CLI, "--json")) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (CLI + 'secret = "env:WIKI_SECRET"', "a public client has no secret"),
        (CLI + "require_pkce = false", "a public client always requires PKCE"),
        (CLI + 'token_endpoint_auth_method = "any"', "public contradicts"),
        (CLI.replace("true", "false"), "give secret"),
        (CLI.replace("true", '"yes"'), "public is not true or false"),
    ],
)
def test_public_clients_that_do_not_do(apply: Callable[..., Any], text: str, fault: str) -> None:
    result = apply(text)
    assert result.exit_code == 1
    assert fault in result.stderr


def test_a_public_client_stays_public(apply: Callable[..., Any]) -> None:
    assert apply(CLI, "--json").exit_code == 0
    wiki = WIKI.replace('"wiki"', '"cli"').replace("https://wiki.example/cb", "http://127.0.0.1/cb")
    for text in (
        CLI.replace("true", "false"),
        CLI.replace("public = true", 'token_endpoint_auth_method = "any"'),
    ):
        result = apply(text)
        assert result.exit_code == 1
        assert "stays public or confidential" in result.stderr
    assert "a public client has no secret" in apply(wiki).stderr


def test_an_end_that_comes_changes_nothing_in_the_file(
    app: Flask, apply: Callable[..., Any], clock: Clock
) -> None:
    """Even one that says that the account is not disabled: it is not, until it ends."""
    ends = WIKI.replace('name = "Erin"', 'name = "Erin"\nends_at = "2026-11-22T01:00+01:00"')
    for text in (ends, ends.replace("ends_at", "disabled = false\nends_at")):
        apply(text)
        assert actions(apply(text, "--json")) == []
        clock.time = datetime(2026, 11, 22, tzinfo=UTC)
        assert actions(apply(text, "--json")) == []
        with app.app_context():
            user = users.find_by_email("erin@example.com")
            assert user is not None
            assert (user.is_disabled, user.disabled_at) == (True, None)
            upkeep.end_due()
        assert actions(apply(text, "--json")) == []
        clock.time = datetime(2026, 11, 21, tzinfo=UTC)
        run(app, "user", "enable", "erin@example.com")
        run(app, "user", "update", "erin@example.com", "--no-ends-at")


@pytest.mark.parametrize(("lines", "is_accepted"), [
    ('ends_at = "2020-01-01"', False),
    ('disabled = true\nends_at = "2020-01-01"', True),
    ('disabled = true\nends_at = "soon"', False),
])  # fmt: skip
@pytest.mark.parametrize("is_new", [True, False])
def test_an_end_in_the_past_is_that_of_a_disabled_user(
    app: Flask, apply: Callable[..., Any], lines: str, is_accepted: bool, is_new: bool
) -> None:
    if not is_new:
        apply(WIKI)
    result = apply(WIKI.replace('name = "Erin"', f'name = "Erin"\n{lines}'))
    assert (result.exit_code == 0) is is_accepted
    with app.app_context():
        user = users.find_by_email("erin@example.com")
        assert (user is not None and user.ends_at is not None) is is_accepted


def test_a_later_end_of_a_user_declared_disabled_enables_nobody(
    app: Flask, apply: Callable[..., Any], clock: Clock
) -> None:
    lines = 'name = "Erin"\ndisabled = true\nends_at = "2026-12-01"'
    apply(WIKI.replace('name = "Erin"', 'name = "Erin"\nends_at = "2026-11-25"'))
    clock.move(days=9)
    with app.app_context():
        upkeep.end_due()
    apply(WIKI.replace('name = "Erin"', lines))
    with app.app_context():
        user = users.find_by_email("erin@example.com")
        assert user is not None
        assert user.is_disabled


def test_an_end_of_a_membership_that_comes_changes_nothing_in_the_file(
    app: Flask, apply: Callable[..., Any], clock: Clock
) -> None:
    groups = 'groups = ["staff", "club"]\ngroup_ends = {club = "2026-11-22T01:00+01:00"}'
    text = WIKI.replace('groups = ["staff"]\ninitial', f"{groups}\ninitial")
    assert groups in text
    assert apply(text).exit_code == 0
    assert actions(apply(text, "--json")) == []
    clock.time = datetime(2026, 11, 22, tzinfo=UTC)
    for _ in range(2):
        assert actions(apply(text, "--json")) == []
        with app.app_context():
            user = users.find_by_email("erin@example.com")
            assert user is not None
            assert user.groups == ["staff"]
            upkeep.end_due()
    later = text.replace("2026-11-22T01:00+01:00", "2099-01-01")
    assert apply(later).exit_code == 0
    assert apply(later.replace('{club = "2099-01-01"}', "{}")).exit_code == 0
    with app.app_context():
        user = users.find_by_email("erin@example.com")
        assert user is not None
        assert (user.groups, user.group_ends) == (["staff", "club"], None)


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("ends", ['{club = "2099-01-01"}', '{staff = "soon"}', "{staff = 3}"])
def test_ends_of_memberships_that_do_not_do(
    app: Flask, apply: Callable[..., Any], ends: str, is_new: bool
) -> None:
    if not is_new:
        apply(WIKI)
    result = apply(WIKI.replace('name = "Erin"', f'name = "Erin"\ngroup_ends = {ends}'))
    assert result.exit_code == 1
    assert "users erin@example.com" in result.stderr.lower()


END = 'secret_ends_at = "2026-12-01T01:00+01:00"'


def secret_end(app: Flask) -> datetime | None:
    with app.app_context():
        client = clients.find("wiki")
        return client.secret_expires_at if client else None


@pytest.mark.parametrize("is_new", [True, False])
def test_the_end_of_a_secret(
    app: Flask, apply: Callable[..., Any], clock: Clock, tmp_path: Path, is_new: bool
) -> None:
    if not is_new:
        assert apply(WIKI).exit_code == 0
        assert secret_end(app) is None
    text = WIKI.replace("first_party", f"{END}\nfirst_party")
    plan = apply(text, "--plan", "--json")
    assert actions(plan)[0] == ("create" if is_new else "update", "wiki")
    assert "2026-12-01T00:00:00Z" in plan.stdout
    assert secret_end(app) is None
    assert apply(text).exit_code == 0
    assert secret_end(app) == datetime(2026, 12, 1, tzinfo=UTC)
    exported = tmp_path / "exported.toml"
    assert run(app, "export", str(exported)).exit_code == 0
    assert 'secret_ends_at = "2026-12-01T00:00:00Z"' in exported.read_text()
    for moment in (datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 12, 2, tzinfo=UTC)):
        clock.time = moment
        for same in (text, exported.read_text(), WIKI):
            assert actions(apply(same, "--json")) == []
    assert actions(apply(text.replace(END, 'secret_ends_at = ""'), "--json")) == [
        ("update", "wiki")
    ]
    assert secret_end(app) is None
    assert "secret_ends_at" not in run(app, "export").stdout


def test_a_new_secret_has_the_end_that_the_file_says(
    app: Flask, apply: Callable[..., Any], tmp_path: Path, clock: Clock
) -> None:
    text = WIKI.replace("first_party", f"{END}\nfirst_party")
    apply(text)
    path = tmp_path / "sso.toml"
    other = {"WIKI_SECRET": SECRET[::-1]}
    assert run(app, "apply", str(path), **other).exit_code == 0
    assert secret_end(app) == datetime(2026, 12, 1, tzinfo=UTC)
    assert actions(run(app, "apply", str(path), "--json", **other)) == []
    path.write_text(WIKI)
    assert run(app, "apply", str(path)).exit_code == 0  # with the first secret again
    assert secret_end(app) is None
    apply(text)
    clock.time = datetime(2026, 12, 2, tzinfo=UTC)
    result = run(
        app, "apply", str(path), **other
    )  # the end of the old one is not that of a new one
    assert (result.exit_code, secret_end(app)) == (1, datetime(2026, 12, 1, tzinfo=UTC))
    assert "clients wiki: the end 2026-12-01T00:00:00Z is in the past" in result.stderr


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('secret_ends_at = "soon"', "is no time"),
        ('secret_ends_at = "2020-01-01"', "is in the past"),
        ('secret_ends_at = "2027-03-28T02:30 Europe/Berlin"', "is no time"),
        ("secret_ends_at = 3", "secret_ends_at"),
        ("secret_ends_at = 2027-01-01", "secret_ends_at"),
    ],
)
@pytest.mark.parametrize("is_new", [True, False])
def test_ends_of_secrets_that_do_not_do(
    app: Flask, apply: Callable[..., Any], line: str, fault: str, is_new: bool
) -> None:
    if not is_new:
        apply(WIKI)
    result = apply(WIKI.replace("first_party", f"{line}\nfirst_party"))
    assert result.exit_code == 1
    assert fault in result.stderr
    assert secret_end(app) is None


def test_a_public_client_has_no_secret_that_ends(app: Flask, apply: Callable[..., Any]) -> None:
    public = WIKI.replace('secret = "env:WIKI_SECRET"', f"public = true\n{END}")
    assert "a public client has no secret" in apply(public).stderr
    public = public.replace(END, 'secret_ends_at = ""')
    assert apply(public).exit_code == 0
    assert actions(apply(public, "--json")) == []
    assert "a public client has no secret" in apply(public.replace('""', '"2099-01-01"')).stderr
