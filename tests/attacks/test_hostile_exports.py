"""Somebody who controls a part of another server's export, and waits for the migration.

They register themselves there, name attributes, groups and clients, and add credentials that others
have; or they lost something here, and hope that the next run brings it back.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import delete, select

from sso.config.upstream.file import Upstreams
from sso.config.upstream.oidc import OidcProvider
from sso.extensions import db
from sso.models import Attribute, Client, Consent, Identity, Passkey, User
from sso.store import users
from tests.cli.test_migrate_factors import exported
from tests.support.actors import BASE
from tests.support.authenticator import Authenticator
from tests.support.factories import make_attribute, make_client, make_user
from tests.support.keycloak import client, group, mapper, otp, passkey, password, realm, user

Migrate = Callable[..., Any]
HOST = ("--rp-id", "localhost")
CORP = OidcProvider(
    id="corp", type="oidc", name="Corp", issuer="https://corp.example.com", client_id="x",
    client_secret="y",
)  # fmt: skip
LINK = {"identityProvider": "corp", "userId": "42", "userName": "dana"}


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    """Passkeys need a host with a name."""
    app = make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}")
    app.extensions["sso.upstreams"] = Upstreams([CORP])
    return app


@pytest.fixture
def migrate(app: Flask, tmp_path: Path) -> Migrate:
    def run(content: Any, *options: str) -> Any:
        path = tmp_path / "realm.json"
        path.write_text(json.dumps(content))
        done = app.test_cli_runner().invoke(
            args=["migrate", "keycloak", str(path), "--json", *options]
        )
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return run


def twice(migrate: Migrate, content: Any, *options: str) -> Any:
    """Plan, and run: both say the same. Return what they say."""
    planned = migrate(content, *options, "--plan")
    done = migrate(content, *options)
    assert {**planned, "applied": True} == done
    return done


def rows(app: Flask, table: type) -> list[Any]:
    with app.app_context():
        return list(db.session.scalars(select(table)))


def person(app: Flask, name: str) -> User:
    with app.app_context():
        row = users.find_by_email(f"{name}@example.com")
        assert row
        db.session.expunge(row)
        return row


def profile(policy: str = "", **edit: list[str]) -> dict[str, Any]:
    """The realm's profile: attributes, who may change each, and who those that it lacks."""
    listed = [
        {"name": name, "permissions": {"view": ["admin"], "edit": parties}}
        for name, parties in edit.items()
    ]
    config = {
        "kc.user.profile.config": [
            json.dumps({"attributes": listed, "unmanagedAttributePolicy": policy})
        ]
    }
    return {"org.keycloak.userprofile.UserProfileProvider": [{"name": "p", "config": config}]}


def left_out(report: Any) -> list[str]:
    return [entry["reason"] for entry in report["people"]["left_out"]]


STAFF = mapper("oidc-group-membership-mapper", claim__name="groups")
READS_ID = mapper(
    "oidc-usermodel-attribute-mapper", user__attribute="employeeId", claim__name="staff_id"
)


_MORE = {
    "declared in the profile": {"components": profile(employeeId=["admin"])},
    "read by a client": {"clients": [client("wiki", protocolMappers=[READS_ID])]},
    "read by a scope": {
        "clients": [client("wiki", defaultClientScopes=["hr"])],
        "clientScopes": [{"name": "hr", "protocolMappers": [READS_ID]}],
    },
}


@pytest.mark.parametrize("more", _MORE.values(), ids=_MORE)
def test_an_attribute_of_a_similar_name_is_not_the_one_of_administrators(
    more: dict[str, Any], app: Flask, migrate: Migrate
) -> None:
    """Where undeclared attributes are allowed, people may name their own `employee_id`."""
    people = [
        user("dana", attributes={"employeeId": ["7"], "employee_id": ["1"]}),
        user("mallory", attributes={"employee_id": ["1"]}),
        user("erin", attributes={"employeeId": ["8"]}),
    ]
    report = twice(migrate, realm(users=people, **more))
    attributes = {row.name: row.attributes for row in rows(app, User)}
    assert attributes == {
        "Dana Doe": {"employee_id": "7"}, "Mallory Doe": {}, "Erin Doe": {"employee_id": "8"},
    }  # fmt: skip
    assert (
        "attributes that people may name there, or whose names would be one name here"
        in left_out(report)
    )


def test_twins_that_are_both_declared_are_neither(app: Flask, migrate: Migrate) -> None:
    components = profile(employee_id=["admin", "user"], employeeId=["admin"], team=["admin"])
    attributes = {"employeeId": ["7"], "employee_id": ["1"], "team": ["red"]}
    report = twice(
        migrate, realm(users=[user("dana", attributes=attributes)], components=components)
    )
    assert person(app, "dana").attributes == {"team": "red"}
    assert [row.name for row in rows(app, Attribute)] == ["team"]
    [why] = [f["why"] for f in report["findings"] if f["name"] == "employee_id"]
    assert why == "employeeId, employee_id there would be one attribute here"


_ATTRIBUTES = {
    "the user name": {"preferred_username": ["admin"]},
    "a verified number": {
        "phone_number": ["+1"],
        "phoneNumber": ["+2"],
        "phoneNumberVerified": ["true"],
    },
    "an unverified number": {"phone_number": ["+1"], "phoneNumberVerified": ["true"]},
}


@pytest.mark.parametrize("attributes", _ATTRIBUTES.values(), ids=_ATTRIBUTES)
def test_an_attribute_named_as_a_claim_is_not_what_keycloak_says(
    attributes: dict[str, list[str]], app: Flask, migrate: Migrate
) -> None:
    migrate(realm(users=[user("mallory", attributes=attributes)]))
    claims = person(app, "mallory").claims
    assert claims["preferred_username"] == "mallory"
    assert (claims.get("phone_number"), claims.get("phone_number_verified")) != ("+1", True)


def test_groups_of_similar_names_stay_apart(app: Flask, migrate: Migrate) -> None:
    groups = [
        group("a", group("b", above="/a")),
        group("a~/b") | {"path": "/a~~/b"}, group("a/b") | {"path": "/a~/b"},
        group("staff"), group("staff "),
    ]  # fmt: skip
    people = [
        user("dana", groups=["/a/b"]), user("erin", groups=["/a~~/b"]),
        user("mallory", groups=["/a~/b", "/staff "]),
    ]  # fmt: skip
    twice(migrate, realm(groups=groups, users=people))
    groups_of = {row.name: row.groups for row in rows(app, User)}
    assert groups_of == {
        "Dana Doe": ["a/b"], "Erin Doe": ["a~/b"], "Mallory Doe": ["group:a~/b"],
    }  # fmt: skip


def test_roles_that_differ_by_a_space_stay_apart(app: Flask, migrate: Migrate) -> None:
    of_realm = [*realm()["roles"]["realm"], {"name": "boss"}, {"name": "boss "}]
    migrate(realm(roles={"realm": of_realm}, users=[user("mallory", realmRoles=["boss "])]))
    assert person(app, "mallory").groups == []


def test_two_clients_with_one_id(app: Flask, migrate: Migrate) -> None:
    twin = client("wiki", redirectUris=["https://evil.example.com/cb"], secret="e" * 32)
    report = twice(migrate, realm(clients=[client("wiki"), twin]))
    [registered] = rows(app, Client)
    assert registered.client_metadata["redirect_uris"] == ["https://wiki.example.com/cb"]
    whys = [finding["why"] for finding in report["findings"] if finding["kind"] == "client"]
    assert whys == ["another client there has the same ID"]


def test_a_passkey_is_of_one_person(app: Flask, migrate: Migrate) -> None:
    """The report says who comes without: a lost factor must not go unnoticed."""
    key = exported(Authenticator())
    people = [user(name, credentials=[password(), key]) for name in ("dana", "mallory")]
    report = twice(migrate, realm(users=people), *HOST)
    assert report["people"]["factors"] == {"passkeys and security keys": 1}
    assert left_out(report) == ["passkeys and security keys that somebody else has, too"]
    [row] = rows(app, Passkey)
    assert row.user_id == person(app, "dana").id


def test_a_passkey_of_somebody_here_stays_theirs(app: Flask, migrate: Migrate) -> None:
    key = exported(Authenticator())
    dana = user("dana", credentials=[password(), key])
    migrate(realm(users=[dana]), *HOST)
    mallory = user("mallory", credentials=[password(), key])
    report = twice(migrate, realm(realm="other", users=[mallory]), *HOST)
    assert report["people"]["factors"] == {}
    assert left_out(report) == ["passkeys and security keys that somebody else has, too"]
    assert [row.user_id for row in rows(app, Passkey)] == [person(app, "dana").id]


def test_a_link_is_of_one_person(app: Flask, migrate: Migrate) -> None:
    people = [user(name, federatedIdentities=[LINK]) for name in ("dana", "mallory")]
    providers = [{"alias": "corp"}]
    options = ("--provider", "corp=corp")
    report = twice(migrate, realm(users=people, identityProviders=providers), *options)
    assert left_out(report) == ["links to other identity providers that somebody else has, too"]
    erin = user("erin", federatedIdentities=[LINK])
    report = twice(
        migrate, realm(realm="other", users=[erin], identityProviders=providers), *options
    )
    assert left_out(report) == ["links to other identity providers that somebody else has, too"]
    assert report["people"]["factors"] == {}
    assert [row.user_id for row in rows(app, Identity)] == [person(app, "dana").id]


def test_consents_are_for_the_clients_of_their_own_server(app: Flask, migrate: Migrate) -> None:
    """Another realm may have a client with the same ID, to which its people consented."""
    consents = [{"clientId": "wiki", "grantedClientScopes": ["profile", "email"]}]
    asking = client("wiki", consentRequired=True)
    migrate(realm(clients=[asking], users=[user("dana", clientConsents=consents)]))
    mallory = user("mallory", clientConsents=consents)
    report = twice(migrate, realm(realm="other", clients=[asking], users=[mallory]))
    assert report["clients"] == {"wiki": "kept"}
    assert report["people"]["factors"] == {}
    assert [row.user_id for row in rows(app, Consent)] == [person(app, "dana").id]


def test_no_later_run_restores_a_passkey_that_was_removed_here(
    app: Flask, migrate: Migrate
) -> None:
    """Neither if an export between them lacks it, as one without `--rp-id` does."""
    content = realm(users=[user("dana", credentials=[password(), exported(Authenticator())])])
    migrate(content, *HOST)
    with app.app_context():
        db.session.execute(delete(Passkey))
        db.session.commit()
    assert migrate(content)["people"]["updates"] == {"changed": 1}
    assert migrate(content, *HOST)["people"]["updates"] == {"changed": 1}
    assert rows(app, Passkey) == []


def test_nobody_gets_the_email_address_of_somebody_here(app: Flask, migrate: Migrate) -> None:
    migrate(realm(users=[user("mallory")]))
    admin = make_user(app, "admin@example.com")
    changed = realm(users=[user("mallory", email="Admin@example.com")])
    report = twice(migrate, changed)
    assert report["people"]["updates"] == {"not_taken": 1}
    assert report["people"]["updated"][0]["why"] == "there is a user with this email address"
    assert person(app, "mallory").id != admin.id


_CREDENTIAL = {
    "a counter": otp() | {"type": "hotp", "credentialData": "{}"},
    "another algorithm": otp(algorithm="HmacSHA256"),
    "eight digits": otp(digits=8),
    "digits as a text": otp(digits="6"),
    "a period of an hour": otp(period=3600),
    "a negative period": otp(period=-30),
    "a short secret": otp(secret="short"),
    "no key": passkey(b"12345", b"garbage"),
    "a key of another algorithm": passkey(b"12345", bytes.fromhex("a201020326")),
}


@pytest.mark.parametrize("credential", _CREDENTIAL.values(), ids=_CREDENTIAL)
def test_factors_that_nobody_could_use_are_left_out(
    credential: dict[str, Any], migrate: Migrate
) -> None:
    """With one, somebody would have a second step that cannot be taken."""
    content = realm(users=[user("dana", credentials=[password(), credential])])
    report = twice(migrate, content, *HOST, "--rp-id", "localhost")
    assert report["people"]["factors"] == {}
    assert len(left_out(report)) == 1


@pytest.mark.parametrize(
    ("policy", "taken"),
    [("ENABLED", {"team": "red"}), ("ADMIN_EDIT", {"team": "red", "clearance": "top"}),
     ("", {"team": "red", "clearance": "top"})],
)  # fmt: skip
def test_an_attribute_that_people_may_name_is_none_of_here(
    policy: str, taken: dict[str, str], app: Flask, migrate: Migrate
) -> None:
    make_attribute(app, "clearance", writers=["administrator"])
    attributes = {"team": ["red"], "clearance": ["top"]}
    components = profile(policy, team=["admin"])
    report = twice(
        migrate, realm(users=[user("mallory", attributes=attributes)], components=components)
    )
    assert person(app, "mallory").attributes == taken
    assert bool(left_out(report)) is (policy == "ENABLED")


def test_the_plan_names_what_means_something_here_already(app: Flask, migrate: Migrate) -> None:
    """A group that lets people into an application, and an attribute that people cannot change."""
    books = make_client(app, groups=["staff"])
    make_attribute(app, "team", writers=["administrator"])
    make_attribute(app, "desk", writers=["person"])
    content = realm(
        groups=[group("staff"), group("other")],
        clients=[client("wiki", protocolMappers=[STAFF])],
        components=profile(team=["admin", "user"], desk=["admin", "user"]),
    )
    for _ in range(2):
        report = twice(migrate, content)
        changed = {
            (finding["kind"], finding["name"]): finding["why"]
            for finding in report["findings"] if finding["kind"] in ("group", "attribute")
        }  # fmt: skip
        assert changed == {
            ("group", "staff"): "applications here know a group of this name: " + books.client_id,
            ("attribute", "team"):
                "people change it themselves there, and not here; their values are taken",
        }  # fmt: skip
