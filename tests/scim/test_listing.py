"""Pages of resources: the JSON made from rows is, byte by byte, that of the library's models."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from flask import Flask
from hypothesis import given, settings
from hypothesis import strategies as st
from scim2_server.service import ScimService
from scim2_server.storage import SearchPage

from sso.extensions import db
from sso.models import Attribute, Group, User
from sso.scim import extension, handler, resources
from sso.scim.extension import SCHEMA, Schema
from tests.scim.conftest import ENTERPRISE, USER, Provisioner
from tests.support.factories import make_user
from tests.support.statements import watched

BASE = "https://sso.example/api/auth/scim/v2"
ACCOUNT = str(resources.Account.__schema__)
DEFINED = {"level": "number", "ok": "boolean", "tags": "list", "plan": "string"}
PLAIN = extension.schema_of([])
WITH_ATTRIBUTES = extension.schema_of(
    Attribute(name=name, type=kind, title="", readers=["scim"], writers=["scim"])
    for name, kind in DEFINED.items()
)
GROUPS = {
    name: Group(id=uuid4(), name=name, version=1, created_at=datetime.now(UTC),
                updated_at=datetime.now(UTC), external_id=None)
    for name in ("staff", "Bücher")
}  # fmt: skip

TEXTS = st.sampled_from(["", "Erin", "Ö\u2028", '"\\', "a" * 200])
FEW = st.none() | TEXTS
MOMENTS = st.datetimes(timezones=st.just(UTC), min_value=datetime(2000, 1, 1))
ENTRY = {"value": TEXTS, "type": st.sampled_from(["work", "home", "x"]), "primary": st.booleans()}
EMAILS = st.lists(st.fixed_dictionaries({}, optional=ENTRY | {"display": TEXTS}), max_size=2)
STORED = st.fixed_dictionaries({}, optional={
    "userName": st.just("Erin"), "displayName": TEXTS, "title": FEW, "active": st.none(),
    "userType": FEW,
    "preferredLanguage": FEW, "locale": TEXTS, "timezone": TEXTS, "emails": EMAILS,
    "name": st.fixed_dictionaries({}, optional={"honorificPrefix": FEW, "familyName": FEW}),
    "addresses": st.lists(
        st.fixed_dictionaries({}, optional={"country": FEW, "formatted": TEXTS}), max_size=2
    ),
    "phoneNumbers": st.lists(st.fixed_dictionaries({}, optional=ENTRY), max_size=2),
    ENTERPRISE: st.fixed_dictionaries({}, optional={
        "department": FEW, "manager": st.fixed_dictionaries({}, optional={"value": FEW}),
    }),
})  # fmt: skip
CLAIMS = st.fixed_dictionaries({}, optional={
    "given_name": TEXTS, "nickname": TEXTS, "locale": st.just("de-CH"), "zoneinfo": FEW,
    "profile": st.sampled_from(["https://x.example", "https://x.example/~a b"]),
    "phone_number": TEXTS,
})  # fmt: skip
VALUES = st.fixed_dictionaries({}, optional={
    "level": st.sampled_from([0, 3, 2.5, -1, 10**15]), "ok": st.booleans(),
    "tags": st.lists(TEXTS, max_size=2), "plan": TEXTS,
})  # fmt: skip
USERS = st.builds(
    User, id=st.uuids(version=4), email=st.just("erin@example.com"), name=st.just("Erin"),
    user_name=st.none() | st.just("erin"), external_id=FEW, scim_attributes=st.none() | STORED,
    claims=CLAIMS, attributes=VALUES, created_at=MOMENTS, updated_at=MOMENTS,
    version=st.integers(1, 9), disabled_at=st.none() | MOMENTS,
    ends_at=st.none() | MOMENTS.map(lambda moment: moment.replace(microsecond=0)),
    stored_groups=st.lists(st.sampled_from([*GROUPS, "gone"]), unique=True),
)  # fmt: skip
NAMES = (
    *("id", "userName", "USERNAME", "name", "name.givenName", "emails.value", "active", "meta"),
    *("meta.version", "groups", "groups.$ref", "groups.display", "externalId", "password", "x"),
    *("addresses", "schemas", ENTERPRISE, f"{ENTERPRISE}:manager.value", f"{USER}:title"),
    *(f"{ENTERPRISE}:department", str(SCHEMA), f"{SCHEMA}:level", "members", "members.value"),
    *(ACCOUNT, f"{ACCOUNT}:endsAt"),
)
QUERIES = st.one_of(
    st.just({}),
    st.builds(
        lambda name, values: {name: ",".join(values)},
        st.sampled_from(["attributes", "excludedAttributes"]),
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
    ),
)


def both(
    schema: Schema,
    kind: str,
    query: dict[str, str],
    models: Sequence[Any],
    documents: Sequence[Any],
) -> tuple[str, str]:
    """The answers of the library, which has models, and of the server, which has documents."""
    answers = []
    for service, page in (
        (ScimService(schema.provider), models),
        (handler.Service(schema.provider), documents),
    ):
        with schema.provider:
            types = service.searched_types(f"/{kind}")
            request, _ = service.read_search_query(types, query)
            answer = service.search_response(BASE, types, SearchPage(7, list(page)), request)
        answers.append(json.dumps(answer.body))
    return answers[0], answers[1]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([PLAIN, WITH_ATTRIBUTES]), QUERIES, st.lists(USERS, max_size=2))
def test_people_are_what_the_models_would_say(
    schema: Schema, query: dict[str, str], people: list[User]
) -> None:
    def more(person: User) -> dict[str, Any]:
        return schema.document_of(person.attributes)

    models = [resources.user_resource(one, GROUPS, schema.user, more(one)) for one in people]
    documents = [resources.user_document(one, GROUPS, more(one)) for one in people]
    library, own = both(schema, "Users", query, models, documents)
    assert own == library


@settings(max_examples=50, deadline=None)
@given(QUERIES, st.lists(st.uuids(), max_size=3) | st.none(), MOMENTS, FEW)
def test_groups_are_what_the_models_would_say(
    query: dict[str, str], members: Any, moment: datetime, external_id: str | None
) -> None:
    row: Any = Group(id=uuid4(), name="Bücher", version=2, external_id=external_id,
                     created_at=moment, updated_at=moment)  # fmt: skip
    models, documents = (
        [resources.group_resource(row, members)],
        [resources.group_document(row, members)],
    )
    library, own = both(PLAIN, "Groups", query, models, documents)
    assert own == library


def test_the_members_of_a_page_take_no_statement_each(app: Flask, scim: Provisioner) -> None:
    ids = [str(make_user(app, f"u{number}@example.com").id) for number in range(3)]
    for number in range(6):
        scim.group(f"g{number}", *ids[: number % 4])
    statements: list[str] = []
    with app.app_context():
        engine = db.engine
    with watched(engine, lambda statement, _: statements.append(statement)):
        page = scim.get("/Groups")
    assert page["totalResults"] == 6
    sizes = {row["displayName"]: len(row.get("members", ())) for row in page["Resources"]}
    assert sizes == {"g0": 0, "g1": 1, "g2": 2, "g3": 3, "g4": 0, "g5": 1}
    # Two of a page, of its groups' sizes, of their members.
    assert len([one for one in statements if " users" in one or "memberships" in one]) == 2
    (third,) = (row for row in page["Resources"] if row["displayName"] == "g3")
    assert [member["value"] for member in third["members"]] == sorted(ids)
