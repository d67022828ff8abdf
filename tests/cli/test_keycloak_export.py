"""`flask export --format keycloak`: a realm that Keycloak reads, and that comes back as it was."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import delete, select, update

from sso.crypto import foreign_hashes
from sso.extensions import db
from sso.mfa import totp
from sso.models import AuditEvent, Client, Group, Passkey, RecoveryCode, TotpSecret, User
from tests.conftest import Clock
from tests.support.actors import BASE, Browser
from tests.support.each import each
from tests.support.factories import (
    PASSWORD,
    make_api,
    make_attribute,
    make_client,
    make_user,
    register_client,
)
from tests.support.keycloak import PASSWORD as OLD_PASSWORD
from tests.support.keycloak import client, group, mapper, otp, realm, user
from tests.support.second_factors import code_of

JWKS = {"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "use": "sig", "alg": "ES256",
                  "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
                  "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}  # fmt: skip
SECRET = "NZGTARSVIE2EEUCTIZXHO2SPGVGUI3JQ"
CALLBACK = ["https://books.example/callback"]
Export = Callable[..., tuple[dict[str, Any], dict[str, Any]]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "realm.json"


@pytest.fixture
def export(app: Flask, file: Path) -> Export:
    """The realm of the file, and the report."""

    def run(*options: str) -> tuple[dict[str, Any], dict[str, Any]]:
        done = app.test_cli_runner().invoke(
            args=["export", str(file), "--format", "keycloak", "--json", *options]
        )
        assert done.exit_code == 0, done.output
        return json.loads(file.read_text()), json.loads(done.stdout)

    return run


def migrate(app: Flask, file: Path, *options: str) -> dict[str, Any]:
    """Take the file into an empty database."""
    with app.app_context():
        for table in reversed(db.metadata.sorted_tables):
            if not table.name.startswith(("audit", "signing")):
                db.session.execute(delete(table))
        db.session.commit()
    done = app.test_cli_runner().invoke(args=["migrate", "keycloak", str(file), "--json", *options])
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def only(entries: list[dict[str, Any]], **of: str) -> dict[str, Any]:
    [entry] = [entry for entry in entries if of.items() <= entry.items()]
    return entry


def add_app(app: Flask, person: User) -> None:
    with app.app_context():
        db.session.add(totp.taken_over(person.id, SECRET))
        db.session.commit()


def people(app: Flask) -> dict[str, Any]:
    with app.app_context():
        return {
            row.email: (
                row.id, row.name, row.email_verified, row.is_disabled, sorted(row.groups),
                {**row.claims}, row.attributes, totp.opened(row.id, app_.sealed_secret)
                if (app_ := db.session.get(TotpSecret, row.id)) else None,
            )
            for row in db.session.scalars(select(User))
        }  # fmt: skip


def registrations(app: Flask) -> dict[str, Any]:
    with app.app_context():
        return {
            row.client_id: (row.client_metadata, sorted(row.roles), sorted(row.own_claims),
                            row.disabled_at is None)
            for row in db.session.scalars(select(Client))
        }  # fmt: skip


def groups(app: Flask) -> set[str]:
    with app.app_context():
        return set(db.session.scalars(select(Group.name)))


def test_a_realm_that_came_from_keycloak_goes_back_and_comes_again(
    app: Flask, export: Export, file: Path, clock: Clock
) -> None:
    department = mapper("oidc-usermodel-attribute-mapper", "department",
                        user__attribute="department", claim__name="department")  # fmt: skip
    roles = mapper("oidc-usermodel-client-role-mapper", "roles", claim__name="roles",
                   usermodel__clientRoleMapping__clientId="wiki")  # fmt: skip
    file.write_text(json.dumps(realm(
        clients=[
            client("wiki", {"post.logout.redirect.uris": "+"}, protocolMappers=[department, roles]),
            client("app", {"pkce.code.challenge.method": "S256"}, publicClient=True),
            client("robot", serviceAccountsEnabled=True, standardFlowEnabled=False),
            client("gone", enabled=False),
        ],
        roles={"realm": [{"name": "staff"}],
               "client": {"wiki": [{"name": "editor"}, {"name": "viewer"}]}},
        groups=[group("teams", group("red", above="/teams", clientRoles={"wiki": ["editor"]})),
                group("営業")],
        users=[
            user("dana", groups=["/teams/red"], attributes={"department": ["R&D"]}),
            user("otto", credentials=[*user("otto")["credentials"], otp()], groups=["/営業"],
                 realmRoles=["staff"]),
            user("rita", clientRoles={"wiki": ["viewer"]}), user("erin", enabled=False),
        ],
    )))  # fmt: skip
    migrate(app, file)
    before = people(app), registrations(app), groups(app)
    assert [len(rows) for rows in before] == [4, 4, 6]
    _, report = export("--realm", "acme")
    assert (report["people"], report["clients"]) == (4, 4)
    assert report["lost"] == {}
    assert migrate(app, file)["people"]["counts"] == {}
    assert (people(app), registrations(app), groups(app)) == before
    browser = Browser(app)
    browser.sign_in("otto@example.com", OLD_PASSWORD)
    assert browser.page.path.endswith("/second-factor")
    assert browser.submit(code=code_of(SECRET)).path.endswith("/account")


def test_an_installation_of_this_server_comes_back(app: Flask, export: Export, file: Path) -> None:
    make_attribute(app, "cost_center")
    more = {"name": "Books", "redirect_uris": CALLBACK, "scope": "openid profile email"}
    with app.app_context():
        register_client(
            client_id="books", **more, roles=["editor=staff", "editor=teams/red", "guest"],
            own_claims=["cost_center=attribute:cost_center", "tier=constant:gold", "n=json:[1]"],
            post_logout_redirect_uris=["https://books.example/bye"], id_token_claims="all",
        )  # fmt: skip
        register_client(
            client_id="keys", **more, auth_method="private_key_jwt", jwks=JWKS,
            token_endpoint_auth_signing_alg="ES256",
        )  # fmt: skip
        db.session.commit()
    address = {"locality": "Delft", "street_address": "1 Mill Lane"}
    claims = {"given_name": "Dana", "family_name": "Demo", "preferred_username": "dana",
              "address": address, "phone_number": "+31 15 000"}  # fmt: skip
    dana = make_user(app, groups=["staff", "teams/red"], claims=claims)
    make_user(app, "sam@example.com", name="Sam", email_verified=False, groups=["solo"])
    with app.app_context():
        db.session.execute(
            update(User).where(User.id == dana.id).values(attributes={"cost_center": "R&D"})
        )
        db.session.commit()
    add_app(app, dana)
    before = people(app), registrations(app)
    content, report = export()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert report["lost"] == {}
    entry = only(content["users"], username="dana")
    assert (entry["id"], entry["groups"]) == (str(dana.id), ["/staff", "/teams/red"])
    assert entry["attributes"]["street"] == ["1 Mill Lane"]
    migrate(app, file)
    after = people(app), registrations(app)
    assert after[0]["dana@example.com"] == before[0]["dana@example.com"]
    assert after[0]["sam@example.com"][:5] == before[0]["sam@example.com"][:5]
    assert after[1]["keys"][0]["jwks"] == JWKS
    for name in ("books", "keys"):
        for field in ("redirect_uris", "post_logout_redirect_uris", "grant_types"):
            assert after[1][name][0].get(field) == before[1][name][0].get(field)
    assert sorted(entry.replace("@id_token,userinfo", "") for entry in after[1]["books"][2]) \
        == before[1]["books"][2]  # fmt: skip
    assert {"editor=staff", "editor=teams/red"} <= {*after[1]["books"][1]}


@each(
    "stored, algorithm, rounds, parameters",
    [
        ("$argon2id$v=19$m=65536,t=3,p=4$MDEyMzQ1Njc4OWFiY2RlZg$"
         "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY", "argon2", 3,
         {"hashLength": ["32"], "memory": ["65536"], "type": ["id"], "version": ["1.3"],
          "parallelism": ["4"]}),
        ("$argon2d$v=16$m=1024,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZg",
         "argon2", 2, {"hashLength": ["16"], "memory": ["1024"], "type": ["d"],
                       "version": ["1.0"], "parallelism": ["1"]}),
        ("$pbkdf2-sha1$i=1000$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZjAxMjM", "pbkdf2", 1000,
         {}),
        ("$pbkdf2-sha512$i=3$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZg", "pbkdf2-sha512", 3,
         {}),
    ],
)  # fmt: skip
def test_hashes_that_keycloak_checks(
    stored: str, algorithm: str, rounds: int, parameters: dict[str, Any]
) -> None:
    converted = foreign_hashes.to_keycloak(stored)
    assert converted is not None
    secret, data = converted
    assert (data["algorithm"], data["hashIterations"]) == (algorithm, rounds)
    assert data["additionalParameters"] == parameters
    assert len(secret["salt"]) % 4 == len(secret["value"]) % 4 == 0
    assert foreign_hashes.from_keycloak(secret, data) == stored


@each(
    "stored",
    ["$bcrypt$r=4$N9qo8uLOickgx2ZMRZoMye$IjZAgcfl7p92ldGxad68LJZdL17lhWy",
     "$scrypt$ln=4,r=8,p=1$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZg", "", "x", "$argon2id$"],
)  # fmt: skip
def test_hashes_that_keycloak_does_not_check(stored: str) -> None:
    assert foreign_hashes.to_keycloak(stored) is None


def test_who_loses_a_factor_or_a_password_is_told_and_counted(app: Flask, export: Export) -> None:
    bcrypt = "$bcrypt$r=4$N9qo8uLOickgx2ZMRZoMye$IjZAgcfl7p92ldGxad68LJZdL17lhWy"
    old, key, both = (make_user(app, f"{name}@example.com") for name in ("old", "key", "both"))
    make_user(app, "none@example.com", password=None)
    add_app(app, both)
    with app.app_context():
        db.session.execute(update(User).where(User.id == old.id).values(password_hash=bcrypt))
        for number, person in enumerate((key, key, both)):
            db.session.add(Passkey(user_id=person.id, name="Key", credential_id=str(number),
                                   public_key="x"))  # fmt: skip
        db.session.add_all(RecoveryCode(user_id=both.id, digest=text) for text in "ab")
        db.session.commit()
    content, report = export()
    actions = {entry["email"].partition("@")[0]: (
        [credential["type"] for credential in entry["credentials"]], entry["requiredActions"]
    ) for entry in content["users"]}  # fmt: skip
    assert actions == {
        "old": ([], ["UPDATE_PASSWORD"]), "key": (["password"], ["CONFIGURE_TOTP"]),
        "both": (["password", "otp"], []), "none": ([], []),
    }  # fmt: skip
    counts = {label.partition(":")[0]: count for label, count in report["lost"].items()}
    assert counts == {
        "passwords whose hash Keycloak cannot check": 1, "passkeys": 3,
        "people with recovery codes, which they make again": 1,
        "people who set up an authenticator app at the first sign-in, in place of a lost factor": 1,
    }  # fmt: skip


def test_a_client_that_would_admit_more_there_is_disabled(app: Flask, export: Export) -> None:
    with app.app_context():
        kinds: dict[str, dict[str, Any]] = {
            "free": {}, "staff": {"groups": ["staff"]}, "strict": {"require_mfa": True},
        }  # fmt: skip
        for name, more in kinds.items():
            register_client(client_id=name, name=name, redirect_uris=CALLBACK, **more)
        db.session.commit()
    make_api(app)
    content, report = export()
    enabled = {entry["clientId"]: entry["enabled"] for entry in content["clients"]}
    assert enabled == {"free": True, "staff": False, "strict": False}
    listed = {(entry["name"], entry["what"]) for entry in report["findings"]}
    assert {("staff", "groups"), ("strict", "require_mfa")} <= listed
    assert {(name, "secret") for name in enabled} <= listed
    assert not any("secret" in entry for entry in content["clients"])
    assert sum(report["lost"].values()) == 1  # the API


def test_a_group_below_another_gets_no_role_of_it(app: Flask, export: Export) -> None:
    """Keycloak gives members the roles of the groups above."""
    make_client(app, roles=["editor=teams", "viewer=teams/red", "viewer=teams"])
    make_user(app, groups=["teams"])
    make_user(app, "sam@example.com", groups=["teams/red"])
    content, _ = export()
    [client_id] = content["roles"]["client"]
    [teams] = content["groups"]
    assert teams["clientRoles"] == {}
    assert teams["subGroups"][0]["clientRoles"] == {client_id: ["viewer"]}
    dana, sam = (only(content["users"], email=f"{name}@example.com") for name in ("dana", "sam"))
    assert {client_id: sorted(dana["clientRoles"][client_id])} == {client_id: ["editor", "viewer"]}
    assert sam["clientRoles"] == {}


def test_hostile_names(app: Flask, export: Export, file: Path) -> None:
    names = ["/", "/a", "a/", "a//b", "_a", "teams/red", "営業", 'x"y', "${vault.x}", "a~/b"]
    make_user(app, groups=names, name='"], "users": [', claims={"preferred_username": "service-"
              "account-robot"})  # fmt: skip
    make_user(app, "sam@example.com", claims={"preferred_username": "Admin"})
    make_user(app, "eve@example.com", claims={"preferred_username": "admin"})
    make_user(app, "mal@example.com", claims={"preferred_username": "dana@example.com"})
    with app.app_context():
        for name in ("realm-management", "ok"):
            register_client(client_id=name, name="${client_x}", redirect_uris=CALLBACK)
        db.session.commit()
    content, report = export()
    usernames = sorted(entry["username"] for entry in content["users"])
    assert usernames.count("admin") == 1
    assert len({*usernames}) == 4
    assert {"dana@example.com", "mal@example.com"} <= {*usernames}
    assert [entry["clientId"] for entry in content["clients"]] == ["ok"]
    dana = only(content["users"], email="dana@example.com")
    assert len({*dana["groups"]}) == len(names)
    assert not any("" in path.split("/")[1:] for path in dana["groups"])
    listed = {entry["name"] for entry in report["findings"] if entry["kind"] == "group"}
    assert listed == {"/", "/a", "a/", "a//b"}
    assert migrate(app, file)["people"]["imported"] == 4


@each(
    "arguments, why",
    [
        (("--format", "keycloak"), "needs FILE"),
        (("x.json", "--format", "keycloak", "--realm", "master"), "not master"),
        (("x.json", "--format", "keycloak", "--realm", "Master"), "not master"),
        (("x.json", "--format", "keycloak", "--realm", "a/b"), "letters, digits"),
        (("x.json", "--format", "keycloak", "--realm", ""), "letters, digits"),
        (("x.json", "--format", "other"), "other"),
    ],
)  # fmt: skip
def test_wrong_usage(arguments: tuple[str, ...], why: str, app: Flask) -> None:
    done = app.test_cli_runner().invoke(args=["export", *arguments])
    assert done.exit_code == 2
    assert why in done.stderr
    assert not Path("x.json").exists()


def test_a_file_that_cannot_be_written_is_one_line(app: Flask, tmp_path: Path) -> None:
    make_user(app)
    path = str(tmp_path / "nowhere/realm.json")
    done = app.test_cli_runner().invoke(args=["export", path, "--format", "keycloak"])
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert "cannot be written" in done.stderr


def test_the_report_as_text_and_the_event(app: Flask, file: Path) -> None:
    make_client(app, name="Books")
    make_user(app)
    done = app.test_cli_runner().invoke(args=["export", str(file), "--format", "keycloak"])
    assert "1 people, 0 groups, 1 clients" in done.stdout
    assert "secret" in done.stdout
    hashed = json.loads(json.loads(file.read_text())["users"][0]["credentials"][0]["secretData"])
    assert hashed["value"] not in done.output
    with app.app_context():
        event = db.session.scalars(select(AuditEvent).where(AuditEvent.name == "exported")).one()
        assert json.loads(event.fields)["format"] == "keycloak"


def test_many_people_are_read_in_batches(
    app: Flask, export: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sso.cli.keycloak_export._BATCH", 2)
    for number in range(5):
        make_user(app, f"p{number}@example.com", password=None)
    content, report = export()
    assert len({entry["id"] for entry in content["users"]}) == report["people"] == 5
    assert PASSWORD not in json.dumps(content)
    assert BASE not in json.dumps(content)
