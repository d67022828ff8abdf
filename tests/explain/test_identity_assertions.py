"""Each refusal of an identity assertion (ID-JAG) is explained, with the command that ends it."""

from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.config.client_fields import JWT_BEARER, TOKEN_EXCHANGE
from sso.extensions import db
from sso.models import User
from sso.services import accounts
from sso.store import redemption
from sso.store.redemption import TooManyUsed
from tests.conftest import Clock
from tests.explain.test_causes import command_in, run
from tests.oauth.grants.test_id_jag import change_client, id_token_of, platform
from tests.support.actors import ISSUER, Browser
from tests.support.assertions import (
    AUDIENCE,
    TYPE,
    Bridge,
    ask_assertion,
    claims,
    make_asserting,
    present,
)
from tests.support.explaining import Explain
from tests.support.factories import change_api, make_api, make_client
from tests.support.platforms import Platform
from tests.support.signing import EC, sign

__all__ = ["platform"]

EVIL = "https://evil.example"
AGAIN = "sign in to the application again"


@pytest.fixture
def bridge(clock: Clock, app: Flask, platform: Platform, user: User) -> Bridge:
    return Bridge(app, platform, user, make_api(app))


def disable(app: Flask, user: User) -> None:
    with app.app_context():
        accounts.disable(audit.SYSTEM, db.session.merge(user))
        db.session.commit()


def test_why_none_is_issued(
    app: Flask, browser: Browser, user: User, explain: Explain, clock: Clock
) -> None:
    books = make_asserting(app, "read")
    token = id_token_of(browser, books)

    def why(answer: Any = None, /, **more: str | None) -> str:
        refused = ask_assertion(books, token, **more) if answer is None else answer
        assert refused.status_code == 400, refused.text
        return explain(refused)

    assert "'audience' is missing" in why(audience=None)
    assert "not a URI" in why(resource="é")
    assert "declared as another type" in why(subject_token_type="urn:x")
    assert "no identity token of this server" in why(subject_token="x.y.z")
    access_token = books.exchange(browser.approve(books).code).get_json()["access_token"]
    assert "no identity token of this server" in why(subject_token=access_token)
    other = make_asserting(app, name="Other")
    assert f"issued to Books ({books.client_id})" in why(ask_assertion(other, token))

    text = why(audience="https://other.example")
    assert "which is not among its audiences" in text
    refused = ask_assertion(books, token, audience="https://other.example")
    run(app, (command_in(text) or "").replace("CLIENT_ID", "desk"))
    assert "It is registered now." in explain(refused)
    for audience in ("é", "https://other.example stranger admin"):  # no client ID of its choice
        assert command_in(why(audience=audience)) is None

    text = why(scope="read write")
    assert f"asks for read write at {AUDIENCE}; it may request read there" in text
    run(app, command_in(text) or "")
    answer = ask_assertion(books, token, scope="read write")
    assert answer.get_json()["scope"] == "read write"

    plain = make_client(app, name="Plain")
    refused = ask_assertion(plain, token)
    text = why(refused)
    assert f"is not registered for {TOKEN_EXCHANGE}" in text
    run(app, command_in(text) or "")
    assert "It is now." in explain(refused)
    public = make_client(app, name="Phone", public=True)
    assert "The client is public" in explain(ask_assertion(public, token))

    change_client(app, books.client_id, groups=["staff"])
    text = why()
    assert "dana@example.com is in none of the groups that may use the client: staff" in text
    assert command_in(text) == "flask user update dana@example.com --add-group staff"
    change_client(app, books.client_id, groups=[])
    assert "has ended" in why()
    clock.move(hours=2)
    assert "The identity token has expired." in why()
    disable(app, user)


def test_why_an_assertion_is_not_taken(bridge: Bridge, explain: Explain, clock: Clock) -> None:
    client, issuer, now = bridge.client, bridge.platform.issuer, int(clock.time.timestamp())

    def why(**more: Any) -> str:
        return explain(bridge.ask(**more))

    assert bridge.ask().status_code == 200
    form = {"grant_type": JWT_BEARER, **client.credentials()}
    assert "'assertion' is missing" in explain(client.post("/oauth2/token", form))
    for fields, words in (
        ({"cnf": {"jkt": "x"}}, "it is bound to a key (cnf)"),
        ({"iat": None}, "it has no iat"),
        ({"sub": None}, "it has no sub"),
        ({"jti": None}, "it has no jti"),
        ({"scope": 5}, "its scope is no text"),
        ({"resource": 7}, "its resource is neither"),
    ):
        text = why(**fields)
        assert words in text
        assert "has to correct them" in text
    assert "its typ is not" in explain(present(client, bridge.assertion({"typ": "jwt"})))
    assert "it is not a signed JWT" in explain(present(client, "x"))

    text = why(aud="https://other.example")
    assert f"expected  {ISSUER}" in text
    assert f"At {issuer}, register this server as the audience {ISSUER}." in text
    text = why(client_id="another")
    assert f"registered now  {client.client_id}" in text
    assert f"the ID that the application has here to {client.client_id}" in text
    for fields in ({"exp": 1}, {"exp": now + 999_999}, {"iat": now + 9999}):
        assert "set the clocks of both servers" in why(**fields)
    text = explain(present(client, bridge.assertion({"kid": "k7"})))
    assert "It names the key k7." in text
    assert "See whether the key is in the key set" in text
    used = bridge.assertion()
    assert present(client, used).status_code == 200
    assert "The assertion was used before." in explain(present(client, used))

    nobody = claims(client, bridge.api) | {"iss": "no URL"}
    text = explain(present(client, sign(nobody, EC, typ=TYPE)))
    assert "not registered for assertions of no URL" in text
    assert command_in(text) is None  # no command would take it
    signed = claims(client, bridge.api) | {"iss": EVIL}
    refused = present(client, sign(signed, EC, typ=TYPE))
    text = explain(refused)
    assert f"not registered for assertions of {EVIL}" in text
    run(bridge.app, command_in(text) or "")
    assert "It is registered now." in explain(refused)
    text = explain(present(client, sign(signed | {"jti": "2"}, EC, typ=TYPE)))
    assert f"The keys of {EVIL} could not be read: " in text


def test_why_an_assertion_gives_nothing(
    app: Flask, bridge: Bridge, user: User, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, maps = bridge.client, make_api(app, "https://maps.example", name="Maps")

    def why(**more: Any) -> str:
        return explain(bridge.ask(**more))

    assert "nobody of" in why(sub="nobody")
    assert "registered here, but not for Assistant" in why(resource=maps)
    change_client(app, client.client_id, apis=[bridge.api, maps])
    text = explain(present(client, bridge.assertion(), resource=maps))
    assert f"The assertion is not for the API {maps}." in text
    text = explain(present(client, bridge.assertion(), scope="write"))
    assert "asks for write; the assertion has read" in text
    text = why(scope="admin")
    assert f"asks for admin at {bridge.api}, and has none of it there" in text
    assert command_in(text) == (
        f"flask client update {client.client_id} --add-api {bridge.api}=admin"
    )

    refused = present(make_client(app, name="Plain"), bridge.assertion())
    text = explain(refused)
    assert f"is not registered for {JWT_BEARER}" in text
    run(app, command_in(text) or "")
    assert "It is now." in explain(refused)

    change_client(app, client.client_id, require_mfa=True)
    text = why()
    assert "an assertion proves none" in text
    run(app, command_in(text) or "")
    assert bridge.ask().status_code == 200
    change_api(app, bridge.api, groups=["staff"])
    assert command_in(why()) == "flask user update dana@example.com --add-group staff"
    change_api(app, bridge.api, groups=[])

    with monkeypatch.context() as context:
        context.setattr(redemption, "use_once", too_many)
        assert "too many assertions that have not expired" in why()
    disable(app, user)
    text = why()
    assert "dana@example.com is disabled." in text
    run(app, command_in(text) or "")
    assert bridge.ask().status_code == 200


def too_many(*_: Any, **__: Any) -> bool:
    raise TooManyUsed
