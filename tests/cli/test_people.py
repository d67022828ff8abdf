"""WHO and ID: whom a command finds by what an operator types, and whom it never takes."""

import json
from typing import Any

import pytest
from click.testing import Result
from flask import Flask

from sso.config.upstream.file import Upstreams
from sso.store import users
from tests.support.actors import RelyingParty
from tests.support.administration import link_identity
from tests.support.events import events
from tests.support.factories import make_client, make_user
from tests.support.upstreams import provider


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str) -> Result:
        return app.test_cli_runner().invoke(args=arguments)

    return invoke


@pytest.fixture
def people(app: Flask) -> dict[str, str]:
    """Ids by email."""
    known = {
        "dana@example.com": "Dana Demo",
        "dan@example.com": "Dan Brown",
        "x100%@example.com": "100% real",
        "elodie@example.com": "Élodie",
        "erin@example.com": "Dan Brown the Second",
    }
    return {email: str(make_user(app, email, name=name).id) for email, name in known.items()}


@pytest.mark.parametrize(
    ("who", "email"),
    [
        ("dana@example.com", "dana@example.com"),
        (" DANA@example.com ", "dana@example.com"),
        ("dana", "dana@example.com"),
        ("Dana D", "dana@example.com"),
        ("dan brown", "dan@example.com"),  # a whole name beats the beginning of another one
        ("Dan Brown the", "erin@example.com"),  # as long as the beginning of an id
        ("Élodie", "elodie@example.com"),
        ("100%", "x100%@example.com"),
    ],
)
def test_who(run: Any, people: dict[str, str], who: str, email: str) -> None:
    shown = run("user", "show", who, "--json")
    assert json.loads(shown.stdout)["email"] == email


def test_by_id(run: Any, people: dict[str, str]) -> None:
    for email, user_id in people.items():
        for text in (user_id, user_id.upper(), user_id.replace("-", ""), user_id[:13]):
            assert json.loads(run("user", "show", text, "--json").stdout)["email"] == email


@pytest.mark.parametrize(
    "who", ["nobody", "", " ", "%", "_ana", "dana@example", "dana@", "@", "ana", "\\", "00000000"]
)
def test_nobody(run: Any, people: dict[str, str], who: str) -> None:
    shown = run("user", "show", who)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "flask user list" in shown.stderr


def test_candidates_are_listed(run: Any, people: dict[str, str]) -> None:
    shown = run("user", "show", "dan", "--json")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr == (
        "Error: dan fits several: dan@example.com (Dan Brown), dana@example.com (Dana Demo), "
        "erin@example.com (Dan Brown the Second); give the email or id in full\n"
    )


def test_many_candidates_stay_one_line(app: Flask, run: Any) -> None:
    for number in range(12):
        make_user(app, f"staff{number}@example.com", name="Staff\u2028" + "x" * 100)
    shown = run("user", "show", "staff")
    assert len(shown.stderr.splitlines()) == 1
    assert ", …; give" in shown.stderr
    assert shown.stderr.count("@") == 8


@pytest.mark.parametrize("name", ["boss@example.com", "9c2b7a52-0d5e-4f5f-9a51-3d0b3e9f7b11"])
def test_a_name_that_looks_like_somebody_elses_identifier(app: Flask, run: Any, name: str) -> None:
    """People choose their names, and with sign-up strangers do."""
    make_user(app, "mallory@example.com", name=name)
    assert run("user", "update", name, "--add-group", "admins").exit_code == 1


def test_an_email_address_that_begins_with_somebody_elses(app: Flask, run: Any) -> None:
    make_user(app, "boss@example.com.evil.example", name="Mallory")
    assert run("user", "update", "boss@example.com", "--add-group", "admins").exit_code == 1


@pytest.mark.parametrize(
    "command",
    [
        ("delete", "--yes"), ("disable",), ("set-password", "--password-stdin"), ("sign-out",),
        ("reset-factors",), ("enrolment-link",), ("update", "--add-group", "staff"), ("enable",),
    ],
    ids=lambda command: command[0],
)  # fmt: skip
@pytest.mark.parametrize("who", ["dana", "Dana Demo"])
def test_what_cannot_be_undone_or_gives_rights_wants_the_whole(
    app: Flask, run: Any, people: dict[str, str], command: tuple[str, ...], who: str
) -> None:
    name, *options = command
    done = run("user", name, who, *options)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "dana@example.com (Dana Demo)" in done.stderr
    assert "needs the email or id in full" in done.stderr
    assert (
        events(
            app, "user_deleted", "user_disabled", "password_set", "factors_reset", "user_changed"
        )
        == []
    )
    assert json.loads(run("user", "show", who, "--json").stdout)["disabled"] is False


def test_a_name_that_is_how_somebody_elses_email_begins(
    app: Flask, run: Any, people: dict[str, str]
) -> None:
    """A whole name goes before the beginning of an email, and people choose their names."""
    make_user(app, "mallory@example.com", name="erin")
    given = run("user", "update", "erin", "--add-group", "admins")
    assert given.exit_code == 1
    assert "mallory@example.com (erin)" in given.stderr
    assert json.loads(run("user", "show", "mallory@example.com", "--json").stdout)["groups"] == []


def test_a_client(app: Flask, run: Any, client: RelyingParty) -> None:
    other = make_client(app, name="Bookshop")
    for text, found in (
        (client.client_id, client),
        ("Books", client),
        ("books", client),
        ("bookS", client),
        ("Booksh", other),
        (other.client_id[:6].swapcase(), other),
    ):
        shown = run("client", "show", text, "--json")
        assert json.loads(shown.stdout)["client_id"] == found.client_id, text
    shown = run("client", "show", "book")
    assert shown.exit_code == 1
    for one in (client, other):
        assert one.client_id in shown.stderr
    for text in ("", " ", "ooks", "%"):
        assert "flask client list" in run("client", "show", text).stderr


@pytest.mark.parametrize("command", [("delete", "--yes"), ("disable",), ("rotate-secret",)])
def test_a_client_in_full(run: Any, client: RelyingParty, command: tuple[str, ...]) -> None:
    name, *options = command
    done = run("client", name, "Books", *options)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"Books fits {client.client_id} (Books)" in done.stderr
    assert client.introspect("x").status_code == 200


def test_a_client_by_its_name(run: Any, client: RelyingParty) -> None:
    for command in (("update", "--name", "Books"), ("enable",)):
        done = run("client", command[0], "Books", *command[1:], "--json")
        assert json.loads(done.stdout)["client_id"] == client.client_id


def test_the_audit_trail(app: Flask, run: Any, people: dict[str, str]) -> None:
    run("user", "update", "dana@example.com", "--add-group", "staff")
    listed = json.loads(run("audit", "list", "--user", "dana", "--json").stdout)
    assert {one["user"] for one in listed} == {people["dana@example.com"]}
    assert "fits several" in run("audit", "list", "--user", "dan").stderr
    run("user", "delete", "dana@example.com", "--yes")
    by_id = run("audit", "list", "--user", people["dana@example.com"], "--json")
    assert json.loads(by_id.stdout)[0]["event"] == "user_deleted"


# Accounts at identity providers, listed and removed by an operator.


def test_listed_and_removed(app: Flask) -> None:
    app.extensions["sso.upstreams"] = Upstreams([provider(trust_email=False)])
    dana = make_user(app, password=None)
    known = [link_identity(app, dana, subject=one, email="d@corp.example") for one in "ab"]

    def run(*arguments: str, ok: bool = True) -> Any:
        done = app.test_cli_runner().invoke(args=["user", *arguments])
        assert (done.exit_code == 0) == ok, done.output
        return done

    listed = {one["id"]: one for one in json.loads(run("identities", "dana", "--json").stdout)}
    assert set(listed) == {str(one) for one in known}
    assert listed[str(known[0])] | {"id": "", "since": ""} == {
        "id": "", "provider": "corp", "issuer": "https://corp.example", "subject": "a",
        "email": "d@corp.example", "since": "", "last_used_at": None,
    }  # fmt: skip
    assert "d@corp.example" in run("identities", dana.email).stdout
    assert "in full" in run("unlink", "dana", "corp", "--yes", ok=False).stderr
    assert "several accounts corp" in run("unlink", dana.email, "corp", "--yes", ok=False).stderr
    assert "no account x" in run("unlink", dana.email, "x", "--yes", ok=False).stderr
    assert "add --yes" in run("unlink", dana.email, str(known[0]), ok=False).stderr
    run("unlink", dana.email, str(known[0]), "--yes")
    done = json.loads(run("unlink", dana.email, "corp", "--yes", "--json").stdout)
    assert (done["identity"], done["provider"]) == (str(known[1]), "corp")
    assert len(events(app, "identity_unlinked")) == 2
    assert json.loads(run("identities", dana.email, "--json").stdout) == []
    with app.app_context():
        assert users.find(dana.id)


def test_the_last_way_in_is_named_before(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    app.extensions["sso.upstreams"] = Upstreams([provider()])
    dana = make_user(app, password=None)
    link_identity(app, dana)
    asked: list[str] = []
    monkeypatch.setattr("sso.cli.users.confirm", lambda text, yes: asked.append(text))
    done = app.test_cli_runner().invoke(args=["user", "unlink", dana.email, "corp"])
    assert done.exit_code == 0, done.output
    assert "only way to sign in" in asked[0]
    assert "provider is trusted" in asked[0]


def test_an_end(app: Flask, run: Any) -> None:
    made = run("user", "create", "--email", "erin@example.com", "--name", "Erin",
               "--password-stdin", "--ends-at", "2099-12-31T18:00+01:00")  # fmt: skip
    assert made.exit_code != 0  # no password
    with_end = make_user(app)
    shown = run("user", "update", with_end.email, "--ends-at", "2099-12-31T18:00+01:00", "--json")
    assert json.loads(shown.stdout)["ends_at"] == "2099-12-31T17:00:00Z"
    both = run("user", "update", with_end.email, "--ends-at", "2098-01-01", "--no-ends-at")
    assert "--ends-at contradicts --no-ends-at" in both.stderr
    past = run("user", "update", with_end.email, "--ends-at", "2020-01-01")
    assert past.exit_code == 1
    assert "the end 2020-01-01T00:00:00Z is in the past" in past.stderr
    wrong = run("user", "update", with_end.email, "--ends-at", "soon")
    assert "'soon' is no time" in wrong.stderr
    shown = run("user", "update", with_end.email, "--no-ends-at")
    assert "ends_at: 2099-12-31T17:00:00Z -> " in shown.stdout
    assert json.loads(run("user", "show", with_end.email, "--json").stdout)["ends_at"] is None


def test_an_end_of_a_membership(app: Flask, run: Any) -> None:
    user = make_user(app, groups=["staff"])

    def update(*options: str) -> Any:
        return run("user", "update", user.email, *options, "--json")

    shown = update("--add-group", "a=b", "--group-end", "a=b=2099-12-31T18:00+01:00")
    assert json.loads(shown.stdout)["group_ends"] == {"a=b": "2099-12-31T17:00:00Z"}
    assert "club is no group of this person" in update("--group-end", "club=2099-01-01").stderr
    assert "is not GROUP=TIME" in update("--group-end", "club").stderr
    assert "in the past" in update("--group-end", "staff=2020-01-01").stderr
    assert json.loads(update("--group-end", "a=b=").stdout)["group_ends"] == {}
