"""`flask migrate better-auth`: the same clients, secrets, passwords, codes and subjects."""

import base64
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest
from flask import Flask

from sso.mfa import totp
from sso.models import Client, Consent, Identity, Passkey, TotpSecret, User
from tests.conftest import Clock
from tests.support import better_auth as ba
from tests.support import migrations
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, claims_of
from tests.support.authenticator import Authenticator
from tests.support.each import each
from tests.support.migrations import forget, lines, rows
from tests.support.second_factors import code_of, is_signed_in, sign_in_by_passkey

Run = Callable[..., Any]
SECRET = ("--auth-secret", "env:BETTER_AUTH_SECRET")
RP = ("--rp-id", "localhost")
DANA = ba.user("dana", ba.DANA, twoFactorEnabled=1, role="user,editor", username="dana.doe")
APP = {"userId": ba.DANA, "secret": ba.ENCRYPTED_TOTP, "backupCodes": ba.ENCRYPTED_CODES,
       "verified": 1}  # fmt: skip
SHARED = base64.b32encode(ba.TOTP).decode().rstrip("=")


@pytest.fixture
def app(make_app: Callable[..., Flask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flask:
    """Passkeys need a host with a name."""
    monkeypatch.setenv("GOOGLE", "a secret of Google")
    providers = tmp_path / "providers.toml"
    providers.write_text(
        '[provider.google]\ntype = "google"\nclient_id = "c"\nclient_secret_env = "GOOGLE"\n'
    )
    return make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}", SSO_UPSTREAM_FILE=str(providers))


@pytest.fixture
def migrate(app: Flask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("BETTER_AUTH_SECRET", ba.AUTH_SECRET)
    monkeypatch.setenv("BETTER_AUTH_SECRETS", f"2:{ba.NEW_AUTH_SECRET},1:{ba.AUTH_SECRET}")

    def run(path: Path | None = None, *options: str, code: int = 0, **rows: Any) -> Any:
        database = path or ba.write(tmp_path / "sqlite.db", **rows)
        return migrations.migrate(app, "better-auth", str(database), *options, code=code)

    return run


def test_nothing_changes_for_applications_and_people(
    app: Flask, browser: Browser, clock: Clock, migrate: Run, tmp_path: Path
) -> None:
    path = ba.write(
        tmp_path / "db", user=[DANA], account=[ba.account(ba.DANA)], twoFactor=[APP],
        oauthClient=[ba.client("wiki", postLogoutRedirectUris='["https://wiki.example.com/bye"]')],
        oauthConsent=[
            {"clientId": "wiki", "userId": ba.DANA, "scopes": '["openid", "email"]'},
        ],
        jwks=[{"id": "1", "createdAt": "2026-01-01"}, {"id": "2", "createdAt": "2025-01-01",
                                                      "alg": "RS256"}],
    )  # fmt: skip
    planned = migrate(path, *SECRET, "--plan")
    assert rows(app, User) == rows(app, Client) == []
    report = migrate(path, *SECRET)
    assert {**planned, "applied": True} == report
    assert report["people"]["factors"] == {
        "authenticator apps": 1, "recovery codes": 1, "consents": 1,
    }  # fmt: skip
    assert ba.AUTH_SECRET not in json.dumps(report)
    assert lines(report) == [("taken", "better_auth_user_id", ""), ("changed", "editor", "")]
    wiki = RelyingParty(app, "wiki", ba.CLIENT_SECRET, "https://wiki.example.com/cb")
    browser.authorize(wiki, scope="openid profile email")
    browser.sign_in(password=ba.PASSWORD)
    page = browser.submit(code=code_of(SHARED))
    token = wiki.exchange(page.code).get_json()["id_token"]
    claims = claims_of(token)
    assert {name: claims[name] for name in ("sub", "name", "given_name", "family_name")} == {
        "sub": ba.DANA, "name": "Dana van Doe", "given_name": "Dana van", "family_name": "Doe",
    }  # fmt: skip
    assert claims["preferred_username"] == "dana.doe"
    header = json.loads(base64.urlsafe_b64decode(token.partition(".")[0] + "=="))
    assert header["alg"] == "EdDSA"
    [dana] = rows(app, User)
    assert dana.groups == ["editor"]
    again = migrate(path, *SECRET)
    assert again["clients"] == {"wiki": "same"}
    assert again["people"]["updates"] == {}


def test_a_later_run_brings_what_changed(app: Flask, migrate: Run, tmp_path: Path) -> None:
    path = ba.write(tmp_path / "db", user=[DANA, ba.user("erin")], oauthClient=[ba.client("wiki")])
    migrate(path)
    with sqlite3.connect(path) as file:
        file.execute("UPDATE user SET name = 'Dana Roe' WHERE id = ?", (ba.DANA,))
        file.execute("UPDATE oauthClient SET name = 'Another', clientSecret = 'x'")
    later = migrate(path)
    assert (later["clients"], later["people"]["updates"]) == ({"wiki": "changed"}, {"changed": 1})
    assert {person.name for person in rows(app, User)} == {"Dana Roe", "Erin van Doe"}
    wiki = RelyingParty(app, "wiki", ba.CLIENT_SECRET, "https://wiki.example.com/cb")
    assert wiki.exchange("unknown").get_json()["error"] == "invalid_grant"


@each("code, is_right", {"as it is": ("X6O60-bIaCk", True), "small": ("x6o60biack", True),
                         "another": ("X6O60-bIaCl", False)}.values())  # fmt: skip
def test_backup_codes(
    code: str, is_right: bool, app: Flask, migrate: Run, clock: Clock, make_app: Any
) -> None:
    migrate(None, *SECRET, "--overwrite", user=[DANA], account=[ba.account(ba.DANA)],
            twoFactor=[APP])  # fmt: skip
    browser = Browser(app)
    browser.sign_in(password=ba.PASSWORD)
    browser.submit(code="", recovery_code=code)
    assert is_signed_in(browser) is is_right
    forget(app, User)


@each("handle", {"that of better-auth": base64.urlsafe_b64encode(b"x" * 32).decode(),
                 "none": ""}.values())  # fmt: skip
def test_passkeys(handle: str, app: Flask, migrate: Run, clock: Clock) -> None:
    """better-auth makes a random user handle, and does not store it."""
    key = Authenticator()
    key.create({"user": {"id": handle}, "challenge": "x"})
    point = key.key.public_key().public_numbers()
    cose = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32), -3: point.y.to_bytes(32)}
    passkey = {"name": "Laptop", "userId": ba.DANA, "counter": 0, "transports": "internal,hybrid",
               "credentialID": base64.urlsafe_b64encode(key.id).decode().rstrip("="),
               "publicKey": base64.b64encode(cbor2.dumps(cose)).decode()}  # fmt: skip
    report = migrate(None, *RP, "--overwrite", user=[ba.user("dana", ba.DANA)], passkey=[passkey])
    assert report["people"]["factors"] == {"passkeys and security keys": 1}
    browser = Browser(app)
    stranger = Authenticator()
    stranger.id, stranger.handle = key.id, handle
    for authenticator in (stranger, key):
        browser.open(f"{ORIGIN}{BASE}/sign-in")
        sign_in_by_passkey(browser, authenticator)
        assert is_signed_in(browser) is (authenticator is key)
    assert [row.transports for row in rows(app, Passkey)] == ["internal hybrid"]
    forget(app, Passkey, User)


def test_what_two_people_have(app: Flask, migrate: Run) -> None:
    """A passkey belongs to the first; a hostile database gives it to others of the same name."""
    point = Authenticator().key.public_key().public_numbers()
    cose = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32), -3: point.y.to_bytes(32)}
    key = {"credentialID": "aWQ", "publicKey": base64.b64encode(cbor2.dumps(cose)).decode(),
           "counter": 0}  # fmt: skip
    people = [ba.user("dana", username="same"), ba.user("erin", username="same"),
              ba.user("fay", "erin" * 4)]  # fmt: skip
    keys = [{**key, "userId": login * 4} for login in ("dana", "erin")]
    report = migrate(
        None, *RP, user=people, passkey=keys,
        oauthClient=[ba.client("c"), ba.client("c", "https://other.example.com/cb")],
    )  # fmt: skip
    assert report["people"]["imported"] == 2
    assert len(rows(app, Passkey)) == 1
    assert "somebody else has" in json.dumps(report["people"]["left_out"])
    [client] = rows(app, Client)
    assert client.client_metadata["redirect_uris"] == ["https://c.example.com/cb"]


def test_passkeys_of_another_host(app: Flask, migrate: Run) -> None:
    keys = [{"userId": ba.DANA, "credentialID": "aWQ", "publicKey": "aWQ=", "counter": 0}]
    report = migrate(None, "--rp-id", "id.example.com", user=[DANA], passkey=keys)
    assert rows(app, Passkey) == []
    assert "another host name" in json.dumps(report["people"]["left_out"])


@each(
    "options, app_row, secret, lost",
    {
        "one secret": (SECRET, {}, SHARED, ""),
        "several": (("--auth-secret", "env:BETTER_AUTH_SECRETS"), {"secret": ba.VERSIONED_TOTP},
                    SHARED, ""),
        "an older one": (("--auth-secret", "env:BETTER_AUTH_SECRETS"), {}, SHARED, ""),
        "before the switch": (SECRET, {"verified": None}, SHARED, ""),
        "from elsewhere": (SECRET, {"secret": ba.BASE32_TOTP},
                           "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP", ""),
        "too short": (SECRET, {"secret": ba.SHORT_TOTP}, None, "not TOTP with 6 digits"),
        "no secret": ((), {}, None, "the secret is missing"),
        "another": (SECRET, {"secret": ba.VERSIONED_TOTP}, None, "the secret is missing"),
        "changed": (SECRET, {"secret": ba.ENCRYPTED_TOTP[:-2] + "08"}, None, "secret is missing"),
        "no digits": (SECRET, {"secret": "x"}, None, "the secret is missing"),
        "not confirmed": (SECRET, {"verified": 0}, None, "codes that are sent"),
    }.values(),
)  # fmt: skip
def test_authenticator_apps(
    options: Any, app_row: Any, secret: Any, lost: str, app: Flask, migrate: Run
) -> None:
    report = migrate(None, *options, "--overwrite", user=[DANA], twoFactor=[{**APP, **app_row}])
    left_out = json.dumps(report["people"]["left_out"])
    assert (lost in left_out) if lost else left_out == "[]"
    stored = rows(app, TotpSecret)
    assert len(stored) == bool(secret)
    with app.app_context():
        opened = [totp.opened(row.user_id, row.sealed_secret) for row in stored]
    assert opened == ([secret] if secret else [])
    forget(app, User)


def test_a_second_factor_that_is_switched_off(app: Flask, migrate: Run) -> None:
    report = migrate(None, *SECRET, user=[{**DANA, "twoFactorEnabled": 0}], twoFactor=[APP])
    assert rows(app, TotpSecret) == []
    assert report["people"]["left_out"] == []


@each(
    "entry, fields, findings",
    {
        "public": (ba.client("c", tokenEndpointAuthMethod="none", clientSecret=None),
                   {"token_endpoint_auth_method": "none", "require_pkce": True}, []),
        "PKCE": (ba.client("c", requirePKCE=1), {"require_pkce": True}, []),
        "PKCE, unless switched off": (ba.client("c", requirePKCE=None), {"require_pkce": True}, []),
        "consent": (ba.client("c", skipConsent=None), {"first_party": False}, []),
        "disabled": (ba.client("c", disabled=1), {"disabled": True}, []),
        "home": (ba.client("c", uri="https://c.example.com/"),
                 {"home_url": "https://c.example.com/"}, []),
        "a bad home": (ba.client("c", uri="javascript:alert(1)"), {}, [("not_taken", "c", "URI")]),
        "logout": (ba.client("c", backchannelLogoutUri="https://c.example.com/out"),
                   {"backchannel_logout_uri": "https://c.example.com/out"}, []),
        "scopes": (ba.client("c", scopes='["openid", "email", "read:all"]'),
                   {"scope": "openid email"}, [("not_taken", "c", "scope read:all")]),
        "no scopes": (ba.client("c"), {"scope": "openid profile email offline_access"}, []),
        "DPoP": (ba.client("c", dpopBoundAccessTokens=1), {"dpop_bound_access_tokens": True}, []),
        "a service": (ba.client("c", grantTypes='["client_credentials"]', redirectUris="[]"),
                      {"grant_types": ["client_credentials"]}, [("question", "c", "APIs")]),
        "another grant": (ba.client("c", grantTypes='["authorization_code", "urn:x"]'), {},
                          [("not_taken", "c", "grant urn:x")]),
        "only others": (ba.client("c", grantTypes='["urn:x"]'), None, [("not_taken", "c", "")]),
        "encrypted": (ba.client("c", clientSecret=ba.ENCRYPTED_CLIENT_SECRET),
                      {"id_token_signed_response_alg": "RS256"},
                      [("changed", "c", "algorithm of ID tokens")]),
        "encrypted by another": (
            ba.client("c", clientSecret="00" * 72), {},
            [("question", "c", "secret"), ("changed", "c", "algorithm of ID tokens")]),
        "no secret": (ba.client("c", clientSecret=None), {}, [("question", "c", "secret")]),
        "hashed otherwise": (ba.client("c", clientSecret="$2b$x"), {},
                             [("question", "c", "secret")]),
        "pairwise": (ba.client("c", subjectType="pairwise"), {}, [("question", "c", "subject")]),
        "a wildcard": (ba.client("c", "https://c.example.com/cb", "https://*.example.com/cb"),
                       {"redirect_uris": ["https://c.example.com/cb"]},
                       [("question", "c", "redirect URI")]),
        "an icon": (ba.client("c", icon="https://c.example.com/i.png"), {},
                    [("not_taken", "c", "icon")]),
        "of an organization": (ba.client("c", referenceId="org"), {},
                               [("not_taken", "c", "owner")]),
        "metadata": (ba.client("c", metadata='{"a": 1}'), {}, [("not_taken", "c", "metadata a")]),
        "keys elsewhere": (
            ba.client("c", clientSecret=None, tokenEndpointAuthMethod="private_key_jwt",
                      jwksUri="https://c.example.com/jwks"),
            {"token_endpoint_auth_method": "private_key_jwt",
             "jwks_uri": "https://c.example.com/jwks"}, []),
        "no keys": (ba.client("c", tokenEndpointAuthMethod="private_key_jwt"), None,
                    [("not_taken", "c", "")]),
        "a broken list": (ba.client("c", redirectUris="["), None, [("not_taken", "c", "")]),
        "no URL": (ba.client("c", redirectUris="[]"), None, [("not_taken", "c", "")]),
        "a bad ID": (ba.client("a b"), None, [("not_taken", "a b", "")]),
        "a document": (ba.client("c", clientDiscoveryId="cimd"), None, [("not_taken", "c", "")]),
    }.values(),
)  # fmt: skip
def test_kinds_of_clients(entry: Any, fields: Any, findings: Any, app: Flask, migrate: Run) -> None:
    keys = [{"id": "1", "alg": "RS256", "createdAt": "2026-01-01"}]
    report = migrate(None, *SECRET, "--overwrite", oauthClient=[entry], jwks=keys)
    taken = [line for line in lines(report) if line[1] != "better_auth_user_id"]
    assert taken == findings
    assert report["clients"][entry["clientId"]] == ("not_taken" if fields is None else "taken")
    for row in rows(app, Client):
        switches = {"require_pkce": row.require_pkce, "first_party": row.first_party}
        stored = {**row.client_metadata, **switches, "disabled": row.disabled_at is not None}
        assert {name: stored.get(name) for name in fields or {}} == (fields or {})
    forget(app, Client)


@each(
    "stored, option, is_right",
    {
        "hashed": (ba.hashed(ba.CLIENT_SECRET), "", True),
        "encrypted": (ba.ENCRYPTED_CLIENT_SECRET, "", True),
        "in clear": (ba.CLIENT_SECRET, "", True),
        "hashed without its prefix": (ba.hashed(ba.CLIENT_SECRET[4:]), ba.CLIENT_SECRET, True),
        "another than it says": (ba.hashed("x" * 43), ba.CLIENT_SECRET, False),
        "in clear, as long as a hash": ("y" * 43, "y" * 43, True),
    }.values(),
)
def test_secrets_of_clients_of_the_older_provider(
    stored: str, option: str, is_right: bool, app: Flask, migrate: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("C_SECRET", option)
    options = ("--secret", "c=env:C_SECRET") if option else ()
    report = migrate(
        None, *SECRET, *options, "--overwrite", oauthApplication=[ba.application("c", stored)]
    )
    assert report["clients"] == {"c": "taken"}
    secret = option or ba.CLIENT_SECRET
    answer = RelyingParty(app, "c", secret, "https://c.example.com/cb").exchange("unknown")
    assert answer.get_json()["error"] == ("invalid_grant" if is_right else "invalid_client")
    [client] = rows(app, Client)
    assert client.client_metadata["redirect_uris"] == [
        "https://c.example.com/cb", "https://c.example.com/2",
    ]  # fmt: skip
    forget(app, Client)


def test_public_clients_of_the_older_provider(app: Flask, migrate: Run) -> None:
    migrate(None, oauthApplication=[ba.application("c", "", type="public")])
    [client] = rows(app, Client)
    assert client.client_metadata["token_endpoint_auth_method"] == "none"
    assert client.require_pkce


def test_people(app: Flask, migrate: Run) -> None:
    long_ago, later = "2020-01-01T00:00:00.000Z", "2199-01-01 00:00:00+00"
    google = {"providerId": "google", "accountId": "g-1", "userId": "erin" * 4}
    report = migrate(
        None, "--provider", "google=google",
        user=[
            ba.user("erin", name="Эрин 李", emailVerified=0, image="https://example.com/e.png",
                    phoneNumber="+4930123456", phoneNumberVerified=1),
            ba.user("fay", banned=1), ba.user("gus", banned=1, banExpires=long_ago),
            ba.user("hal", banned=1, banExpires=later), ba.user("ida", isAnonymous=1),
            ba.user("twin", email="ERIN@example.com"), ba.user("nobody", email=None),
            ba.user("broken", email="a\0b@example.com"),
            ba.user("root", role="sso-administrators,x/y,user"),
        ],
        account=[google, {**google, "providerId": "github"},
                 {**ba.account("fay" * 4), "password": "plain text"}],
        oauthConsent=[{"clientId": "c", "userId": "erin" * 4, "scopes": "openid email",
                       "consentGiven": 0}],
        organization=[{"id": "1", "name": "Acme"}],
    )  # fmt: skip
    people = report["people"]
    by_email = {person.email: person for person in rows(app, User)}
    erin = by_email["erin@example.com"]
    assert (erin.name, erin.email_verified) == ("Эрин 李", False)
    assert erin.claims == {
        "given_name": "Эрин", "family_name": "李", "picture": "https://example.com/e.png",
        "phone_number": "+4930123456", "phone_number_verified": True,
    }  # fmt: skip
    disabled = {email for email, person in by_email.items() if person.disabled_at}
    assert disabled == {"hal@example.com"}
    assert "fay@example.com" not in by_email  # her hash cannot be checked
    assert by_email["root@example.com"].groups == ["x/y"]
    assert [(row.provider, row.subject) for row in rows(app, Identity)] == [("google", "g-1")]
    reasons = json.dumps([people["left_out"], people["reasons"]])
    for reason in (
        "is anonymous",
        "same email",
        "no email",
        "links to other identity providers",
        "administers this server",
    ):
        assert reason in reasons
    assert people["counts"] == {
        "banned until a later time, but disabled here until somebody enables them": 1
    }
    assert ("not_taken", "organizations", "") in lines(report)
    assert rows(app, Consent) == []


def test_a_provider_that_nobody_uses(app: Flask, migrate: Run) -> None:
    said = migrate(None, "--provider", "gogle=google", code=1, user=[DANA])
    assert "nobody has an account of the provider gogle" in said
    assert "no OpenID Connect provider x" in migrate(None, "--provider", "google=x", code=1)


def test_names_in_snake_case_and_plural(app: Flask, migrate: Run, tmp_path: Path) -> None:
    """As Drizzle and Prisma write them; IDs may be numbers."""
    path = tmp_path / "db"
    with sqlite3.connect(path) as file:
        file.executescript(
            "CREATE TABLE users (id INTEGER, name TEXT, email TEXT, email_verified INTEGER);"
            "CREATE TABLE accounts (user_id INTEGER, provider_id TEXT, password TEXT);"
            "CREATE TABLE oauth_clients (client_id TEXT, redirect_uris TEXT, subject_type TEXT,"
            " token_endpoint_auth_method TEXT);"
            "INSERT INTO users VALUES (9, 'Dana', 'dana@example.com', 1),"
            " (10, 'Erin', 'erin@example.com', 0);"
            "INSERT INTO oauth_clients VALUES"
            " ('spa', '[\"https://spa.example.com/cb\"]', NULL, 'none');"
        )
        for number, password in ((10, "ten horses"), (9, "nine horses")):
            row = {**ba.account(str(number), password), "n": number}
            file.execute("INSERT INTO accounts VALUES (:n, :providerId, :password)", row)
    migrate(path)
    stored = {person.email: person for person in rows(app, User)}
    subjects = {email: person.attributes for email, person in stored.items()}
    assert subjects == {
        "dana@example.com": {"better_auth_user_id": "9"},
        "erin@example.com": {"better_auth_user_id": "10"},
    }
    browser = Browser(app)
    browser.sign_in(password="nine horses")
    assert is_signed_in(browser)


def test_input_that_is_refused(app: Flask, migrate: Run, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("{}")
    assert "is no SQLite database" in migrate(path, code=1)
    path.write_bytes(ba.write(tmp_path / "whole", user=[DANA]).read_bytes()[:9000])
    assert "cannot be read" in migrate(path, code=1)
    assert "no table account" in migrate(ba.write(path, ("account",)), code=1)
    assert "no column emailVerified" in migrate(ba.write(path, ("user.emailVerified",)), code=1)
    with sqlite3.connect(ba.write(path, ("user",))) as file:
        file.execute("CREATE VIEW user AS SELECT 'x' AS id, 'y' AS email, 1 AS emailVerified")
    assert "no table user" in migrate(path, code=1)
    many = [ba.user(f"u{n}", role=f"r{n}") for n in range(20_001)]
    assert "more than 20000 roles" in migrate(None, code=1, user=many)
    many = [ba.client(f"c{n}") for n in range(5_001)]
    assert "more than 5000 clients" in migrate(None, code=1, oauthClient=many)
    assert "addresses of better-auth" in migrate(None, "--issuer", "https://a.example.com", code=2)
    assert "empty or not there" in migrate(None, "--auth-secret", "env:NOWHERE", code=1)
    assert rows(app, User) == []


def test_values_that_are_hostile(app: Flask, migrate: Run) -> None:
    huge = "x" * 250_000  # a row of more than a megabyte ends the run
    nested = "[" * 10_000
    report = migrate(
        None, *SECRET,
        user=[ba.user("dana", huge), ba.user("erin", name=huge, role=huge, username=huge),
              ba.user("fay", twoFactorEnabled=1, email=huge)],
        account=[{**ba.account("erin" * 4), "password": huge}],
        twoFactor=[{"userId": "fay" * 4, "secret": "ab" * 100_000, "backupCodes": nested}],
        oauthClient=[ba.client("c", redirectUris=nested), ba.client(huge),
                     ba.client("d", scopes=nested, metadata=nested, name=huge, icon=huge)],
        oauthConsent=[{"clientId": "d\nx", "userId": "erin" * 4, "scopes": nested}],
    )  # fmt: skip
    assert len(json.dumps(report)) < 30_000
    assert report["clients"]["d"] == "taken"
