"""What an operator learns of a refused request."""

from flask import Flask

from tests.scim.conftest import Provisioner, make_token
from tests.support.explaining import Explain


def test_a_refused_request_is_explained(app: Flask, explain: Explain) -> None:
    secret = make_token(app, "scim:read")
    scim = Provisioner(app, secret)
    assert "lacks the scope scim:write" in explain(scim("DELETE", "/Users/x"))
    assert "stands in the URL" in explain(scim("GET", f"/Users?access_token={secret}"))
    unknown = explain(Provisioner(app, "sso_api_x")("GET", "/Users"))
    assert "not one of this server" in unknown
    assert "invalid syntax at column 1" in explain(scim("GET", "/Users?filter=x"))
    assert secret not in explain.run()
