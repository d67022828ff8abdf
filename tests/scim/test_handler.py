"""What an operator learns of a refused request."""

import pytest
from flask import Flask
from scim2_models import PreconditionFailedException
from sqlalchemy import select

from sso.extensions import db
from sso.models import ApiToken
from sso.scim import backend, handler, resources
from sso.scim.extension import schema_of
from tests.scim.conftest import Provisioner, make_token
from tests.support.explaining import Explain
from tests.support.factories import make_user


def test_a_refused_request_is_explained(app: Flask, explain: Explain) -> None:
    secret = make_token(app, "scim:read")
    scim = Provisioner(app, secret)
    assert "lacks the scope scim:write" in explain(scim("DELETE", "/Users/x"))
    assert "stands in the URL" in explain(scim("GET", f"/Users?access_token={secret}"))
    unknown = explain(Provisioner(app, "sso_api_x")("GET", "/Users"))
    assert "not one of this server" in unknown
    assert "invalid syntax at column 1" in explain(scim("GET", "/Users?filter=x"))
    assert secret not in explain.run()


@pytest.mark.parametrize("name", ["attributes", "excludedAttributes"])
def test_how_many_attributes_are_named(scim: Provisioner, name: str) -> None:
    for count, status in ((handler.MOST_ATTRIBUTES, 200), (handler.MOST_ATTRIBUTES + 1, 400)):
        names = ["displayName"] * count
        answer = scim("GET", f"/Users?{name}={','.join(names)}")
        assert answer.status_code == status, answer.text
        for value in (names, ",".join(names)):
            searched = scim("POST", "/Users/.search", {name: value})
            assert searched.status_code == status or isinstance(value, str), searched.text


@pytest.mark.parametrize("kind", ["User", "Group"])
@pytest.mark.parametrize("version", ["", 'W/"0"', 'W/"11"', '"1"', "*"])
def test_another_version_is_not_changed(
    app: Flask, scim: Provisioner, kind: str, version: str
) -> None:
    """The storage compares once more what the handler has compared."""
    made = scim.user() if kind == "User" else scim.group("staff")
    (resource_type,) = (one for one in resources.PROVIDER.resource_types if one.name == kind)
    with app.app_context():
        token = db.session.scalars(select(ApiToken)).one()
        stored = backend.Storage(token, lambda: None, schema_of(()))
        with pytest.raises(PreconditionFailedException):
            stored.delete(resource_type, made["id"], expected_version=version)
        current = stored.get(resource_type, made["id"])
        with pytest.raises(PreconditionFailedException):
            stored.update(resource_type, current, expected_version=version)
        stored.delete(resource_type, made["id"], expected_version=made["meta"]["version"])
        db.session.rollback()


def test_who_may_only_read_sees_administrators(app: Flask) -> None:
    """The scope scim:privileged is for changes."""
    group = app.extensions["sso.settings"].admin_group
    admin = make_user(app, "ada@example.com", groups=[group])
    for scope in ("scim:write", "scim:read"):
        scim = Provisioner(app, make_token(app, scope, name=scope))
        path = f"/Users/{admin.id}"
        assert scim.get(path)["userName"] == "ada@example.com"
        (listed,) = scim.get("/Groups", filter=f'displayName eq "{group}"')["Resources"]
        assert scim.get(f"/Groups/{listed['id']}")["displayName"] == group
        assert scim("DELETE", path).status_code == 403
