"""Identity assertions (ID-JAG): issued by token exchange, and taken by the JWT bearer grant."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select, update

from sso import audit, clock
from sso.config.client_fields import AUTHORIZATION_CODE, JWT_BEARER
from sso.extensions import db
from sso.models import Grant, Identity, LogoutDelivery, User
from sso.process import addresses
from sso.services import accounts, clients, revocation
from sso.services.checks import Invalid
from sso.store import users
from tests.conftest import Clock
from tests.support import assertions, platforms
from tests.support.actors import BASE, ISSUER, Browser, claims_of, header_of
from tests.support.assertions import AUDIENCE, CLIENT_THERE, Bridge, ask_assertion, make_asserting
from tests.support.events import events
from tests.support.factories import change_api, make_api, make_client, make_user
from tests.support.platforms import DISCOVERY, KEY_SET, Platform
from tests.support.signing import KEYS, public, sign


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    """Another identity server, on this machine, whose address counts as public."""
    monkeypatch.setattr(addresses, "forbidden", lambda *_: None)
    monkeypatch.setenv("SSL_CERT_FILE", str(platforms.certificate(tmp_path)))
    with platforms.serving(tmp_path) as platform:
        yield platform


@pytest.fixture
def bridge(app: Flask, platform: Platform, user: User) -> Bridge:
    return Bridge(app, platform, user, make_api(app))


def error_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.get_json()["error"]


def id_token_of(browser: Browser, client: Any, **more: Any) -> str:
    answer = client.exchange(browser.approve(client, **more).code)
    assert answer.status_code == 200, answer.text
    return str(answer.get_json()["id_token"])


def test_an_assertion_for_another_server(app: Flask, browser: Browser, user: User) -> None:
    books = make_asserting(app)
    id_token = id_token_of(browser, books)
    answer = ask_assertion(books, id_token, resource="https://mcp.chat.example", scope="read write")
    body = answer.get_json()
    assert answer.status_code == 200, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    assert body["issued_token_type"] == "urn:ietf:params:oauth:token-type:id-jag"
    assert (body["token_type"], body["expires_in"], body["scope"]) == ("N_A", 300, "read write")
    assertion = body["access_token"]
    assert header_of(assertion)["typ"] == "oauth-id-jag+jwt"
    claims = claims_of(assertion)
    assert claims["iss"] == ISSUER
    assert claims["aud"] == AUDIENCE
    assert claims["sub"] == str(user.id)
    assert claims["client_id"] == CLIENT_THERE
    assert claims["resource"] == "https://mcp.chat.example"
    assert claims["scope"] == "read write"
    assert claims["exp"] - claims["iat"] == 300
    assert claims["auth_time"] == claims_of(id_token)["auth_time"]
    assert claims["amr"] == ["pwd"]
    again = claims_of(ask_assertion(books, id_token).get_json()["access_token"])
    assert again["jti"] != claims["jti"]
    event, _ = events(app, "id_jag_issued")
    assert (event["user"], event["client"], event["audience"]) == (
        *(str(user.id), books.client_id, AUDIENCE),
    )


def test_the_server_takes_what_another_one_issues(
    app: Flask, browser: Browser, platform: Platform, user: User
) -> None:
    """What is issued here is accepted by the same rules, with the keys of this server."""
    api = make_api(app)
    books = make_asserting(app)
    issued = claims_of(ask_assertion(books, id_token_of(browser, books)).get_json()["access_token"])
    taker = assertions.make_presenting(app, platform.issuer, api)
    assertions.link(app, user, platform.issuer, issued["sub"])
    claims = {**issued, "iss": platform.issuer, "aud": ISSUER, "client_id": taker.client_id}
    jwt = platform.jwt(claims, typ="oauth-id-jag+jwt", kid=None)
    answer = assertions.present(taker, jwt, resource=api)
    assert answer.status_code == 200, answer.text


def test_listed_scopes_bound_the_assertion(app: Flask, browser: Browser, user: User) -> None:
    books = make_asserting(app, "read", "list")
    id_token = id_token_of(browser, books)
    assert ask_assertion(books, id_token).get_json()["scope"] == "read list"
    assert ask_assertion(books, id_token, scope="list").get_json()["scope"] == "list"
    assert error_of(ask_assertion(books, id_token, scope="write")) == (400, "invalid_scope")


def test_a_token_by_an_assertion(bridge: Bridge, user: User) -> None:
    answer = bridge.ask()
    body = answer.get_json()
    assert answer.status_code == 200, answer.text
    assert body.keys() == {"access_token", "token_type", "expires_in", "scope"}
    assert body["scope"] == "read"
    claims = claims_of(body["access_token"])
    assert (claims["aud"], claims["sub"]) == (bridge.api, str(user.id))
    assert claims["client_id"] == bridge.client.client_id
    assert bridge.platform.asked == [DISCOVERY, KEY_SET]
    assert bridge.ask().status_code == 200
    assert bridge.platform.asked == [DISCOVERY, KEY_SET]  # they are kept
    (event, _) = events(bridge.app, "tokens_issued")
    assert (event["user"], event["audience"]) == (str(user.id), bridge.api)


@pytest.mark.parametrize("alg", ["RS256", "PS256", "ES256", "EdDSA"])
def test_algorithms(bridge: Bridge, alg: str) -> None:
    key = KEYS[alg]
    bridge.platform.key_set = {"keys": [public(key, "a")]}
    claims = {**assertions.claims(bridge.client, bridge.api), "iss": bridge.platform.issuer}
    signed = sign(claims, key, alg=alg, kid="a", typ=assertions.TYPE)
    assert assertions.present(bridge.client, signed).status_code == 200


def test_the_scope(bridge: Bridge) -> None:
    """Requested, asserted, registered: the least of them."""
    asserted = bridge.assertion(scope="read write")
    answer = assertions.present(bridge.client, asserted, scope="write")
    assert answer.get_json()["scope"] == "write"
    assert error_of(bridge.ask(scope=5)) == (400, "invalid_grant")
    without = assertions.claims(bridge.client, bridge.api)
    del without["scope"]
    jwt = bridge.platform.jwt(without, typ=assertions.TYPE, kid=None)
    assert assertions.present(bridge.client, jwt).get_json()["scope"] == "read write"
    assert bridge.ask(scope="read admin").get_json()["scope"] == "read"
    assert error_of(bridge.ask(scope="admin")) == (400, "invalid_scope")


def test_the_resource(app: Flask, bridge: Bridge) -> None:
    """The request names one of those that the assertion is for."""
    other = make_api(app, "https://maps.example", name="Maps")
    both = bridge.assertion(resource=[other, bridge.api])
    assert error_of(assertions.present(bridge.client, both)) == (400, "invalid_target")
    answer = assertions.present(bridge.client, both, resource=bridge.api)
    assert claims_of(answer.get_json()["access_token"])["aud"] == bridge.api


def test_introspection_and_revocation(app: Flask, bridge: Bridge) -> None:
    token = bridge.ask().get_json()["access_token"]
    described = bridge.client.introspect(token).get_json()
    assert (described["active"], described["scope"]) == (True, "read")
    assert bridge.client.revoke(token).status_code == 200
    assert bridge.client.introspect(token).get_json() == {"active": False}


def test_what_ends_its_tokens(clock: Clock, app: Flask, bridge: Bridge, user: User) -> None:
    """The user is disabled or leaves the group of the API; the client is disabled."""
    token = bridge.ask().get_json()["access_token"]
    change_api(app, bridge.api, groups=["staff"])
    assert bridge.client.introspect(token).get_json() == {"active": False}
    assert error_of(bridge.ask()) == (400, "invalid_target")
    change_api(app, bridge.api, groups=[])
    token = bridge.ask().get_json()["access_token"]
    with app.app_context():
        accounts.disable(audit.SYSTEM, db.session.merge(user))
        db.session.commit()
    assert bridge.client.introspect(token).get_json() == {"active": False}
    assert error_of(bridge.ask()) == (400, "invalid_grant")


def test_what_ends_an_identity_token(
    clock: Clock, app: Flask, browser: Browser, user: User
) -> None:
    books = make_asserting(app, scope="openid")
    id_token = id_token_of(browser, books, scope="openid")
    assert ask_assertion(books, id_token).status_code == 200
    clock.move(seconds=3601)
    assert error_of(ask_assertion(books, id_token)) == (400, "invalid_request")
    fresh = id_token_of(browser, books, scope="openid")
    with app.app_context():
        revocation.withdraw_consent(audit.SYSTEM, user.id, books.client_id)
        db.session.commit()
    assert error_of(ask_assertion(books, fresh)) == (400, "invalid_request")


@pytest.mark.parametrize("first_party", [False, True])
def test_an_identity_token_of_another_client(
    app: Flask, browser: Browser, user: User, first_party: bool
) -> None:
    """Also if both are the operator's own applications."""
    books = make_asserting(app, first_party=first_party)
    other = make_asserting(app, name="Other", first_party=first_party)
    id_token = id_token_of(browser, books)
    id_token_of(browser, other)  # it has a grant of the same session, too
    assert error_of(ask_assertion(other, id_token)) == (400, "invalid_request")
    assert ask_assertion(books, id_token).status_code == 200


@pytest.mark.parametrize("groups", [[], ["other"], ["other", "staff"]])
def test_the_groups_of_the_user_are_those_of_now(
    app: Flask, browser: Browser, groups: list[str]
) -> None:
    """Whatever has changed them: nothing has ended the grant yet."""
    user = make_user(app, groups=["staff"])
    books = make_asserting(app, groups=["staff", "board"])
    id_token = id_token_of(browser, books)
    with app.app_context():
        db.session.execute(update(User).where(User.id == user.id).values(groups=groups))
        db.session.commit()
    answer = ask_assertion(books, id_token)
    assert (answer.status_code == 200) is ("staff" in groups), answer.text


def test_the_groups_of_an_api(app: Flask, bridge: Bridge, user: User) -> None:
    change_api(app, bridge.api, groups=["staff", "board"])
    for groups, admitted in (([], False), (["other"], False), (["other", "board"], True)):
        with app.app_context():
            db.session.execute(update(User).where(User.id == user.id).values(groups=groups))
            db.session.commit()
        answer = bridge.ask()
        assert (answer.status_code == 200) is admitted
        if not admitted:
            body = answer.get_json()
            assert (body["error"], "in a group that may use" in body["error_description"]) == (
                "invalid_target", True
            ), body  # fmt: skip


def test_an_identity_that_its_directory_has_disabled(bridge: Bridge) -> None:
    """Even if an operator has enabled the user again."""
    assert bridge.ask().status_code == 200
    with bridge.app.app_context():
        db.session.execute(update(Identity).values(barred_at=clock.now()))
        db.session.commit()
    assert error_of(bridge.ask()) == (400, "invalid_grant")


def test_a_client_of_a_group(app: Flask, bridge: Bridge, user: User) -> None:
    change_client(app, bridge.client.client_id, groups=["staff"])
    assert error_of(bridge.ask()) == (400, "invalid_grant")


def change_client(app: Flask, client_id: str, **fields: Any) -> None:
    with app.app_context():
        with audit.dry_run():
            clients.change(audit.SYSTEM, client_id, fields)
        db.session.commit()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"first_party": False}, "asks nobody for consent"),
        ({"id_jag_issuers": ["http://idp.example"]}, "it is not https"),
        ({"id_jag_issuers": ["https://127.0.0.1"]}, "is refused"),
        ({"id_jag_issuers": [f"https://{n}.example" for n in range(101)]}, "more than 100"),
        ({"auth_method": "none"}, "anyone could use it"),
    ],
)
def test_registrations_that_are_refused(app: Flask, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        assertions.make_presenting(app, "https://idp.example", make_api(app), **fields)


@pytest.mark.parametrize(
    "entry",
    ["https://a.example", "https://a.example ", "http://a.example x", "https://a.example/?q x",
     "https://a.example  x", "https://a.example é", "https://a.example x\x07", "https://a.example\tx",
     f"https://a.example {'x' * 201}", "https://u:p@a.example x"],
)  # fmt: skip
def test_audiences_that_are_refused(app: Flask, entry: str) -> None:
    with pytest.raises(Invalid):
        make_asserting(app, id_jag_audiences=[entry])


def test_without_a_session_there_is_no_logout_token(
    app: Flask, platform: Platform, user: User, browser: Browser
) -> None:
    """What an assertion gave ends with the account, and names no session to end there."""
    bridge = Bridge(
        app, platform, user, make_api(app),
        grant_types=[AUTHORIZATION_CODE, JWT_BEARER],
        redirect_uris=["https://books.example/callback"],
        backchannel_logout_uri="https://books.example/logout",
    )  # fmt: skip
    assert bridge.ask().status_code == 200
    browser.sign_in()
    assert bridge.client.exchange(browser.approve(bridge.client, scope="openid").code).get_json()
    with app.app_context():
        disabled = users.find(user.id)
        assert disabled
        accounts.disable(audit.SYSTEM, disabled)
        db.session.commit()
        sids = db.session.scalars(select(LogoutDelivery.sid)).all()
        grants = db.session.scalars(select(Grant.sid).where(Grant.ended_at.is_not(None))).all()
    assert len(grants) == 2
    assert sids == [sid for sid in grants if sid]


def test_an_issuer_is_listed_once(app: Flask) -> None:
    entries = ["https://a.example x", "https://a.example y read"]
    with pytest.raises(Invalid, match="listed twice"):
        make_asserting(app, id_jag_audiences=entries)


def test_commands(app: Flask) -> None:
    def flask(*arguments: str) -> str:
        result = app.test_cli_runner().invoke(args=arguments)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    make_api(app)
    flask("client", "create", "--name", "Assistant", "--assertions", "--first-party",
          "--id-jag-issuer", "https://idp.example", "--api", "https://docs.example")  # fmt: skip
    other = make_client(app, name="Desk")
    flask("client", "update", other.client_id, "--exchange",
          "--add-id-jag-audience", "https://chat.example desk read")  # fmt: skip
    assert "https://chat.example desk read" in flask("client", "show", other.client_id, "--json")


def test_metadata(app: Flask) -> None:
    path = f"{BASE}/.well-known/openid-configuration"
    document = app.test_client().get(path).get_json()
    assert JWT_BEARER in document["grant_types_supported"]
    assert document["authorization_grant_profiles_supported"] == [
        "urn:ietf:params:oauth:grant-profile:id-jag"
    ]
    assert document["identity_chaining_requested_token_types_supported"] == [
        "urn:ietf:params:oauth:token-type:id-jag"
    ]


def test_another_user_of_the_issuer(app: Flask, bridge: Bridge) -> None:
    other = make_user(app, "robin@example.com")
    assertions.link(app, other, bridge.platform.issuer, "robin-at-work")
    token = bridge.ask(sub="robin-at-work").get_json()["access_token"]
    assert claims_of(token)["sub"] == str(other.id)
