"""Each surface has exactly the fields of a client that the table gives it."""

import dataclasses
import html
import re
from collections.abc import Callable

import click
import pytest
from flask import Flask
from joserfc.jwk import ECKey
from sqlalchemy import Boolean

from scripts import documentation
from sso.cli import apply, connect
from sso.cli.clients import update, view
from sso.config import images
from sso.config.client_fields import COLUMNS, FIELDS, FIXED, IN_API, SETTABLE
from sso.config.fields import LISTS, Field, Kind, Stored
from sso.endpoints import openapi
from sso.endpoints.admin.client_form import ClientForm
from sso.models import Client
from sso.presets.preset_file import Registration
from sso.services import clients
from sso.store import clients as stored_clients
from tests.conftest import Clock
from tests.support.administration import ADMIN, sign_in_staff
from tests.support.factories import make_api, make_attribute, make_client
from tests.support.logos import png
from tests.support.old_servers import KEYCLOAK, TOGETHER
from tests.support.saml import pair
from tests.test_architecture import PACKAGE

IMAGE = images.parse(png(), 10_000)
API = "https://api.example.com"
OF_PRESETS = {"preset", "url", "preset_options", "alternative"}
VALUES = {
    "client_name": "Books",
    "redirect_uris": ["https://books.example/callback"],
    "post_logout_redirect_uris": ["https://books.example/"],
    "backchannel_logout_uri": "https://books.example/logout",
    "home_url": "https://books.example/home",
    "groups": ["readers"],
    "roles": ["editor=writers", "reader"],
    "own_claims": ["tier=group:writers,gold", "tenant@id_token=constant:acme"],
    "apis": [f"{API}=read"],
    "exchange_from": [API],
    "default_api": API,
    "id_jag_audiences": ["https://chat.example books read"],
    "id_jag_issuers": ["https://idp.example"],
    "scim_url": "https://books.example/scim/v2",
    "scim_attributes": ["title=constant:Reader"],
    "preset": {"name": "grafana"},
    "issuer": KEYCLOAK,
    "subject_attribute": "former_subject",
    "jwks_uri": "https://books.example/keys",
    "profile": "fapi2",
}
# A client behind a proxy has neither a secret nor other URLs.
PROXY = {"proxy_urls": ["https://books.example"], "public_paths": ["/health", "/static/*"]}
# In place of a key of its own, and so apart from the rest.
TRUST = {"trust_issuer": "https://ci.example", "trust_subject": "job:*", "trust_audience": "sso"}
# Of clients that get no tokens.
SAML = {
    "saml_entity_id": "https://wiki.example/saml",
    "saml_acs_urls": ["https://wiki.example/saml/acs"],
    "saml_logout_url": "https://wiki.example/saml/slo",
    "saml_name_id": "email",
    "saml_attributes": ["mail=email"],
    "saml_certificates": pair().certificate,
    "saml_metadata_expires": "2026-12-01T00:00:00Z",
    "saml_signed_requests": True,
}


def names(fields: list[Field]) -> set[str]:
    return {field.name for field in fields}


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    app = make_app(SSO_ISSUER_ALIASES=TOGETHER)
    make_attribute(app, "former_subject", writers=[])
    return app


def value_of(field: Field) -> object:
    """A value of a field that the table gives no other."""
    if field.kind is Kind.SWITCH:
        return True
    if field.name in PROXY:
        return []
    return field.default or field.choices[0]


def everything() -> dict[str, object]:
    """A value for each field that may be together with others; that of `logo` is apart."""
    apart = (Kind.IMAGE, Kind.KEY_SET)
    fields = [
        field for field in SETTABLE if field.kind not in apart and field.name not in {*TRUST, *SAML}
    ]
    values = {field.name: VALUES.get(field.name) or value_of(field) for field in fields}
    return {**values, "token_endpoint_auth_method": "private_key_jwt",
            "id_token_signed_response_alg": "ES256", "disabled": False}  # fmt: skip


def options(command: click.Command) -> dict[str, click.Option]:
    return {
        option.name or "": option
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and option.name != "as_json"
    }


def test_create_has_an_option_for_each_field() -> None:
    found = options(connect.create)
    own = {"public", "proxy", "service", "device", "exchange", "assertions", "saml", "metadata"}
    assert found.keys() - OF_PRESETS - own == names([f for f in SETTABLE if f.option])
    for field in SETTABLE:
        if field.option:
            assert field.flag in found[field.name].opts
            assert found[field.name].is_flag == (field.kind is Kind.SWITCH)
            assert isinstance(found[field.name].type, click.Choice) == (field.kind is Kind.CHOICE)


def test_update_has_options_that_change_and_remove() -> None:
    expected = set()
    for field in SETTABLE:
        if field.option and field.kind in LISTS:
            expected |= {f"{verb}_{field.name}" for verb in ("add", "remove", "set")}
        elif field.option:
            expected |= {field.name, *([f"no_{field.name}"] if field.option.removal else [])}
    found = options(update)
    own = {"service", "device", "exchange", "assertions", "metadata"}
    assert found.keys() == expected | own
    for field in SETTABLE:
        if field.kind is Kind.SWITCH and field.option:
            assert found[field.name].secondary_opts == [f"--no-{field.option.name}"]


def test_a_declaration_has_all_fields() -> None:
    table, _ = apply.KINDS["clients"]
    own = {"client_id", "secret", "secret_ends_at", "public"}
    assert table.keys() - own == names(SETTABLE)
    assert all(table[field.name] is field for field in SETTABLE)


def test_the_api_documents_its_fields() -> None:
    schema = openapi.document("https://sso.example")["components"]["schemas"]["ClientMetadata"]
    assert schema["properties"].keys() == names([*IN_API, *FIXED])
    assert {n for n, one in schema["properties"].items() if "readOnly" in one} == names(FIXED)
    assert schema["required"] == [field.name for field in IN_API if field.is_required]
    page = documentation.page("docs/reference/api.md")
    assert all(f"| `{field.name}` |" in page for field in (*IN_API, *FIXED))


def test_the_api_takes_its_fields_and_no_others(app: Flask) -> None:
    values = {**everything(), **TRUST, **SAML}
    assert values.keys() == names(IN_API) - {"jwks"}
    assert clients.parsed_registration({**values, "logo": "x", "unknown": 7}) == values
    assert clients.replacing_registration({}).keys() == FIELDS.keys() - {"logo", "disabled"}


def test_all_that_is_registered_is_shown(app: Flask) -> None:
    """By the command, the API, the plan and the file."""
    values = everything()
    make_api(app, API)
    made = make_client(app, **values, logo=IMAGE)
    with app.app_context():
        client = stored_clients.find(made.client_id)
        assert client
        described = clients.described(client)
        assert described.keys() == values.keys() | {"client_id", "logo"}
        assert {name: described[name] for name in values} == values
        assert {n: v for n, v in view(client).items() if n in values} == values
        document = clients.registration_document(client)
        assert {n: v for n, v in document.items() if n in values} == values
        [entry] = apply.declaration()["clients"]
        assert entry.keys() == described.keys()
        planned = clients.plan_registration({**values, "logo": IMAGE}, client_id="books")
        assert planned.keys() == described.keys()


@pytest.mark.parametrize("more", [TRUST, {**SAML, "redirect_uris": []}])
def test_what_is_apart_is_shown_as_well(app: Flask, more: dict[str, object]) -> None:
    made = make_client(app, **more)
    with app.app_context():
        client = stored_clients.find(made.client_id)
        assert client
        [entry] = apply.declaration()["clients"]
        for fields in (clients.described(client), view(client), entry):
            assert {name: fields[name] for name in more} == more
        document = clients.registration_document(client)
        assert {name: document[name] for name in more} == more


def test_a_place_behind_a_proxy_is_shown_as_well(app: Flask) -> None:
    made = make_client(app, redirect_uris=[], **PROXY)
    with app.app_context():
        client = stored_clients.find(made.client_id)
        assert client
        [entry] = apply.declaration()["clients"]
        for fields in (clients.described(client), view(client), entry):
            assert {name: fields[name] for name in PROXY} == PROXY
            assert fields["redirect_uris"] == ["https://books.example/.sso/callback"]
            assert fields["token_endpoint_auth_method"] == "none"


def test_an_administrators_form_has_its_fields(app: Flask, clock: Clock) -> None:
    with app.test_request_context():
        inputs = {field.name for field in ClientForm() if field.name not in ("csrf_token", "seen")}
    assert inputs == names([field for field in SETTABLE if field.form])
    make_api(app, API)
    made = make_client(app, **everything())
    page = sign_in_staff(app).open(f"{ADMIN}/application/edit?id={made.client_id}").html
    assert all(f'name="{name}"' in page for name in inputs)


def test_an_applications_page_has_its_facts(app: Flask, clock: Clock) -> None:
    make_api(app, API)
    made = make_client(app, **everything())
    trusting = make_client(app, **TRUST)
    proxied = make_client(app, redirect_uris=[], **PROXY)
    speaking = make_client(app, redirect_uris=[], **SAML)
    key = ECKey.generate_key("P-256").as_dict(private=False)
    signing = make_client(
        app, token_endpoint_auth_method="private_key_jwt", jwks={"keys": [{**key, "kid": "one"}]}
    )
    staff = sign_in_staff(app)
    clients_shown = (made, trusting, proxied, speaking, signing)
    pages = {
        each.client_id: staff.open(f"{ADMIN}/application?id={each.client_id}").html
        for each in clients_shown
    }
    assert "EC P-256: one" in pages[signing.client_id]
    apart = dict.fromkeys(TRUST, trusting) | dict.fromkeys(PROXY, proxied)
    apart |= dict.fromkeys(SAML, speaking) | {"jwks": signing}
    for field in SETTABLE:
        if field.fact:
            title = field.fact.title or (field.form and field.form.label) or ""
            client_id = apart.get(field.name, made).client_id
            assert f"<dt>{html.escape(title, quote=False)}</dt>" in pages[client_id]


def test_presets_have_their_fields() -> None:
    own = {"public"}
    fields = {field.name for field in dataclasses.fields(Registration)} - own
    assert fields == {field.preset.name for field in FIELDS.values() if field.preset}


def test_columns_are_those_of_the_table() -> None:
    columns = {column.name for column in Client.__table__.c if isinstance(column.type, Boolean)}
    assert columns - {"disabled_within_limits"} == names(COLUMNS)  # a fact, not a field


def test_services_and_presets_name_no_options() -> None:
    """The table says how an option is called."""
    flags = "|".join(field.flag for field in SETTABLE if field.option)
    for folder in ("services", "presets"):
        for path in (PACKAGE / folder).glob("*.py"):
            assert not re.search(rf"(?<![\w-])({flags})(?![\w-])", path.read_text()), path


def test_fields_without_an_option_are_known() -> None:
    """Services, the commands `disable` and `enable`, and `--service` and its like set them."""
    without = {field.name for field in SETTABLE if not field.option}
    assert without == {"preset", "disabled", "grant_types", "saml_metadata_expires"}
    apart = [field for field in SETTABLE if field.stored is Stored.APART]
    assert names(apart) == {"disabled", "logo"}
