"""`client update` and `user update`: lists change by adding and removing, and it is told."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import pytest
from click.testing import Result
from flask import Flask

from sso import audit
from sso.audit import writer
from sso.extensions import db
from sso.models import User
from sso.services import accounts
from sso.services import clients as client_services
from sso.services.changes import ListEdit
from sso.store import clients, users
from tests.support.actors import Browser, RelyingParty
from tests.support.factories import make_api, make_client, make_user

FIRST, SECOND = "https://books.example/callback", "https://books.example/second?tenant=1"


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str) -> Result:
        writer.flush(app)
        return app.test_cli_runner().invoke(args=arguments)

    return invoke


def parsed(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def last_event(run: Any, name: str) -> Any:
    return parsed(run("audit", "list", "--event", name, "--json"))[0]["fields"]


LISTS = [
    ("redirect-uri", "redirect-uris", "redirect_uris", FIRST, SECOND),
    ("post-logout-redirect-uri", "post-logout-redirect-uris", "post_logout_redirect_uris",
     FIRST, SECOND),
    ("scope", "scopes", "scope", "openid", "phone"),
    ("group", "groups", "groups", "sales north", "staff"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "many", "field", "kept", "other"), LISTS, ids=lambda v: v[:10])
def test_a_clients_list(
    app: Flask, run: Any, one: str, many: str, field: str, kept: str, other: str
) -> None:
    given = {field: kept if field == "scope" else [kept]}
    client = make_client(app, **{"redirect_uris": [FIRST], **given})

    def update(*options: str) -> tuple[list[str], Any]:
        shown = parsed(run("client", "update", client.client_id, *options, "--json"))
        value = shown[field]
        return value.split() if field == "scope" else value, shown["changes"]

    values, changes = update(f"--add-{one}", other)
    assert values == [kept, other]
    assert changes.keys() == {field}
    assert (changes[field]["added"], changes[field]["removed"]) == ([other], [])
    assert last_event(run, "client_changed")["changes"] == changes
    values, changes = update(f"--remove-{one}", kept)
    assert values == [other]
    assert (changes[field]["added"], changes[field]["removed"]) == ([], [kept])
    values, changes = update(f"--set-{many}", kept, f"--set-{many}", other)
    assert values == [kept, other]
    assert changes[field]["before"] != changes[field]["after"]
    values, _ = update(
        f"--add-{one}", "email" if field == "scope" else SECOND, f"--remove-{one}", kept
    )
    assert kept not in values


def test_help_promises_an_empty_list_where_there_may_be_one(app: Flask, run: Any) -> None:
    client, user = make_client(app), make_user(app)
    for kind, who in (("client", client.client_id), ("user", user.email)):
        told = " ".join(run(kind, "update", "--help").stdout.split())
        options = re.findall(r"(--set-[a-z-]+) \S+ Replace them all. ([^-]+)", told)
        assert len(options) == {"client": 14, "user": 1}[kind]
        for option, promise in options:
            emptied = run(kind, "update", who, option, "")
            assert (emptied.exit_code == 0) == ('"" leaves none' in promise), option
    told = " ".join(run("client", "update", "--help").stdout.split())
    assert "Add a post-logout redirect URI." in told
    assert "Remove a group." in told


@pytest.mark.parametrize(
    "name",
    ["sales,north", "a, b", " staff", "staff ", "\tstaff", "a\nb", "\x9b", "a\x00b", "\u00a0a"],
)
def test_groups_that_a_list_would_not_tell_apart(
    app: Flask, run: Any, tmp_path: Path, name: str
) -> None:
    client, user = make_client(app), make_user(app)
    given = ("--email", "erin@example.com", "--name", "Erin")
    before = run("export").stdout
    declared = tmp_path / "declared.json"
    users_of = [{"email": "erin@example.com", "name": "Erin", "groups": [name]}]
    clients_of = [{"client_id": client.client_id, "groups": [name]}]
    commands = [
        ("user", "update", user.email, "--add-group", name),
        ("user", "update", user.email, "--set-groups", name),
        ("user", "invite", *given, "--group", name),
        ("client", "update", client.client_id, "--add-group", name),
        ("client", "create", "--name", "B", "--redirect-uri", FIRST, "--group", name),
    ]
    for arguments in commands:
        assert run(*arguments).exit_code == 1, arguments
    for kind, entries in (("users", users_of), ("clients", clients_of)):
        declared.write_text(json.dumps({"format": 1, kind: entries}))
        refused = run("apply", str(declared))
        assert refused.exit_code == 1
        assert "a group's name" in refused.stderr or "the group's name" in refused.stderr
    assert run("export").stdout == before


def test_groups_from_before_that_rule_stay_and_go(app: Flask, run: Any) -> None:
    client, user = make_client(app), make_user(app, groups=["staff"])
    with app.app_context():
        found, owner = clients.find(client.client_id), users.find(user.id)
        assert found is not None
        assert owner is not None
        found.set_client_metadata({**found.client_metadata, "groups": ["sales, north"]})
        owner.groups = ["sales, north"]
        db.session.commit()
    for kind, who in (("client", client.client_id), ("user", user.email)):
        assert run(kind, "update", who, "--name", "New", "--add-group", "staff").exit_code == 0
        left = parsed(run(kind, "update", who, "--remove-group", "sales, north", "--json"))
        assert left["groups"] == ["staff"]
        assert run(kind, "update", who, "--add-group", "sales, north").exit_code == 1


def test_a_users_groups(app: Flask, run: Any) -> None:
    user = make_user(app, groups=["staff", "sales"])

    def update(*options: str) -> Any:
        return parsed(run("user", "update", user.email, *options, "--json"))

    shown = update("--add-group", "night shift", "--remove-group", "sales")
    assert shown["groups"] == ["staff", "night shift"]
    assert shown["changes"] == {
        "groups": {
            "before": ["staff", "sales"],
            "after": ["staff", "night shift"],
            "added": ["night shift"],
            "removed": ["sales"],
        }
    }
    assert last_event(run, "user_changed")["changes"] == shown["changes"]
    assert update("--set-groups", "a", "--set-groups", "b")["groups"] == ["a", "b"]
    assert update("--set-groups", "")["groups"] == []


@pytest.mark.parametrize(
    ("command", "options", "hint"),
    [
        ("client", ("--group", "x"), "--add-group"),
        ("client", ("--no-groups",), '--set-groups ""'),
        ("client", ("--redirect-uri", SECOND), "--add-redirect-uri"),
        ("client", ("--post-logout-redirect-uri", SECOND), "--add-post-logout-redirect-uri"),
        ("client", ("--no-post-logout-redirect-uris",), '--set-post-logout-redirect-uris ""'),
        ("client", ("--scope", "openid"), "--set-scopes"),
        ("user", ("--group", "x"), "--add-group"),
        ("user", ("--no-groups",), '--set-groups ""'),
        ("client", ("--set-groups", "a", "--add-group", "b"), "--set-groups replaces"),
        ("user", ("--set-groups", "", "--remove-group", "b"), "--set-groups replaces"),
        ("user", ("--add-group", "b", "--remove-group", "b"), "both added and removed"),
        ("user", (), "nothing to change"),
        ("client", (), "nothing to change"),
    ],
)
def test_wrong_usage_changes_nothing(
    app: Flask, run: Any, command: str, options: tuple[str, ...], hint: str
) -> None:
    client = make_client(app, groups=["staff"], post_logout_redirect_uris=[FIRST])
    user = make_user(app, groups=["staff", "sales"])
    who = client.client_id if command == "client" else user.email
    before = run(command, "show", who).stdout
    refused = run(command, "update", who, *options)
    assert refused.exit_code == 2
    assert hint in refused.stderr
    assert refused.stdout == ""
    assert run(command, "show", who).stdout == before


def test_former_options_still_create(run: Any) -> None:
    given = ("--redirect-uri", FIRST, "--scope", "openid", "--group", "staff")
    made = parsed(run("client", "create", "--name", "Wiki", *given, "--json"))
    assert (made["redirect_uris"], made["scope"], made["groups"]) == ([FIRST], "openid", ["staff"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--remove-redirect-uri", FIRST), "at least one"),
        (("--set-redirect-uris", ""), "at least one"),
        (("--set-scopes", " "), "no scope"),
        (("--remove-scope", "openid profile email"), "no scope"),
        (("--add-scope", "nonsense"), "unknown scopes"),
        (("--add-redirect-uri", "http://books.example/"), "plain http"),
    ],
)
def test_what_an_application_cannot_do_without(
    app: Flask, run: Any, options: tuple[str, ...], reason: str
) -> None:
    client = make_client(app)
    refused = run("client", "update", client.client_id, *options)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert reason in refused.stderr
    shown = parsed(run("client", "show", client.client_id, "--json"))
    assert (shown["redirect_uris"], shown["scope"]) == ([FIRST], "openid profile email")
    assert parsed(run("audit", "list", "--event", "client_changed", "--json")) == []


def test_what_is_there_or_not_there_already(app: Flask, run: Any) -> None:
    """It is said, on standard error; it is no failure, and nothing is recorded."""
    client = make_client(app)
    options = ("--add-redirect-uri", FIRST, "--remove-redirect-uri", f"{FIRST}/")
    done = run("client", "update", client.client_id, *options)
    assert done.exit_code == 0
    assert f"{FIRST} is there already" in done.stderr
    assert f"{FIRST}/ is not there" in done.stderr
    assert "Nothing changed" in done.stdout
    assert parsed(run("client", "update", client.client_id, *options, "--json"))["changes"] == {}
    assert parsed(run("audit", "list", "--event", "client_changed", "--json")) == []


def test_who_may_use_an_application_is_said(app: Flask, run: Any) -> None:
    client = make_client(app)
    first = run("client", "update", client.client_id, "--add-group", "staff")
    assert "Only members of staff may use it" in first.stderr
    last = run("client", "update", client.client_id, "--remove-group", "staff")
    assert "everybody may use it" in last.stderr
    other = run("client", "update", client.client_id, "--name", "Else")
    assert "may use it" not in other.stderr


def test_every_changed_field_is_told_before_and_after(app: Flask, run: Any) -> None:
    client, user = make_client(app), make_user(app, claims={"locale": "de"})
    done = run("client", "update", client.client_id, "--name", "More", "--require-pkce")
    assert "client_name: Books -> More" in done.stdout
    assert "require_pkce: false -> true" in done.stdout
    found = last_event(run, "client_changed")
    assert found["what"] == "client_name require_pkce"
    assert found["changes"] == {
        "client_name": {"before": "Books", "after": "More"},
        "require_pkce": {"before": False, "after": True},
    }
    options = ("--email", "erin@corp.local", "--claim", "locale=", "--claim", "given_name=E")
    done = run("user", "update", user.email, *options, "--name", user.name)
    assert "email: dana@example.com -> erin@corp.local" in done.stdout
    found = last_event(run, "user_changed")
    assert found["changes"] == {
        "email": {"before": "dana@example.com", "after": "erin@corp.local"},
        "email_verified": {"before": True, "after": False},
        "claims": {"before": {"locale": "de"}, "after": {"given_name": "E"}},
    }


def test_a_long_list_is_recorded_whole(app: Flask, run: Any) -> None:
    client = make_client(app)
    added = [f"https://books.example/{'x' * 300}/{number}?code=1" for number in range(20)]
    options = [word for uri in added for word in ("--add-redirect-uri", uri)]
    assert run("client", "update", client.client_id, *options).exit_code == 0
    assert last_event(run, "client_changed")["changes"]["redirect_uris"]["added"] == added
    assert run("audit", "verify").exit_code == 0


def test_a_secret_is_never_recorded(app: Flask, run: Any) -> None:
    client = make_client(app)
    run("client", "update", client.client_id, "--name", "More")
    fields = json.dumps(last_event(run, "client_changed"))
    assert client.client_secret not in fields
    assert "secret" not in fields
    assert "digest" not in fields


def test_losing_a_group_ends_what_it_gave(app: Flask, run: Any, browser: Browser) -> None:
    client = make_client(app, groups=["staff"])
    user = make_user(app, groups=["staff", "sales"])
    tokens = client.exchange(browser.approve(client).code).get_json()
    run("user", "update", user.email, "--remove-group", "sales")
    assert client.userinfo(tokens["access_token"]).status_code == 200
    run("user", "update", user.email, "--remove-group", "staff")
    assert client.userinfo(tokens["access_token"]).status_code == 401


def test_pkce_is_recommended_when_a_client_is_made(run: Any) -> None:
    create = ("client", "create", "--name", "Wiki", "--redirect-uri", FIRST)
    made = run(*create).stdout
    assert "recommended" in made
    command = next(line.split() for line in made.splitlines() if "flask client update" in line)
    assert run(*command[1:]).exit_code == 0
    assert parsed(run("client", "show", command[3], "--json"))["require_pkce"] is True
    assert "PKCE" not in run(*create, "--require-pkce").stdout
    parsed(run(*create, "--json"))


@contextmanager
def at_the_same_time(app: Flask, work: Callable[[], Any]) -> Iterator[Thread]:
    """Another process's command, which begins within the block and may end after it."""

    def act() -> None:
        with app.app_context():
            work()
            db.session.commit()

    thread = Thread(target=act)
    with app.app_context():
        yield thread
    thread.join(30)
    assert not thread.is_alive()


def test_two_updates_of_one_client(app: Flask, client: RelyingParty) -> None:
    def add(uri: str) -> Any:
        edits = {"redirect_uris": ListEdit(added=(uri,))}
        return client_services.change(audit.SYSTEM, client.client_id, {}, lists=edits)

    with at_the_same_time(app, lambda: add(SECOND)) as other:
        add("https://books.example/third")
        other.start()
        other.join(0.5)
        assert other.is_alive()  # it waits
        db.session.commit()
    with app.app_context():
        found = clients.find(client.client_id)
        assert found
        expected = [FIRST, "https://books.example/third", SECOND]
        assert found.client_metadata["redirect_uris"] == expected


def test_two_updates_of_one_user(app: Flask, user: User) -> None:
    def add(group: str) -> Any:
        return accounts.update(
            audit.SYSTEM, UUID(str(user.id)), memberships=ListEdit(added=(group,))
        )

    with at_the_same_time(app, lambda: add("sales")) as other:
        add("staff")
        other.start()
        other.join(0.5)
        assert other.is_alive()  # it waits
        db.session.commit()
    with app.app_context():
        found = users.find(user.id)
        assert found
        assert found.groups == ["staff", "sales"]


def test_a_language_chosen_while_an_operator_changes_a_claim(
    app: Flask, user: User, browser: Browser
) -> None:
    browser.sign_in()
    browser.open("/api/auth/account")

    def choose() -> None:
        browser.submit(action="choose_language", locale="fr")

    other = Thread(target=choose)
    with app.app_context():
        accounts.update(audit.SYSTEM, UUID(str(user.id)), claims={"nickname": "D"})
        other.start()
        other.join(0.7)
        db.session.commit()
    other.join(30)
    with app.app_context():
        found = users.find(user.id)
        assert found
        assert found.claims == {"nickname": "D", "locale": "fr"}


LINK_LOCAL = "https://[fe80::1]/bye"


@pytest.mark.parametrize("name", ["backchannel_logout_uri", "jwks_uri", "redirect_uris"])
def test_what_a_later_rule_refuses_blocks_no_other_change(app: Flask, run: Any, name: str) -> None:
    """Else nobody could even rename the client before somebody corrects that."""
    client = make_client(app)
    value: Any = [LINK_LOCAL + "#old"] if name == "redirect_uris" else LINK_LOCAL
    with app.app_context():
        row = clients.find(client.client_id)
        assert row is not None
        row.set_client_metadata({**row.client_metadata, name: value})
        db.session.commit()
    done = run("client", "update", client.client_id, "--name", "Library")
    assert done.exit_code == 0, done.stderr
    option = {"backchannel_logout_uri": "--backchannel-logout-uri", "jwks_uri": "--jwks-uri",
              "redirect_uris": "--add-redirect-uri"}[name]  # fmt: skip
    assert run("client", "update", client.client_id, option, f"{LINK_LOCAL}/2#x").exit_code != 0
    with app.app_context():
        row = clients.find(client.client_id)
        assert row is not None
        assert row.client_name == "Library"
        assert row.client_metadata[name] == value


def test_an_application_becomes_a_service_and_back(app: Flask, run: Any) -> None:
    api = make_api(app)
    client = make_client(app)
    form = {"grant_type": "client_credentials", **client.credentials()}
    assert client.post("/oauth2/token", form).get_json()["error"] == "unauthorized_client"
    options = ("--service", "--add-api", f"{api}=read", "--default-api", api, "--json")
    parsed(run("client", "update", client.client_id, *options))
    answer = client.post("/oauth2/token", form)
    assert (answer.status_code, answer.get_json()["scope"]) == (200, "read")
    changed = parsed(run("client", "update", client.client_id, "--no-service", "--json"))
    assert changed["grant_types"] == ["authorization_code", "refresh_token"]
    assert client.post("/oauth2/token", form).get_json()["error"] == "unauthorized_client"
