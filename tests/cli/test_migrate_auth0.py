"""`flask migrate auth0`: the same clients and secrets, and the subjects of people who follow."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from flask import Flask
from sqlalchemy import select

from sso.extensions import db
from sso.models import Client, User
from tests.support.actors import Browser, RelyingParty, claims_of
from tests.support.authentik import PASSWORD, PASSWORD_HASH
from tests.support.each import each

Run = Callable[..., Any]
ID, SECRET = "AaiyAPdpYdesoKnqjj8HJqRn4T5titww", "s" * 64
CB, OUT = "https://wiki.example.com/cb", "https://wiki.example.com/out"
SUBJECT = "google-oauth2|104152"
CODE, SCOPE = "authorization_code", "openid profile email address phone"


def client(client_id: str = ID, **changes: Any) -> dict[str, Any]:
    return {
        "tenant": "acme", "global": False, "client_id": client_id, "name": "The wiki",
        "app_type": "regular_web", "client_secret": SECRET, "callbacks": [CB],
        "allowed_logout_urls": [OUT], "grant_types": [CODE, "refresh_token"],
        "token_endpoint_auth_method": "client_secret_post", "is_first_party": True,
        "oidc_conformant": True, "jwt_configuration": {"alg": "RS256",
                                                       "lifetime_in_seconds": 36000},
        "signing_keys": [{"cert": "x" * 2000}], "sso_disabled": False, **changes,
    }  # fmt: skip


GLOBAL = {**client("global", callbacks=[]), "name": "All Applications", "global": True}


@pytest.fixture
def migrate(app: Flask, tmp_path: Path) -> Run:
    def run(content: Any, *options: str, code: int = 0) -> Any:
        path = tmp_path / "clients"
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        done = app.test_cli_runner().invoke(
            args=["migrate", "auth0", str(path), "--json", *options]
        )
        assert done.exit_code == code, done.output
        assert "Traceback" not in done.output
        return json.loads(done.stdout) if not code else done.stderr

    return run


def rows(app: Flask, table: type) -> list[Any]:
    with app.app_context():
        return list(db.session.scalars(select(table)))


def lines(report: Any, name: str = ID) -> list[tuple[str, str]]:
    return [(f["fate"], f["what"]) for f in report["findings"] if f["name"] == name]


def test_an_unchanged_application_knows_people_by_the_subjects_that_they_had(
    app: Flask, browser: Browser, migrate: Run, tmp_path: Path
) -> None:
    planned = migrate([GLOBAL, client()], "--plan")
    assert rows(app, Client) == []
    report = migrate([GLOBAL, client()])
    assert {**planned, "applied": True} == report
    assert (report["clients"], lines(report)) == ({ID: "taken"}, [])
    people = tmp_path / "people.json"
    people.write_text("\n".join(map(json.dumps, [
        {"user_id": SUBJECT, "email": "dana@example.com", "email_verified": True,
         "custom_password_hash": {"algorithm": "pbkdf2", "hash": {"value": "x"}}},
        {"_id": {"$oid": "5f7c"}, "email": "erin@example.com", "passwordHash": PASSWORD_HASH},
        {"user_id": "auth0|6a", "email": "dora@example.com", "password_hash": PASSWORD_HASH},
    ])))  # fmt: skip
    done = app.test_cli_runner().invoke(
        args=["user", "import", "auth0", str(people), "--drop-passwords"]
    )
    assert done.exit_code == 0, done.output
    assert "attributes" not in done.output
    assert {user.email: user.attributes["auth0_user_id"] for user in rows(app, User)} == {
        "dana@example.com": SUBJECT, "erin@example.com": "auth0|5f7c",
        "dora@example.com": "auth0|6a",
    }  # fmt: skip
    wiki = RelyingParty(app, ID, SECRET, CB)
    browser.authorize(wiki)
    tokens = wiki.exchange(browser.sign_in("dora@example.com", PASSWORD).code).get_json()
    assert claims_of(tokens["id_token"])["sub"] == "auth0|6a"
    assert wiki.userinfo(tokens["access_token"]).get_json()["sub"] == "auth0|6a"


def test_it_brings_what_changed_there_and_keeps_what_changed_here(app: Flask, migrate: Run) -> None:
    migrate([client()])
    assert migrate([client()])["clients"] == {ID: "same"}
    changed = client(name="Wiki 2", allowed_logout_urls=[])
    app.test_cli_runner().invoke(args=["client", "update", ID, "--name", "Ours"])
    report = migrate([changed])
    [row] = rows(app, Client)
    assert row.client_name == "Ours"
    assert row.client_metadata.get("post_logout_redirect_uris", []) == []
    assert report["clients"] == {ID: "changed"}
    migrate([changed], "--overwrite")
    assert rows(app, Client)[0].client_name == "Wiki 2"


@each(
    "content",
    {
        "a list": [client()],
        "a page": {"clients": [GLOBAL, client()], "total": 2, "start": 0, "limit": 50},
        "pages in a list": [{"clients": [client(name="old")]}, {"clients": [client()]}],
        "pages one after the other": json.dumps({"clients": [client(name="old")]}) + "\n"
                                     + json.dumps({"clients": [client()]}),
        "one client": client(),
        "Windows": "\ufeff" + json.dumps([client()]),
        "YAML": yaml.safe_dump({"tenant": {"flags": {}}, "clients": [
            {"name": "All Applications", "callbacks": []}, client()]}),
    }.values(),
)  # fmt: skip
def test_forms_of_files(content: Any, migrate: Run) -> None:
    report = migrate(content, "--plan")
    assert report["clients"] == {ID: "taken"}
    assert lines(report) == []


@each(
    "entry, fields, findings",
    {
        "single page": (
            {"app_type": "spa", "token_endpoint_auth_method": "none", "client_secret": SECRET},
            {"token_endpoint_auth_method": "none", "require_pkce": True}, [("changed", "PKCE")]),
        "native, without a method": (
            {"app_type": "native", "token_endpoint_auth_method": None},
            {"token_endpoint_auth_method": "none"}, [("changed", "PKCE")]),
        "native, with a secret": ({"app_type": "native"}, {"token_endpoint_auth_method": None}, []),
        "a service": (
            {"app_type": "non_interactive", "grant_types": ["client_credentials"], "callbacks": []},
            {"grant_types": ["client_credentials"], "redirect_uris": [],
             "subject_attribute": None}, [("question", "APIs")]),
        "a service without grants": (
            {"app_type": "non_interactive", "grant_types": None, "callbacks": None},
            {"grant_types": ["client_credentials"]}, [("question", "APIs")]),
        "a service with unused grants": (
            {"grant_types": [CODE, "client_credentials"], "callbacks": []},
            {"grant_types": ["client_credentials"]},
            [("not_taken", f"grant {CODE}"), ("question", "APIs")]),
        "grants": (
            {"grant_types": [CODE, "implicit", "password", "refresh_token", "client_credentials",
                             "http://auth0.com/oauth/grant-type/passwordless/otp",
                             "http://auth0.com/oauth/grant-type/mfa-oob", "urn:x"]},
            {"grant_types": [CODE, "client_credentials", "refresh_token"]},
            [("not_taken", f"grant {name}")
             for name in ("implicit", "password", "passwordless/otp", "mfa-oob", "urn:x")]),
        "no refresh tokens": ({"grant_types": [CODE]},
                              {"grant_types": [CODE], "scope": SCOPE}, []),
        "implicit alone": ({"grant_types": ["implicit"]}, None, [("not_taken", "")]),
        "a wildcard": ({"callbacks": [CB, "https://*.example.com/cb",
                                      "https://{organization_name}.example.com/cb"]},
                       {"redirect_uris": [CB]}, [("question", "redirect URI")] * 2),
        "wildcards alone": ({"callbacks": ["https://*.example.com/cb"]}, None, [("not_taken", "")]),
        "HS256": ({"jwt_configuration": {"alg": "HS256"}},
                  {"id_token_signed_response_alg": "RS256"},
                  [("changed", "algorithm of ID tokens")]),
        "PS256": ({"jwt_configuration": {"alg": "PS256", "lifetime_in_seconds": 36000}},
                  {"id_token_signed_response_alg": "PS256"}, []),
        "lifetimes": ({"jwt_configuration": {"lifetime_in_seconds": 60}}, {},
                      [("not_taken", "lifetimes of its own")]),
        "refresh tokens": ({"refresh_token": {"rotation_type": "non-rotating"}}, {},
                           [("changed", "refresh tokens")]),
        "rotation": ({"refresh_token": {"rotation_type": "rotating"}}, {}, []),
        "third party": ({"is_first_party": False}, {"first_party": False},
                        [("changed", "consent")]),
        "URLs": ({"initiate_login_uri": "https://wiki.example.com/login",
                  "logo_uri": "https://x.example/l.png",
                  "oidc_logout": {"backchannel_logout_urls": ["https://wiki.example.com/b"]}},
                 {"home_url": "https://wiki.example.com/login",
                  "backchannel_logout_uri": "https://wiki.example.com/b"},
                 [("changed", "login URI"), ("not_taken", "logo")]),
        "bad URLs": ({"initiate_login_uri": "javascript:alert(1)",
                      "oidc_logout": {"backchannel_logout_urls": ["https://[x"]}},
                     {"home_url": None, "backchannel_logout_uri": None},
                     [("not_taken", "login URI"), ("not_taken", "back-channel logout URI")]),
        "origins": ({"web_origins": ["https://wiki.example.com", "https://b.example.com"]}, {},
                    [("not_taken", "web origin")]),
        "features": ({"oidc_conformant": False, "cross_origin_auth": True,
                      "addons": {"samlp": {}}, "client_metadata": {"plan": "x"},
                      "organization_usage": "require"}, {},
                     [("not_taken", "organizations"), ("changed", "legacy behaviour"),
                      ("not_taken", "embedded sign-in"), ("not_taken", "add-ons samlp"),
                      ("not_taken", "metadata plan")]),
        "strict": ({"require_pushed_authorization_requests": True,
                    "require_proof_of_possession": True},
                   {"require_pushed_authorization_requests": True,
                    "dpop_bound_access_tokens": True}, [("changed", "proof of possession")]),
        "no secret": ({"client_secret": None}, {}, [("question", "secret")]),
        "a placeholder": ({"client_secret": "##WIKI_SECRET_THAT_IS_ELSEWHERE_AND_LONG##"}, {},
                          [("question", "secret")]),
        "a placeholder with quotes": (
            {"client_secret": "@@WIKI_SECRET_THAT_IS_ELSEWHERE_AND_LONG@@"}, {},
            [("question", "secret")],
        ),
        "keys": ({"client_authentication_methods": {"private_key_jwt": {"credentials": [{}]}}},
                 None, [("not_taken", "")]),
        "SAML": ({"app_type": "sso_integration"}, None, [("not_taken", "")]),
        "no client ID": ({"client_id": None, "name": ID}, None, [("not_taken", "")]),
        "wrong types": ({"callbacks": [7, None, [], CB], "grant_types": [CODE, 7, None],
                         "jwt_configuration": [], "refresh_token": "x", "name": 7,
                         "client_secret": {}, "oidc_logout": 7, "addons": [], "app_type": [],
                         "initiate_login_uri": True, "client_authentication_methods": "x"},
                        {"redirect_uris": [CB], "grant_types": [CODE]}, [("question", "secret")]),
        "no list": ({"callbacks": CB}, None, [("not_taken", "")]),
        "another script": ({"name": "ويكي 維基"}, {}, []),
    }.values(),
)  # fmt: skip
def test_kinds_of_clients(entry: Any, fields: Any, findings: Any, app: Flask, migrate: Run) -> None:
    report = migrate([{**client(), **entry}])
    assert lines(report) == findings
    assert report["clients"] == {ID: "not_taken" if fields is None else "taken"}
    with app.app_context():
        stored = list(db.session.scalars(select(Client)))
        assert len(stored) == (fields is not None)
        for row in stored:
            metadata = {**row.client_metadata, "require_pkce": row.require_pkce,
                        "first_party": row.first_party}  # fmt: skip
            if metadata.get("token_endpoint_auth_method") == "any":
                metadata["token_endpoint_auth_method"] = None
            assert {name: metadata.get(name) for name in fields} == fields
            db.session.delete(row)
        db.session.execute(db.text("DELETE FROM migrated"))
        db.session.commit()


def test_answers(app: Flask, migrate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIKI", "t" * 40)
    entry = client(callbacks=["https://*.example.com/cb"], client_secret=None)
    report = migrate([entry], "--redirect-uri", f"{ID}={CB}", "--secret", f"{ID}=env:WIKI")
    assert lines(report) == []
    assert rows(app, Client)[0].redirect_uris == [CB]
    assert "no client nobody" in migrate([entry], "--redirect-uri", f"nobody={CB}", code=1)
    assert "does not answer" in migrate([entry], "--issuer", "https://acme.auth0.com/", code=2)


@each(
    "content, problem",
    {
        "empty": ("", "no clients"),
        "truncated": (json.dumps([client()])[:-9], "not JSON"),
        "no UTF-8": (b'[{"client_id": "\xff"}]', "not JSON"),
        "no clients": ({"clients": []}, "no clients"),
        "an error of the API": ({"statusCode": 401, "error": "Unauthorized"}, "no clients"),
        "other values": ([7, None, "x", []], "no clients"),
        "deep": ("[" * 100_000, "levels"),
        "a long text": ('[{"client_id": "' + "x" * 5_000_000 + '"}]', "bytes"),
        "aliases": ("clients: &a [*a]", "stands for nothing"),
        "an include": ("clients: !include clients.yaml", "no clients"),
        "too many": ([{"client_id": f"c{number}"} for number in range(5_001)],
                     "more than 5000"),
    }.values(),
)  # fmt: skip
def test_hostile_files(content: Any, problem: str, app: Flask, migrate: Run) -> None:
    assert problem in migrate(content, code=1)
    assert rows(app, Client) == []
