"""Why a token exchange was refused, by real requests."""

import shlex

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import Browser
from tests.support.exchanges import DOCS, MAPS, Chain, exchange
from tests.support.explaining import Explain
from tests.support.factories import change_api
from tests.support.proofs import DPoP


@pytest.fixture
def chain(app: Flask, browser: Browser, user: User) -> Chain:
    return Chain(app, browser)


def test_a_client_that_does_not_act_as_the_api(app: Flask, chain: Chain, explain: Explain) -> None:
    text = explain(exchange(chain.maps, chain.subject, resource=DOCS))
    assert f"was issued to Books ({chain.books.client_id}) for {DOCS}" in text
    command = f"flask client update {chain.maps.client_id} --add-exchange-from {DOCS}"
    assert command in text
    assert app.test_cli_runner().invoke(args=shlex.split(command)[1:]).exit_code == 0
    registered = exchange(chain.maps, chain.subject, resource="https://mail.example")
    assert registered.status_code == 200


def test_a_token_for_userinfo(chain: Chain, explain: Explain) -> None:
    plain = chain.books.exchange(chain.browser.approve(chain.books).code).get_json()
    text = explain(exchange(chain.docs, plain["access_token"], resource=MAPS))
    assert "request a token for the API that it calls" in text
    assert "--add-exchange-from" not in text


def test_an_expired_token(clock: Clock, chain: Chain, explain: Explain) -> None:
    token = chain.approve()["access_token"]
    clock.move(seconds=3700)
    text = explain(exchange(chain.docs, token, resource=MAPS))
    assert "The subject token had expired 100 s before." in text


@pytest.mark.parametrize("kind", ["refresh_token", "id_token"])
def test_another_kind_of_token(chain: Chain, explain: Explain, kind: str) -> None:
    text = explain(exchange(chain.docs, chain.tokens[kind], resource=MAPS))
    assert "This server did not issue the subject token" in text or "No such subject" in text


def test_a_revoked_token_and_an_ended_grant(chain: Chain, explain: Explain) -> None:
    chain.books.revoke(chain.subject)
    text = explain(exchange(chain.docs, chain.subject, resource=MAPS))
    assert "The subject token was revoked." in text
    chain.books.revoke(chain.tokens["refresh_token"])
    text = explain(exchange(chain.docs, chain.subject, resource=MAPS))
    assert "What the user approved has ended" in text


def test_too_much_scope(chain: Chain, explain: Explain) -> None:
    text = explain(exchange(chain.docs, chain.subject, resource=MAPS, scope="draw write"))
    assert f"asks for draw write; this token can be exchanged for read draw at {MAPS}" in text


def test_a_key(chain: Chain, explain: Explain) -> None:
    bound = chain.approve(DPoP().header())["access_token"]
    text = explain(exchange(chain.docs, bound, DPoP().header(), resource=MAPS))
    assert "The subject token is bound to a key by DPoP" in text


def test_a_group_of_the_application(app: Flask, chain: Chain, explain: Explain, user: User) -> None:
    arguments = ("client", "update", chain.docs.client_id, "--add-group", "staff")
    assert app.test_cli_runner().invoke(args=arguments).exit_code == 0
    text = explain(exchange(chain.docs, chain.subject, resource=MAPS))
    assert f"{user.email} is in none of the groups that may use the client: staff." in text


def test_a_group_of_the_api(app: Flask, chain: Chain, explain: Explain) -> None:
    change_api(app, MAPS, groups=["staff"])
    text = explain(exchange(chain.docs, chain.subject, resource=MAPS))
    assert f"The user is not in a group that may use the API {MAPS}" in text


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"resource": None}, "A token is exchanged for one of an API"),
        ({"resource": "https://x.example"}, "https://x.example is not an API that this client"),
        ({"audience": DOCS}, "name different APIs"),
        ({"actor_token": "x"}, "An 'actor_token' is not supported"),
        ({"subject_token_type": "x"}, "The only 'subject_token_type' is"),
        ({"subject_token": None}, "The parameter 'subject_token' is missing"),
    ],
    ids=str,
)
def test_the_parameters(
    chain: Chain, explain: Explain, more: dict[str, str | None], text: str
) -> None:
    assert text in explain(exchange(chain.docs, chain.subject, **{"resource": MAPS, **more}))
