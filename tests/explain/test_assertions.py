"""What `flask explain` says of client assertions that were refused."""

import pytest
from flask import Flask

from sso.oauth.key_sets import KeySets, KeySetUnavailable
from tests.conftest import Clock
from tests.oauth.test_client_authentication import ask
from tests.support.actors import ISSUER, RelyingParty
from tests.support.explaining import Explain
from tests.support.signing import OTHER_EC, KeyedParty, make_keyed_client, sign


@pytest.fixture
def bank(app: Flask) -> KeyedParty:
    return make_keyed_client(app)


def test_audience(bank: KeyedParty, explain: Explain) -> None:
    text = explain(ask(bank, bank.assertion(aud=ISSUER + "/")))
    assert "or the token endpoint" in text
    assert f"expected  {ISSUER}" in text


def test_clocks(bank: KeyedParty, explain: Explain, clock: Clock) -> None:
    clock.stand_still()
    now = int(clock.time.timestamp())
    text = explain(ask(bank, bank.assertion(iat=now + 300, exp=now + 360)))
    assert "It was made 300 seconds in the future." in text
    text = explain(ask(bank, bank.assertion(iat=now - 300, exp=now - 240)))
    assert "It was made 300 seconds ago." in text


def test_a_replay(bank: KeyedParty, explain: Explain) -> None:
    sent = bank.assertion()
    ask(bank, sent)
    assert "has to make a new one for each request" in explain(ask(bank, sent))


def test_another_key(app: Flask, bank: KeyedParty, explain: Explain) -> None:
    text = explain(ask(bank, sign(bank.claims(), OTHER_EC, kid="k2")))
    assert "It names the key k2." in text
    assert f"flask client update {bank.client_id} --jwks FILE" in text


def test_none_at_all(bank: KeyedParty, explain: Explain) -> None:
    text = explain(bank.post("/oauth2/par", {"client_id": bank.client_id}))
    assert "neither a client secret nor an assertion" in text
    assert "Set the application to private_key_jwt" in text


def test_no_secret(client: RelyingParty, explain: Explain) -> None:
    text = explain(client.exchange("x", client_secret=None))
    assert "Give the application its client secret." in text


def test_signed_requests(app: Flask, bank: KeyedParty, explain: Explain) -> None:
    signer = make_keyed_client(app, request_object_signing_alg="ES256")
    assert "--no-request-object-alg" in explain(signer.push())
    text = explain(signer.push(request=sign(signer.claims(), OTHER_EC)))
    assert f"flask client update {signer.client_id} --jwks FILE" in text
    assert "with --request-object-alg" in explain(bank.push(request="x"))


def test_anything_else(bank: KeyedParty, explain: Explain) -> None:
    assert "it has no jti, a text" in explain(ask(bank, bank.assertion(jti=None)))


def test_a_secret_instead(bank: KeyedParty, explain: Explain) -> None:
    text = explain(bank.exchange("x", client_secret="x", client_assertion=None,
                                 client_assertion_type=None, client_id=bank.client_id))  # fmt: skip
    assert "the client is registered for private_key_jwt" in text


def test_an_assertion_instead_of_a_secret(
    bank: KeyedParty, client: RelyingParty, explain: Explain
) -> None:
    sent = sign(bank.claims(iss=client.client_id, sub=client.client_id))
    text = explain(ask(client, sent))
    assert "authenticates by private_key_jwt; the client is registered for any" in text


def test_a_key_set_that_cannot_be_read(app: Flask, explain: Explain) -> None:
    def fail(_: str) -> tuple[()]:
        raise KeySetUnavailable("it answered 404, not 200")

    app.extensions["sso.key_sets"] = KeySets(fail)
    bank = make_keyed_client(app, jwks_uri="https://bank.example/jwks")
    text = explain(bank.introspect("t"))
    assert "could not be read from https://bank.example/jwks: it answered 404, not 200" in text
