"""The people, applications and events that the demo makes up."""

from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy.exc import IntegrityError

from sso.demo import sample_data
from sso.extensions import db
from sso.models import User
from sso.store import users
from tests.support.administration import ADMIN, sign_in_staff
from tests.support.factories import make_attribute

pytestmark = pytest.mark.slow


def test_the_pages_of_its_people_open_after_an_attribute_is_defined(
    app: Flask,
) -> None:
    with app.app_context():
        sample_data.prepare()
        db.session.commit()
        people = [user.id for user in users.every()]
    make_attribute(app, "desk")
    admin = sign_in_staff(app)
    assert len(people) > 100
    for page in ("person", "person/edit"):
        for user_id in people[:3]:
            assert admin.open(f"{ADMIN}/{page}?id={user_id}").status == 200


@pytest.mark.parametrize("missing", ["attributes", "claims"])
def test_a_person_without_a_value_is_not_stored(app: Flask, missing: str) -> None:
    """None is no JSON `null`, which each reader of the column would meet."""
    with app.app_context():
        user = User(id=uuid4(), email="dana@example.com", name="Dana", claims={}, attributes={})
        user.email_verified = False
        users.set_disabled(user, False)
        users.insert_all(users.rows_of([user]))
        user.id, user.email = uuid4(), "sam@example.com"
        setattr(user, missing, None)
        with pytest.raises(IntegrityError):
            users.insert_all(users.rows_of([user]))
