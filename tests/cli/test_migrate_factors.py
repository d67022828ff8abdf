"""Second factors, links and consents from Keycloak: the same codes and passkeys sign in here."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import cbor2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flask import Flask
from sqlalchemy import select

from sso.config.upstream.file import Upstreams
from sso.config.upstream.oidc import OidcProvider
from sso.extensions import db
from sso.models import AuditEvent, Consent, Identity, Mail, Passkey, RecoveryCode, TotpSecret
from sso.store import factors
from tests.conftest import Clock
from tests.support.actors import BASE, Browser
from tests.support.authenticator import Authenticator
from tests.support.each import each
from tests.support.factories import make_client
from tests.support.keycloak import (
    PASSWORD,
    client,
    otp,
    passkey,
    password,
    realm,
    recovery_codes,
    user,
)
from tests.support.second_factors import code_of, is_signed_in, sign_in_by_passkey

SCANNED = "NZGTARSVIE2EEUCTIZXHO2SPGVGUI3JQ"  # what Keycloak 26.5 showed for it
CODE = "BS1Q-47LN-MXFP"
CORP = OidcProvider(
    id="corp", type="oidc", name="Corp", issuer="https://corp.example.com", client_id="x",
    client_secret="y",
)  # fmt: skip
Run = Callable[..., Any]
_POINT = ec.generate_private_key(ec.SECP256R1()).public_key().public_numbers()
COSE = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: _POINT.x.to_bytes(32), -3: _POINT.y.to_bytes(32)})


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    """Passkeys need a host with a name."""
    app = make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}")
    app.extensions["sso.upstreams"] = Upstreams([CORP])
    return app


@pytest.fixture
def migrate(app: Flask, tmp_path: Path) -> Run:
    def run(people: list[dict[str, Any]], *options: str, code: int = 0, **more: Any) -> Any:
        path = tmp_path / "realm.json"
        path.write_text(json.dumps(realm(users=people, **more)))
        done = app.test_cli_runner().invoke(
            args=["migrate", "keycloak", str(path), "--json", *options]
        )
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)["people"] if not code else done.stderr

    return run


def rows(app: Flask, table: type) -> list[Any]:
    with app.app_context():
        return list(db.session.scalars(select(table)))


def dana(*credentials: dict[str, Any], **more: Any) -> dict[str, Any]:
    return user("dana", credentials=[password(), *credentials], **more)


def exported(authenticator: Authenticator, **data: Any) -> dict[str, Any]:
    """A passkey that Keycloak had the authenticator make: its handle is the ID as text."""
    authenticator.create({"user": {"id": ""}, "challenge": "x"})
    handle = user("dana")["id"].encode()
    authenticator.handle = base64.urlsafe_b64encode(handle).decode().rstrip("=")
    authenticator.count = data.get("counter", 1)
    point = authenticator.key.public_key().public_numbers()
    cose = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32), -3: point.y.to_bytes(32)}
    return passkey(authenticator.id, cbor2.dumps(cose), **data)


def test_password_and_code_are_those_of_keycloak(
    app: Flask, browser: Browser, clock: Clock, migrate: Run
) -> None:
    assert migrate([dana(otp())])["factors"] == {"authenticator apps": 1}
    browser.sign_in(password=PASSWORD)
    assert browser.page.path.endswith("/second-factor")
    assert browser.submit(code=code_of(SCANNED)).path.endswith("/account")
    assert [row for row in rows(app, Mail) if "factor" in row.kind] == []


def test_a_recovery_code_of_keycloak_works_once(
    app: Flask, browser: Browser, clock: Clock, migrate: Run
) -> None:
    migrate([dana(otp(), recovery_codes(CODE.replace("-", ""), "AAAABBBBCCCC"))])
    browser.sign_in(password=PASSWORD)
    assert browser.submit(recovery_code=CODE.lower()).path.endswith("/account")
    with app.app_context():
        assert factors.unused_recovery_codes(UUID(user("dana")["id"])) == 1
    other = Browser(app)
    other.sign_in(password=PASSWORD)
    other.submit(recovery_code=CODE)
    assert not is_signed_in(other)


def test_a_passkey_of_keycloak_signs_in(
    app: Flask, browser: Browser, clock: Clock, migrate: Run
) -> None:
    key = Authenticator()
    taken = migrate([dana(exported(key))], "--rp-id", "localhost")
    assert taken["factors"] == {"passkeys and security keys": 1}
    browser.open(f"{BASE}/sign-in")
    assert sign_in_by_passkey(browser, key).path.endswith("/account")
    [row] = rows(app, Passkey)
    assert (row.name, row.transports, row.sign_count) == ("My key", "internal", 2)


def test_the_counter_of_a_copied_passkey_goes_on(
    app: Flask, browser: Browser, clock: Clock, migrate: Run
) -> None:
    key = Authenticator()
    migrate([dana(exported(key, counter=7))], "--rp-id", "localhost")
    key.count = 6  # a clone that is behind
    browser.open(f"{BASE}/sign-in")
    sign_in_by_passkey(browser, key)
    assert not is_signed_in(browser)


@each(
    "options, more, count",
    {
        "the same host": (("--rp-id", "localhost"), {}, 1),
        "in capital letters": (("--rp-id", "LOCALHOST"), {}, 1),
        "another host": (("--rp-id", "login.example.com"), {}, 0),
        "a host above": (("--rp-id", "host"), {}, 0),
        "not said": ((), {}, 0),
        "said by the realm": ((), {"webAuthnPolicyPasswordlessRpId": "localhost"}, 1),
        "the realm says another": (
            ("--rp-id", "localhost"), {"webAuthnPolicyPasswordlessRpId": "example.com"}, 0),
        "that of the other kind": ((), {"webAuthnPolicyRpId": "localhost"}, 0),
    }.values(),
)  # fmt: skip
def test_passkeys_are_taken_if_the_host_stays(
    options: tuple[str, ...], more: dict[str, Any], count: int, migrate: Run
) -> None:
    report = migrate([dana(exported(Authenticator()))], "--plan", *options, **more)
    assert report["factors"].get("passkeys and security keys", 0) == count
    assert len(report["left_out"]) == 1 - count


@each(
    "credential, is_taken",
    {
        "usual": (otp(), True),
        "in base32": (otp(SCANNED, secretEncoding="BASE32"), True),
        "broken base32": (otp("1!", secretEncoding="BASE32"), False),
        "base32 beyond ASCII": (otp("é" * 16, secretEncoding="BASE32"), False),
        "eight digits": (otp(digits=8), False),
        "a minute": (otp(period=60), False),
        "SHA-256": (otp(algorithm="HmacSHA256"), False),
        "counted": (otp(subType="hotp"), False),
        "short": (otp("123456789"), False),
        "just long enough": (otp("1234567890"), True),
        "empty": (otp(""), False),
        "no data": ({"type": "otp"}, False),
        "no JSON": ({"type": "otp", "secretData": "{", "credentialData": "["}, False),
        "no text": ({"type": "otp", "secretData": '{"value": 3}'}, False),
    }.values(),
)  # fmt: skip
def test_apps_of_another_kind_are_named(
    credential: dict[str, Any], is_taken: bool, migrate: Run
) -> None:
    report = migrate([dana(credential)], "--plan")
    assert report["factors"] == ({"authenticator apps": 1} if is_taken else {})
    assert len(report["left_out"]) == (not is_taken)


def test_broken_passkeys_and_foreign_codes_are_named(migrate: Run) -> None:
    broken = [
        passkey(b"", COSE), passkey(b"id", b""), passkey(b"x" * 1024, COSE),
        passkey(b"id", COSE, counter=-1), passkey(b"id", COSE, counter="many"),
        passkey(b"id", COSE, counter=True), {"type": "webauthn"},
    ]  # fmt: skip
    report = migrate([dana(*broken, recovery_codes("A" * 12, algorithm="RS256"))], "--plan",
                     "--rp-id", "localhost")  # fmt: skip
    assert report["factors"] == {}
    assert sum(entry["count"] for entry in report["left_out"]) == 2  # each reason once a person


def test_a_second_run_takes_no_factor_that_was_removed_here(
    app: Flask, migrate: Run, clock: Clock
) -> None:
    key = exported(Authenticator())
    migrate([dana(otp(), key)], "--rp-id", "localhost")
    with app.app_context():
        factors.remove_all(UUID(user("dana")["id"]))
        db.session.commit()
    migrate([dana(otp(), key, lastName="New")], "--rp-id", "localhost")
    assert (rows(app, TotpSecret), rows(app, Passkey)) == ([], [])


def test_a_second_run_brings_what_is_new(app: Flask, migrate: Run, clock: Clock) -> None:
    migrate([dana()])
    report = migrate([dana(otp(), recovery_codes("A" * 12))])
    assert report["updates"] == {"changed": 1}
    assert (len(rows(app, TotpSecret)), len(rows(app, RecoveryCode))) == (1, 1)
    assert migrate([dana(otp(), recovery_codes("A" * 12))])["updates"] == {}
    added = [row for row in rows(app, AuditEvent) if row.name == "factor_added"]
    assert [json.loads(row.fields)["kind"] for row in added] == ["totp"]


@pytest.mark.parametrize(
    ("before", "after", "ends"),
    [
        pytest.param([], [otp()], True, id="first an app"),
        pytest.param([], [exported(Authenticator())], True, id="first a passkey"),
        pytest.param(
            [otp()], [otp(), exported(Authenticator())], False, id="a passkey beside an app"
        ),
        pytest.param([], [], False, id="no factor"),
        pytest.param([], [recovery_codes("A" * 12)], False, id="codes alone"),
        pytest.param([], [otp(digits=8)], False, id="another app"),
    ],
)
def test_the_first_factor_of_a_later_run_ends_what_a_password_had_opened(
    app: Flask, browser: Browser, clock: Clock, migrate: Run,
    before: list[dict[str, Any]], after: list[dict[str, Any]], ends: bool,
) -> None:  # fmt: skip
    """As the first one on the account page: the password may be in other hands, too."""
    migrate([dana(*before)], "--rp-id", "localhost")
    party = make_client(app)
    browser.sign_in(password=PASSWORD)
    if before:
        browser.submit(code=code_of(SCANNED))
    tokens = party.exchange(browser.approve(party, scope="openid profile").code).get_json()
    changed = dana(*after, lastName="New")
    report = migrate([changed], "--rp-id", "localhost", "--overwrite")
    assert report["updates"] == {"changed": 1}
    assert is_signed_in(browser) is not ends
    status = 401 if ends else 200
    assert party.userinfo(tokens["access_token"]).status_code == status


def test_one_passkey_of_two_people_comes_once(app: Flask, migrate: Run) -> None:
    key = exported(Authenticator())
    other = user("erin", credentials=[key])
    migrate([dana(key), other], "--rp-id", "localhost")
    assert [str(row.user_id) for row in rows(app, Passkey)] == [user("dana")["id"]]


def test_links_are_taken_for_the_providers_that_are_named(app: Flask, migrate: Run) -> None:
    linked = [{"identityProvider": "old-corp", "userId": "42", "userName": "dana"},
              {"identityProvider": "google", "userId": "7"}]  # fmt: skip
    there = [{"alias": "old-corp", "providerId": "oidc"}, {"alias": "google"}]
    people = [dana(federatedIdentities=linked)]
    report = migrate(people, "--provider", "old-corp=corp", identityProviders=there)
    [identity] = rows(app, Identity)
    assert (identity.provider, identity.issuer, identity.subject) == (
        "corp", "https://corp.example.com", "42",
    )  # fmt: skip
    assert report["factors"] == {"links to other identity providers": 1}
    assert len(report["left_out"]) == 1
    assert "no identity provider nobody" in migrate(
        people, "--provider", "nobody=corp", identityProviders=there, code=1
    )
    assert "no OpenID Connect provider other" in migrate(
        people, "--provider", "google=other", identityProviders=there, code=1
    )


def test_texts_that_postgresql_cannot_store_do_not_stop_it(app: Flask, migrate: Run) -> None:
    linked = [{"identityProvider": "corp", "userId": "4\0002"}]
    consents = [{"clientId": "wiki\0", "grantedClientScopes": ["email"]}]
    broken = dana(federatedIdentities=linked, clientConsents=consents)
    report = migrate([broken], "--provider", "corp=corp", identityProviders=[{"alias": "corp"}])
    assert (report["imported"], report["factors"]) == (1, {})
    assert rows(app, Identity) == []


def test_consents_are_those_that_the_client_may_ask_for(app: Flask, migrate: Run) -> None:
    consents = [{"clientId": "wiki", "grantedClientScopes": ["profile", "email", "other"]},
             {"clientId": "gone", "grantedClientScopes": ["profile"]}]  # fmt: skip
    migrate([dana(clientConsents=consents)], clients=[client("wiki", consentRequired=True)])
    [consent] = rows(app, Consent)
    assert (consent.client_id, consent.scope) == ("wiki", "openid profile email")


def test_a_client_of_this_server_with_the_same_id_is_another_one(app: Flask, migrate: Run) -> None:
    make_client(app, client_id="wiki", name="Ours")
    consents = [{"clientId": "wiki", "grantedClientScopes": ["profile", "email"]}]
    migrate([dana(clientConsents=consents)], clients=[client("wiki", consentRequired=True)])
    assert rows(app, Consent) == []
