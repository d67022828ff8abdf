"""`flask client preview`: what it prints, that its hints help, and that it writes nothing."""

import json
import re
import shlex
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from sso.audit import writer
from sso.extensions import Base, db
from sso.models import User
from tests.support.actors import Browser, RelyingParty, claims_of
from tests.support.factories import make_api, make_client, make_user


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str, code: int = 0) -> str:
        done = app.test_cli_runner().invoke(args=arguments)
        assert done.exit_code == code, done.output
        return done.output

    return invoke


@pytest.fixture
def preview(run: Any) -> Any:
    def invoke(*arguments: str) -> Any:
        return json.loads(run("client", "preview", *arguments, "--json"))

    return invoke


def rows(app: Flask) -> dict[str, list[Any]]:
    writer.flush(app)
    with app.app_context():
        return {
            table.name: [tuple(row) for row in db.session.execute(select(table))]
            for table in Base.metadata.sorted_tables
        }


def test_for_people(app: Flask, run: Any, client: RelyingParty, user: User) -> None:
    shown = run("client", "preview", "books", "--user", "dana")
    for line in (
        f"Books ({client.client_id})",
        "for Dana Demo (dana@example.com)",
        "  signs in with a password",
        "  is asked to allow: openid, profile, email",
        "  name            Dana Demo",
        "  email_verified  true",
        '  amr        ["pwd"]',
        "  groups",
        "    The application is not registered for the scope groups.",
        f"    to change it: flask client update {client.client_id} --add-scope groups; "
        "then let the application request it",
    ):
        assert line in shown.splitlines()
    assert re.search(r"  exp        \d+ \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)", shown)


@pytest.mark.parametrize("arguments", [(), ("--scope", "openid groups nonsense"), ("--json",)])
def test_it_writes_nothing(
    app: Flask, run: Any, browser: Browser, client: RelyingParty, user: User,
    arguments: tuple[str, ...],
) -> None:  # fmt: skip
    client.exchange(browser.approve(client).code)
    before = rows(app)
    assert before["grants"]
    run("client", "preview", "books", "--user", "dana", *arguments)
    run("client", "preview", "nobody", "--user", "dana", *arguments, code=1)
    run("client", "preview", "books", "--user", "nobody", *arguments, code=1)
    assert rows(app) == before


def test_nothing_in_it_can_be_used(
    app: Flask, run: Any, preview: Any, client: RelyingParty, user: User
) -> None:
    texts = [
        run("client", "preview", "books", "--user", "dana", *more) for more in ((), ("--json",))
    ]
    for text in texts:
        assert "eyJ" not in text  # how every JWT begins
        assert client.client_secret not in text
    found = preview("books", "--user", "dana")
    jti = found["access_token"]["payload"]["jti"]
    assert client.userinfo(jti).status_code == 401
    assert client.introspect(jti).get_json() == {"active": False}


def test_in_json(preview: Any, client: RelyingParty, user: User) -> None:
    found = preview(client.client_id, "--user", "dana@example.com", "--scope", "openid email x")
    assert found["user"]["id"] == str(user.id)
    assert (found["client_id"], found["client_name"]) == (client.client_id, "Books")
    assert (found["requested_scope"], found["scope"]) == ("openid email x", "openid email")
    assert (found["dropped_scope"], found["consent_asked"]) == ("x", ["openid", "email"])
    assert found["id_token"]["header"].keys() == {"alg", "kid", "typ"}
    assert found["userinfo"]["email"] == "dana@example.com"
    reasons = {one["claim"]: (one["reason"], one["missing_in"]) for one in found["missing"]}
    assert reasons["name"] == ("scope_not_requested", ["id_token", "userinfo"])
    assert reasons["groups"] == ("scope_not_registered", ["id_token", "userinfo"])
    assert reasons["email"] == ("only_at_userinfo", ["id_token"])
    assert "x" in found["notes"][0]["message"]


# Of claims that have a format.
VALUES = {
    **dict.fromkeys(("profile", "picture", "website"), "https://their.example/"),
    "birthdate": "1990-01-31",
    "zoneinfo": "Europe/Berlin",
    "locale": "de",
}


def test_its_hints_help(app: Flask, run: Any, preview: Any) -> None:
    """Followed one after the other, they bring everything into both places."""
    user = make_user(app, email_verified=False, disabled=True)
    client = make_client(app, scope="openid", groups=["staff room"], disabled=True)
    followed = 0
    for _ in range(60):
        found = preview(client.client_id, "--user", user.email)
        remarks = [*found["stops"], *found["missing"], *found["notes"]]
        if not remarks:
            break
        command = re.search(r"flask ([^;]*?)(?=;|, if|$)", remarks[0]["hint"])
        assert command, remarks[0]
        value = VALUES.get(str(remarks[0].get("claim")), "x")
        run(*shlex.split(command[1].replace("VALUE", value).replace("GROUP", "staff")))
        followed += 1
    assert not remarks
    assert followed > 20
    assert found["id_token"]["payload"].keys() >= {"groups", "address", "phone_number_verified"}


def test_what_the_user_withheld(
    preview: Any, browser: Browser, client: RelyingParty, user: User
) -> None:
    browser.authorize(client)
    del browser.sign_in().fields["scope_email"]
    browser.allow()
    found = preview(client.client_id, "--user", user.email)
    assert "email" not in found["userinfo"]
    assert found["consent_asked"] == []
    reasons = {one["claim"]: one for one in found["missing"]}
    assert reasons["email"]["reason"] == "scope_withheld"
    assert "prompt=consent" in reasons["email"]["hint"]


def test_what_needs_openid(preview: Any, app: Flask, user: User) -> None:
    client = make_client(app, scope="openid groups")
    found = preview(client.client_id, "--user", user.email, "--scope", "groups")
    assert (found["id_token"], found["userinfo"]) == (None, None)
    assert [one["hint"] for one in found["notes"]] == [
        "let the application request openid",
        "let the application request one of them",
    ]


def test_when_the_sign_in_fails(run: Any, preview: Any, app: Flask) -> None:
    user = make_user(app, password=None, groups=["board"])
    client = make_client(app, groups=["staff", "admins"])
    shown = run("client", "preview", client.client_id, "--user", user.email)
    assert "Only members of staff or admins may use Books; Dana Demo is in board." in shown
    assert "flask user set-password dana@example.com" in shown
    assert "sub" not in shown
    found = preview(client.client_id, "--user", user.email)
    assert [one["reason"] for one in found["stops"]] == ["cannot_sign_in", "not_a_member"]
    assert found["access_token"] is None


def test_a_second_factor_that_is_required(run: Any, app: Flask, user: User) -> None:
    client = make_client(app, require_mfa=True, first_party=True)
    shown = run("client", "preview", client.client_id, "--user", user.email)
    assert "has to set up two-step verification first" in shown
    assert "signs in with a password and a one-time code" in shown
    assert "is not asked to allow anything" in shown


def test_names_cannot_drive_the_terminal(run: Any, app: Flask, client: RelyingParty) -> None:
    user = make_user(app, name="\u202eDana", claims={"nickname": "a\r\nb"})
    shown = run("client", "preview", client.client_id, "--user", user.email)
    assert "\u202e" not in shown
    assert "a\\r\\nb" in shown


DOCS, MAPS = "https://docs.example", "https://maps.example"


@pytest.fixture
def apis(app: Flask) -> None:
    make_api(app, DOCS, groups=["writers"], includes_groups=True, access_token_lifetime=120)
    make_api(app, MAPS, name="Maps", scopes={"read": "See maps"})


def test_the_token_for_an_api_is_the_one_that_a_sign_in_gives(
    app: Flask, apis: None, preview: Any, run: Any
) -> None:
    make_user(app, groups=["writers"])
    client = make_client(app, apis=[f"{DOCS}=read", MAPS], scope="openid email")
    arguments = (client.client_id, "--user", "dana@example.com", "--resource", f"{DOCS}/")
    result = preview(*arguments, "--scope", "openid read")
    assert result["consent_asked"] == ["openid", f"{DOCS}#read"]
    assert (result["stops"], result["dropped_scope"]) == ([], "")
    browser = Browser(app)
    browser.sign_in()
    tokens = client.exchange(
        browser.approve(client, scope="openid read", resource=DOCS).code
    ).get_json()
    real, shown = claims_of(tokens["access_token"]), result["access_token"]["payload"]
    volatile = {"iat", "exp", "auth_time", "jti"}
    assert shown.keys() == real.keys()
    assert {name: shown[name] for name in shown.keys() - volatile} == {
        name: real[name] for name in real.keys() - volatile
    }
    assert shown["exp"] - shown["iat"] == 120
    assert result["access_tokens"][0] == result["access_token"]
    text = run("client", "preview", *arguments, "--scope", "openid read")
    assert f"Access token: lets the application use {DOCS}" in text


def test_both_apis_of_a_request_are_shown(app: Flask, apis: None, preview: Any, run: Any) -> None:
    make_user(app, groups=["writers"])
    client = make_client(app, apis=[DOCS, MAPS], first_party=True)
    arguments = (
        *(client.client_id, "--user", "dana@example.com"),
        *("--resource", MAPS, "--resource", DOCS),
    )
    result = preview(*arguments)
    payloads = [token["payload"] for token in result["access_tokens"]]
    assert [(claims["aud"], claims["scope"]) for claims in payloads][:2] == [
        (MAPS, "read"),
        (DOCS, "read write"),
    ]
    text = run("client", "preview", *arguments)
    assert f"lets the application use {DOCS}, if it asks for resource={DOCS}" in text


def test_a_default_api_counts_without_a_resource(app: Flask, apis: None, preview: Any) -> None:
    make_user(app)
    client = make_client(app, apis=[MAPS], default_api=MAPS)
    result = preview(client.client_id, "--user", "dana@example.com")
    assert result["access_token"]["payload"]["aud"] == MAPS


def test_why_a_token_for_an_api_is_refused(app: Flask, apis: None, preview: Any, run: Any) -> None:
    make_user(app)
    client = make_client(app, apis=[DOCS])
    arguments = (client.client_id, "--user", "dana@example.com", "--resource")
    (stop,) = preview(*arguments, DOCS)["stops"]
    assert stop["reason"] == "not_a_member_of_api"
    run(*shlex.split(stop["hint"])[1:])
    assert preview(*arguments, DOCS)["stops"] == []
    (stop,) = preview(*arguments, MAPS)["stops"]
    assert stop["reason"] == "invalid_target"
    assert "--add-api" in stop["hint"]


def test_nobody_signs_in_to_a_service(app: Flask, apis: None, preview: Any) -> None:
    make_user(app)
    client_id = make_service(app)
    (stop,) = preview(client_id, "--user", "dana@example.com")["stops"]
    assert stop["reason"] == "without_person"


def make_service(app: Flask) -> str:
    runner = app.test_cli_runner()
    arguments = ["client", "create", "--name", "Nightly", "--service", "--api", MAPS, "--json"]
    return str(json.loads(runner.invoke(args=arguments).stdout)["client_id"])
