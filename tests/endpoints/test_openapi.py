"""The OpenAPI document: valid, and what it names exists."""

import re

import pytest
from flask import Flask
from openapi_spec_validator import validate

from tests.support.actors import BASE
from tests.test_architecture import ADDRESSES

pytestmark = pytest.mark.slow  # the validator takes long to load


def test_it_is_valid_and_complete(app: Flask) -> None:
    answer = app.test_client().get(f"{BASE}/openapi.json")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    found = answer.get_json()
    validate(found)
    assert found["servers"] == [{"url": f"http://127.0.0.1:5000{BASE}"}]
    registrations = {
        f"{BASE}{path.replace('{', '<').replace('}', '>')}": {name.upper() for name in methods}
        for path, methods in found["paths"].items()
        if path.startswith(("/oauth2/", "/apis"))
    }
    assert registrations == {
        path: methods
        for path, methods in ADDRESSES.items()
        if path.startswith((f"{BASE}/oauth2/register", f"{BASE}/apis"))
    }


def test_each_operation_exists(app: Flask) -> None:
    """Without a token each is 401; what does not exist is 404 or 405."""
    http = app.test_client()
    for path, methods in http.get(f"{BASE}/openapi.json").get_json()["paths"].items():
        for method in methods:
            url = re.sub(r"{\w+}", "x", BASE + path)
            assert http.open(url, method=method.upper()).status_code == 401, (method, path)
