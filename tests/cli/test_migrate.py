"""`flask migrate keycloak`: everything once, what changed since, and nothing over what is here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import event, func, select

from sso import audit, context
from sso.crypto import foreign_hashes
from sso.crypto import secrets as crypto_secrets
from sso.extensions import db
from sso.models import Attribute, AuditEvent, Client, Group, Mail, Migrated, User
from sso.services import accounts, clients, importing, migrating
from sso.services.changes import ListEdit
from sso.store import clients as stored_clients
from sso.store import users
from tests.support.each import each
from tests.support.factories import make_client, make_user
from tests.support.keycloak import (
    PASSWORD,
    SECRET,
    client,
    group,
    mapper,
    password,
    realm,
    user,
)

Migrate = Callable[..., Any]
OLGA = audit.Actor("olga")
DEPARTMENT = mapper(
    "oidc-usermodel-attribute-mapper", user__attribute="department", claim__name="department"
)
ACME = realm(
    clients=[
        client("account"),
        client("wiki", {"post.logout.redirect.uris": "+"}, protocolMappers=[DEPARTMENT]),
        client("app", {"pkce.code.challenge.method": "S256"}, publicClient=True),
        client("api", bearerOnly=True),
    ],
    groups=[group("teams", group("red", above="/teams")), group("a, b")],
    users=[
        user("dana", groups=["/teams/red"], attributes={"department": ["R&D"]}),
        user("erin", enabled=False),
        user("service-account-wiki", serviceAccountClientId="wiki"),
    ],
)


@pytest.fixture
def migrate(app: Flask, tmp_path: Path) -> Migrate:
    def run(content: Any, *options: str, code: int = 0) -> Any:
        path = tmp_path / "realm.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        done = app.test_cli_runner().invoke(
            args=["migrate", "keycloak", str(path), "--json", *options]
        )
        assert done.exit_code == code, done.output
        return json.loads(done.stdout) if done.stdout.startswith("{") else done.stderr

    return run


def changed(**by_client: dict[str, Any]) -> dict[str, Any]:
    """The realm after some clients have changed."""
    return ACME | {
        "clients": [entry | by_client.get(entry["clientId"], {}) for entry in ACME["clients"]]
    }


def with_dana(**more: Any) -> dict[str, Any]:
    """The realm after a person has changed."""
    return ACME | {"users": [ACME["users"][0] | more, *ACME["users"][1:]]}


def count(app: Flask, table: type) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(table)) or 0


def person(app: Flask, email: str) -> User:
    with app.app_context():
        row = users.find_by_email(email)
        assert row
        db.session.expunge(row)
        return row


def registered(app: Flask, client_id: str) -> Client:
    with app.app_context():
        return stored_clients.detached([client_id])[client_id]


def findings(report: Any, fate: str) -> list[tuple[str, str]]:
    return [(one["name"], one["what"]) for one in report["findings"] if one["fate"] == fate]


def test_a_plan_says_it_all_and_changes_nothing(app: Flask, migrate: Migrate) -> None:
    planned = migrate(ACME, "--plan")
    assert [count(app, table) for table in (User, Client, Group, Attribute, AuditEvent, Migrated)] \
        == [0] * 6  # fmt: skip
    done = migrate(ACME)
    assert {**planned, "applied": True} == done


def test_everything_is_as_it_was_there(app: Flask, migrate: Migrate) -> None:
    report = migrate(ACME)
    assert report["clients"] == {"api": "not_taken", "app": "taken", "wiki": "taken"}
    assert ("a, b", "") in findings(report, "not_taken")
    assert report["people"]["imported"] == 2
    assert report["people"]["counts"] == {"service accounts, which come with their clients": 1}
    wiki, app_ = registered(app, "wiki"), registered(app, "app")
    assert crypto_secrets.matches(SECRET, wiki.secret_digest)
    assert wiki.client_metadata["redirect_uris"] == ["https://wiki.example.com/cb"]
    assert wiki.client_metadata["post_logout_redirect_uris"] == ["https://wiki.example.com/cb"]
    assert (app_.is_public, app_.require_pkce, app_.secret_digest) == (True, True, "")
    dana, erin = person(app, "dana@example.com"), person(app, "erin@example.com")
    assert dana.id == UUID(ACME["users"][0]["id"])
    assert dana.groups == ["teams/red"]
    assert dana.attributes == {"department": "R&D"}
    assert dana.claims["preferred_username"] == "dana"
    assert foreign_hashes.verify(PASSWORD, dana.password_hash or "")
    assert (dana.is_disabled, erin.is_disabled) == (False, True)
    assert count(app, Mail) == 0


def test_a_second_run_changes_nothing(app: Flask, migrate: Migrate) -> None:
    migrate(ACME)
    events, version = count(app, AuditEvent), person(app, "dana@example.com").version
    report = migrate(ACME)
    assert report["clients"] == {"api": "not_taken", "app": "same", "wiki": "same"}
    assert (report["people"]["imported"], report["people"]["updates"]) == (0, {})
    assert count(app, AuditEvent) == events
    assert person(app, "dana@example.com").version == version


def test_what_changed_there_is_brought(app: Flask, migrate: Migrate) -> None:
    migrate(ACME)
    after = changed(wiki={"redirectUris": ["https://wiki.example.com/new"], "secret": SECRET[::-1],
                          "enabled": False}) | {
        "users": [
            ACME["users"][0] | {"lastName": "New", "groups": ["/teams"], "attributes": {},
                                "credentials": [password("another password")]},
            ACME["users"][1] | {"enabled": True},
            user("new"),
        ],
    }  # fmt: skip
    planned = migrate(after, "--plan")
    assert person(app, "dana@example.com").name == "Dana Doe"
    report = migrate(after)
    assert {**planned, "applied": True} == report
    assert report["clients"]["wiki"] == "changed"
    assert report["people"]["updates"] == {"changed": 2}
    assert report["people"]["imported"] == 1
    wiki, dana = registered(app, "wiki"), person(app, "dana@example.com")
    assert wiki.client_metadata["redirect_uris"] == ["https://wiki.example.com/new"]
    assert wiki.client_metadata["post_logout_redirect_uris"] == ["https://wiki.example.com/new"]
    assert crypto_secrets.matches(SECRET[::-1], wiki.secret_digest)
    assert wiki.disabled_at
    assert (dana.name, dana.groups, dana.attributes) == ("Dana New", ["teams"], {})
    assert foreign_hashes.verify("another password", dana.password_hash or "")
    assert not person(app, "erin@example.com").is_disabled
    assert migrate(after)["people"]["updates"] == {}


def test_a_claim_that_is_gone_there_goes_here(app: Flask, migrate: Migrate) -> None:
    migrate(ACME)
    assert person(app, "dana@example.com").claims["family_name"] == "Doe"
    assert migrate(with_dana(lastName=""))["people"]["updates"] == {"changed": 1}
    claims = person(app, "dana@example.com").claims
    assert (claims["given_name"], claims.get("family_name")) == ("Dana", None)


def test_a_field_that_changed_here_stays_and_is_named(app: Flask, migrate: Migrate) -> None:
    migrate(ACME)
    with app.app_context():
        clients.change(OLGA, "wiki", {"client_name": "Ours", "home_url": "https://w.example/"})
        db.session.commit()
    after = changed(wiki={"name": "Theirs", "consentRequired": True})
    report = migrate(after)
    assert findings(report, "kept") == [("wiki", "client_name")]
    wiki = registered(app, "wiki")
    # What changed here alone stays, what changed there alone is brought.
    assert (wiki.name, wiki.first_party) == ("Ours", False)
    assert wiki.client_metadata["home_url"] == "https://w.example/"
    assert findings(migrate(after), "kept") == [("wiki", "client_name")]  # each time
    assert findings(migrate(after, "--overwrite"), "kept") == []
    assert registered(app, "wiki").name == "Theirs"


def test_a_person_who_changed_here_stays_and_is_named(app: Flask, migrate: Migrate) -> None:
    migrate(ACME)
    with app.app_context():
        dana = users.find_by_email("dana@example.com")
        assert dana
        accounts.update(OLGA, dana.id, memberships=ListEdit(added=("board",)))
        db.session.commit()
    assert migrate(ACME)["people"]["updates"] == {}
    report = migrate(with_dana(lastName="New"))
    assert report["people"]["updates"] == {"kept": 1}
    assert report["people"]["updated"] == [
        {"email": "dana@example.com", "fate": "kept", "why": "changed there and here"}
    ]
    assert person(app, "dana@example.com").groups == ["teams/red", "board"]
    migrate(with_dana(lastName="New"), "--overwrite")
    dana = person(app, "dana@example.com")
    assert (dana.name, dana.groups) == ("Dana New", ["teams/red"])


def test_who_and_what_was_deleted_here_does_not_come_back(app: Flask, migrate: Migrate) -> None:
    migrate(ACME)
    with app.app_context():
        clients.delete(OLGA, "wiki")
        dana = users.find_by_email("dana@example.com")
        assert dana
        accounts.delete(OLGA, dana)
        db.session.commit()
    report = migrate(ACME)
    assert report["clients"]["wiki"] == "kept"
    assert report["people"]["updates"] == {"kept": 1}
    assert (count(app, User), count(app, Client)) == (1, 1)
    report = migrate(ACME, "--overwrite")
    assert (report["clients"]["wiki"], report["people"]["imported"]) == ("taken", 1)


def test_a_client_and_a_person_who_were_here_before_are_not_touched(
    app: Flask, migrate: Migrate
) -> None:
    make_client(app, client_id="wiki", name="Ours")
    make_user(app)
    report = migrate(ACME)
    assert report["clients"]["wiki"] == "kept"
    assert report["people"]["exists"] == 1
    assert registered(app, "wiki").name == "Ours"
    assert person(app, "dana@example.com").id != UUID(ACME["users"][0]["id"])


def test_a_password_that_was_used_here_is_not_replaced_by_an_older_one(
    app: Flask, migrate: Migrate
) -> None:
    migrate(ACME)
    with app.app_context():
        dana = users.find_by_email("dana@example.com")
        assert dana
        dana.password_hash = "$argon2id$v=19$m=19456,t=2,p=1$x$y"  # as at the first sign-in
        db.session.commit()
    assert migrate(with_dana(credentials=[password("other")]))["people"]["updates"] == {"kept": 1}
    assert person(app, "dana@example.com").password_hash == "$argon2id$v=19$m=19456,t=2,p=1$x$y"


def test_groups_that_administer_are_left_out_of_changes_too(app: Flask, migrate: Migrate) -> None:
    with app.app_context():
        name = context.settings().admin_group
    content = ACME | {"groups": [*ACME["groups"], group(name)]}
    migrate(content)
    after = content | {"users": with_dana(groups=["/teams/red", f"/{name}"])["users"]}
    migrate(after)
    assert person(app, "dana@example.com").groups == ["teams/red"]


def test_who_administers_here_is_kept(app: Flask, migrate: Migrate) -> None:
    """Who can write the export could sign in as an administrator, by a new address and password."""
    with app.app_context():
        name = context.settings().admin_group
    make_user(app, "other@example.com", groups=[name])  # the last one could not lose the role
    entry = with_dana()["users"][0]
    make_user(app, user_id=UUID(entry["id"]), groups=[name])
    before = person(app, "dana@example.com")
    stolen = with_dana(email="mallory@example.com", credentials=[password("mine")])
    report = migrate(stolen, "--overwrite")
    assert report["people"]["updates"] == {"kept": 1}
    (kept,) = report["people"]["updated"]
    assert "--allow-admins" in kept["why"]
    after = person(app, "dana@example.com")
    assert (after.password_hash, after.groups) == (before.password_hash, [name])
    report = migrate(stolen, "--overwrite", "--allow-admins")
    assert report["people"]["updates"] == {"changed": 1}


def test_a_later_run_without_the_option_takes_no_rights(app: Flask, migrate: Migrate) -> None:
    with app.app_context():
        name = context.settings().admin_group
    content = ACME | {"groups": [*ACME["groups"], group(name)]}
    content |= {"users": with_dana(groups=[f"/{name}"])["users"]}
    migrate(content, "--allow-admins")
    make_user(app, "other@example.com", groups=[name])
    content["users"][0] |= {"lastName": "New"}
    assert migrate(content)["people"]["updates"] == {"kept": 1}
    assert person(app, "dana@example.com").groups == [name]


@each(
    "options, why",
    {
        "unknown client": (("--redirect-uri", "nobody=https://x.example"), "no client nobody"),
        "no URI": (("--redirect-uri", "wiki"), "is not CLIENT=VALUE"),
        "a secret in clear": (("--secret", "wiki=secret"), "neither env:NAME nor file:PATH"),
        "an empty reference": (("--secret", "wiki=env:NOT_THERE"), "empty or not there"),
    }.values(),
)
def test_wrong_options(options: tuple[str, ...], why: str, migrate: Migrate, app: Flask) -> None:
    code = 2 if "CLIENT=VALUE" in why else 1
    assert why in migrate(ACME, *options, code=code)
    assert count(app, Client) == 0


@each(
    "content, why",
    {
        "truncated": (json.dumps(ACME)[:-30], "not JSON"),
        "empty": ("", "not JSON"),
        "a CSV file": ("email,name\ndana@example.com,Dana\n", "not JSON"),
        "two realms": (json.dumps([ACME, realm(realm="other")]), "several realms"),
    }.values(),
)
def test_of_a_broken_export_nothing_is_taken(
    content: str, why: str, migrate: Migrate, app: Flask
) -> None:
    assert why in migrate(content, code=1)
    assert (count(app, User), count(app, Client), count(app, Migrated)) == (0, 0, 0)


def test_clients_that_this_server_refuses_do_not_stop_the_others(
    app: Flask, migrate: Migrate
) -> None:
    content = realm(clients=[
        client("good"), client("bad", name="\x07" * 3), client("worse", name="x" * 300),
    ])  # fmt: skip
    report = migrate(content)
    assert report["clients"] == {"good": "taken", "bad": "not_taken", "worse": "not_taken"}
    assert count(app, Client) == 1


def test_people_with_one_email_address_come_once(app: Flask, migrate: Migrate) -> None:
    erin = user("erin", email="DANA@example.com")
    fred, sales = user("fred", email=None), user("営業", email="sales@example.com")
    content = realm(users=[user("dana"), erin, fred, sales])
    report = migrate(content)
    assert (report["people"]["imported"], report["people"]["skipped"]) == (2, 2)
    assert person(app, "sales@example.com").claims["preferred_username"] == "営業"


def test_two_realms_with_the_same_client(app: Flask, migrate: Migrate) -> None:
    migrate(ACME)
    other = realm(realm="other", clients=[client("wiki", name="Other")])
    assert migrate(other)["clients"] == {"wiki": "kept"}


def test_the_report_as_text_names_each_thing(app: Flask, tmp_path: Path) -> None:
    path = tmp_path / "realm.json"
    path.write_text(json.dumps(changed(wiki={"secret": "**********"})))
    done = app.test_cli_runner().invoke(args=["migrate", "keycloak", str(path), "--plan"])
    assert done.exit_code == 0
    assert "Realm acme of Keycloak 26.5.6" in done.stdout
    assert "Clients: 2 taken, 1 not taken" in done.stdout
    assert "? secret: not taken: it is masked or missing in the export" in done.stdout
    assert "2 would be imported" in done.stdout
    assert "Nothing is changed yet." in done.stdout
    assert "1 questions are open" in done.stderr


def test_no_secret_is_in_a_report(app: Flask, migrate: Migrate) -> None:
    migrate(ACME)
    text = json.dumps(migrate(changed(wiki={"secret": SECRET[::-1]}), "--plan"))
    assert SECRET not in text
    assert SECRET[::-1] not in text


def test_a_thousand_people_take_few_statements(app: Flask, migrate: Migrate) -> None:
    content = ACME | {
        "users": [user(f"u{number}", groups=["/teams/red"]) for number in range(1000)]
    }
    statements = 0

    def counted(*_: Any) -> None:
        nonlocal statements
        statements += 1

    with app.app_context():
        engine = db.engine
    event.listen(engine, "before_cursor_execute", counted)
    try:
        assert migrate(content)["people"]["imported"] == 1000
        first, statements = statements, 0
        assert migrate(content)["people"]["imported"] == 0
        assert (first < 120, statements < 80) == (True, True), (first, statements)
    finally:
        event.remove(engine, "before_cursor_execute", counted)


def test_a_person_whom_somebody_changes_at_this_moment_is_kept(
    app: Flask, migrate: Migrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(ACME)
    real = migrating.change_person

    def late(actor: audit.Actor, update: migrating.Update, rules: importing.Rules) -> None:
        assert update.person.user_id
        accounts.update(OLGA, update.person.user_id, name="Ours")
        db.session.commit()
        real(actor, update, rules)

    monkeypatch.setattr(migrating, "change_person", late)
    assert migrate(with_dana(lastName="New"))["people"]["updates"] == {"kept": 1}
    assert person(app, "dana@example.com").name == "Ours"


def test_one_person_who_is_refused_does_not_stop_the_others(app: Flask, migrate: Migrate) -> None:
    make_user(app, "taken@example.com")
    migrate(ACME)
    after = ACME | {"users": [ACME["users"][0] | {"email": "taken@example.com"},
                              ACME["users"][1] | {"lastName": "New"}]}  # fmt: skip
    assert migrate(after)["people"]["updates"] == {"not_taken": 1, "changed": 1}
    assert person(app, "dana@example.com").name == "Dana Doe"
    assert person(app, "erin@example.com").name == "Erin New"


def test_clients_keep_the_issuer_that_this_server_answers_under(
    make_app: Callable[..., Flask], tmp_path: Path
) -> None:
    issuer = "https://login.example.com/realms/acme"
    app = make_app(SSO_ISSUER_ALIASES=f"{issuer}=keycloak")
    path = tmp_path / "realm.json"
    path.write_text(json.dumps(ACME))
    command = ["migrate", "keycloak", str(path), "--json", "--issuer"]
    other = app.test_cli_runner().invoke(args=[*command, f"{issuer}/other"])
    assert json.loads(other.stdout)["clients"]["wiki"] == "not_taken"
    done = app.test_cli_runner().invoke(args=[*command, issuer])
    assert json.loads(done.stdout)["clients"]["wiki"] == "taken"
    assert registered(app, "wiki").client_metadata["issuer"] == issuer
    # An application that was moved to the new issuer stays there.
    with app.app_context():
        clients.change(OLGA, "wiki", {"issuer": None})
        db.session.commit()
    app.test_cli_runner().invoke(args=[*command, issuer])
    assert "issuer" not in registered(app, "wiki").client_metadata
