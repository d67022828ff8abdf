"""`flask migrate pocket-id`: the same clients, secrets, passkeys and subjects."""

import base64
import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest
from flask import Flask

from sso.models import Attribute, Client, Consent, Passkey, User
from tests.conftest import Clock
from tests.support import migrations
from tests.support.actors import BASE, Browser, RelyingParty, claims_of
from tests.support.authenticator import Authenticator
from tests.support.databases import create_database
from tests.support.each import each
from tests.support.migrations import forget, lines, rows
from tests.support.pocket_id import DANA, SECRET, STAFF, client, user, write, write_postgresql
from tests.support.second_factors import sign_in_by_passkey

# COSE of the base point of P-256.
POINT = cbor2.dumps({1: 2, 3: -7, -1: 1} | {
    number: bytes.fromhex(digits) for number, digits in (
        (-2, "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"),
        (-3, "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"),
    )
})  # fmt: skip
Run = Callable[..., Any]
RP = ("--rp-id", "localhost")
PEOPLE = {
    "users": [user("dana", DANA)],
    "user_groups": [{"id": STAFF, "name": "staff", "friendly_name": "The staff"}],
    "user_groups_users": [{"user_id": DANA, "user_group_id": STAFF}],
}


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    """Passkeys need a host with a name."""
    return make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}")


@pytest.fixture
def migrate(app: Flask, tmp_path: Path) -> Run:
    def run(path: Path | str | None = None, *options: str, code: int = 0, **rows: Any) -> Any:
        database = path or write(tmp_path / "pocket-id.db", **rows)
        return migrations.migrate(app, "pocket-id", str(database), *options, code=code)

    return run


def test_nothing_changes_for_applications_and_people(
    app: Flask, browser: Browser, clock: Clock, migrate: Run, tmp_path: Path
) -> None:
    key = Authenticator()
    key.create({"user": {"id": ""}, "challenge": "x"})
    key.handle = base64.urlsafe_b64encode(DANA.encode()).decode().rstrip("=")
    key.count = 1
    point = key.key.public_key().public_numbers()
    cose = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32), -3: point.y.to_bytes(32)}
    passkey = {"name": "My key", "credential_id": key.id, "public_key": cbor2.dumps(cose),
               "transport": b'["internal"]', "user_id": DANA}  # fmt: skip
    path = write(
        tmp_path / "db", **PEOPLE, oidc_clients=[client("wiki")], webauthn_credentials=[passkey],
        custom_claims=[{"key": "costCenter", "value": "7", "user_group_id": STAFF},
                       {"key": "costCenter", "value": "42", "user_id": DANA},
                       {"key": "tree", "value": "[1]", "user_id": DANA},
                       {"key": "sub", "value": "root", "user_id": DANA}],
        user_authorized_oidc_clients=[
            {"scope": "openid profile", "user_id": DANA, "client_id": "wiki"},
        ],
    )  # fmt: skip
    planned = migrate(path, *RP, "--plan")
    assert rows(app, User) == rows(app, Client) == []
    report = migrate(path, *RP)
    assert {**planned, "applied": True} == report
    assert report["people"]["factors"] == {"passkeys and security keys": 1, "consents": 1}
    wiki = RelyingParty(app, "wiki", SECRET, "https://wiki.example.com/cb")
    browser.authorize(wiki, scope="openid profile email groups")
    page = sign_in_by_passkey(browser, key)
    claims = claims_of(wiki.exchange(page.code).get_json()["id_token"])
    assert {name: claims[name] for name in ("sub", "name", "preferred_username", "costCenter")} == {
        "sub": DANA, "name": "Dana Doe", "preferred_username": "dana", "costCenter": "42",
    }  # fmt: skip
    assert (claims["groups"], claims["email_verified"]) == (["staff"], True)
    assert [row.name for row in rows(app, Passkey)] == ["My key"]
    assert ("not_taken", "sub", "") in lines(report)
    assert sorted(row.name for row in rows(app, Attribute)) == ["cost_center", "tree"]
    assert [row.client_id for row in rows(app, Consent)] == ["wiki"]
    again = migrate(path, *RP)
    assert again["clients"] == {"wiki": "same"}
    assert again["people"]["updates"] == {}


@each(
    "entry, fields, findings",
    {
        "public": (client("c", is_public=1, secret=None),
                   {"token_endpoint_auth_method": "none", "require_pkce": True}, []),
        "PKCE": (client("c", pkce_enabled=1), {"require_pkce": True}, []),
        "consent": (client("c", skip_consent=0), {"first_party": False}, []),
        "logout": (client("c", logout_callback_urls=b'["https://c.example.com/bye"]'),
                   {"post_logout_redirect_uris": ["https://c.example.com/bye"]}, []),
        "launch": (client("c", launch_url="https://c.example.com/"),
                   {"home_url": "https://c.example.com/"}, []),
        "a bad launch URL": (client("c", launch_url="javascript:alert(1)"), {},
                             [("not_taken", "c", "launch URL")]),
        "a wildcard": (client("c", "https://c.example.com/cb", "https://*.example.com/cb"),
                       {"redirect_uris": ["https://c.example.com/cb"]},
                       [("question", "c", "redirect URI")]),
        "no secret": (client("c", secret=None), {}, [("question", "c", "secret")]),
        "a logo": (client("c", image_type="png"), {}, [("not_taken", "c", "logo")]),
        "again each time": (client("c", requires_reauthentication=1), {},
                            [("not_taken", "c", "reauthentication")]),
        "federated": (client("c", credentials=b'{"federatedIdentities": [{"issuer": "x"}]}'), {},
                      [("not_taken", "c", "federated credentials")]),
        "for nobody": (client("c", is_group_restricted=1), {"groups": [], "disabled": True},
                       [("question", "c", "groups")]),
        "a broken list": (client("c", callback_urls=b"["), None, [("not_taken", "c", "")]),
        "no URL": (client("c", callback_urls=b"[]"), None, [("not_taken", "c", "")]),
        "a bad ID": (client("a b"), None, [("not_taken", "a b", "")]),
        "a document": (client("c", is_metadata_document=1), None, [("not_taken", "c", "")]),
    }.values(),
)  # fmt: skip
def test_kinds_of_clients(entry: Any, fields: Any, findings: Any, app: Flask, migrate: Run) -> None:
    report = migrate(None, "--overwrite", oidc_clients=[entry])
    assert lines(report) == findings
    assert report["clients"][entry["id"]] == ("not_taken" if fields is None else "taken")
    for row in rows(app, Client):
        switches = {"require_pkce": row.require_pkce, "first_party": row.first_party}
        stored = {"groups": [], **row.client_metadata, **switches}
        stored["disabled"] = row.disabled_at is not None
        assert {name: stored.get(name) for name in fields or {}} == (fields or {})
    forget(app, Client)


@each(
    "without, restricted, groups",
    {
        "restricted": ((), 1, ["staff"]),
        "not any more": ((), 0, []),
        "before the switch": (("oidc_clients.is_group_restricted",), None, ["staff"]),
    }.values(),
)
def test_who_may_use_a_client(
    without: Any, restricted: Any, groups: Any, app: Flask, migrate: Run, tmp_path: Path
) -> None:
    entry = client("c", is_group_restricted=restricted)
    if restricted is None:
        del entry["is_group_restricted"]
    path = write(
        tmp_path / "db", without, **PEOPLE, oidc_clients=[entry],
        oidc_clients_allowed_user_groups=[{"oidc_client_id": "c", "user_group_id": STAFF}],
    )  # fmt: skip
    migrate(path, "--overwrite")
    [stored] = rows(app, Client)
    assert list(stored.groups) == groups


def test_people(app: Flask, migrate: Run) -> None:
    report = migrate(
        users=[
            user("dana", DANA, is_admin=1, ldap_id="x", email_verified=0),
            user("erin", "e" * 8, display_name="Эрин 李", disabled=1),
            user("twin", "t", email="DANA@example.com"), user("nobody", "n", email=None),
            user("broken", "b", email="a\0b@example.com"),
        ],
        user_groups=[{"id": "a", "name": "sso-administrators"}, {"id": "b", "name": "x, y"}],
        user_groups_users=[{"user_id": DANA, "user_group_id": group} for group in "abc"],
        webauthn_credentials=[{"name": "k", "credential_id": b"i", "public_key": b"p",
                               "transport": b"[]", "user_id": DANA}],
        api_keys=[{"id": "1"}],
    )  # fmt: skip
    for document in re.findall(r"docs/[a-z/-]+\.md", json.dumps(report["findings"])):
        assert (Path(__file__).parents[2] / document).is_file()
    people = report["people"]
    assert (people["imported"], people["skipped"]) == (2, 3)
    by_email = {person.email: person for person in rows(app, User)}
    dana, erin = by_email["dana@example.com"], by_email["erin@example.com"]
    assert (str(dana.id), dana.groups, dana.email_verified) == (DANA, [], False)
    assert (erin.name, erin.disabled_at is None) == ("Эрин 李", False)
    assert list(people["counts"].values()) == [1, 2]
    reasons = [entry["reason"] for entry in people["left_out"]]
    assert any("another host name" in reason for reason in reasons)
    assert any("administers this server" in reason for reason in reasons)
    assert [line for line in lines(report) if line[1] in ("LDAP", "api keys")] == [
        ("not_taken", "LDAP", ""), ("not_taken", "api keys", ""),
    ]  # fmt: skip


def test_the_same_from_postgresql(
    app: Flask, migrate: Run, tmp_path: Path, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its columns have other types. The URL may come from the environment."""
    others = ["00000000-0000-4000-8000-00000000000" + digit for digit in "9ab"]
    database: dict[str, Any] = {
        **PEOPLE,
        "users": [
            user("dana", DANA, is_admin=1), user("erin", others[0], display_name="Эрин 李"),
            user("fay", others[1], disabled=1), user("gus", others[2], email_verified=0),
        ],
        "user_groups_users": [
            {"user_id": user_id, "user_group_id": STAFF} for user_id in (others[2], DANA)
        ],
        "oidc_clients": [
            client("wiki", logout_callback_urls=b'["https://wiki.example.com/bye"]'),
            client("spa", is_public=1, secret=None, is_group_restricted=1),
        ],
        "custom_claims": [
            {"key": "costCenter", "value": "7", "user_group_id": STAFF},
            {"key": "costCenter", "value": "42", "user_id": others[0]},
        ],
        "webauthn_credentials": [
            {"name": "k", "credential_id": b"\x00\xffid", "public_key": POINT,
             "transport": b'["usb"]', "user_id": others[1]},
        ],
        "user_authorized_oidc_clients": [
            {"scope": "openid email", "user_id": DANA, "client_id": "wiki"},
        ],
        "api_keys": [{"id": "1"}],
    }  # fmt: skip
    name = create_database(postgresql_url, "pocket_id", "template0")
    monkeypatch.setenv("POCKET_ID", write_postgresql(name, **database))
    report = migrate("env:POCKET_ID", *RP, "--plan")
    path = write(tmp_path / "same", **database)
    assert report == migrate(path, *RP, "--plan")
    assert report["people"]["factors"] == {"passkeys and security keys": 1, "consents": 1}
    migrate("env:POCKET_ID", *RP)
    again = migrate(path, *RP)
    assert (again["people"]["imported"], again["people"]["updates"]) == (0, {})
    assert set(again["clients"].values()) == {"same"}
    [dana] = [person for person in rows(app, User) if person.name == "Dana Doe"]
    assert (dana.groups, dana.attributes) == (["staff"], {"cost_center": "7"})
    [consent] = rows(app, Consent)
    assert (consent.client_id, consent.scope) == ("wiki", "openid email")


def test_databases_that_cannot_be_opened(app: Flask, migrate: Run, postgresql_url: str) -> None:
    assert "give the path of an SQLite file" in migrate("mysql://dana:pa55@host/db", code=1)
    for url in ("postgresql://dana:pa55@host:x/db", "postgresql://127.0.0.1:1/db?password=pa55"):
        said = migrate(url, code=1)
        assert "pa55" not in said
        assert "cannot be read" in said
    url = create_database(postgresql_url, "not_pocket_id", "template0").replace("+psycopg", "")
    assert "no table users" in migrate(url, code=1)


@each("value, is_verified", {"on": ("true", True), "off": ("false", False)}.values())
def test_addresses_of_early_versions(
    value: str, is_verified: bool, app: Flask, migrate: Run, tmp_path: Path
) -> None:
    person = user("dana", DANA)
    del person["email_verified"]
    path = write(tmp_path / "db", ("users.email_verified",), users=[person],
                 app_config_variables=[{"key": "emailsVerified", "value": value}])  # fmt: skip
    migrate(path, "--overwrite")
    [dana] = rows(app, User)
    assert dana.email_verified is is_verified


def test_files_that_are_refused(app: Flask, migrate: Run, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("{}")
    assert "is no SQLite database" in migrate(path, code=1)
    path.write_bytes(write(tmp_path / "whole", **PEOPLE).read_bytes()[:9000])
    assert "cannot be read" in migrate(path, code=1)
    assert "no table users" in migrate(write(path, ("users",)), code=1)
    with sqlite3.connect(write(path, ("users",))) as file:
        file.execute("CREATE VIEW users AS SELECT 'x' AS id")
    assert "no table users" in migrate(path, code=1)
    many = [{"id": str(n), "name": f"g{n}"} for n in range(20_001)]
    assert "more than 20000 groups" in migrate(None, code=1, user_groups=many)
    assert rows(app, User) == []
