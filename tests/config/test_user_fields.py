"""Each surface has exactly the fields of a user that the table gives it."""

import click
from flask import Flask

from sso.cli import apply, users
from sso.config.user_fields import DESCRIBED, FIELDS
from sso.endpoints.admin.forms import PersonForm
from sso.flow.profile_claims import CLAIMS
from sso.services import accounts, declared_accounts
from tests.support.factories import make_user


def options(command: click.Command) -> set[str]:
    names = {option for param in command.params for option in param.opts}
    return {name.removeprefix("--add-").removeprefix("--") for name in names}


def test_commands_have_the_options_of_all_fields() -> None:
    expected = {field.option.name for field in FIELDS.values() if field.option}
    assert expected <= options(users.create)
    assert expected <= options(users.update)


def test_a_declaration_has_all_fields() -> None:
    table, key = apply.KINDS["users"]
    assert table == FIELDS
    assert FIELDS[key].is_required
    values = declared_accounts.Declaration(email="dana@example.com")
    read = {"initial_password": "password", "id": "user_id"}
    assert {read.get(name, name) for name in FIELDS} == set(values.__slots__)


def test_an_export_has_all_fields(app: Flask) -> None:
    assert tuple(accounts.described(make_user(app))) == DESCRIBED


def test_an_administrator_edits_all_fields(app: Flask) -> None:
    with app.test_request_context():
        form = PersonForm()
    names = {name for name in form._fields if not name.startswith("claim_")}
    assert {"email", "name", "email_verified", "groups"} <= names
    assert {name for name in form._fields if name.startswith("claim_")} == {
        f"claim_{name}" for name in CLAIMS
    }
