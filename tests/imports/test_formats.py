"""Exports of each system, as the system writes them, become people with their passwords."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import bcrypt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sso.crypto import foreign_hashes
from sso.imports import files
from sso.imports.person import FileProblem, Person
from sso.imports.reading import FORMATS, read

PASSWORD = "old password 1"
BCRYPT = bcrypt.hashpw(PASSWORD.encode(), b"$2b$04$" + b"." * 22).decode()
KEYCLOAK_ID = "4d7a62ef-7a4c-4f3c-9a2e-0b4a7e9a3c11"


def people(path: Path, kind: str, content: Any, *, roles: bool = False) -> list[Person]:
    if not isinstance(content, str | bytes):
        content = json.dumps(content)
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogateescape")
    file = path / "export"
    file.write_bytes(content)
    return list(read(kind, file, source=kind, roles=roles, report=None))


def is_right(person: Person) -> bool:
    stored = person.password_hash
    return stored is not None and foreign_hashes.verify(PASSWORD, stored)


def keycloak_credential(iterations: int = 3) -> dict[str, Any]:
    key = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), b"0123456789abcdef", iterations, 64)
    secret = {"value": key, "salt": b"0123456789abcdef"}
    shown = {name: base64.b64encode(raw).decode() for name, raw in secret.items()}
    data = {"hashIterations": iterations, "algorithm": "pbkdf2-sha256", "additionalParameters": {}}
    return {
        "id": "0c4d4e1f", "type": "password", "userLabel": "My password",
        "secretData": json.dumps(shown | {"additionalParameters": {}}),
        "credentialData": json.dumps(data),
    }  # fmt: skip


REALM = {
    "id": "acme", "realm": "acme", "enabled": True,
    "clients": [{"clientId": "wiki", "users": [{"email": "nobody@example.com"}]}],
    "users": [
        {
            "id": KEYCLOAK_ID, "username": "erin", "email": "Erin@Example.com",
            "emailVerified": True, "enabled": True, "firstName": "Erin", "lastName": "Ëxample",
            "attributes": {"locale": ["nl"], "shoe": ["44"]},
            "credentials": [keycloak_credential(), {"type": "otp", "secretData": "{}"}],
            "realmRoles": ["default-roles-acme", "editor"], "groups": ["/staff", "/teams/red"],
            "federatedIdentities": [{"identityProvider": "google"}],
        },
        {"id": "2", "username": "off@example.com", "enabled": False},
        {"id": "3", "username": "service-account-wiki", "serviceAccountClientId": "wiki"},
        {"id": "4", "username": "frank"},
    ],
}  # fmt: skip


def test_keycloak(tmp_path: Path) -> None:
    erin, off, service, frank = people(tmp_path, "keycloak", REALM)
    assert (erin.email, erin.name) == ("erin@example.com", "Erin Ëxample")
    assert erin.user_id == UUID(KEYCLOAK_ID)  # applications know people by it
    assert erin.claims == {"given_name": "Erin", "family_name": "Ëxample", "locale": "nl"}
    assert erin.groups == ["staff", "teams/red"]
    assert erin.lost == ["links to other identity providers", "authenticator apps"]
    assert (erin.email_verified, erin.disabled) == (True, False)
    assert is_right(erin)
    assert (off.email, off.disabled, off.password_hash) == ("off@example.com", True, None)
    assert service.refused == "it is the service account of a client"
    assert (frank.refused, frank.detail) == ("there is no email address", "frank")
    assert people(tmp_path, "keycloak", [REALM], roles=True)[0].groups[-1] == "editor"
    old = {"type": "password", "algorithm": "pbkdf2", "hashIterations": 3, "salt": "c2FsdA=="}
    key = hashlib.pbkdf2_hmac("sha1", PASSWORD.encode(), b"salt", 3, 64)
    user = {"email": "e@example.com", "credentials": [
        old | {"hashedSaltedValue": base64.b64encode(key).decode()}
    ]}  # fmt: skip
    (before_version_8,) = people(tmp_path, "keycloak", {"users": [user]})
    assert is_right(before_version_8)


HASHES = {
    "_id": {"$oid": "5f7c1"}, "email_verified": True, "email": "erin@example.com",
    "passwordHash": BCRYPT, "password_set_date": {"$date": "2020-10-06T06:12:59.000Z"},
    "tenant": "acme", "connection": "Username-Password-Authentication", "_tmp_is_unique": True,
}  # fmt: skip
PROFILE = {
    "user_id": "auth0|5f7c1", "email": "erin@example.com", "name": "Erin Example", "locale": "nl",
    "email_verified": True, "blocked": True, "app_metadata": {"roles": ["editor"]},
    "identities": [{"provider": "auth0"}, {"provider": "google-oauth2"}], "multifactor": ["otp"],
}  # fmt: skip


def test_auth0(tmp_path: Path) -> None:
    (alone,) = people(tmp_path, "auth0", HASHES)
    assert (alone.email, alone.name, alone.email_verified) == ("erin@example.com", "erin", True)
    assert is_right(alone)
    for lines in ((HASHES, PROFILE), (PROFILE, HASHES)):  # both exports, one after the other
        text = "\n".join(map(json.dumps, lines))
        (erin,) = people(tmp_path, "auth0", text, roles=True)
        assert (erin.name, erin.disabled, erin.claims) == ("Erin Example", True, {"locale": "nl"})
        assert erin.user_id == alone.user_id
        assert erin.groups == ["editor"]
        assert erin.lost == ["authenticator apps", "links to other identity providers"]
        assert is_right(erin)
    custom = {"email": "e@example.com", "given_name": "E", "custom_password_hash": {
        "algorithm": "bcrypt", "hash": {"value": BCRYPT, "encoding": "utf8"}
    }}  # fmt: skip
    md5 = {"email": "f@example.com", "custom_password_hash": {
        "algorithm": "md5", "hash": {"value": "d41d8cd98f00b204e9800998ecf8427e"}
    }}  # fmt: skip
    plain = {"email": "g@example.com", "password_hash": BCRYPT}  # as in its bulk imports
    good, bad, same = people(tmp_path, "auth0", [custom, md5, plain])
    assert is_right(good)
    assert is_right(same)
    assert bad.password_problem is not None
    assert "md5 is not supported" in bad.password_problem


DJANGO_USER = {
    "password": f"bcrypt${BCRYPT}", "last_login": None, "is_superuser": True, "username": "erin",
    "first_name": "Erin", "last_name": "Example", "email": "erin@example.com", "is_staff": True,
    "is_active": True, "date_joined": "2020-01-01T00:00:00Z", "groups": [1, 9],
    "user_permissions": [],
}  # fmt: skip


def test_django(tmp_path: Path) -> None:
    dump = [
        {"model": "auth.permission", "pk": 1, "fields": {"name": "Can add"}},
        {"model": "auth.user", "pk": 7, "fields": DJANGO_USER},
        {"model": "members.member", "pk": 8, "fields": {
            "password": "!unusable", "email": "off@example.com", "is_active": False,
            "groups": [["editors"]], "name": "Off",
        }},
        {"model": "auth.group", "pk": 1, "fields": {"name": "editors", "permissions": []}},
    ]  # fmt: skip
    erin, off = people(tmp_path, "django", dump)
    assert (erin.name, erin.groups, erin.email_verified) == ("Erin Example", ["editors"], False)
    assert erin.lost == [
        "groups that the file does not name", "is_staff, is_superuser and permissions"
    ]  # fmt: skip
    assert is_right(erin)
    assert (off.disabled, off.password_hash, off.groups) == (True, None, ["editors"])
    lines = "\n".join(map(json.dumps, dump))  # dumpdata --format jsonl
    assert [one.email for one in people(tmp_path, "django", lines)] == [erin.email, off.email]


def test_better_auth(tmp_path: Path) -> None:
    salt = "00112233445566778899aabbccddeeff"
    key = hashlib.scrypt(
        PASSWORD.encode(), salt=salt.encode(), n=16384, r=16, p=1, dklen=64, maxmem=1 << 27
    )
    tables = {
        "user": [
            {"id": "aB3", "name": "Erin", "email": "erin@example.com", "emailVerified": 1,
             "image": "https://example.com/e.png", "role": "editor,user", "twoFactorEnabled": True},
            {"id": "cD4", "name": "Off", "email": "off@example.com", "email_verified": False,
             "banned": True},
        ],
        "session": [{"id": "x", "userId": "aB3"}],
        "account": [
            {"id": "1", "providerId": "credential", "userId": "aB3", "accountId": "aB3",
             "password": f"{salt}:{key.hex()}"},
            {"id": "2", "provider_id": "github", "user_id": "cD4", "accountId": "55"},
        ],
        "passkey": [{"id": "p", "userId": "aB3"}],
    }  # fmt: skip
    erin, off = people(tmp_path, "better-auth", tables, roles=True)
    assert (erin.name, erin.email_verified, erin.groups) == ("Erin", True, ["editor", "user"])
    assert erin.claims == {"picture": "https://example.com/e.png"}
    assert erin.lost == ["authenticator apps", "passkeys and security keys"]
    assert is_right(erin)
    assert (off.disabled, off.password_hash) == (True, None)
    assert off.lost == ["links to other identity providers"]


def test_csv(tmp_path: Path) -> None:
    table = (
        "\ufeffEmail;name;groups;password_hash;email_verified;disabled;locale;phone_number_verified\r\n"
        f'Erin@Example.com;"Erin ""E"" Example";"staff, red";{BCRYPT};TRUE;0;nl;\r\n'
        "\r\n"
        "off@example.com;Off;;;;yes;;no\r\n"
        '"short@example.com"\r\n'
        '"lines@example.com";"Two\nlines";;;;;;\r\n'
    )
    erin, off, short, lines = people(tmp_path, "csv", table)
    assert (erin.email, erin.name, erin.groups) == (
        "erin@example.com", 'Erin "E" Example', ["staff", "red"]
    )  # fmt: skip
    assert is_right(erin)
    assert (erin.where, erin.email_verified, erin.claims) == ("line 2", True, {"locale": "nl"})
    assert (off.disabled, off.claims) == (True, {"phone_number_verified": False})
    assert short.refused == "the row does not have 8 fields"
    assert (lines.where, lines.name) == ("line 7", "Two\nlines")  # refused as a name
    for first, words in (
        ("email,passwort", "there is no column 'passwort'"),
        ("name", "one of them is email"),
        ("email,email", "each column is named once"),
        ("", "one of them is email"),
        ("email,", "there is no column ''"),
    ):
        with pytest.raises(FileProblem, match=words):
            people(tmp_path, "csv", first + "\nx,y")


def test_ids_stay_or_are_made_from_the_source(tmp_path: Path) -> None:
    def id_of(text: str, source: str = "csv") -> UUID | None:
        file = tmp_path / "ids.csv"
        file.write_text(f"id,email\n{text},e@example.com\n")
        (found,) = read("csv", file, source=source, roles=False, report=None)
        return found.user_id

    assert id_of(KEYCLOAK_ID.upper()) == UUID(KEYCLOAK_ID)
    assert id_of("7") == UUID("cc51a243-f9db-5624-9285-8da95a1bf9fb")  # never another
    assert id_of("7", "other site") != id_of("7")
    assert id_of("") is None
    assert id_of("{" + KEYCLOAK_ID + "}") != UUID(KEYCLOAK_ID)


def test_nobody_is_there_twice(tmp_path: Path) -> None:
    """In small and capital letters, composed and decomposed, and with another host name."""
    table = "id,email\n" + "".join(
        f"{number},{email}\n"
        for number, email in enumerate(
            ["erin@example.com", "ERIN@EXAMPLE.COM", " erin@Example.com ", "ö@bücher.example",
             "o\u0308@xn--bcher-kva.example", "Ö@BÜCHER.example"]
        )
    )  # fmt: skip
    found = people(tmp_path, "csv", table)
    same = "another in the file has the same email address"
    assert [one.refused for one in found] == [None, same, same, None, same, same]
    assert found[2].detail == "see line 2"
    twice = people(tmp_path, "csv", "id,email\n7,a@example.com\n7,b@example.com\n")
    assert twice[1].refused == "another in the file has the same ID"


DEEP = 100_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "csv"])
def test_no_json_takes_the_process_down(tmp_path: Path, kind: str) -> None:
    place = {"keycloak": '{"users": [%s]}', "better-auth": '{"user": [%s]}'}.get(kind, "[%s]")
    beside = '{"other": %s, "users": []}' if "users" in place else '{"other": %s}'
    deep = "[" * DEEP + "]" * DEEP
    wide = "{" + ",".join(f'"{n}":{n}' for n in range(200_000)) + "}"
    long = '"' + "x" * (files.LONGEST_ENTRY * 4) + '"'
    objects = '{"a":' * DEEP + "1" + "}" * DEEP
    for content in (
        place % deep, place % objects, place % wide, beside % deep, beside % objects, deep,
        place % f'{{"email": {long}}}', beside % long, '{"' + long[1:] + ": 1}",
        place % '{"email": "\udcff\udcfe"}', place % f'{{"email": 1{"0" * 400}}}',
        place % '{"email": "a@example.com"', "no JSON", '{"users": [}',
        place % '{"email": "a@example.com"}' + "]]]",
    ):  # fmt: skip
        with pytest.raises(FileProblem, match=r"export, after entry \d: "):
            people(tmp_path, kind, content)


ODD: list[Any] = [
    None,
    7,
    -1.5,
    True,
    "",
    "x",
    [],
    [[]],
    [None],
    {},
    {"x": 1},
    [{"type": "password"}],
]


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "csv"])
def test_odd_values_are_refused_one_by_one(tmp_path: Path, kind: str) -> None:
    names = {
        "keycloak": [*REALM["users"][0]],  # type: ignore[index]
        "auth0": [*HASHES, *PROFILE, "custom_password_hash", "password_hash"],
        "django": ["pk", *DJANGO_USER],
        "better-auth": ["id", "name", "email", "emailVerified", "role", "banned", "image"],
    }[kind]
    entries: list[Any] = [*ODD]
    for name in names:
        for number, odd in enumerate(ODD):
            entry: dict[str, Any] = {"email": f"{name}{number}@example.com", "password": ""}
            fields: Any = {"pk": odd, "fields": entry | {name: odd}}
            entries.append(fields if kind == "django" else entry | {name: odd})
    whole: Any = {"keycloak": {"users": entries}, "better-auth": {"user": entries, "account": ODD}}
    found = people(tmp_path, kind, whole.get(kind, entries), roles=True)
    good = [one for one in found if one.refused is None]
    assert len(good) > len(names) * len(ODD) / 2
    assert all(isinstance(group, str) for one in found for group in one.groups)


def test_no_table_takes_the_process_down(tmp_path: Path) -> None:
    for content, words in (
        ("email\n" + "x" * 200_000, "line 2: it is longer than"),
        ("x" * 200_000, "line 1: it is longer than"),
        ('email,name\na@example.com,"never closed\n' + "and so on\n" * 100_000, "field limit"),
        ('email,name\n"' + '","\n'.join(["x" * 1000] * 2000), "has no end"),
        ('email\n"a"b\n', "expected after"),
    ):
        with pytest.raises(FileProblem, match=words):
            people(tmp_path, "csv", content)
    broken = people(tmp_path, "csv", b"email,name\nerin@example.com,\xff\n\xff@example.com,x\n")
    assert [one.refused for one in broken] == [None, "the email address is not valid"]
    nul = people(tmp_path, "csv", "email,name,id\ne\0@example.com,x,1\ne@example.com,\0,\0\n")
    assert nul[0].refused == "the email address is not valid"


@settings(max_examples=40)
@given(st.binary(max_size=300), st.sampled_from([*FORMATS]))
def test_any_file_gets_an_answer(tmp_path_factory: Any, content: bytes, kind: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    try:
        people(folder, kind, content)
        people(folder, "csv", b"email,name,id\n" + content)
    except FileProblem:
        pass
