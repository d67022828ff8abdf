"""Finding users, and groups with their members and clients; groups that are probably typos."""

import json
from typing import Any

import pytest
from click.testing import Result
from flask import Flask

from sso.audit import writer
from tests.support.actors import RelyingParty
from tests.support.factories import make_api, make_client, make_user

PEOPLE = {
    "dana@example.com": ("Dana Demo", ["staff", 'odd "name"']),
    "x100%@example.com": ("100% real", ["staff"]),
    "under_score@example.com": ("Élodie", ['x"staff']),
    "erin@example.org": ("Back\\slash", []),
}


DOCS = "https://docs.example"


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str) -> Result:
        writer.flush(app)
        done = app.test_cli_runner().invoke(args=arguments)
        assert done.exit_code == 0, done.stderr
        return done

    return invoke


@pytest.fixture
def people(app: Flask) -> dict[str, str]:
    """Ids by email."""
    return {
        email: str(make_user(app, email, name=name, groups=groups).id)
        for email, (name, groups) in PEOPLE.items()
    }


def emails(result: Result) -> list[str]:
    return [user["email"] for user in json.loads(result.stdout)]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((), sorted(PEOPLE)),
        (("--search", "EXAMPLE.COM"), sorted(set(PEOPLE) - {"erin@example.org"})),
        (("--search", "demo"), ["dana@example.com"]),
        (("--search", "%"), ["x100%@example.com"]),
        (("--search", "_"), ["under_score@example.com"]),
        (("--search", "\\"), ["erin@example.org"]),
        (("--search", "nobody"), []),
        (("--group", "staff"), ["dana@example.com", "x100%@example.com"]),
        (("--group", 'odd "name"'), ["dana@example.com"]),
        (("--group", "Staff"), []),
        (("--group", "staff", "--search", "real"), ["x100%@example.com"]),
    ],
    ids=" ".join,
)
def test_users_are_found(
    run: Any, people: dict[str, str], options: tuple[str, ...], found: list[str]
) -> None:
    listed = run("user", "list", *options, "--json")
    assert (emails(listed), listed.stderr) == (found, "")


def test_a_list_that_is_cut_says_so(run: Any, people: dict[str, str]) -> None:
    for options in ((), ("--json",)):
        cut = run("user", "list", "--limit", "3", *options)
        assert "there are more" in cut.stderr
        assert max(PEOPLE) not in cut.stdout
        assert run("user", "list", "--limit", "4", *options).stderr == ""


def test_groups_are_listed(app: Flask, run: Any, people: dict[str, str]) -> None:
    one, other = (
        make_client(app, name=name, groups=["staff", "empty"]) for name in ("Books", "Wiki")
    )
    make_api(app, DOCS, groups=["empty"])
    listed = json.loads(run("group", "list", "--json").stdout)
    clients = [
        {"client_id": one.client_id, "client_name": "Books"},
        {"client_id": other.client_id, "client_name": "Wiki"},
    ]
    dana = {"id": people["dana@example.com"], "email": "dana@example.com"}
    real = {"id": people["x100%@example.com"], "email": "x100%@example.com"}
    assert listed[0] == {
        "name": "empty",
        "members": 0,
        "first_members": [],
        "clients": clients,
        "apis": [DOCS],
    }
    assert listed[2] == {
        "name": "staff", "members": 2, "first_members": [dana, real], "clients": clients, "apis": []
    }  # fmt: skip
    assert [group["name"] for group in listed] == ["empty", 'odd "name"', "staff", 'x"staff']
    rows = run("group", "list").stdout.splitlines()
    assert rows[1].split(maxsplit=3) == ["empty", "NOBODY", "-", "Books, Wiki, Documents"]


def test_members_of_a_large_group_are_counted(app: Flask, run: Any) -> None:
    for number in range(60):
        make_user(app, f"user{number:02}@example.com", groups=["all"], password=None)
    (group,) = json.loads(run("group", "list", "--json").stdout)
    assert group["members"] == 60
    assert [one["email"] for one in group["first_members"]] == [
        f"user{number:02}@example.com" for number in range(50)
    ]
    assert "user01@example.com, …" in run("group", "list").stdout


def test_a_group_that_is_probably_a_typo(
    app: Flask, run: Any, people: dict[str, str], client: RelyingParty
) -> None:
    create = ("client", "create", "--name", "Wiki", "--redirect-uri", "https://wiki.example/cb")
    meant = "Nobody is in the group staf; did you mean staff?\n"
    for options in ((), ("--json",)):
        assert run(*create, "--group", "staf", *options).stderr == meant
        assert run(*create, "--group", "staff", *options).stderr == ""
    fix = "Nobody is in the group the cooks: flask user update WHO --add-group 'the cooks'\n"
    assert run(*create, "--group", "the cooks").stderr == fix
    updated = run("client", "update", client.client_id, "--add-group", "staf")
    assert meant in updated.stderr
    assert (
        run("user", "update", "dana@example.com", "--add-group", "staf").stderr == ""
    )  # a client knows it

    update = ("user", "update", "erin@example.org", "--add-group")
    warned = run(*update, "Staff").stderr
    assert warned == (
        "No application requires the group Staff, and no other user is in it; did you mean staff?\n"
    )
    assert "is there already" in run(*update, "Staff").stderr
    assert run(*update, "staff").stderr == ""
    invited = run("user", "invite", "--email", "f@example.com", "--name", "F", "--group", "chefs")
    assert invited.stderr.endswith("the group chefs, and no other user is in it.\n")


def test_the_audit_trail_names_users_and_clients(
    app: Flask, run: Any, people: dict[str, str], client: RelyingParty
) -> None:
    run("user", "update", "dana@example.com", "--name", "Dana")
    run("client", "update", client.client_id, "--name", "Bookshop")
    run("user", "update", "erin@example.org", "--name", "Erin")
    run("user", "delete", "erin@example.org", "--yes")
    other = make_client(app)
    run("client", "delete", other.client_id, "--yes")
    listed = [line.split() for line in run("audit", "list").stdout.splitlines()]
    shown = {(words[2], words[3], words[4]) for words in listed[1:]}
    gone = people["erin@example.org"]
    assert ("user_changed", "dana@example.com", "-") in shown
    assert ("client_changed", "-", "Bookshop") in shown
    assert {("user_deleted", gone, "-"), ("client_deleted", "-", other.client_id)} <= shown
    events = json.loads(run("audit", "list", "--json").stdout)
    assert {event["user"] for event in events} == {None, gone, people["dana@example.com"]}
