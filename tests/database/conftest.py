"""The same tests on every database, with real concurrent connections."""

import pytest
from flask import Flask


@pytest.fixture
def app(app_on_each: Flask) -> Flask:
    return app_on_each
