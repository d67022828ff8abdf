"""Each surface has exactly the fields of an API that the table gives it."""

import html
from typing import Any

import click
from flask import Flask

from scripts import documentation
from sso.cli import apply
from sso.cli.apis import create, update, view
from sso.config.api_fields import FIELDS
from sso.config.fields import LISTS, MAPPINGS, Kind, Stored
from sso.endpoints import openapi
from sso.endpoints.admin.forms import ApiForm
from sso.models import Api
from sso.services import api_values, apis
from sso.store import apis as stored_apis
from tests.conftest import Clock
from tests.support.administration import ADMIN, sign_in_staff
from tests.support.factories import make_api

EVERYTHING: dict[str, Any] = {
    "identifier": "https://books.example",
    "name": "Books",
    "scopes": {"read": "Read books"},
    "translations": {"de": {"read": "Bücher lesen"}},
    "groups": ["readers"],
    "access_token_lifetime": 120,
    "includes_groups": True,
    "agents": True,
    "roles": ["editor=writers", "reader"],
    "roles_shape": "object",
    "introspection": True,
    "disabled": False,
}


def options(command: click.Command) -> dict[str, click.Option]:
    return {
        option.name or "": option
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and option.name != "as_json"
    }


def test_create_has_an_option_for_each_field() -> None:
    by_name = options(create)
    assert by_name.keys() == {field.name for field in FIELDS.values() if field.option}
    for name, option in by_name.items():
        assert FIELDS[name].flag in option.opts
        assert option.is_flag == (FIELDS[name].kind is Kind.SWITCH)
        assert option.required == FIELDS[name].is_required


def test_update_has_options_that_change_and_remove() -> None:
    expected = set()
    for field in FIELDS.values():
        if field.option and field.kind in (*LISTS, *MAPPINGS):
            expected |= {f"{verb}_{field.name}" for verb in ("add", "remove", "set")}
        elif field.option and field.name != "identifier":
            expected |= {field.name, *([f"no_{field.name}"] if field.option.removal else [])}
    assert options(update).keys() == expected


def test_a_declaration_has_all_fields() -> None:
    types, key = apply.KINDS["apis"]
    assert types.keys() - {"secret"} == FIELDS.keys()
    assert FIELDS[key].is_required


def test_the_api_documents_its_fields() -> None:
    schemas = openapi.document("https://sso.example")["components"]["schemas"]
    assert schemas["ApiFields"]["properties"].keys() == FIELDS.keys()
    assert schemas["Api"]["properties"].keys() == {*FIELDS, "api_id", "secret"}
    assert schemas["ApiFields"]["required"] == ["identifier", "name"]
    page = documentation.page("docs/reference/api.md")
    assert all(f"| `{name}` |" in page for name in FIELDS)


def test_all_that_is_registered_is_shown(app: Flask) -> None:
    """By the command, the API, the plan and the file."""
    assert EVERYTHING.keys() == FIELDS.keys()
    assert api_values.parsed({**EVERYTHING, "unknown": 7}) == EVERYTHING
    with app.app_context():
        planned = apis.plan_registration(EVERYTHING, secret="x" * 40)
        assert planned == EVERYTHING
    make_api(app, **EVERYTHING)
    with app.app_context():
        api = stored_apis.find("https://books.example")
        assert api
        assert apis.described(api) == {"api_id": api.api_id, **EVERYTHING}
        assert view(api).keys() == {*EVERYTHING, "api_id", "created_at"}
        assert apply.declaration()["apis"] == [EVERYTHING]


def test_an_administrators_form_and_page_have_their_fields(app: Flask, clock: Clock) -> None:
    own = ("csrf_token", "seen")
    with app.test_request_context():
        inputs = {field.name for field in ApiForm() if field.name not in own}
        stay = inputs - {field.name for field in ApiForm(Api()) if field.name not in own}
    assert inputs == {field.name for field in FIELDS.values() if field.form}
    assert stay == {"identifier", "introspection"}
    make_api(app, **EVERYTHING)
    with app.app_context():
        api = stored_apis.find("https://books.example")
        assert api
        api_id = api.api_id
    staff = sign_in_staff(app)
    page = staff.open(f"{ADMIN}/api/edit?id={api_id}").html
    assert all(f'name="{name}"' in page for name in inputs - stay)
    page = staff.open(f"{ADMIN}/api?id={api_id}").html
    for field in FIELDS.values():
        if field.fact:
            title = field.fact.title or (field.form and field.form.label) or ""
            assert f"<dt>{html.escape(title, quote=False)}</dt>" in page


def test_columns_are_those_of_the_table() -> None:
    derived = {"introspection": "secret_digest", "disabled": "disabled_at"}
    own = {"api_id", "created_at", "updated_at", "version"}
    columns = {column.name for column in Api.__table__.c} - own
    assert columns == {derived.get(name, name) for name in FIELDS}
    apart = {field.name for field in FIELDS.values() if field.stored is Stored.APART}
    assert apart == {"disabled"}
