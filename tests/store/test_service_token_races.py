"""Tokens of services under real concurrency: what counts once, and what ends them."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from flask import Flask

from sso import audit
from sso.extensions import db
from sso.services import clients
from tests.store.test_races import at_once
from tests.support.platforms import of_kubernetes
from tests.support.proofs import DPoP
from tests.support.services import API, Service, make_resource_server, make_service
from tests.support.signing import ASSERTION_TYPE, RSA, public, sign

PLATFORM = "https://cluster.example"


def test_one_jwt_of_a_platform(app: Flask) -> None:
    make_resource_server(app)
    service = make_service(
        app, default_api=API, trust_issuer=PLATFORM, trust_subject="system:serviceaccount:*",
        jwks={"keys": [public(RSA)]},
    )  # fmt: skip
    for claims in (of_kubernetes(), {**of_kubernetes(), "jti": None}):
        given = {name: value for name, value in claims.items() if value is not None}
        jwt = sign({"iss": PLATFORM, **given}, RSA, alg="RS256")
        assertion = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": jwt}
        answers = at_once(20, partial(service.ask, **assertion))
        statuses = Counter(answer.status_code for answer in answers)
        assert statuses[200] == 1, statuses
        assert set(statuses) <= {200, 401, 429}


def test_one_proof(app: Flask) -> None:
    make_resource_server(app)
    service, header = make_service(app, default_api=API), DPoP().header()
    answers = at_once(20, lambda: service.ask(header))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: 19}


def test_no_token_outlives_its_client(app: Flask) -> None:
    """Whatever was issued while the client was being disabled has ended when it is enabled."""
    api = make_resource_server(app)
    service = make_service(app, default_api=API)
    issued = 0
    for _ in range(5):
        with ThreadPoolExecutor(6) as pool:
            waiting = [pool.submit(_token, service) for _ in range(30)]
            _disable(app, service, True)
            tokens = [token for future in waiting if (token := future.result())]
        _disable(app, service, False)
        issued += len(tokens)
        assert [token for token in tokens if api.introspect(token).get_json()["active"]] == []
        assert api.introspect(service.token()).get_json()["active"]
    assert issued


def _token(service: Service) -> str | None:
    answer = service.ask()
    assert answer.status_code in (200, 401, 429), answer.text
    token: str | None = answer.get_json().get("access_token")
    return token


def _disable(app: Flask, service: Service, disabled: bool) -> None:
    with app.app_context():
        clients.change(audit.SYSTEM, service.client_id, {"disabled": disabled})
        db.session.commit()
