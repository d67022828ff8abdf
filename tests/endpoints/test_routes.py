"""HEAD, OPTIONS and 405 with `Allow`, at every address; headers of every answer."""

import pytest
from flask import Flask

from tests.support.actors import ORIGIN
from tests.test_architecture import ADDRESSES

METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}
# To those who may not open them, admin pages do not exist (see tests/endpoints/admin). Forward auth
# answers every method as it answers GET: proxies ask with the method of the request.
OPEN = {
    path: allowed
    for path, allowed in ADDRESSES.items()
    if "/admin" not in path and "/forward-auth/" not in path
}


@pytest.mark.parametrize(("path", "allowed"), OPEN.items(), ids=OPEN.keys())
def test_methods(app: Flask, path: str, allowed: set[str]) -> None:
    http = app.test_client()
    options = http.options(path, base_url=ORIGIN)
    assert options.status_code == 200
    listed = {one.strip() for one in options.headers["Allow"].split(",")}
    assert listed - {"HEAD", "OPTIONS"} == allowed
    for method in METHODS - allowed:
        answer = http.open(path, method=method, base_url=ORIGIN)
        assert answer.status_code == 405
        assert allowed <= {one.strip() for one in answer.headers["Allow"].split(",")}
    if "GET" in allowed:
        head = http.head(path, base_url=ORIGIN)
        assert head.status_code == http.get(path, base_url=ORIGIN).status_code
        assert head.data == b""
    for answer in (options, http.put(path, base_url=ORIGIN)):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"


def test_the_log_names_the_route_that_has_not_the_method(
    app: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    app.test_client().post("/api/auth/account/activity", base_url=ORIGIN)
    app.test_client().put("/api/auth/oauth2/token", base_url=ORIGIN)
    app.test_client().get("/nowhere", base_url=ORIGIN)
    lines = [one for one in caplog.records if one.name == "sso.access"]
    assert [(vars(one)["route"], vars(one)["status"]) for one in lines] == [
        ("/api/auth/account/activity", 405),
        ("/api/auth/oauth2/token", 405),
        ("(unknown address)", 404),
    ]
    assert [hasattr(one, "path") for one in lines] == [False, False, True]
