"""The client credentials grant (RFC 6749 §4.4): tokens of services, for one API each."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from flask import Flask

from sso.flow.refusals import Cause
from sso.ratelimit import limiting
from sso.store import expired
from tests.conftest import ON_POSTGRESQL, Clock, Statements
from tests.support.actors import ISSUER, claims_of, header_of
from tests.support.events import events
from tests.support.factories import make_client
from tests.support.proofs import DPoP
from tests.support.services import (
    API,
    OTHER_API,
    ResourceServer,
    Service,
    change_api,
    make_api,
    make_service,
)

Count = Callable[[], AbstractContextManager[Statements]]


@pytest.fixture
def api(app: Flask) -> ResourceServer:
    return make_api(app)


@pytest.fixture
def service(app: Flask, api: ResourceServer) -> Service:
    return make_service(app, default_api=API)


def test_a_token(service: Service) -> None:
    answer = service.ask()
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    tokens = answer.get_json()
    token = tokens.pop("access_token")
    assert tokens == {"token_type": "Bearer", "expires_in": 3600, "scope": "read write"}
    assert header_of(token)["typ"] == "at+jwt"
    claims = claims_of(token)
    assert claims["exp"] - claims.pop("iat") == 3600
    assert claims.pop("jti")
    del claims["exp"]
    assert claims == {
        "iss": ISSUER,
        "aud": API,
        "sub": service.client_id,
        "client_id": service.client_id,
        "scope": "read write",
    }
